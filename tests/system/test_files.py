from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from school.errors import MachineError
from school.system import durable, files, identity
from tests.system.support import on_small_disk, python, python_result


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith(".tmp")]


# --- writing --------------------------------------------------------------------------------------------------


def test_a_write_replaces_the_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "new" / "deep" / "record.json"
    files.write_json(path, {"text": "x" * 5000})
    files.write_json(path, {"text": "y"})
    assert path.read_bytes() == b'{\n "text": "y"\n}\n'
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_do_not_depend_on_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        files.write_atomic(tmp_path / "private", b"x")
        files.write_atomic(tmp_path / "script", b"x", mode=0o755)
        files.append_json_line(tmp_path / "journal", {})
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if path.is_file()}
    assert modes == {"private": 0o600, "script": 0o755, "journal": 0o600}


def test_a_symlink_at_the_target_is_replaced_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "record").symlink_to(victim)
    files.write_atomic(tmp_path / "record", b"ours")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "record").is_symlink()


def test_the_file_is_synced_before_it_gets_its_name_and_the_directory_after(tmp_path, monkeypatch):
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd):
        steps.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        real_fsync(fd)

    def replace(old, new):
        steps.append("replace")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    files.write_atomic(tmp_path / "record", b"x")
    assert steps == ["file", "replace", "directory"]


def test_on_macos_the_drive_itself_is_asked_for_files_and_folders_alike(tmp_path, monkeypatch):
    # Plain fsync stops at the drive's cache there.
    asked = []
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(
        fcntl, "fcntl", lambda fd, command: asked.append((stat.S_ISDIR(os.fstat(fd).st_mode), command))
    )
    durable.write_atomic(tmp_path / "record", b"x")
    assert asked == [(False, 51), (True, 51)]


def test_an_error_at_any_step_leaves_the_old_content_and_no_temporary(tmp_path, monkeypatch):
    path = tmp_path / "record"
    files.write_atomic(path, b"old")
    for step in ("open", "write", "fsync", "close", "replace"):
        real, calls = getattr(os, step), []

        def failing(*args, real=real, calls=calls, step=step, **kwargs):
            if calls or (step == "open" and ".tmp" not in str(args[0])):
                return real(*args, **kwargs)
            calls.append(args)
            if step == "close":
                real(*args)
            raise OSError(errno.EIO, "made to fail")

        with monkeypatch.context() as patch:
            patch.setattr(os, step, failing)
            with pytest.raises(MachineError, match=r"record: cannot write: made to fail") as caught:
                files.write_atomic(path, b"new")
        assert calls, step
        assert caught.value.errno == errno.EIO
        assert path.read_bytes() == b"old", step
        assert leftovers(tmp_path) == [], step


@pytest.mark.crash
def test_killed_at_any_system_call_of_a_write_the_reader_sees_old_or_new(tmp_path):
    code = """
        import os, signal, sys
        from school.system import files
        path, fatal = sys.argv[1], int(sys.argv[2])
        count = 0
        def counted(real):
            def call(*args, **kwargs):
                global count
                count += 1
                if count == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)
            return call
        files.temporary_name(path)
        for name in ("open", "write", "fsync", "close", "replace"):
            setattr(os, name, counted(getattr(os, name)))
        files.write_atomic(path, b"new" * 1000)
        print("whole")
    """
    path = tmp_path / "record"
    seen = set()
    for fatal in range(1, 12):
        files.write_atomic(path, b"old")
        process = python(code, path, fatal)
        out, _ = process.communicate(timeout=30)
        seen.add(path.read_bytes())
        assert path.read_bytes() in (b"old", b"new" * 1000)
        assert len(leftovers(tmp_path)) <= 1
        if out.strip() == "whole":
            break
        assert process.returncode == -signal.SIGKILL
        files.sweep_temporaries(tmp_path)
        assert leftovers(tmp_path) == []
    else:
        pytest.fail("the write never came to its end")
    assert len(seen) == 2


