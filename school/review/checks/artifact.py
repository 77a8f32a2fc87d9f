"""CTO, artifact: there is a change where one is due, and it is the one that the record speaks of.

The bag's head must be one commit on its base with the recorded tree, and the worktree must stand on it; otherwise
nothing can be judged (``no_verdict``). An unchanged tree with the claim ``done`` fails, whatever was written to
ignored files. A read-only student's artifact is its answer.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from school.contracts import READ_ONLY_ROLES, CheckContext, CheckResult
from school.guarded import is_prose
from school.review.checks.work import LINK, Findings, Touched, Work, role_of
from school.system.git import Git


@dataclass(slots=True)
class Artifact:
    name: str = "artifact"
    lens: str = "CORRECTNESS"

    def __call__(self, context: CheckContext) -> CheckResult:
        work = Work.of(context)
        wrong = _mismatch(context, work)
        if wrong:
            return CheckResult(self.name, self.lens, no_verdict=wrong)
        findings = Findings(self.name)
        claim = context.bag.get("claim") or "done"
        if not work.files:
            _unchanged(findings, context, str(claim))
        elif claim == "no_change":
            findings.add(
                "HIGH",
                "claim_mismatch",
                f"The claim is no_change, but {len(work.files)} files differ from base.",
                work.files[0].path,
                "Say done, or take the changes back.",
            )
        else:
            _nothing_in_it(findings, context, work)
        return CheckResult(self.name, self.lens, findings.done())


def _mismatch(context: CheckContext, work: Work) -> str:
    """Why record, clone and worktree do not speak of the same thing, or ''."""
    bag = context.bag
    if work.tree_of(work.head) != bag.get("tree"):
        return f"the recorded tree {bag.get('tree')} is not that of the recorded commit {work.head}"
    parents = work.git.text("rev-list", "--parents", "-n", "1", work.head).split()[1:]
    if work.head != work.base and parents != [work.base]:
        return f"commit {work.head} is not one commit on base {work.base}"
    standing = Git(cwd=context.worktree).text("rev-parse", "--verify", "HEAD")
    return "" if standing == work.head else f"the worktree stands on {standing}, not on {work.head}"


def _unchanged(findings: Findings, context: CheckContext, claim: str) -> None:
    if claim == "no_change":
        return
    if role_of(context.bag) in READ_ONLY_ROLES:
        if not str(context.bag.get("output", "")).strip():
            findings.add(
                "CRITICAL", "no_artifact", "The answer is empty.", todo="Write the answer as output."
            )
        return
    findings.add(
        "CRITICAL",
        "no_artifact",
        "The claim is done, but the tree is the same as at base. Ignored files do not count, nor does what was"
        " committed and taken back, nor words in the output.",
        todo="Make the change in tracked or new files that no ignore rule hides; or claim no_change and say why.",
    )


def _nothing_in_it(findings: Findings, context: CheckContext, work: Work) -> None:
    """A change that is there but holds no work: only ignore rules, only empty files, only notes about it."""
    said = _said(context)
    real = [file for file in work.files if not _is_nothing(file, work, said)]
    if real:
        return
    if all(posixpath.basename(file.path) == ".gitignore" for file in work.files):
        what = "Only ignore rules changed"
    elif role_of(context.bag) == "coder" and not _has_checked_criterion(context):
        what = "Only notes or empty files were added, and the task names none of them"
    elif all((work.after(file) or "").strip() == "" for file in work.files):
        what = "Only empty files were added"
    else:
        return
    findings.add(
        "HIGH",
        "no_artifact",
        f"{what}: {', '.join(file.path for file in work.files[:5])}.",
        work.files[0].path,
        "Do the task itself; a plan or a description of it is not the work.",
    )


def _said(context: CheckContext) -> str:
    """All words of the task, in which a file may be asked for by name."""
    bag = context.bag
    criteria = [f"{c.get('text', '')} {' '.join(c.get('check') or [])}" for c in bag.get("acceptance") or []]
    allow = (bag.get("terms") or {}).get("allow") or []
    return " ".join([str(bag.get("task") or ""), *criteria, *allow]).lower()


def _is_nothing(file: Touched, work: Work, said: str) -> bool:
    name = posixpath.basename(file.path)
    if name.lower() in said or posixpath.splitext(name)[0].lower() in said:
        return False
    if name == ".gitignore":
        return True
    if not file.new or file.new_mode == LINK or work.binary(file):
        return False
    text = work.after(file)
    empty = text is not None and not text.strip()
    return empty or (is_prose(file.path) and not _asks_for_prose(said))


def _asks_for_prose(said: str) -> bool:
    words = (
        "document",
        "readme",
        "docs",
        "changelog",
        "guide",
        "tutorial",
        "report",
        "write",
        "note",
        "license",
        ".md",
    )
    return any(word in said for word in words)


def _has_checked_criterion(context: CheckContext) -> bool:
    return any(criterion.get("check") for criterion in context.bag.get("acceptance") or [])
