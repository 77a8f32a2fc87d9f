"""Which model judges beside a teacher's checks, and when that is the student's own: resolved and refused at load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from school.config import load_config
from school.contracts import AgentSpec
from school.errors import ConfigError, MachineError, TaskFileError
from school.settings import Settings
from school.supervisor.beads import repository_terms
from school.supervisor.plan import Plan, prepare
from school.supervisor.request import Request
from school.supervisor.reviewers import is_same_model, reviewer_terms, same_models
from tests.support import git

MINE = '[agents.mine]\nargv = ["python3", "-c", "pass"]\nmodel = "openai:small"\n'
LOOP = '[agents.loop]\nkind = "model"\nmodel = "openai:small"\n'


def test_nothing_configured_is_nobody():
    assert reviewer_terms(load_config(None)) == {}


def test_an_agent_is_resolved_whole_and_its_model_can_be_another():
    config = load_config(
        MINE + '[reviewers.cto]\nagent = "mine"\n[reviewers.coo]\nagent = "mine"\nmodel = "big"\n'
    )
    terms = reviewer_terms(config)
    assert [(role, t.model, t.agent.model, t.agent.argv) for role, t in terms.items()] == [
        ("cto", "openai:small", "openai:small", ["python3", "-c", "pass"]),
        ("coo", "big", "big", ["python3", "-c", "pass"]),
    ]


def test_a_model_alone_is_an_agent_of_kind_model():
    (terms,) = reviewer_terms(load_config('[reviewers.coo]\nmodel = "anthropic:large"\n')).values()
    assert (terms.agent.kind, terms.agent.name, terms.agent.model) == (
        "model",
        "anthropic:large",
        "anthropic:large",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[reviewers.cto]\nagent = "nobody"\n', r"\[reviewers.cto\] agent: no agent is called 'nobody'"),
        (
            '[agents.r]\nkind = "run"\nargv = ["true"]\n[reviewers.coo]\nagent = "r"\n',
            "kind 'run'; a reviewer is of",
        ),
        ("[reviewers.coo]\nrequire_distinct_model = true\n", "there is no agent and no model in it"),
    ],
)
def test_what_can_be_no_reviewer(text, says):
    with pytest.raises(ConfigError, match=says):
        reviewer_terms(load_config(text))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("openai:small", "openai:small", True),
        ("openai:small", "OpenAI:Small", True),
        ("openai:small", "small", True),
        ("openai:small", "openrouter:small", False),
        ("openai:small", "openai:small-2", False),
        ("", "", False),
        ("openai:small", "", False),
        ("openai:", "openai:", False),
    ],
)
def test_whether_two_names_say_one_model(one, other, same):
    assert is_same_model(one, other) is same
    assert is_same_model(other, one) is same


def test_the_students_own_model_is_said_or_refused():
    students = {
        "a": [AgentSpec(name="x", kind="command", model="small"), AgentSpec(name="y", kind="command")],
        "b": [AgentSpec(name="z", kind="command", model="other")],
    }
    said = load_config('[reviewers.cto]\nmodel = "openai:small"\n')
    (line,) = same_models(reviewer_terms(said), students, said)
    assert line.startswith("the CTO's model openai:small also is the student's (task a: x)")
    strict = load_config('[reviewers.cto]\nmodel = "openai:small"\nrequire_distinct_model = true\n')
    with pytest.raises(ConfigError, match=r"\[reviewers.cto\] require_distinct_model: .*\(task a: x\)"):
        same_models(reviewer_terms(strict), students, strict)
    assert same_models(reviewer_terms(strict), {"b": students["b"]}, strict) == []


# --- what a run is planned with -----------------------------------------------------------------------------------


def planned(repo: Path, settings: Settings, config: str, *, tests: bool = True, **fields: object) -> Plan:
    (repo / "school.toml").write_text(config)
    if not tests:
        git(repo, "rm", "-rq", "tests")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Configure")
    request = Request(repo=str(repo), task="Make it nice.", **{"agent": "mine", **fields})  # type: ignore[arg-type]
    return prepare(request, settings)


def test_a_criterion_without_a_check_is_taken_when_the_coo_has_a_model(school, repo):
    plan = planned(repo, school, MINE + '[reviewers.coo]\nmodel = "openai:m"\n', accept=("it is nice",))
    terms = repository_terms(plan)
    assert terms.reviewers["coo"].agent.kind == "model"
    assert terms.reviewers.keys() == {"coo"}
    with pytest.raises(TaskFileError, match="nobody can judge"):
        planned(repo, school, MINE + '[reviewers.cto]\nmodel = "openai:m"\n', accept=("it is nice",))


def test_a_task_with_nothing_else_to_judge_it_by_is_taken_when_the_coo_has_a_model(school, repo):
    config = MINE + '[reviewers.coo]\nmodel = "openai:m"\n'
    assert planned(repo, school, config, tests=False).reviewers["coo"].model == "openai:m"
    (repo / "x").write_text("x")
    with pytest.raises(TaskFileError, match="nothing could judge this task"):
        planned(repo, school, MINE)


def test_the_same_model_is_told_before_the_run_or_refused_and_a_role_can_choose_another(school, repo):
    plan = planned(repo, school, MINE + '[reviewers.coo]\nmodel = "openai:small"\n')
    assert plan.remarks[0] == (
        "the COO's model openai:small also is the student's (task make-it-nice-834399: mine): it shares what the student "
        "does not see"
    )
    strict = MINE + '[reviewers.coo]\nmodel = "openai:small"\nrequire_distinct_model = true\n'
    with pytest.raises(ConfigError, match="require_distinct_model"):
        planned(repo, school, strict)
    plan = planned(repo, school, strict + '[roles.coder]\nmodel = "openai:other"\n', role="coder")
    assert plan.agents["make-it-nice-834399"][0].model == "openai:other"
    assert not any("also is the student's" in remark for remark in plan.remarks)


def test_of_several_agents_one_that_cannot_start_is_not_asked(school, repo):
    """It would cost the task an attempt, and say nothing of the student's."""
    gone = '[agents.gone]\nargv = ["no-such-tool"]\n'
    plan = planned(
        repo, school, MINE + gone + '[roles.coder]\nagents = ["gone", "mine"]\n', agent="", role="coder"
    )
    assert [spec.name for spec in plan.agents["make-it-nice-834399"]] == ["mine"]
    assert plan.remarks == ["the agent gone needs no-such-tool, which is not on PATH, so it is not asked"]
    with pytest.raises(MachineError, match="task make-it-nice-834399: the agent gone needs no-such-tool"):
        planned(repo, school, MINE + gone, agent="gone")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('[reviewers.cto]\nmodel = "foo"\n', '[reviewers.cto] model = "foo": which provider?'),
        (
            '[reviewers.coo]\nmodel = "nosuch:x"\n',
            '[reviewers.coo] model = "nosuch:x": no provider is called "nosuch"',
        ),
        ('[coach]\nmodel = "foo"\n', '[coach] model = "foo": which provider?'),
        ('[coach]\nmodel = "nosuch:x"\n', '[coach] model = "nosuch:x": no provider is called "nosuch"'),
        (
            LOOP + '[reviewers.coo]\nagent = "loop"\nmodel = "foo"\n',
            '[reviewers.coo] model = "foo": which provider?',
        ),
        (
            LOOP + '[roles.coder]\nagents = ["loop"]\nmodel = "foo"\n',
            '[roles.coder] model = "foo": which provider?',
        ),
    ],
)
def test_a_model_that_nobody_could_be_asked_for_is_refused_before_the_run(school, repo, config, said):
    with pytest.raises(ConfigError, match=re.escape(f"school.toml: {said}")) as refused:
        planned(repo, school, MINE + config)
    assert refused.value.exit_code == 2


