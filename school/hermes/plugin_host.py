"""What the plugin is in one Hermes process: its advisers, their hooks at Hermes' seam, commands, tools, and the end.

``Plugin(ctx).register()`` once; ``close()`` any number of times. See the package. Errors: none, but ``problems`` tells.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from school.hooks import NAMES, Hooks
from school.settings import GOVERNOR_VARIABLES, Settings
from school.system import clock, files

STATE_NAME: Final = "hermes-plugin.state"
TOOLSET: Final = "schoolhouse"
PROBLEMS_MAX: Final = 40
# Hermes tells of a session's end after every turn; this is its real end, where it has one.
_HARMLESS: Final = ("HOME", "HERMES_HOME", "GOVERNOR_DISABLE")
FINAL: Final = "on_session_finalize"
# Set by a leaf that started this Hermes: the file for what it does.
EVENTS_VARIABLE: Final = "SCHOOL_HERMES_EVENTS"


class Plugin:
    """See the module."""

    def __init__(self, ctx: Any) -> None:  # noqa: ANN401 - Hermes' context
        self._ctx = ctx
        first = Hooks()
        self.settings = first.attempt("plugin", "settings", read_settings) or harmless_settings()
        self._setup = Hooks(log=self.settings.advisers_log)
        self._setup.faults += first.faults
        self._governor: Any = None
        self._coach: Any = None
        self._advisers: dict[str, Hooks] = {}
        self.registered: list[str] = []
        self.heard: dict[str, int] = {}
        self._closed = False

    @property
    def problems(self) -> list[str]:
        """What did not go as it should, up to now."""
        faults = [fault for hooks in self._advisers.values() for fault in hooks.faults]
        return [*self._setup.faults, *faults][:PROBLEMS_MAX]

    def register(self) -> None:
        """Everything, each on its own."""
        self._step("clean-up", lambda: atexit.register(self.close))
        self._step("masking", lambda: mask_secrets(()))
        self._register_hook(f"hook:{FINAL}", FINAL, self._finalized)
        tables = self._setup.attempt("plugin", "school.toml", self._tables) or {}
        self._setup.attempt("governor", "build", lambda: self._build_governor(tables.get("governor") or {}))
        self._setup.attempt("coach", "build", lambda: self._build_coach(tables.get("coach") or {}))
        for name in NAMES:
            self._register_hook(f"hook:{name}", name, self._watcher(name))
        for adviser, hooks in self._advisers.items():
            for name in NAMES:
                self._register_hook(f"{adviser}:{name}", name, answering(hooks, name))
        if self._governor:
            self._step("/governor", self._register_governor_command)
        if self._coach:
            self._step("/coach", self._register_coach_command)
            for tool in self._coach.tools():
                self._step(f"tool:{tool.name}", partial(self._register_tool, tool))
        if os.environ.get(EVENTS_VARIABLE):
            self._step("events", self._register_events)
        self._setup.attempt("plugin", "state", self._write_state)

    def close(self) -> None:
        """Let a review end that is in flight, write what is not yet written, and tell the advisers nothing more."""
        if self._closed:
            return
        self._closed = True
        if self._coach is not None:
            # A review in flight is a note for whoever takes this session up again.
            self._setup.attempt("coach", "finish", self._coach.finish)
        for adviser, one in (("governor", self._governor), ("coach", self._coach)):
            if one is not None:
                self._setup.attempt(adviser, "close", one.close)
        self._setup.attempt("plugin", "state", self._write_state)
        for hooks in self._advisers.values():
            hooks.close()

    # --- building -----------------------------------------------------------------------------------------

    def _step(self, what: str, step: Callable[[], object]) -> None:
        """One registration, and a note that it was made."""

        def made() -> bool:
            step()
            return True

        if self._setup.attempt("plugin", what, made):
            self.registered.append(what)

    def _register_hook(self, what: str, name: str, callback: Callable[..., Any]) -> None:
        self._step(what, lambda: self._ctx.register_hook(name, callback))

    def _register_events(self) -> None:
        """A leaf of the school started this Hermes and wants to know what it does."""
        from school.agents.presets import hermes_events

        hermes_events.register(self._ctx)

    def _tables(self) -> dict[str, dict[str, Any]]:
        """``[governor]`` and ``[coach]`` of ``school.toml`` in the Hermes home."""
        from school.config import FILE_NAME, load_config

        path = self.settings.hermes_home / FILE_NAME
        raw = files.read_bytes(path, follow=True)
        config = load_config(None, raw.decode("utf-8") if raw else None, home_name=str(path))
        return {
            "governor": config.governor.model_dump(exclude_none=True),
            "coach": plain(config.coach),
        }

    def _build_governor(self, table: Mapping[str, Any]) -> None:
        from school.governor import Governor

        governor = Governor(self.settings, table=table)
        self._listen("governor", governor.listen)
        self._governor = governor

    def _build_coach(self, table: Mapping[str, Any]) -> None:
        """The coach, where a model is configured for it."""
        if not table.get("model") or table.get("enabled") is False:
            return
        from school.coach import Coach, read_terms
        from school.hermes.model import HostModel

        terms = read_terms(table)
        mask_secrets((terms.api_key_env,) if terms.api_key_env else ())
        coach = Coach(
            terms,
            HostModel(self._ctx, terms.model, terms.base_url, terms.api_key_env),
            folder=Path(os.environ.get("TERMINAL_CWD") or Path.cwd()),
            settings=self.settings,
            inject=self._inject,
            adjustable=True,
        )
        self._listen("coach", coach.listen)
        self._coach = coach

    def _listen(self, adviser: str, listen: Callable[[Hooks], None]) -> None:
        hooks = Hooks(log=self.settings.advisers_log)
        listen(hooks)
        self._advisers[adviser] = hooks

    def _inject(self, text: str) -> bool:
        return bool(self._ctx.inject_message(text, "user"))

    # --- at Hermes' seam ----------------------------------------------------------------------------------

    def _watcher(self, name: str) -> Callable[..., None]:
        """Counts that *name* was heard: a hook that never fires in this host is a reason to look."""

        def heard(**_event: Any) -> None:  # noqa: ANN401 - Hermes' arguments
            new = name not in self.heard
            self.heard[name] = self.heard.get(name, 0) + 1
            if new or name == "on_session_end":
                self._setup.attempt("plugin", "state", self._write_state)

        return heard

    def _finalized(self, **event: Any) -> None:  # noqa: ANN401 - Hermes' arguments
        session = event.get("session_id")
        if self._governor is not None and isinstance(session, str):
            self._setup.attempt("governor", FINAL, lambda: self._governor.flush(session))

    def _register_governor_command(self) -> None:
        from school.governor import report
        from school.governor.telling import DISABLED, report_text, standing_text

        def answer(raw: str) -> str:
            if not self._governor.terms.enabled:
                return DISABLED
            if str(raw or "").strip() != "report":
                return standing_text(self._governor.standing())
            self._governor.flush()
            return report_text(report.line_of(self.settings))

        self._ctx.register_command(
            "governor",
            self._command("governor", answer),
            description="How the governor sees this session, or its last report",
            args_hint="[report]",
        )

    def _register_coach_command(self) -> None:
        self._ctx.register_command(
            "coach",
            self._command("coach", lambda raw: str(self._coach.command(str(raw or "")))),
            description="The coach of this session: its state, notes and settings",
            args_hint="[set KEY VALUE]",
        )

    def _command(self, adviser: str, answer: Callable[[str], str]) -> Callable[[str], str]:
        """*answer*, which says what went wrong where it cannot answer."""

        def command(raw: str = "") -> str:
            said = self._setup.attempt(adviser, "command", lambda: answer(raw))
            return said if said is not None else self._setup.faults[-1]

        return command

    def _register_tool(self, tool: Any) -> None:  # noqa: ANN401 - the coach's Tool
        self._ctx.register_tool(
            name=tool.name,
            toolset=TOOLSET,
            schema={"name": tool.name, "description": tool.description, "parameters": tool.schema},
            handler=self._handler(tool),
            description=tool.description,
        )

    def _handler(self, tool: Any) -> Callable[..., str]:  # noqa: ANN401 - the coach's Tool
        """The tool's own handler, whose failure is an answer to the model and no failure of Hermes'."""

        def handler(args: Any = None, **told: Any) -> str:  # noqa: ANN401 - Hermes' arguments
            step = partial(tool.handler, args if isinstance(args, dict) else {}, **told)
            said = self._setup.attempt("coach", tool.name, step)
            return said if isinstance(said, str) else json.dumps({"error": "the coach cannot be asked now"})

        return handler

    def _write_state(self) -> None:
        document = {
            "at": clock.now(),
            "pid": os.getpid(),
            "registered": self.registered,
            "heard": dict(sorted(self.heard.items())),
            "problems": self.problems,
        }
        path = self.settings.governor_dir / STATE_NAME
        files.ensure_dir(path.parent)
        files.write_plain(path, files.dumps(document))


def answering(hooks: Hooks, name: str) -> Callable[..., Any]:
    """The callback that asks *hooks* about *name*, and answers as Hermes reads it."""

    def context(**event: Any) -> dict[str, str] | None:  # noqa: ANN401 - Hermes' arguments
        text = hooks.context(**event)
        return {"context": text} if text else None

    def tool_result(result: Any = "", **event: Any) -> str | None:  # noqa: ANN401
        if not isinstance(result, str):
            return None
        text = hooks.tool_result(result, **event)
        return text if text != result else None

    def hold(**event: Any) -> dict[str, str] | None:  # noqa: ANN401
        message = hooks.hold(**event)
        return {"action": "continue", "message": message} if message else None

    def told(**event: Any) -> None:  # noqa: ANN401
        hooks.fire(name, **event)

    known: dict[str, Callable[..., Any]] = {
        "pre_llm_call": context,
        "transform_tool_result": tool_result,
        "pre_verify": hold,
    }
    return known.get(name, told)


def mask_secrets(names: tuple[str, ...]) -> None:
    """Let nothing that we write hold a secret of this process' environment, those of *names* among them.

    What Hermes itself writes is left alone.
    """
    from school import masking

    masking.install(names)


def read_settings() -> Settings:
    """The settings of this process; the Hermes home is the one that Hermes says is in force."""
    return Settings.from_env(_environment())


def harmless_settings() -> Settings:
    """The settings without what was wrong with them: only where the Hermes home is, and the kill switch."""
    environment = _environment()
    kept: dict[str, str] = {}
    kept.update((key, environment[key]) for key in _HARMLESS if key in environment)
    for name in GOVERNOR_VARIABLES.values():
        text = environment.get(name, "").strip()
        if text.isdecimal() and int(text) >= 1:
            kept[name] = text
    return Settings.from_env(kept)


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    try:
        from hermes_constants import get_hermes_home  # type: ignore[import-not-found]
    except ImportError:
        return environment
    return {**environment, "HERMES_HOME": str(get_hermes_home())}


def plain(table: Any) -> dict[str, Any]:  # noqa: ANN401 - a table of the configuration, as data or as a model
    """*table* as what a user wrote."""
    return dict(table) if isinstance(table, Mapping) else dict(table.model_dump(exclude_unset=True))
