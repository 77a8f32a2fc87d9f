from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from school.config import load_config
from school.verification.detection import detect, load_or_detect
from school.verification.recipe import MANIFEST, Recipe, load, parsed, save
from tests.support import write_tree

PACKAGE = '[project]\nname = "x"\n'
FLASK = "from flask import Flask\n\napp = Flask(__name__)\n"
FASTAPI = "from fastapi import FastAPI\n\napi = FastAPI(title='x')\n"
TEST = "def test_a():\n    assert True\n"


def package(dependencies: str = "", **scripts: str) -> str:
    return json.dumps({"scripts": scripts, "dependencies": dict.fromkeys(dependencies.split(), "*")})


def phases(recipe: Recipe | None) -> dict[str, Any]:
    assert recipe is not None
    told = recipe.document()
    kept = {name: told[name] for name in ("kind", "bootstrap", "build", "test", "start", "port")}
    return {name: value for name, value in kept.items() if value}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"package.json": package("next", test="jest", dev="next dev", build="next build", lint="eslint")},
            {
                "kind": "nextjs",
                "bootstrap": ["npm install"],
                "build": ["npm run build"],
                "test": ["npm run test", "npm run lint"],
                "start": "npm run dev",
                "port": 3000,
            },
        ),
        (
            {"package.json": package("vite", dev="vite --port 8123", typecheck="tsc"), "yarn.lock": ""},
            {
                "kind": "vite",
                "bootstrap": ["yarn install"],
                "build": ["yarn run typecheck"],
                "start": "yarn run dev",
                "port": 8123,
            },
        ),
        (  # a library: what watches for changes is no service
            {"package.json": package(test="node --test", dev="tsc --watch")},
            {"kind": "node", "test": ["npm run test"]},
        ),
        (
            {"package.json": package(start="PORT=4567 node server.js")},
            {"kind": "node", "start": "npm run start", "port": 4567},
        ),
        (
            {"package.json": package(test="jest"), "pytest.ini": "", "go.mod": "module x\n"},
            {"kind": "node", "test": ["npm run test", "python3 -m pytest", "go test ./..."]},
        ),
        (
            {"pyproject.toml": PACKAGE, "tests/test_a.py": TEST},
            {
                "kind": "python",
                "bootstrap": ["python3 -m venv .venv", ".venv/bin/python -m pip install -e . pytest"],
                "test": [".venv/bin/python -m pytest"],
            },
        ),
        (
            {
                "pyproject.toml": PACKAGE + '[project.optional-dependencies]\ntest = ["pytest"]\n',
                "requirements.txt": "",
                "test_a.py": TEST,
            },
            {
                "kind": "python",
                "bootstrap": [
                    "python3 -m venv .venv",
                    ".venv/bin/python -m pip install -e '.[test]' -r requirements.txt pytest",
                ],
                "test": [".venv/bin/python -m pytest"],
            },
        ),
        (
            {"pyproject.toml": PACKAGE, "uv.lock": "", "pytest.ini": ""},
            {"kind": "python", "bootstrap": ["uv sync"], "test": ["uv run python -m pytest"]},
        ),
        (  # nothing to install: the tests run with the Python that is there
            {"test_a.py": "import unittest\n"},
            {"kind": "python", "test": ["python3 -m unittest discover"]},
        ),
        (
            {"manage.py": "import django\n", "requirements.txt": "django\n"},
            {
                "kind": "django",
                "bootstrap": ["python3 -m venv .venv", ".venv/bin/python -m pip install -r requirements.txt"],
                "test": [".venv/bin/python manage.py test"],
                "start": ".venv/bin/python manage.py runserver 8000",
                "port": 8000,
            },
        ),
        (
            {"requirements.txt": "flask\n", "app.py": FLASK, ".venv/bin/python": ""},
            {
                "kind": "flask",
                "bootstrap": [".venv/bin/python -m pip install -r requirements.txt"],
                "start": ".venv/bin/python -m flask --app app run --port 5000",
                "port": 5000,
            },
        ),
        (
            {"poetry.lock": "", "pyproject.toml": "[tool.poetry]\n", "main.py": FASTAPI},
            {
                "kind": "fastapi",
                "bootstrap": ["poetry install"],
                "start": "poetry run python -m uvicorn main:api --port 8000",
                "port": 8000,
            },
        ),
        (
            {"go.mod": "module x\n", "main.go": 'http.ListenAndServe(":9090", nil)\n'},
            {
                "kind": "go",
                "build": ["go build ./..."],
                "test": ["go test ./..."],
                "start": "go run .",
                "port": 9090,
            },
        ),
        (
            {"go.mod": "module x\n", "main.go": 'fmt.Println("a tool")\n'},
            {"kind": "go", "build": ["go build ./..."], "test": ["go test ./..."]},
        ),
        (
            {"Cargo.toml": '[dependencies]\naxum = "0.7"\n', "src/main.rs": ""},
            {"kind": "rust", "build": ["cargo build"], "test": ["cargo test"], "start": "cargo run"},
        ),
        (
            {"Cargo.toml": "[package]\n", "src/main.rs": ""},
            {"kind": "rust", "build": ["cargo build"], "test": ["cargo test"]},
        ),
        (
            {"pom.xml": "<project/>", "mvnw": ""},
            {"kind": "maven", "build": ["./mvnw -q -DskipTests package"], "test": ["./mvnw -q test"]},
        ),
        (
            {"build.gradle.kts": 'id("org.springframework.boot")', "gradlew": ""},
            {
                "kind": "gradle",
                "build": ["./gradlew assemble"],
                "test": ["./gradlew test"],
                "start": "./gradlew bootRun",
                "port": 8080,
            },
        ),
        (  # `make install` writes where the machine keeps its programs, `make run` need not be a service
            {"Makefile": "all: x\ninstall:\n\tcp x /usr/bin\ntest check:\n\ttrue\nrun:\n\t./x\n"},
            {"kind": "make", "build": ["make all"], "test": ["make test", "make check"]},
        ),
        (
            {"compose.yaml": "services:\n  web:\n    image: x\n    ports: ['127.0.0.1:8088:80/tcp']\n"},
            {
                "kind": "compose",
                "build": ["docker compose build"],
                "start": "docker compose up",
                "port": 8088,
            },
        ),
        (
            {"compose.yml": "services: [3]\n"},
            {"kind": "compose", "build": ["docker compose build"]},
        ),
        (
            {"docker-compose.yml": "services:\n  db:\n    image: x\n"},
            {"kind": "compose", "build": ["docker compose build"]},
        ),
        ({"tox.ini": "[testenv]\n"}, {"kind": "checks", "test": ["tox"]}),
        ({"scripts/run_tests.sh": ""}, {"kind": "checks", "test": ["bash scripts/run_tests.sh"]}),
    ],
)
def test_what_is_found_is_what_a_maintainer_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: dict[str, Any]
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    write_tree(tmp_path / "p", files)
    assert phases(detect(tmp_path / "p")) == expected


