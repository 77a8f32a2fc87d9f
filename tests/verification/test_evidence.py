"""The ledger on real files, real repositories and real processes."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from school.errors import MachineError
from school.settings import Settings, configure
from school.system.clock import FakeClock
from school.verification import evidence
from school.verification.digest import TreeDigest
from school.verification.evidence import Ledger, Standing
from tests.support import ROOT, git

CANONICAL = ["pytest", "ruff check .", "ruff format ."]


@pytest.fixture
def ledger(school: Settings) -> Iterator[Ledger]:
    with Ledger() as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project outside of any repository."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def ran(
    ledger: Ledger,
    root: Path,
    command: str,
    code: int = 0,
    *,
    session: str = "s",
    output: str = "",
    cwd: Path | None = None,
) -> list[evidence.Event]:
    run = ledger.begin(session, root)
    return ledger.record(run, command, exit_code=code, output=output, cwd=cwd, canonical=CANONICAL)


def standing(ledger: Ledger, root: Path, session: str = "s") -> tuple[str, str]:
    found = ledger.status(session, root, canonical=CANONICAL)
    return found.status, found.scope


def source(root: Path) -> Path:
    return root / "src" / "calc" / "__init__.py" if (root / "src").is_dir() else next(root.glob("calc/*.py"))


# --- what the issue must see ------------------------------------------------------------------------------


def test_from_an_edit_to_a_full_pass(ledger: Ledger, repo: Path) -> None:
    ran(ledger, repo, "pytest")
    assert standing(ledger, repo) == ("passed", "full")
    source(repo).write_text("VALUE = 2\n")
    assert ledger.edited("s", repo, ["calc.py"])
    assert standing(ledger, repo) == ("unverified", "")
    ran(ledger, repo, "pytest -k add")
    assert standing(ledger, repo) == ("passed", "targeted")
    ran(ledger, repo, "pytest -q")
    assert standing(ledger, repo) == ("passed", "full")
    ran(ledger, repo, "pytest -k add")
    assert standing(ledger, repo) == ("passed", "full")  # it took nothing away
    assert [event.scope for event in ledger.events("s", repo)] == ["targeted", "full", "targeted", "full"]


def test_a_passing_formatter_does_not_hide_a_failing_test(ledger: Ledger, repo: Path) -> None:
    ran(ledger, repo, "pytest", 1, output="1 failed in 0.1s")
    ran(ledger, repo, "ruff format .")
    ran(ledger, repo, "ruff check .")
    found = ledger.status("s", repo, canonical=CANONICAL)
    assert (found.status, found.event and found.event.command) == ("failed", "pytest")
    assert {kind: event.status for kind, event in found.newest.items()} == {
        "test": "failed",
        "lint": "passed",
    }


def test_a_passing_linter_verifies_nothing(ledger: Ledger, repo: Path) -> None:
    ran(ledger, repo, "ruff check .")
    assert standing(ledger, repo) == ("unverified", "")


def test_a_targeted_pass_does_not_hide_a_failing_suite(ledger: Ledger, repo: Path) -> None:
    ran(ledger, repo, "pytest", 1)
    ran(ledger, repo, "pytest -k add")
    assert standing(ledger, repo) == ("failed", "full")
    ran(ledger, repo, "pytest -q")
    assert standing(ledger, repo) == ("passed", "full")


def test_a_failure_ends_when_the_same_command_passes(ledger: Ledger, repo: Path) -> None:
    ran(ledger, repo, "pytest -k add", 1)
    ran(ledger, repo, "pytest -k other")
    assert standing(ledger, repo) == ("failed", "targeted")
    ran(ledger, repo, "pytest -k add")
    assert standing(ledger, repo) == ("passed", "targeted")


def test_a_byte_changed_while_the_tests_run_leaves_it_unverified(ledger: Ledger, repo: Path) -> None:
    file = source(repo)
    run = ledger.begin("s", repo)
    text = file.read_bytes()
    file.write_bytes(bytes([text[0] ^ 1]) + text[1:])
    (event,) = ledger.record(run, "pytest", exit_code=0, canonical=CANONICAL)
    assert (event.status, event.tree) == ("passed", "")
    found = ledger.status("s", repo, canonical=CANONICAL)
    assert (found.status, found.changed_paths) == ("unverified", (str(file.relative_to(repo)),))
    ran(ledger, repo, "pytest")
    assert standing(ledger, repo) == ("passed", "full")


def test_an_edit_that_was_told_of_while_the_tests_ran_counts_even_when_undone(
    ledger: Ledger, repo: Path
) -> None:
    file = source(repo)
    text = file.read_bytes()
    run = ledger.begin("s", repo)
    file.write_bytes(text + b"# x\n")
    ledger.edited("s", repo)
    file.write_bytes(text)
    ledger.record(run, "pytest", exit_code=0, canonical=CANONICAL)
    assert standing(ledger, repo) == ("unverified", "")


def test_touching_an_ignored_file_changes_nothing(ledger: Ledger, repo: Path) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "a.log").write_text("1")
    ran(ledger, repo, "pytest")
    (repo / "a.log").write_text("2")
    (repo / "calc" / "__pycache__").mkdir(parents=True, exist_ok=True)
    (repo / "calc" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (repo / ".pytest_cache").mkdir()
    (repo / ".pytest_cache" / "README.md").write_text("x")
    assert not ledger.edited("s", repo, ["a.log"])
    assert standing(ledger, repo) == ("passed", "full")


@pytest.mark.parametrize("what", ["shell", "new", "gone", "mode", "link", "index", "same times"])
def test_an_edit_by_another_program_is_seen(ledger: Ledger, repo: Path, what: str) -> None:
    file = source(repo)
    ran(ledger, repo, "pytest")
    if what == "shell":
        subprocess.run(["sh", "-c", f"echo '# x' >> {file}"], check=True)
    elif what == "new":
        (repo / "new.py").write_text("")
    elif what == "gone":
        file.unlink()
    elif what == "mode":
        file.chmod(0o755)
    elif what == "link":
        (repo / "link").symlink_to("calc")
    elif what == "index":
        git(repo, "update-index", "--assume-unchanged", str(file.relative_to(repo)))
        file.write_text("VALUE = 3\n")
    else:
        before = file.stat()
        file.write_bytes(b"#" + file.read_bytes()[1:])
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert standing(ledger, repo) == ("unverified", "")
    found = ledger.status("s", repo, canonical=CANONICAL)
    assert found.last_edit_at is not None
    assert len(found.changed_paths) == 1


def test_a_commit_is_no_edit(ledger: Ledger, repo: Path) -> None:
    source(repo).write_text("VALUE = 4\n")
    (event,) = ran(ledger, repo, "pytest")
    git(repo, "commit", "-qam", "x")
    assert standing(ledger, repo) == ("passed", "full")
    assert event.tree == git(repo, "rev-parse", "HEAD^{tree}")
    assert event.commit == git(repo, "rev-parse", "HEAD~1")


def at_once(writer: str, school: Settings, *args: str) -> None:
    """Let *writer* run in eight processes that all begin at one moment: its first argument is which; none may fail."""
    env = {**os.environ, **school.environment(), "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", writer, str(number), *args],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(8)
    ]
    for process in started:  # each says when it stands at the line
        assert process.stdout is not None
        process.stdout.read(1)
    said: dict[int, bytes] = {}

    def let_go(number: int) -> None:
        said[number] = started[number].communicate(b"x")[1]

    threads = [threading.Thread(target=let_go, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [
        (process.returncode, said[number]) for number, process in enumerate(started) if process.returncode
    ] == []


AT_THE_LINE = (
    "import sys; from pathlib import Path; from school.verification.evidence import Ledger\n"
    "me, root = sys.argv[1], Path(sys.argv[2])\n"
    "sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read(1)\n"
)


def test_eight_processes_write_two_thousand_events_at_once(school: Settings, tmp_path: Path) -> None:
    writer = (
        "for number in range(250):\n"
        "    with Ledger() as ledger:\n"
        "        run = ledger.begin(f's{number % 25}', root)\n"
        "        made = ledger.record(run, f'pytest -k {me}x{number}', exit_code=0, canonical=['pytest'])\n"
        "        assert len(made) == 1\n"
    )
    small = tmp_path / "small"
    small.mkdir()
    (small / "pyproject.toml").write_text("")
    at_once(AT_THE_LINE + writer, school, str(small))
    with Ledger() as ledger:
        events = [event for number in range(25) for event in ledger.events(f"s{number}", small)]
        assert len(events) == 2000
        assert len({event.command for event in events}) == 2000
        for number in range(25):
            found = ledger.status(f"s{number}", small, canonical=["pytest"])
            newest = ledger.events(f"s{number}", small, 1)[0]
            assert (found.status, found.scope, found.newest["test"]) == ("passed", "targeted", newest)


# --- states -----------------------------------------------------------------------------------------------


def test_without_leave_there_is_no_ledger_at_all(school: Settings, repo: Path) -> None:
    with Ledger(enabled=False) as ledger:
        assert ledger.begin("s", repo) is None
        assert ran(ledger, repo, "pytest") == []
        assert not ledger.edited("s", repo)
        ledger.prune()
        assert ledger.events("s", repo) == []
        assert ledger.status("s", repo, canonical=CANONICAL) == Standing("disabled")
    assert not school.evidence_db.exists()


def test_without_a_root_nothing_applies(ledger: Ledger) -> None:
    assert ledger.begin("s", None) is None
    assert ledger.record(None, "pytest", exit_code=0, canonical=CANONICAL) == []
    assert ledger.status("s", None, canonical=CANONICAL) == Standing("not_applicable")


def test_sessions_and_roots_do_not_know_each_other(ledger: Ledger, repo: Path, tmp_path: Path) -> None:
    ran(ledger, repo, "pytest")
    assert standing(ledger, repo, "other") == ("unverified", "")
    other = tmp_path / "other"
    other.mkdir()
    assert standing(ledger, other) == ("unverified", "")


def test_a_pointer_to_an_event_before_the_edit_is_stale(ledger: Ledger, repo: Path, school: Settings) -> None:
    ran(ledger, repo, "pytest")
    with sqlite3.connect(school.evidence_db) as db:
        db.execute("UPDATE verification_state SET valid_after = 1")
    db.close()
    assert standing(ledger, repo) == ("stale", "")


def test_a_check_decides_where_no_test_is_declared(ledger: Ledger, repo: Path) -> None:
    run = ledger.begin("s", repo)
    ledger.record(run, "make check", exit_code=0, canonical=["make check"])
    assert ledger.status("s", repo, canonical=["make check"]).status == "passed"
    assert ledger.status("s", repo, canonical=["make check", "pytest"]).status == "unverified"


def test_the_clock_may_be_set_back(school: Settings, repo: Path) -> None:
    clock = FakeClock()
    with Ledger(clock=clock) as ledger:
        ran(ledger, repo, "pytest")
        source(repo).write_text("VALUE = 5\n")
        ledger.edited("s", repo)
        clock.set_back(3600)
        ran(ledger, repo, "pytest")
        assert standing(ledger, repo) == ("passed", "full")


def test_what_is_no_evidence_leaves_no_event(ledger: Ledger, repo: Path) -> None:
    for command in ("pytest || true", "pytest --collect-only", "ls"):
        assert ran(ledger, repo, command) == []
    assert ledger.events("s", repo) == []


def test_one_event_for_each_check_of_a_chain(ledger: Ledger, repo: Path) -> None:
    events = ran(ledger, repo, "ruff check . && pytest", output="2 passed in 0.1s")
    assert [(event.kind, event.status) for event in events] == [("lint", "passed"), ("test", "passed")]


def test_a_long_output_is_kept_by_head_and_tail(ledger: Ledger, repo: Path) -> None:
    (event,) = ran(ledger, repo, "pytest", 1, output="begin " + "x" * 9000 + " end")
    assert len(event.output_summary) <= 2000
    assert event.output_summary.startswith("begin x")
    assert event.output_summary.endswith("x end")
    assert "left out" in event.output_summary


# --- where it ran -----------------------------------------------------------------------------------------


def test_only_what_ran_in_the_root_is_the_roots(ledger: Ledger, repo: Path, tmp_path: Path) -> None:
    (repo / "sub").mkdir()
    (tmp_path / "far").mkdir()
    cases = {
        f"cd {repo} && pytest": (tmp_path, "full"),
        f"cd {repo}\npytest": (tmp_path, "full"),
        "cd sub && pytest": (repo, "targeted"),
        "pytest": (repo / "sub", "targeted"),
        "cd .. && pytest -q": (repo / "sub", "full"),
        f"cd {tmp_path}/far && pytest": (repo, None),
        "cd nowhere; pytest": (repo, None),
        "ruff check .": (repo / "sub", None),
    }
    for command, (cwd, scope) in cases.items():
        made = ran(ledger, repo, command, cwd=cwd)
        assert [event.scope for event in made] == ([scope] if scope else []), command


def test_a_script_of_the_agents_own_must_lie_outside(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = tmp_path / "project"
    root.mkdir()
    for place, count in ((tmp_path, 1), (root, 0)):
        run = ledger.begin("s", root)
        made = ledger.record(run, f"python3 {place}/hermes-verify-a.py", exit_code=0, canonical=[])
        assert len(made) == count
    assert ledger.status("s", root, canonical=[]).scope == "targeted"


# --- what is kept -----------------------------------------------------------------------------------------


def test_a_hundred_events_are_kept_a_session_and_root(ledger: Ledger, folder: Path) -> None:
    ran(ledger, folder, "ruff check .")
    for _ in range(evidence.EVENTS_MAX + 20):
        ran(ledger, folder, "pytest")
    ran(ledger, folder, "pytest", session="other")
    kept = ledger.events("s", folder, 1000)
    # The linter's is the newest of its kind.
    assert [event.kind for event in kept] == ["test"] * evidence.EVENTS_MAX + ["lint"]
    assert len(ledger.events("other", folder)) == 1


def test_what_is_old_goes_unless_something_points_to_it(school: Settings, folder: Path) -> None:
    clock = FakeClock()
    with Ledger(clock=clock) as ledger:
        ran(ledger, folder, "pytest", session="left")
        ran(ledger, folder, "pytest")
        ran(ledger, folder, "pytest")
        clock.advance(20 * 86400)
        ran(ledger, folder, "ruff check .")
        clock.advance(11 * 86400)
        ledger.prune()
        assert [event.kind for event in ledger.events("s", folder)] == ["lint", "test"]
        assert ledger.events("left", folder) == []


def test_ten_thousand_that_nothing_points_to_are_kept(
    ledger: Ledger, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "UNREFERENCED_MAX", 5)
    for _ in range(10):
        ran(ledger, folder, "pytest")
    ledger.prune()
    assert len(ledger.events("s", folder)) == 6


def test_the_limits_are_those_of_the_contract() -> None:
    assert (evidence.KEPT_DAYS, evidence.EVENTS_MAX, evidence.UNREFERENCED_MAX) == (30, 100, 10_000)


def test_events_are_never_changed(ledger: Ledger, repo: Path, school: Settings) -> None:
    ran(ledger, repo, "pytest", 1)
    db = sqlite3.connect(school.evidence_db)
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        db.execute("UPDATE verification_events SET status = 'passed'")
    db.close()


# --- the file ---------------------------------------------------------------------------------------------


def test_the_file_is_private_in_wal_mode_and_really_closed(
    ledger: Ledger, repo: Path, school: Settings
) -> None:
    for _ in range(3):
        ran(ledger, repo, "pytest")
        ledger.close()
    assert stat.S_IMODE(school.evidence_db.stat().st_mode) == 0o600
    db = sqlite3.connect(school.evidence_db)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone() == ("1",)
    db.close()
    held = [file.path for file in psutil.Process().open_files()]
    assert not [path for path in held if "evidence.db" in path]


def test_what_is_no_database_is_set_aside(ledger: Ledger, repo: Path, school: Settings) -> None:
    school.school_dir.mkdir(parents=True)
    school.evidence_db.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    ran(ledger, repo, "pytest")
    assert standing(ledger, repo) == ("passed", "full")
    assert [path.read_bytes()[:11] for path in (school.school_dir / "corrupt").iterdir()] == [b"no database"]


def test_eight_find_a_broken_ledger_at_once_and_none_loses_an_event(school: Settings, tmp_path: Path) -> None:
    writer = (
        "for number in range(10):\n"
        "    with Ledger(root.parent / f'{number}.db') as ledger:\n"
        "        run = ledger.begin('s', root)\n"
        "        assert ledger.record(run, f'pytest -k {me}', exit_code=0, canonical=['pytest'])\n"
    )
    small = tmp_path / "small"
    small.mkdir()
    for number in range(10):
        (tmp_path / f"{number}.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    at_once(AT_THE_LINE + writer, school, str(small))
    for number in range(10):
        with Ledger(tmp_path / f"{number}.db") as ledger:
            assert {event.command for event in ledger.events("s", small)} == {
                f"pytest -k {me}" for me in range(8)
            }
    assert len(list((tmp_path / "corrupt").iterdir())) == 10


def test_a_state_directory_in_the_project_is_no_part_of_it(repo: Path) -> None:
    configure(Settings.from_env({"HERMES_HOME": str(repo / ".hermes")}))
    with Ledger() as ledger:
        assert ran(ledger, repo, "pytest")[0].tree != ""
        assert standing(ledger, repo) == ("passed", "full")
        (repo / ".hermes" / "environment.json").write_text("{}")
        assert standing(ledger, repo) == ("unverified", "")


def test_a_newer_ledger_is_left_alone(ledger: Ledger, repo: Path, school: Settings) -> None:
    ran(ledger, repo, "pytest")
    ledger.close()
    db = sqlite3.connect(school.evidence_db)
    db.execute("PRAGMA user_version=2")
    db.close()
    with pytest.raises(MachineError, match=r"evidence\.db: made by a newer version"):
        ran(ledger, repo, "pytest")


def test_a_ledger_that_breaks_while_it_is_open_is_named(ledger: Ledger, repo: Path, school: Settings) -> None:
    ran(ledger, repo, "pytest")
    db = sqlite3.connect(school.evidence_db)
    db.execute("DROP TABLE verification_state")
    db.commit()
    db.close()
    with pytest.raises(MachineError, match=r"evidence\.db: the evidence ledger cannot be written"):
        ledger.status("s", repo, canonical=CANONICAL)
    with pytest.raises(MachineError, match=r"evidence\.db: the evidence ledger cannot be read"):
        ledger.edited("s", repo)


def test_a_folder_that_cannot_hold_it_is_named(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Ledger(tmp_path / "file" / "evidence.db") as ledger, pytest.raises(MachineError, match="file"):
        ledger.begin("s", repo)


# --- the digest -------------------------------------------------------------------------------------------


def test_the_digest_is_gits_own_id_of_the_tree(repo: Path) -> None:
    (repo / "a" / "b").mkdir(parents=True)
    for name in ("a/b/c", "a.b", "a-b", "a/b.c", "a/\xe9 \n'\""):
        (repo / name).write_text(name)
    (repo / "a" / "run").write_text("#!/bin/sh\n")
    (repo / "a" / "run").chmod(0o755)
    (repo / "link").symlink_to("a/b")
    state = TreeDigest(repo).take()
    git(repo, "add", "-A")
    assert state.tree == git(repo, "write-tree")


def test_files_are_read_again_only_when_they_changed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = TreeDigest(repo)
    first = digest.take()
    monkeypatch.setattr("school.verification.digest._JUST_NOW_NS", -(10**18))
    assert digest.take().tree == first.tree
    read: list[bytes] = []
    real = TreeDigest._read

    def counted(
        self: TreeDigest, full: bytes, path: bytes, status: os.stat_result
    ) -> tuple[bytes, str] | None:
        read.append(path)
        return real(self, full, path, status)

    monkeypatch.setattr(TreeDigest, "_read", counted)
    assert digest.take().tree == first.tree
    source(repo).write_text("VALUE = 6\n")
    assert digest.take().tree != first.tree
    assert read == [os.fsencode(source(repo).relative_to(repo))]


def test_an_edit_in_a_repository_inside_is_seen(repo: Path) -> None:
    inside = repo / "vendored"
    inside.mkdir()
    git(inside, "init", "-q")
    (inside / "a.py").write_text("1")
    digest = TreeDigest(repo)
    before = digest.take()
    (inside / "a.py").write_text("2")
    assert digest.take().tree != before.tree


def test_outside_a_repository_every_file_counts_that_is_no_by_product(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    digest = TreeDigest(tmp_path)
    before = digest.take()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    (tmp_path / ".coverage").write_text("x")
    assert digest.take().tree == before.tree
    (tmp_path / "b.py").write_text("")
    assert digest.take().tree != before.tree
    assert before.commit == ""


def test_a_folder_that_its_repository_ignores_is_read_all_the_same(repo: Path) -> None:
    (repo / ".gitignore").write_text("build/\n")
    (repo / "build").mkdir()
    (repo / "build" / "a.py").write_text("1")
    digest = TreeDigest(repo / "build")
    before = digest.take()
    (repo / "build" / "a.py").write_text("2")
    assert digest.take().tree != before.tree
