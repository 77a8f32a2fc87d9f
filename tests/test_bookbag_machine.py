"""A bookbag under any order of what its writers do, right or wrong, against a model that is a few lines long."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

import bookbag
from bookbag import LEGAL_MOVES, BookbagInvalidError, BookbagSignal, bookbag_state
from school import settings as school_settings
from school.contracts import TeacherRole
from school.settings import Settings
from tests.records_support import FIELDS, TREE, review

ROLES: tuple[TeacherRole, ...] = ("cto", "coo")
WRITERS = ("leaf", "cto", "coo", "conductor", "salvage")


class BookbagMachine(RuleBasedStateMachine):
    """``model`` holds of each bead its state, its verdicts and how often it was written."""

    beads: Bundle[str] = Bundle("beads")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        school_settings.configure(Settings.from_env({"HOME": str(self.home), "HERMES_HOME": str(self.home)}))
        self.model: dict[str, dict[str, Any]] = {}
        self.count = 0

    def teardown(self) -> None:
        school_settings.configure(None)
        shutil.rmtree(self.home)

    def wrote(self, bead: str, bag: dict[str, Any] | None, state: str, **facts: Any) -> None:
        assert bag is not None
        known = self.model[bead]
        known.update(facts, state=state, rev=known["rev"] + 1)
        assert bookbag_state(bag) == state

    def attempt(self, bead: str, by: str, state: str, fields: dict[str, Any], **facts: Any) -> None:
        """The write, held against the table: it succeeds exactly when the table says that it may."""
        known = self.model[bead]
        if known["state"] == "DISPOSED":
            assert bookbag.update_bookbag(bead, lambda bag: bag | fields, by=by) is None
        elif by in LEGAL_MOVES[known["state"], state]:
            self.wrote(bead, bookbag.update_bookbag(bead, lambda bag: bag | fields, by=by), state, **facts)
        else:
            try:
                bookbag.update_bookbag(bead, lambda bag: bag | fields, by=by)
            except BookbagInvalidError:
                return
            raise AssertionError(f"{by} moved {bead} from {known['state']} to {state}")

    @rule(target=beads, started=st.booleans())
    def create(self, started: bool) -> Any:
        bead = f"coder-python-{self.count:08x}"
        self.count += 1
        bookbag.write_bookbag(
            bead, **FIELDS, status="running" if started else "open", tree="" if started else TREE
        )
        self.model[bead] = {"state": "RUNNING" if started else "WRITTEN", "rev": 1, "cto": "", "coo": ""}
        return bead

    @rule(bead=beads)
    def create_again(self, bead: str) -> None:
        try:
            bookbag.write_bookbag(bead, **FIELDS)
        except FileExistsError:
            return
        raise AssertionError(f"{bead} was overwritten")

    @rule(bead=beads, by=st.sampled_from(WRITERS))
    def hand_over(self, bead: str, by: str) -> None:
        if self.model[bead]["state"] == "RUNNING":
            self.attempt(bead, by, "WRITTEN", {"status": "open", "tree": TREE})
            if self.model[bead]["state"] == "WRITTEN":
                BookbagSignal(bead).ready()

    @rule(bead=beads, by=st.sampled_from(WRITERS), status=st.sampled_from(["failed", "blocked"]))
    def end_early(self, bead: str, by: str, status: str) -> None:
        if self.model[bead]["state"] != status.upper():
            self.attempt(bead, by, status.upper(), {"status": status})

    @rule(bead=beads, role=st.sampled_from(ROLES), verdict=st.sampled_from(["PASS", "FAIL"]))
    def judge(self, bead: str, role: TeacherRole, verdict: str) -> None:
        known = self.model[bead]
        fields = {f"{role}_verdict": verdict, f"{role}_review": review(role, verdict)}
        if known["state"] == "DISPOSED":
            assert bookbag.update_bookbag(bead, lambda bag: bag | fields, by=role) is None
            return
        due = known["state"] in ("WRITTEN", "CTO_REVIEWED", "COO_REVIEWED") and not known[role]
        if not due:
            old = bookbag.read_bookbag(bead)
            try:
                bookbag.update_bookbag(bead, lambda bag: bag | fields, by=role)
            except BookbagInvalidError:
                assert bookbag.read_bookbag(bead) == old
            else:
                # The same verdict with the same review again is no change, and no second verdict.
                assert known[role] == verdict
                assert bookbag.read_bookbag(bead) == old
            return
        other = "coo" if role == "cto" else "cto"
        state = "REVIEWED" if known[other] else f"{role.upper()}_REVIEWED"
        bag = bookbag.update_bookbag(bead, lambda bag: bag | fields, by=role)
        self.wrote(bead, bag, state, **{role: verdict})

    @rule(bead=beads, by=st.sampled_from(WRITERS))
    def score(self, bead: str, by: str) -> None:
        if self.model[bead]["state"] not in ("SCORED", "FAILED", "BLOCKED"):
            self.attempt(bead, by, "SCORED", {"scored_at": "2030-01-01T00:00:00+00:00"})

    @rule(bead=beads)
    def archive(self, bead: str) -> None:
        known = self.model[bead]
        try:
            bookbag.archive_bookbag(bead)
        except BookbagInvalidError:
            assert known["state"] in ("RUNNING", "WRITTEN", "CTO_REVIEWED", "COO_REVIEWED", "REVIEWED")
        else:
            assert known["state"] in ("SCORED", "FAILED", "BLOCKED", "DISPOSED")
            known["state"] = "DISPOSED"

    @rule(target=beads, bead=consumes(beads), data=st.sampled_from([b"", b"{", b"\0\0\0"]))
    def tear(self, bead: str, data: bytes) -> Any:
        if self.model[bead]["state"] == "DISPOSED":
            return bead
        path = self.home / "bookbag" / f"{bead}.json"
        path.write_bytes(data)
        try:
            bookbag.read_bookbag(bead)
        except bookbag.BookbagCorruptedError:
            assert bookbag.read_bookbag(bead) is None
            del self.model[bead]
            return multiple()
        raise AssertionError("a torn record was taken for a fact")

    @rule()
    def sweep(self) -> None:
        bookbag.sweep_signals()
        waiting = {
            b for b, k in self.model.items() if k["state"] in ("WRITTEN", "CTO_REVIEWED", "COO_REVIEWED")
        }
        assert {path.stem for path in (self.home / "signals").glob("*.ready")} == waiting

    @invariant()
    def disk_is_the_model(self) -> None:
        for bead, known in self.model.items():
            gone = known["state"] == "DISPOSED"
            bag = bookbag.read_archived(bead) if gone else bookbag.read_bookbag(bead)
            assert bag is not None
            assert bookbag_state(bag, archived=gone) == known["state"]
            assert (bag["cto_verdict"], bag["coo_verdict"]) == (known["cto"], known["coo"])
            assert bag["rev"] == known["rev"] + (1 if gone else 0)
            assert bag["accepted"] == (known["cto"] == known["coo"] == "PASS")
            states = [step["state"] for step in bag["history"]]
            assert len(states) == len(set(states))
            assert states[-1] == known["state"]
            assert not list((self.home / "locks").glob("*.lock"))

    @invariant()
    def shelf_is_the_model(self) -> None:
        live = {bead for bead, known in self.model.items() if known["state"] != "DISPOSED"}
        assert set(bookbag.Shelf().scan()) == live == set(bookbag.list_bookbags())


BookbagMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestBookbagMachine = BookbagMachine.TestCase
