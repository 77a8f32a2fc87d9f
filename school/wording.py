"""What is wrong with what a user typed, in words: names that git refuses, values of the wrong kind.

``branch_problem(name)`` says why git could not have a branch of that name, or ''. It decides by the rules of
``git check-ref-format --branch`` plus the length that a loose ref's lock file allows; it does not know what else
lies in a repository. ``words(text, flag)`` splits one command-line string as a shell would split words.
``explain(error)`` turns one pydantic error into a sentence that says what was expected, what was found, and
where it helps, what to write instead. ``printable(text)`` is what may be shown of somebody else's text. Only
``words`` raises (ConfigError).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from school.errors import ConfigError
from school.system import redaction

_REFUSED: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")
COMPONENT_BYTES_MAX: Final = 250  # a loose ref is made through "<name>.lock", and a file name holds 255 bytes
_SHOWN_CHARACTERS: Final = 60


def branch_problem(name: str) -> str:
    """Why git cannot have a branch called *name*, or ''."""
    if not name or name in {"@", "HEAD"} or name.startswith("-"):
        return "git has no branch of that name"
    found = _REFUSED.search(name)
    if found:
        return f"git refuses {found.group()!r} in a branch name"
    for part in ("..", "@{", "//"):
        if part in name:
            return f"git refuses {part!r} in a branch name"
    if name.endswith((".", "/")) or name.startswith("/"):
        return "a branch name cannot begin with '/' nor end with '/' or '.'"
    return next((why for part in name.split("/") if (why := _component_problem(part))), "")


def _component_problem(part: str) -> str:
    if part.startswith(".") or part.endswith(".lock"):
        return f"git refuses {part!r} in a branch name (it begins with '.' or ends with '.lock')"
    if len(part.encode("utf-8", "surrogatepass")) > COMPONENT_BYTES_MAX:
        return f"it is longer than the {COMPONENT_BYTES_MAX} bytes that a file name leaves for a branch"
    return ""


def unwritable(text: str) -> str:
    """The first character of *text* that no record, argv or commit can hold (NUL, a lone surrogate), or ''."""
    return next((c for c in text if c == "\0" or "\ud800" <= c <= "\udfff"), "")


def printable(text: str) -> str:
    """*text* on one line, every control, bidirectional or undecodable character escaped, secrets taken out."""
    shown = redaction.text(text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def words(text: str, flag: str) -> list[str]:
    """*text* as an argv, split like a shell splits words; ConfigError names *flag*."""
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{flag} {shown(text)}: {error}") from None
    if not argv or not argv[0]:
        raise ConfigError(f"{flag} {shown(text)}: an empty command")
    return argv


def shown(value: object) -> str:
    """*value* for a message: short, on one line, nothing raw."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def kind(value: object) -> str:
    """What a user would call *value*: its kind and what it is."""
    names = {dict: "a mapping", list: "a list", str: "a string", bool: "a boolean", int: "a number"}
    if value is None:
        return "nothing"
    name = names.get(type(value)) or ("a number" if isinstance(value, float) else type(value).__name__)
    return name if isinstance(value, dict | list) else f"{name} ({shown(value)})"


_PLAIN: Final = {
    "missing": "is required",
    "extra_forbidden": "unknown key",
    "string_unicode": "holds a character that is no text",
    "string_too_short": "is empty",
}
_EXPECTED: Final = {
    "string_type": "a string",
    "string_sub_type": "a string",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


def explain(error: Mapping[str, Any], *, argv: bool = False) -> str:
    """One error of pydantic as a sentence; *argv* says that the list which is due is a command."""
    name, found, context = str(error.get("type", "")), error.get("input"), error.get("ctx") or {}
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "list_type":
        return _not_a_list(found, argv=argv)
    if name in _EXPECTED:
        quote = "; quote it" if name == "string_type" and _scalar(found) else ""
        return f"expected {_EXPECTED[name]}, found {kind(found)}{quote}"
    if name == "literal_error":
        return f"{shown(found)} is none of {str(context.get('expected', '')).replace(' or ', ', ')}"
    if name.startswith(("greater_than", "less_than")):
        return f"{shown(found)} is out of range: {_range(context)}"
    return str(error.get("msg", "is not right")).removeprefix("Value error, ")


def _scalar(value: object) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _range(context: Mapping[str, Any]) -> str:
    phrases = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    return ", ".join(f"{phrases[key]} {value}" for key, value in context.items() if key in phrases)


def _not_a_list(found: object, *, argv: bool) -> str:
    if not isinstance(found, str):
        return f"expected a list, found {kind(found)}"
    if not argv:
        return f"expected a list, found a string; write [{shown(found)}]"
    try:
        parts = shlex.split(found)
    except ValueError:
        parts = []
    hint = f"; write {shown(parts)}" if parts else ""
    return f"a string where a list of words (argv) is due{hint}"
