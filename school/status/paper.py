"""What a document says to people, as sections of rows of words; how they look is ``render``'s.

``sections_of(name, document)`` knows the documents of ``status``, ``list``, ``show``, ``leaderboard``, ``check`` and
``doctor``. ``plain(sections)`` is the form for pipes: columns two spaces apart, escaped, no colour. Pure, and
standard library only, so that ``status`` in a pipe costs no more than its document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from school.records import receipts
from school.system import clock
from school.wording import printable

_FINDINGS_SHOWN_MAX: Final = 50
_OUTPUT_LINES_MAX: Final = 20
_TEXT_LINES_MAX: Final = 40
_CITED_LINES_MAX: Final = 12
_FAILED_SHOWN_MAX: Final = 3
_SAID_CHARS_MAX: Final = 160
_NOTES_SHOWN_MAX: Final = 40
_NOTE_CHARS_MAX: Final = 300
_QUEUE: Final = ("running", "waiting", "reviewed", "scored", "failed", "blocked", "unreadable")


@dataclass(frozen=True)
class Section:
    """A title, columns and rows; ``empty`` is said where there are none."""

    title: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    empty: str = "none"


def sections_of(name: str, document: Any) -> list[Section]:  # noqa: ANN401 - any of the documents
    makers: dict[str, Callable[[Any], Iterable[Section]]] = {
        "status": _status,
        "list": _list,
        "show": _show,
        "leaderboard": _leaderboard,
        "check": _checks,
        "doctor": _checks,
    }
    return list(makers[name](document))


def plain(sections: Iterable[Section]) -> str:
    """Sections as text: rows in columns, an empty line between sections."""
    return "\n".join(_plain_section(section) for section in sections)


def _plain_section(section: Section) -> str:
    rows = [tuple(printable(cell) for cell in row) for row in section.rows]
    lines = [section.title] if section.title else []
    if not rows:
        return "\n".join([*lines, section.empty]) + "\n"
    shown = [section.columns, *rows] if section.columns else rows
    widths = [
        max(len(row[index]) for row in shown if index < len(row)) for index in range(max(map(len, shown)))
    ]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in shown
    ]
    return "\n".join(lines) + "\n"


# --- status -------------------------------------------------------------------------------------------------


def _status(document: Mapping[str, Any]) -> Iterable[Section]:
    conductors = [
        (str(item["pid"]), item["run"], str(item["round"]), _age(item["since"]), item["repo"])
        for item in document["conductors"]
    ]
    yield Section("conductor", ("pid", "run", "round", "for", "repository"), conductors, "none is at work")
    away = [
        (row["agent"], row["reason"], row["until"] or "not in this run")
        for item in document["conductors"]
        for row in item.get("away") or []
    ]
    if away:
        yield Section("agents that are away", ("agent", "why", "until"), away, "")
    teachers = [
        (
            row["role"],
            str(row["pid"]),
            row["state"],
            row["bead"],
            row["check"],
            _age(row["since"]),
            str(row["reviewed"]),
        )
        for row in document["teachers"]
    ]
    columns = ("role", "pid", "state", "bead", "check", "for", "reviewed")
    yield Section("teachers", columns, teachers, "none is at work")
    leaves = [(row["bead"], str(row["pid"]), row["step"], _age(row["since"])) for row in document["leaves"]]
    yield Section("leaves", ("bead", "pid", "step", "for"), leaves, "none is at work")
    queue = document["queue"]
    counts = [(name, str(queue[name])) for name in _QUEUE if queue.get(name)]
    if queue.get("waiting"):
        counts.append(("for the CTO", str(queue["for_cto"])))
        counts.append(("for the COO", str(queue["for_coo"])))
    if queue.get("for_budget"):
        counts.append(("for a higher limit", str(queue["for_budget"])))
    if queue.get("oldest_wait_s") is not None:
        counts.append(("longest wait", duration(queue["oldest_wait_s"])))
    yield Section("beads", (), counts, "nothing is open")


def _age(stamp: str) -> str:
    try:
        return duration((clock.parse(clock.now()) - clock.parse(stamp)).total_seconds()) if stamp else ""
    except ValueError:
        return ""


def duration(seconds: float) -> str:
    """``7s``, ``3m 05s``, ``2h 10m``, ``4d 3h``."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if not minutes:
        return f"{whole}s"
    if not hours:
        return f"{minutes}m {whole % 60:02d}s"
    return f"{hours}h {minutes % 60:02d}m" if not days else f"{days}d {hours % 24}h"


