"""The task file: what the user asks for, checked before anything is made.

``load_tasks(path, ...)`` reads YAML and either returns a ``TaskFile`` or raises one ``TaskFileError`` that lists
every mistake it can see, each with file, line and key. ``single_task`` makes the same of ``--task`` and its
flags (ConfigError, naming the flag). ``slug(text)`` is the id that ``--task`` gives. ``refuse_unjudgeable`` is
for the caller that knows whether the repository has verify commands and whether a model reviews.

Names that only others know (agents, chores) are checked where the caller hands them in. Whether a repository
already holds a branch that stands in the way is not known here.

``Task.digest`` identifies a definition: a task whose definition changed is another one, due again; where it
stands in the file, and comments, do not count.
"""

from __future__ import annotations

import graphlib
import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from school.contracts import Criterion, Difficulty, Role, Strict
from school.errors import ConfigError, TaskFileError
from school.tasks.marked import Document, Key, read_document
from school.wording import branch_problem, explain, shown, unwritable, words

ID_BYTES_MAX: Final = 120  # the id is part of a file's name, which holds 255 bytes
ATTEMPTS_MAX: Final = 100
SLUG_MAX: Final = 40
DEFAULT_DOMAIN: Final = "general"
DEFAULT_ATTEMPTS: Final = 3
_DOMAIN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
_ARGV_KEYS: Final = frozenset({"run", "check"})
_PROBLEMS_SHOWN: Final = 20


class Accept(Strict):
    """One acceptance criterion as the user writes it; without ``check`` only a model can judge it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    text: str = Field(min_length=1)
    check: list[str] = Field(default_factory=list)


class _Shared(Strict):
    """What a task and the ``defaults`` of a file have in common."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    role: Role | None = None
    domain: str = DEFAULT_DOMAIN
    difficulty: Difficulty = "easy"
    agent: str = ""
    allow: list[str] = Field(default_factory=list)
    preserve: list[Literal["ast", "api"]] = Field(default_factory=list)
    require_exercised: bool = False
    verify: bool | None = None
    max_attempts: int = Field(default=DEFAULT_ATTEMPTS, ge=1, le=ATTEMPTS_MAX)


class Task(_Shared):
    """One task. ``verify: false`` leaves the repository's own checks out; None means that they count."""

    id: str
    task: str = Field(min_length=1)
    run: list[str] = Field(default_factory=list)
    chore: str = ""
    needs: list[str] = Field(default_factory=list)
    accept: list[Accept] = Field(default_factory=list)

    @property
    def student_role(self) -> Role:
        """The role as written; without one, a command is an executor and an agent a coder."""
        return self.role or ("executor" if self.run or self.chore else "coder")

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the definition; keys left at their defaults add nothing to it."""
        definition = self.model_dump(mode="json", exclude_defaults=True)
        return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def criteria(self) -> list[Criterion]:
        """The acceptance criteria as a bookbag holds them."""
        return [
            Criterion(id=f"ac-{number}", text=item.text, check=list(item.check))
            for number, item in enumerate(self.accept, 1)
        ]


@dataclass(frozen=True)
class TaskFile:
    """The tasks in the order of the file, and where each stands (``where``) for messages made later."""

    tasks: list[Task]
    path: Path | None = None
    document: Document | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def get(self, task_id: str) -> Task:
        """The task of that id; KeyError if there is none."""
        found = next((task for task in self.tasks if task.id == task_id), None)
        if found is None:
            raise KeyError(task_id)
        return found

    def where(self, task_id: str, *keys: str | int) -> str:
        """``file:line: tasks[2].accept[0]`` of a task's key, or ``--task`` where there is no file."""
        if self.document is None:
            return "--task"
        index = next(i for i, task in enumerate(self.tasks) if task.id == task_id)
        return self.document.where(("tasks", index, *keys))


