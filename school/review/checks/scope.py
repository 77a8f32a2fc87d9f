"""CTO, scope: only what the task allows was touched, and nothing leads out of the tree.

New tests are welcome wherever they lie. Existing tests, the configuration of tests and builds, CI and instruction
files may change only where ``allow`` names them; so may a script that a criterion, a verify command or the
project's own build files run as a check. A new conftest.py is left to the tampering check, which reads it. A
read-only student may change nothing. A link must stay within the repository, whatever it passes through.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from school.contracts import READ_ONLY_ROLES, CheckContext, CheckResult
from school.guarded import TEST, allowed, is_guarded, is_source, named
from school.review.checks import commands
from school.review.checks.work import LINK, SUBMODULE, Findings, Touched, Work, list_tree, read_blobs, role_of
from school.system.git import Git

_LINK_HOPS_MAX: Final = 40
_MENTIONS: Final = r"(?<![\w/-])(?:\./)?%s(?![\w-])"


@dataclass(slots=True)
class Scope:
    name: str = "scope"
    lens: str = "CORRECTNESS"

    def __call__(self, context: CheckContext) -> CheckResult:
        work = Work.of(context)
        findings = Findings(self.name)
        if work.files and role_of(context.bag) in READ_ONLY_ROLES:
            findings.add(
                "HIGH",
                "read_only_role",
                f"A {role_of(context.bag)} may change nothing, and {len(work.files)} files differ from base.",
                work.files[0].path,
                "Give the answer as output and leave the tree as it was.",
            )
        allow = allow_of(context)
        judges = judging_scripts(context, work)
        for file in work.files:
            _paths(findings, file, allow, judges)
        _links(findings, work)
        _names(findings, work)
        return CheckResult(self.name, self.lens, findings.done())


def allow_of(context: CheckContext) -> list[str]:
    return list((context.bag.get("terms") or {}).get("allow") or [])


def commands_of(context: CheckContext) -> list[list[str]]:
    """Every command by which this bead is judged: the criteria's and the repository's own."""
    criteria = [list(c["check"]) for c in context.bag.get("acceptance") or [] if c.get("check")]
    return criteria + [list(argv) for argv in (context.bag.get("terms") or {}).get("verify") or []]


def judging_scripts(context: CheckContext, work: Work) -> dict[str, str]:
    """Changed files that existed at base and are run as a check, or loaded by one: path to who runs it."""
    existing = [file.path for file in work.files if not file.new]
    found: dict[str, str] = {}
    for argv in commands_of(context):
        for script in commands.programs(argv, existing):
            if commands.judge_like(script) or not is_source(script):
                found[script] = " ".join(argv)[:120]
        found |= {path: " ".join(argv)[:120] for path in commands.configured_by(argv) if path in existing}
    suspects = [p for p in existing if p not in found and commands.judge_like(p) and not is_guarded(p)]
    if suspects:
        for path, text in _build_files(work).items():
            found |= {
                suspect: path for suspect in suspects if re.search(_MENTIONS % re.escape(suspect), text)
            }
    return _helpers(context, work, existing) | found


def _helpers(context: CheckContext, work: Work, existing: list[str]) -> dict[str, str]:
    """Changed files beside a script that is run as a check, which that script names: what it imports or compares with.

    In the root everything stands beside everything, so there nothing is concluded.
    """
    tree = list_tree(work.git, work.base)
    judges = {
        script
        for argv in commands_of(context)
        for script in commands.programs(argv, tree)
        if commands.judge_like(script) and "/" in script
    }
    oids = {script: tree[script][1] for script in judges}
    blobs = read_blobs(work.git, sorted(set(oids.values())), 256 * 1024)
    found = {}
    for script, oid in oids.items():
        text = blobs.get(oid, b"").decode("utf-8", "replace")
        beside = [p for p in existing if p != script and posixpath.dirname(p) == posixpath.dirname(script)]
        for path in beside:
            stem = posixpath.basename(path).partition(".")[0]
            if stem and re.search(rf"(?<![\w-]){re.escape(stem)}(?![\w-])", text):
                found[path] = script
    return found


def _build_files(work: Work) -> Mapping[str, str]:
    """The base's own build, test and CI files, in which checks are started."""
    tree = list_tree(work.git, work.base)
    wanted = {
        path: oid
        for path, (mode, oid) in tree.items()
        if mode[:3] == "100" and is_guarded(path) not in ("", TEST)
    }
    blobs = read_blobs(work.git, sorted(set(wanted.values())), 256 * 1024)
    return {path: blobs[oid].decode("utf-8", "replace") for path, oid in wanted.items() if oid in blobs}


