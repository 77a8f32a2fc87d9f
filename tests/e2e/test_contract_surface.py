"""The surface that programs hold on to: every environment variable and every ``--json`` document, on real processes.

One run under observation and one that is killed serve all documents; each variable is seen to move what it names.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bookbag
from school.settings import Settings
from school.status import check as status_check
from school.status import doctor as status_doctor
from tests.building import State
from tests.support import CALC_FILES, ROOT, git, write_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

COUNTS = ("accepted", "rejected", "failed", "expired", "blocked", "no_change")
LAST_LINE = re.compile(r"accepted \d+, rejected \d+, failed \d+, expired \d+, blocked \d+, no_change \d+")
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-9]|9[0-7]|4[0-9])m")
PROGRESS = re.compile(r"(?m)^\d\d:\d\d:\d\d  ")

RUN = {"run": str, "repo": str, "base": str, "tasks": list, "counts": dict, "exit": int}
TASK = {"id": str, "outcome": str, "attempts": int, "bead": str, "cto_verdict": str, "coo_verdict": str,
        "branch": str, "commit": str, "ref": str, "reason": str}  # fmt: skip
LIST = {"bead": str, "task_id": str, "state": str, "outcome": str, "attempt": int, "cto_verdict": str,
        "coo_verdict": str, "accepted": bool, "timestamp": str}  # fmt: skip
TEACHER = {"role": str, "pid": int, "state": str, "bead": str, "check": str, "since": str, "reviewed": int}
LEAF = {"bead": str, "pid": int, "step": str, "since": str}
CONDUCTOR = {"pid": int, "run": str, "round": int}
TREE = {"worktree": str, "action": str, "why": str, "ref": str}
SAVED = {"bead": str, "task_id": str, "ref": str, "commit": str, "detail": str}
SCORE = {
    "agent": str,
    "role": str,
    "domain": str,
    "score": float,
    "accepted": int,
    "rejected": int,
    "bead": str,
}
BAG = [
    "bead",
    "task",
    "student",
    "domain",
    "difficulty",
    "output",
    "lens",
    "cto_verdict",
    "coo_verdict",
    "findings",
    "ac_met",
    "files_changed",
    "verification",
    "summary",
    "blockers",
    "accepted",
    "timestamp",
    "schema",
    "rev",
    "task_id",
    "attempt",
    "max_attempts",
    "run",
    "repo",
    "base_commit",
    "head_commit",
    "tree",
    "ref",
    "acceptance",
    "agent",
    "persona",
    "confinement",
    "status",
    "claim",
    "cto_review",
    "coo_review",
    "usage",
    "score",
    "scored_at",
    "outcome",
    "history",
]


def has(row: dict[str, Any], shape: dict[str, type]) -> dict[str, Any]:
    """*row*, which must have each key of *shape* with a value of exactly that type."""
    assert {key: type(row.get(key)) for key in shape} == shape, row
    return row


def until(true: Callable[[], Any], what: str, limit_s: float = 60) -> Any:
    end = time.monotonic() + limit_s
    while not (found := true()):
        assert time.monotonic() < end, f"never saw {what}"
        time.sleep(0.02)
    return found


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """Nothing inherited that could steer the school: what a test sets is all there is."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "LANG": "C.UTF-8", "TERM": "xterm-256color", "HOME": str(home), **extra}


def process(
    *argv: str, env: dict[str, str], cwd: Path = ROOT, program: str = "conductor.py"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / program), *argv],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def asked(*argv: str, env: dict[str, str], code: int = 0, quiet: bool = True) -> Any:
    """The one document of ``conductor.py … --json``; *quiet* ones say nothing on stderr."""
    done = process(*argv, "--json", env=env)
    assert done.returncode == code, done.stderr + done.stdout
    assert not (quiet and done.stderr), done.stderr
    assert done.stdout, done.stderr
    return json.loads(done.stdout)  # refuses a second document, or a line of progress before it


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def make_repo(place: Path) -> Path:
    place.mkdir(parents=True)
    write_tree(place, CALC_FILES)
    git(place, "init", "-q", "-b", "main")
    git(place, "add", ".")
    git(place, "-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "Begin")
    return place


def says(**claim: Any) -> list[str]:
    return python(f"import json, os; json.dump({claim!r}, open(os.environ['SCHOOL_RESULT'], 'w'))")


def gated(gate: Path, wrote: str) -> list[str]:
    """A student that writes, and then waits until *gate* is there; it gives up by itself."""
    return python(
        f"import pathlib, time\nopen({wrote!r}, 'w').write('x = 1\\n')\n"
        f"for _ in range(3000):\n    if pathlib.Path({str(gate)!r}).exists(): break\n    time.sleep(0.02)\n"
    )


def task(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "role": "executor", "task": f"Do {name}.", "max_attempts": 1, **more}


# --- documents ----------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """One run: what could be asked while it was on, and what it printed at its end."""

    repo: Path
    env: dict[str, str]
    state: Path
    code: int = 0
    out: str = ""
    err: str = ""
    during: dict[str, Any] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.document["tasks"] if row["id"] == name)


