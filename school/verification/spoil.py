"""Make source files unloadable for a while, to see whether any test notices.

``with spoil(worktree, paths): …`` replaces each plain file by one that cannot be loaded and restores bytes and mode
exactly, also files that were removed or replaced meanwhile. ``how="load"`` (default) fails when the code is *loaded*,
while it still parses, so that a linter does not take part; ``how="parse"`` does not even parse.
``spoilable(path)`` says whether a spoiler for its language is known. ``overwritten(worktree, texts)`` does the same with
given contents.

What it does not promise: that nothing else changed below *worktree* meanwhile; ``bench`` cleans that up.
Errors: MachineError where a file cannot be written or restored (the restoring goes on with the others first).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from school.errors import MachineError
from school.system import files

_WHY: Final = "made unloadable to see whether a check notices"

# By suffix: text that parses and fails when it is loaded (or compiled, where there is no loading without).
_LOAD: Final = {
    **dict.fromkeys((".py",), f'raise RuntimeError("{_WHY}")\n'),
    **dict.fromkeys((".pyx", ".pxd"), f'raise RuntimeError("{_WHY}"\n'),
    **dict.fromkeys((".js", ".cjs", ".jsx"), f'throw new Error("{_WHY}");\n'),
    **dict.fromkeys((".mjs", ".ts", ".tsx", ".mts", ".cts"), f'throw new Error("{_WHY}");\nexport {{}};\n'),
    **dict.fromkeys((".go", ".java", ".kt", ".kts", ".scala", ".cs", ".swift", ".dart"), f"{_WHY}\n"),
    **dict.fromkeys((".rs",), f'compile_error!("{_WHY}");\n'),
    **dict.fromkeys(
        (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".m", ".mm"), f'#error "{_WHY}"\n'
    ),
    **dict.fromkeys((".rb", ".cr"), f'raise "{_WHY}"\n'),
    **dict.fromkeys((".php",), f'<?php throw new \\Exception("{_WHY}");\n'),
    **dict.fromkeys((".pl", ".pm"), f'die "{_WHY}";\n'),
    **dict.fromkeys((".lua", ".jl"), f'error("{_WHY}")\n'),
    **dict.fromkeys((".ex", ".exs"), f'raise "{_WHY}"\n'),
    **dict.fromkeys((".vue", ".svelte"), f'<script>throw new Error("{_WHY}");</script>\n'),
}
# No grammar in the table above accepts this.
_PARSE: Final = f"<<< {_WHY} >>> ((({{{{[[\n"


def spoilable(path: str) -> bool:
    """Whether a spoiler for this language is known."""
    return PurePosixPath(path).suffix.lower() in _LOAD


def _plain_files(worktree: Path, paths: Sequence[str]) -> list[Path]:
    """The named files that are plain files inside the tree: through a link, somebody else's file would be hit."""
    root = Path(os.path.realpath(worktree))
    found = []
    for path in paths:
        target = worktree / path
        straight = Path(os.path.realpath(target.parent)) == root / PurePosixPath(path).parent
        if straight and target.is_file() and not target.is_symlink():
            found.append(target)
    return found


@dataclass(frozen=True, slots=True)
class _Kept:
    content: bytes
    mode: int
    times_ns: tuple[int, int]

    @classmethod
    def of(cls, target: Path) -> _Kept:
        status = target.stat()
        return cls(target.read_bytes(), status.st_mode & 0o7777, (status.st_atime_ns, status.st_mtime_ns))


def _clear_way(worktree: Path, target: Path) -> None:
    """Real folders on the way to *target*: a test may have put a link, or a file, in the place of one."""
    folder = worktree
    for part in target.relative_to(worktree).parts[:-1]:
        folder /= part
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder.unlink()
        folder.mkdir(exist_ok=True)


def _put(worktree: Path, target: Path, content: bytes, mode: int) -> None:
    """A new file in place of whatever is there now; never written through a link that a test may have left."""
    _clear_way(worktree, target)
    if target.is_dir() and not target.is_symlink():
        files.remove_tree(target)
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as stream:
        stream.write(content)
        os.fchmod(fd, mode)


def _restore(worktree: Path, kept: dict[Path, _Kept]) -> None:
    failed: list[OSError] = []
    for target, was in kept.items():
        try:
            _put(worktree, target, was.content, was.mode)
            # With its old time a file still fits what was compiled from it, and what was compiled meanwhile does not.
            os.utime(target, ns=was.times_ns)
        except OSError as cause:
            failed.append(cause)
    if failed:
        raise MachineError(f"{len(failed)} spoiled files could not be restored: {failed[0]}") from failed[0]


@contextmanager
def spoil(
    worktree: Path, paths: Sequence[str], how: Literal["load", "parse"] = "load"
) -> Iterator[list[str]]:
    """Spoil what can be of *paths* (relative to *worktree*); gives those that were, and restores them at the end."""
    texts = {path: _text(path, how).encode() for path in paths if spoilable(path)}
    with overwritten(worktree, texts) as spoiled:
        yield spoiled


def _text(path: str, how: Literal["load", "parse"]) -> str:
    return _LOAD[PurePosixPath(path).suffix.lower()] if how == "load" else _PARSE


@contextmanager
def overwritten(worktree: Path, texts: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Plain files of *worktree* with other contents for a while; gives those that were, and restores them at the end."""
    targets = {target: texts[path] for path in texts for target in _plain_files(worktree, [path])}
    kept = {target: _Kept.of(target) for target in targets}
    try:
        for target, was in kept.items():
            _put(worktree, target, targets[target], was.mode)
        yield [target.relative_to(worktree).as_posix() for target in targets]
    finally:
        _restore(worktree, kept)
