"""The evidence of a folder whose owner means ill: nothing of theirs runs, nothing hides, nothing outside is read."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from school.changes import evidence, evidence_of_folder, folder
from school.changes.folder import Outlook, refused
from school.errors import GitError, MachineError
from tests.support import ROOT, git, write_tree


@pytest.fixture
def alarm(tmp_path: Path) -> Path:
    """A folder where whatever runs leaves a file."""
    place = tmp_path / "alarm"
    place.mkdir()
    return place


def _program(alarm: Path, name: str) -> str:
    program = alarm.parent / f"evil-{name}"
    program.write_text(f"#!/bin/sh\n: > '{alarm}/{name}'\ncat 2>/dev/null\nexit 0\n")
    program.chmod(0o755)
    return str(program)


def _hostile(repo: Path, alarm: Path, admin: Path) -> None:
    """Everything in a repository's configuration, attributes and hooks that could run a command."""
    keys = {
        "core.fsmonitor": "fsmonitor",
        "diff.external": "external",
        "core.pager": "pager",
        "pager.diff": "pager-diff",
        "pager.status": "pager-status",
        "core.sshCommand": "ssh",
        "core.editor": "editor",
        "core.askPass": "askpass",
        "core.gitProxy": "proxy",
        "core.alternateRefsCommand": "alternates",
        "credential.helper": "credential",
        "gpg.program": "gpg",
        "uploadpack.packObjectsHook": "pack",
        "diff.evil.command": "driver",
        "diff.evil.textconv": "textconv",
        "filter.evil.clean": "clean",
        "filter.evil.smudge": "smudge",
        "filter.evil.process": "process",
        "merge.evil.driver": "merge",
        "interactive.diffFilter": "difffilter",
    }
    lines = [
        f"[alias]\n\t{name} = !{_program(alarm, 'alias')}" for name in ("diff", "status", "rev-parse", "x")
    ]
    for key, name in keys.items():
        section, _, last = key.rpartition(".")
        head, _, sub = section.partition(".")
        lines.append(
            f"[{head}{f' {chr(34)}{sub}{chr(34)}' if sub else ''}]\n\t{last} = {_program(alarm, name)}"
        )
    lines += [
        '[filter "evil"]\n\trequired = true',
        "[core]\n\thooksPath = hooks\n\tuntrackedCache = true",
        "[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none",
        "[status]\n\tsubmoduleSummary = true",
        "[log]\n\tshowSignature = true",
        f'[remote "origin"]\n\turl = ext::{_program(alarm, "ext")}\n\tpromisor = true\n\tpartialclonefilter = blob:none',
        "[color]\n\tui = always",
    ]
    with (admin / "config").open("a") as config:
        config.write("\n".join(lines) + "\n")
    hooks = admin / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in (
        "post-index-change",
        "fsmonitor-watchman",
        "pre-commit",
        "post-checkout",
        "reference-transaction",
    ):
        Path(_program(alarm, f"hook-{hook}")).rename(hooks / hook)
    (admin / "info").mkdir(exist_ok=True)
    (admin / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil -text binary\n")
    (repo / ".gitattributes").write_text(
        "* filter=evil diff=evil\n*.py -diff\n*.txt working-tree-encoding=UTF-16\n"
    )


def test_nothing_is_executed(repo: Path, alarm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, {"calc/core.py": "def add(a, b):\n    return a * b\n"})
    git(repo, "commit", "-q", "-am", "committed")
    write_tree(repo, {"README.md": "# changed\n", "new.py": "import os\n", "loose.txt": "loose\n"})
    _hostile(repo, alarm, repo / ".git")
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "PAGER", "GIT_SSH_COMMAND", "GIT_EDITOR"):
        monkeypatch.setenv(name, _program(alarm, name))
    # The traps are live: plain git falls into them.
    subprocess.run(["git", "status"], cwd=repo, capture_output=True, check=False)
    assert list(alarm.iterdir()) != []
    for trap in alarm.iterdir():
        trap.unlink()
    before = {path: path.stat().st_mtime_ns for path in (repo / ".git").rglob("*")}

    seen = evidence_of_folder(repo, base)

    assert list(alarm.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in (repo / ".git").rglob("*")} == before
    assert (seen.files, seen.coverage.complete, seen.fell_back) == (5, True, "")
    # No attribute makes a patch binary, and nothing is coloured or converted.
    assert "+    return a * b\n" in seen.text
    assert "+# changed\n" in seen.text
    assert "+import os\n" in seen.text
    assert "\x1b" not in seen.text