def _paths(findings: Findings, file: Touched, allow: list[str], judges: Mapping[str, str]) -> None:
    kind = is_guarded(file.path)
    if file.new and kind == TEST:
        return
    what = "added" if file.new else "deleted" if file.gone else "changed"
    if kind and not named(file.path, allow):
        if file.new and posixpath.basename(file.path) == "conftest.py":
            return
        findings.add(
            "HIGH",
            "guarded_file",
            f"{file.path} ({kind}) was {what}, and the task's allow does not name it.",
            file.path,
            "Take this change back; make new tests in new files.",
        )
    elif file.path in judges and file.path not in allow:
        findings.add(
            "HIGH",
            "check_edited",
            f"{file.path} was {what}; it is run as a check by: {judges[file.path]}.",
            file.path,
            "Leave the script that judges the work as it is.",
        )
    elif not kind and not allowed(file.path, allow):
        findings.add(
            "HIGH",
            "out_of_scope",
            f"{file.path} was {what}, and the task allows only: {', '.join(allow)}.",
            file.path,
            "Take this change back, or do it another way within the allowed paths.",
        )


# --- links, submodules, names -----------------------------------------------------------------------------


def _links(findings: Findings, work: Work) -> None:
    for file in work.files:
        if file.new_mode == SUBMODULE or (file.old_mode == SUBMODULE and not file.gone):
            findings.add(
                "HIGH",
                "submodule",
                f"{file.path} is a link to another repository; its content cannot be judged here.",
                file.path,
                "Leave submodules as they were, and add files instead of repositories.",
            )
    if any(LINK in (file.new_mode, file.old_mode) for file in work.files):
        before, after = links(work.git, work.base), links(work.git, work.head)
        for path, target in after.items():
            if escapes(path, after) and not (before.get(path) == target and escapes(path, before)):
                findings.add(
                    "HIGH",
                    "link_out_of_tree",
                    f"{path} is a link that leads out of the repository, to {target!r}.",
                    path,
                    "Add the file itself, or a relative link that stays within the repository.",
                )


def links(git: Git, commit: str) -> dict[str, str]:
    """Every symbolic link of *commit*: path to target."""
    found = {path: oid for path, (mode, oid) in list_tree(git, commit).items() if mode == LINK}
    blobs = read_blobs(git, sorted(set(found.values())))
    return {path: blobs.get(oid, b"/").decode("utf-8", "surrogateescape") for path, oid in found.items()}


def escapes(path: str, all_links: Mapping[str, str]) -> bool:
    """Whether following *path* leaves the tree (or enters ``.git``), through whatever links it passes."""
    todo = path.split("/")
    at: list[str] = []
    hops = 0
    while todo:
        part = todo.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        target = all_links.get("/".join(at))
        if target is not None:
            hops += 1
            if target.startswith("/") or hops > _LINK_HOPS_MAX:
                return True
            at.pop()
            todo = target.split("/") + todo
    return bool(at) and at[0].lower() == ".git"


def _names(findings: Findings, work: Work) -> None:
    """New paths that a case-folding file system would take for others."""
    fresh = [file.path for file in work.files if file.new]
    if not fresh:
        return
    by_folded: dict[str, list[str]] = {}
    for path in list_tree(work.git, work.head):
        by_folded.setdefault(path.casefold(), []).append(path)
    for path in fresh:
        others = [other for other in by_folded.get(path.casefold(), []) if other != path]
        if others:
            findings.add(
                "MEDIUM",
                "case_collision",
                f"{path} and {others[0]} are one file where the file system folds case.",
                path,
                "Choose another name.",
            )
