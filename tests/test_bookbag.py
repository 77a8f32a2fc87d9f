"""The public functions of ``bookbag`` on real files: names, records, locks, signals, waiting, the archive."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import bookbag
from bookbag import BookbagCorruptedError, BookbagInvalidError, BookbagSignal, LockLost, LockTimeout, Shelf
from school.records.derive import json_schema_text
from school.settings import Settings
from school.system import identity
from tests.records_support import FIELDS, TREE, give, review, running, written
from tests.support import ROOT

BEAD = "coder-python-0a1b2c3d"


def path_of(school: Settings, bead: str = BEAD) -> Path:
    return school.bookbag_dir / f"{bead}.json"


# --- names ------------------------------------------------------------------------------------------------


def test_bead_names_are_fresh_and_fit() -> None:
    names = {bookbag.bead_name("coder", "Python Coding/é") for _ in range(50)}
    assert len(names) == 50
    assert all(
        name.startswith("coder-python-coding-") and len(name) == len("coder-python-coding-") + 8
        for name in names
    )
    assert len(bookbag.bead_name("r" * 300, "d" * 300)) <= 121


@pytest.mark.parametrize(
    "bead", ["../../x", "/abs", "a\0b", ".", "", "-a", "UPPER", "a" * 122, "a/b", "a\n", "ä"]
)
def test_a_bad_name_never_becomes_a_path(school: Settings, bead: str) -> None:
    for call in (
        lambda: bookbag.write_bookbag(bead, **FIELDS),
        lambda: bookbag.read_bookbag(bead),
        lambda: bookbag.locked_update_bookbag(bead, summary="x"),
        lambda: bookbag.acquire_lock(bead, 0),
        lambda: BookbagSignal(bead),
        lambda: bookbag.archive_bookbag(bead),
    ):
        with pytest.raises(BookbagInvalidError):
            call()
    assert not school.hermes_home.exists()


# --- writing and reading ----------------------------------------------------------------------------------


def test_write_creates_and_never_overwrites(school: Settings) -> None:
    bag = bookbag.write_bookbag(BEAD, **FIELDS, later_field={"kept": [1]})
    assert bag == bookbag.read_bookbag(BEAD)
    assert (bag["rev"], bag["schema"], bag["status"], bag["accepted"]) == (1, 1, "open", False)
    assert bag["timestamp"].endswith("+00:00")
    assert stat.S_IMODE(path_of(school).stat().st_mode) == 0o600
    assert stat.S_IMODE(school.bookbag_dir.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        bookbag.write_bookbag(BEAD, **{**FIELDS, "task": "another"})
    assert bookbag.read_bookbag(BEAD) == bag


def test_the_whole_record_may_be_given_back(school: Settings) -> None:
    bag = bookbag.write_bookbag(BEAD, **FIELDS)
    path_of(school).unlink()
    again = bookbag.write_bookbag(**bag)
    assert again["timestamp"] == bag["timestamp"]
    path_of(school).unlink()
    with pytest.raises(BookbagInvalidError, match="another bead"):
        bookbag.write_bookbag("other-bead", **bag)


@pytest.mark.parametrize("missing", ["task", "student", "domain", "difficulty"])
def test_what_a_record_needs(school: Settings, missing: str) -> None:
    with pytest.raises(BookbagInvalidError, match=missing):
        bookbag.write_bookbag(BEAD, **{name: value for name, value in FIELDS.items() if name != missing})
    assert bookbag.read_bookbag(BEAD) is None


def test_unknown_fields_survive_every_update(school: Settings) -> None:
    bookbag.write_bookbag(BEAD, **FIELDS, from_the_future={"a": [1, {"b": None}]})
    for number in range(3):
        bag = bookbag.locked_update_bookbag(BEAD, summary=f"s{number}")
    assert bag is not None
    assert bag["from_the_future"] == {"a": [1, {"b": None}]}
    assert bag["rev"] == 4


def test_text_is_valid_and_bounded(school: Settings) -> None:
    output = "é" * 100_000
    bag = bookbag.write_bookbag(
        BEAD,
        **FIELDS,
        output=output,
        summary="a\ud800b",
        blockers=["x\udcffy"],
        extra=b"\xff\xfe",
        where=Path("/a"),
    )
    raw = path_of(school).read_bytes()
    assert json.loads(raw.decode("utf-8", "strict")) == bag
    assert len(bag["output"].encode()) <= 64 * 1024
    assert bag["output"].startswith("ééé")
    assert bag["output"].endswith("ééé")
    assert bag["summary"] == "a\\ud800b"
    assert bag["blockers"] == ["x\\udcffy"]
    assert bag["extra"] == "\\xff\\xfe"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": {1j}}])
def test_what_is_no_json_is_refused(school: Settings, value: object) -> None:
    with pytest.raises(BookbagInvalidError):
        bookbag.write_bookbag(BEAD, **FIELDS, extra=value)
    assert bookbag.read_bookbag(BEAD) is None


def test_absent_is_none(school: Settings) -> None:
    assert bookbag.read_bookbag(BEAD) is None
    assert bookbag.locked_update_bookbag(BEAD, summary="x") is None
    assert bookbag.list_bookbags() == []
    assert bookbag.list_bookbags(archived=True) == []
    assert not path_of(school).exists()


@pytest.mark.parametrize(
    "torn", [b"", b"\0" * 4096, b'{"bead": "co', b'{"a": 1}{"a": 1, ', b"\xff\xfe{}", b"NaN", b"[" * 5000]
)
def test_torn_is_moved_away_and_said(school: Settings, torn: bytes) -> None:
    running(BEAD)
    path_of(school).write_bytes(torn)
    with pytest.raises(BookbagCorruptedError, match="corrupt"):
        bookbag.read_bookbag(BEAD)
    assert not path_of(school).exists()
    [moved] = school.corrupt_dir.iterdir()
    assert moved.read_bytes() == torn
    assert bookbag.read_bookbag(BEAD) is None


def test_a_second_corruption_does_not_overwrite_the_first(school: Settings) -> None:
    for torn in (b"one", b"two"):
        path_of(school).parent.mkdir(parents=True, exist_ok=True)
        path_of(school).write_bytes(torn)
        with pytest.raises(BookbagCorruptedError):
            bookbag.locked_update_bookbag(BEAD, summary="x")
    assert sorted(path.read_bytes() for path in school.corrupt_dir.iterdir()) == [b"one", b"two"]


def test_corrupt_under_a_held_lock_stays_and_is_still_said(school: Settings) -> None:
    running(BEAD)
    path_of(school).write_bytes(b"torn")
    assert bookbag.acquire_lock(BEAD)
    with pytest.raises(BookbagCorruptedError, match="its lock is held"):
        bookbag.read_bookbag(BEAD)
    bookbag.release_lock(BEAD)
    assert path_of(school).read_bytes() == b"torn"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bead": "other-python-0a1b2c3d"}, "the record says"),
        ({"status": "resting"}, "status"),
        ({"cto_verdict": "MAYBE"}, "cto_verdict"),
        ({"accepted": True}, "accepted: its status is running"),
        ({"difficulty": "epic"}, "difficulty"),
        ({"rev": "many"}, "rev"),
        ({"schema": 2}, "schema"),
        ({"timestamp": "yesterday"}, "timestamp"),
    ],
)
def test_invalid_stays_and_is_said(school: Settings, change: dict[str, Any], why: str) -> None:
    bag = {**running(BEAD), **change}
    path_of(school).write_text(json.dumps(bag))
    with pytest.raises(BookbagInvalidError, match=why):
        bookbag.read_bookbag(BEAD)
    with pytest.raises(BookbagInvalidError, match=why):
        bookbag.locked_update_bookbag(BEAD, summary="x")
    assert json.loads(path_of(school).read_text()) == bag
    assert not school.corrupt_dir.exists()


@pytest.mark.parametrize("other", [b"[]", b"null", b'"text"', b"3"])
def test_json_that_is_no_record(school: Settings, other: bytes) -> None:
    running(BEAD)
    path_of(school).write_bytes(other)
    with pytest.raises(BookbagInvalidError, match="a bookbag is a JSON object"):
        bookbag.read_bookbag(BEAD)
    assert path_of(school).read_bytes() == other


def test_a_seed_record_is_read_as_such(school: Settings) -> None:
    seed = {
        **FIELDS, "bead": BEAD, "output": "print()", "lens": "cto", "cto_verdict": "PASS", "coo_verdict": "PASS",
        "findings": [{"section": "x", "severity": "nit", "description": "d"}], "ac_met": [], "files_changed": [],
        "verification": "", "summary": "", "blockers": [], "accepted": True, "timestamp": "2026-07-22T10:00:00",
    }  # fmt: skip
    path_of(school).parent.mkdir(parents=True)
    path_of(school).write_text(json.dumps(seed))
    bag = bookbag.read_bookbag(BEAD)
    assert bag is not None
    assert bookbag.bookbag_state(bag) == "REVIEWED"
    assert "schema" not in bag
    scored = bookbag.locked_update_bookbag(BEAD, scored_at="2030-01-01T00:00:00+00:00")
    assert scored is not None
    assert (scored["rev"], scored["findings"], scored["accepted"]) == (1, seed["findings"], True)
    path_of(school).write_text(json.dumps({**seed, "coo_verdict": "FAIL"}))
    with pytest.raises(BookbagInvalidError, match="accepted: needs both verdicts PASS"):
        bookbag.read_bookbag(BEAD)


def test_validate_says_all(school: Settings) -> None:
    bag = running(BEAD)
    assert bookbag.validate_bookbag(bag) == []
    wrong = bookbag.validate_bookbag({**bag, "task": "", "bead": "No", "attempt": "x", "claim": "sure"})
    assert len(wrong) == 4


def test_acceptance_needs_everything(school: Settings) -> None:
    """Each thing that acceptance needs, taken away alone, is enough for it to be none."""
    written(BEAD)
    give(BEAD, "cto")
    bag = give(BEAD, "coo")
    assert bag is not None
    assert bookbag.validate_bookbag(bag) == []
    lens = bag["cto_review"]["lenses"][0]
    high = {"section": "s", "severity": "HIGH", "issue_class": "late", "description": "d"}
    for broken, why in [
        ({"cto_verdict": "FAIL", "cto_review": review("cto", "FAIL")}, "no PASS from the cto"),
        ({"coo_review": review("coo", tree="c" * 40)}, "another tree"),
        ({"tree": ""}, "another tree"),
        ({"cto_review": {**bag["cto_review"], "lenses": [lens]}}, "did not pass SECURITY"),
        ({"cto_review": {**bag["cto_review"], "lenses": [{**lens, "findings": [high]}, bag["cto_review"]["lenses"][1]]}}, "found late"),
        ({"claim": "no_change"}, "no change is due"),
        ({"status": "failed"}, "its status is failed"),
        ({"coo_review": {}}, "no PASS from the coo"),
    ]:  # fmt: skip
        assert any(why in problem for problem in bookbag.validate_bookbag({**bag, **broken})), why


def test_published_schema_is_the_models(school: Settings) -> None:
    published = (ROOT / "docs" / "bookbag.schema.json").read_text()
    assert published == json_schema_text()
    schema = json.loads(published)
    jsonschema.Draft202012Validator.check_schema(schema)
    written(BEAD)
    give(BEAD, "cto", "FAIL")
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(bookbag.read_bookbag(BEAD))
    assert not validator.is_valid({**FIELDS, "bead": "Not A Name"})


# --- updating ---------------------------------------------------------------------------------------------


def test_a_stale_writer_is_refused(school: Settings) -> None:
    old = running(BEAD)
    bookbag.locked_update_bookbag(BEAD, summary="first")
    with pytest.raises(BookbagInvalidError, match="stale"):
        bookbag.update_bookbag(BEAD, lambda _: {**old, "summary": "second"}, by="conductor")
    with pytest.raises(BookbagInvalidError, match="stale"):
        bookbag.locked_update_bookbag(BEAD, rev=old["rev"], summary="second")
    bag = bookbag.read_bookbag(BEAD)
    assert bag is not None
    assert bag["summary"] == "first"


def test_an_update_may_edit_in_place_or_fail(school: Settings) -> None:
    old = running(BEAD)

    def edit(bag: dict[str, Any]) -> None:
        bag["blockers"].append("none")

    new = bookbag.update_bookbag(BEAD, edit, by="conductor")
    assert new is not None
    assert new["blockers"] == ["none"]
    with pytest.raises(ZeroDivisionError):
        bookbag.update_bookbag(BEAD, lambda bag: bag | {"summary": 1 / 0}, by="conductor")
    assert bookbag.read_bookbag(BEAD) == new
    assert bookbag.acquire_lock(BEAD, 0)
    bookbag.release_lock(BEAD)
    assert old["blockers"] == []


def test_a_change_of_nothing_writes_nothing(school: Settings) -> None:
    running(BEAD)
    before = path_of(school).stat()
    assert bookbag.update_bookbag(BEAD, lambda _: None, by="cto") == bookbag.read_bookbag(BEAD)
    assert path_of(school).stat().st_ino == before.st_ino


def test_two_writers_of_different_fields_lose_nothing(school: Settings) -> None:
    running(BEAD, left=0, right=0)

    def count(name: str) -> None:
        for _ in range(40):
            assert bookbag.update_bookbag(BEAD, lambda bag: bag | {name: bag[name] + 1}, by="conductor")

    threads = [threading.Thread(target=count, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bag = bookbag.read_bookbag(BEAD)
    assert bag is not None
    assert (bag["left"], bag["right"], bag["rev"]) == (40, 40, 81)


# --- locks ------------------------------------------------------------------------------------------------


def test_lock_is_a_file_that_says_who(school: Settings) -> None:
    assert bookbag.acquire_lock(BEAD)
    text = (school.lock_dir / f"{BEAD}.lock").read_text()
    assert text.splitlines()[0] == str(os.getpid())
    assert {"start", "boot", "host", "pidns", "nonce", "purpose"} == {
        line.partition("=")[0] for line in text.splitlines()[1:]
    }
    assert not bookbag.acquire_lock(BEAD, 0)
    with pytest.raises(LockTimeout, match=f"{BEAD}.*{os.getpid()}"), bookbag.bead_lock(BEAD, 0.01):
        pass
    assert bookbag.locked_update_bookbag(BEAD, 0.01, summary="x") is None
    bookbag.release_lock(BEAD)
    assert not (school.lock_dir / f"{BEAD}.lock").exists()


def test_release_is_for_the_holder(school: Settings) -> None:
    with pytest.raises(LockLost):
        bookbag.release_lock(BEAD)
    lock = school.lock_dir / f"{BEAD}.lock"
    assert bookbag.acquire_lock(BEAD)
    other = identity.this_process("another").text
    lock.write_text(other)
    with pytest.raises(LockLost):
        bookbag.release_lock(BEAD)
    assert lock.read_text() == other


def test_a_child_does_not_hold_its_parents_lock(school: Settings) -> None:
    assert bookbag.acquire_lock(BEAD)
    child = os.fork()
    if child == 0:
        try:
            bookbag.release_lock(BEAD)
        except LockLost:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (school.lock_dir / f"{BEAD}.lock").exists()
    bookbag.release_lock(BEAD)


def plant(school: Settings, text: str, *, age_s: float = 0.0) -> Path:
    lock = school.lock_dir / f"{BEAD}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(text)
    then = time.time() - age_s
    os.utime(lock, (then, then))
    return lock


def edited(owner: str, **lines: str) -> str:
    """The text of an owner with some of its lines changed."""
    pid, *rest = owner.splitlines()
    pairs = {line.partition("=")[0]: line.partition("=")[2] for line in rest} | lines
    pid = pairs.pop("pid", pid)
    return "\n".join([pid, *(f"{name}={value}" for name, value in pairs.items())]) + "\n"


def test_whose_lock_may_be_taken(school: Settings) -> None:
    """Proof of death takes it; doubt, another host or a living process never does; garbage only by age."""
    mine = identity.this_process("test").text
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    zombie_owner = None
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # it has ended and nobody has reaped it
    zombie_owner = identity.identity(zombie.pid)
    cases = {
        "zombie": (edited(mine, pid=str(zombie.pid), start=zombie_owner.start), 0.0, True),
        "reused pid": (edited(mine, start="1"), 0.0, True),
        "earlier boot": (edited(mine, boot="00000000-0000-0000-0000-000000000000"), 0.0, True),
        "no such process": (edited(mine, pid="4194303", start="5"), 0.0, True),
        "bare line of the living": (f"{os.getppid()}\n", 3600.0, False),
        "the living": (mine, 3600.0, False),
        "another host": (edited(mine, host="elsewhere", pid="4194303"), 3600.0, False),
        "another pid namespace": (edited(mine, pidns="1", pid="4194303"), 3600.0, False),
        "empty and fresh": ("", 0.0, False),
        "empty and old": ("", 6.0, True),
        "garbled and fresh": ("who knows", 0.0, False),
        "garbled and old": ("who knows", 6.0, True),
        "pid zero and old": ("0\n", 6.0, True),
    }
    for name, (text, age_s, takeable) in cases.items():
        lock = plant(school, text, age_s=age_s)
        assert bookbag.acquire_lock(BEAD, 0.005) is takeable, name
        if takeable:
            bookbag.release_lock(BEAD)
            assert not lock.exists()
        else:
            assert lock.read_text() == text
    zombie.wait()
    assert (school.lock_dir / ".guard").exists()


# --- signals ----------------------------------------------------------------------------------------------


def test_signal_is_a_hint_with_rev_and_tree(school: Settings) -> None:
    signal = BookbagSignal(BEAD)
    assert not signal.check()
    assert signal.read() is None
    signal.clear()
    written(BEAD)
    signal.ready()
    assert signal.check()
    hint = signal.read()
    assert hint is not None
    assert (hint["bead"], hint["rev"], hint["tree"]) == (BEAD, 2, TREE)
    (school.signal_dir / f"{BEAD}.ready").write_bytes(b"")
    assert signal.read() == {}
    signal.clear()
    signal.clear()
    assert not signal.check()


def test_flag_stays_until_both_verdicts(school: Settings) -> None:
    written(BEAD)
    BookbagSignal(BEAD).ready()
    give(BEAD, "cto")
    assert BookbagSignal(BEAD).check()
    give(BEAD, "coo", "FAIL")
    assert not BookbagSignal(BEAD).check()


def test_a_blocked_record_loses_its_flag(school: Settings) -> None:
    written(BEAD)
    BookbagSignal(BEAD).ready()
    bookbag.locked_update_bookbag(BEAD, by="coo", status="blocked", reason="nobody can judge it")
    assert not BookbagSignal(BEAD).check()


def test_sweep_puts_flags_in_step(school: Settings) -> None:
    for bead in ("waits-1", "waits-2", "done-1", "runs-1"):
        running(bead) if bead == "runs-1" else written(bead)
    give("waits-2", "cto")
    for role in ("cto", "coo"):
        give("done-1", role)
    for bead in ("waits-2", "done-1", "gone-1", "runs-1"):
        BookbagSignal(bead).ready()
    (school.signal_dir / "README").write_text("not a flag")
    assert bookbag.sweep_signals() == {"raised": ["waits-1"], "removed": ["done-1", "gone-1", "runs-1"]}
    assert sorted(path.name for path in school.signal_dir.iterdir()) == [
        "README",
        "waits-1.ready",
        "waits-2.ready",
    ]
    assert bookbag.sweep_signals() == {"raised": [], "removed": []}


# --- the archive and the shelf ----------------------------------------------------------------------------


def fail(bead: str) -> None:
    bookbag.locked_update_bookbag(bead, by="leaf", status="failed", reason="agent")


def test_archive_is_whole_and_idempotent(school: Settings, tmp_path: Path) -> None:
    big = tmp_path / "stdout"
    big.write_bytes(os.urandom(3 * 1024 * 1024))
    running(BEAD)
    fail(BEAD)
    BookbagSignal(BEAD).ready()
    place = bookbag.archive_bookbag(BEAD, {"stdout": big, "brief.json": b"{}"})
    assert sorted(path.name for path in place.iterdir()) == ["bookbag.json", "brief.json", "stdout"]
    assert (place / "stdout").read_bytes() == big.read_bytes()
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    assert not BookbagSignal(BEAD).check()
    assert bookbag.archive_bookbag(BEAD, {"other": b""}) == place
    assert not (place / "other").exists()
    assert bookbag.list_bookbags() == []
    assert bookbag.list_bookbags(archived=True) == [BEAD]
    with pytest.raises(FileExistsError):
        bookbag.write_bookbag(BEAD, **FIELDS)
    with pytest.raises(BookbagInvalidError, match="neither a live record"):
        bookbag.archive_bookbag("never-was")
    assert [path.name for path in school.archive_dir.iterdir()] == [BEAD]


def test_the_archive_wins(school: Settings) -> None:
    """A conductor that died between the rename and the removal left both: nobody moves on from the live one."""
    running(BEAD)
    fail(BEAD)
    raw = path_of(school).read_bytes()
    bookbag.archive_bookbag(BEAD)
    path_of(school).write_bytes(raw)
    assert Shelf().scan() == {}
    assert bookbag.locked_update_bookbag(BEAD, summary="late") is None
    bookbag.archive_bookbag(BEAD)
    assert not path_of(school).exists()


@pytest.mark.parametrize("name", ["../x", "bookbag.json", "", "a/b", ".."])
def test_archive_names_are_plain(school: Settings, name: str) -> None:
    running(BEAD)
    fail(BEAD)
    with pytest.raises(BookbagInvalidError, match="no name for a file"):
        bookbag.archive_bookbag(BEAD, {name: b""})
    assert bookbag.read_bookbag(BEAD) is not None


def test_lists_are_oldest_first(school: Settings) -> None:
    for bead, born in (("b-2", "2030-01-02"), ("a-3", "2030-01-03"), ("c-1", "2030-01-01")):
        running(bead, timestamp=f"{born}T00:00:00+00:00")
        fail(bead)
    assert bookbag.list_bookbags() == ["c-1", "b-2", "a-3"]
    assert list(Shelf().scan()) == ["c-1", "b-2", "a-3"]
    for bead in ("a-3", "c-1", "b-2"):
        bookbag.archive_bookbag(bead)
    assert bookbag.list_bookbags(archived=True) == ["c-1", "b-2", "a-3"]


def test_shelf_sees_every_change(school: Settings) -> None:
    shelf = Shelf()
    assert shelf.scan() == {}
    for number in range(30):
        bag = running(f"bead-{number}")
        assert shelf.scan()[bag["bead"]] == bag
    for number in range(30):
        new = bookbag.locked_update_bookbag(f"bead-{number}", summary="changed")
        assert shelf.scan()[f"bead-{number}"] == new
    written("bead-w")
    assert list(shelf.waiting()) == ["bead-w"]


def test_shelf_names_what_it_cannot_read_and_goes_on(school: Settings) -> None:
    good = running("good-1")
    running("torn-1")
    running("wrong-1")
    path_of(school, "torn-1").write_bytes(b"{")
    path_of(school, "wrong-1").write_text(json.dumps({**good, "bead": "wrong-1", "status": "?"}))
    (school.bookbag_dir / "Not a bead.json").write_text("{}")
    shelf = Shelf()
    assert shelf.scan() == {"good-1": good}
    assert set(shelf.problems) == {"torn-1", "wrong-1"}
    assert "moved to" in shelf.problems["torn-1"]
    shelf.scan()
    assert set(shelf.problems) == {"wrong-1"}


def test_a_quiet_shelf_costs_one_look(school: Settings) -> None:
    """What has not changed is neither listed nor parsed again, however much of it there is."""
    for number in range(20):
        running(f"bead-{number}")
        fail(f"bead-{number}")
    past = time.time() - 60
    os.utime(school.bookbag_dir, (past, past))
    shelf = Shelf()
    first = shelf.scan()
    assert shelf.scan() is first
    running("bead-new")
    assert "bead-new" in shelf.scan()


# --- waiting ----------------------------------------------------------------------------------------------


def test_wait_for_verdicts_is_woken(school: Settings) -> None:
    written(BEAD)
    BookbagSignal(BEAD).ready()
    got: list[tuple[str, str]] = []
    waiter = threading.Thread(target=lambda: got.append(bookbag.wait_for_verdicts(BEAD, 20.0)))
    waiter.start()
    give(BEAD, "cto")
    give(BEAD, "coo", "FAIL")
    begun = time.monotonic()
    waiter.join()
    assert got == [("PASS", "FAIL")]
    assert time.monotonic() - begun < 2.0  # events, not the 5 s poll


def test_waits_end(school: Settings) -> None:
    assert bookbag.wait_for_bookbag(BEAD, 0.01) is None
    running(BEAD)
    assert bookbag.wait_for_bookbag(BEAD, 0.01) is None
    assert bookbag.wait_for_verdicts(BEAD, 0) == ("", "")
    bookbag.locked_update_bookbag(BEAD, by="leaf", status="open", tree=TREE)
    bag = bookbag.wait_for_bookbag(BEAD, 0)
    assert bag is not None
    assert bag["tree"] == TREE
    give(BEAD, "cto")
    assert bookbag.wait_for_verdicts(BEAD, 0.01) == ("PASS", "")


def test_what_failed_is_not_waited_for(school: Settings) -> None:
    running(BEAD)
    fail(BEAD)
    assert bookbag.wait_for_verdicts(BEAD, 30.0) == ("", "")
    bookbag.archive_bookbag(BEAD)
    bag = bookbag.wait_for_bookbag(BEAD, 30.0)
    assert bag is not None
    assert bag["status"] == "failed"


def test_leftovers_of_the_dead_go(school: Settings) -> None:
    running(BEAD)
    dead = subprocess.run(
        [sys.executable, "-c", "from school.system import files; import sys; print(files.temporary_name(sys.argv[1]))",
         str(path_of(school))],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    Path(dead.stdout.strip()).write_text("half")
    assert bookbag.sweep_leftovers() == 1
    assert [path.name for path in school.bookbag_dir.iterdir()] == [f"{BEAD}.json"]


def test_the_sweep_takes_away_the_locks_of_the_dead_and_no_others(school: Settings) -> None:
    school.lock_dir.mkdir(parents=True)
    mine = identity.this_process("test")
    dead = school.lock_dir / "coder-python-00000001.lock"
    dead.write_text(dataclasses.replace(mine, start="1").text)  # this PID, given away since
    living = school.lock_dir / "coder-python-00000002.lock"
    living.write_text(mine.text)
    elsewhere = school.lock_dir / "coder-python-00000003.lock"
    elsewhere.write_text(dataclasses.replace(mine, host="another", start="1").text)
    fresh, old = (school.lock_dir / f"coder-python-0000000{n}.lock" for n in (4, 5))
    fresh.write_text("")
    old.write_text("")
    os.utime(old, (0, 0))
    bookbag.sweep_leftovers()
    assert sorted(school.lock_dir.glob("*.lock")) == [living, elsewhere, fresh]
