"""The end of a bead, step by step; every step may be done again, so a crash between any two costs nothing.

REVIEWED: the score is journalled, then entered (``score``). SCORED and FAILED: the commit is brought into the user's
repository as ``refs/school/<bead>``, accepted work is delivered as a branch, the task's ledger is told, the record is
archived, and what the leaf left is removed (``close``). BLOCKED: the same without the archive, since a human still
has to look (``park``). Work that was not accepted and holds a secret stays in our own clone, and the record says so
(``withheld``). Set aside as BLOCKED is a bead whose verdicts have no review files (``unproven``) or whose branch is refused for
good (``not_delivered``; ``readmit`` lets the delivery be tried again); what may go better by itself is raised and tried
again by the next run.

Each step acts on the state that was looked at, asked again under the bead's lock: nothing confines what a teacher runs, so
a record can be put back behind our backs by somebody who read it earlier. Then the step says that it has to be looked at
again, and the table does over what was undone; the ledger is told only what a locked write of ours said.

Not promised: that a worktree can be removed. One whose removal fails stays, is said, and is listed by
``--clean-worktrees``; it never holds up a bead whose commit is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bookbag
from school.changes import Change
from school.contracts import TEACHER_ROLES
from school.errors import BookbagInvalidError, ConfigError, GitError, WorktreeError
from school.records.derive import outcome_of
from school.review.filed import unfiled
from school.scores import ScoreBook
from school.settings import Settings
from school.system import clock, files, log, redaction
from school.system.git import Git
from school.tasks import TaskLedger
from school.worktrees import (
    Repository,
    SchoolClone,
    leaf_worktrees,
    publish,
    publish_beside,
    salvage,
    snapshot,
    workspace_of,
)

PATCH_BYTES_MAX: Final = 64 * 1024 * 1024
LOG_BYTES_MAX: Final = 1024 * 1024
# Why a bead was set aside, before the colon.
UNPROVEN: Final = "unproven"
NOT_DELIVERED: Final = "not_delivered"
# Why work is not brought into the user's repository, and what such a finding is called.
LEAK: Final = "secret"

Bag = Mapping[str, Any]
# (bag, repository, clone) to {branch, commit}; handed in, since delivery stands beside this room, not below it.
Deliver = Callable[[Bag, Repository, SchoolClone], Mapping[str, str]]
_log = log.get("supervisor.closing")


@dataclass(frozen=True, slots=True)
class Closing:
    """The hands for one repository; ``told`` hears what went wrong without being an error of the run."""

    settings: Settings
    repository: Repository
    clone: SchoolClone
    deliver: Deliver
    ledger: TaskLedger
    told: Callable[[str], None]

    def score(self, bag: Bag) -> bool:
        """REVIEWED → SCORED; False when the record could not be had and it has to be tried again."""
        if why := unfiled(bag, self.settings):
            return self._set_aside(bag, UNPROVEN, why) is not None
        outcome = outcome_of(bag)
        given = ScoreBook(self.settings).evaluate_and_update({**bag, "outcome": outcome})
        changes = {"score": given, "scored_at": clock.now(), "outcome": outcome}
        return self._write(bag, changes) is not None

    def close(self, bag: Bag) -> bool:
        """SCORED, FAILED or BLOCKED → DISPOSED; False when it has to be looked at again."""
        ends: dict[str, Any] = {} if bag.get("outcome") else {"outcome": "failed"}
        if bookbag.bookbag_state(bag) == "SCORED" and bag.get("outcome") == "accepted":
            try:
                ends["delivered"] = dict(
                    bag.get("delivered") or self.deliver(bag, self.repository, self.clone)
                )
            except (BookbagInvalidError, ConfigError) as error:  # it will not go better by itself
                aside = self._set_aside(bag, NOT_DELIVERED, str(error))
                return aside is not None and self.park(aside)
        late = self._saved_late(bag)
        final = self._write(bag, ends | late | self._publish({**bag, **late}))
        if final is None:
            return False
        self._enter(final)
        try:
            bookbag.archive_bookbag(final["bead"], self._archive_files(final), only=final)
        except BookbagInvalidError as error:
            _log.warning("bead.not_archived", bead=bag["bead"], why=str(error))
            return False
        self.remove(final)
        _log.info("bead.closed", bead=final["bead"], outcome=final["outcome"])
        return True

    def park(self, bag: Bag) -> bool:
        """BLOCKED stays on the shelf for a human; its worktree goes, its work is published."""
        late = self._saved_late(bag)
        saved = self._write(bag, late | self._publish({**bag, **late}))
        if saved is None:
            return False
        self._enter(saved)
        self.remove(saved)
        # Last: what is blocked and has an outcome is not looked at again, so whoever dies before leaves it to be parked.
        final = self._write(saved, {"outcome": "blocked"})
        if final is None:
            return False
        _log.info("bead.parked", bead=final["bead"], reason=final.get("reason", ""))
        return True

    def readmit(self, bag: Bag) -> bool:
        """BLOCKED because it could not be delivered → SCORED: the next run tries the delivery again."""
        changes = {"status": "open", "reason": "", "outcome": "accepted"}
        return self._write(bag, changes) is not None

    def remove(self, bag: Bag) -> None:
        """Remove what a leaf left: flag, worktree, bead repository, outputs, process record and lock."""
        bead = bag["bead"]
        # The write that completes two verdicts takes the flag away; verdicts that nobody gave had no such write.
        bookbag.BookbagSignal(bead).clear()
        if not self.put_away(bag):
            return
        self._leaf_log(bead).unlink(missing_ok=True)
        for folder in (self.settings.outputs_dir / bead, self.settings.scratch_dir / bead):
            if folder.exists():
                files.remove_tree(folder)

    def put_away(self, bag: Bag) -> bool:
        """Remove working tree, bead repository and process files of *bag*, whose leaf is gone; whether they are."""
        for name in (f"{bag['bead']}.json", f"{bag['bead']}.leaf.lock", f"{bag['bead']}.leaf.lock.owner"):
            (self.settings.processes_dir / name).unlink(missing_ok=True)
        try:
            if (workspace := workspace_of(bag, settings=self.settings)) is not None:
                leaf_worktrees(str(bag.get("worktrees") or "git"), settings=self.settings).remove(workspace)
        except (WorktreeError, GitError) as error:
            _log.warning("worktree.kept", bead=bag["bead"], why=str(error))
            self.told(f"{bag['bead']}: its worktree stays: {error}")
            return False
        return True

    def rescue(self, ref: str) -> None:
        """*ref* of the clone holds what lay in the tree of no living bead: publish it, if it is news."""
        commit = self.clone.ref(ref) if ref else ""
        if not commit or self._named(commit):
            return
        if self._shows_secret(self.clone.ref(f"{commit}^"), commit):
            self.told(
                f"work that a run left unsaved holds a secret; it is in {self.clone.path}, {ref}, and nowhere else"
            )
            return
        try:
            publish(self.clone, self.repository, commit, ref)
            self.told(f"work that a run left unsaved is saved as {ref}")
        except WorktreeError as error:
            self.told(f"work that a run left unsaved is in {self.clone.path}, {ref}: {error}")

    def _named(self, commit: str) -> bool:
        """Whether some ref of the user's repository leads to *commit*; its objects alone could be a killed run's."""
        git = self.repository.git()
        there = git.ok("cat-file", "-e", f"{commit}^{{commit}}")
        return there and not git.text("rev-list", "--max-count=1", commit, "--not", "--all")

    # --- steps ----------------------------------------------------------------------------------------

    def _write(self, looked_at: Bag, changes: Mapping[str, Any]) -> Bag | None:
        """*changes* on the record if it is still in the state of *looked_at*; else None, and nothing is written."""
        state, stands = bookbag.bookbag_state(looked_at), False

        def change(bag: dict[str, Any]) -> dict[str, Any]:
            nonlocal stands
            stands = bookbag.bookbag_state(bag) == state
            return {**bag, **changes} if stands else bag

        written = bookbag.update_bookbag(looked_at["bead"], change, by="conductor")
        if written is not None and not stands:
            _log.warning("bead.moved", bead=looked_at["bead"], was=state, now=bookbag.bookbag_state(written))
        return written if stands else None

    def _set_aside(self, bag: Bag, reason: str, why: str) -> Bag | None:
        _log.error("bead.set_aside", bead=bag["bead"], reason=reason, why=why)
        # Without an outcome, so that it is still to be parked whoever dies in between.
        return self._write(bag, {"status": "blocked", "reason": f"{reason}: {why}", "outcome": ""})

    def _enter(self, final: Bag) -> None:
        """Tell the task's ledger; a record that names no task, which ours never did, has none to tell."""
        if self.ledger.knows(final):
            self.ledger.record(final)
        else:
            self.told(f"{final['bead']}: its record names no task of a file; no task is told of its end")

    def _saved_late(self, bag: Bag) -> dict[str, Any]:
        """What the record then says of work that its leaf could not save, as on a disk that has room again by now."""
        if bag.get("head_commit"):
            return {}
        try:
            workspace = workspace_of(bag, settings=self.settings)
            if workspace is None or not workspace.path.is_dir():
                return {}
            saved = snapshot(workspace, bag=bag, settings=self.settings)
        except (WorktreeError, GitError) as error:
            _log.warning("leaf.still_not_saved", bead=bag["bead"], why=str(error))
            return {}
        since = f"{bag.get('summary') or ''}; since then {salvage.describe(saved, workspace)}".removeprefix(
            "; "
        )
        return {**salvage.fields_of(saved), "summary": since}

    def _publish(self, bag: Bag) -> dict[str, Any]:
        """Bring the commit in; what the record then says of it, where it could not have the name that it should.

        Nothing is published of a bead that changed nothing: base is in the repository already.
        """
        head = bag.get("head_commit")
        if not head or head == bag.get("base_commit"):
            return {}
        # A record that lies, or a clone that was taken away: there is nothing to wait for.
        if not self.clone.has(head):
            self.told(
                f"{bag['bead']}: its commit {head} is not in {self.clone.path}; nothing can be published"
            )
            return {}
        if self._holds_secret(bag):
            self.told(
                f"{bag['bead']}: its work holds a secret, so it stays in our own clone; `recover {bag['bead']}` brings it"
            )
            return {"withheld": LEAK}
        wanted = f"refs/school/{bag['bead']}"
        ref = publish_beside(self.clone, self.repository, head, wanted)
        if ref == wanted:
            return {}
        self.told(f"{bag['bead']}: somebody else's {wanted} names another commit and stays; its own is {ref}")
        return {"published_ref": ref}

    def _holds_secret(self, bag: Bag) -> bool:
        """Whether work that is not accepted was turned down for a secret, or plainly adds one that is known here."""
        if bag.get("outcome") == "accepted" or bag.get("accepted"):
            return False
        lenses = [
            lens for role in TEACHER_ROLES for lens in (bag.get(f"{role}_review") or {}).get("lenses") or []
        ]
        found = [finding for lens in lenses for finding in lens.get("findings") or []]
        if any(f.get("issue_class") == LEAK and f.get("severity") in ("CRITICAL", "HIGH") for f in found):
            return True
        return self._shows_secret(str(bag.get("base_commit") or ""), str(bag["head_commit"]))

    def _shows_secret(self, base: str, head: str) -> bool:
        if redaction.installed() is None or not base or not self.clone.has(base, head):
            return False
        patch = Change.of(Git(git_dir=self.clone.path), base, head).patch(PATCH_BYTES_MAX)[0]
        added = b"\n".join(line for line in patch.splitlines() if line.startswith(b"+"))
        return redaction.data(added) != added

    def _archive_files(self, bag: Bag) -> dict[str, bytes | Path]:
        """What the archive keeps beside the record: brief, output, diff, what the agent said, the leaf's log."""
        found: dict[str, bytes | Path] = {}
        bead = bag["bead"]
        outputs = self.settings.outputs_dir / bead
        if outputs.is_dir():
            files.sweep_temporaries(outputs)  # of a leaf that was killed while it wrote
            # Regular files only: whatever else lies there is not what a leaf wrote.
            found |= {
                path.name: path
                for path in sorted(outputs.iterdir())
                if path.is_file() and not path.is_symlink()
            }
        if (leaf_log := self._leaf_log(bead)).is_file() and leaf_log.stat().st_size:
            found["leaf.log"] = _tail(leaf_log)
        if (patch := self._patch(bag)) is not None:
            found["diff.patch"] = patch
        return found

    def _patch(self, bag: Bag) -> bytes | None:
        base, head = bag.get("base_commit"), bag.get("head_commit")
        if not base or not head or not self.clone.has(base, head):
            return None
        change = Change.of(Git(git_dir=self.clone.path), base, head)
        return redaction.data(change.patch(PATCH_BYTES_MAX)[0])

    def _leaf_log(self, bead: str) -> Path:
        return self.settings.logs_dir / f"leaf-{bead}.log"


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
        return file.read(LOG_BYTES_MAX)