def load_tasks(
    path: Path,
    *,
    agents: Collection[str] | None = None,
    chores: Collection[str] | None = None,
    prefix: str = "school/",
) -> TaskFile:
    """The tasks of *path*; TaskFileError lists every mistake with file, line and key."""
    document = read_document(path)
    if not document.problems:
        tasks = _validated(document)
        if not document.problems:
            _check_meaning(document, tasks, prefix)
            _check_names(document, tasks, agents, chores)
            _check_needs(document, tasks)
    if document.problems:
        raise TaskFileError("\n".join(_limited(document.in_order())))
    return TaskFile(tasks=tasks, path=path, document=document)


def _limited(problems: Sequence[str]) -> list[str]:
    rest = len(problems) - _PROBLEMS_SHOWN
    return [*problems[:_PROBLEMS_SHOWN], *([f"… and {rest} more"] if rest > 0 else [])]


# --- form ---------------------------------------------------------------------------------------------------


def _validated(document: Document) -> list[Task]:
    data = document.data
    if data is None:
        document.reject((), "the file is empty; it needs `version: 1` and a list `tasks`")
        return []
    if not isinstance(data, dict):
        document.reject((), "expected a mapping with `version: 1` and a list `tasks`")
        return []
    for key in data.keys() - {"version", "defaults", "tasks"}:
        document.reject((key,), "unknown key; a task file has version, defaults and tasks")
    if data.get("version", 1) != 1 or isinstance(data.get("version"), bool):
        document.reject(("version",), f"{shown(data['version'])} is not known here; this is version 1")
    defaults = _defaults(document, data.get("defaults", {}))
    return _tasks(document, data, defaults)


def _defaults(document: Document, raw: object) -> dict[str, Any]:
    try:
        _Shared.model_validate(raw)
    except ValidationError as error:
        _object_all(document, ("defaults",), error)
        return {}
    return dict(raw) if isinstance(raw, dict) else {}


def _tasks(document: Document, data: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Task]:
    raw = data.get("tasks")
    if not isinstance(raw, list):
        what = "is required: a list of tasks" if "tasks" not in data else "expected a list of tasks"
        document.reject(("tasks",), what)
        return []
    if not raw:
        document.reject(("tasks",), "the list is empty; there is nothing to do")
    found = [_task(document, index, item, defaults) for index, item in enumerate(raw)]
    return [task for task in found if task is not None]


def _task(document: Document, index: int, raw: object, defaults: Mapping[str, Any]) -> Task | None:
    here: tuple[Key, ...] = ("tasks", index)
    if not isinstance(raw, dict):
        document.reject(here, "expected a mapping with at least `id` and `task`")
        return None
    inherited = dict(defaults)
    if "run" in raw or "chore" in raw:
        inherited.pop("agent", None)
    try:
        return Task.model_validate({**inherited, **raw})
    except ValidationError as error:
        _object_all(document, here, error)
        return None


def _object_all(document: Document, here: tuple[Key, ...], error: ValidationError) -> None:
    for item in error.errors(include_url=False):
        keys = item["loc"]
        argv = next((key for key in reversed(keys) if isinstance(key, str)), "") in _ARGV_KEYS
        document.reject((*here, *keys), explain(item, argv=argv))


# --- meaning ------------------------------------------------------------------------------------------------


def id_problem(task_id: str, prefix: str = "school/") -> str:
    """Why *task_id* cannot be an id (it names a branch and a file), or ''."""
    if not task_id:
        return "is empty"
    if len(task_id.encode("utf-8", "surrogatepass")) > ID_BYTES_MAX:
        return f"is longer than {ID_BYTES_MAX} bytes"
    if "/" in task_id or not task_id.isprintable() or task_id.startswith("-"):
        return f"{shown(task_id)} can be no branch and file name: letters, digits and hyphens always can"
    why = branch_problem(prefix + task_id)
    return f"{shown(prefix + task_id)} can be no branch: {why}" if why else ""


def _check_meaning(document: Document, tasks: Sequence[Task], prefix: str) -> None:
    seen: dict[str, int] = {}
    for index, task in enumerate(tasks):
        for keys, what in _task_problems(task, prefix):
            document.reject(("tasks", index, *keys), what)
        folded = unicodedata.normalize("NFC", task.id).casefold()
        if folded in seen:
            other = tasks[seen[folded]]
            same = "is the id" if other.id == task.id else "differs only by case or form from the id"
            line = document.line(("tasks", seen[folded], "id"))
            document.reject(("tasks", index, "id"), f"{shown(task.id)} {same} of the task at line {line}")
        seen.setdefault(folded, index)