@contextmanager
def background(*argv: str, env: dict[str, str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
        run = subprocess.Popen(
            [sys.executable, str(ROOT / "conductor.py"), *argv],
            env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )  # fmt: skip
        try:
            yield run
        finally:
            if run.poll() is None:
                run.kill()
            run.wait(10)


def watched(env: dict[str, str]) -> Any:
    """``status`` once a student is at its work, else None."""
    status = asked("status", env=env)
    ready = {teacher["role"] for teacher in status["teachers"]} == {"cto", "coo"}
    return status if ready and any(leaf["step"] == "running" for leaf in status["leaves"]) else None


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    place = tmp_path_factory.mktemp("seen")
    repo, gate = make_repo(place / "calc-repo"), place / "gate"
    env = clean_environment(place, HERMES_HOME=str(place / "state"))
    met = {"text": "it adds", "check": ["python3", "-c", "from calc import add; assert add(1, 2) == 3"]}
    tasks = [
        task("slow", run=gated(gate, "calc/slow.py")),
        task("idle", run=["true"]),
        task("fine", run=says(status="no_change", summary="fine"), accept=[met]),
        task("stuck", run=says(status="blocked", blockers=["no key"])),
    ]
    (place / "tasks.yaml").write_text(json.dumps({"version": 1, "tasks": tasks}))
    here = ("--repo", str(repo))
    found = Seen(repo, env, place / "state")
    with background(*here, "--tasks", str(place / "tasks.yaml"), "--json", env=env, place=place) as run:
        found.during["status"] = until(lambda: watched(env), "a student at work")
        found.during["pid"] = run.pid
        found.during["list"] = asked("list", env=env)
        for argv in (
            ["retry", "idle"],
            ["recover", "--all"],
            ["check", "--repair"],
            ["--clean-worktrees"],
            [],
        ):
            words = (*argv, *here, "--tasks", str(place / "tasks.yaml"))[: len(argv) + 2 if argv else None]
            found.during[" ".join(argv)] = asked(*words, env=env, code=4, quiet=False)
        gate.touch()

        def over() -> bool:
            found.paths.update(paths_below(found.state))
            return run.poll() is not None

        found.paths.update(paths_below(found.state))
        until(over, "the end of the run", 120)
        found.code = run.returncode
    found.paths.update(paths_below(found.state))
    found.out, found.err = (place / "out").read_text(), (place / "err").read_text()
    return found


def test_a_run_is_one_document_and_its_progress_goes_to_stderr(seen: Seen) -> None:
    document = has(seen.document, RUN)
    assert (seen.code, document["exit"]) == (1, 1)
    assert (document["repo"], document["base"]) == (str(seen.repo), git(seen.repo, "rev-parse", "HEAD"))
    assert [has(row, TASK)["id"] for row in document["tasks"]] == ["slow", "idle", "fine", "stuck"]
    assert [row["outcome"] for row in document["tasks"]] == ["accepted", "rejected", "no_change", "blocked"]
    assert document["counts"] == {**dict.fromkeys(COUNTS, 0), "accepted": 1, "rejected": 1, "no_change": 1, "blocked": 1}  # fmt: skip
    assert len(PROGRESS.findall(seen.err)) > len(document["tasks"])
    assert not LAST_LINE.search(seen.err)


def test_a_row_of_a_run_says_what_git_and_the_disk_say(seen: Seen) -> None:
    row = seen.row("slow")
    assert (row["cto_verdict"], row["coo_verdict"], row["attempts"], row["reason"]) == ("PASS", "PASS", 1, "")
    assert (
        row["commit"] == git(seen.repo, "rev-parse", row["branch"]) == git(seen.repo, "rev-parse", row["ref"])
    )
    assert seen.row("idle")["branch"] == seen.row("fine")["branch"] == ""
    assert seen.row("stuck")["attempts"] == 0 or seen.row("stuck")["reason"]


def test_status_while_a_run_is_on(seen: Seen) -> None:
    status = seen.during["status"]
    assert has(status["conductor"], CONDUCTOR)["pid"] == seen.during["pid"]
    assert (status["conductor"]["run"], status["conductor"]["round"]) == (seen.document["run"], 1)
    assert [has(row, TEACHER)["role"] for row in status["teachers"]] == ["cto", "coo"]
    assert seen.row("slow")["bead"] in [has(row, LEAF)["bead"] for row in status["leaves"]]
    assert status["queue"]["running"] >= 1


def test_status_when_nobody_is_at_work(seen: Seen) -> None:
    status = asked("status", env=seen.env)
    assert (status["conductor"], status["teachers"], status["leaves"]) == (None, [], [])
    assert status["queue"]["blocked"] == 1


def test_list_names_what_is_in_flight_and_list_all_the_finished_too(seen: Seen) -> None:
    running = [has(row, LIST) for row in seen.during["list"]]
    assert ("slow", "RUNNING") in [(row["task_id"], row["state"]) for row in running]
    assert [has(row, LIST)["task_id"] for row in asked("list", env=seen.env)] == ["stuck"]
    rows = {has(row, LIST)["task_id"]: row for row in asked("list", "--all", env=seen.env)}
    assert {name: row["bead"] for name, row in rows.items()} == {
        row["id"]: row["bead"] for row in seen.document["tasks"]
    }
    assert (rows["slow"]["state"], rows["slow"]["outcome"], rows["slow"]["accepted"]) == (
        "DISPOSED",
        "accepted",
        True,
    )
    assert (rows["fine"]["outcome"], rows["fine"]["accepted"]) == ("no_change", False)
    assert (rows["stuck"]["state"], rows["stuck"]["attempt"]) == ("BLOCKED", 1)


def test_show_is_the_bookbag_with_its_state(seen: Seen) -> None:
    bead = seen.row("slow")["bead"]
    shown = asked("show", bead, env=seen.env)
    kept = json.loads((seen.state / "bookbag" / "archive" / bead / "bookbag.json").read_text())
    assert shown == {**kept, "state": "DISPOSED"}
    assert [name for name in BAG if name not in shown] == []
    assert shown["delivered"] == {"branch": seen.row("slow")["branch"], "commit": seen.row("slow")["commit"]}
    for role in ("cto", "coo"):
        review = shown[f"{role}_review"]
        assert (review["verdict"], review["tree"]) == ("PASS", shown["tree"])
        assert all(
            {"lens", "outcome", "by", "receipts", "findings"} <= lens.keys() for lens in review["lenses"]
        )
        assert any(lens["receipts"] for lens in review["lenses"])
    states = [step["state"] for step in shown["history"]]
    assert states[:2] == ["RUNNING", "WRITTEN"]
    assert states[-3:] == ["REVIEWED", "SCORED", "DISPOSED"]
    assert has(
        asked("show", "no-such-bead-00000000", env=seen.env, code=2, quiet=False), {"error": str, "exit": int}
    )


def test_check_and_doctor_name_only_what_is_documented(seen: Seen) -> None:
    documented = (ROOT / "docs" / "checks.md").read_text()
    for argv in (["check"], ["doctor", "--repo", str(seen.repo)]):
        rows = asked(*argv, env=seen.env)
        names = [has(row, {"check": str, "detail": str})["check"] for row in rows]
        assert {type(row["ok"]) for row in rows} <= {bool, type(None)}
        assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*(:[\w.-]+)?", name) for name in names), names
        assert [name for name in names if f"`{name.split(':')[0]}" not in documented] == []
        assert [row for row in rows if row["ok"] is False] == []
    assert [row["check"] for row in rows][: len(status_doctor.CHECKS)] == list(status_doctor.CHECKS)


def test_check_exits_1_and_doctor_3_naming_what_fails(seen: Seen, tmp_path: Path) -> None:
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"))
    (tmp_path / "state" / "signals").mkdir(parents=True)
    (tmp_path / "state" / "signals" / "coder-python-00000000.ready").write_text("{}")
    rows = asked("check", env=env, code=1)
    assert [row["check"] for row in rows if row["ok"] is False] == ["flags-in-step"]
    assert next(row["bead"] for row in rows if row["ok"] is False) == "coder-python-00000000"
    assert status_check.failed(rows)
    rows = asked("doctor", "--repo", str(tmp_path), env=env, code=3)
    assert [row["check"] for row in rows if row["ok"] is False] == ["repository"]


def test_leaderboard(seen: Seen) -> None:
    rows = [has(row, SCORE) for row in asked("leaderboard", env=seen.env)]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    best = rows[0]
    assert (best["agent"], best["role"], best["bead"]) == ("run:python", "executor", seen.row("slow")["bead"])
    assert 0 <= rows[-1]["score"] < 50 < best["score"] <= 100


@pytest.mark.parametrize("words", ["retry idle", "recover --all", "check --repair", "--clean-worktrees", ""])
def test_who_writes_waits_for_no_other_conductor(seen: Seen, words: str) -> None:
    document = has(seen.during[words], {"error": str, "exit": int})
    assert document["exit"] == 4
    assert str(seen.during["pid"]) in document["error"]


def test_recover_and_retry(seen: Seen) -> None:
    here = ("--repo", str(seen.repo))
    idle, slow = seen.row("idle"), seen.row("slow")
    git(seen.repo, "update-ref", "-d", slow["ref"])
    (row,) = asked("recover", slow["bead"], *here, env=seen.env)
    assert has(row, SAVED)["commit"] == git(seen.repo, "rev-parse", row["ref"]) == slow["commit"]
    every = {has(row, SAVED)["bead"]: row for row in asked("recover", "--all", *here, env=seen.env)}
    assert every.keys() == {row["bead"] for row in seen.document["tasks"]} - {slow["bead"]}
    assert every[idle["bead"]]["task_id"] == "idle"
    shape = {"task_id": str, "records": int, "archived": list}
    assert has(asked("retry", "idle", *here, env=seen.env), shape)["archived"] == []
    assert asked("retry", "stuck", *here, env=seen.env)["archived"] == [seen.row("stuck")["bead"]]
    assert has(asked("retry", "none", *here, env=seen.env, code=2, quiet=False), {"error": str, "exit": int})


# --- what lies on disk --------------------------------------------------------------------------------------

ON_DISK = ROOT / "docs" / "on-disk.md"
OPAQUE = ("school/clones/*.git", "school/beads/*", "school/tmp/*", "school/outputs/*", "worktrees/*/*")
TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.\d+\.[0-9a-z-]+\.tmp(/.*)?")
# What needs a corruption, a death, a wait, a set-up or a merge to come about, or lives for less than a look.
SELDOM = (
    "corrupt",
    "broken",
    ".making",
    ".removing",
    ".guard",
    "<bead>.lock",
    "merge",
    "tmp/conductor",
    "/setup",
    "environment-",
    ".owner",
    "evidence.db.lock",
    # Only set-up commands at base have a cache that lasts.
    "school/caches",
    # Of advisers: where an agent's calls can be seen, and where one of them failed.
    "escalation-governor",
    "governor/",
    "advisers.jsonl",
    "coach",
    # Of agents with a prompt, and with several turns; tests/agents and tests/study make them.
    "prompt.md",
    "turns.json",
    "turn-<n>",
    "transcript.jsonl",
    "terminal-<n>",
)


def paths_below(root: Path) -> Iterator[str]:
    """Every path that is no folder on the way to others; of opaque folders only that they are there."""
    for place, folders, names in os.walk(root):
        here = Path(place).relative_to(root)
        yield from (str(here / name) for name in names)
        for name in list(folders):
            if any((here / name).match(pattern) for pattern in OPAQUE):
                folders.remove(name)
                yield f"{here / name}/…"


def documented_paths() -> dict[str, re.Pattern[str]]:
    """Each path that the tables of the page name, below HERMES_HOME, and what matches it."""
    found: dict[str, re.Pattern[str]] = {}
    folder: str | None = None
    for line in ON_DISK.read_text().splitlines():
        if heading := re.match(r"## .*: `([^`]+)`", line):
            folder = heading[1].removeprefix("./")
        elif folder is not None and line.startswith("| `"):
            for token in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                exact = re.escape(folder + token)
                if not token.endswith("/"):  # a folder, whose files have rows of their own
                    found[folder + token] = re.compile(re.sub(r"<[^<>/]+>", "[^/]+", exact))
    return found


def test_every_path_on_disk_is_on_the_page_and_every_path_on_the_page_comes_about(seen: Seen) -> None:
    documented = documented_paths()
    strangers = [
        path
        for path in sorted(seen.paths)
        if not TEMPORARY.fullmatch(path) and not any(form.fullmatch(path) for form in documented.values())
    ]
    assert strangers == []
    never = [
        name
        for name, form in documented.items()
        if not any(word in name for word in SELDOM) and not any(map(form.fullmatch, seen.paths))
    ]
    assert never == []


# --- a killed run: what --clean-worktrees and --resume say ----------------------------------------------------


def test_clean_worktrees_and_resume_after_a_kill(tmp_path: Path) -> None:
    repo, gate = make_repo(tmp_path / "calc-repo"), tmp_path / "gate"
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"))
    here = ("--repo", str(repo))
    assert asked(*here, "--resume", env=env)["tasks"] == []
    command = shlex.join(gated(gate, "calc/half.py"))
    with background(*here, "--task", "Half", "--run", command, env=env, place=tmp_path) as run:
        (tree,) = until(
            lambda: list(tmp_path.glob("state/worktrees/*/study-*/calc/half.py")), "half of the work"
        )
        run.kill()
    until(lambda: not asked("status", env=env)["leaves"], "the student gone", 20)
    stranger = tree.parents[2] / "study-stranger"
    stranger.mkdir()
    (stranger / "note").touch()
    clean = ("--clean-worktrees", *here)
    said = [
        {key: has(row, TREE)[key] for key in ("worktree", "action")}
        for row in asked(*clean, "--dry-run", env=env)
    ]
    mine = str(tree.parents[1])
    assert {"worktree": mine, "action": "would_remove"} in said
    assert {"worktree": str(stranger), "action": "kept"} in said
    rows = {has(row, TREE)["worktree"]: row for row in asked(*clean, env=env)}
    assert (rows[mine]["action"], Path(mine).exists()) == ("removed", False)
    assert (rows[str(stranger)]["action"], (stranger / "note").exists()) == ("kept", True)
    (clone,) = tmp_path.glob("state/school/clones/*.git")
    assert git(clone, "show", f"{rows[mine]['ref']}:calc/half.py") == "x = 1"
    gate.touch()
    document = has(asked(*here, "--resume", env=env, quiet=False), RUN)
    (row,) = document["tasks"]
    assert (has(row, TASK)["id"], row["outcome"], row["attempts"]) == ("half", "accepted", 1)


# --- for people ---------------------------------------------------------------------------------------------


def on_terminal(*argv: str, env: dict[str, str]) -> str:
    """What a terminal of 80 columns would be sent."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, str(ROOT / "conductor.py"), *argv],
        env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    parts: list[bytes] = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # Linux answers so when the last writer is gone
        pass
    finally:
        os.close(ours)
    assert run.wait(60) == 0
    return b"".join(parts).decode()


def test_a_pipe_gets_plain_lines_and_the_counts_last(seen: Seen, tmp_path: Path) -> None:
    """And each of the other variables of section 4 moves its own folder: nothing is made below HERMES_HOME."""
    moved = {
        name: str(tmp_path / name.lower())
        for name in ("BOOKBAG_DIR", "SIGNAL_DIR", "LOCK_DIR", "SCHOOL_DATA_DIR", "SCHOOL_WORKTREES_DIR")
    }
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"), **moved)
    done = process("--repo", str(seen.repo), "--task", "Tidy", "--chore", "unused-imports", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "accepted 1, rejected 0, failed 0, expired 0, blocked 0, no_change 0"
    assert any("merge" in line and "school/tidy" in line for line in lines)
    assert "\x1b" not in done.stdout
    assert PROGRESS.match(lines[0])
    assert not (tmp_path / "state").exists()
    assert all(Path(place).is_dir() for place in moved.values())
    assert list(Path(moved["BOOKBAG_DIR"]).glob("archive/*/bookbag.json"))
    assert list(Path(moved["SCHOOL_DATA_DIR"]).glob("reviews/*.json"))
    assert {path.name for path in Path(moved["SCHOOL_WORKTREES_DIR"]).glob("*/*")} == {
        "teacher-cto",
        "teacher-coo",
    }


def test_colour_is_for_terminals_and_no_color_is_obeyed(seen: Seen) -> None:
    drawn = on_terminal("list", "--all", env=seen.env)
    assert COLOUR.search(drawn)
    plain = on_terminal("list", "--all", env={**seen.env, "NO_COLOR": "1"})
    assert not COLOUR.search(plain)
    for text in (drawn, plain):
        words = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).split()
        # Eighty columns are too few for one line a bead; still no verdict is cut off.
        assert (words.count("PASS"), words.count("FAIL")) == (4, 2), text
        assert "since" in words
    piped = process("list", "--all", env={**seen.env, "TERM": "xterm-256color"}).stdout
    assert "\x1b" not in piped
    assert on_terminal("list", "--all", env={**seen.env, "TERM": "dumb"}).replace("\r\n", "\n") == piped


# --- environment variables ----------------------------------------------------------------------------------

SECONDS = ("HANDOFF_TIMEOUT", "HANDOFF_POLL_INTERVAL", "DEFAULT_POLL_INTERVAL", "DEFAULT_REVIEW_TIMEOUT")


@pytest.mark.parametrize("name", [*SECONDS, "MAX_SESSION_CYCLES"])
def test_a_bad_value_is_a_usage_error_that_names_the_variable(name: str, tmp_path: Path) -> None:
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"))
    for value in ("soon", "0", "inf" if name in SECONDS else "1.5"):
        document = asked("list", env={**env, name: value}, code=2, quiet=False)
        assert (document["exit"], name in document["error"], value in document["error"]) == (2, True, True)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "argv",
    [
        "conductor.py doctor",
        "conductor.py --task x --run true",
        "teacher.py --role cto --once",
        "leaf.py --bead a-b",
    ],
)
def test_no_program_starts_on_a_bad_value(argv: str, repo: Path, tmp_path: Path) -> None:
    program, *words = argv.split()
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"), MAX_SESSION_CYCLES="many")
    done = process(*words, env=env, cwd=repo, program=program)
    assert (done.returncode, "MAX_SESSION_CYCLES='many'" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "state").exists()
    assert git(repo, "status", "--porcelain") == ""


def test_the_environment_is_read_once_and_no_env_file_is_loaded(repo: Path, tmp_path: Path) -> None:
    text = f"HERMES_HOME={tmp_path / 'elsewhere'}\nHANDOFF_TIMEOUT=soon\nBOOKBAG_DIR=/nowhere\n"
    env = clean_environment(tmp_path)
    for place in (tmp_path, tmp_path / ".hermes", repo):
        place.mkdir(exist_ok=True)
        (place / ".env").write_text(text)
    done = process("doctor", "--json", env=env, cwd=repo)
    assert done.returncode == 0, done.stdout
    detail = {row["check"]: row["detail"] for row in json.loads(done.stdout)}
    assert detail["writable-bookbag"].startswith(
        str(tmp_path / ".hermes" / "bookbag")
    )  # the default: ~/.hermes
    once = (
        "import os, conductor\nfirst = conductor.read_settings()\nos.environ['HERMES_HOME'] = '/nowhere'\n"
        "assert conductor.read_settings() is first\n"
    )
    subprocess.run([sys.executable, "-c", once], cwd=ROOT, env=env, check=True)


def test_handoff_timeout_ends_the_wait_for_a_teacher_that_stands_still(repo: Path, tmp_path: Path) -> None:
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"), HANDOFF_TIMEOUT="3")
    with teacher("coo", env) as coo:
        until(lambda: idle(tmp_path / "state", "coo"), "the COO idle")
        coo.send_signal(signal.SIGSTOP)
        document = asked(
            "--repo", str(repo), "--task", "x", "--run", "touch calc/x.txt", env=env, code=1, quiet=False
        )
        coo.send_signal(signal.SIGCONT)
    (row,) = document["tasks"]
    assert row["outcome"] == "expired"
    assert row["reason"].endswith("for 3 s")
    assert document["counts"]["expired"] == 1


def test_default_review_timeout_must_leave_room_for_an_answer(repo: Path, tmp_path: Path) -> None:
    (repo / "school.toml").write_text(
        '[verify]\ncommands = [["true"]]\n[reviewers.coo]\nmodel = "some-model"\n'
    )
    git(repo, "commit", "-q", "-a", "-m", "Configure")
    argv = ("--repo", str(repo), "--task", "x", "--run", "true")
    env = clean_environment(tmp_path, DEFAULT_REVIEW_TIMEOUT="121")
    error = asked(*argv, env=env, code=2, quiet=False)["error"]
    assert "DEFAULT_REVIEW_TIMEOUT = 121 s" in error
    assert "HANDOFF_TIMEOUT = 120 s" in error


@contextmanager
def teacher(role: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, str(ROOT / "teacher.py"), "--role", role],
        cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as standing:  # fmt: skip
        try:
            yield standing
        finally:
            standing.send_signal(signal.SIGCONT)
            standing.terminate()
            try:
                standing.wait(30)
            finally:
                standing.kill()


def idle(state: Path, role: str) -> bool:
    path = state / "school" / "teachers" / f"{role}.json"
    return path.exists() and json.loads(path.read_text())["state"] == "idle"


def verdict(bead: str, role: str) -> str:
    return str((bookbag.read_bookbag(bead) or {}).get(f"{role}_verdict") or "")


WAITER = """
import sys, bookbag
from school.system.watch import Watcher
wait = Watcher.wait
def told(watcher, timeout):
    print("begun", flush=True)
    return wait(watcher, timeout)
Watcher.wait = told
bookbag.wait_for_bookbag(sys.argv[1], 60)
"""


@contextmanager
def waiting_for(bead: str, interval: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in ``wait_for_bookbag``, after it has looked once and begun to wait."""
    with subprocess.Popen(
        [*python(WAITER), bead],
        cwd=ROOT,
        env={**env, "HANDOFF_POLL_INTERVAL": interval},
        stdout=subprocess.PIPE,
    ) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == b"begun\n"
        try:
            yield waiter
        finally:
            waiter.kill()


def test_poll_intervals_bound_the_wait_where_no_event_comes(
    school: Settings, repo: Path, own_home: Path
) -> None:
    """A record without a flag wakes nobody: who looks again soon sees it, who was told to look rarely does not yet."""
    env = clean_environment(own_home, HERMES_HOME=str(school.hermes_home))
    often, rarely = "0.2", "300"
    with (
        teacher("cto", {**env, "DEFAULT_POLL_INTERVAL": often}),
        teacher("coo", {**env, "DEFAULT_POLL_INTERVAL": rarely}),
    ):
        for role in ("cto", "coo"):
            until(lambda role=role: idle(school.hermes_home, role), f"the {role} idle")
        state = State(school, repo)
        bead = state.running()
        with waiting_for(bead, often, env) as soon, waiting_for(bead, rarely, env) as late:
            begun = time.monotonic()
            head, tree = state.commit({})  # nothing done: a FAIL that needs no long check
            work = {"status": "open", "head_commit": head, "tree": tree, "claim": "done"}
            bookbag.update_bookbag(bead, lambda bag: {**bag, **work}, by="leaf")
            assert soon.wait(20) == 0
            assert late.poll() is None
            until(lambda: verdict(bead, "cto"), "a look of the CTO")
            if (
                time.monotonic() - begun < 9
            ):  # every ten seconds a teacher renews its record, and looks as well
                assert not verdict(bead, "coo")
            bookbag.BookbagSignal(bead).ready()  # the event comes first, whatever the interval
            assert late.wait(20) == 0
            until(lambda: verdict(bead, "coo"), "the COO woken")


def test_max_session_cycles_is_how_many_session_files_stay(tmp_path: Path) -> None:
    env = clean_environment(tmp_path, HERMES_HOME=str(tmp_path / "state"), MAX_SESSION_CYCLES="1")
    for _ in range(2):
        assert process("--role", "cto", "--once", env=env, program="teacher.py").returncode == 0
    kept = sorted(path.stem for path in (tmp_path / "state/school/sessions").glob("*.json"))
    assert [name.split("-")[2] for name in kept] == ["000002"]
