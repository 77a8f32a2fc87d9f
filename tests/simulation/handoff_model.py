"""The handoff of a bead as a model: leaf, two teachers and a conductor, one durable step at a time, on the code's own tables.

What may be written, and by whom, is asked of ``school.records.moves.refusal``; the state of ``bookbag_state``; how a
reviewed bead ends of ``school.records.derive.outcome_of``; what the conductor owes of ``school.supervisor.states.decide``.
The steps are those of leaf.py, ``school.teaching.desk``, ``school.supervisor.closing`` and ``school.worktrees.salvage``, in
their order. A record's update is one step (the lock has a model of its own), its flag's removal the next one.

Any process may die between any two steps; a leaf that is dead stays dead, the others are started again. ``Rules.bugs``
puts a fault in, for the tests that want it found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from school.records.derive import outcome_of
from school.records.moves import WAITING, bookbag_state, refusal
from school.supervisor.states import Action, decide
from tests.simulation.explorer import Broken

ROLES = ("cto", "coo")
LENSES = {"cto": ("CORRECTNESS", "SECURITY"), "coo": ("COMPLETENESS",)}
ATTEMPTS_MAX = 3
BUGS = ("flag_cleared_by_first", "score_twice", "verdict_twice", "removed_before_snapshot")


@dataclass(frozen=True, slots=True)
class Bead:
    """One bead on disk: its record, flag, review files, working tree, and what other files say of it."""

    status: str = "running"
    cto: str = ""
    coo: str = ""
    scored: bool = False
    outcome: str = ""
    delivered: bool = False
    live: bool = True
    archived: bool = False
    flag: bool = False
    tree: str = "none"  # none, base, dirty
    saved: bool = False
    reviews: tuple[str, str] = ("", "")
    no_verdicts: tuple[int, int] = (0, 0)
    entered: tuple[int, int] = (0, 0)
    journalled: int = 0
    branches: int = 0
    published: bool = False
    told: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Some beads and who works on them. A place is (what, bead, step); ``()`` is idle."""

    beads: tuple[Bead, ...]
    leaves: tuple[int, ...]  # the leaf's next step; GONE when it has ended or died
    teachers: tuple[tuple, tuple] = ((), ())
    conductor: tuple = ()
    crashes: int = 0


GONE = 9
LEAF_STEPS = ("makes its tree", "works", "saves", "writes", "flags", "exits")


@lru_cache(maxsize=100_000)
def record(status: str, cto: str, coo: str, scored: bool, outcome: str, delivered: bool) -> dict:
    said = {"cto": cto, "coo": coo}
    bag: dict = {"bead": "b", "rev": 1, "status": status, "outcome": outcome, "tree": "t", "claim": "done"}
    bag |= {"scored_at": "now" if scored else "", "delivered": {"branch": "b"} if delivered else None}
    for role, verdict in said.items():
        lenses = [{"lens": lens, "outcome": verdict, "findings": []} for lens in LENSES[role]]
        bag[f"{role}_verdict"] = verdict
        bag[f"{role}_review"] = {"verdict": verdict, "tree": "t", "lenses": lenses} if verdict else {}
    return bag


def bag_of(bead: Bead) -> dict:
    return record(bead.status, bead.cto, bead.coo, bead.scored, bead.outcome, bead.delivered)


def state_of(bead: Bead) -> str:
    return bookbag_state(bag_of(bead), archived=bead.archived)


@lru_cache(maxsize=100_000)
def _refused(old: Bead, new: Bead, by: str) -> str:
    return refusal(bag_of(old), bag_of(new), by)


_RECORD = ("status", "cto", "coo", "scored", "outcome", "delivered")
_FRESH = Bead()


def write(bead: Bead, by: str, **changes: object) -> Bead:
    """The record with *changes*, as far as the code's own table allows them."""
    if not bead.live:
        return bead
    new = replace(bead, **changes)
    bare = {name: getattr(bead, name) for name in _RECORD}
    wanted = {name: getattr(new, name) for name in _RECORD}
    if why := _refused(replace(_FRESH, **bare), replace(_FRESH, **wanted), by):
        raise Broken(f"a write that the table refuses: {why}")
    return new


def broken(before: Bead, after: Bead) -> str:
    """What one step may never do, whoever does it; '' when it kept to the rules."""
    return next((what for what, is_so in _wrongs(before, after) if is_so), "")


def _wrongs(before: Bead, after: Bead) -> Iterator[tuple[str, bool]]:
    waits = after.live and not after.archived and state_of(after) in WAITING
    yield "the flag is gone, and a verdict is still due", before.flag and not after.flag and waits
    yield "a verdict was entered twice", max(after.entered) > 1
    overwritten = any(getattr(before, role) not in ("", getattr(after, role)) for role in ROLES)
    yield "a verdict was overwritten", overwritten
    yield "a score was applied twice", after.journalled > 1
    yield "a branch was made twice", after.branches > 1
    removed = before.tree == "dirty" and after.tree == "none"
    yield "a tree was removed, and its work is in no commit", removed and not after.saved
    accepted = after.reviews == ("PASS", "PASS") and after.outcome == "accepted"
    yield "a branch of what was not accepted", after.branches > 0 and not accepted
    archives = after.archived and not before.archived
    known = after.told and (after.published or not after.saved)
    yield "archived before it was published and told", archives and not known