@pytest.mark.parametrize("mebibytes", [1, 2])
def test_a_full_disk_is_named_and_the_old_record_survives(mebibytes):
    said = on_small_disk(f"""
        import os
        from pathlib import Path
        from school.errors import MachineError
        from school.system import files
        disk = Path(os.environ["DISK"])
        files.write_json(disk / "record.json", {{"old": True}})
        try:
            files.write_atomic(disk / "record.json", b"x" * ({mebibytes} << 20))
        except MachineError as error:
            print(error, error.errno)
        print(files.read_json(disk / "record.json"), os.listdir(disk))
        files.append_json_line(disk / "journal", {{"n": 1}})
        try:
            files.append_json_line(disk / "journal", {{"n": "x" * (2 << 20)}})
        except MachineError as error:
            print(error.errno)
        print(list(files.read_json_lines(disk / "journal")), (disk / "journal").stat().st_size)
    """)
    assert said.splitlines() == [
        f"/mnt/record.json: cannot write: No space left on device {errno.ENOSPC}",
        "{'old': True} ['record.json']",
        str(errno.ENOSPC),
        "[{'n': 1}] 9",
    ]


def test_a_read_only_disk_is_named():
    said = on_small_disk(
        """
        import os
        from pathlib import Path
        from school.errors import MachineError
        from school.system import files
        disk = Path(os.environ["DISK"])
        for act in (
            lambda: files.write_json(disk / "r", {}),
            lambda: files.create_json(disk / "r", {}),
            lambda: files.append_json_line(disk / "j", {}),
            lambda: files.ensure_dir(disk / "d"),
        ):
            try:
                act()
            except MachineError as error:
                print(error.errno, error)
        print(files.read_json(disk / "r"), files.hard_links_work(disk))
    """,
        options="ro",
    )
    lines = said.splitlines()
    assert [line.split()[0] for line in lines[:4]] == [str(errno.EROFS)] * 4
    assert all("/mnt" in line and "Read-only" in line for line in lines[:4])
    assert lines[4] == "None False"


def test_a_file_size_limit_is_an_error_not_a_death(tmp_path):
    code = """
        import resource, sys
        from pathlib import Path
        from school.errors import MachineError
        from school.system import files
        path = Path(sys.argv[1])
        files.write_atomic(path, b"old")
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
        try:
            files.write_atomic(path, b"x" * 20000)
        except MachineError as error:
            print(error.errno, path.read_bytes())
    """
    assert python_result(code, tmp_path / "record") == f"{errno.EFBIG} b'old'"
    assert leftovers(tmp_path) == []


def test_create_never_overwrites(tmp_path):
    path = tmp_path / "record.json"
    files.create_json(path, {"first": 1})
    with pytest.raises(FileExistsError, match=r"record\.json"):
        files.create_json(path, {"second": 2})
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        files.create_json(path, {})
    assert leftovers(tmp_path) == []