# --- list, leaderboard, check, doctor -----------------------------------------------------------------------


def _list(rows: Sequence[Mapping[str, Any]]) -> Iterable[Section]:
    columns = ("bead", "task", "state", "outcome", "try", "cto", "coo", "since")
    shown = [
        (
            str(row["bead"]),
            str(row["task_id"]),
            str(row["state"]),
            str(row["outcome"] or "-"),
            str(row["attempt"]),
            str(row["cto_verdict"] or "-"),
            str(row["coo_verdict"] or "-"),
            str(row["timestamp"])[:19].replace("T", " "),
        )
        for row in rows
    ]
    yield Section("", columns, shown, "no bead; `list --all` shows the finished ones too")


def _leaderboard(rows: Sequence[Mapping[str, Any]]) -> Iterable[Section]:
    columns = ("agent", "role", "domain", "score", "accepted", "rejected", "no_change")
    shown = [tuple(str(row[name]) for name in columns) for row in rows]
    yield Section("", columns, shown, "nothing was scored yet")


def _checks(rows: Sequence[Mapping[str, Any]]) -> Iterable[Section]:
    mark = {True: "ok", False: "no", None: "absent"}
    shown = [
        (
            mark[row["ok"]],
            str(row["check"]),
            ": ".join(part for part in (row.get("bead"), row["detail"]) if part),
        )
        for row in rows
    ]
    yield Section("", (), shown)


# --- show ---------------------------------------------------------------------------------------------------


def _show(bag: Mapping[str, Any]) -> Iterable[Section]:
    yield Section(str(bag.get("bead")), (), _facts(bag))
    if history := bag.get("history"):
        rows = [
            (str(step["state"]), str(step["at"])[:19].replace("T", " "), str(step["by"])) for step in history
        ]
        yield Section("history", (), rows)
    if criteria := _criteria(bag):
        yield Section("criteria", (), criteria)
    if lenses := _lenses(bag):
        yield Section("lenses", ("teacher", "lens", "outcome", "receipts", "findings", "why"), lenses)
    if guidance := _guidance(bag):
        yield Section("said beside the task", ("by", "turn", "followed", "what"), guidance)
    ran = [
        receipts.row(role.upper(), item) for role, lens in _judged(bag) for item in lens.get("receipts") or []
    ]
    if ran:
        yield Section("receipts (on: commit/tree/environment)", receipts.COLUMNS, ran)
    yield from _failed_outputs(bag)
    if noted := _noted(bag):
        yield Section("noted: what was tried, left running, or odd", ("whose", "what"), noted)
    # The record has them together once both reviews are in; until then each lens has its own.
    findings = bag.get("findings") or [
        item for _, lens in _judged(bag) for item in lens.get("findings") or []
    ]
    if findings:
        told = [row for item in findings[:_FINDINGS_SHOWN_MAX] for row in _finding(item)]
        yield Section(f"findings ({len(findings)})", (), told)
    if output := str(bag.get("output") or "").strip():
        lines = output.splitlines()[-_OUTPUT_LINES_MAX:]
        yield Section("output (its end)", (), [(line,) for line in lines])


