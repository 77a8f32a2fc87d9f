"""JSON-RPC messages over the lines of a talk, as the library's connection wants them, bounded.

A ``Transport`` of the library: ``send`` and ``receive`` move messages, None is the end. What is no JSON object is passed over
(some agents print a greeting), but no more than ``JUNK_MAX`` times in a row: then the agent speaks no ACP, and for us
its output ends. ``fault`` says so, ``printed`` is the last that it wrote of that kind, a few lines of it. A line of any length
costs no more memory than the talk allows, and an agent that asks without taking answers is read no further while ``OPEN_MAX``
of its requests wait for one.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Final

from school.agents.talk import LineTooLong, Wire

JUNK_MAX: Final = 200
OPEN_MAX: Final = 64
SHOWN: Final = 200
# A prompt for somebody to log in takes more lines than one.
SHOWN_LINES: Final = 5


class Transport:
    """Messages to and from the agent."""

    def __init__(self, wire: Wire) -> None:
        self.fault = ""
        self._printed: deque[str] = deque(maxlen=SHOWN_LINES)
        self._gone = False
        self._wire = wire
        self._turn = asyncio.Lock()
        self._open = asyncio.Semaphore(OPEN_MAX)

    @property
    def printed(self) -> str:
        """The last lines that were no messages."""
        return "\n".join(self._printed)

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message; ConnectionError when the agent is gone or does not read what we ask of it."""
        raw = json.dumps(message).encode("ascii") + b"\n"
        answer = "method" not in message
        try:
            async with self._turn:
                await self._wire.write(raw)
        except (TimeoutError, BrokenPipeError) as error:
            self._gone = True
            if isinstance(error, TimeoutError):
                self.fault = "it does not read what it is sent"
            # Nobody waits for an answer of ours any more.
            if not answer:
                raise ConnectionError(self.fault or "it is gone") from error
        finally:
            if answer:
                self._open.release()

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end."""
        junk = 0
        while not self.fault and not self._gone:
            # Handlers are tasks: without this, an agent that floods us would pile them up.
            await asyncio.sleep(0)
            try:
                line = await self._wire.read_line()
            except LineTooLong as error:
                self.fault = str(error)
                break
            if line is None:
                break
            message = _message(line)
            if message is not None:
                if "method" in message and "id" in message:
                    await self._open.acquire()
                return message
            if words := line[:SHOWN].decode("utf-8", "backslashreplace").strip():
                junk += 1
                self._printed.append(words)
            if junk > JUNK_MAX:
                self.fault = f"it speaks no ACP; it wrote: {self._printed[-1]}"
        return None

    async def close(self) -> None:
        """The wire is closed by whoever opened it."""


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id", 0), int | str | None):
        return None
    if not isinstance(message.get("error", {}), dict | None):
        message["error"] = {"message": f"an error that is none of the protocol's: {message['error']!r:.200}"}
    return message if isinstance(message.get("method", ""), str) else None