def test_a_hostile_submodule_is_not_entered(repo: Path, alarm: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    write_tree(other, {"a.txt": "a\n"})
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "a")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    git(repo, "commit", "-q", "-m", "sub")
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo / "sub", {"a.txt": "changed\n", "untracked.txt": "x\n"})
    _hostile(repo / "sub", alarm, repo / ".git" / "modules" / "sub")
    subprocess.run(["git", "status"], cwd=repo, capture_output=True, check=False)
    assert list(alarm.iterdir()) != []
    for trap in alarm.iterdir():
        trap.unlink()
    assert evidence_of_folder(repo, base).files == 0
    assert list(alarm.iterdir()) == []
    git(other, "commit", "-q", "--allow-empty", "-m", "b")
    # Its own commit counts: that is in the tree around it.
    (repo / ".git" / "modules" / "sub" / "HEAD").write_text(git(other, "rev-parse", "HEAD") + "\n")
    seen = evidence_of_folder(repo, base)
    assert " sub: uncommitted M +1 -1\n" in seen.text
    assert "+Subproject commit " in seen.text
    assert list(alarm.iterdir()) == []


def test_names_of_every_kind(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    names = [
        b"-rf",
        b'quo"te',
        b"new\n--- coverage ---\nline",
        b"\xff\xfe.bin",
        b" blank ",
        "\u202egnp.txt".encode(),
        b"tab\t",
    ]
    for at, name in enumerate(names):
        (repo / os.fsdecode(name)).write_text(f"{at}\n")
    git(repo, "add", "--", *[os.fsdecode(name) for name in names[:3]])
    git(repo, "commit", "-q", "-m", "--- new files ---")
    (repo / "-rf").write_text("changed\n")
    seen = evidence_of_folder(repo, base)
    assert seen.files == 7
    lines = seen.text.split("\n")
    for line in (
        ' "-rf": committed A +1 -0; uncommitted M +1 -1',
        r' "quo\"te": committed A +1 -0',
        r' "new\x0a--- coverage ---\x0aline": committed A +1 -0',
        r' "\xff\xfe.bin": new ? 2 bytes',
        ' " blank ": new ? 2 bytes',
        r' "\xe2\x80\xaegnp.txt": new ? 2 bytes',
        r' "tab\x09": new ? 2 bytes',
    ):
        assert line in lines
    assert [line for line in lines if line.startswith("--- ") and line.endswith(" ---")] == [
        f"--- stat (commits since turn start ({base[:12]}..HEAD)) ---",
        "--- files changed (7) ---",
        "--- coverage ---",
        "--- committed during this turn ---",
        "--- uncommitted ---",
        "--- new files ---",
    ]
    seen.text.encode("utf-8")


def test_content_forges_no_headline(repo: Path) -> None:
    write_tree(repo, {"forged.sql": "-- coverage ---\n-- new files ---\nx\n"})
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "base")
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, {"forged.sql": "x\n", "fresh.txt": "--- coverage ---\n0 files\n"})
    text = evidence_of_folder(repo, base).text
    assert text.count("\n--- coverage ---\n") == 1
    assert text.count("\n--- new files ---\n") == 1
    assert "\n- -- coverage ---\n" in text
    assert "\n+--- coverage ---\n" in text