def test_a_role_s_model_counts_for_the_agent_that_the_task_names(school, repo):
    with pytest.raises(ConfigError, match=r'\[roles.coder\] model = "foo": which provider'):
        planned(repo, school, LOOP + '[roles.coder]\nmodel = "foo"\n', agent="loop", role="coder")


def test_a_model_with_an_endpoint_of_its_own_needs_no_provider(school, repo, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    url = 'base_url = "http://127.0.0.1:1/v1"\n'
    coach = '[coach]\nmodel = "foo"\n' + url
    assert planned(repo, school, MINE + coach).config.coach.model == "foo"
    off = '[coach]\nenabled = false\nmodel = "bar"\n'
    assert planned(repo, school, MINE + off).config.coach.model == "bar"
    judge = LOOP + url + '[reviewers.coo]\nagent = "loop"\nmodel = "qwen:7b"\n'
    assert planned(repo, school, MINE + judge).reviewers["coo"].model == "qwen:7b"


def test_a_reviewer_that_is_not_installed_is_the_machines(school, repo):
    config = MINE + '[agents.far]\nargv = ["no-such-tool"]\n[reviewers.cto]\nagent = "far"\n'
    with pytest.raises(MachineError, match=r"\[reviewers.cto\]: the agent far needs no-such-tool"):
        planned(repo, school, config)


def test_a_reviewer_whose_key_is_not_set_is_told_before_the_run(school, repo, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    judge = '[agents.judge]\nkind = "model"\nmodel = "large"\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "JUDGE_KEY"\n'
    config = MINE + judge + '[reviewers.cto]\nagent = "judge"\n'
    assert planned(repo, school, config).remarks == [
        "[reviewers.cto]: the agent judge needs the variable JUDGE_KEY, which is not set, so there may be no verdict"
    ]
    monkeypatch.setenv("JUDGE_KEY", "k")
    assert planned(repo, school, config + "\n").remarks == []
