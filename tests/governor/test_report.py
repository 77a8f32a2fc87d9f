"""The report: one line a session, however often, from wherever and by whatever clock its end is told."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading

import pytest

from school.errors import MachineError
from school.governor import Governor, report, standing
from school.governor.telling import NO_REPORT, NOTHING, report_text, standing_text
from school.hooks import Hooks
from school.settings import Settings
from school.system.clock import FakeClock
from tests.governor.scenarios import end, failed_request, flat, model, shell, tell, turn
from tests.support import ROOT


def lines(school: Settings) -> list[dict[str, object]]:
    return [json.loads(line) for line in school.governor_reports.read_text().splitlines()]


def test_what_is_put_again_is_added_to_the_one_line(school: Settings) -> None:
    facts = {"started_at": "2030-01-01", "ended_at": "2030-01-03", "reasons": ["errors"], "delegated": True}
    report.put(school, "s1", {"turns": 2, "tokens": {"input": 5}}, facts)
    report.put(school, "s2", {"turns": 1}, {})
    later = {"started_at": "2030-01-02", "ended_at": "2030-01-02", "reasons": ["repeats"], "delegated": False}
    report.put(school, "s1", {"turns": 1, "tokens": {"input": 1}}, later)
    assert [line["session_id"] for line in lines(school)] == ["s2", "s1"]
    assert report.line_of(school) == {
        "session_id": "s1",
        "turns": 3,
        "tokens": {"input": 6},
        "started_at": "2030-01-01",
        "ended_at": "2030-01-03",
        "reasons": ["errors", "repeats"],
        "delegated": True,
    }
    assert report.line_of(school, "s2") == {
        "session_id": "s2",
        "turns": 1,
        "started_at": "",
        "ended_at": "",
        "reasons": [],
        "delegated": False,
    }
    assert report.line_of(school, "s3") is None


def test_foreign_and_torn_lines_stay_as_they_are(school: Settings) -> None:
    school.hermes_home.mkdir()
    school.governor_reports.write_bytes(
        b'{"session_id": "old", "turns": 1}\nnot "s1"\n{"session_id": "s1", "tu'
    )
    report.put(school, "s1", {"turns": 1}, {})
    raw = school.governor_reports.read_bytes().split(b"\n")
    assert raw[:3] == [b'{"session_id": "old", "turns": 1}', b'not "s1"', b'{"session_id": "s1", "tu']
    assert [line["session_id"] for line in report.lines(school)] == ["old", "s1"]


def test_of_too_many_lines_the_older_half_moves_aside(
    school: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "LINES_MAX", 10)
    for number in range(12):
        report.put(school, f"s{number}", {"turns": 1}, {})
    assert [line["session_id"] for line in lines(school)] == [f"s{n}" for n in range(5, 12)]
    aside = school.governor_reports.with_name("escalation-governor-reports.jsonl.1")
    assert [json.loads(line)["session_id"] for line in aside.read_text().splitlines()] == [
        f"s{n}" for n in range(5)
    ]


def test_what_is_no_file_of_ours_is_put_aside(school: Settings) -> None:
    school.governor_reports.mkdir(parents=True)
    with pytest.raises(MachineError):
        report.lines(school)
    report.put(school, "s1", {"turns": 1}, {})
    assert len(lines(school)) == 1


def test_threads_and_processes_at_once_make_one_line_a_session(school: Settings) -> None:
    school.hermes_home.mkdir()
    code = (
        "from school import settings; from school.governor import report\n"
        "for number in range(10): report.put(settings.current(), 'shared', {'turns': 1}, {})\n"
    )
    governor = Governor(school)

    def call(number: int) -> None:
        for _ in range(5):
            tell(governor, model(session=f"t{number}"))
            governor.flush()

    with contextlib.ExitStack() as stack:  # whatever goes wrong, nobody is left running
        argv = [sys.executable, "-c", code]
        writers = [stack.enter_context(subprocess.Popen(argv, cwd=ROOT)) for _ in range(2)]
        tell(governor, turn())
        threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [writer.wait(30) for writer in writers] == [0, 0]
    found = {str(line["session_id"]): line for line in lines(school)}
    assert len(lines(school)) == len(found) == 5
    assert found["shared"]["turns"] == 20
    assert [found[f"t{number}"]["api_calls"] for number in range(3)] == [5, 5, 5]


def test_a_session_that_goes_on_in_another_process_is_one_line(school: Settings) -> None:
    for number in (1, 2):
        governor = Governor(school)
        for event in flat(turn(number), model(), shell("x", 1), end()):
            tell(governor, event)
        governor.close()
    [line] = lines(school)
    assert (line["turns"], line["api_calls"], line["tool_errors"]) == (2, 2, 2)


def test_a_clock_that_goes_back(school: Settings) -> None:
    clock = FakeClock()
    governor = Governor(school, clock=clock)
    tell(governor, turn())
    clock.advance(10)
    tell(governor, model())
    clock.set_back(3600)
    tell(governor, end())
    governor.flush()
    clock.advance(1)
    tell(governor, turn(2))
    governor.close()
    [line] = lines(school)
    assert line["started_at"] == "2030-01-01T00:00:00.000000+00:00"
    assert line["ended_at"] == "2030-01-01T00:00:10.000000+00:00"
    assert line["seconds"] == 11.0
    assert line["turns"] == 2


def test_a_session_whose_end_is_never_told_has_its_line(school: Settings) -> None:
    governor = Governor(school)
    tell(governor, turn(), model())
    assert [line["api_calls"] for line in lines(school)] == [0]
    tell(governor, failed_request("r1"))
    assert [(line["api_calls"], line["api_errors"]) for line in lines(school)] == [(1, 1)]
    tell(governor, model())
    governor.close()
    assert [line["api_calls"] for line in lines(school)] == [2]


def test_sessions_beyond_the_bound_are_written_and_forgotten(
    school: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("school.governor.governor.SESSIONS_MAX", 3)
    governor = Governor(school)
    for number in range(5):
        tell(governor, turn(session=f"s{number}"))
    assert len(lines(school)) == 5
    assert governor.standing("s1") is None
    tell(governor, turn(2, session="s0"))
    governor.close()
    assert len(lines(school)) == 5
    found = report.line_of(school, "s0")
    assert found is not None
    assert found["turns"] == 2


def test_a_report_that_cannot_be_written_is_a_fault_and_loses_no_counts(school: Settings) -> None:
    hooks = Hooks()
    governor = Governor(school)
    governor.listen(hooks)
    school.hermes_home.write_text("no folder")
    hooks.fire("post_api_request", **model()[1])
    hooks.fire("on_session_end", **end()[1])
    assert hooks.faults
    school.hermes_home.unlink()
    hooks.fire("on_session_end", **end()[1])
    hooks.close()
    [line] = lines(school)
    assert line["api_calls"] == 1


def test_how_a_session_stands_can_be_seen_from_outside(school: Settings) -> None:
    governor = Governor(school)
    for event in flat(turn(session="a b/../c"), *[shell(f"m {n}", 1, session="a b/../c") for n in range(3)]):
        tell(governor, event)
    [document] = standing.every(school)
    assert document["session_id"] == "a b/../c"
    assert document["counts"] == {"errors": 3, "repeats": 1, "requests": 0, "progress": 0}
    assert document["stuck"] is True
    assert standing.read(school, "a b/../c") == document
    assert standing.read(school, "other") is None
    text = standing_text(document)
    assert text.splitlines()[:2] == ["Session a b/../c: stuck", "  tool errors in a row: 3 of 3"]
    assert "told in turn 1: 3 tool calls in a row failed (threshold 3); open" in text


def test_a_subagents_standing_says_whose_it_is(school: Settings) -> None:
    governor = Governor(school)
    child = ("subagent_start", {"parent_session_id": "s1", "child_session_id": "c1"})
    tell(governor, turn(), child, *shell("x", 1, session="c1"))
    document = governor.standing("c1")
    assert standing_text(document).splitlines() == [
        "Session c1 (a subagent of s1): goes on",
        "  tool errors in a row: 1 of 3",
        "  same call again: 1 of 3",
        "  failed requests: 0 of 3",
        "  model calls without progress: 0 of 12",
    ]


def test_standings_are_bounded_and_damaged_ones_passed_over(
    school: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "KEPT_MAX", 3)
    for number in range(5):
        standing.write(school, f"s{number}", {"session_id": f"s{number}", "heard_at": str(number)})
    assert [document["session_id"] for document in standing.every(school)] == ["s2", "s3", "s4"]
    standing.path_of(school, "s3").write_text("{")
    assert [document["session_id"] for document in standing.every(school)] == ["s2", "s4"]


def test_the_texts_of_nothing_and_of_a_line(school: Settings) -> None:
    assert standing_text(None) == NOTHING
    assert report_text(None) == NO_REPORT
    governor = Governor(school)
    for event in flat(turn(), model(), *[shell(f"m {n}", 1) for n in range(3)], end()):
        tell(governor, event)
    governor.close()
    text = report_text(report.line_of(school))
    assert text.splitlines()[1:] == [
        "  turns 1, model calls 1 (0 failed), tool calls 3 (3 failed), subagents 0",
        "  tokens: 100 in, 10 out, 110 together",
        "  escalations: 1 (errors; no delegation followed)",
    ]
    assert standing_text({"session_id": "\x1b[31m"}).startswith("Session \\x1b[31m: goes on")