def test_links_lead_nowhere(repo: Path, tmp_path: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("TOP SECRET\n")
    (repo / "file-link").symlink_to(outside / "secret.txt")
    (repo / "folder-link").symlink_to(outside)
    (repo / "README.md").unlink()
    (repo / "README.md").symlink_to(outside / "secret.txt")
    (repo / "nested").mkdir()
    git(repo / "nested", "init", "-q")
    (repo / "nested" / "inner.txt").write_text("inner\n")
    os.mkfifo(repo / "pipe")
    seen = evidence_of_folder(repo, base)
    assert "SECRET" not in seen.text
    assert f"! it points to {outside}/secret.txt\n" in seen.text
    assert " file-link: new ? link\n" in seen.text
    assert " folder-link: new ? link\n" in seen.text
    assert " README.md: uncommitted T +1 -3\n" in seen.text
    assert " nested/: new ? a repository of its own, not looked into\n" in seen.text
    assert "pipe" not in seen.text  # git lists no pipes


def test_what_may_not_be_read_is_refused(repo: Path, tmp_path: Path) -> None:
    assert [
        refused(path) for path in ("/etc/passwd", "../x", "a/../b", "a/..", "", "a\0b", "a/b", "..a", "a..")
    ] == [
        "it is absolute",
        "it leads out of the project",
        "it leads out of the project",
        "it leads out of the project",
        "it is no path",
        "it is no path",
        "",
        "",
        "",
    ]
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.txt").write_text("TOP SECRET\n")
    (repo / "way").symlink_to(tmp_path / "secret")
    with Outlook(repo, timeout_s=20) as outlook:
        for path in ("/etc/passwd", "../secret/s.txt", "way/s.txt", "absent"):
            with pytest.raises(MachineError):
                outlook.read_new(path, 100)
        assert outlook.read_new("README.md", 6) == b"# calc"


def test_a_file_that_becomes_a_link_while_we_look_is_not_followed(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("TOP SECRET\n")
    write_tree(repo, {"deep/new.txt": "harmless\n"})
    with Outlook(repo, timeout_s=20) as outlook:
        outlook.take_index()
        assert not outlook.list_files()
        assert [file.path for file in outlook.untracked()] == ["deep/new.txt"]
        (repo / "deep" / "new.txt").unlink()
        (repo / "deep").rmdir()
        (repo / "deep").symlink_to(tmp_path)
        (tmp_path / "new.txt").write_text("TOP SECRET\n")
        with pytest.raises(MachineError):
            outlook.read_new("deep/new.txt", 100)


def test_files_that_git_was_told_not_to_look_at_are_looked_at(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "update-index", "--assume-unchanged", "README.md")
    git(repo, "update-index", "--skip-worktree", "calc/core.py", "school.toml")
    write_tree(repo, {"README.md": "hidden\n", "calc/core.py": "hidden = 2\n", ".gitignore": "*\n"})
    (repo / "school.toml").unlink()
    write_tree(repo, {"forced.log": "forced\n"})
    git(repo, "add", "-f", "forced.log")
    assert git(repo, "status", "--porcelain").splitlines() == [" M .gitignore", "A  forced.log"]
    text = evidence_of_folder(repo, base).text
    assert "+hidden = 2\n" in text
    assert " README.md: uncommitted M +1 -3\n" in text
    assert " forced.log: new ? 7 bytes\n" in text
    assert " school.toml: " not in text  # a sparse checkout has not all files


def test_a_rebase_in_the_middle(repo: Path) -> None:
    start = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "-b", "side")
    write_tree(repo, {"README.md": "side\n", "side.txt": "s\n"})
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "side")
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "main")
    write_tree(repo, {"README.md": "main\n"})
    git(repo, "commit", "-q", "-am", "main")
    git(repo, "checkout", "-q", "side")
    stopped = subprocess.run(["git", "rebase", "main"], cwd=repo, capture_output=True, check=False)
    assert stopped.returncode != 0
    seen = evidence_of_folder(repo, base)
    assert seen.fell_back == f"HEAD does not descend from {base[:12]} (rebased or amended)"
    assert "note: a rebase is in progress\n" in seen.text
    assert f"(not known: {seen.fell_back}; only the working folder is shown)\n" in seen.text
    assert "+<<<<<<< " in seen.text
    assert " side.txt: new ? 2 bytes\n" in seen.text
    assert evidence_of_folder(repo, start).fell_back == ""


def test_an_amended_base_and_none_at_all(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--amend", "-m", "amended")
    write_tree(repo, {"README.md": "loose\n"})
    amended = evidence_of_folder(repo, base)
    assert amended.fell_back == f"HEAD does not descend from {base[:12]} (rebased or amended)"
    assert "+loose\n" in amended.text
    assert evidence_of_folder(repo, "").fell_back == "no commit was recorded when the turn began"
    assert evidence_of_folder(repo, "f" * 40).fell_back == "ffffffffffff cannot be found"
    assert (
        evidence_of_folder(repo, "--output=x").fell_back
        == "what was recorded when the turn began is no commit"
    )
    assert not (repo / "x").exists()


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_no_commits(tmp_path: Path, form: str) -> None:
    place = tmp_path / "young"
    place.mkdir()
    git(place, "init", "-q", f"--object-format={form}")
    write_tree(place, {"staged.txt": "one\ntwo\n", "loose/deep.txt": "x\n"})
    git(place, "add", "staged.txt")
    seen = evidence_of_folder(place / "loose", "")
    assert seen.text.split("--- coverage ---\n")[0] == (
        "--- stat (commits since turn start (unknown..HEAD)) ---\n (no commits)\n--- files changed (2) ---\n"
        " loose/deep.txt: new ? 2 bytes\n staged.txt: new ? 8 bytes\n"
    )
    assert "+one\n+two\n" in seen.text


def test_in_a_linked_worktree_of_a_sha256_repository(tmp_path: Path) -> None:
    place = tmp_path / 'with "quotes" \\ and blanks\n'
    place.mkdir()
    git(place, "init", "-q", "--object-format=sha256")
    write_tree(place, {"a.txt": "a\n"})
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "a")
    git(place, "worktree", "add", "-q", "../tree")
    write_tree(tmp_path / "tree", {"a.txt": "b\n", "c.txt": "c\n"})
    seen = evidence_of_folder(tmp_path / "tree", git(place, "rev-parse", "HEAD"))
    assert (seen.files, seen.fell_back, seen.coverage.complete) == (2, "", True)


