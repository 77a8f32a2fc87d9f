"""Every operating error of the school, as one tree.

Each is also a builtin where one fits, so a caller need not know us to catch it, and each message names what
went wrong and where (a path, a bead, a variable, a key). ``exit_code`` is what a command line exits with when
the error reaches it: 2 for what the user typed or wrote, 3 for what the machine lacks, 4 for a holder of a lock.
"""

from __future__ import annotations

from typing import ClassVar


class SchoolError(Exception):
    """Root of the tree; never raised itself."""

    exit_code: ClassVar[int] = 3


class ConfigError(SchoolError, ValueError):
    """A setting, a flag, an environment variable or ``school.toml`` says something that cannot be."""

    exit_code = 2


class TaskFileError(SchoolError, ValueError):
    """The task file is absent, unreadable, empty, or a key in it is wrong; names file, line and key."""

    exit_code = 2


class MachineError(SchoolError, OSError):
    """The machine lacks something: a folder, a repository, an agent CLI, space, hard links, permission."""


class HeldError(SchoolError):
    """Another live process holds what only one may hold; says who."""

    exit_code = 4


class BookbagCorruptedError(SchoolError, ValueError):
    """A record could not be parsed; it was moved to ``corrupt/`` and is named in the message."""


class BookbagInvalidError(SchoolError, ValueError):
    """A record parses but breaks a rule (also: an illegal move, a stale ``rev``, a bad bead name)."""


class LockTimeout(SchoolError, TimeoutError):  # noqa: N818 - the contract names it
    """A bead lock could not be had in time; names the bead and who holds it."""


class LockLost(SchoolError, RuntimeError):  # noqa: N818 - the contract names it
    """A lock was released by somebody who does not hold it; the file was left alone."""


class LeafError(SchoolError, RuntimeError):
    """A leaf could not do its part: boot, brief, run or hand-over."""


class LeafNotBootedError(LeafError):
    """A leaf was used before ``boot()``."""


class TeacherError(SchoolError, RuntimeError):
    """A teacher could not do its part."""


class OrcaUnavailableError(SchoolError, RuntimeError):
    """The ``orca`` command line is not installed or refused; wrapped in LeafError or TeacherError."""


class WorktreeError(SchoolError, OSError):
    """A clone, bead repository or worktree could not be made, trusted or removed."""


class GitError(SchoolError, OSError):
    """A git command failed, timed out, or said 0 without having made what it should; carries its stderr."""


class SessionNotFoundError(SchoolError, FileNotFoundError):
    """No saved session for this role."""


class SessionCorruptedError(SchoolError, ValueError):
    """A saved session could not be read; it was quarantined."""


class AgentError(SchoolError, RuntimeError):
    """An agent is unknown, not installed, or could not be started."""
