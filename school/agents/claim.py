"""What an agent says of its work: the JSON file that SCHOOL_RESULT names, read as untrusted data.

``read_claim(path)`` always returns a Claim and the list of what was wrong with the file; ``read_regular`` reads any
file that an agent left, with the same care. An absent file means
``done``. What cannot be understood is passed over and noted: then too the claim is ``done``, for a claim proves
nothing, and the tree is judged by what is in it. The file may be a FIFO, a link, a folder, a gigabyte, or no text
at all; nothing here follows a link, waits for a writer, or reads more than ``CLAIM_BYTES_MAX``.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, Final, cast, get_args

from school.contracts import Claim, ClaimStatus, bounded

CLAIM_BYTES_MAX: Final = 1024 * 1024
SUMMARY_BYTES_MAX: Final = 16 * 1024
ITEM_BYTES_MAX: Final = 2 * 1024
ITEMS_MAX: Final = 100
_STATUSES: Final = frozenset(get_args(ClaimStatus))


def read_claim(path: Path) -> tuple[Claim, list[str]]:
    """The claim in *path*, and what was wrong with it."""
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        return Claim(), []
    except (OSError, ValueError) as error:
        return Claim(), [f"the result file was passed over: {error}"]
    try:
        value = json.loads(raw.decode("utf-8", "backslashreplace"))
    except (ValueError, RecursionError) as error:
        return Claim(), [f"the result file was passed over: it is no JSON ({str(error)[:200]})"]
    if not isinstance(value, dict):
        return Claim(), ["the result file was passed over: it is no JSON object"]
    return _understand(value)


def read_regular(path: Path, limit_bytes: int = CLAIM_BYTES_MAX) -> bytes:
    """The content of a regular file, reached through no link in its last two components.

    FileNotFoundError where there is none; OSError or ValueError, with the reason, for anything but such a file.
    """
    # The agent owns the folder too: a link there would let it name any file of the user's as its claim.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(path.name, flags, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ValueError("it is a link") from error
            raise
    finally:
        os.close(folder)
    with open(file, "rb") as opened:  # noqa: PTH123 - a descriptor, not a path
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is no regular file")
        raw = opened.read(limit_bytes + 1)
    if len(raw) > limit_bytes:
        raise ValueError(f"it is longer than {limit_bytes} bytes")
    return raw


def _understand(value: dict[str, Any]) -> tuple[Claim, list[str]]:
    problems: list[str] = []
    status = str(value.get("status") or "done").strip().lower()
    if status not in _STATUSES:
        problems.append(
            f"the result file's status {status[:40]!r} means nothing; there are {sorted(_STATUSES)}"
        )
        status = "done"
    claim = Claim(
        status=cast("ClaimStatus", status),
        summary=_text(value, "summary", SUMMARY_BYTES_MAX, problems),
        ac_met=_items(value, "ac_met", problems),
        blockers=_items(value, "blockers", problems),
        retry_at=_text(value, "retry_at", 64, problems),
        session=_text(value, "session", 200, problems),
    )
    return claim, problems


def _text(value: dict[str, Any], key: str, limit_bytes: int, problems: list[str]) -> str:
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        problems.append(f"the result file's {key} is no text")
        return ""
    return bounded(found, limit_bytes)


def _items(value: dict[str, Any], key: str, problems: list[str]) -> list[str]:
    found = value.get(key)
    if found is None or found == "":
        return []
    items = [found] if isinstance(found, str) else found
    if not isinstance(items, list):
        problems.append(f"the result file's {key} is no list")
        return []
    if len(items) > ITEMS_MAX or not all(isinstance(item, str) for item in items):
        problems.append(f"the result file's {key} holds something else than at most {ITEMS_MAX} texts")
    return [bounded(item, ITEM_BYTES_MAX) for item in items[:ITEMS_MAX] if isinstance(item, str)]
