"""A state directory in any state, made by the same functions that the school makes it with."""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bookbag
from school import delivery
from school.contracts import LENSES, TEACHER_ROLES, Finding, LensResult, Receipt, Review, ReviewFile, dump
from school.records.derive import outcome_of
from school.review.verdicts import review_id
from school.scores import ScoreBook
from school.settings import Settings
from school.system import clock, files
from school.tasks import Task, TaskLedger
from school.worktrees import Repository, SchoolClone, inspect_repository
from tests.support import git


@dataclass
class State:
    """One repository, its school clone, and a state directory to fill."""

    settings: Settings
    repo: Path
    repository: Repository = field(init=False)
    clone: SchoolClone = field(init=False)

    def __post_init__(self) -> None:
        self.repository = inspect_repository(self.repo)
        self.clone = SchoolClone.open(self.repository, settings=self.settings)

    @property
    def base(self) -> str:
        return self.repository.head_commit

    def commit(self, changed: dict[str, str], message: str = "Work") -> tuple[str, str]:
        """(commit, tree) on base, in the clone only, with *changed* in it."""
        index = self.settings.school_dir / f"index-{secrets.token_hex(4)}"
        env = {**os.environ, "GIT_INDEX_FILE": str(index)}

        def run(*args: str, stdin: str | None = None) -> str:
            done = subprocess.run(
                ["git", *args],
                cwd=self.clone.path,
                env=env,
                input=stdin,
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stdout.strip()

        run("read-tree", self.base)
        for name, text in changed.items():
            blob = run("hash-object", "-w", "--stdin", stdin=text)
            run("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
        tree = run("write-tree")
        head = run("commit-tree", tree, "-p", self.base, "-m", message)
        index.unlink()
        return head, tree

    def running(self, task: Task | None = None, **fields: Any) -> str:
        """A bead whose leaf is at work."""
        task = task or Task(id="fix-parse", task="Fix it.")
        bead = bookbag.bead_name("coder", "python")
        first: dict[str, Any] = {
            "task": task.task,
            "student": "coder",
            "domain": "python",
            "difficulty": task.difficulty,
            "task_id": task.id,
            "task_digest": task.digest,
            "repo": str(self.repo),
            "repo_key": self.repository.key,
            "base_commit": self.base,
            "agent": {"name": "codex", "kind": "command"},
            "status": "running",
        }
        bookbag.write_bookbag(bead, **{**first, **fields})
        return bead

    def written(self, task: Task | None = None, changed: dict[str, str] | None = None, **fields: Any) -> str:
        """A bead that is handed over and flagged."""
        bead = self.running(task, **fields)
        head, tree = self.commit(changed or {"calc/new.py": f"NAME = {bead!r}\n"}, message=bead)
        work = {"status": "open", "head_commit": head, "tree": tree, "claim": "done"}
        bookbag.update_bookbag(bead, lambda bag: {**bag, **work}, by="leaf")
        bookbag.BookbagSignal(bead).ready()
        return bead

    def review(self, bead: str, role: str, verdict: str = "PASS") -> ReviewFile:
        """What a teacher would write of it; nothing is written here."""
        bag = bookbag.read_bookbag(bead)
        assert bag is not None
        found = [] if verdict == "PASS" else [finding()]
        receipt = Receipt(
            check="verification", outcome="passed", commit=bag["head_commit"], tree=bag["tree"], exit_code=0
        )
        lenses = [
            LensResult(lens=lens, outcome=verdict, receipts=[receipt], findings=found)  # type: ignore[arg-type]
            for lens in LENSES[role]  # type: ignore[index]
        ]
        name = review_id(bead, bag["tree"], role)
        review = Review(verdict=verdict, tree=bag["tree"], review_id=name, lenses=lenses, attempts=1)  # type: ignore[arg-type]
        return ReviewFile(
            review_id=name,
            bead=bead,
            role=role,  # type: ignore[arg-type]
            tree=bag["tree"],
            head_commit=bag["head_commit"],
            verdict=verdict,  # type: ignore[arg-type]
            review=review,
            by=f"teacher-{role}",
            written_at=clock.now(),
        )

    def judge(self, bead: str, role: str, verdict: str = "PASS", *, filed: bool = True) -> None:
        """One teacher's verdict, with its file first."""
        made = self.review(bead, role, verdict)
        files.ensure_dir(self.settings.reviews_dir)
        if filed:
            files.create_json(self.review_path(made), dump(made))
        entered = {f"{role}_verdict": verdict, f"{role}_review": dump(made.review)}
        bookbag.update_bookbag(bead, lambda bag: {**bag, **entered}, by=role)

    def review_path(self, made: ReviewFile) -> Path:
        return self.settings.reviews_dir / f"{made.review_id}.json"

    def reviewed(self, *verdicts: str, **fields: Any) -> str:
        """A bead with both verdicts, PASS unless said."""
        bead = self.written(**fields)
        for role, verdict in zip(TEACHER_ROLES, verdicts or ("PASS", "PASS"), strict=True):
            self.judge(bead, role, verdict)
        return bead

    def score(self, bead: str) -> None:
        bag = bookbag.read_bookbag(bead)
        assert bag is not None
        outcome = outcome_of(bag)
        given = ScoreBook(self.settings).evaluate_and_update({**bag, "outcome": outcome})
        changes = {"score": given, "scored_at": clock.now(), "outcome": outcome}
        bookbag.update_bookbag(bead, lambda bag: {**bag, **changes}, by="conductor")

    def deliver(self, bead: str) -> dict[str, str]:
        bag = bookbag.read_bookbag(bead)
        assert bag is not None
        delivered = delivery.deliver(bag, self.repository, self.clone, settings=self.settings)
        bookbag.update_bookbag(bead, lambda bag: {**bag, "delivered": delivered}, by="conductor")
        return delivered

    def close(self, bead: str) -> None:
        """Tell the task's record, and archive."""
        bag = bookbag.read_bookbag(bead)
        assert bag is not None
        TaskLedger(self.settings, self.repository.key).record(bag)
        bookbag.archive_bookbag(bead)

    def accepted(self, **fields: Any) -> str:
        """A bead that went all the way."""
        bead = self.reviewed(**fields)
        self.score(bead)
        self.deliver(bead)
        self.close(bead)
        return bead

    def rejected(self, **fields: Any) -> str:
        bead = self.reviewed("FAIL", "PASS", **fields)
        self.score(bead)
        self.close(bead)
        return bead

    def blocked(self, reason: str = "setup", **fields: Any) -> str:
        bead = self.running(**fields)
        bookbag.update_bookbag(bead, lambda bag: {**bag, "status": "blocked", "reason": reason}, by="leaf")
        return bead

    def branches(self) -> dict[str, str]:
        """The branches of the user's repository."""
        lines = git(self.repo, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads").split(
            "\n"
        )
        return dict(line.split(" ") for line in lines)


def finding(severity: str = "HIGH") -> Finding:
    return Finding(
        section="verification", severity=severity, issue_class="newly_red", description="It broke."
    )  # type: ignore[arg-type]