def _noted(bag: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What the student's agent and the commands of the teachers' checks tried or left, each once."""
    rows: list[tuple[str, ...]] = [
        ("student", str(note)[:_NOTE_CHARS_MAX]) for note in bag.get("notes") or []
    ]
    for role, lens in _judged(bag):
        for receipt in lens.get("receipts") or []:
            whose = f"{role.upper()}'s check at {receipt.get('at', '')}"
            rows += [(whose, str(line)[:_NOTE_CHARS_MAX]) for line in receipt.get("refused") or []]
    return list(dict.fromkeys(rows))[:_NOTES_SHOWN_MAX]


def _facts(bag: Mapping[str, Any]) -> list[tuple[str, ...]]:
    agent, score, delivered = bag.get("agent") or {}, bag.get("score") or {}, bag.get("delivered") or {}
    after = f"{score.get('task')} (the agent's is {score.get('after')} now)" if score else ""
    facts = [
        ("state", bag.get("state")),
        ("outcome", bag.get("outcome")),
        ("reason", bag.get("reason")),
        ("waits", _waits(bag)),
        ("task", bag.get("task_id")),
        ("attempt", f"{bag.get('attempt', 1)} of {bag.get('max_attempts', 1)}"),
        ("student", f"{bag.get('student', '')} in {bag.get('domain', '')}, {bag.get('difficulty', '')}"),
        ("agent", " ".join(str(agent[key]) for key in ("name", "model") if agent.get(key))),
        ("text", bag.get("task")),
        ("claim", bag.get("claim")),
        ("evidence", (bag.get("evidence") or {}).get("words")),
        ("summary", bag.get("summary")),
        ("blockers", "; ".join(map(str, bag.get("blockers") or []))),
        ("verdicts", f"CTO {bag.get('cto_verdict') or '-'}, COO {bag.get('coo_verdict') or '-'}"),
        ("score", after),
        ("files", ", ".join(map(str, bag.get("files_changed") or []))),
        ("base", bag.get("base_commit")),
        ("head", bag.get("head_commit")),
        ("ref", bag.get("ref")),
        (
            "withheld",
            bag.get("withheld")
            and f"it holds a {bag['withheld']}: in our own clone until `recover` is asked for it",
        ),
        ("branch", delivered.get("branch")),
        ("repository", bag.get("repo")),
        ("worktree", "" if bag.get("state") in ("BLOCKED", "DISPOSED") else bag.get("worktree")),
    ]
    return [row for name, value in facts if value not in (None, "") for row in _lines(name, str(value))]


def _waits(bag: Mapping[str, Any]) -> str:
    """What a review that the budget stopped waits for."""
    if not any((bag.get(f"{role}_review") or {}).get("short_of") for role in ("cto", "coo")):
        return ""
    from school.review.budget import said

    return f"for a higher limit: {said(bag)}"


def _lines(name: str, text: str) -> list[tuple[str, ...]]:
    """A text of several lines as one row a line, named once."""
    lines = text.splitlines()[:_TEXT_LINES_MAX] or [""]
    return [(name if number == 0 else "", line) for number, line in enumerate(lines)]


def _criteria(bag: Mapping[str, Any]) -> list[tuple[str, ...]]:
    judged = (bag.get("coo_review") or {}).get("criteria") or {}
    return [
        (str(item.get("id")), str(judged.get(item.get("id"), "-")), str(item.get("text")))
        for item in bag.get("acceptance") or []
    ]


def _judged(bag: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Every lens of both reviews, with its teacher."""
    return [
        (role, lens)
        for role in ("cto", "coo")
        for lens in (bag.get(f"{role}_review") or {}).get("lenses") or []
    ]


def _guidance(bag: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What was said to the student beside its task: each on one line, its beginning."""
    return [
        (
            str(entry.get("by")),
            str(entry.get("turn") or "-"),
            "-" if entry.get("followed") is None else "yes" if entry["followed"] else "no",
            " ".join(str(entry.get("text") or entry.get("what") or "").split())[:_SAID_CHARS_MAX],
        )
        for entry in (bag.get("guidance") or [])[:_FINDINGS_SHOWN_MAX]
    ]


def _lenses(bag: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            role.upper(),
            str(lens.get("lens")),
            str(lens.get("outcome")),
            str(len(lens.get("receipts") or [])),
            str(len(lens.get("findings") or [])),
            str(lens.get("reason") or ""),
        )
        for role, lens in _judged(bag)
    ]


def _failed_outputs(bag: Mapping[str, Any]) -> Iterator[Section]:
    """What the checks that could not judge printed last, where no finding cites it; the same output once."""
    seen: set[str] = set()
    for role, lens in _judged(bag):
        unsaid = lens.get("outcome") == "NO_VERDICT" and not lens.get("findings")
        for receipt in lens.get("receipts") or [] if unsaid else []:
            said = str(receipt.get("output") or "").strip()
            if (
                receipt.get("outcome") == "passed"
                or not said
                or said in seen
                or len(seen) == _FAILED_SHOWN_MAX
            ):
                continue
            seen.add(said)
            lines = [(line,) for line in said.splitlines()[-_CITED_LINES_MAX:]]
            yield Section(f"{role.upper()} {receipts.line(receipt)}", (), lines)


def _finding(item: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One finding; a citation of several lines stands below it, its end where it is long."""
    head, said = (str(item.get("severity")), str(item.get("issue_class"))), str(item.get("description") or "")
    cited = [line for line in str(item.get("citation") or "").splitlines() if line.strip()]
    if len(cited) == 1:
        return [(*head, f"{said} [{cited[0]}]")]
    if len(cited) > _CITED_LINES_MAX:
        cited = [cited[0], "…", *cited[2 - _CITED_LINES_MAX :]]
    return [(*head, said), *(("", "", f"  {line}") for line in cited)]