def _task_problems(task: Task, prefix: str) -> Iterator[tuple[tuple[Key, ...], str]]:
    if why := id_problem(task.id, prefix):
        yield ("id",), why
    if not task.task.strip():
        yield ("task",), "is empty"
    if not _DOMAIN.fullmatch(task.domain):
        yield ("domain",), f"{shown(task.domain)}: lower-case letters, digits and hyphens, at most 61"
    if task.run and task.chore:
        yield ("chore",), "a task has `run` or `chore`, not both"
    for key in ("run", "chore"):
        if key in task.model_fields_set and not getattr(task, key):
            yield (key,), "is empty"
        if task.agent and getattr(task, key):
            yield ("agent",), f"a task has `agent` or `{key}`, not both"
    for index, pattern in enumerate(task.allow):
        if not pattern.strip() or ".." in pattern.split("/"):
            yield ("allow", index), f"{shown(pattern)} is no pattern of paths inside the repository"
    yield from _argv_problems(task)
    yield from _text_problems(task)


def _argv_problems(task: Task) -> Iterator[tuple[tuple[Key, ...], str]]:
    commands: list[tuple[tuple[Key, ...], list[str]]] = [(("run",), task.run)]
    commands += [(("accept", index, "check"), item.check) for index, item in enumerate(task.accept)]
    for keys, argv in commands:
        if argv and not argv[0]:
            yield (*keys, 0), "the program's name is empty"
        for index, word in enumerate(argv):
            if unwritable(word):
                yield (*keys, index), f"{shown(word)} holds a character that no argument can have"
    for index, item in enumerate(task.accept):
        if "check" in item.model_fields_set and not item.check:
            yield ("accept", index, "check"), "is empty; leave it out where a model is to judge"


def _text_problems(task: Task) -> Iterator[tuple[tuple[Key, ...], str]]:
    texts: list[tuple[tuple[Key, ...], str]] = [(("task",), task.task)]
    texts += [(("accept", index, "text"), item.text) for index, item in enumerate(task.accept)]
    texts += [(("allow", index), pattern) for index, pattern in enumerate(task.allow)]
    for keys, text in texts:
        if character := unwritable(text):
            yield keys, f"holds {character!r}, which is no text"


def _check_names(
    document: Document, tasks: Sequence[Task], agents: Collection[str] | None, chores: Collection[str] | None
) -> None:
    for index, task in enumerate(tasks):
        for key, name, known in (("agent", task.agent, agents), ("chore", task.chore, chores)):
            if name and known is not None and name not in known:
                listed = ", ".join(sorted(known)) or "none is configured"
                document.reject(("tasks", index, key), f"{shown(name)} is no known {key} ({listed})")


def _check_needs(document: Document, tasks: Sequence[Task]) -> None:
    index_of = {task.id: index for index, task in enumerate(tasks)}
    for index, task in enumerate(tasks):
        for position, need in enumerate(task.needs):
            if need not in index_of:
                document.reject(("tasks", index, "needs", position), f"{shown(need)} is no task of this file")
    cycle = find_cycle({task.id: [need for need in task.needs if need in index_of] for task in tasks})
    if cycle:
        document.reject(("tasks", index_of[cycle[0]], "needs"), f"needs go in a circle: {' → '.join(cycle)}")


def find_cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """One circle in *needs*, its first id repeated at the end, or []."""
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        return [str(item) for item in error.args[1]]
    return []


