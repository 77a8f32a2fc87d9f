"""YAML as plain data that remembers where each value stands.

``read_document(path)`` reads one YAML document into a ``Document``: ``data`` (dicts, lists, strings, numbers,
booleans, None), and for every value its line. ``reject(keys, what)`` notes a mistake at the value of *keys*, or
at the closest one around it; ``problems`` holds them all, ``in_order()`` as ``file:line: key: what``.

Stricter than YAML where YAML surprises: a key given twice is a mistake (it is not silently the last), merge keys
and tags are refused, and aliases, depth and size are bounded, so that a small file cannot become a large one.

Raises TaskFileError itself only where there is no document at all: absent, unreadable, too large, not UTF-8,
not YAML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from school.errors import TaskFileError
from school.wording import shown

Key = str | int
BYTES_MAX: Final = 4 * 1024 * 1024
VALUES_MAX: Final = 200_000
_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))


@dataclass
class Document:
    """One YAML document: its data, the line of each value, and the mistakes found in it."""

    path: Path
    data: Any = None
    lines: dict[tuple[Key, ...], int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def line(self, keys: tuple[Key, ...]) -> int:
        """The line, counted from 1, of the value at *keys*, or of the closest value around it."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.lines:
                return self.lines[keys[:end]]
        return 1

    def where(self, keys: tuple[Key, ...]) -> str:
        """``file:line: key`` of the value at *keys*."""
        place = f"{self.path}:{self.line(keys)}"
        return f"{place}: {self._spelt(keys)}" if keys else place

    def reject(self, keys: tuple[Key, ...], what: str) -> None:
        """Note a mistake at *keys*."""
        self.problems.append((self.line(keys), f"{self.where(keys)}: {what}"))

    def in_order(self) -> list[str]:
        """Every mistake, in the order of the file."""
        return [text for _, text in sorted(self.problems, key=lambda item: item[0])]

    def _spelt(self, keys: tuple[Key, ...]) -> str:
        text = ""
        for key in keys:
            text += f"[{key}]" if isinstance(key, int) else f"{'.' * bool(text)}{key}"
        return text


def read_document(path: Path) -> Document:
    """The one YAML document in *path*."""
    text = _text(path)
    document = Document(path=path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            document.data = _Reader(document).value(root, ())
    except yaml.MarkedYAMLError as error:
        raise TaskFileError(f"{path}:{_line(error)}: not YAML: {_reason(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise TaskFileError(f"{path}:{line}: not YAML: a character that YAML does not allow") from None
    except RecursionError:
        raise TaskFileError(f"{path}: nested too deeply") from None
    return document


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise TaskFileError(f"{path}: there is no such task file") from None
    except OSError as error:
        raise TaskFileError(f"{path}: the task file cannot be read: {error.strerror}") from None
    if len(raw) > BYTES_MAX:
        raise TaskFileError(f"{path}: larger than the {BYTES_MAX} bytes a task file may have")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TaskFileError(f"{path}:{line}: not UTF-8 (byte {error.start})") from None


def _line(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return int(mark.line) + 1 if mark else 1


def _reason(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(str(part) for part in (error.context, error.problem) if part)


class _Reader:
    """Turns nodes into data, noting lines; bounded by values, refusing an alias to what encloses it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.left = VALUES_MAX
        self.open: set[int] = set()
        self.scalars = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, keys: tuple[Key, ...]) -> Any:  # noqa: ANN401 - YAML holds anything
        self.document.lines[keys] = node.start_mark.line + 1
        self.left -= 1
        if self.left < 0:
            raise TaskFileError(f"{self.document.path}: more than {VALUES_MAX} values")
        if id(node) in self.open:
            self.document.reject(keys, "an alias cannot stand for what encloses it")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, keys)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, keys)
            return [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]
        finally:
            self.open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode, keys: tuple[Key, ...]) -> Any:  # noqa: ANN401 - see value()
        if node.tag not in _TAGS:
            # A date or a tag of some other program: what the user meant is the text that stands there.
            if node.tag.startswith("tag:yaml.org,2002:timestamp"):
                return node.value
            self.document.reject(keys, f"the tag {shown(node.tag)} has no meaning here")
            return None
        try:
            return self.scalars.construct_object(node)
        except (ValueError, yaml.YAMLError):
            self.document.reject(keys, f"{shown(node.value)} cannot be read as a value; quote it")
            return None

    def _mapping(self, node: yaml.MappingNode, keys: tuple[Key, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str) or key_node.tag == "tag:yaml.org,2002:merge":
                self.document.problems.append((line, f"{self.document.path}:{line}: {_KEY_PROBLEM}"))
                continue
            value = self.value(value_node, (*keys, key))
            self.document.lines[*keys, key] = line
            if key in found:
                self.document.reject((*keys, key), "the key is given twice")
            found[key] = value
        return found


_KEY_PROBLEM: Final = "a key must be a plain word (merge keys are not known here; use `defaults`)"
