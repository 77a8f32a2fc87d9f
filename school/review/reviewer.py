"""A model's lens as a check: asked once a part, its answer read whole or not at all, its findings added to the others.

``ModelLens(role, lens, …)`` is a ``contracts.Check`` that is ``due`` only where the bag's terms name a reviewer for its
role. ``asks`` makes the model from its AgentSpec; ``soul`` is the teacher's persona. For each part of the change one
independent call, and one stricter retry where the answer could not be used. What comes of it:

- every finding stands, from whichever part; a model can only add to what the checks found;
- a criterion without a check is met where a part shows it and none speaks against it, with a quote that means something
  and really stands in the change or in a receipt; unmet makes a HIGH finding;
- ``no_verdict``, with the reason, for each part without a usable answer, for whatever was not shown, where the model
  says that it cannot tell, and where it cannot be asked (``retry_at`` is its reset, where stated). Never a PASS;
- a review that changed its worktree is void: nothing of it counts;
- the student's own model is noted, or declined where the terms require another.

Before each call the bead's budget is asked (``budget.left_of``): one whose prompt alone would go beyond it is not made, and there
is no verdict; ``short_of`` says what it would have taken. Two teachers at once may together go beyond it, each by what it was
not yet told of the other. Each call has ``timeout_s``; while it is waited for, the teacher is told that work goes on, and a stop
is obeyed.
Errors: what ``asks`` and git raise; the caller takes it for no verdict.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from school.contracts import (
    AgentSpec,
    Answer,
    Asks,
    CheckContext,
    CheckResult,
    Finding,
    ReviewerTerms,
    TeacherRole,
)
from school.review import budget
from school.review.answer import QUOTE_CHARS_MIN, Reading, SaidCriterion, read
from school.review.fence import Fence, visible
from school.review.lenses import Material, Part
from school.review.verdicts import usage_sum
from school.system import clock
from school.wording import printable

Makes = Callable[[AgentSpec, CheckContext], Asks]

# An Asks keeps its own time; this much later it is given up on all the same.
GRACE_S: Final = 10.0
TICK_S: Final = 0.25
PROGRESS_S: Final = 2.0
REASON_CHARS_MAX: Final = 500
CHARS_PER_TOKEN: Final = 4
ANSWER_TOKENS_MIN: Final = 16
# A model that is away will not be there again in a second.
WAITS_S: Final = {"quota": 60.0, "unavailable": 10.0, "timeout": 5.0}
# Of a quote's characters so many must be letters or digits: a row of dashes stands in every file.
QUOTE_WORD_CHARS_MIN: Final = 8
_NO_QUOTE: Final = f"the evidence is no quote of at least {QUOTE_CHARS_MIN} characters from the diff or a receipt (a claim shows nothing)"
_CANCELLED: Final = "cancelled"
VOID: Final = "worktree_changed"


def reviewer_of(bag: Mapping[str, Any], role: TeacherRole) -> ReviewerTerms | None:
    """Who is to judge for *role* beside the checks; None where nobody is."""
    raw = ((bag.get("terms") or {}).get("reviewers") or {}).get(role)
    terms = ReviewerTerms.model_validate(raw) if raw else None
    return terms if terms is not None and (terms.agent or terms.model) else None


def spec_of(terms: ReviewerTerms) -> AgentSpec:
    """The reviewer complete: its agent with the terms' model, or a model alone."""
    if terms.agent is None:
        return AgentSpec(name="reviewer", kind="model", model=terms.model)
    return terms.agent.model_copy(update={"model": terms.model}) if terms.model else terms.agent


def same_model(student: Mapping[str, Any], reviewer: AgentSpec) -> bool:
    """Whether both are one model, as far as their configuration tells; a chore has none."""
    if student.get("kind", "run") == "run":
        return False
    mine, theirs = _bare(reviewer.model), _bare(str(student.get("model") or ""))
    if mine or theirs:
        return mine == theirs
    return bool(reviewer.argv) and list(student.get("argv") or []) == reviewer.argv


def _bare(model: str) -> str:
    """A model's own name, whoever serves it."""
    return re.split(r"[:/]", model.strip().lower())[-1]


