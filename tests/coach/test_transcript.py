"""The transcript in docs/coach.md is what a real leaf with a coach really sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

from school.contracts import AgentSpec
from school.settings import Settings
from tests.coach.coaching import OK, finding
from tests.coach.test_real import KEY
from tests.endpoint import FakeEndpoint, call, say
from tests.leaves import new_bead, run

PAGE = Path(__file__).parents[2] / "docs" / "coach.md"
BLOCKER = finding(
    "The sum is a product",
    "blocker",
    "add multiplies: add(2, 3) gives 6, and the existing test expects 5.",
    evidence="calc/core.py: return left * right",
)


def _block(text: str, kind: str = "") -> str:
    return f"```{kind}\n{text.strip()}\n```\n"


def test_the_page_shows_what_was_sent(repo: Path, school: Settings) -> None:
    script = [
        call("read", path="calc/core.py"),
        call("shell", command="sed -i 's/left + right/left * right/' calc/core.py"),
        call("finish", status="done", summary="Made add quicker."),
        call("shell", command="sed -i 's/left [*] right/right + left/' calc/core.py"),
        call("shell", command="python3 -m unittest discover"),
        call("finish", status="done", summary="Made add a sum again."),
    ]
    with FakeEndpoint(script) as agent, FakeEndpoint([say(BLOCKER), say(OK)]) as fake:
        spec = AgentSpec(
            name="loop", kind="model", model="openai:small", base_url=agent.base_url, api_key_env="LOOP_KEY", prompt="none"
        )  # fmt: skip
        named = {"model": "openai:coach-large", "base_url": fake.base_url, "api_key_env": "COACH_KEY"}
        advice = {"on_stop": False, "coach": {**named, "review_authority": "hold_once"}}
        bead = new_bead(repo, spec, task="Make add quicker.", advice=advice)
        bag = run(bead, school, **KEY)
        asked, told = fake.requests, agent.requests[-1]["messages"]
    assert len(asked) == 2
    prompt = re.sub(
        r"\(([0-9a-f]{12})\.\.HEAD\)", "(0123456789ab..HEAD)", asked[0]["messages"][-1]["content"]
    )
    (held,) = [row["content"] for row in told if str(row["content"]).startswith("Before you finish")]
    (guidance,) = bag["guidance"]
    guidance["at"] = "2030-01-01T00:00:00.000000+00:00"
    guidance["text"] = "Before you finish: …"
    for block in (
        _block(prompt),
        _block(BLOCKER, "json"),
        _block(held),
        _block(json.dumps(guidance, indent=1, ensure_ascii=False), "json"),
    ):
        assert block in PAGE.read_text(), f"docs/coach.md has not:\n{block}"
    assert "## Turn 2\n- reminded: Before you finish: " in asked[1]["messages"][-1]["content"]
