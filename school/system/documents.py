r"""JSON documents as bytes: valid UTF-8 going out, whole and well-formed coming in.

Undecodable bytes and lone surrogates are spelled out as plain text (``\udc80``) in both directions, because no
other program, and not even our own records, can carry them. What must not be read (see ``redaction``) is taken out on
the way to the disk. Use ``files``; this is the part without a disk.

Errors: ValueError, with the name of what was read, for what is not one whole JSON document in UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from school.system import redaction

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """*text* with lone surrogates (undecodable bytes, broken escapes) spelled out, so that it is valid UTF-8."""
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def dumps(obj: Any, *, indent: int | None = 1) -> bytes:  # noqa: ANN401 - JSON is any of them
    """*obj* as valid UTF-8 JSON with a newline at its end; keys keep their order."""
    text = json.dumps(obj, ensure_ascii=False, indent=indent, allow_nan=False)
    if (redacted := redaction.document(obj, text)) is not None:
        text = json.dumps(redacted, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        # They can only stand inside strings, where a doubled backslash spells the escape out as plain text.
        return _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode("utf-8") + b"\n"


def _no_constant(name: str) -> Any:  # noqa: ANN401 - never returns
    raise ValueError(f"{name} is no JSON value")


# One decoder for all: making one costs as much as reading a small record.
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def loads(raw: bytes, name: object = "JSON") -> Any:  # noqa: ANN401
    """The value in *raw*; ValueError, with *name*, for what is not one whole JSON document in UTF-8."""
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except RecursionError:
        raise ValueError(f"{name}: not readable as JSON: nested too deep") from None
    except ValueError as cause:
        raise ValueError(f"{name}: not readable as JSON: {cause}") from None
    return _well_formed_value(value) if b"\\ud" in raw or b"\\uD" in raw else value


def _well_formed_value(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed_value(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): _well_formed_value(item) for key, item in value.items()}
    return value
