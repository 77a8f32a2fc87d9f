"""Invariants of single bookbags and of the review files behind their verdicts (P1, P2, P3, P5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from school.contracts import TEACHER_ROLES
from school.errors import GitError
from school.records.derive import outcome_of
from school.records.derive import problems as bag_problems
from school.review.filed import filed_refusal, filed_review
from school.settings import Settings
from school.status.checks.world import Bag, Facts, Violation, World


def bookbag_valid(bead: str, bag: Bag | None, path: Path) -> Iterator[Violation]:
    """Every record can be read, keeps the rules, and names the bead that its file names."""
    if bag is None:
        yield Violation(bead, f"{path}: it cannot be read as a record")
        return
    if bag.get("bead") != bead:
        yield Violation(bead, f"{path}: the record in it names {bag.get('bead')!r}")
    for problem in bag_problems(bag):
        yield Violation(bead, problem)


def verdict_has_review(bead: str, bag: Bag, settings: Settings) -> Iterator[Violation]:
    """Every verdict rests on a finished review file that says the same of the same bead and tree."""
    for role in TEACHER_ROLES:
        verdict = bag.get(f"{role}_verdict")
        if verdict and "schema" in bag:
            review, why = filed_review(bag, role, settings)
            if review is None:
                yield Violation(bead, f"{role}_verdict {verdict}: {why}")
            elif review.verdict != verdict:
                yield Violation(bead, f"{role}_verdict {verdict}: its review file says {review.verdict}")


def accepted_passed_twice(bead: str, bag: Bag, settings: Settings) -> Iterator[Violation]:
    """What counts as accepted was passed by both teachers, on its own tree, every lens run, by their files."""
    if not (bag.get("accepted") or bag.get("outcome") == "accepted" or bag.get("delivered")):
        return
    if why := filed_refusal(bag, settings):
        yield Violation(bead, f"it counts as accepted, but by its review files it is not: {why}")


def evidence_on_judged_tree(bead: str, bag: Bag, _: Settings) -> Iterator[Violation]:
    """Every receipt made at ``head`` was made on the tree and commit that are judged."""
    for role in TEACHER_ROLES:
        for lens in (bag.get(f"{role}_review") or {}).get("lenses") or []:
            for receipt in lens.get("receipts") or []:
                if receipt.get("at") != "head" or receipt.get("outcome") == "not_run":
                    continue
                for key, due in (("tree", bag.get("tree")), ("commit", bag.get("head_commit"))):
                    if receipt.get(key) and receipt[key] != due:
                        check = receipt.get("check")
                        yield Violation(bead, f"{role}: {check} ran on {key} {receipt[key]}, not on {due}")


def outcome_follows(bead: str, bag: Bag, _: Settings) -> Iterator[Violation]:
    """``accepted`` and ``outcome`` are what follows from the two reviews."""
    if "schema" not in bag or (bag.get("status") or "open") != "open":
        return
    follows, outcome = outcome_of(bag), bag.get("outcome") or ""
    if outcome and outcome != follows:
        yield Violation(bead, f"outcome {outcome}, but its reviews make it {follows or 'undecided'}")
    if follows and bool(bag.get("accepted")) != (follows == "accepted"):
        yield Violation(bead, f"accepted is {bag.get('accepted')}, but its reviews make it {follows}")


def one_place(world: World) -> Iterator[Violation]:
    """A bead lies on the shelf or in the archive, not in both."""
    for bead, facts in sorted(world.beads.items()):
        if facts.archived and (world.settings.bookbag_dir / f"{bead}.json").exists():
            yield Violation(bead, "it is archived and still lies on the shelf")


def work_is_kept(world: World) -> Iterator[Violation]:
    """The commit that holds a bead's work is in the school clone or in the user's repository."""
    by_repository: dict[tuple[str, str], list[Facts]] = {}
    for facts in world.beads.values():
        if facts.head_commit and facts.repo_key:
            by_repository.setdefault((facts.repo_key, facts.repo), []).append(facts)
    for (repo_key, repo), kept in sorted(by_repository.items()):
        missing = _missing(world.settings.clones_dir / f"{repo_key}.git", {f.head_commit for f in kept})
        if missing and repo:
            missing = _missing(Path(repo), missing)
        for facts in kept:
            if facts.head_commit in missing:
                yield Violation(facts.bead, f"its commit {facts.head_commit} is nowhere to be found")


def _missing(repository: Path, commits: set[str]) -> set[str]:
    """Those of *commits* that *repository* does not have; all of them where there is none."""
    from school.system.git import Git

    if not repository.is_dir():
        return commits
    listed = "".join(f"{commit}\n" for commit in sorted(commits)).encode()
    try:
        answered = Git(cwd=repository).run(
            "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=listed
        )
    except GitError:
        return commits
    found = {line.split()[0].decode() for line in answered.stdout.splitlines() if line.endswith(b" commit")}
    return commits - found
