"""What others can see of a teacher: ``school/teachers/<role>.json``, and the kernel lock of its role.

``hold_role`` takes the role for life or says who has it. ``Presence`` writes the record at every change and renews
it at least every ``renewal_s``: while idle, whoever waits calls ``renew``; while a review is in hand, a thread of
its own does, and counts ``progress`` on. That count says "a check runs within its limit", so it stops when the
check has given no sign of life for ``SILENCE_MAX_S``: whoever waits for the bead may then give up.

Not promised: that the record is true after a ``kill -9``; the role's lock tells whether anybody is there.
Errors: HeldError names who holds the role; MachineError when the record cannot be written.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

from school.contracts import TeacherRecord, TeacherRole, dump
from school.errors import HeldError, MachineError
from school.settings import Settings
from school.system import clock, files, locks, log

RENEWAL_S: Final = 10.0
WORKING_RENEWAL_S: Final = 2.0
SILENCE_MAX_S: Final = 900.0
LOOK_S: Final = 0.05


def hold_role(role: TeacherRole, settings: Settings, timeout_s: float = 0.0) -> locks.KernelLock:
    """The lock of *role*, held until released or until this process dies; HeldError when another has it."""
    files.ensure_dir(settings.teachers_dir)
    path = settings.teachers_dir / f"{role}.lock"
    lock = locks.KernelLock(path, show_owner=True)
    # Who only looks whether the role is held shares its lock for microseconds; that is no holder.
    if not lock.acquire(max(timeout_s, LOOK_S), purpose=f"teacher {role}"):
        owner = locks.holder(path)
        who = f"process {owner.pid}" if owner else "a process that cannot be named"
        raise HeldError(f"teacher {role} is already there: {who} holds {path}")
    return lock


class Presence:
    """The record of one teacher; ``tell`` changes it, ``reviewing`` wraps the work on one bead."""

    def __init__(self, role: TeacherRole, settings: Settings, *, public: bool = True) -> None:
        me = locks.this_process()
        self._path = settings.teachers_dir / f"{role}.json"
        self._public = public
        self._guard = threading.Lock()
        self._heard = clock.monotonic()
        self._written = 0.0
        self.renewal_s = min(RENEWAL_S, settings.handoff_timeout_s / 4)
        self._working_renewal_s = min(WORKING_RENEWAL_S, settings.handoff_timeout_s / 4)
        self.record = TeacherRecord(
            role=role,
            pid=me.pid,
            start=int(float(me.start or 0)),
            boot=me.boot,
            host=me.host,
            pidns=me.pidns,
            since=clock.now(),
        )

    def tell(self, **changes: Any) -> None:  # noqa: ANN401 - the fields of TeacherRecord
        """Change the record and write it; ``since`` follows state, bead and check."""
        with self._guard:
            changed = {name for name, value in changes.items() if getattr(self.record, name) != value}
            for name in changed:
                setattr(self.record, name, changes[name])
            if changed & {"state", "bead", "check"}:
                self.record.since = clock.now()
            self._write()

    def renew(self) -> None:
        """Write the record again when that is due; called by whoever waits."""
        with self._guard:
            if clock.monotonic() - self._written >= self.renewal_s * 0.9:
                self._write()

    def step(self, name: str) -> None:
        """A sign of life from the check in hand; written at once only when it is another step."""
        self._heard = clock.monotonic()
        if self.record.check != name:
            self.tell(check=name, progress=self.record.progress + 1)

    @contextlib.contextmanager
    def reviewing(self, bead: str) -> Iterator[None]:
        """*bead* is in hand: the record says so, and is renewed by a thread of its own until it is not."""
        done = threading.Event()
        self._heard = clock.monotonic()
        self.tell(state="reviewing", bead=bead, check="")
        thread = threading.Thread(target=self._beat, args=(done,), name="presence", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.tell(state="idle", bead="", check="")

    def _beat(self, done: threading.Event) -> None:
        while not done.wait(self._working_renewal_s):
            if clock.monotonic() - self._heard > SILENCE_MAX_S:
                log.get("teacher").warning("teacher.silent", bead=self.record.bead, check=self.record.check)
                return
            try:
                self.tell(progress=self.record.progress + 1)
            except MachineError as error:
                log.get("teacher").warning("teacher.record_unwritten", why=str(error))

    def _write(self) -> None:
        self._written = clock.monotonic()
        if self._public:
            self.record.beat = clock.now()
            # A hint for whoever looks now; after a power cut there is nobody to look at.
            files.write_plain(self._path, files.dumps(dump(self.record)))