@dataclass(slots=True)
class ModelLens:
    """One lens of one role, judged by a model."""

    role: TeacherRole
    lens: str
    asks: Makes
    soul: Callable[[], str]
    timeout_s: float
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"model-{self.lens.lower()}"

    def due(self, bag: Mapping[str, Any]) -> bool:
        """Whether a model is to judge *bag* at all."""
        return reviewer_of(bag, self.role) is not None

    def __call__(self, context: CheckContext) -> CheckResult:
        terms = reviewer_of(context.bag, self.role)
        assert terms is not None
        spec = spec_of(terms)
        result = CheckResult(self.name, self.lens, by=spec.model or spec.name)
        if why := self._declines(spec, terms, context.bag, result):
            result.no_verdict = why
            return result
        material = Material.of(context, self.lens)
        talk = _Talk(self, context, material, self.asks(spec, context), result)
        talk.run()
        return result

    def _declines(
        self, spec: AgentSpec, terms: ReviewerTerms, bag: Mapping[str, Any], result: CheckResult
    ) -> str:
        """Why this reviewer cannot be used, in a sentence; '' when it can. What is merely unwise is noted."""
        if spec.kind not in ("model", "command"):
            return (
                f'declined: a reviewer is of kind "model" or "command", and {spec.name} of kind "{spec.kind}"'
            )
        if spec.kind == "model" and not spec.model:
            return f"declined: the reviewer {spec.name} names no model"
        if same_model(bag.get("agent") or {}, spec):
            said = f"{spec.model or spec.name} is the student's own model"
            if terms.require_distinct_model:
                return f"declined: {said}, and require_distinct_model is set"
            result.notes.append(f"{said}; another one would see more")
        return ""


