from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from school.verification.compose import calls
from school.verification.phases import PhaseRun, Result, Selection, verify
from school.verification.recipe import Recipe
from school.verification.service import Readiness
from tests.support import write_tree
from tests.verification.test_service import free_port

PYTHON = shlex.quote(sys.executable)


class Watched:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.lines: set[str] = set()

    def began(self, phase: str, command: str) -> None:
        self.told.append(("began", phase, command))

    def goes_on(self, *told: object) -> None:
        self.lines.add(str(told[-1]))

    def ended(self, run: PhaseRun) -> None:
        self.told.append(("ended", run.phase, "ok" if run.ok else "failed"))

    def answered(self, readiness: Readiness) -> None:
        self.told.append(("answered", str(readiness.ready)))


def run(root: Path, recipe: Recipe, **selection: object) -> Result:
    return verify(recipe, root, Selection(**selection), Watched())  # type: ignore[arg-type]


def test_phases_run_in_order_to_the_first_failure(tmp_path: Path) -> None:
    watched = Watched()
    recipe = Recipe(
        "x", bootstrap=("echo b >> log",), build=("echo c >> log", "exit 4", "echo d >> log"), test=("true",)
    )
    result = verify(recipe, tmp_path, Selection(), watched)
    assert (tmp_path / "log").read_text() == "b\nc\n"
    assert [(one.phase, one.exit_code, one.ok) for one in result.phases] == [
        ("bootstrap", 0, True),
        ("build", 0, True),
        ("build", 4, False),
    ]
    assert (result.ok, result.scope) == (False, "full")
    assert watched.told[-2:] == [("began", "build", "exit 4"), ("ended", "build", "failed")]


def test_a_service_is_started_only_when_all_before_has_passed(tmp_path: Path) -> None:
    port = free_port()
    serve = f"{PYTHON} -m http.server --bind 127.0.0.1 {port}"
    failing = run(tmp_path, Recipe("x", test=("false",), start=serve, port=port))
    assert (failing.ok, failing.readiness) == (False, None)
    passing = run(tmp_path, Recipe("x", test=("true",), start=serve, port=port))
    assert passing.ok
    assert passing.readiness is not None
    assert passing.readiness.status == 200


@pytest.mark.parametrize(
    ("selection", "ran", "scope"),
    [
        ({}, ["bootstrap", "test", "start"], "full"),
        ({"skip_start": True}, ["bootstrap", "test"], "targeted"),
        ({"phases": ("test",)}, ["test"], "targeted"),
        ({"phases": ("start", "bootstrap")}, ["bootstrap", "start"], "targeted"),
    ],
)
def test_part_of_a_recipe_is_targeted(
    tmp_path: Path, selection: dict[str, object], ran: list[str], scope: str
) -> None:
    result = run(tmp_path, Recipe("x", bootstrap=("true",), test=("true",), start="exit 1"), **selection)
    started = ["start"] if result.readiness else []
    assert [one.phase for one in result.phases] + started == ran
    assert result.scope == scope


def test_nothing_that_ran_is_no_pass(tmp_path: Path) -> None:
    result = run(tmp_path, Recipe("x", test=("true",)), phases=("build",))
    assert (result.ok, result.note) == (False, "nothing to run: this recipe declares nothing for build")


def test_a_phase_that_never_ends_is_ended_with_its_tree_and_says_so(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        Recipe("x", test=("setsid sleep 9998 & echo $! > pids; sleep 9999",)),
        timeouts={"test": 3.0},
    )
    (one,) = result.phases
    assert (one.ok, one.timed_out, one.exit_code) == (False, True, None)
    assert one.note == "ended at its limit: phase test has 3 s"
    assert one.duration_s < 60
    assert not psutil.pid_exists(int((tmp_path / "pids").read_text()))
    mine = [
        process.info["cmdline"]
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "sleep"
    ]
    assert ["sleep", "9998"] not in mine


def test_what_a_passing_line_leaves_is_ended_before_the_next(tmp_path: Path) -> None:
    lines = ("setsid sleep 9997 & echo $! > pids", "! kill -0 $(cat pids)")
    result = run(tmp_path, Recipe("x", build=lines))
    assert [one.ok for one in result.phases] == [True, True]


def test_the_lines_of_a_phase_share_its_time(tmp_path: Path) -> None:
    result = run(tmp_path, Recipe("x", build=("sleep 4", "sleep 9999"), timeouts={"build": 8}))
    assert [(one.ok, one.timed_out) for one in result.phases] == [(True, False), (False, True)]
    assert result.phases[1].duration_s < 8  # it had what was left


