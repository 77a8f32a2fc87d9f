"""A command line agent of any ill behaviour, in the words of ``codex exec --json``: ``fake_cli.py BEHAVIOUR …``.

A program of the standard library. It reads its prompt from stdin, as the real one does, behaves, and ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FLOOD_BYTES = int(os.environ.get("SCHOOL_FLOOD_BYTES") or 64 * 1024 * 1024)


def tell(**event: object) -> None:
    print(json.dumps(event), flush=True)


def begin() -> None:
    tell(type="thread.started", thread_id="t-1")
    tell(type="turn.started")


def edit() -> None:
    Path("new.txt").write_text("new\n")
    item = {"id": "i1", "type": "command_execution", "command": "bash -lc 'echo new'", "exit_code": 0}
    tell(type="item.completed", item={**item, "aggregated_output": "new\n"})


def end(text: str = "Done.") -> None:
    if text:
        tell(type="item.completed", item={"id": "i9", "type": "agent_message", "text": text})
    tell(type="turn.completed", usage={"input_tokens": 5, "output_tokens": 3})


def fail(message: str) -> None:
    begin()
    edit()
    for number in range(1, 4):
        tell(type="error", message=f"Reconnecting... {number}/3 ({message})")
    tell(type="turn.failed", error={"message": message})
    sys.exit(1)


def limited() -> None:
    fail("exceeded retry limit, last status: 429 Too Many Requests, retry after 7200 seconds")


def hang() -> None:
    begin()
    edit()
    time.sleep(3600)


def hang_at_work() -> None:
    begin()
    tell(type="item.started", item={"id": "i1", "type": "command_execution", "command": "sleep 9999"})
    time.sleep(3600)


def errors_for_ever(message: str) -> None:
    begin()
    edit()
    while True:
        tell(type="error", message=message)
        time.sleep(0.2)


def malformed() -> None:
    sys.stdout.write('{"type": "turn.comple')


def undecodable() -> None:
    begin()
    edit()
    sys.stdout.flush()
    sys.stdout.buffer.write(
        b'{"type": "item.completed", "item": {"type": "agent_message", "text": "\xff \\ud800"}}\n'
    )
    end("")


def flood() -> None:
    begin()
    line = json.dumps({"type": "item.completed", "item": {"type": "reasoning", "text": "x" * 8000}}) + "\n"
    left = FLOOD_BYTES
    while left > 0:
        left -= sys.stdout.write(line)
    edit()
    end()


def asks() -> None:
    print("Do you trust the files in this folder? [y/N] ", end="", flush=True)
    answer = sys.stdin.readline()
    sys.exit(f"no answer ({answer!r}): not logged in; please run codex login")


def asks_the_terminal() -> None:
    with open("/dev/tty") as terminal:  # noqa: PTH123 - a device
        terminal.readline()


def waits_for_a_login() -> None:
    print("Open https://auth.example.invalid/device and enter ABCD-1234", flush=True)
    time.sleep(3600)


def grandchild() -> None:
    begin()
    edit()
    for session in (False, True):
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session, stdout=None
        )
    end()


BEHAVIOURS = {
    "good": lambda: (begin(), edit(), end()),
    "down": lambda: fail("error sending request: connection refused"),
    "500": lambda: fail("unexpected status 500 Internal Server Error"),
    "429": limited,
    "401": lambda: fail("unexpected status 401 Unauthorized"),
    "hang": hang,
    "hang-at-work": hang_at_work,
    "errors-for-ever": lambda: errors_for_ever("Reconnecting... waiting for network (Connection failed)"),
    "odd-errors-for-ever": lambda: errors_for_ever("something went sideways"),
    "empty-answer": lambda: (begin(), end("")),
    "no-word": lambda: (begin(), edit(), end("")),
    "malformed": malformed,
    "nothing": lambda: None,
    "137": lambda: (begin(), edit(), os._exit(137)),
    "undecodable": undecodable,
    "flood": flood,
    "asks": asks,
    "asks-the-terminal": asks_the_terminal,
    "waits-for-a-login": waits_for_a_login,
    "mute": lambda: time.sleep(3600),
    "grandchild": grandchild,
}


if __name__ == "__main__":
    sys.stdin.read()
    BEHAVIOURS[sys.argv[1]]()