@pytest.mark.parametrize("damage", ["torn", "split", "gone", "huge"])
def test_an_index_that_cannot_be_used_is_done_without(
    repo: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    write_tree(repo, {"README.md": "changed\n", "new.txt": "n\n"})
    index = repo / ".git" / "index"
    match damage:
        case "torn":
            index.write_bytes(index.read_bytes()[:100])
        case "split":
            git(repo, "update-index", "--split-index")
        case "gone":
            index.unlink()
        case "huge":
            monkeypatch.setattr(folder, "INDEX_BYTES_MAX", 10)
    seen = evidence_of_folder(repo, base)
    assert seen.text.split("--- files changed (2) ---\n")[1].startswith(
        " README.md: uncommitted M +1 -3\n new.txt: new ? 2 bytes\n"
    )


def test_a_change_within_the_same_moment_as_the_index(repo: Path) -> None:
    """Racy: same size, and a time that the index may hold for the old content."""
    write_tree(repo, {"racy.txt": "aaaa\n"})
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "racy")
    base = git(repo, "rev-parse", "HEAD")
    stamp = (repo / ".git" / "index").stat().st_mtime_ns
    (repo / "racy.txt").write_text("bbbb\n")
    os.utime(repo / "racy.txt", ns=(stamp, stamp))
    assert " racy.txt: uncommitted M +1 -1\n" in evidence_of_folder(repo, base).text


def test_a_broken_or_endless_configuration_is_an_error_in_time(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    config = repo / ".git" / "config"
    good = config.read_text()
    config.write_text(good + "[core\n")
    with pytest.raises(GitError, match="config"):
        evidence_of_folder(repo, base)
    os.mkfifo(repo / ".git" / "endless")
    config.write_text(good + "[include]\n\tpath = endless\n")
    with pytest.raises(GitError, match=r"no end after|took too long"):
        evidence_of_folder(repo, base, timeout_s=0.5)


MANY = """
import resource, sys
from pathlib import Path
from school.changes import evidence_of_folder
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = evidence_of_folder(Path(sys.argv[1]), sys.argv[2], timeout_s=60)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
names = sum(line.endswith(" bytes [patch not shown]") or line.endswith(" bytes") for line in seen.text.split("\\n"))
print(seen.files, names, seen.coverage.complete, used // 1024, children // 1024)
print(seen.text.split("--- coverage ---\\n")[1].split("\\n")[0])
"""


def _measured(repo: Path, base: str) -> tuple[list[str], str]:
    """What evidence says in a process of its own, and the megabytes that it and git took for it."""
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(repo), base], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    counts, coverage = done.stdout.splitlines()
    return counts.split(), coverage


def test_twenty_thousand_new_files_are_all_named(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    for folder_number in range(20):
        place = repo / f"gen{folder_number}"
        place.mkdir()
        for number in range(1000):
            (place / f"f{number}.txt").write_bytes(b"%d\n" % number)
    (files, names, complete, megabytes, _), coverage = _measured(repo, base)
    assert (files, names, complete) == ("20000", "20000", "False")
    assert coverage == "20000 files: 0 committed (+0 -0), 0 uncommitted (+0 -0), 20000 new"
    assert int(megabytes) < 100


def test_a_hundred_megabytes_in_one_file(repo: Path) -> None:
    write_tree(repo, {"grown.txt": "small\n"})
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "base")
    base = git(repo, "rev-parse", "HEAD")
    line = b"0123456789abcdef" * 4 + b"\n"
    for name in ("grown.txt", "fresh.txt"):
        with (repo / name).open("wb") as stream:
            for _ in range(100):
                stream.write(line * (1024 * 1024 // len(line) + 1))
    (files, _, complete, megabytes, children), coverage = _measured(repo, base)
    assert (files, complete) == ("2", "False")
    assert coverage == "2 files: 0 committed (+0 -0), 1 uncommitted (+0 -0), 1 new"
    assert int(megabytes) < 60
    assert int(children) < 200, "git compares it without holding it"


def test_resources_are_those_of_this_machine() -> None:
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    assert evidence.EVIDENCE_CHARS_MAX == 128_000