def test_an_environment_that_is_active_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "p", {"setup.py": "", "pytest.ini": ""})
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    recipe = detect(tmp_path / "p")
    assert recipe is not None
    assert recipe.bootstrap == ("python -m pip install -e . pytest",)
    assert recipe.test == ("python -m pytest",)


def test_nothing_is_found_where_nothing_is_declared(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {"README.md": "", "package.json": "[1]", "setup.cfg": ""})
    assert detect(tmp_path / "p") is None


def test_what_the_configuration_declares_stands_in_place_of_what_was_found(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {"package.json": package(test="jest", start="x --port 80")})
    config = load_config('[verify]\ncommands = [["sh", "c.sh", "a b"]]\n[setup]\ncommands = [["npm", "ci"]]')
    assert phases(detect(tmp_path / "p", config)) == {
        "kind": "node",
        "bootstrap": ["npm ci"],
        "test": ["sh c.sh 'a b'"],
        "start": "npm run start",
        "port": 80,
    }
    write_tree(tmp_path / "q", {"x": ""})
    assert phases(detect(tmp_path / "q", config))["test"] == ["sh c.sh 'a b'"]


# --- saved ----------------------------------------------------------------------------------------------------


def test_a_saved_recipe_wins_and_is_not_merged(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {"package.json": package(test="jest")})
    mine = Recipe("mine", test=("make t",), start="./s", port=81, readiness_path="/up", timeouts={"test": 5})
    path = save(tmp_path / "p", mine)
    assert path == tmp_path / "p" / MANIFEST
    assert json.loads(path.read_text())["version"] == 1
    found = load_or_detect(tmp_path / "p")
    assert (found.recipe, found.source, found.problems) == (mine, "manifest", ())


