"""Where a shell is that lives on, and when nobody can say; held against a real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from school.study.shells import Shell


@pytest.mark.parametrize(
    ("commands", "place"),
    [
        (["ls", "pytest -q"], "."),
        (["cd calc"], "calc"),
        (["cd calc && ls", "cd .."], "."),
        (["cd calc; ls; cd ../tests"], "tests"),
        (["cd calc || true"], None),
        (["cd calc || true", "cd {root}/tests"], "tests"),
        (["cd $HOME"], None),
        (["cd"], None),
        (["cd -"], None),
        (["pushd calc"], None),
        (["if true; then cd calc; fi"], None),
        (["for f in a b; do echo $f; done"], "."),
        (["(cd calc && ls"], None),
        (["export CI=1"], "."),
        (["export PATH=/tmp/x:$PATH"], None),
        (["export PYTEST_ADDOPTS=--collect-only"], None),
        (["alias pytest=true"], None),
        (["source .venv/bin/activate"], "."),
        ([". other.sh"], None),
        (["set -e"], "."),
        (["alias pytest=true", "cd {root}"], None),
    ],
)
def test_where_the_next_command_runs(repo: Path, commands: list[str], place: str | None) -> None:
    shell = Shell(repo, lives_on=True)
    for command in commands:
        shell.ran(command.replace("{root}", str(repo)))
    assert shell.place() == (None if place is None else (repo / place).resolve())


@pytest.mark.parametrize(
    "command", ["cd calc", "cd calc && ls", "cd ./calc/../tests; true", "cd /", "cd nowhere; true"]
)
def test_a_real_shell_is_there_or_nobody_can_say(repo: Path, command: str) -> None:
    shell = Shell(repo, lives_on=True)
    shell.ran(command)
    done = subprocess.run(
        ["bash", "-c", f"{command}\npwd -P"], cwd=repo, capture_output=True, text=True, check=False
    )
    there = Path(done.stdout.splitlines()[-1])
    assert shell.place() in (None, there) or not shell.place().exists()  # type: ignore[union-attr]


def test_one_that_starts_anew_is_always_in_its_root(repo: Path) -> None:
    shell = Shell(repo, lives_on=False)
    shell.ran("cd calc; alias pytest=true")
    assert shell.place() == repo
