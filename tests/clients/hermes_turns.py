"""Several turns of one Hermes session in one process; run by Hermes' own interpreter, never imported.

argv: a JSON list of turns, each ``{"say": text}`` with perhaps ``"after": text``: the turn begins once a file below the state
directory holds that text, or is there in the working directory under that name (what works in the background has then come
so far), at the latest after a minute.
Prints a JSON list of the turns' answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def wait_for(text: str) -> None:
    state = Path(os.environ["HERMES_HOME"]) / "school"
    for _ in range(6000):
        if Path(text).exists():
            return
        for path in state.rglob("*.json"):
            try:
                if text in path.read_text():
                    return
            except OSError:
                continue
        time.sleep(0.01)
    sys.exit(f"never written: {text}")


def main() -> None:
    from hermes_cli.plugins import discover_plugins
    from run_agent import AIAgent

    discover_plugins()
    agent = AIAgent(
        base_url=os.environ["TURNS_URL"],
        api_key="sk-fake",
        provider="custom",
        model="fake-model",
        quiet_mode=True,
        platform="cli",
        enabled_toolsets=["terminal", "file", "delegation", "schoolhouse"],
    )
    history: list[dict[str, Any]] = []
    answers = []
    for turn in json.loads(sys.argv[1]):
        if "after" in turn:
            wait_for(turn["after"])
        result = agent.run_conversation(turn["say"], conversation_history=history)
        history = result["messages"]
        answers.append(result.get("final_response"))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
