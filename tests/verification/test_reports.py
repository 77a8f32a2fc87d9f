from __future__ import annotations

import json

import pytest

from school.verification.reports import NAME_CHARS_MAX, read_junit, read_lines

JUNIT = b"""<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one"/>
<testcase classname="tests.test_a" name="test_two"><failure message="m">text</failure></testcase>
<testcase classname="tests.test_a.K" name="test_x[&lt;object at 0x7f00aa11&gt;]"><skipped/></testcase>
<testcase classname="" name="tests.test_b"><error message="collection failure"/></testcase>
<testcase classname="tests.test_a" name="test_two"><error/></testcase>
</testsuite></testsuites>"""


def test_each_test_has_its_outcome_and_a_name_without_addresses() -> None:
    found = read_junit(JUNIT)
    assert found is not None
    assert dict(found.tests) == {
        "tests.test_a::test_one": "passed",
        "tests.test_a::test_two": "failed",
        "tests.test_a.K::test_x[<object at 0x…>]": "skipped",
        "::tests.test_b": "error",
        "tests.test_a::test_two#2": "error",
    }
    assert found.counts() == {"passed": 1, "failed": 1, "errors": 2, "skipped": 1}


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"not xml",
        JUNIT[:200],
        b'<!DOCTYPE x [<!ENTITY a "b">]><testsuites/>',
    ],
)
def test_what_is_no_whole_plain_report_is_none(raw: bytes | None) -> None:
    assert read_junit(raw) is None


def test_long_names_are_cut_and_still_differ() -> None:
    cases = "".join(f'<testcase classname="c" name="{"n" * 5000}{end}"/>' for end in "ab")
    found = read_junit(f"<testsuites>{cases}</testsuites>".encode())
    assert found is not None
    assert len(found.tests) == 2
    assert all(len(name) <= NAME_CHARS_MAX for name in found.tests)


def lines(*entries: object) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def test_lines_without_their_last_are_not_whole() -> None:
    one = {"id": "t.K.test_a", "outcome": "passed"}
    assert read_lines(lines(one)).whole is False  # type: ignore[union-attr]
    assert read_lines(lines(one, {"end": True})).whole is True  # type: ignore[union-attr]


def test_a_failed_subtest_fails_its_test_once() -> None:
    failed = {"id": "t.K.test_a", "outcome": "failed"}
    found = read_lines(lines(failed, failed, {"id": "t.K.test_b", "outcome": "passed"}, {"end": True}))
    assert found is not None
    assert dict(found.tests) == {"t.K.test_a": "failed", "t.K.test_b": "passed"}


def test_garbage_between_the_lines_is_passed_over() -> None:
    raw = b'\xff\xfe\n{"id": 3, "outcome": "passed"}\n[1]\n' + lines(
        {"id": "a", "outcome": "great"}, {"end": True}
    )
    found = read_lines(raw)
    assert found is not None
    assert dict(found.tests) == {}
    assert found.whole