def test_one_of_many_creators_wins(tmp_path):
    code = """
        import sys
        from pathlib import Path
        from school.system import files
        sys.stdin.readline()
        won = 0
        for number in range(200):
            try:
                files.create_json(Path(sys.argv[1]) / str(number), {})
                won += 1
            except FileExistsError:
                pass
        print(won)
    """
    racers = [python(code, tmp_path) for _ in range(3)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sum(int(racer.communicate(timeout=60)[0]) for racer in racers) == 200
    assert len(list(tmp_path.iterdir())) == 200 + 1  # and the test's own home


# --- JSON -----------------------------------------------------------------------------------------------------


def test_any_text_becomes_valid_utf_8_and_reads_back_well_formed(tmp_path):
    path = tmp_path / "record"
    files.write_json(path, {"k\udcff": "é\ud800 \U0001f600 \x00\x1b"})
    json.loads(path.read_bytes().decode("utf-8"))
    assert files.read_json(path) == {"k\\udcff": "é\\ud800 \U0001f600 \x00\x1b"}


def test_escapes_of_others_cannot_smuggle_lone_surrogates_in(tmp_path):
    path = tmp_path / "result"
    path.write_bytes(b'{"a": ["\\ud83d\\ude00", "\\uD800x"], "\\udc00": 1}')
    assert files.read_json(path) == {"a": ["\U0001f600", "\\ud800x"], "\\udc00": 1}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 4096,
        b'{"a": 1',
        b'{"a": 1}{"b": 2}',
        b'{"a": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_not_one_whole_document_is_an_error_that_names_the_file(tmp_path, raw):
    path = tmp_path / "torn.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"torn\.json: not readable as JSON"):
        files.read_json(path)


def test_a_document_cut_at_any_byte_is_never_taken_for_a_whole_one(tmp_path):
    whole = files.dumps({"bead": "coder-x", "n": 12})
    path = tmp_path / "cut"
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not readable"):
            files.read_json(path)


def test_absent_is_none_and_other_kinds_of_files_are_errors(tmp_path):
    assert files.read_json(tmp_path / "absent") is None
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    (tmp_path / "directory").mkdir()
    (tmp_path / "big").write_bytes(b" " * 100)
    for name, why in (
        ("fifo", "plain file"),
        ("link", "symlink"),
        ("directory", "plain file"),
        ("big", "more than"),
    ):
        with pytest.raises(ValueError, match=why):
            files.read_json(tmp_path / name, limit_bytes=99)
    with pytest.raises(ValueError, match="more than"):
        files.read_json("/proc/self/environ", limit_bytes=1)  # says size 0, and is not


def test_numbers_that_are_no_json_are_refused_when_written():
    with pytest.raises(ValueError, match="JSON"):
        files.dumps({"x": float("nan")})


# --- journals -------------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_closed_off_and_passed_over(tmp_path):
    path = tmp_path / "journal.jsonl"
    files.append_json_line(path, {"n": 1})
    with path.open("ab") as stream:
        stream.write(b'{"n": 2, "to')
    files.append_json_line(path, {"n": 3})
    assert [line["n"] for line in files.read_json_lines(path)] == [1, 3]
    assert path.read_bytes() == b'{"n": 1}\n{"n": 2, "to\n{"n": 3}\n'


def test_foreign_lines_are_passed_over_and_an_absent_journal_is_empty(tmp_path):
    path = tmp_path / "journal"
    assert list(files.read_json_lines(path)) == []
    path.write_bytes(b'[1]\n\n"x"\n\xff\xff\n{"ok": 1}\n')
    assert list(files.read_json_lines(path)) == [{"ok": 1}]


def test_rotation_keeps_the_one_before_and_bounds_the_size(tmp_path):
    path = tmp_path / "journal"
    for number in range(100):
        files.append_json_line(path, {"n": number}, rotate_bytes=200)
    kept = [*files.read_json_lines(tmp_path / "journal.1"), *files.read_json_lines(path)]
    assert [line["n"] for line in kept] == list(range(100 - len(kept), 100))
    assert len(kept) > 10
    assert path.stat().st_size <= 200
    assert sorted(p.name for p in tmp_path.glob("journal*")) == ["journal", "journal.1"]


def test_many_writers_lose_no_line_even_across_rotations(tmp_path):
    code = """
        import sys
        from pathlib import Path
        from school.system import files
        for number in range(100):
            files.append_json_line(Path(sys.argv[1]), {"w": sys.argv[2], "n": number}, rotate_bytes=6000)
    """
    path = tmp_path / "journal"
    writers = [python(code, path, name) for name in "abc"]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    lines = [*files.read_json_lines(tmp_path / "journal.1"), *files.read_json_lines(path)]
    newest = {name: [line["n"] for line in lines if line["w"] == name] for name in "abc"}
    for numbers in newest.values():
        assert numbers == list(range(100 - len(numbers), 100))
    assert sum(map(len, newest.values())) > 200


# --- quarantine, sweeping, removing ---------------------------------------------------------------------------


def test_quarantine_moves_and_never_overwrites(tmp_path, monkeypatch):
    monkeypatch.setattr(files.clock, "now", lambda: "2026-01-01T00:00:00.000000+00:00")
    places = []
    for content in ("one", "two"):
        (tmp_path / "bad.json").write_text(content)
        places.append(files.quarantine(tmp_path / "bad.json", tmp_path / "corrupt"))
    (tmp_path / "bad.json").mkdir()
    places.append(files.quarantine(tmp_path / "bad.json", tmp_path / "corrupt"))
    assert [place.read_text() for place in places[:2]] == ["one", "two"]
    assert places[2].is_dir()
    assert not (tmp_path / "bad.json").exists()
    with pytest.raises(FileNotFoundError):
        files.quarantine(tmp_path / "bad.json", tmp_path / "corrupt")


def test_the_sweep_takes_the_temporaries_of_the_dead_only(tmp_path):
    dead = python_result(
        "from school.system import files; import sys; print(files.temporary_name(sys.argv[1]))",
        tmp_path / "r",
    )
    mine = Path(files.temporary_name(tmp_path / "r"))
    # The same PID with another start is another process; another place cannot be judged, except by age.
    reused = Path(str(mine).replace(identity.this_process().start, "1"))
    place = mine.name.split(".")[3].split("-")[0]
    foreign, old = (Path(str(mine).replace(place, other)) for other in ("00000000", "00000001"))
    for path in (Path(dead), mine, reused, foreign, old):
        path.write_text("x")
    os.utime(old, (1, 1))
    (tmp_path / ".other.tmp").write_text("not ours")
    assert files.sweep_temporaries(tmp_path) == 3
    assert set(leftovers(tmp_path)) == {mine.name, foreign.name, ".other.tmp"}
    assert files.sweep_temporaries(tmp_path / "absent") == 0


def test_a_temporary_name_fits_for_a_name_of_any_length(tmp_path):
    path = tmp_path / ("é" * 127)
    files.write_atomic(path, b"x")
    assert path.read_bytes() == b"x"


def test_trees_with_read_only_directories_go_and_links_are_not_followed(tmp_path):
    # Root may remove anything, so root becomes nobody first; relative paths then need no right to the parents.
    code = """
        import os, sys
        from pathlib import Path
        from school.system import files
        os.chdir(sys.argv[1])
        if os.geteuid() == 0:
            os.chown(".", 65534, 65534)
            os.setegid(65534)
            os.seteuid(65534)
        (Path("tree") / "cache" / "deep").mkdir(parents=True)
        (Path("tree") / "cache" / "deep" / "file").write_text("x")
        (Path("tree") / "out").symlink_to("../kept")
        for name in ("tree/cache/deep", "tree/cache"):
            Path(name).chmod(0o500)
        files.remove_tree(Path("tree"))
        print(Path("tree").exists())
    """
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    assert python_result(code, tmp_path) == "False"
    assert (tmp_path / "kept" / "file").exists()


def test_removing_refuses_a_link_and_takes_what_is_absent(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(MachineError, match="symlink"):
        files.remove_tree(tmp_path / "link")
    files.remove_tree(tmp_path / "absent")
    assert (tmp_path / "real").is_dir()


def test_a_file_where_a_directory_is_due_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(MachineError, match=r"file: cannot use as a directory"):
        files.ensure_dir(tmp_path / "file")
    with pytest.raises(MachineError, match=r"file/below"):
        files.write_json(tmp_path / "file" / "below", {})
    (tmp_path / "there").symlink_to(tmp_path)
    assert files.ensure_dir(tmp_path / "there") == tmp_path / "there"


def test_hard_links_are_probed(tmp_path):
    assert files.hard_links_work(tmp_path)
    assert leftovers(tmp_path) == []
    assert not files.hard_links_work(tmp_path / "absent")
