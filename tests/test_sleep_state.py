"""Sessions: what is remembered, what of it is said, what a broken one means, and how many are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import sleep_state
from school.contracts import Finding
from school.errors import SessionCorruptedError, SessionNotFoundError
from school.settings import Settings
from sleep_state import Episode, episode_of, execute_sleep, execute_wake, prune_sessions


def episodes(count: int, verdict: str = "PASS", **fields: object) -> list[Episode]:
    return [
        Episode(bead=f"bead-{number}", domain="python", verdict=verdict, **fields) for number in range(count)
    ]


def log_of(school: Settings) -> list[dict[str, object]]:
    return [json.loads(line) for line in school.library_log.read_text().splitlines()]


def test_first_boot_has_nothing_to_wake_from(school: Settings) -> None:
    with pytest.raises(SessionNotFoundError):
        execute_wake("cto")
    assert not school.library_log.exists()


def test_what_was_slept_on_wakes(school: Settings) -> None:
    slept = execute_sleep(
        "cto", episodes(2, "FAIL", issue_classes=["late"], note="it came late"), queued=["bead-9"]
    )
    state, artifact = execute_wake("cto")
    assert state == slept
    assert (state.sequence, state.reviewed, state.queued) == (1, 2, ["bead-9"])
    assert artifact.patterns == ["late in 2 of 2"]
    assert artifact.failed_approaches == ["bead-0: it came late", "bead-1: it came late"]
    assert artifact.domains == {"python": 2}
    assert "Reviewed before: 2 (python 2)." in state.digest
    text = (school.consolidation_dir / f"{state.session_id}.yaml").read_text()
    assert yaml.safe_load(text)["key_decisions"] == ["FAIL bead-0 (late)", "FAIL bead-1 (late)"]
    assert [(line["event"], line["session_id"]) for line in log_of(school)] == [
        (event, state.session_id) for event in ("sleep", "wake", "restored")
    ]


def test_a_session_carries_those_before_it_within_bounds(school: Settings) -> None:
    first = execute_sleep("coo", episodes(3))
    second = execute_sleep("coo", episodes(2), before=first)
    assert (len(second.episodes), second.reviewed, second.sequence, second.woke_from) == (
        5,
        5,
        2,
        first.session_id,
    )
    many = execute_sleep(
        "coo", episodes(1000, "FAIL", note="n" * 300, issue_classes=["x" * 200]), before=second
    )
    assert len(many.episodes) == sleep_state.EPISODES_MAX
    assert many.reviewed == 1005
    assert len(many.digest) <= sleep_state.DIGEST_CHARACTERS_MAX
    assert many.digest.splitlines()[-1].startswith("- ")


def test_the_same_episodes_give_the_same_digest(school: Settings) -> None:
    assert execute_sleep("cto", episodes(4)).digest == execute_sleep("cto", episodes(4)).digest
    assert execute_sleep("cto", []).digest == ""


def test_an_episode_is_short_and_clean(school: Settings) -> None:
    finding = Finding(
        section="s", severity="HIGH", issue_class="c", description="line\n\x1b[31m" + "é" * 1000
    )
    episode = episode_of({"bead": "b-1", "domain": "d"}, "FAIL", [finding, finding])
    assert episode.issue_classes == ["c"]
    assert len(episode.note) == 300
    assert "\n" not in episode.note
    state = execute_sleep("cto", [Episode(bead="b", note="a\ud800b\x85c")])
    assert execute_wake("cto")[0].session_id == state.session_id


@pytest.mark.parametrize("part", ["json", "yaml"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 100, b"null", b"[1]", b"a: [", b"\xff\xfe", b'{"session_id": "x"}']
)
def test_a_broken_session_is_set_aside_with_its_artifact(school: Settings, part: str, content: bytes) -> None:
    old = execute_sleep("cto", episodes(1))
    new = execute_sleep("cto", episodes(1), before=old)
    folder = school.sessions_dir if part == "json" else school.consolidation_dir
    (folder / f"{new.session_id}.{part}").write_bytes(content)
    with pytest.raises(SessionCorruptedError, match=new.session_id):
        execute_wake("cto")
    [aside] = (folder / "corrupt").iterdir()
    assert aside.read_bytes() == content
    assert log_of(school)[-1]["event"] == "corrupted"
    # It was said once and lies aside; the one before it is there for the next wake.
    assert execute_wake("cto")[0].session_id == old.session_id


def test_a_session_without_its_artifact_is_broken(school: Settings) -> None:
    state = execute_sleep("cto", episodes(1))
    (school.consolidation_dir / f"{state.session_id}.yaml").unlink()
    with pytest.raises(SessionCorruptedError, match="no consolidation"):
        execute_wake("cto")


def test_a_session_of_another_role_or_name_is_broken(school: Settings) -> None:
    state = execute_sleep("cto", episodes(1))
    path = school.sessions_dir / f"{state.session_id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "role": "coo"}))
    with pytest.raises(SessionCorruptedError, match="of coo"):
        execute_wake("cto")


def test_pruning_keeps_the_newest_of_its_role(school: Settings) -> None:
    slept = [execute_sleep("cto", []).session_id for _ in range(12)]
    other = execute_sleep("coo", []).session_id
    orphan = school.consolidation_dir / "teacher-cto-000001-deadbeef.yaml"
    orphan.write_text("a: 1")
    foreign = school.consolidation_dir / "teacher-cto-notes.yaml"
    foreign.write_text("a: 1")
    assert prune_sessions("cto", 10) == 2
    kept = {path.stem for path in school.sessions_dir.glob("*.json")}
    assert kept == {*slept[2:], other}
    assert {path.stem for path in school.consolidation_dir.glob("*.yaml")} == {*kept, "teacher-cto-notes"}
    assert prune_sessions("cto", 10) == 0
    assert execute_sleep("cto", []).sequence == 13


def test_scores_are_a_snapshot_and_no_reason_to_fail(school: Settings, tmp_path: Path) -> None:
    school.school_dir.mkdir(parents=True)
    school.scores_file.write_text('{"codex": {"coder/python": 61.5}}')
    assert execute_sleep("cto", []).scores == {"codex": {"coder/python": 61.5}}
    school.scores_file.write_text("{")
    assert execute_sleep("cto", []).scores == {}
