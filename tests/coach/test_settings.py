"""Settings: unknown and impossible ones are named, the configuration and /coach set say the same things."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from school.coach import Coach, read_terms
from school.coach.terms import keys
from school.config import load_config
from school.errors import ConfigError
from school.settings import Settings
from tests.coach.coaching import OK, Model, Session, finding


def test_the_defaults_are_the_documented_ones() -> None:
    documented = {}
    for line in (Path(__file__).parents[2] / "docs" / "coach.md").read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            documented[cells[0]] = cells[1]
    assert documented == {
        key: json.dumps(value).strip('"') if value is not None else "none"
        for key, value in read_terms({}).model_dump().items()
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[coach]\nmodle = 'x'", "modle"),
        ("[coach]\nactive_timing = 'sometimes'", "active_timing"),
        ("[coach]\nledger_max_tokens = 100", "ledger_max_tokens"),
        ("[coach]\nconsult_per_turn = -1", "consult_per_turn"),
        ("[coach]\nreview_authority = 'always'", "review_authority"),
    ],
)
def test_a_wrong_key_of_the_configuration_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(text, None, {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"nope": 1}, r"\[coach\] nope: no such key; there are enabled, model, "),
        ({"budget_calls": -1}, r"\[coach\] budget_calls = -1: "),
        ({"guidance": "x" * 1001}, r"\[coach\] guidance = "),
    ],
)
def test_read_terms_names_what_is_wrong(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_terms(table)


def _coach(
    school: Settings, repo: Path, table: dict[str, object] | None = None, *, adjustable: bool = True
) -> Coach:
    return Coach(read_terms(table or {}), Model(OK), folder=repo, settings=school, adjustable=adjustable)


def test_what_is_set_holds_for_this_and_later_sessions_and_processes(school: Settings, repo: Path) -> None:
    first, second = _coach(school, repo), _coach(school, repo)
    assert first.command("set review_evidence_max_chars 64000") == "review_evidence_max_chars = 64000"
    assert first.command("set active_timing both") == "active_timing = 'both'"
    assert first.command("set budget_usd 1.5") == "budget_usd = 1.5"
    assert first.command("set skip_same_model false") == "skip_same_model = False"
    assert first.terms.review_evidence_max_chars == 64_000
    second.turn_begins(session_id="s", user_message="x")
    third = _coach(school, repo, {"active_timing": "pre", "note_ttl_s": 5})
    for coach in (second, third):
        terms = coach.terms
        assert (terms.active_timing, terms.budget_usd, terms.skip_same_model) == ("both", 1.5, False)
    assert third.terms.note_ttl_s == 5
    assert third.command("set budget_usd none") == "budget_usd = None"
    assert json.loads((school.coach_dir / "settings.json").read_text()) == {
        "review_evidence_max_chars": 64000,
        "active_timing": "both",
        "budget_usd": None,
        "skip_same_model": False,
    }


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("set active_timing never", "Not set: coach active_timing = 'never': "),
        ("set nope 1", "Not set: coach nope: no such key"),
        ("set model openai:other", "Not set: model: it is set in the configuration only"),
        ("set corrective_cap", "/coach set KEY VALUE"),
        ("set corrective_cap abc", "Not set: coach corrective_cap = 'abc'"),
        ("dance", "dance: no such command."),
    ],
)
def test_what_cannot_be_set_is_said_and_changes_nothing(
    school: Settings, repo: Path, typed: str, answer: str
) -> None:
    coach = _coach(school, repo)
    before = coach.terms
    assert coach.command(typed).startswith(answer)
    assert coach.terms == before
    assert not (school.coach_dir / "settings.json").exists()


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "0", "1e400", "soon"])
@pytest.mark.parametrize("key", ["note_ttl_s", "sessions_days", "gate_timeout_s"])
def test_a_time_that_never_ends_is_none(school: Settings, repo: Path, key: str, text: str) -> None:
    coach = _coach(school, repo)
    assert coach.command(f"set {key} {text}").startswith(f"Not set: coach {key} = {text!r}: ")
    assert coach.terms == read_terms({})


ANOTHER = {
    bool: ["false", "true"],
    int: ["7", "1000"],
    float: ["7", "2.5"],
    str: ["Mind 'quotes', ümläuts = and # signs"],
}
CHOICES = {"active_timing": ["both"], "review_authority": ["hold_once"], "delivery": ["inject"]}
LARGE = {"review_evidence_max_chars": ["4000"], "ledger_max_tokens": ["9000"]}


def _others(key: str) -> list[str]:
    """What somebody may type for *key* that is another value than its default."""
    value = read_terms({}).model_dump()[key]
    of_kind = ["7", "0", "none"] if value is None else ANOTHER[type(value)]
    others = [*CHOICES.get(key, LARGE.get(key, of_kind))]
    return [text for text in others if not (key.endswith("per_turn") and text == "1000")]


@pytest.mark.parametrize("key", [key for key in keys() if key not in ("model", "base_url", "api_key_env")])
def test_every_key_that_can_be_set_is_the_same_when_it_is_read_again(
    school: Settings, repo: Path, key: str
) -> None:
    for text in _others(key):
        coach = _coach(school, repo)
        said = coach.command(f"set {key} {text}")
        value = coach.terms.model_dump()[key]
        assert said == f"{key} = {value!r}"
        again = _coach(school, repo)
        assert (again.terms, again.troubles) == (coach.terms, ())
        if value is not None and type(value) is not bool:
            assert again.terms != read_terms({})


def test_a_leafs_coach_is_not_adjustable(school: Settings, repo: Path) -> None:
    coach = _coach(school, repo, adjustable=False)
    assert coach.command("set budget_calls 5") == (
        "Not set: budget_calls: this coach is set by its configuration only"
    )


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"nope": 1}', '{"budget_calls": "many"}'])
def test_a_broken_file_of_settings_is_said_and_passed_over(school: Settings, repo: Path, text: str) -> None:
    school.coach_dir.mkdir(parents=True)
    (school.coach_dir / "settings.json").write_text(text)
    coach = _coach(school, repo, {"budget_calls": 7})
    assert coach.terms.budget_calls == 7
    assert "not used: " in coach.command("status")
    assert coach.command("set note_ttl_s 9") == "note_ttl_s = 9.0"


def test_one_bad_key_costs_only_itself_and_setting_another_mends_the_file(
    school: Settings, repo: Path
) -> None:
    path = school.coach_dir / "settings.json"
    path.parent.mkdir(parents=True)
    kept = {
        "budget_calls": "many",
        "note_ttl_s": 9,
        "nope": 1,
        "corrective_cap": 3,
        "base_url": "http://elsewhere",
    }
    path.write_text(json.dumps(kept))
    session = Session(school, repo, Model(OK), {"budget_calls": 7}, adjustable=True)
    terms = session.coach.terms
    assert (terms.budget_calls, terms.note_ttl_s, terms.corrective_cap, terms.base_url) == (7, 9, 3, "")
    first, second, third = session.hooks.faults
    assert first.startswith("coach: settings: not used: settings.json budget_calls = 'many': ")
    assert second.startswith("coach: settings: not used: settings.json nope: no such key")
    assert third == "coach: settings: not used: base_url: it is set in the configuration only"
    assert session.coach.command("set consult_per_turn 5") == "consult_per_turn = 5"
    assert json.loads(path.read_text()) == {"note_ttl_s": 9, "corrective_cap": 3, "consult_per_turn": 5}
    again = _coach(school, repo, {"budget_calls": 7})
    assert (again.terms, again.troubles) == (session.coach.terms, ())
    session.close()


@pytest.mark.parametrize("damage", ["folder", "link", "huge", "unreadable", "later"])
def test_a_file_of_settings_that_cannot_be_read_costs_no_turn(
    school: Settings, repo: Path, damage: str
) -> None:
    path = school.coach_dir / "settings.json"
    path.parent.mkdir(parents=True)
    session = None
    if damage == "later":
        path.write_text('{"note_ttl_s": 9}')
        session = Session(school, repo, Model(finding(), OK), {"active_every_turns": 1}, adjustable=True)
        path.write_text("{")
    elif damage == "folder":
        path.mkdir()
    elif damage == "link":
        path.symlink_to(school.coach_dir / "elsewhere.json")
    elif damage == "huge":
        path.write_bytes(b" " * 70 * 1024 * 1024)
    else:
        path.write_text("{}")
        path.chmod(0)
    session = session or Session(
        school, repo, Model(finding(), OK), {"active_every_turns": 1}, adjustable=True
    )
    assert session.turn() == ""
    assert session.turn().startswith("<coach-note>")
    assert session.coach.terms.note_ttl_s == 1800
    if damage != "unreadable":  # root reads it
        assert "not used: " in session.coach.command("status")
    log = (school.logs_dir / "advisers.jsonl").read_text() if damage != "unreadable" else "settings"
    assert "settings" in log
    session.close()


def test_settings_that_cannot_be_kept_are_not_set(school: Settings, repo: Path) -> None:
    coach = _coach(school, repo)
    (school.coach_dir / "settings.json").mkdir(parents=True)
    assert coach.command("set note_ttl_s 9").startswith("Not set: note_ttl_s: it cannot be kept: ")
    assert coach.terms.note_ttl_s == 1800


def test_status_notes_cards_and_help(school: Settings, repo: Path) -> None:
    session = Session(school, repo, Model(finding("Tests were not run")), {"active_every_turns": 1})
    coach = session.coach
    assert coach.command("pause") == "There is no session yet."
    assert coach.command("cards") == "No findings."
    session.turn()
    assert coach.command("note Mind the release.") == "Noted for this session."
    assert coach.command("").splitlines() == [
        "The coach is on; model openai:coach-large.",
        "Session s1: turn 1.",
        "Spent: 1 of 40 calls, 100 tokens in, 20 out, $0.0100.",
        "Findings: 1; waiting for the next turn: 1; held: 0.",
    ]
    assert coach.command("cards") == "turn 1 [corrective] Tests were not run: Run them."
    assert coach.command("settings").splitlines()[0] == "enabled = True"
    assert coach.command("help").startswith("/coach [status]")
    session.turn("Again.")
    prompt = session.coach._asking._asks.calls[1][1]  # type: ignore[union-attr]
    assert "# Note for this session\nMind the release.\n" in prompt
    session.close()
