from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from school.system import log
from tests.system.support import on_small_disk, python_result


@pytest.fixture(autouse=True)
def fresh():
    yield
    log.configure("", path=None, to_stderr=True, level="warning")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_when_who_and_what(tmp_path):
    path = tmp_path / "logs" / "cto.log"
    log.configure("cto", path=path, to_stderr=False)
    log.get("school.leaf").bind(bead="coder-x").info(
        "leaf.salvaged", count=3, path=Path("/x"), names=["a", Path("b")]
    )
    (line,) = lines(path)
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "level": "info",
        "process": "cto",
        "event": "leaf.salvaged",
        "logger": "school.leaf",
        "bead": "coder-x",
        "count": 3,
        "path": "/x",
        "names": ["a", "b"],
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_text_of_others_never_reaches_a_terminal_raw(capsys, tmp_path):
    evil = "\x1b[2J\r\n\x07\u202e\udcff é"
    for json_lines in (False, True):
        log.configure("cto", path=tmp_path / "log", to_stderr=True, json=json_lines)
        log.get("x").info("agent.said", text=evil, **{"k\x1b": 1})
    shown = capsys.readouterr().err
    assert not set(shown) & set("\x1b\r\x07\u202e\udcff")
    assert "é" in shown
    assert shown.count("\n") == 2
    assert lines(tmp_path / "log")[0]["text"] == r"\x1b[2J\r\n\x07\u202e\udcff é"


def test_levels_and_exceptions(tmp_path):
    log.configure("cto", path=tmp_path / "log", to_stderr=False, level="info")
    logger = log.get("x")
    logger.debug("too.fine")
    try:
        int("no number")
    except ValueError:
        logger.exception("review.broke", bead="b")
    logger.error("later.error")
    first, second = lines(tmp_path / "log")
    assert (first["level"], first["event"], first["bead"]) == ("error", "review.broke", "b")
    assert first["exception"].endswith("ValueError: invalid literal for int() with base 10: 'no number'")
    assert second["event"] == "later.error"


def test_before_it_is_configured_only_warnings_are_shown():
    code = """
        import sys
        sys.stderr = sys.stdout
        from school.system import log
        log.get("x").info("quiet.please")
        log.get("x").warning("watch.degraded", reason="two words")
    """
    said = python_result(code)
    assert said.endswith('warning: watch.degraded reason="two words"')
    assert "quiet" not in said


def test_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "FILE_BYTES_MAX", 2000)
    log.configure("cto", path=tmp_path / "log", to_stderr=False)
    for number in range(100):
        log.get("x").info("tick.passed", number=number, text="x" * 10_000)
        monkeypatch.setattr(log, "TEXT_CHARS_MAX", 100)
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("log*")}
    assert set(sizes) == {"log", "log.1"}
    assert max(sizes.values()) <= 5000
    assert lines(tmp_path / "log")[-1]["number"] == 99


def test_a_log_that_cannot_be_written_stops_nothing():
    said = on_small_disk("""
        import os, sys
        from pathlib import Path
        sys.stderr = sys.stdout
        from school.system import log
        disk = Path(os.environ["DISK"])
        (disk / "fill").write_bytes(b"x")
        try:
            with (disk / "fill").open("ab") as stream:
                while True:
                    stream.write(b"x" * 4096)
                    stream.flush()
        except OSError:
            pass
        log.configure("cto", path=disk / "log", to_stderr=False)
        log.get("x").info("work.goes_on")
        log.get("x").info("work.goes_on")
        print("end")
    """)
    shown = said.splitlines()
    assert "No space left" in shown[0]
    assert [line.split(" ", 1)[1] for line in shown[1:3]] == ["cto work.goes_on"] * 2
    assert shown[3] == "end"


def test_a_closed_stderr_stops_nothing(tmp_path):
    code = """
        import os, sys
        from school.system import log
        os.close(2)
        log.configure("cto", path=None, to_stderr=True)
        log.get("x").error("nobody.listens")
        print("end")
    """
    assert python_result(code) == "end"
    assert os.getpid()