@pytest.mark.parametrize(
    ("value", "recipe"),
    [
        ({"name": "a", "test": "make t"}, Recipe("a", test=("make t",))),
        (
            {
                "appLabel": "a",
                "appKind": "k",
                "installCommands": ["i"],
                "buildCommands": "b",
                "startPort": "80",
            },
            Recipe("a", "k", bootstrap=("i",), build=("b",), port=80),
        ),
        (
            {"name": "a", "testCommands": ["t"], "startCommand": "s", "readiness_path": "/x y"},
            Recipe("a", test=("t",), start="s", readiness_path="/x%20y"),
        ),
        (
            {"version": 1, "recipe": {"name": "a", "test": [], "start": "s", "port": None}, "updatedAt": "x"},
            Recipe("a", start="s"),
        ),
    ],
)
def test_forms_that_are_understood(value: Any, recipe: Recipe) -> None:
    assert parsed(value) == (recipe, [])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"{", ".hermes/environment.json: cannot be used: "),
        (b"\xff\xfe", ".hermes/environment.json: cannot be used: "),
        (b"[" * 100_000, ".hermes/environment.json: cannot be used: "),
        (b"[]", "expected a JSON object; looking at the project itself instead"),
        (b'{"test": ["x"]}', '"name" is missing (any text); looking'),
        (b'{"name": "x"}', "it declares nothing to run; looking"),
        (b'{"version": 2, "recipe": {"name": "x", "test": "t"}}', "version 2 is not known"),
        # Without some of its commands it would prove less than it says.
        (b'{"name": "x", "build": "b", "test": ["a", 3]}', "test: expected commands that are strings"),
        (b'{"name": "x", "test": "t", "start": ["s"]}', "start: expected a string"),
    ],
)
def test_a_broken_recipe_is_reported_and_the_project_looked_at(tmp_path: Path, raw: bytes, said: str) -> None:
    write_tree(tmp_path / "p", {"Makefile": "test:\n\ttrue\n", MANIFEST: ""})
    (tmp_path / "p" / MANIFEST).write_bytes(raw)
    found = load_or_detect(tmp_path / "p")
    assert found.source == "detected"
    assert found.recipe is not None
    assert found.recipe.test == ("make test",)
    assert said in found.problems[-1]
    assert "instead" in found.problems[-1]


@pytest.mark.parametrize(
    ("key", "value"),
    [("port", 0), ("port", 65536), ("port", True), ("port", "٣"), ("readinessPath", "up"), ("tests", "t")],
)
def test_what_only_says_less_is_dropped_and_reported(key: str, value: object) -> None:
    recipe, problems = parsed({"name": "a", "test": "t", key: value})
    assert recipe == Recipe("a", test=("t",))
    assert len(problems) == 1
    assert problems[0].startswith(f"{key}: ")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    write_tree(tmp_path, {MANIFEST: '\ufeff{"name": "a", "test": "t"}'})
    assert load(tmp_path) == (Recipe("a", test=("t",)), [])