@pytest.mark.parametrize(
    ("phase", "line", "ok"),
    [
        ("test", "printf 'Ran 0 tests in 0.000s\\n\\nOK\\n'", False),
        ("test", "printf '  0 passing (1ms)\\n'", False),
        ("test", "printf '# tests 0\\n'", False),
        ("test", "printf 'Ran 1 test in 0.000s\\n'", True),
        ("build", "printf 'Ran 0 tests in 0.000s\\n'", True),
    ],
)
def test_a_run_that_executed_no_test_is_no_pass(tmp_path: Path, phase: str, line: str, ok: bool) -> None:
    (one,) = run(tmp_path, Recipe("x", **{phase: (line,)})).phases
    assert (one.ok, one.exit_code) == (ok, 0)
    assert one.note == ("" if ok else "it says itself that it ran no test")


def test_what_the_shell_of_the_caller_says_does_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("MY_DATABASE", "here")
    write_tree(tmp_path, {"node_modules/.bin/tool": "#!/bin/sh\necho tool\n"})
    (tmp_path / "node_modules/.bin/tool").chmod(0o755)
    (one,) = run(tmp_path, Recipe("x", build=("tool; echo [$PYTEST_ADDOPTS$GIT_DIR$MY_DATABASE]",))).phases
    assert one.output == "tool\n[here]\n"


def test_output_is_kept_within_bounds_and_told_meanwhile(tmp_path: Path) -> None:
    watched = Watched()
    noise = "import os; [os.write(1, b'x' * 1023 + b'\\n') for _ in range(3 * 1024)]"
    recipe = Recipe("x", build=(f'{PYTHON} -c "{noise}"; printf "half\\rnow"; sleep 2; echo; echo end',))
    (one,) = verify(recipe, tmp_path, Selection(), watched).phases
    assert one.ok
    assert len(one.output) == 2000
    assert one.output.endswith("now\nend\n")
    assert "now" in watched.lines


# --- Compose --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("docker compose up", [(["docker", "compose"], "up")]),
        (
            "cd x && docker compose -f a.yml --profile p down -v",
            [(["docker", "compose", "-f", "a.yml", "--profile", "p"], "down")],
        ),
        ("docker-compose ps; docker-compose rm", [(["docker-compose"], "ps"), (["docker-compose"], "rm")]),
        ("docker build .", []),
        ("echo 'docker compose", []),
    ],
)
def test_calls_of_compose_in_a_line(line: str, found: list[tuple[list[str], str]]) -> None:
    if line.startswith("echo"):
        assert [subcommand for _, subcommand in calls(line)] == []
    else:
        assert calls(line) == found


def docker(root: Path, script: str) -> None:
    write_tree(root, {".venv/bin/docker": f'#!/bin/sh\necho "$@" >> asked\n{script}\n'})
    (root / ".venv/bin/docker").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo abc123", "1 container of this project runs already"),
        ("echo Cannot connect >&2; exit 1", "docker compose ps does not say what runs (Cannot connect)"),
    ],
)
def test_containers_at_work_are_not_replaced(tmp_path: Path, script: str, why: str) -> None:
    docker(tmp_path, script)
    recipe = Recipe("x", build=("docker compose build",), start="docker compose up")
    result = run(tmp_path, recipe)
    (one,) = result.phases
    assert (one.ok, one.exit_code, result.readiness) == (False, None, None)
    assert one.note.startswith("docker compose build: not run: ")
    assert why in one.note
    started = run(tmp_path, recipe, phases=("start",)).readiness
    assert started is not None
    assert not started.ready
    assert why in started.error
    assert "up" not in (tmp_path / "asked").read_text().split()


def test_what_changes_no_container_is_not_asked_about(tmp_path: Path) -> None:
    docker(tmp_path, "echo abc123")
    assert run(tmp_path, Recipe("x", test=("docker compose exec web true",))).ok
    assert (tmp_path / "asked").read_text() == "compose exec web true\n"


def test_without_docker_the_line_fails_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (one,) = run(tmp_path, Recipe("x", build=("docker compose build",))).phases
    assert (one.exit_code, one.note) == (127, "")


def test_a_container_answers_for_the_port_that_it_publishes(tmp_path: Path) -> None:
    """The server stands for a container: it is no child of what was started, and Compose says whose it is."""
    port = free_port()
    server = f"{PYTHON} -m http.server --bind 127.0.0.1 {port}"
    docker(
        tmp_path,
        f'case "$*" in\n*--quiet*) ;;\n*ps*) echo "web 127.0.0.1:{port}->80/tcp" ;;\n'
        f"*up*) exec sleep 60 ;;\nesac",
    )
    recipe = Recipe("x", start="docker compose up", port=port)
    write_tree(tmp_path, {"outside.sh": f"while ! grep -q up asked; do sleep 0.1; done\nexec {server}\n"})
    outside = subprocess.Popen(["sh", "outside.sh"], cwd=tmp_path, env=dict(os.environ))
    try:
        answer = run(tmp_path, recipe).readiness
    finally:
        outside.kill()
        outside.wait()
    assert answer is not None
    assert (answer.ready, answer.status, answer.error) == (True, 200, "")
