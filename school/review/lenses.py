"""What a lens asks a model, and everything that it shows it: one question, the task, the evidence, the whole change.

``Material.of(context, lens)`` gathers it once per lens; ``material.system(soul)`` and ``material.prompt(part, criteria)``
are the two texts of a call. ``material.parts`` is the whole change in pieces that fit into a call, small files first so
that no lock file stands before a line that matters; one huge file is cut at line ends, and its pieces come last. What did
not fit into ``PARTS_MAX`` pieces, or cannot be read, is named in ``material.left_out``: whoever asks may not pass it.

The other teacher's review is never among it. Everything that the student or its programs wrote is fenced data (see
``fence``). A binary file is shown as git shows it, by its name and objects, and named in ``material.binary``.

Errors: ``GitError`` when the clone lacks what the bag names.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from school.changes import Change, listing_of_commits
from school.contracts import READ_ONLY_ROLES, CheckContext, CheckResult, Criterion, Receipt, bounded
from school.review.answer import form, schema
from school.review.fence import Fence
from school.system.git import Git

PART_BYTES: Final = 128_000
PARTS_MAX: Final = 16
STAT_BYTES_MAX: Final = 16_000
EVIDENCE_BYTES_MAX: Final = 32_000
RECEIPTS_BYTES_MIN: Final = 8_000
MEMORY_BYTES_MAX: Final = 8_000
_TAIL_BYTES: Final = 1_500
_CONTEXT_LINES: Final = 10
_HUNK: Final = b"@@ "

QUESTIONS: Final[Mapping[str, str]] = {
    "CORRECTNESS": (
        "Does this change do what the task says, for every input that matters (empty, one, many, of the wrong type, too "
        "large, non-ASCII, concurrent, interrupted), and does everything that worked before still work? Read each "
        "changed line; follow each changed name to its callers as far as you can see them. Does the evidence below really "
        "exercise the lines that changed?"
    ),
    "SECURITY": (
        "Can anybody run, read, write or learn through an added line what they should not? Look for injected commands "
        "and queries, paths out of the tree, unsafe deserialisation, code fetched or decoded and run, secrets, checks "
        "weakened or bypassed, back doors, hidden in a small file beside a large one or in a dependency, a test, a build "
        "script or a configuration."
    ),
    "COMPLETENESS": (
        "Was everything done that was asked, and nothing that was not? Go through the task word by word and through the "
        "criteria one by one. Unfinished work (placeholders, stubs, left for later, commented out, a cut answer) is a "
        "finding whatever the summary says; so is a change of behaviour that nobody asked for."
    ),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the change."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """What one lens shows."""

    lens: str
    bag: Mapping[str, Any]
    stat: str
    parts: tuple[Part, ...]
    found: str
    receipts: str
    memory: str
    left_out: tuple[str, ...] = ()
    binary: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = field(default=())

    @classmethod
    def of(cls, context: CheckContext, lens: str) -> Material:
        """The material of *lens* for the change that *context* is about."""
        bag = context.bag
        git, base, head = Git(context.clone), str(bag["base_commit"]), str(bag["head_commit"])
        change = Change.of(git, base, head)
        parts, left_out = parts_of(change)
        found, receipts = _evidence(context)
        return cls(
            lens=lens,
            bag=bag,
            stat=bounded(listing_of_commits(git, base, head), STAT_BYTES_MAX),
            parts=tuple(parts),
            found=found,
            receipts=receipts,
            memory=bounded(context.memory, MEMORY_BYTES_MAX),
            left_out=tuple(left_out),
            binary=tuple(file.path for file in change.files if file.binary),
            criteria=tuple(Criterion.model_validate(c) for c in bag.get("acceptance") or []),
        )

    @property
    def asked(self) -> list[str]:
        """The criteria that only a reader can judge, where this lens is the one that does."""
        return [c.id for c in self.criteria if not c.check] if self.lens == "COMPLETENESS" else []

    @property
    def evidence(self) -> str:
        """What was run and found: the findings first, since the receipts may be many."""
        return "\n".join(filter(None, [self.found, self.receipts])) or "no check was run"

    def shown(self, part: Part) -> str:
        """All data of a call that anybody but us wrote."""
        return "\n".join([part.text, self.stat, self.evidence, *self._said()])

    def quotable(self, part: Part) -> str:
        """What a quote may come from that shows something: the change and the receipts, and never a claim.

        Of a student that may change nothing the answer is its work.
        """
        work = [str(self.bag.get("output") or "")] if self.bag.get("student") in READ_ONLY_ROLES else []
        return "\n".join([part.text, self.receipts, *work])

    def system(self, soul: str, fence: Fence) -> str:
        """Who the model is, and what it must never take for an instruction."""
        return (
            f"{soul.strip()}\n\n# This request\n\nYou are asked about one lens only: {self.lens}. You have no tools, nobody "
            f"answers questions, and this request is all there is.\n\n{fence.rule}\n\n{form(self.asked)}\n"
        )

    def prompt(self, number: int, fence: Fence, *, stricter: str = "") -> str:
        """The request about part *number*; *stricter* says why the answer before could not be used."""
        part = self.parts[number]
        blocks = [
            f"# The question\n\n{QUESTIONS[self.lens]}",
            "# The task that was given\n\n" + fence("the task, as its author wrote it", self._task()),
            self._criteria(fence),
            "# What the student says (a claim, not evidence)\n\n" + fence("claim", "\n".join(self._said())),
            self._remembered(fence),
            "# Evidence: what was run on exactly this tree, and what the checks found\n\n"
            + fence("receipts and findings of the deterministic checks", self.evidence),
            "# The whole change, by its size\n\n" + fence("what was changed, file by file", self.stat),
            self._heading(number) + fence("diff", part.text or "nothing was changed"),
            f"# Your answer\n\nThe lens is {self.lens}: {QUESTIONS[self.lens]}\n\n{form(self.asked)}",
            stricter
            and _STRICTER.format(
                why=fence("what was wrong", stricter),
                schema=json.dumps(schema(self.asked), ensure_ascii=False),
            ),
        ]
        return "\n\n".join(block for block in blocks if block) + "\n"

    def _heading(self, number: int) -> str:
        if len(self.parts) == 1:
            return "# The whole change\n\n"
        return (
            f"# The change, part {number + 1} of {len(self.parts)}\n\nThe other parts are judged by calls of their own. Judge "
            "what this part shows; what it merely does not show is no finding"
            + (", and a criterion that it says nothing of is `unjudged` here" if self.asked else "")
            + ".\n\n"
        )

    def _task(self) -> str:
        terms = self.bag.get("terms") or {}
        allowed = (
            f"\n\nOnly these paths may change: {', '.join(terms['allow'])}" if terms.get("allow") else ""
        )
        kept = f"\n\nTo be preserved: {', '.join(terms['preserve'])}" if terms.get("preserve") else ""
        return f"{self.bag.get('task') or ''}{allowed}{kept}"

    def _criteria(self, fence: Fence) -> str:
        if not self.criteria:
            return ""
        lines = [
            f"- {c.id}: {c.text}"
            + (f" (run as `{shlex.join(c.check)}`; see the evidence)" if c.check else "")
            for c in self.criteria
        ]
        return "# Acceptance criteria\n\n" + fence("criteria, as their author wrote them", "\n".join(lines))

    def _said(self) -> list[str]:
        bag = self.bag
        said = [f"claim: {bag.get('claim') or 'done'}", f"summary: {bag.get('summary') or ''}"]
        said += [f"blocker: {blocker}" for blocker in bag.get("blockers") or []]
        # Of a student that may change nothing the answer is the work; of others it is only what was printed.
        output = str(bag.get("output") or "")
        reads_only = bag.get("student") in ("searcher", "reviewer") or not bag.get("files_changed")
        said.append("output:\n" + (output if reads_only else bounded(output, 4_000)))
        return said

    def _remembered(self, fence: Fence) -> str:
        if not self.memory:
            return ""
        return "# What you remember of earlier reviews\n\n" + fence(
            "your digest of earlier beads", self.memory
        )


_STRICTER: Final = (
    "# Once more\n\nYour last answer to this request could not be used:\n\n{why}\n\nThere is no third time. Write exactly one "
    "JSON object in the form above: begin with an opening brace, end with the closing one, nothing around it. This is its "
    "JSON Schema:\n\n{schema}"
)


# --- the change in parts ----------------------------------------------------------------------------------


def parts_of(
    change: Change, *, part_bytes: int = PART_BYTES, parts_max: int = PARTS_MAX
) -> tuple[list[Part], list[str]]:
    """The whole change in parts, small files first, and what is in none of them."""
    sections = [(file.path, section) for file, section in change.sections(context=_CONTEXT_LINES)]
    left_out = [f"{path} (too large to be read)" for path, section in sections if section is None]
    readable = sorted(
        ((path, section) for path, section in sections if section is not None),
        key=lambda item: (len(item[1]), item[0]),
    )
    parts: list[Part] = []
    names: list[str] = []
    text = b""
    for name, piece in _pieces(readable, part_bytes):
        if text and len(text) + len(piece) > part_bytes:
            parts.append(_part(text, names))
            text, names = b"", []
        text, names = text + piece, [*names, name]
    if text or not parts:
        parts.append(_part(text, names))
    return parts[:parts_max], [*left_out, *(name for part in parts[parts_max:] for name in part.names)]


def _part(text: bytes, names: Sequence[str]) -> Part:
    return Part(text.decode("utf-8", "backslashreplace"), tuple(names))


def _pieces(sections: Sequence[tuple[str, bytes]], part_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Each section whole, or one that is larger than a part cut at line ends, its header before each piece."""
    for path, section in sections:
        if len(section) <= part_bytes:
            yield path, section
            continue
        at = section.find(b"\n" + _HUNK) + 1
        header = section[: min(at, part_bytes // 4)]
        bodies = list(_slices(section[len(header) :], part_bytes - len(header) - 200))
        for number, body in enumerate(bodies, 1):
            where = f"[piece {number} of {len(bodies)} of this file]\n".encode()
            yield f"{path} (piece {number} of {len(bodies)})", header + where + body


def _slices(body: bytes, size: int) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        end = min(start + size, len(body))
        if end < len(body):
            newline = body.rfind(b"\n", start, end)
            end = newline + 1 if newline > start else end
        yield body[start:end]
        start = end


# --- the evidence -----------------------------------------------------------------------------------------


def _evidence(context: CheckContext) -> tuple[str, str]:
    """What the checks that ran before found, and their receipts."""
    lines: list[str] = []
    # Another lens' model is no evidence: each lens judges for itself.
    earlier = [result for result in context.earlier if not result.by]
    for result in earlier:
        lines.append(f"check {result.name} ({result.lens}): {_outcome(result)}")
        lines += [
            f"  finding {f.severity} {f.issue_class}: {f.description} [{f.citation}]" for f in result.findings
        ]
        lines += [f"  note: {note}" for note in result.notes]
    receipts = [line for result in earlier for receipt in result.receipts for line in _receipt(receipt)]
    found = bounded("\n".join(lines), EVIDENCE_BYTES_MAX - RECEIPTS_BYTES_MIN)
    return found, bounded("\n".join(receipts), EVIDENCE_BYTES_MAX - len(found.encode()))


def _outcome(result: CheckResult) -> str:
    if result.no_verdict:
        return f"could not judge: {result.no_verdict}"
    return f"{len(result.findings)} findings" if result.findings else "nothing found"


def _receipt(receipt: Receipt) -> list[str]:
    counts = ", ".join(f"{count} {name}" for name, count in receipt.tests.items())
    head = (
        f"receipt {receipt.check} at {receipt.at}: `{shlex.join(receipt.argv)}` {receipt.outcome}, exit "
        f"{receipt.exit_code}" + (f" [{counts}]" if counts else "")
    )
    failed = receipt.outcome not in ("passed", "not_run")
    tail = bounded(receipt.output, _TAIL_BYTES) if receipt.output and failed else ""
    return [head, *(f"    {line}" for line in tail.splitlines())]
