"""Agents of kind ``command``: any command line tool that takes a prompt and works in the current folder.

``run_command(job, brief)`` runs the first turn with the brief's prompt, and further ones as long as the job's gate
gives a message for one, at most ``TURNS_MAX``, all within one time limit. The prompt goes to stdin or into a file,
never into an argument (those end at 128 KiB). An agent with a preset (``school.agents.presets``) is started and read
as its preset says. Any other has the argv of its configuration, in which ``{prompt_file}``, ``{brief}``, ``{result}``,
``{model}`` and ``{session}`` are replaced; it can take a further turn when it has ``resume``, and it may name its
session by the key ``session`` of its result file.

All turns are kept: the first in ``prompt.md``, ``stdout``, ``stderr``, turn n in ``turn-n.…``, and what was asked and
answered in ``turns.json``. The summary of the claim begins with the first answer, the candidate; what a later turn says
stands below it and never in its place. A further turn that comes to no end takes nothing away (``further``).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import stat
from pathlib import Path
from typing import Any, Final

from school.agents import further, presets
from school.agents.claim import read_regular
from school.agents.judging import Turn, combined, judged
from school.agents.presets.base import Preset, Reading, Said, Setting, Start, ToolUse, session_of
from school.agents.process import Job
from school.agents.prompt import prompt_for
from school.agents.vigil import PATIENCE_S, Vigil
from school.contracts import AgentOutcome, Brief, TurnEnd
from school.system import clock, files

PROMPT_NAME: Final = "prompt.md"
TURNS_NAME: Final = "turns.json"
TURNS_MAX: Final = 8
# Of what a turn printed, the part that is read; a result at its end is in it however much came before.
HEAD_BYTES: Final = 8 * 1024 * 1024
TAIL_BYTES: Final = 24 * 1024 * 1024
RESULT_BYTES_MAX: Final = 64 * 1024 * 1024
PLATFORM: Final = "school"


def run_command(job: Job, brief: Brief) -> AgentOutcome:
    """Give the agent its prompt and run it, turn by turn, to its end."""
    return _Conversation(job).run(prompt_for(brief))


class _Conversation:
    """The turns of one agent."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.preset: Preset | None = presets.find(job.spec.preset) if job.spec.preset else None
        self.turns: list[Turn] = []
        self.session = ""
        self.deadline = clock.monotonic() + job.time_limit_s

    def run(self, message: str) -> AgentOutcome:
        while message:
            self.turns.append(self._take(message, len(self.turns) + 1))
            self._tell(self.turns[-1])
            message = self._next()
        if self.preset or len(self.turns) > 1:
            files.write_json(self.job.output_dir / TURNS_NAME, [turn.record() for turn in self.turns])
        return combined(self.turns)

    # --- one turn ---------------------------------------------------------------------------------------

    def _take(self, message: str, number: int) -> Turn:
        said = self.job.hooks.context(**self._ids(number), **self._asked(message, number))
        prompt = f"{message}\n\n{said}\n" if said else message
        prefix = "" if number == 1 else f"turn-{number}."
        raw = prompt.encode("utf-8", "backslashreplace")
        files.write_atomic(self.job.output_dir / f"{prefix}{PROMPT_NAME}", raw)
        prompt_file = self.job.brief_path.with_suffix(".md")
        out = files.ensure_dir(self.job.tmpdir / "school" / f"turn-{number}")
        start = self._start(prompt, prompt_file, out)
        if start.placed:
            files.write_atomic(prompt_file, raw)
        left_s = self.job.time_limit_s if number == 1 else max(0.1, self.deadline - clock.monotonic())
        job, vigil = self._with(start), self._vigil(number, out, prefix)
        if vigil is not None:
            job = dataclasses.replace(job, cancelled=lambda: self.job.cancelled() or vigil())
        stdin = raw if start.stdin else b""
        outcome = job.run(start.argv, stdin=stdin, timeout_s=left_s, prefix=prefix)
        if vigil is not None and vigil.fired and outcome.reason == "interrupted":
            outcome.reason = "unavailable"
            outcome.detail = (
                f"{job.spec.name} told for {vigil.patience_s:g} s of nothing but errors, and was ended"
            )
        if outcome.reason == "timeout" and number > 1:
            outcome.detail = f"{job.spec.name}: the {job.time_limit_s:g} s for all turns were over"
        reading = self._read(outcome, out, prefix, prompt)
        kept = vigil is not None and self.job.kept_waiting(vigil.quiet_s)
        if vigil is not None:
            vigil.rest(reading)
        return judged(number, message, outcome, reading, self.job.spec, kept_waiting=kept)

    def _start(self, prompt: str, prompt_file: Path, out: Path) -> Start:
        spec = self.job.spec
        if self.preset is None:
            argv = spec.resume if self.turns else spec.argv
            return Start(
                self._filled(argv, prompt_file), stdin=spec.prompt == "stdin", placed=spec.prompt == "file"
            )
        setting = Setting(
            spec=spec,
            home=files.ensure_dir(self.job.tmpdir / "school" / "home"),
            out=out,
            prompt_file=prompt_file,
            prompt=prompt,
            session=self.session,
            key=os.environ.get(spec.api_key_env, "") if spec.api_key_env else "",
        )
        return self.preset.start(setting)

    def _with(self, start: Start) -> Job:
        """The job with what *start* adds to the environment; that is in no record, for it may hold a key."""
        names = self.preset.locations if self.preset else ()
        places = {name: os.environ[name] for name in names if name in os.environ}
        # Only before there was an agent: afterwards it is the agent's own folder, links and all.
        for path, content in () if self.turns else start.files.items():
            files.ensure_dir(path.parent)
            files.write_atomic(path, content.encode())
        added = {**places, **start.env, **self.job.spec.set_env}
        return dataclasses.replace(self.job, spec=self.job.spec.model_copy(update={"set_env": added}))

    def _vigil(self, number: int, out: Path, prefix: str) -> Vigil | None:
        if self.preset is None:
            return None
        watched = {name: self.job.output_dir / f"{prefix}{name}" for name in ("stdout", "stderr")}
        watched |= {name: out / name for name in self.preset.results}
        count = itertools.count(1)

        def heard(use: ToolUse, seconds: float) -> None:
            self._told_of(use, seconds, number, next(count))

        return Vigil(self.preset, watched, heard, min(PATIENCE_S, self.job.limits.stall_timeout_s))

    def _filled(self, argv: list[str], prompt_file: Path) -> list[str]:
        values = {
            "{prompt_file}": str(prompt_file),
            "{brief}": str(self.job.brief_path),
            "{result}": str(self.job.result_path),
            "{model}": self.job.spec.model,
            "{session}": self.session,
        }
        return [_replaced(argument, values) for argument in argv]

    def _read(self, outcome: AgentOutcome, out: Path, prefix: str, prompt: str) -> Reading:
        if self.preset is None:
            # What it shows of its own prompt is ours, marks and all; it lies whole in the archive.
            outcome.output = _beyond(prompt, outcome.output)
            answer = outcome.claim.summary or outcome.output
            ended = not outcome.reason
            return Reading(ended=ended, session=session_of(outcome.claim.session), answer=answer)
        said = Said(
            now=clock.parse(clock.now()),
            stdout=_ends(self.job.output_dir / f"{prefix}stdout"),
            stderr=_ends(self.job.output_dir / f"{prefix}stderr"),
            exit_code=outcome.exit_code,
            files={name: _result(out / name) for name in self.preset.results},
        )
        return self.preset.read(said)

    # --- between turns ----------------------------------------------------------------------------------

    def _next(self) -> str:
        """The message of a further turn, '' where there is to be none or can be none."""
        turn = self.turns[-1]
        self.session = turn.reading.session or self.session
        if turn.reason or len(self.turns) >= TURNS_MAX or not self._can_resume() or self.job.cancelled():
            return ""
        ended = TurnEnd(turn.number, turn.reading.answer, turn.outcome.claim)
        message, note = further.ask(self.job, ended, self.deadline)
        turn.outcome.notes += [note] if note else []
        return message

    def _can_resume(self) -> bool:
        # The agent owns the folder of the brief: a link there would have us write where it leads.
        folders = (self.job.brief_path.parent, self.job.brief_path.parent.parent, self.job.tmpdir / "school")
        if not all(_is_folder(folder) for folder in folders):
            return False
        if self.preset is not None:
            return self.preset.resumes and bool(self.session)
        argv = self.job.spec.resume
        return bool(argv) and (bool(self.session) or not any("{session}" in word for word in argv))

    # --- the advisers -----------------------------------------------------------------------------------

    def _ids(self, number: int) -> dict[str, str]:
        bead = self.job.bead
        return {"session_id": bead, "task_id": bead, "turn_id": f"{bead}-{number}", "platform": PLATFORM}

    def _asked(self, message: str, number: int) -> dict[str, Any]:
        return {
            "user_message": message,
            "conversation_history": self._history(),
            "is_first_turn": number == 1,
            "model": self.job.spec.model,
            "sender_id": "",
        }

    def _history(self) -> list[dict[str, str]]:
        return [
            {"role": role, "content": content}
            for turn in self.turns
            for role, content in (("user", turn.message), ("assistant", turn.reading.answer))
        ]

    def _told_of(self, use: ToolUse, seconds: float, turn: int, number: int) -> None:
        """Tell the advisers of a tool that was used, and that it began no earlier than *seconds* ago."""
        ids = {name: value for name, value in self._ids(turn).items() if name != "platform"}
        event = use.event(f"{ids['turn_id']}-call-{number}") | {"duration_ms": int(seconds * 1000) + 1}
        request = f"{ids['turn_id']}-request"
        self.job.hooks.fire("post_tool_call", **ids, api_request_id=request, middleware_trace=[], **event)

    def _tell(self, turn: Turn) -> None:
        """Tell the advisers how *turn* ended."""
        fire, ids = self.job.hooks.fire, self._ids(turn.number)
        model = self.job.spec.model
        request = f"{ids['turn_id']}-request"
        if turn.reason in ("unavailable", "quota"):
            error = {"type": turn.reason, "message": turn.detail}
            fire(
                "api_request_error",
                **ids,
                model=model,
                api_request_id=request,
                error=error,
                reason=turn.reason,
            )
        if turn.reading.ended and turn.reading.answer:
            said = {"user_message": turn.message, "assistant_response": turn.reading.answer, "model": model}
            fire("post_llm_call", **ids, **said, conversation_history=self._history())
        interrupted = turn.reason == "interrupted"
        fire("on_session_end", **ids, model=model, completed=not turn.reason, interrupted=interrupted)


def _beyond(prompt: str, printed: str) -> str:
    """What was *printed* besides the prompt: many a CLI shows first what it was asked, and that are not its words."""
    asked = {line.strip() for line in prompt.splitlines()} - {""}
    lines = printed.splitlines(keepends=True)
    own = [line for line in lines if line.strip() not in asked]
    return printed if len(own) == len(lines) else "".join(own).strip()


def _replaced(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(name, value)
    return argument


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _ends(path: Path) -> bytes:
    """Head and tail of a file of ours; nothing where the run ended before there was one."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= HEAD_BYTES + TAIL_BYTES:
            return file.read()
        head = file.read(HEAD_BYTES)
        file.seek(size - TAIL_BYTES)
        return head + b"\n" + file.read(TAIL_BYTES)


def _result(path: Path) -> bytes:
    """What the agent's CLI left at *path*; nothing where there is no plain file of a size that it could have."""
    try:
        return read_regular(path, RESULT_BYTES_MAX)
    except (OSError, ValueError):
        return b""
