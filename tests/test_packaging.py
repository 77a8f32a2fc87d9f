"""What a user installs: the lock file agrees with pyproject.toml, and the wheel works away from the clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def wanted() -> list[Requirement]:
    return [
        Requirement(text) for text in PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    ]


def test_lock_satisfies_every_declared_requirement() -> None:
    pins = {canonicalize_name(name): version for name, version in PIN.findall(LOCK)}
    missing = [str(want) for want in wanted() if pins.get(canonicalize_name(want.name)) not in want.specifier]
    assert missing == []


def test_every_pin_has_a_hash_and_no_host_is_named() -> None:
    entries = re.split(r"\n(?=[A-Za-z0-9])", LOCK.strip())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree and installed into a fresh environment elsewhere; its bin folder."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = (place / "dist").glob("schoolhouse-*.whl")
    venv.create(place / "env", with_pip=False)
    site = place / "env" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    # The dependencies are the ones under test here, already installed; only the project itself comes from the wheel.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return place / "env" / "bin"


def run_installed(installed: Path, code: str, cwd: Path) -> str:
    done = subprocess.run(
        [installed / "python", "-c", code], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_wheel_carries_modules_and_personas(installed: Path, tmp_path: Path) -> None:
    code = (
        "import bookbag, conductor, leaf, sleep_state, teacher, school, pathlib;"
        "from teacher import TeacherWorktree;"
        "from school.souls import load_soul;"
        "print(pathlib.Path(school.__file__).parent);"
        "print(load_soul('teacher-cto').source)"
    )
    package, persona = run_installed(installed, code, tmp_path).splitlines()
    assert package.startswith(str(installed.parent))
    assert persona == str(Path(package) / "profiles" / "teacher-cto" / "SOUL.md")


def test_wheel_carries_the_plugin_and_names_it_to_a_hermes(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys, importlib.metadata as m;"
        "print(*[f'{e.name}={e.value}' for e in m.entry_points(group='hermes_agent.plugins')]);"
        "from school.hermes import register; print(register.__name__);"
        "from conductor import main; sys.argv = ['conductor', 'hermes', 'install']; main()"
    )
    done = run_installed(
        installed, f"import os; os.environ['HERMES_HOME'] = {str(tmp_path)!r};" + code, tmp_path
    )
    assert done.splitlines()[:2] == ["schoolhouse=school.hermes", "register"]
    place = tmp_path / "plugins" / "schoolhouse"
    assert {path.name for path in place.iterdir()} == {"__init__.py", "plugin.yaml", "digest", "vendor"}
    assert (place / "vendor" / "school" / "hermes" / "__init__.py").is_file()
    assert (tmp_path / "config.yaml").read_text() == "plugins:\n  enabled:\n    - schoolhouse\n"


def test_installed_conductor_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    code = "import sys; from conductor import main; sys.argv = ['conductor', 'demo']; main()"
    done = subprocess.run(
        [installed / "python", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as it should") == 6
