"""The evidence block: one order, a header that is always whole, counts that are git's own, whatever is clipped."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from school.changes import Evidence, evidence_of_commits, evidence_of_folder, head_of
from school.changes.patches import Patch, read_patch
from school.errors import GitError
from school.system.git import Git
from tests.support import git, write_tree

HEADLINES = [
    "--- coverage ---",
    "--- committed during this turn ---",
    "--- uncommitted ---",
    "--- new files ---",
]


def _commit(repo: Path) -> str:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def changed(repo: Path) -> tuple[Path, str, str]:
    """Two commits with every kind of change between them."""
    noise = random.Random(7)
    lines = [f"line {noise.random()}" for _ in range(3000)]
    write_tree(
        repo, {"big.txt": "\n".join(lines), "moved.txt": "m\n" * 90, "kind": "file\n", "gone.txt": "a\n"}
    )
    base = _commit(repo)
    for at in noise.sample(range(3000), 400):
        lines[at] = noise.choice(
            ["", "++ plus", "-- minus", "@@ -1 +1 @@", "diff --git a/x b/x", "+++ b/x", "new"]
        )
    (repo / "moved.txt").rename(repo / "to here.txt")
    (repo / "kind").unlink()
    (repo / "kind").symlink_to("README.md")
    (repo / "gone.txt").unlink()
    (repo / "bytes").write_bytes(bytes(range(256)) * 9)
    (repo / "README.md").chmod(0o755)
    write_tree(repo, {"big.txt": "\n".join(lines) + "\n", "empty": "", "long.txt": "y" * 200_000 + "\nz"})
    for number in range(30):
        write_tree(repo, {f"many/{number}.txt": "diff --git a/x b/x\n" * number})
    return repo, base, _commit(repo)


def _pieces(whole: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(whole):
        size = next(sizes)
        yield whole[at : at + size]
        at += size


def _read(whole: bytes, keep: int, sizes: Iterator[int]) -> Patch:
    return read_patch(_pieces(whole, sizes), keep)


@pytest.mark.parametrize("keep", [0, 100, 5_000, 10_000_000])
def test_the_counts_are_gits_own_however_the_patch_comes(changed: tuple[Path, str, str], keep: int) -> None:
    repo, base, head = changed
    plain = Git(repo / ".git")
    whole = plain.run("diff-tree", "-r", "-M", "--raw", "-p", "-z", base, head).stdout
    noise = random.Random(keep)
    for most in (3, 997, 10_000_000):
        patch = _read(whole, keep, iter(lambda most=most: noise.randint(1, most), 0))
        counted = {
            file.path: ("-", "-") if file.binary else (str(file.added), str(file.deleted))
            for file in patch.files
        }
        listed = git(repo, "diff-tree", "-r", "-M", "--numstat", "--no-renames", base, head).splitlines()
        expected = {name: (added, deleted) for added, deleted, name in (line.split("\t") for line in listed)}
        del expected["moved.txt"]
        expected["to here.txt"] = ("0", "0")
        assert counted == expected
        assert sum(len(file.text) for file in patch.files) <= keep
        assert sum(bool(file.clipped) for file in patch.files) == (1 if 0 < keep < 10_000_000 else 0)
        sections = whole.split(b"\0\0", 1)[1]
        assert patch.total_bytes == len(sections)
        if keep == 10_000_000:
            assert b"".join(file.text for file in patch.files) == sections


def test_a_patch_that_is_cut_off_is_an_error(changed: tuple[Path, str, str]) -> None:
    repo, base, head = changed
    whole = Git(repo / ".git").run("diff-tree", "-r", "-M", "--raw", "-p", "-z", base, head).stdout
    with pytest.raises(GitError, match="sections where its list asks for"):
        read_patch([whole[: whole.index(b"diff --git a/long.txt")]], 1000)
    assert read_patch([], 1000).files == []


def _header(seen: Evidence) -> str:
    return seen.text.split("--- committed during this turn ---\n", 1)[0].split("\n--- coverage", 1)[0]


def _unmarked(header: str) -> str:
    return header.replace(" [patch not shown]", "").replace(" [beginning only]", "")


def test_only_the_patch_is_clipped(changed: tuple[Path, str, str]) -> None:
    repo, base, _ = changed
    write_tree(repo, {"big.txt": "rewritten\n" * 900, "fresh.txt": "f\n" * 9000, "little.txt": "l\n"})
    whole = evidence_of_folder(repo, base, max_chars=2_000_000)
    assert whole.coverage.complete
    assert (whole.coverage.shown, whole.coverage.shown_bytes) == (whole.files, whole.coverage.total_bytes)
    for most in (1_000, 5_000, 8_000, 20_000, 60_000, 100_000, 250_000):
        seen = evidence_of_folder(repo, base, max_chars=most)
        assert _unmarked(_header(seen)) == _header(whole)
        assert [line for line in seen.text.split("\n") if line in HEADLINES] == HEADLINES
        assert (seen.digest, seen.files) == (whole.digest, whole.files)
        assert not seen.coverage.complete
        header_chars = len(seen.text.split("--- committed during")[0])
        assert len(seen.text) <= max(most, header_chars + 200)
        marked = [line for line in _header(seen).split("\n") if line.endswith((" shown]", " only]"))]
        assert len(marked) == len(seen.coverage.left_out) == seen.files - seen.coverage.shown
        assert (
            seen.text.count("[clipped here: this file goes on]")
            == _header(seen).count("[beginning only]")
            <= 1
        )
        assert f"; CLIPPED: {len(marked)} of them" in seen.text
    assert "+l\n" in evidence_of_folder(repo, base, max_chars=20_000).text, (
        "a small file is not hidden by a large one"
    )


def test_the_digest_sees_what_is_not_shown(changed: tuple[Path, str, str]) -> None:
    repo, base, _ = changed
    write_tree(repo, {"fresh.txt": "f\n" * 9000})
    first = evidence_of_folder(repo, base, max_chars=1_000)
    assert evidence_of_folder(repo, base, max_chars=1_000).digest == first.digest
    write_tree(repo, {"fresh.txt": "f\n" * 8999 + "g\n"})
    assert evidence_of_folder(repo, base, max_chars=1_000).digest != first.digest


def test_commits_are_shown_the_same_way(changed: tuple[Path, str, str]) -> None:
    repo, base, head = changed
    seen = evidence_of_commits(Git(repo / ".git"), base, head, max_chars=2_000_000)
    folder = evidence_of_folder(repo, base, max_chars=2_000_000)
    assert seen.text.startswith(f"--- stat (commits since base ({base[:12]}..{head[:12]})) ---\n")
    after = "--- files changed ("
    assert (
        seen.text.split(after)[1].replace("--- committed ---", "--- committed during this turn ---")
        == (folder.text.split(after)[1])
    )
    assert seen.text.endswith("--- uncommitted ---\n(none)\n--- new files ---\n(none)\n")
    assert evidence_of_commits(Git(repo / ".git"), head, head).empty


def test_nothing_changed(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    seen = evidence_of_folder(repo, head)
    assert (seen.empty, seen.files, seen.coverage.complete) == (True, 0, True)
    assert seen.text == (
        f"--- stat (commits since turn start ({head[:12]}..HEAD)) ---\n (no commits)\n--- files changed (0) ---\n"
        "--- coverage ---\n0 files: 0 committed (+0 -0), 0 uncommitted (+0 -0), 0 new\n"
        "patch: 0 of 0 bytes shown, the block at most 128000 characters; complete\n"
        "--- committed during this turn ---\n(none)\n--- uncommitted ---\n(none)\n--- new files ---\n(none)\n"
    )


def test_the_head_of_a_folder_is_gits(repo: Path, tmp_path: Path) -> None:
    """Read from plain files where they have it, asked of git where they have not; by nobody's link or pipe."""
    head = git(repo, "rev-parse", "HEAD")
    other = _commit(repo)
    assert (head_of(repo), head_of(repo / "calc")) == (other, other)
    git(repo, "pack-refs", "--all")
    assert head_of(repo) == other
    git(repo, "checkout", "-q", "--detach", head)
    assert head_of(repo) == head
    git(repo, "worktree", "add", "-q", "-b", "deep/er", str(tmp_path / "tree"), other)
    assert head_of(tmp_path / "tree") == other
    git(repo, "symbolic-ref", "HEAD", "refs/heads/unborn")
    assert head_of(repo) == ""
    (repo / ".git" / "refs" / "heads" / "unborn").symlink_to(repo / "README.md")
    assert head_of(repo) == ""
    (repo / ".git" / "HEAD").unlink()
    os.mkfifo(repo / ".git" / "HEAD")
    with pytest.raises(GitError, match="no end after"):
        head_of(repo, timeout_s=0.3)
    assert head_of(tmp_path) == ""
