"""Every state that a model can reach, breadth first, with the shortest way to one that breaks a rule.

A model is an initial state and ``successors(state) -> [(what happened, next state), ...]``; states are hashable.
``explore`` visits each state once and raises ``Broken`` with the trace when ``successors`` or ``check`` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
STATES_MAX = 3_000_000


class Broken(AssertionError):  # noqa: N818 - a state of affairs
    """A rule that does not hold, and how it came to that."""


@dataclass
class Space(Generic[S]):
    """What was reached: each state with the state and the event it was first reached from, and the edges."""

    came: dict[S, tuple[S | None, str]]
    edges: dict[S, list[tuple[str, S]]] = field(default_factory=dict)

    def trace(self, state: S) -> list[str]:
        events: list[str] = []
        here: S | None = state
        while here is not None:
            before, event = self.came[here]
            events.append(event)
            here = before
        return events[::-1]

    def cannot_reach(self, goal: Callable[[S], bool], usable: Callable[[str], bool]) -> list[S]:
        """The states from which no way of *usable* events leads to a state in *goal*."""
        back: dict[S, list[S]] = {}
        for state, edges in self.edges.items():
            for event, after in edges:
                if usable(event):
                    back.setdefault(after, []).append(state)
        can = {state for state in self.came if goal(state)}
        open_ = list(can)
        while open_:
            for before in back.get(open_.pop(), ()):
                if before not in can:
                    can.add(before)
                    open_.append(before)
        return [state for state in self.came if state not in can]


def explore(
    initial: Iterable[S],
    successors: Callable[[S], list[tuple[str, S]]],
    check: Callable[[S], str],
) -> Space[S]:
    """All reachable states; Broken, with the shortest trace, for the first that *check* has a word against."""
    came: dict[S, tuple[S | None, str]] = dict.fromkeys(initial, (None, "begin"))
    space = Space(came)
    open_ = deque(came)
    while open_:
        state = open_.popleft()
        if why := check(state):
            raise Broken(f"{why}\n" + "\n".join(space.trace(state)))
        try:
            space.edges[state] = successors(state)
        except Broken as broken:
            raise Broken(f"{broken}\n" + "\n".join(space.trace(state))) from None
        for event, after in space.edges[state]:
            if after not in came:
                came[after] = (state, event)
                open_.append(after)
        assert len(came) <= STATES_MAX, "the model is too large to be explored"
    return space
