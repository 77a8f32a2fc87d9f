"""``school.toml``: layers, and one message a mistake that names file and key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from school.config import load_config, refuse_impossible_limits
from school.errors import ConfigError
from school.settings import Settings


def test_nothing_written_gives_the_defaults_of_the_contract():
    config = load_config(None)
    assert (config.limits.leaves, config.limits.startup_timeout_s) == (2, 60.0)
    assert (config.limits.stall_timeout_s, config.limits.agent_timeout_s) == (300.0, 3600.0)
    assert (config.limits.command_timeout_s, config.limits.queue_timeout_s) == (900.0, 3600.0)
    assert (config.limits.max_interruptions, config.delivery.prefix) == (5, "school/")
    assert config.sandbox.mode == "auto"


def test_base_over_home_over_defaults_and_flags_over_all():
    home = '[limits]\nleaves = 7\nagent_timeout_s = 10\n[agents.a]\nargv = ["home"]\nmodel = "m"\n'
    base = '[limits]\nleaves = 3\n[agents.a]\nargv = ["base", "x"]\n'
    config = load_config(base, home, {"limits": {"leaves": 9}})
    assert (config.limits.leaves, config.limits.agent_timeout_s) == (9, 10.0)
    # Tables are merged, a list replaces the list below it.
    assert (config.agents["a"].argv, config.agents["a"].model) == (["base", "x"], "m")
    assert load_config(base, home).limits.leaves == 3
    assert load_config(None, home).limits.leaves == 7


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ('[verify]\ncommands = "pytest -q"', "[verify] commands", "['pytest', '-q']"),
        (
            '[verify]\ncommands = ["pytest -q"]',
            "[verify] commands[0]",
            "a string where a list of words (argv)",
        ),
        ('[setup]\ncommands = [["uv", 3]]', "[setup] commands[0][1]", "expected a string"),
        ("[verify]\ncommands = [[]]", "[verify] commands[0]", "an empty command"),
        ("[verify]\non_stop = 3", "[verify] on_stop", 'true, false or "auto"'),
        ('[verify]\ntimeout_s = "9"', "[verify] timeout_s", "expected a number"),
        ('[limits]\nleaves = "2"', "[limits] leaves", "expected a whole number"),
        ("[limits]\nleaves = 0", "[limits] leaves", "at least 1"),
        ("[limits]\nleaves = true", "[limits] leaves", "expected a whole number"),
        ("[limits]\nagent_timeout_s = inf", "[limits] agent_timeout_s", "finite"),
        ("[limits]\nagent_timeout_s = nan", "[limits] agent_timeout_s", ""),
        ("[limits]\nleafs = 2", "[limits] leafs", "unknown key"),
        ("[governor]\nrepeat_call_threshold = 0", "[governor] repeat_call_threshold", "at least 1"),
        (
            '[governor]\napi_error_threshold = "abc"',
            "[governor] api_error_threshold",
            "expected a whole number",
        ),
        ("[governor]\nmax_packet_actions = 101", "[governor] max_packet_actions", "100"),
        ("[governor]\nrepeat_calls = 2", "[governor] repeat_calls", "unknown key"),
        ("[limit]\nleaves = 2", "[limit]", "unknown key"),
        ("verify = 3", "[verify]", "expected a mapping"),
        ('[agents.x]\nargv = "codex exec"', "[agents.x] argv", "['codex', 'exec']"),
        ('[agents.x]\nargv = ["a"]\nprompt = "file"', "[agents.x] argv", "{prompt_file}"),
        ('[agents."a b"]\nargv = ["a"]', "[agents.a b]", "a name has letters"),
        ('[agents.x]\nargv = ["a"]\nenv = ["A-B"]', "[agents.x] env", "no name of a variable"),
        ('[roles.cook]\nagents = ["a"]', "[roles.cook]", "no such role"),
        ('[roles.coder]\nagents = ["a", "a"]', "[roles.coder] agents", "named twice"),
        ('[roles.coder]\nagents = "codex"', "[roles.coder] agents", "expected a list"),
        ('[reviewers.ceo]\nmodel = "x"', "[reviewers.ceo]", "'cto', 'coo'"),
        ('[sandbox]\nmode = "on"', "[sandbox] mode", "'auto', 'require', 'off'"),
        ('[delivery]\nprefix = "my work/"', "[delivery] prefix", "git refuses ' '"),
        ('[delivery]\nprefix = "-"', "[delivery] prefix", "no branch of that name"),
        ('[setup]\nkeep = ["../x"]', "[setup] keep[0]", "inside the repository"),
        ('[setup]\ncopy_files = ["/etc/passwd"]', "[setup] copy_files[0]", "inside the repository"),
        ('[setup]\nkeep = [".git"]', "[setup] keep[0]", "not the project's to keep"),
        ('[setup]\nkeep = [""]', "[setup] keep[0]", "names nothing"),
        ("[verify]\na b = 1\n", "not TOML", "line 2"),
        ("a = " + "[" * 3000, "", ""),
    ],
)
def test_a_mistake_names_file_and_key(text, key, what):
    with pytest.raises(ConfigError) as base:
        load_config(text)
    assert str(base.value).startswith("school.toml: ")
    assert key in str(base.value)
    assert what in str(base.value)
    with pytest.raises(ConfigError) as home:
        load_config(None, text)
    assert str(home.value).startswith("HERMES_HOME/school.toml: ")


def test_every_mistake_of_a_layer_is_listed_and_each_once():
    with pytest.raises(ConfigError) as error:
        load_config('[limits]\nleaves = 0\nfoo = 1\n[verify]\non_stop = "often"\n')
    assert len(str(error.value).splitlines()) == 3


def test_a_mistake_in_the_lower_layer_is_said_even_where_the_upper_hides_it():
    with pytest.raises(ConfigError, match=r"HERMES_HOME/school.toml: \[limits\] leaves"):
        load_config("[limits]\nleaves = 2", "[limits]\nleaves = 0")


def test_a_model_call_that_may_outlast_the_hand_over_is_refused_with_the_numbers(school: Settings):
    config = load_config('[reviewers.coo]\nmodel = "m"')
    with pytest.raises(ConfigError, match=r"= 90 s.*HANDOFF_TIMEOUT = 30 s"):
        refuse_impossible_limits(config, replace(school, handoff_timeout_s=30.0))
    refuse_impossible_limits(config, school)
    refuse_impossible_limits(load_config(None), replace(school, handoff_timeout_s=1.0))
