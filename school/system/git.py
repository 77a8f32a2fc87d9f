"""Git, hardened: nothing inherited, nothing of the user's configuration, no hook, no prompt, every call bounded.

``Git`` is one repository seen one way: an explicit git directory, work tree and index, or discovery from ``cwd``.
Inherited ``GIT_*`` is scrubbed (a ``GIT_DIR`` from a surrounding hook sends work into another repository); hooks,
fsmonitor, signing, gc, pagers, external diffs and textconv are off, whatever a repository's own config says;
``config`` adds or overrides single keys. Only fetches by path are possible, and only with FETCHING in it.

A command that may take longer than the usual limit ends with whoever waits for it, also when that is killed (on Linux, by
``setpriv``); a short one ends by itself.

Not promised: that filters, merge drivers and attributes of the repository are harmless. Whoever runs git over a
tree that an agent has touched must bring a git directory and attributes of its own.

Calling: ``run`` for bytes, ``text`` for one stripped answer, ``ok`` for a yes or no, ``pieces`` for an output of any size,
``fixed`` for what a commit's id alone decides.
Errors: ``GitError`` with ``argv``, ``returncode`` and ``stderr`` in it: a command that failed, ran out of time
or said more than ``limit_bytes``. ``MachineError`` when git is not installed or too old.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from school.errors import GitError, MachineError
from school.system import pipes

MINIMUM: Final = (2, 32)
LIMIT_BYTES: Final = 256 * 1024 * 1024
TIMEOUT_S: Final = 120.0
STDERR_TAIL_BYTES: Final = 4000
_STREAM_PIPE_BYTES: Final = 1024 * 1024
_GLOBAL_CONFIG: Final = str(Path(__file__).with_name("gitconfig"))

# Command scope: it wins over what the repository's own config says.
HARDENED: Final[Mapping[str, str]] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.quotePath": "false",
    "core.logAllRefUpdates": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "rerere.enabled": "false",
    "color.ui": "false",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "advice.detachedHead": "false",
    # A missing object is fetched by itself where the repository says so, with a program that it names; versions before
    # GIT_NO_LAZY_FETCH know no other way to forbid that. Who fetches by path says FETCHING.
    "protocol.allow": "never",
    "protocol.file.allow": "never",
    "safe.directory": "*",
}
FETCHING: Final[Mapping[str, str]] = {"protocol.file.allow": "user"}
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "LANGUAGE": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": _GLOBAL_CONFIG,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_ASKPASS": "",
}
# Commands that would run a diff driver or textconv which the repository names.
_SHOWS_DIFFS: Final = frozenset(
    {"diff", "diff-tree", "diff-index", "diff-files", "log", "show", "format-patch"}
)
_FULL_ID: Final = re.compile(r"[0-9a-f]{40}")
# What has been answered for good, the oldest first; for all repositories, by their place.
ANSWERS_MAX: Final = 32
ANSWER_BYTES_MAX: Final = 1024 * 1024
_ANSWERS: Final[dict[tuple[str, ...], bytes]] = {}
_ANSWERS_LOCK: Final = threading.Lock()


class GitCommandError(GitError):
    """A git command that did not do what it should; carries the command, its exit status and its stderr."""

    def __init__(self, message: str, argv: tuple[str, ...], returncode: int | None, stderr: str) -> None:
        super().__init__(message)
        self.argv = argv
        self.returncode = returncode
        self.stderr = stderr


def _encoded(values: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in values.items()}


# In bytes, as the kernel takes them: git is started so often that encoding a hundred variables each time is felt.
_PREDICTABLE: Final[Mapping[bytes, bytes]] = _encoded(_ENVIRONMENT)


@lru_cache(maxsize=64)
def _commanded(own: tuple[tuple[str, str], ...]) -> Mapping[bytes, bytes]:
    """The variables that say ``HARDENED`` and what *own* adds to it."""
    config = {**HARDENED, **dict(own)}
    env = {"GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return _encoded(env)


class Git:
    """One repository, seen with explicit directories; see the module for what is switched off."""

    def __init__(
        self,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        *,
        cwd: Path | None = None,
        index: Path | None = None,
        config: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.git_dir = git_dir
        self.work_tree = work_tree
        self.cwd = cwd or work_tree or git_dir
        self._config = _commanded(tuple((config or {}).items()))
        self._env = _encoded(env or {})
        for name, path in (
            (b"GIT_DIR", git_dir),
            (b"GIT_WORK_TREE", work_tree),
            (b"GIT_INDEX_FILE", index),
        ):
            if path is not None:
                self._env[name] = os.fsencode(path.absolute())

    def environment(self) -> dict[bytes, bytes]:
        """What a git process of this repository gets: the process environment without any ``GIT_*``, and what is ours."""
        env = {
            name: value
            for name, value in os.environb.items()
            if not name.startswith(b"GIT_") and name != b"SSH_ASKPASS"
        }
        return {**env, **_PREDICTABLE, **self._env, **self._config}

    def run(
        self,
        *args: str,
        stdin: bytes | None = None,
        check: bool = True,
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = LIMIT_BYTES,
        cut: bool = False,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``git ARGS``. With *cut*, output past *limit_bytes* ends git and is left out instead of an error."""
        argv = ("git", *_guarded(args))
        with self._start(argv, stdin, _tied() if timeout_s > TIMEOUT_S else ()) as process:
            pumped = pipes.pump(process, stdin, timeout_s=timeout_s, limit_bytes=limit_bytes)
        if pumped.timed_out:
            raise _failed(argv, None, pumped.err, f"no end after {timeout_s:g} s")
        if pumped.overflowed and not cut:
            raise _failed(argv, None, pumped.err, f"more than {limit_bytes} bytes of output")
        code = 0 if pumped.overflowed else process.returncode
        if check and code != 0:
            raise _failed(argv, code, pumped.err, f"exit {code}")
        return subprocess.CompletedProcess(argv, code, pumped.out, pumped.err)

    def pieces(self, *args: str, timeout_s: float = TIMEOUT_S) -> Iterator[bytes]:
        """What ``git ARGS`` prints, as it comes; the error of a command that fails comes after the last piece."""
        argv = ("git", *_guarded(args))
        errors = bytearray()
        with self._start(argv, None) as process:
            _widen(process)
            try:
                yield from pipes.pieces(process, errors, timeout_s=timeout_s)
            except TimeoutError:
                raise _failed(argv, None, bytes(errors), f"no end after {timeout_s:g} s") from None
        if process.returncode != 0:
            raise _failed(argv, process.returncode, bytes(errors), f"exit {process.returncode}")

    def _start(
        self, argv: tuple[str, ...], stdin: bytes | None, before: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        # Found once, and named in full: no start looks through every folder of PATH again.
        program = _program(os.environ.get("PATH", os.defpath))
        command = (*before, program, *argv[1:]) if before else argv
        try:
            return subprocess.Popen(
                command,
                executable=None if before else program,
                cwd=self.cwd,
                env=self.environment(),
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as cause:
            if self.cwd is not None and not self.cwd.is_dir():
                raise _failed(argv, None, b"", f"no such directory: {self.cwd}") from None
            raise MachineError("git is not installed, or not on PATH") from cause
        except OSError as cause:
            raise _failed(argv, None, b"", f"cannot be started: {cause}") from cause

    def text(self, *args: str, timeout_s: float = TIMEOUT_S) -> str:
        """Standard output without blanks around it; bytes that are no UTF-8 are kept as surrogates."""
        return self.run(*args, timeout_s=timeout_s).stdout.decode("utf-8", "surrogateescape").strip()

    def fixed(self, *args: str) -> bytes:
        """The answer to a question that names commits by their full ids only, and so never changes: asked once."""
        assert any(_FULL_ID.match(word) for word in args), args
        key = (str(self.git_dir or self.cwd), *args)
        with _ANSWERS_LOCK:
            known = _ANSWERS.get(key)
        if known is None:
            known = self.run(*args).stdout
            if 0 < len(known) <= ANSWER_BYTES_MAX:
                with _ANSWERS_LOCK:
                    _ANSWERS[key] = known
                    if len(_ANSWERS) > ANSWERS_MAX:
                        del _ANSWERS[next(iter(_ANSWERS))]
        return known

    def tree_of(self, commit: str) -> str:
        """The tree that *commit*, a full id, holds."""
        return self.fixed("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

    def ok(self, *args: str) -> bool:
        """Whether git said yes (exit 0); a command that cannot run at all raises."""
        return self.run(*args, check=False).returncode == 0


@lru_cache(maxsize=8)
def _program(path: str) -> str:
    return shutil.which("git", path=path) or "git"


@cache
def _tied() -> tuple[str, ...]:
    """What makes a long command end with the thread that waits for it: politely, so that git takes its lock files back."""
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()


def _widen(process: subprocess.Popen[bytes]) -> None:
    """A larger pipe, where the system has and grants one: a large output then comes with fewer changes of process."""
    setting = getattr(fcntl, "F_SETPIPE_SZ", None)
    if setting is not None and process.stdout is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(process.stdout, setting, _STREAM_PIPE_BYTES)


def _guarded(args: tuple[str, ...]) -> tuple[str, ...]:
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in ("-c", "-C") else 1
    if at < len(args) and args[at] in _SHOWS_DIFFS:
        return (*args[: at + 1], "--no-ext-diff", "--no-textconv", *args[at + 1 :])
    return args


def _failed(argv: tuple[str, ...], code: int | None, err: bytes, what: str) -> GitCommandError:
    stderr = err[-STDERR_TAIL_BYTES:].decode("utf-8", "replace").strip()
    shown = " ".join(argv if len(argv) <= 12 else (*argv[:12], "…"))  # noqa: PLR2004 - enough to recognise it
    return GitCommandError(f"{shown[:500]}: {what}" + (f": {stderr}" if stderr else ""), argv, code, stderr)


@cache
def version() -> tuple[int, ...]:
    """The installed git's version; MachineError when there is none or it is older than ``MINIMUM``."""
    answer = Git(cwd=Path("/")).text("version")
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer)
    if found is None:
        raise MachineError(f"git does not say its version: {answer!r}")
    number = tuple(int(part) for part in found.groups(default="0"))
    if number < MINIMUM:
        raise MachineError(f"git {found[0]} is too old: {'.'.join(map(str, MINIMUM))} or newer is needed")
    return number