def settled(world: World) -> bool:
    """Everything has come to its end, and nothing is left over."""
    return all(_is_settled(bead) for bead in world.beads) and all(at == GONE for at in world.leaves)


def _is_settled(bead: Bead) -> bool:
    parked = bead.live and bead.status == "blocked" and bead.told and bead.outcome == "blocked"
    ended = bead.archived and not bead.live
    accepted = bead.branches == 1 if bead.outcome == "accepted" else bead.branches == 0
    return (parked or ended) and bead.tree == "none" and not bead.flag and accepted


@dataclass(frozen=True)
class Rules:
    """The steps of everybody. ``verdicts`` are what a teacher may come to."""

    verdicts: tuple[str, ...] = ("PASS", "FAIL", "")
    bugs: frozenset[str] = field(default_factory=frozenset)

    def successors(self, world: World) -> list[tuple[str, World]]:
        found = [step for who in self.actors(world) for step in self.steps(world, who)]
        if world.crashes:
            found += [(f"{who} dies", self.crash(world, who)) for who in self.actors(world)]
        for event, after in found:
            for old, new in zip(world.beads, after.beads, strict=True):
                if old is not new and (why := broken(old, new)):
                    raise Broken(f"{why}, when {event}")
        return found

    def actors(self, world: World) -> list[str]:
        leaves = [f"leaf {i}" for i, at in enumerate(world.leaves) if at != GONE]
        return [*leaves, "cto", "coo", "conductor"]

    def crash(self, world: World, who: str) -> World:
        world = replace(world, crashes=world.crashes - 1)
        if who.startswith("leaf"):
            return replace(world, leaves=_put(world.leaves, int(who[5:]), GONE))
        if who == "conductor":
            return replace(world, conductor=())
        return replace(world, teachers=_put(world.teachers, ROLES.index(who), ()))

    def steps(self, world: World, who: str) -> list[tuple[str, World]]:
        if who.startswith("leaf"):
            return [self.leaf(world, int(who[5:]))]
        return list(self.conductor(world) if who == "conductor" else self.teacher(world, ROLES.index(who)))

    # --- the leaf ---

    def leaf(self, world: World, i: int) -> tuple[str, World]:
        at, bead = world.leaves[i], world.beads[i]
        if at == 0:
            bead = replace(bead, tree="base")
        elif at == 1:
            bead = replace(bead, tree="dirty")
        elif at == 2:
            bead = replace(bead, saved=True)
        elif at == 3:
            bead = write(bead, "leaf", status="open") if bead.status == "running" else bead
        elif at == 4 and state_of(bead) in WAITING:
            bead = replace(bead, flag=True)
        leaves = _put(world.leaves, i, GONE if at == 5 else at + 1)
        return f"leaf {i} {LEAF_STEPS[at]}", replace(world, beads=_put(world.beads, i, bead), leaves=leaves)

    # --- a teacher ---

    def teacher(self, world: World, r: int) -> Iterator[tuple[str, World]]:
        role, place = ROLES[r], world.teachers[r]
        if not place:
            for i, bead in enumerate(world.beads):
                if self._due(bead, role):
                    yield f"{role} begins {i}", self._at(world, r, ("judges", i))
            return
        what, i = place
        bead = world.beads[i]
        if what == "judges":
            yield from self._judge(world, r, i)
        elif what == "enters":
            yield f"{role} enters {i}", self._enter(world, r, i)
        else:
            yield f"{role} clears {i}", self._at(self._with(world, i, replace(bead, flag=False)), r, ())

    def _due(self, bead: Bead, role: str) -> bool:
        return bead.live and not bead.archived and state_of(bead) in WAITING and not getattr(bead, role)

    def _judge(self, world: World, r: int, i: int) -> Iterator[tuple[str, World]]:
        bead, role = world.beads[i], ROLES[r]
        if bead.reviews[r]:
            yield f"{role} finds its review of {i}", self._at(world, r, ("enters", i))
            return
        for verdict in self.verdicts:
            if verdict:
                filed = replace(bead, reviews=_put(bead.reviews, r, verdict))
                yield (
                    f"{role} files {verdict} of {i}",
                    self._at(self._with(world, i, filed), r, ("enters", i)),
                )
            elif self._due(bead, role):
                count = bead.no_verdicts[r] + 1
                counted = replace(bead, no_verdicts=_put(bead.no_verdicts, r, count))
                if count == ATTEMPTS_MAX:
                    # The locked write that ends the wait takes the flag with it.
                    counted = replace(write(counted, role, status="blocked"), flag=False)
                yield f"{role} cannot judge {i}", self._at(self._with(world, i, counted), r, ())
            else:
                yield f"{role} drops {i}", self._at(world, r, ())

    def _enter(self, world: World, r: int, i: int) -> World:
        bead, role = world.beads[i], ROLES[r]
        due = self._due(bead, role)
        if not due and "verdict_twice" not in self.bugs:
            return self._at(world, r, ())
        entered = _put(bead.entered, r, bead.entered[r] + 1)
        if due:
            bead = write(bead, role, **{role: bead.reviews[r]})
        bead = replace(bead, entered=entered)
        completes = bead.cto and bead.coo
        again = "verdict_twice" in self.bugs and not completes
        clears = completes or "flag_cleared_by_first" in self.bugs
        place = ("clears", i) if clears else ("enters", i) if again else ()
        return self._at(self._with(world, i, bead), r, place)

    # --- the conductor ---

    def conductor(self, world: World) -> Iterator[tuple[str, World]]:
        if world.conductor:
            yield self._goes_on(world)
            return
        for i, bead in enumerate(world.beads):
            if bead.live and not bead.archived:
                waiting = state_of(bead) in WAITING
                if waiting != bead.flag:
                    yield f"conductor sweeps {i}", self._with(world, i, replace(bead, flag=waiting))
            if work := self._owes(world, i):
                yield f"conductor begins to {work} {i}", replace(world, conductor=(work, i, 0))

    def _owes(self, world: World, i: int) -> str:
        bead = world.beads[i]
        if bead.archived and not bead.live and bead.tree == "none":
            return ""
        if not bead.archived and not bead.live:
            return ""
        action = decide(state_of(bead), leaf_lives=world.leaves[i] != GONE)
        if action is Action.PARK and bead.outcome:
            return ""
        works = {
            Action.SALVAGE: "salvage",
            Action.SCORE: "score",
            Action.CLOSE: "close",
            Action.PARK: "park",
            Action.FORGET: "forget",
        }
        return works.get(action, "")

    def _goes_on(self, world: World) -> tuple[str, World]:
        work, i, step = world.conductor
        steps = {
            "salvage": (self._removes_early, self._saves, self._fails),
            "score": (self._journals, self._scores),
            "close": (
                self._ends,
                self._branches,
                self._delivers,
                self._publishes,
                self._tells,
                self._archives,
                self._unshelves,
                self._removes,
            ),
            "park": (self._publishes, self._tells, self._removes, self._parks),
            "forget": (self._unshelves, self._removes),
        }[work]
        after = self._with(world, i, steps[step](world.beads[i]))
        place = () if step + 1 == len(steps) else (work, i, step + 1)
        return f"conductor {work}s {i}:{steps[step].__name__}", replace(after, conductor=place)

    def _removes_early(self, bead: Bead) -> Bead:
        return replace(bead, tree="none") if "removed_before_snapshot" in self.bugs else bead

    def _saves(self, bead: Bead) -> Bead:
        return replace(bead, saved=True) if bead.tree != "none" else bead

    def _fails(self, bead: Bead) -> Bead:
        return write(bead, "salvage", status="failed") if bead.status == "running" else bead

    def _journals(self, bead: Bead) -> Bead:
        once = bead.journalled == 0 or "score_twice" in self.bugs
        return replace(bead, journalled=bead.journalled + 1) if once else bead

    def _scores(self, bead: Bead) -> Bead:
        if state_of(bead) != "REVIEWED":
            return bead
        return write(bead, "conductor", scored=True, outcome=outcome_of(bag_of(bead)))

    def _ends(self, bead: Bead) -> Bead:
        return bead if bead.outcome else write(bead, "conductor", outcome="failed")

    def _branches(self, bead: Bead) -> Bead:
        due = state_of(bead) == "SCORED" and bead.outcome == "accepted" and not bead.branches
        return replace(bead, branches=bead.branches + 1) if due else bead

    def _delivers(self, bead: Bead) -> Bead:
        due = bead.outcome == "accepted" and not bead.delivered
        return write(bead, "conductor", delivered=True) if due else bead

    def _publishes(self, bead: Bead) -> Bead:
        return replace(bead, published=bead.saved)

    def _tells(self, bead: Bead) -> Bead:
        return replace(bead, told=True)

    def _archives(self, bead: Bead) -> Bead:
        return replace(bead, archived=True)

    def _unshelves(self, bead: Bead) -> Bead:
        return replace(bead, live=False, flag=False)

    def _removes(self, bead: Bead) -> Bead:
        return replace(bead, tree="none")

    def _parks(self, bead: Bead) -> Bead:
        return write(bead, "conductor", outcome="blocked")

    # --- pieces ---

    def _with(self, world: World, i: int, bead: Bead) -> World:
        return replace(world, beads=_put(world.beads, i, bead))

    def _at(self, world: World, r: int, place: tuple) -> World:
        return replace(world, teachers=_put(world.teachers, r, place))


def _put(values: tuple, i: int, value: object) -> tuple:
    return (*values[:i], value, *values[i + 1 :])


def begin(beads: int, *, crashes: int) -> World:
    return World((Bead(),) * beads, (0,) * beads, crashes=crashes)