@dataclass(slots=True)
class _Talk:
    """One lens' calls about one change."""

    check: ModelLens
    context: CheckContext
    material: Material
    asks: Asks
    result: CheckResult
    reasons: list[str] = field(default_factory=list)
    used: list[Mapping[str, Any]] = field(default_factory=list)
    judged: list[SaidCriterion] = field(default_factory=list)

    def run(self) -> None:
        """Ask about every part, until one shows that nobody can be asked."""
        material, result = self.material, self.result
        for number in range(len(material.parts)):
            if not self._part(number):
                break
        if material.left_out:
            shown = ", ".join(map(printable, material.left_out[:5]))
            more = f" and {len(material.left_out) - 5} more" if len(material.left_out) > 5 else ""  # noqa: PLR2004
            self.reasons.append(f"the change is too large to be shown whole; not seen: {shown}{more}")
        result.notes += [f"shown by name only, binary: {printable(path)}" for path in material.binary[:20]]
        if len(material.parts) > 1:
            result.notes.append(f"reviewed in {len(material.parts)} parts")
        self._criteria()
        result.usage = usage_sum(self.used)
        result.no_verdict = "; ".join(self.reasons)

    def _part(self, number: int) -> bool:
        """One part, asked about and understood; False when asking further is of no use."""
        part = self.material.parts[number]
        where = f"part {number + 1} of {len(self.material.parts)}: " if len(self.material.parts) > 1 else ""
        reading, answer = self._asked(number, part, where, stricter="")
        if reading is not None and reading.wrong:
            reading, answer = self._asked(number, part, where, stricter=reading.wrong)
        if reading is None:
            self._unanswered(answer, where)
            return False
        if reading.wrong:
            self.reasons.append(f"{where}its answer could not be used, twice: {_short(reading.wrong)}")
            return True
        self.result.findings += reading.findings
        self.judged += reading.criteria
        if reading.outcome == "NO_VERDICT":
            self.reasons.append(f"{where}{self.result.by} cannot tell: {_short(reading.reason)}")
        return True

    def _unanswered(self, answer: Answer, where: str) -> None:
        self.reasons.append(f"{where}{answer.reason}: {_short(answer.detail)}")
        self.result.retry_at = answer.retry_at or _later(answer.reason)
        if answer.reason == VOID:
            self.result.findings, self.judged = [], []
            self.reasons = [f"the review is void: {_short(answer.detail)}"]

    def _asked(self, number: int, part: Part, where: str, *, stricter: str) -> tuple[Reading | None, Answer]:
        """One call: what was read of its answer, or None where there is no answer to read."""
        material, step = self.material, f"{self.check.name}: asking {self.result.by} {where}".rstrip(": ")
        fence = Fence.around([material.shown(part), str(material.bag.get("task")), material.memory, stricter])
        system = material.system(self.check.soul(), fence)
        prompt = material.prompt(number, fence, stricter=stricter)
        if why := self._beyond((len(system) + len(prompt)) // CHARS_PER_TOKEN + ANSWER_TOKENS_MIN):
            return None, Answer(reason="budget", detail=why)
        answer = self._waited(system, prompt, step + (", once more" if stricter else ""))
        self.used += [answer.usage] if answer.usage else []
        self.result.by = answer.model or self.result.by
        if answer.reason == "cut":
            return Reading(wrong="it was cut off at the limit of an answer; be shorter"), answer
        if answer.reason:
            return None, answer
        reading = read(answer.text, section=self.check.name, criteria=material.asked)
        return self._with_real_quotes(reading, part), answer

    def _beyond(self, needed: int) -> str:
        """Why a call that takes *needed* tokens at least may not be made; '' where it may."""
        earlier = [result.usage for result in self.context.earlier if result.usage]
        tokens, cost = budget.left_of(self.context.bag, [*earlier, *self.used])
        if tokens >= needed and cost > 0:
            return ""
        self.result.short_of = {"tokens": needed, "cost_usd": 0.0}
        left = "cost_usd: 0" if cost <= 0 else f"tokens: {max(tokens, 0):.0f}"
        return f"[limits] {left} are left, too few to ask"

    def _with_real_quotes(self, reading: Reading, part: Part) -> Reading:
        """*reading*, unless it calls a criterion met by a quote that stands nowhere."""
        quotable = _plain(visible(self.material.quotable(part)))
        for criterion in reading.criteria:
            if criterion.state == "met" and not _quoted(criterion.evidence, quotable):
                return Reading(wrong=f"criteria: {criterion.id}: {_NO_QUOTE}")
        return reading

    def _waited(self, system: str, prompt: str, step: str) -> Answer:
        """The answer, with a sign of life while it is waited for; a stop and the time limit are obeyed."""
        answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        timeout_s = self.check.timeout_s

        def call() -> None:
            try:
                answers.put(self.asks(system, prompt, timeout_s=timeout_s))
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
                answers.put(error)

        threading.Thread(target=call, name=self.check.name, daemon=True).start()
        begun = said = clock.monotonic()
        self.context.progress(step)
        while True:
            try:
                answer = answers.get(timeout=TICK_S)
            except queue.Empty:
                now = clock.monotonic()
                if self.context.cancelled is not None and self.context.cancelled():
                    return Answer(reason=_CANCELLED, detail="the teacher was told to stop")
                if now - begun > timeout_s + GRACE_S:
                    return Answer(reason="timeout", detail=f"no answer within {timeout_s:g} s")
                if now - said >= PROGRESS_S:
                    self.context.progress(step)
                    said = now
                continue
            if isinstance(answer, BaseException):
                raise answer
            return answer

    def _criteria(self) -> None:
        """What all parts together say of each criterion that was asked about."""
        texts = {criterion.id: criterion.text for criterion in self.material.criteria}
        for asked in self.material.asked:
            said = [criterion for criterion in self.judged if criterion.id == asked]
            states = {criterion.state for criterion in said}
            state = "unmet" if "unmet" in states else "met" if "met" in states else "unjudged"
            self.result.criteria[asked] = state
            evidence = next((c.evidence for c in said if c.state == state), "")
            if state == "unmet":
                self.result.findings.append(self._unmet(asked, texts[asked], evidence))
            elif state == "unjudged":
                why = _short(evidence) or "there is no usable answer"
                self.reasons.append(f"criterion {asked} is unjudged: {why}")
            else:
                self.result.notes.append(f"{asked} is met: {_short(evidence)}")

    def _unmet(self, name: str, text: str, evidence: str) -> Finding:
        return Finding(
            section=self.check.name,
            severity="HIGH",
            issue_class="criterion_unmet",
            description=printable(f"Criterion {name} is not met: {text} ({_short(evidence)})"),
            suggestion="Do what the criterion says.",
        )


def _later(reason: str) -> str:
    """When one that cannot be asked now, and does not say until when, may be asked again; '' for no longer wait."""
    wait_s = WAITS_S.get(reason)
    return "" if wait_s is None else (clock.parse(clock.now()) + timedelta(seconds=wait_s)).isoformat()


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= REASON_CHARS_MAX else line[: REASON_CHARS_MAX - 1] + "…"


def _plain(text: str) -> str:
    """*text* as one line without the marks of a diff, so that a quote of several lines is found."""
    return " ".join(" ".join(line.lstrip("+-> ").split()) for line in text.splitlines())


def _quoted(evidence: str, quotable: str) -> bool:
    """Whether *evidence* holds something that means something and really stands in *quotable*."""
    quotes = re.findall(r"`+([^`]+)`+", evidence) + re.findall(r"\"([^\"]+)\"", evidence)
    candidates = [_plain(quote) for quote in [evidence, *evidence.splitlines(), *quotes]]
    return any(_means_something(quote) and quote in quotable for quote in candidates)


def _means_something(quote: str) -> bool:
    return len(quote) >= QUOTE_CHARS_MIN and sum(map(str.isalnum, quote)) >= QUOTE_WORD_CHARS_MIN
