"""Our plugin in a Hermes home: what is copied, what is edited, and everything that is left alone."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import conductor
from school.errors import ConfigError
from school.settings import Settings
from school.status import hermes_config
from school.status.hermes import install, state

ADDED = [
    ("", "plugins:\n  enabled:\n    - schoolhouse\n"),
    ("# only a comment\n", "# only a comment\nplugins:\n  enabled:\n    - schoolhouse\n"),
    ("a: 1", "a: 1\nplugins:\n  enabled:\n    - schoolhouse\n"),
    ("a: 1 # x\n# end\n", "a: 1 # x\nplugins:\n  enabled:\n    - schoolhouse\n# end\n"),
    ("plugins:\n", "plugins: {enabled: [schoolhouse]}\n"),
    ("plugins: null # none\nb: 2\n", "plugins: {enabled: [schoolhouse]} # none\nb: 2\n"),
    ("plugins: {}\n", "plugins: {enabled: [schoolhouse]}\n"),
    ("plugins: {disabled: [x]}\n", "plugins: {disabled: [x], enabled: [schoolhouse]}\n"),
    ("plugins:\n  enabled: []  # none\n", "plugins:\n  enabled: [schoolhouse]  # none\n"),
    ("plugins:\n  enabled: [a, 'b']\n", "plugins:\n  enabled: [a, 'b', schoolhouse]\n"),
    ("plugins:\n  enabled: [a, ]\n", "plugins:\n  enabled: [a, schoolhouse]\n"),
    ("plugins:\n  enabled:\n", "plugins:\n  enabled: [schoolhouse]\n"),
    ("plugins:\n  enabled: ~\n", "plugins:\n  enabled: [schoolhouse]\n"),
    (
        "plugins:\n    # mine\n    enabled:\n    - a # one\n    - b\n    entries:\n      a: {x: 1}\nz: 1\n",
        "plugins:\n    # mine\n    enabled:\n    - a # one\n    - b\n    - schoolhouse\n    entries:\n      a: {x: 1}\nz: 1\n",
    ),
    (
        "plugins:\n  # first\n  disabled:\n    - x\nz: |\n  text\n",
        "plugins:\n  # first\n  enabled:\n    - schoolhouse\n  disabled:\n    - x\nz: |\n  text\n",
    ),
    ("z: |\n  text\n", "z: |\n  text\nplugins:\n  enabled:\n    - schoolhouse\n"),
    ("plugins:\r\n  enabled:\r\n  - a\r\n", "plugins:\r\n  enabled:\r\n  - a\r\n  - schoolhouse\r\n"),
    ("{a: 1}\n", "{a: 1, plugins: {enabled: [schoolhouse]}}\n"),
    ("plugins:\n  enabled:\n    - ünïcode\n", "plugins:\n  enabled:\n    - ünïcode\n    - schoolhouse\n"),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_one_name_is_added_and_every_other_byte_stays(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(before.encode())
    assert hermes_config.enabled(path, "schoolhouse") == "off"
    backup = hermes_config.enable(path, "schoolhouse")
    assert path.read_bytes().decode() == after
    assert Path(backup).read_bytes().decode() == before
    assert hermes_config.enabled(path, "schoolhouse") == "on"
    assert hermes_config.enable(path, "schoolhouse") == ""
    assert path.read_bytes().decode() == after


@pytest.mark.parametrize(
    "text",
    [
        "plugins: all\n",
        "plugins:\n  enabled: all\n",
        "list: &mine [a]\nplugins:\n  enabled: *mine\n",
        "base: &base {enabled: [a]}\nplugins: *base\n",
        "plugins:\n  enabled: [a # one\n    ,b # two\n    ]\n---\n",
    ],
)
def test_what_cannot_be_added_to_is_left_as_it_is_and_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        hermes_config.enable(path, "schoolhouse")
    assert path.read_text() == text
    assert list(tmp_path.glob("*config*")) == [path]


def test_broken_yaml_is_refused_before_anything_is_written(school: Settings) -> None:
    school.hermes_home.mkdir()
    config = school.hermes_home / "config.yaml"
    config.write_text("model:\n  default: x\n bad: [\n")
    with pytest.raises(
        ConfigError, match=r"config\.yaml is no valid YAML, so Hermes ignores all of it.*: line 3: "
    ):
        install(school)
    assert config.read_text() == "model:\n  default: x\n bad: [\n"
    assert [path.name for path in school.hermes_home.iterdir()] == ["config.yaml"]


def test_mode_and_link_of_the_file_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yaml"
    real.write_text("a: 1\n")
    real.chmod(0o640)
    link = tmp_path / "config.yaml"
    link.symlink_to(real)
    hermes_config.enable(link, "schoolhouse")
    assert link.is_symlink()
    assert yaml.safe_load(real.read_text())["plugins"] == {"enabled": ["schoolhouse"]}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_installing_again_changes_nothing_and_a_changed_copy_is_renewed(school: Settings) -> None:
    school.hermes_home.mkdir()
    (school.hermes_home / "config.yaml").write_text("a: 1 # mine\n")
    before = state(school)
    assert [(row["check"], row["ok"]) for row in before][:2] == [
        ("hermes-plugin", False),
        ("hermes-enabled", False),
    ]
    rows = install(school)
    assert [row["ok"] for row in rows][:2] == [True, True]
    place = school.hermes_home / "plugins" / "schoolhouse"
    assert yaml.safe_load((place / "plugin.yaml").read_text())["kind"] == "standalone"
    listing = {path: path.stat().st_mtime_ns for path in school.hermes_home.rglob("*")}
    assert install(school)[0]["detail"].endswith("; nothing to do")
    assert {path: path.stat().st_mtime_ns for path in school.hermes_home.rglob("*")} == listing
    (place / "vendor" / "school" / "hooks.py").write_text("broken")
    (place / "vendor" / "old.py").write_text("old")
    assert state(school)[0]["ok"] is False
    install(school)
    assert state(school)[0]["ok"] is True
    assert not (place / "vendor" / "old.py").exists()


def test_the_copy_stands_on_its_own(school: Settings, tmp_path: Path) -> None:
    """In an interpreter that has nothing of ours: only what Hermes has too is needed beside the copy."""
    install(school)
    code = (
        "import sys, importlib.util as u, pathlib\n"
        "place = pathlib.Path(sys.argv[1])\n"
        "spec = u.spec_from_file_location('hermes_plugins.schoolhouse', place / '__init__.py',"
        " submodule_search_locations=[str(place)])\n"
        "module = u.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "hooks = {}\n"
        "class Ctx:\n"
        "    def register_hook(self, name, callback): hooks.setdefault(name, []).append(callback)\n"
        "    def register_command(self, name, handler, description='', args_hint=''): hooks[name] = handler\n"
        "module.register(Ctx())\n"
        "import school, filelock\n"
        "print(school.__file__, filelock.__file__, len(hooks))\n"
        "for callback in hooks['on_session_end']: callback(session_id='s1', completed=True)\n"
        "print(hooks['governor']('report').splitlines()[0][:10])\n"
    )
    place = school.hermes_home / "plugins" / "schoolhouse"
    third = tmp_path / "third"
    third.mkdir()
    import pydantic
    import pydantic_core

    for package in (
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions.py",
        "typing_inspection",
    ):
        source = Path(pydantic.__file__).parents[1] / package
        (third / package).symlink_to(source)
    assert pydantic_core.__file__
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(place)],
        cwd=tmp_path,
        env={**school.environment(), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(third)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    where, report = done.stdout.splitlines()
    assert where == f"{place}/vendor/school/__init__.py {place}/vendor/filelock/__init__.py 12"
    assert report == "Session s1"


def test_disabled_by_name_is_said(school: Settings) -> None:
    school.hermes_home.mkdir()
    (school.hermes_home / "config.yaml").write_text("plugins: {disabled: [schoolhouse]}\n")
    row = install(school)[1]
    assert row["ok"] is False
    assert "plugins.disabled names schoolhouse, which wins" in row["detail"]


def test_what_the_plugin_said_of_itself_is_shown(school: Settings) -> None:
    install(school)
    path = school.governor_dir / "hermes-plugin.state"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"at": "then", "heard": {"post_tool_call": 3}, "problems": []}))
    assert state(school)[3] == {
        "check": "hermes-hooks",
        "ok": True,
        "detail": "heard at then: post_tool_call",
    }
    path.write_text(json.dumps({"at": "then", "heard": {}, "problems": ["plugin: tool:x: \x1b[31m"]}))
    assert state(school)[3] == {"check": "hermes-hooks", "ok": False, "detail": "plugin: tool:x: \\x1b[31m"}
    path.write_text("{")
    assert state(school)[3]["ok"] is None


def test_the_command_line(school: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert conductor.entry(["hermes", "status", "--json"]) == 1
    assert [row["ok"] for row in json.loads(capfd.readouterr().out)][:2] == [False, False]
    assert conductor.entry(["hermes", "install"]) == 0
    assert capfd.readouterr().out.startswith("ok")
    assert conductor.entry(["hermes", "status", "--json"]) == 0
    assert conductor.entry(["hermes"]) == 2
    assert conductor.entry(["hermes", "remove"]) == 2
    (school.hermes_home / "config.yaml").write_text("a: [\n")
    capfd.readouterr()
    assert conductor.entry(["hermes", "install", "--json"]) == 2
    out, _ = capfd.readouterr()
    assert json.loads(out)["exit"] == 2
