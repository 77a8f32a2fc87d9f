"""The ignore rules of a commit, as one list that applies from the top of a working tree.

An agent may write a ``.gitignore``; git would then hide its own files from us. The rules that base had are
therefore read from base's objects, each line rewritten so that it means from the top what it meant in its folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from school.system.git import Git

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _HasOid(Protocol):
    @property
    def oid(self) -> str: ...

    @property
    def mode(self) -> str: ...


def base_rules(git: Git, entries: Mapping[bytes, _HasOid]) -> bytes:
    """All ``.gitignore`` files among *entries*, from the top down, as one."""
    found = [
        path for path in entries if path.rpartition(b"/")[2] == b".gitignore" and _is_file(entries[path].mode)
    ]
    found.sort(key=lambda path: (path.count(b"/"), path))
    lines: list[bytes] = []
    for path in found:
        content = git.run("cat-file", "blob", entries[path].oid).stdout
        lines.extend(moved_up(content, path.rpartition(b"/")[0]))
    return b"".join(line + b"\n" for line in lines)


def _is_file(mode: str) -> bool:
    return mode.startswith("100")


def moved_up(content: bytes, folder: bytes) -> Iterable[bytes]:
    """The rules of the ignore file *content* in *folder*, as an ignore file at the top would say them."""
    for raw in content.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        line = raw.removesuffix(b"\r")
        if not line.strip() or line.startswith(b"#"):
            continue
        if not folder:
            yield line
            continue
        negated, body = (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
        # A slash anywhere but at the end ties a rule to its folder; without one it holds at any depth below.
        tied = b"/" in body.rstrip(b" ").removesuffix(b"/")
        middle = b"/" if tied else b"/**/"
        yield negated + b"/" + _literal(folder) + middle + body.removeprefix(b"/")


def _literal(folder: bytes) -> bytes:
    return re.sub(rb"([\\*?\[ ])", rb"\\\1", folder)
