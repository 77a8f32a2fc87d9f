"""The result file is untrusted: every kind of thing can lie there, and none may hang, crash or mislead the leaf."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from school.agents.claim import CLAIM_BYTES_MAX, ITEMS_MAX, SUMMARY_BYTES_MAX, read_claim
from school.contracts import Claim


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "bead.result.json"


def written(result: Path, raw: bytes) -> tuple[Claim, list[str]]:
    result.parent.mkdir(exist_ok=True)
    result.write_bytes(raw)
    return read_claim(result)


def test_no_file_means_done(result: Path) -> None:
    assert read_claim(result) == (Claim(status="done"), [])


@pytest.mark.parametrize("status", ["done", "no_change", "blocked", "failed"])
def test_each_status_is_taken(status: str, result: Path) -> None:
    value = {
        "status": status,
        "summary": "s",
        "ac_met": ["a"],
        "blockers": ["b"],
        "retry_at": "2030-01-01T00:00:00Z",
        "session": "s-1",
    }
    claim, problems = written(result, json.dumps(value).encode())
    assert problems == []
    assert claim.model_dump() == value


def test_case_and_space_do_not_matter_and_unknown_keys_are_ignored(result: Path) -> None:
    claim, problems = written(result, b'{"status": " Blocked ", "confidence": 1}')
    assert (claim.status, problems) == ("blocked", [])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "no JSON"),
        (b"PASS", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b'{"status": "done"', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b'"done"', "no JSON object"),
        (b"null", "no JSON object"),
        (b'{"status": "accepted"}', "'accepted' means nothing"),
        (b'{"status": ["done"]}', "means nothing"),
        (b'{"summary": 3}', "summary is no text"),
        (b'{"ac_met": {"a": 1}}', "ac_met is no list"),
        (b'{"blockers": [1, 2]}', "blockers holds something else"),
    ],
)
def test_what_cannot_be_understood_is_noted_and_passed_over(raw: bytes, said: str, result: Path) -> None:
    claim, problems = written(result, raw)
    assert claim == Claim(status="done")
    assert len(problems) == 1
    assert said in problems[0]


def test_one_wrong_field_does_not_hide_the_others(result: Path) -> None:
    claim, problems = written(result, b'{"status": "failed", "summary": ["no"], "blockers": "no network"}')
    assert (claim.status, claim.summary, claim.blockers) == ("failed", "", ["no network"])
    assert problems == ["the result file's summary is no text"]


def test_a_huge_file_is_not_read(result: Path) -> None:
    result.parent.mkdir()
    with result.open("wb") as file:
        file.truncate(1 << 30)
    claim, problems = read_claim(result)
    assert claim == Claim()
    assert str(CLAIM_BYTES_MAX) in problems[0]


def test_long_texts_and_lists_are_bounded(result: Path) -> None:
    value = {"summary": "ü" * 20_000, "blockers": ["x" * 3_000] * 200}
    claim, problems = written(result, json.dumps(value).encode())
    assert len(claim.summary.encode()) <= SUMMARY_BYTES_MAX
    assert len(claim.blockers) == ITEMS_MAX
    assert max(map(len, claim.blockers)) <= 2048
    assert len(problems) == 1


def test_lone_surrogates_become_valid_text(result: Path) -> None:
    claim, _ = written(result, b'{"summary": "a\\ud800b"}')
    assert claim.summary == "a\\ud800b"


@pytest.mark.timeout(10)
def test_a_fifo_does_not_block(result: Path) -> None:
    result.parent.mkdir()
    os.mkfifo(result)
    assert read_claim(result)[1] == ["the result file was passed over: it is no regular file"]


def test_a_folder_is_no_claim(result: Path) -> None:
    result.mkdir(parents=True)
    assert "passed over" in read_claim(result)[1][0]


def test_links_are_not_followed(result: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"status": "no_change", "summary": "the secret"}')
    result.parent.mkdir()
    result.symlink_to(secret)
    claim, problems = read_claim(result)
    assert (claim.status, claim.summary) == ("done", "")
    assert problems == ["the result file was passed over: it is a link"]


def test_a_link_in_place_of_the_folder_is_not_followed(result: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / result.name).write_text('{"status": "no_change"}')
    result.parent.symlink_to(elsewhere)
    claim, problems = read_claim(result)
    assert claim.status == "done"
    assert len(problems) == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.floats(), lambda s: st.lists(s) | st.dictionaries(st.sampled_from(["status", "summary", "ac_met", "blockers", "retry_at"]), s)).map(lambda v: json.dumps(v).encode()))  # fmt: skip
def test_nothing_makes_it_raise(raw: bytes, result: Path) -> None:
    claim, _ = written(result, raw)
    assert claim.status in {"done", "no_change", "blocked", "failed"}
    claim.model_dump_json().encode("utf-8")
