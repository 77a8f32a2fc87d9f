"""The bead lock as a model: each file operation of ``school.system.locks.OwnedLock`` is one step, a crash may come anywhere.

Three ways of taking a lock over from the dead: ``guarded`` is ours (under a kernel lock on a permanent file: read
again, prove again, unlink, link); ``seed`` unlinks what it has read to be stale and tries again; ``aside`` renames the
file to a private name, verifies what it got, and puts it back where that was a living owner's. Time is not modelled, but
for the age of a garbled file, which may pass at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tests.simulation.explorer import Broken

Variant = Literal["guarded", "seed", "aside"]
DEAD = -1  # an owner of an earlier life: proven dead
GARBLED = -2  # names nobody
OLD = -3  # garbled, and without change for long enough
NONE = -4

# Where a process is: what it does next.
TRY, LOOK, GUARD, AGAIN, UNLINK, LINK, UNGUARD, SECTION, CHECK, DROP, DONE = range(11)
NAMES = (
    "links",
    "looks",
    "takes the guard",
    "looks again",
    "unlinks",
    "links under the guard",
    "leaves the guard",
    "works",
    "reads its lock",
    "releases",
    "is done",
)


@dataclass(frozen=True, slots=True)
class Locks:
    """The files and the processes. ``file`` is the owner named in the lock; ``aside`` what each has renamed away."""

    file: int
    guard: int
    at: tuple[int, ...]
    dead: tuple[bool, ...]
    has: tuple[bool, ...]  # believes that it holds the lock
    aside: tuple[int, ...]
    vandals: int
    crashes: int
    vandalised: bool = False


def begin(processes: int, file: int, *, vandals: int = 0, crashes: int = 1) -> Locks:
    nobody = (False,) * processes
    return Locks(file, NONE, (TRY,) * processes, nobody, nobody, (NONE,) * processes, vandals, crashes)


def is_dead(state: Locks, owner: int) -> bool:
    return owner == DEAD or (owner >= 0 and state.dead[owner])


def takeable(state: Locks, owner: int) -> bool:
    return owner == OLD or is_dead(state, owner)


def check(state: Locks) -> str:
    """Never two owners; and who is at work is named in the file, unless somebody else's hand was in it."""
    owners = [i for i, has in enumerate(state.has) if has and not state.dead[i]]
    if state.vandalised:
        return ""
    if len(owners) > 1:
        return f"two owners: {owners}"
    return ""


class Protocol:
    """One variant, with or without the planted fault that a release does not look whose lock it removes."""

    def __init__(self, variant: Variant = "guarded", *, release_looks: bool = True) -> None:
        self.variant = variant
        self.release_looks = release_looks

    def successors(self, state: Locks) -> list[tuple[str, Locks]]:
        found = []
        for i in range(len(state.at)):
            if state.dead[i] or state.at[i] == DONE:
                continue
            after = self.step(state, i)
            if after is not None and after != state:
                found.append((f"{i} {NAMES[state.at[i]]}", after))
            if state.crashes:
                found.append((f"{i} dies", self.crash(state, i)))
        if state.vandals and state.file not in (GARBLED, OLD):
            found.append(
                (
                    "the file is emptied",
                    replace(state, file=GARBLED, vandals=state.vandals - 1, vandalised=True),
                )
            )
        if state.file == GARBLED and not self._releasing(state):
            found.append(("time passes", replace(state, file=OLD)))
        return found

    def _releasing(self, state: Locks) -> bool:
        """Whether somebody is between the two system calls of its release. It is assumed that nobody is stopped there
        for as long as a garbled file has to lie: what another hand emptied meanwhile could not be told from its own.
        """
        return any(at == DROP and not dead for at, dead in zip(state.at, state.dead, strict=True))

    def crash(self, state: Locks, i: int) -> Locks:
        guard = NONE if state.guard == i else state.guard  # the kernel gives it back
        return replace(state, guard=guard, dead=_put(state.dead, i, True), crashes=state.crashes - 1)

    def step(self, state: Locks, i: int) -> Locks | None:
        """The next operation of process *i*; None where it can only wait."""
        at = state.at[i]
        if at == TRY:
            if state.file == NONE:
                return self._goes(replace(state, file=i, has=_put(state.has, i, True)), i, SECTION)
            return self._goes(state, i, LOOK)
        if at == LOOK:
            if not takeable(state, state.file):
                return self._goes(state, i, TRY)
            return self._goes(state, i, {"guarded": GUARD, "seed": UNLINK, "aside": UNLINK}[self.variant])
        if at in (SECTION, CHECK, DROP):
            return self._release(state, i)
        return self._take_over(state, i)

    def _release(self, state: Locks, i: int) -> Locks:
        if state.at[i] == SECTION:
            return self._goes(state, i, CHECK)
        if state.at[i] == CHECK:
            mine = state.file == i or not self.release_looks
            # Otherwise LockLost: the file is left alone.
            return self._goes(
                state if mine else replace(state, has=_put(state.has, i, False)), i, DROP if mine else DONE
            )
        if state.file >= 0 and state.file != i and not state.dead[state.file]:
            raise Broken(f"{i} releases the lock of {state.file}, which lives")
        return self._goes(replace(state, file=NONE, has=_put(state.has, i, False)), i, DONE)

    def _take_over(self, state: Locks, i: int) -> Locks | None:
        if self.variant == "guarded":
            return self._guarded(state, i)
        return self._unguarded(state, i) if self.variant == "seed" else self._aside(state, i)

    def _guarded(self, state: Locks, i: int) -> Locks | None:
        at = state.at[i]
        if at == GUARD:
            return self._goes(replace(state, guard=i), i, AGAIN) if state.guard == NONE else None
        if at == AGAIN:
            return self._goes(state, i, UNLINK if takeable(state, state.file) else UNGUARD)
        if at == UNLINK:
            return self._goes(replace(state, file=NONE), i, LINK)
        if at == LINK:
            won = state.file == NONE
            linked = replace(state, file=i, has=_put(state.has, i, True)) if won else state
            return self._goes(linked, i, UNGUARD)
        return self._goes(replace(state, guard=NONE), i, SECTION if state.has[i] else TRY)

    def _unguarded(self, state: Locks, i: int) -> Locks:
        return self._goes(replace(state, file=NONE), i, TRY)

    def _aside(self, state: Locks, i: int) -> Locks:
        if state.at[i] == UNLINK:
            if state.file == NONE:
                return self._goes(state, i, TRY)
            return self._goes(replace(state, file=NONE, aside=_put(state.aside, i, state.file)), i, AGAIN)
        if state.at[i] == AGAIN:
            return self._goes(state, i, LINK if takeable(state, state.aside[i]) else UNGUARD)
        got = state.aside[i]
        emptied = replace(state, aside=_put(state.aside, i, NONE))
        if state.at[i] == UNGUARD and state.file == NONE:
            emptied = replace(emptied, file=got)  # put back what a living owner had
        return self._goes(emptied, i, TRY)

    def _goes(self, state: Locks, i: int, where: int) -> Locks:
        return replace(state, at=_put(state.at, i, where))


def _put(values: tuple, i: int, value) -> tuple:
    return (*values[:i], value, *values[i + 1 :])


def ended(state: Locks) -> bool:
    return all(dead or at == DONE for dead, at in zip(state.dead, state.at, strict=True))
