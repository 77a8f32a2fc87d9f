"""The two tools that an agent may call: ``coach_consult`` for advice, ``coach_decide`` to have one of its options chosen.

A tool's ``handler(args, **kw)`` gets the model's arguments and, in ``kw``, what the host says; whose session it is comes from
the host alone, whatever the arguments hold. Each counts its own calls a turn. Sessions of subagents are refused unless
``allow_in_subagents``. The answer is always a JSON text: {"advice"} or {"choice", "why"}, or {"error"}.
No errors are raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from school.coach import findings, prompts
from school.coach.asking import Asking
from school.coach.ledger import cut
from school.coach.state import Memory
from school.coach.terms import CoachTerms
from school.contracts import AgentTool
from school.errors import SchoolError
from school.system.clock import Clock

OPTIONS_MIN: Final = 2
OPTIONS_MAX: Final = 8
OPTION_CHARS_MAX: Final = 200
QUESTION_OF_DECISION_CHARS_MAX: Final = 300


class Tools:
    """Makes both tools; see the module."""

    def __init__(
        self,
        memory: Memory,
        asking: Asking,
        terms: Callable[[], CoachTerms],
        clock: Clock,
        session_of: Callable[[Mapping[str, Any]], str],
        refused: Callable[[str], bool],
    ) -> None:
        self._memory = memory
        self._asking = asking
        self._terms = terms
        self._clock = clock
        self._session_of = session_of
        self._refused = refused

    def all(self) -> list[AgentTool]:
        text = {"type": "string", "minLength": 1}
        return [
            AgentTool(
                "coach_consult",
                "Ask a second model that knows this session in short for advice. Use it when stuck or in doubt.",
                _schema({"question": {**text, "maxLength": prompts.QUESTION_CHARS_MAX}}),
                self.consult,
            ),
            AgentTool(
                "coach_decide",
                "Have a second model choose one of your options, with its reason.",
                _schema(
                    {
                        "question": {**text, "maxLength": QUESTION_OF_DECISION_CHARS_MAX},
                        "options": {
                            "type": "array",
                            "minItems": OPTIONS_MIN,
                            "maxItems": OPTIONS_MAX,
                            "items": {**text, "maxLength": OPTION_CHARS_MAX},
                        },
                    }
                ),
                self.decide,
            ),
        ]

    def consult(self, args: Mapping[str, Any], **kw: Any) -> str:  # noqa: ANN401 - whatever a host says
        """Advice on the question in *args*."""
        question = findings.text_of(args.get("question"), prompts.QUESTION_CHARS_MAX)
        if not question:
            return _said(error="question: a text is needed")
        return self._called("consult", self._session_of(kw), question, _advice)

    def decide(self, args: Mapping[str, Any], **kw: Any) -> str:  # noqa: ANN401
        """One of the options in *args*."""
        question = findings.text_of(args.get("question"), QUESTION_OF_DECISION_CHARS_MAX)
        options = _options(args.get("options"))
        if not question or not OPTIONS_MIN <= len(options) <= OPTIONS_MAX:
            return _said(error=f"a question and {OPTIONS_MIN} to {OPTIONS_MAX} different options are needed")
        numbered = "\n".join(f"{number}. {option}" for number, option in enumerate(options, 1))
        return self._called(
            "decide",
            self._session_of(kw),
            f"{question}\n{numbered}",
            lambda answer: _choice(answer, options),
        )

    def _called(
        self,
        kind: str,
        session_id: str,
        question: str,
        read: Callable[[Mapping[str, Any]], dict[str, Any] | None],
    ) -> str:
        try:
            return self._asked(kind, session_id, question, read)
        except SchoolError as cause:
            return _said(error=f"the coach cannot answer: {cause}")

    def _asked(
        self,
        kind: str,
        session_id: str,
        question: str,
        read: Callable[[Mapping[str, Any]], dict[str, Any] | None],
    ) -> str:
        if not session_id:
            return _said(error="the host does not say whose session this is")
        if self._refused(session_id):
            return _said(error="the coach does not answer subagents")
        terms = self._terms()
        with self._memory.session(session_id) as state:
            refused = self._asking.refusal(state) or self._over_cap(kind, state.calls)
            if refused:
                state.tell_once(self._clock.now(), "skipped", f"{kind}: {refused}")
                return _said(error=f"the coach does not answer: {refused}")
            state.calls[kind] = state.calls.get(kind, 0) + 1
        asked = prompts.composed(kind, terms, state.note, state.turns().turns, question=question)
        said = asked and self._asking.ask(session_id, kind, *asked, terms.consult_timeout_s)
        answer = findings.parse_object(said) if said else None
        given = read(answer) if answer is not None else None
        with self._memory.session(session_id) as state:
            if given is None:
                if said:
                    state.tell(self._clock.now(), "error", source=kind, title="nonsense")
                return _said(error="the coach gave no usable answer")
            body = cut(" ".join(str(part) for part in given.values()), findings.BODY_CHARS_MAX)
            state.tell(self._clock.now(), kind, title=cut(question, 80), body=body, delivered=True)
        return _said(**given)

    def _over_cap(self, kind: str, calls: Mapping[str, int]) -> str:
        terms = self._terms()
        most = terms.consult_per_turn if kind == "consult" else terms.decide_per_turn
        return f"{most} calls a turn are the most" if calls.get(kind, 0) >= most else ""


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _options(value: object) -> list[str]:
    rows = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else []
    texts = [findings.text_of(row, OPTION_CHARS_MAX) for row in rows]
    return list(dict.fromkeys(text for text in texts if text))


def _advice(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    text = findings.text_of(answer.get("advice"), prompts.QUESTION_CHARS_MAX)
    return {"advice": text} if text else None


def _choice(answer: Mapping[str, Any], options: Sequence[str]) -> dict[str, Any] | None:
    number = answer.get("choice")
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= len(options):
        return None
    return {
        "choice": options[number - 1],
        "why": findings.text_of(answer.get("why"), findings.BODY_CHARS_MAX),
    }


def _said(**answer: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(answer, ensure_ascii=False)
