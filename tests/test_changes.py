"""A change as data: every kind of file, no name or content that could forge one, nothing hidden by size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from school.changes import Change, Coverage
from school.changes import change as changes
from school.errors import GitError
from school.system.git import Git
from tests.support import git, write_tree


def _commit(repo: Path) -> str:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    return git(repo, "rev-parse", "HEAD")


def _change(repo: Path, base: str, head: str) -> Change:
    return Change.of(Git(repo / ".git"), base, head)


def test_every_kind_of_change(repo: Path) -> None:
    write_tree(
        repo, {"gone.txt": "a\nb\n", "moved.txt": "line\n" * 50, "tool.sh": "#!/bin/sh\n", "kind": "file\n"}
    )
    base = _commit(repo)
    (repo / "gone.txt").unlink()
    (repo / "moved.txt").rename(repo / "to here.txt")
    (repo / "tool.sh").chmod(0o755)
    (repo / "kind").unlink()
    (repo / "kind").symlink_to("README.md")
    (repo / "bin").write_bytes(bytes(range(256)))
    (repo / "empty").write_text("")
    write_tree(repo, {"README.md": "# calc\n\nA large calculator.\nMore.\n"})
    head = _commit(repo)
    change = _change(repo, base, head)
    seen = {
        file.path: (file.status, file.old_path, file.added, file.deleted, file.binary)
        for file in change.files
    }
    assert seen == {
        "README.md": ("M", "", 2, 1, False),
        "bin": ("A", "", 0, 0, True),
        "empty": ("A", "", 0, 0, False),
        "gone.txt": ("D", "", 0, 2, False),
        "kind": ("T", "", 1, 1, False),
        "to here.txt": ("R", "moved.txt", 0, 0, False),
        "tool.sh": ("M", "", 0, 0, False),
    }
    modes = {file.path: (file.old_mode, file.new_mode) for file in change.files}
    assert modes["tool.sh"] == ("100644", "100755")
    assert modes["kind"] == ("100644", "120000")
    assert modes["gone.txt"] == ("100644", "000000")
    binary = next(file for file in change.files if file.path == "bin")
    assert change.blob(binary.new_oid) == bytes(range(256))
    assert list(change.added_lines()) == [
        ("README.md", 3, "A large calculator."),
        ("README.md", 4, "More."),
        ("kind", 1, "README.md"),
    ]
    assert "to here.txt" in change.stat()
    assert change.paths == sorted([*seen, "moved.txt"])


def test_no_change(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    change = _change(repo, head, head)
    assert (change.files, change.empty, change.stat()) == ([], True, "")
    assert change.patch(1000) == (b"", Coverage(0, 0))
    assert list(change.added_lines()) == []


def test_names_and_contents_forge_nothing(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    evil = "diff --git a/x b/x\n--- a/x\n+++ b/innocent.py\n@@ -0,0 +1,2 @@\n+++ b/other\n@@ -1 +1 @@\n-- x\n\\ No newline"
    names = [
        b"a\nb",
        b'q"uote',
        b"tab\there",
        b"\xff\xfe",
        b"b/ a",
        b":100644 1 2 3 M",
        "ü".encode(),
        b" trail ",
    ]
    for number, name in enumerate(names):
        path = repo / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n{evil}", encoding="utf-8")
    change = _change(repo, base, _commit(repo))
    assert sorted(os.fsencode(file.path) for file in change.files) == sorted(names)
    expected = [
        (os.fsdecode(name), line_number, line)
        for number, name in enumerate(names)
        for line_number, line in enumerate(f"{number}\n{evil}".split("\n"), 1)
    ]
    assert sorted(change.added_lines()) == sorted(expected)


def test_lines_that_are_no_utf8_and_odd_line_ends(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    (repo / "x").write_bytes(b"caf\xe9\r\nform\x0cfeed\x1c\x85one\n\nlast")
    change = _change(repo, base, _commit(repo))
    assert [
        (number, text.encode("utf-8", "surrogateescape")) for _, number, text in change.added_lines()
    ] == [
        (1, b"caf\xe9\r"),
        (2, b"form\x0cfeed\x1c\x85one"),
        (3, b""),
        (4, b"last"),
    ]


def test_line_numbers_are_those_of_head(repo: Path) -> None:
    (repo / "f").write_text("".join(f"{number}\n" for number in range(100)))
    base = _commit(repo)
    lines = [f"{number}" for number in range(100)]
    lines[90:90] = ["new90"]
    lines[50] = "changed50"
    del lines[10:20]
    lines[0:0] = ["new0", "new0b"]
    (repo / "f").write_text("\n".join(lines) + "\n")
    change = _change(repo, base, _commit(repo))
    found = {number: text for _, number, text in change.added_lines()}
    head_lines = (repo / "f").read_text().splitlines()
    assert sorted(found.values()) == ["changed50", "new0", "new0b", "new90"]
    assert all(head_lines[number - 1] == text for number, text in found.items())


def test_a_huge_file_hides_no_small_one(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, {"a.lock": "package 1.2.3\n" * 50_000, "z.py": "backdoor = True\n", "m.py": "m = 1\n"})
    change = _change(repo, base, _commit(repo))
    patch, coverage = change.patch(10_000)
    assert b"backdoor = True" in patch
    assert (coverage.files, coverage.shown, coverage.left_out, coverage.complete) == (3, 2, ["a.lock"], False)
    assert coverage.shown_bytes == len(patch) < coverage.total_bytes
    whole, coverage = change.patch(10_000_000)
    assert coverage.complete
    assert whole.decode() == git(repo, "diff-tree", "-p", "-r", base, change.head) + "\n"


def test_what_is_too_large_to_read_at_once_is_read_in_parts(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, {f"f{number}.txt": f"{number}\n" * 200 for number in range(9)})
    head = _commit(repo)
    expected = list(_change(repo, base, head).added_lines())
    monkeypatch.setattr(changes, "READ_BYTES_MAX", 2000)
    monkeypatch.setattr(changes, "_PATHS_A_CALL_MAX", 4)
    change = _change(repo, base, head)
    assert list(change.added_lines()) == expected
    assert change.patch(1_000_000)[1].complete
    monkeypatch.setattr(changes, "READ_BYTES_MAX", 100)
    assert change.patch(1_000_000)[1].left_out == [file.path for file in change.files]
    with pytest.raises(GitError, match="is larger than"):
        list(change.added_lines())


def test_attributes_of_an_agent_hide_nothing_in_the_clone(repo: Path, tmp_path: Path) -> None:
    from school.worktrees.clone import EXACT_ATTRIBUTES

    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, {".gitattributes": "*.py -diff\n*.py diff=evil\n", "calc/core.py": "evil = 1\n"})
    head = _commit(repo)
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text(EXACT_ATTRIBUTES)
    change = Change.of(Git(repo / ".git", repo), base, head)
    assert ("calc/core.py", 1, "evil = 1") in list(change.added_lines())


def test_an_unknown_commit_is_an_error(repo: Path) -> None:
    with pytest.raises(GitError):
        _ = _change(repo, "1" * 40, "HEAD").files
