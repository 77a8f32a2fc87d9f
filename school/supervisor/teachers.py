"""The two teachers of a run: found where they already stand, started where they do not, restarted when they die.

A teacher's role is held by a kernel lock, so "is there one?" is a question to the lock and not to a record: one
started by hand, or by another conductor, serves as well as ours. Only when nobody holds the role do we start one.
A child that ends while another holds its role lost a race and did not die; any other end is a death, counted by
``restart``; five in 60 s raise TeacherError, and the run ends resumable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from school.contracts import TEACHER_ROLES, ProcessRecord, TeacherRole, dump
from school.errors import TeacherError
from school.settings import Settings
from school.supervisor.restart import DEATHS_MAX, WINDOW_S, RestartPolicy
from school.system import clock, files, locks, log, processes
from school.system.clock import Clock

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# A teacher told to end cancels its check (5 s grace for what the check started) and sleeps.
END_GRACE_S: Final = 30.0
HELD_EXIT: Final = 4

_log = log.get("supervisor.teachers")


@dataclass(slots=True)
class Post:
    """One role: our child in it, if it is ours, and when a new one may be started."""

    role: TeacherRole
    policy: RestartPolicy
    child: processes.Child | None = None
    seen: str = ""


@dataclass(slots=True)
class Teachers:
    """Calling sequence: ``tick`` at each look (starts, notices deaths), ``stop`` before the run ends."""

    settings: Settings
    clock: Clock
    posts: list[Post] = field(init=False)

    def __post_init__(self) -> None:
        self.posts = [Post(role, RestartPolicy(self.clock)) for role in TEACHER_ROLES]

    def tick(self) -> list[str]:
        """See that each role is held or about to be; returns what changed, in words."""
        return [said for post in self.posts if (said := self._see_to(post))]

    def wait_s(self) -> float | None:
        """How long until a start that is now held back may happen; None when nothing is held back."""
        waits = [post.policy.wait_s() for post in self.posts if post.child is None]
        return min((wait for wait in waits if wait > 0), default=None)

    def records(self) -> dict[str, Mapping[str, Any] | None]:
        """What each teacher last wrote of itself; None where there is nothing readable."""
        return {
            post.role: files.read_object(self.settings.teachers_dir / f"{post.role}.json")
            for post in self.posts
        }

    def stop(self) -> None:
        """End the teachers that we started, and nobody else's."""
        children = [post.child for post in self.posts if post.child is not None]
        for child in children:
            child.terminate()
        deadline = clock.monotonic() + END_GRACE_S
        for child in children:
            if child.wait(max(0.1, deadline - clock.monotonic())) is None:
                child.kill_tree(1.0)
            child.close()
            child.record.unlink(missing_ok=True)
        for post in self.posts:
            post.child = None

    def _see_to(self, post: Post) -> str:
        if post.child is not None and post.child.poll() is not None:
            self._ended(post, post.child)
        if post.child is not None or self._held(post.role):
            return self._who(post)
        if post.policy.may_start():
            self._start(post)
            return self._who(post)
        return ""

    def _ended(self, post: Post, child: processes.Child) -> None:
        post.child = None
        exit_code = child.poll()
        child.close()
        child.record.unlink(missing_ok=True)
        if exit_code == HELD_EXIT or self._held(post.role):
            _log.info("teacher.role_taken", role=post.role, pid=child.pid)
            return
        post.policy.died()
        _log.warning(
            "teacher.died", role=post.role, pid=child.pid, exit_code=exit_code, in_a_row=post.policy.row
        )
        if post.policy.exhausted():
            raise TeacherError(
                f"teacher {post.role} died {DEATHS_MAX} times in {WINDOW_S:g} s (last exit {exit_code}); "
                f"see {self._log_file(post.role)}"
            )

    def _start(self, post: Post) -> None:
        argv = [sys.executable, str(ROOT / "teacher.py"), "--role", post.role]
        record = ProcessRecord(name=post.role, kind="teacher", role=post.role, step="starting", argv=argv)
        with self._log_file(post.role).open("ab") as said:
            post.child = processes.spawn(
                argv,
                record=self._record_file(post),
                record_fields=dump(record),
                cwd=ROOT,
                env={**os.environ, **self.settings.environment()},
                stdout=said,
                stderr=said,
            )
        post.policy.started()

    def _who(self, post: Post) -> str:
        """Who holds *post* now, said once for each holder."""
        if post.child is not None:
            who = f"teacher {post.role} started (pid {post.child.pid})"
        else:
            holder = locks.holder(self._lock(post.role))
            who = f"teacher {post.role} is already there (pid {holder.pid if holder else 'unknown'})"
        if who == post.seen:
            return ""
        post.seen = who
        return who

    def _lock(self, role: str) -> Path:
        return self.settings.teachers_dir / f"{role}.lock"

    def _held(self, role: str) -> bool:
        return locks.held_elsewhere(self._lock(role))

    def _record_file(self, post: Post) -> Path:
        return self.settings.processes_dir / f"teacher-{post.role}.{os.getpid()}.json"

    def _log_file(self, role: str) -> Path:
        return self.settings.logs_dir / f"teacher-{role}.log"