def refuse_unjudgeable(file: TaskFile, *, verifies: bool, model_reviews: bool) -> None:
    """TaskFileError for every criterion or task that nobody could judge, with the ways out named.

    *verifies*: the repository has verify commands. *model_reviews*: a model is configured for the COO.
    """
    if model_reviews:
        return
    problems: list[str] = []
    for task in file:
        problems += [
            f"{file.where(task.id, 'accept', index)}: nobody can judge {shown(item.text)}: give it a `check`"
            " command (--check beside --task), or configure a model under [reviewers.coo]"
            for index, item in enumerate(task.accept)
            if not item.check
        ]
        if not task.accept and not (verifies and task.verify is not False):
            problems.append(
                f"{file.where(task.id)}: nothing could judge this task: give it a criterion with a `check`"
                " (--check), [verify] commands in school.toml, or a model under [reviewers.coo]"
            )
    if problems:
        raise TaskFileError("\n".join(_limited(problems)))


# --- --task -------------------------------------------------------------------------------------------------


def slug(text: str) -> str:
    """An id made of *text*: lower-case letters, digits, hyphens, at most 40.

    White space, hyphens and underscores separate words. Where any other character was dropped, or the end was
    cut, six digits of a digest of the whole text follow, so that two texts seldom share an id.
    """
    folded = unicodedata.normalize("NFKD", text.strip()).lower()
    plain = re.sub(r"[\s_-]+", "-", folded)
    unmarked = "".join(c for c in plain if not unicodedata.combining(c))
    kept = re.sub(r"[^a-z0-9]+", "-", unmarked).strip("-")
    if kept and kept == plain.strip("-") and len(kept) <= SLUG_MAX:
        return kept
    digest = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    head = kept[: SLUG_MAX - 7].rstrip("-") or "task"
    return f"{head}-{digest % 1_000_000:06d}"


def pair_criteria(accept: Sequence[str], checks: Sequence[Sequence[str]]) -> list[Accept]:
    """``--accept`` and ``--check`` as criteria: the n-th text belongs to the n-th command.

    A command without a text is its own text; a text without a command is left for a model.
    """
    paired = []
    for index in range(max(len(accept), len(checks))):
        check = {"check": list(checks[index])} if index < len(checks) else {}
        text = accept[index] if index < len(accept) else " ".join(checks[index]) + " succeeds"
        paired.append(Accept(text=text, **check))
    return paired


def single_task(  # noqa: PLR0913 - one argument a flag of the command line
    text: str,
    *,
    role: str | None = None,
    domain: str | None = None,
    difficulty: str | None = None,
    agent: str | None = None,
    run: str | None = None,
    chore: str | None = None,
    accept: Sequence[str] = (),
    check: Sequence[str] = (),
    max_attempts: int | None = None,
    agents: Collection[str] | None = None,
    chores: Collection[str] | None = None,
    prefix: str = "school/",
) -> TaskFile:
    """``--task TEXT`` and its flags as a task file of one; ConfigError names the flag that is wrong."""
    text = text.encode("utf-8", "backslashreplace").decode() if unwritable(text) else text
    if not text.strip():
        raise ConfigError("--task: the text is empty")
    if any(not item.strip() for item in accept):
        raise ConfigError("--accept: the text is empty")
    given = {"role": role, "domain": domain, "difficulty": difficulty, "agent": agent, "chore": chore}
    fields: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if max_attempts is not None:
        fields["max_attempts"] = max_attempts
    if run is not None:
        fields["run"] = words(run, "--run")
    criteria = pair_criteria(accept, [words(item, "--check") for item in check])
    task = _single({"id": slug(text), "task": text, **fields, "accept": criteria})
    _refuse_flags(task, prefix, {"agent": agents, "chore": chores})
    return TaskFile(tasks=[task])


def _single(fields: dict[str, Any]) -> Task:
    try:
        return Task.model_validate(fields)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        raise ConfigError(f"--{str(item['loc'][0]).replace('_', '-')}: {explain(item)}") from None


def _refuse_flags(task: Task, prefix: str, known: Mapping[str, Collection[str] | None]) -> None:
    for keys, what in _task_problems(task, prefix):
        raise ConfigError(f"--{keys[0]}: {what}")
    for flag, names in known.items():
        name = getattr(task, flag)
        if name and names is not None and name not in names:
            raise ConfigError(f"--{flag}: {shown(name)} is no known {flag} ({', '.join(sorted(names))})")
