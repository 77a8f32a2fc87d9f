"""What an agent can do to its tree and to git, and that all of its work is in some commit afterwards."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from school.contracts import Snapshot, Workspace
from school.settings import Settings
from school.system.git import Git
from school.worktrees import GitLeafWorktrees, Repository, SchoolClone, collect, snapshot
from tests.support import git, write_tree
from tests.support_git import bag_for, opened, repository_state
from tests.system.support import on_small_disk


class Lab:
    """One leaf's tree in a repository, and what its snapshot holds."""

    def __init__(self, repo: Path, school: Settings, **fields: Any) -> None:
        self.school = school
        self.repository: Repository
        self.clone: SchoolClone
        self.repository, self.clone = opened(repo, school)
        self.bag = bag_for(self.repository, **fields)
        self.workspace: Workspace = GitLeafWorktrees(school).create(self.bag)
        self.path = self.workspace.path

    def save(self) -> Snapshot:
        return snapshot(self.workspace, bag=self.bag, settings=self.school)

    def names(self, ref: str) -> list[bytes]:
        listed = self.clone.git.run("ls-tree", "-r", "-z", "--name-only", ref).stdout
        return [name for name in listed.split(b"\0") if name]

    def show(self, ref: str, name: str) -> bytes:
        found = self.clone.read_file(ref, name)
        assert found is not None, f"{name} is not in {ref}"
        return found

    def mode(self, ref: str, name: str) -> str:
        return self.clone.git.text("ls-tree", ref, "--", name).split()[0]


@pytest.fixture
def lab(repo: Path, school: Settings) -> Lab:
    return Lab(repo, school)


def test_every_kind_of_file_is_kept_by_its_bytes(lab: Lab) -> None:
    contents = {
        b"plain.txt": b"plain\n",
        b"crlf.txt": b"a\r\nb\r\n",
        b"latin-\xe9\xff.txt": b"name is no UTF-8",
        b"line\nbreak\r.txt": b"name has a line break",
        b'"quoted" \\ name': b"quotes",
        b" leading and trailing ": b"blanks",
        b"-rf": b"dash",
        b"deep/er/still/x": b"deep",
        b"bin": bytes(range(256)) * 100,
        "ünïcödé 团队 🎓".encode(): b"unicode",
        b"empty": b"",
        b":(top)magic": b"pathspec",
        b"a*b?[c]": b"glob",
    }
    for name, content in contents.items():
        path = lab.path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (lab.path / "plain.txt").chmod(0o755)
    (lab.path / "link-out").symlink_to("/etc/passwd")
    (lab.path / "link-odd").symlink_to(os.fsdecode(b"\xff\xfe nowhere\n"))
    (lab.path / "link-dir").symlink_to("calc")
    saved = lab.save()
    stored = {name: lab.clone.read_file(saved.head_commit, os.fsdecode(name)) for name in contents}
    assert stored == contents
    assert lab.mode(saved.head_commit, "plain.txt") == "100755"
    assert lab.mode(saved.head_commit, "crlf.txt") == "100644"
    for name, target in (
        (b"link-out", b"/etc/passwd"),
        (b"link-odd", b"\xff\xfe nowhere\n"),
        (b"link-dir", b"calc"),
    ):
        assert lab.mode(saved.head_commit, os.fsdecode(name)) == "120000"
        assert lab.clone.read_file(saved.head_commit, os.fsdecode(name)) == target
    assert sorted(os.fsencode(name) for name in saved.files_changed) == sorted(
        [*contents, b"link-out", b"link-odd", b"link-dir"]
    )
    assert saved.notes == []


def test_a_hundred_megabytes(lab: Lab) -> None:
    block, blocks = os.urandom(1 << 20), 100
    oid = hashlib.sha1(b"blob %d\0" % (blocks << 20), usedforsecurity=False)
    with (lab.path / "big").open("wb") as file:
        for number in range(blocks):
            part = number.to_bytes(4, "big") + block[4:]
            file.write(part)
            oid.update(part)
    saved = lab.save()
    assert lab.clone.git.text("rev-parse", f"{saved.head_commit}:big") == oid.hexdigest()
    assert lab.clone.git.text("cat-file", "-s", f"{saved.head_commit}:big") == str(blocks << 20)


def test_attributes_and_filters_change_nothing(lab: Lab, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    write_tree(
        lab.path,
        {
            ".gitattributes": "* text=auto eol=lf filter=evil ident working-tree-encoding=UTF-16\n*.py -diff\n",
            "crlf.txt": "",
        },
    )
    (lab.path / "crlf.txt").write_bytes(b"a\r\n$Id$\r\n")
    for key, value in {
        "filter.evil.clean": f"touch {trap}; cat",
        "filter.evil.smudge": f"touch {trap}; cat",
        "filter.evil.process": f"touch {trap}",
        "filter.evil.required": "true",
        "core.fsmonitor": f"touch {trap}",
        "core.hooksPath": str(tmp_path),
        "core.pager": f"touch {trap}",
        "diff.external": f"touch {trap}",
        "core.autocrlf": "true",
        "include.path": str(tmp_path / "more"),
        "commit.gpgSign": "true",
        "core.worktree": "/",
        "core.excludesFile": str(tmp_path / "all"),
    }.items():
        git(lab.path, "config", "--file", str(lab.workspace.git_dir / "config"), key, value)
    (tmp_path / "all").write_text("*\n")
    for hook in ("pre-commit", "reference-transaction", "post-index-change"):
        (tmp_path / hook).write_text(f"#!/bin/sh\ntouch {trap}\nexit 1\n")
        (tmp_path / hook).chmod(0o755)
    (lab.workspace.git_dir / "info" / "exclude").write_text("*\n")
    (lab.workspace.git_dir / "info" / "attributes").write_text("* filter=evil\n")
    saved = lab.save()
    assert not trap.exists()
    assert lab.show(saved.head_commit, "crlf.txt") == b"a\r\n$Id$\r\n"
    assert saved.files_changed == [".gitattributes", "crlf.txt"]


def _point_elsewhere(lab: Lab, victim: Path) -> None:
    (lab.path / ".git").write_text(f"gitdir: {victim / '.git'}\n")


def _remove_marker(lab: Lab, victim: Path) -> None:
    (lab.path / ".git").unlink()


def _marker_becomes_a_repository(lab: Lab, victim: Path) -> None:
    (lab.path / ".git").unlink()
    git(lab.path, "init", "-q")
    git(lab.path, "add", "-A")
    git(lab.path, "commit", "-q", "-m", "mine")


def _marker_becomes_a_link(lab: Lab, victim: Path) -> None:
    (lab.path / ".git").unlink()
    (lab.path / ".git").symlink_to(victim / ".git")


def _bead_repository_is_gone(lab: Lab, victim: Path) -> None:
    subprocess.run(["rm", "-rf", str(lab.workspace.git_dir)], check=True)


def _bead_repository_is_wrecked(lab: Lab, victim: Path) -> None:
    (lab.workspace.git_dir / "HEAD").write_text("junk")
    (lab.workspace.git_dir / "config").write_bytes(b"\xff\0[")
    (lab.workspace.git_dir / "objects" / "info" / "alternates").unlink()
    os.mkfifo(lab.workspace.git_dir / "objects" / "info" / "alternates")
    os.mkfifo(lab.workspace.git_dir / "index")


@pytest.mark.parametrize(
    "attack",
    [
        _point_elsewhere,
        _remove_marker,
        _marker_becomes_a_repository,
        _marker_becomes_a_link,
        _bead_repository_is_gone,
        _bead_repository_is_wrecked,
    ],
)
def test_whatever_git_says_there_the_tree_is_saved(attack: Any, lab: Lab, repo: Path) -> None:
    (lab.path / "work.txt").write_text("work")
    before = repository_state(repo)
    attack(lab, repo)
    saved = lab.save()
    assert saved.files_changed == ["work.txt"]
    assert lab.show(saved.ref, "work.txt") == b"work"
    assert repository_state(repo) == before
    GitLeafWorktrees(lab.school).remove(lab.workspace)
    assert not lab.path.exists()
    assert repository_state(repo) == before


def test_all_that_the_agent_committed_is_kept(lab: Lab) -> None:
    (lab.path / "one").write_text("1")
    git(lab.path, "add", ".")
    git(lab.path, "commit", "-q", "-m", "one")
    one = git(lab.path, "rev-parse", "HEAD")
    git(lab.path, "checkout", "-q", "-b", "side")
    (lab.path / "two").write_text("2")
    git(lab.path, "add", ".")
    git(lab.path, "commit", "-q", "-m", "two")
    git(lab.path, "commit", "-q", "--amend", "-m", "two, amended")
    amended = git(lab.path, "rev-parse", "HEAD")
    git(lab.path, "reset", "-q", "--hard", one)
    (lab.path / "stashed").write_text("3")
    git(lab.path, "stash", "-q", "-u")
    git(lab.path, "reset", "-q", "--hard", lab.repository.head_commit)
    saved = lab.save()
    assert saved.files_changed == []
    assert saved.agent_ref == f"refs/school/agent/{lab.bag['bead']}"
    kept = lab.clone.git.text("log", "--format=%s", saved.agent_ref).splitlines()
    assert {"one", "two", "two, amended"} <= set(kept)
    assert lab.clone.git.ok("merge-base", "--is-ancestor", amended, saved.agent_ref)
    everything = lab.clone.git.text("log", "--all", "--name-only", "--format=", "-m", "--root").split()
    assert {"one", "two", "stashed"} <= set(everything)
    assert lab.save() == saved


def test_what_was_only_staged_is_kept(lab: Lab) -> None:
    (lab.path / "staged").write_text("staged, then deleted")
    git(lab.path, "add", ".")
    (lab.path / "staged").unlink()
    (lab.path / "kept").write_text("kept")
    saved = lab.save()
    assert saved.files_changed == ["kept"]
    assert lab.show(saved.agent_ref, "staged") == b"staged, then deleted"
    assert lab.save() == saved
    git(lab.path, "add", "-A")
    again = lab.save()
    assert again.head_commit == saved.head_commit


def test_an_index_of_nonsense_stops_nothing(lab: Lab) -> None:
    (lab.path / "x").write_text("x")
    index = lab.workspace.git_dir / "worktrees" / lab.path.name / "index"
    index.write_bytes(b"DIRC" + bytes(range(256)))
    assert lab.save().files_changed == ["x"]
    index.unlink()
    os.mkfifo(index)
    assert lab.save().files_changed == ["x"]


def test_one_commit_is_its_own_ref_and_gc_changes_nothing(lab: Lab) -> None:
    (lab.path / "one").write_text("1")
    git(lab.path, "add", ".")
    git(lab.path, "commit", "-q", "-m", "one")
    git(lab.path, "repack", "-q", "-a", "-d")  # without -l: copies what it borrows
    git(lab.path, "gc", "-q", "--prune=now", "--aggressive")
    saved = lab.save()
    assert lab.clone.ref(saved.agent_ref) == git(lab.path, "rev-parse", "HEAD")
    assert saved.files_changed == ["one"]


def test_a_broken_commit_is_noted_and_the_whole_one_kept(lab: Lab) -> None:
    commits = []
    for name in ("good", "bad"):
        git(lab.path, "checkout", "-q", "--detach", lab.repository.head_commit)
        (lab.path / name).write_text(name)
        git(lab.path, "add", ".")
        git(lab.path, "commit", "-q", "-m", name)
        commits.append(git(lab.path, "rev-parse", "HEAD"))
    blob = git(lab.path, "rev-parse", "HEAD:bad")
    loose = lab.workspace.git_dir / "objects" / blob[:2] / blob[2:]
    loose.chmod(0o644)
    loose.write_bytes(b"junk")
    (lab.path / "bad").unlink()
    saved = lab.save()
    assert lab.clone.ref(saved.agent_ref) == commits[0], saved.notes
    assert any(commits[1] in note for note in saved.notes)
    assert saved.files_changed == []


def test_nested_repositories_are_files_and_a_bundle(lab: Lab, tmp_path: Path) -> None:
    nested, empty, inside = lab.path / "lib" / "nested", lab.path / "no commits", lab.path / "calc"
    for path in (nested, empty, inside):
        path.mkdir(parents=True, exist_ok=True)
        git(path, "init", "-q")
    write_tree(nested, {"a.txt": "first", ".gitignore": "*.log\n", "x.log": "log"})
    git(nested, "add", ".")
    git(nested, "commit", "-q", "-m", "first")
    git(nested, "checkout", "-q", "-b", "other")
    (nested / "a.txt").write_text("second")
    git(nested, "commit", "-q", "-am", "second")
    (nested / "untracked").write_text("u")
    (empty / "f").write_text("f")
    git(inside, "add", "core.py")
    git(inside, "commit", "-q", "-m", "inside a tracked folder")
    deeper = nested / "deeper"
    deeper.mkdir()
    git(deeper, "init", "-q")
    (deeper / "z").write_text("z")
    saved = lab.save()
    assert saved.files_changed == sorted(
        [
            "lib/nested/.gitignore",
            "lib/nested/a.txt",
            "lib/nested/untracked",
            "lib/nested/deeper/z",
            "no commits/f",
        ]
    )
    assert lab.show(saved.ref, "lib/nested/a.txt") == b"second"
    assert not any(
        line.startswith("160000") for line in lab.clone.git.text("ls-tree", "-r", saved.ref).splitlines()
    )
    bundles = [os.fsdecode(name) for name in lab.names(saved.rescue_ref) if name.endswith(b".bundle")]
    assert len(bundles) == 2
    subjects = set()
    for number, name in enumerate(bundles):
        target = tmp_path / f"{number}.bundle"
        target.write_bytes(lab.show(saved.rescue_ref, name))
        git(tmp_path, "clone", "-q", "--mirror", str(target), f"restored-{number}")
        subjects |= set(git(tmp_path / f"restored-{number}", "log", "--all", "--format=%s").splitlines())
    assert subjects == {"first", "second", "inside a tracked folder"}


def test_a_nested_repository_starts_no_program(lab: Lab, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    nested = lab.path / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "f").write_text("f")
    git(nested, "add", ".")
    git(nested, "commit", "-q", "-m", "c")
    for key, value in {
        "core.fsmonitor": f"touch {trap}",
        "core.sshCommand": f"touch {trap}",
        "core.alternateRefsCommand": f"touch {trap}",
        "remote.origin.url": str(nested),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch {trap}; git-upload-pack",
        "extensions.partialClone": "origin",
    }.items():
        git(nested, "config", key, value)
    blob = git(nested, "rev-parse", "HEAD:f")
    (nested / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    saved = lab.save()
    assert not trap.exists()
    assert saved.files_changed == ["nested/f"]


def test_only_new_ignore_rules_hide_into_the_rescue(repo: Path, school: Settings) -> None:
    write_tree(
        repo, {".gitignore": "*.pyc\n/build/\n", "sub/.gitignore": "local.*\n!local.keep\n/only-here\n"}
    )
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "ignore")
    lab = Lab(repo, school)
    write_tree(
        lab.path,
        {
            ".gitignore": "*.pyc\n/build/\nsecret-*\n",
            "secret-work.py": "hidden by a new rule",
            "self/.gitignore": "*\n",
            "self/hidden.py": "hidden by itself",
            "x.pyc": "base ignores this",
            "build/out": "and this",
            "sub/local.txt": "and this",
            "sub/local.keep": "kept",
            "sub/deep/local.txt": "and this",
            "sub/only-here": "and this",
            "sub/deep/only-here": "kept",
            "calc/__pycache__/core.pyc": "and this",
            ".cache/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n",
            ".cache/.gitignore": "*\n",
            ".cache/data": "its tool calls it a cache",
        },
    )
    saved = lab.save()
    assert saved.files_changed == [".gitignore", "sub/deep/only-here", "sub/local.keep"]
    rescued = set(lab.names(saved.rescue_ref)) - set(lab.names(saved.ref))
    assert rescued == {b"secret-work.py", b"self/.gitignore", b"self/hidden.py"}
    assert lab.show(saved.rescue_ref, "secret-work.py") == b"hidden by a new rule"
    assert lab.clone.git.text("rev-parse", f"{saved.rescue_ref}^") == saved.head_commit


def test_rules_that_the_agent_removed_hide_nothing_more(repo: Path, school: Settings) -> None:
    lab = Lab(repo, school)
    (lab.path / ".gitignore").unlink()
    (lab.path / "x.pyc").write_text("now visible")
    saved = lab.save()
    assert saved.files_changed == [".gitignore", "x.pyc"]
    assert saved.rescue_ref == ""


def test_what_we_put_there_is_no_change(repo: Path, school: Settings) -> None:
    terms = {"keep": [".venv", "node_modules/"], "copy_files": [".env", "../x", "."]}
    lab = Lab(repo, school, terms=terms)
    write_tree(
        lab.path,
        {
            f".hermes/briefs/{lab.bag['bead']}.json": "{}",
            f".hermes/outputs/{lab.bag['bead']}.json": "{}",
            ".hermes/other": "the agent's",
            ".venv/lib/x.py": "x",
            "node_modules/m/index.js": "m",
            ".env": "SECRET=1",
            "work": "w",
            ".gitignore": "!.hermes/outputs/\n",
        },
    )
    saved = lab.save()
    assert saved.files_changed == [".gitignore", ".hermes/other", "work"]
    assert saved.rescue_ref == ""
    assert git(lab.path, "status", "--porcelain", "--", ".hermes/briefs") == ""


def test_a_tracked_folder_that_became_a_link_is_not_followed(lab: Lab, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write_tree(outside, {"core.py": "not the agent's", "__init__.py": "neither"})
    for path in sorted((lab.path / "calc").iterdir()):
        path.unlink()
    (lab.path / "calc").rmdir()
    (lab.path / "calc").symlink_to(outside)
    saved = lab.save()
    assert lab.names(saved.ref).count(b"calc") == 1
    assert lab.mode(saved.ref, "calc") == "120000"
    assert saved.files_changed == ["calc", "calc/__init__.py", "calc/core.py"]


def test_a_file_that_became_a_folder_and_back(lab: Lab) -> None:
    (lab.path / "README.md").unlink()
    write_tree(lab.path, {"README.md/inner": "x"})
    for path in sorted((lab.path / "tests").iterdir()):
        path.unlink()
    (lab.path / "tests").rmdir()
    (lab.path / "tests").write_text("now a file")
    saved = lab.save()
    assert saved.files_changed == [
        "README.md",
        "README.md/inner",
        "tests",
        "tests/__init__.py",
        "tests/test_core.py",
    ]


def test_names_that_git_cannot_hold_are_rescued_under_others(lab: Lab) -> None:
    write_tree(lab.path, {"sub/.GIT/x": "odd", "git~1": "odder", "ok": "ok"})
    saved = lab.save()
    assert saved.files_changed == ["ok"]
    contents = {
        lab.show(saved.rescue_ref, os.fsdecode(name))
        for name in lab.names(saved.rescue_ref)
        if b"/names/" in name
    }
    assert b"odder" in contents
    assert len(saved.notes) >= 1


def test_sockets_and_pipes_are_noted_and_wait_for_nobody(lab: Lab) -> None:
    os.mkfifo(lab.path / "pipe")
    (lab.path / "ok").write_text("ok")
    began = time.monotonic()
    saved = lab.save()
    assert time.monotonic() - began < 20
    assert saved.files_changed == ["ok"]


@pytest.mark.parametrize("name", ["calc/.gitignore", "nested/.git/HEAD"])
def test_a_pipe_that_git_would_read_from_keeps_no_work_from_being_saved(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(collect, "LIST_PATIENCE_S", 2.0)
    for folder in ("nested/.git/objects", "nested/.git/refs"):
        (lab.path / folder).mkdir(parents=True)
    os.mkfifo(lab.path / name)
    (lab.path / "ok").write_text("ok")
    began = time.monotonic()
    saved = lab.save()
    assert time.monotonic() - began < 30
    assert saved.files_changed == ["ok"]
    assert any(name in note and "neither file nor link" in note for note in saved.notes), saved.notes


def test_size_and_time_prove_nothing(lab: Lab) -> None:
    target = lab.path / "calc" / "core.py"
    content, seen = bytearray(target.read_bytes()), target.stat()
    content[0] ^= 1
    target.write_bytes(bytes(content))
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    git(lab.path, "update-index", "--assume-unchanged", "calc/core.py")
    git(lab.path, "update-index", "--skip-worktree", "README.md")
    (lab.path / "README.md").write_text("changed")
    assert lab.save().files_changed == ["README.md", "calc/core.py"]


def test_replaced_and_grafted_history_is_not_believed(lab: Lab) -> None:
    (lab.path / "x").write_text("x")
    git(lab.path, "add", ".")
    git(lab.path, "commit", "-q", "-m", "x")
    git(lab.path, "replace", lab.repository.head_commit, git(lab.path, "rev-parse", "HEAD"))
    saved = lab.save()
    assert saved.files_changed == ["x"]
    assert lab.clone.git.text("rev-parse", f"{saved.head_commit}^") == lab.repository.head_commit


_AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import encodings.ascii, fcntl, filelock
from school.settings import Settings
from school.worktrees import GitLeafWorktrees, inspect_repository, SchoolClone, snapshot
from tests.support_git import bag_for
os.setgroups([]); os.setgid(65534); os.setuid(65534)
home = Path(sys.argv[2])
settings = Settings.from_env({"HOME": str(home), "HERMES_HOME": str(home / ".hermes")})
repository = inspect_repository(home / "repo")
clone = SchoolClone.open(repository, settings=settings)
bag = bag_for(repository)
leaves = GitLeafWorktrees(settings)
workspace = leaves.create(bag)
top = workspace.path
(top / "locked").mkdir()
(top / "locked" / "inner").write_text("inner")
(top / "secret").write_text("secret")
(top / "build").mkdir()
(top / "build" / "out").write_text("out")
(top / "secret").chmod(0)
(top / "build").chmod(0o500)
(top / "calc" / "core.py").write_text("changed")
(top / "calc" / "core.py").chmod(0o200)
(top / "locked").chmod(0)
(top / "calc").chmod(0o300)
saved = snapshot(workspace, bag=bag, settings=settings)
leaves.remove(workspace)
print(saved.files_changed, saved.notes, top.exists())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody whom permissions bind")
def test_what_its_owner_cannot_read_is_made_readable(tmp_path: Path, repo: Path) -> None:
    home = tmp_path / "nobody's"
    home.mkdir()
    subprocess.run(["cp", "-a", str(repo), str(home / "repo")], check=True)
    subprocess.run(["chown", "-R", "65534:65534", str(home)], check=True)
    for above in (tmp_path, *tmp_path.parents):
        if str(above) not in ("/", "/tmp"):
            above.chmod(above.stat().st_mode | 0o055)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER_USER, str(root), str(home)],
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.strip() == "['build/out', 'calc/core.py', 'locked/inner', 'secret'] [] False"


_ON_A_FULL_DISK = """
import os, subprocess
from pathlib import Path
from school.errors import WorktreeError
from school.settings import Settings
from school.worktrees import GitLeafWorktrees, SchoolClone, inspect_repository, layout, snapshot
from tests.support_git import bag_for
home = Path(os.environ["HOME"])
env = {"HOME": str(home), "HERMES_HOME": str(home / ".hermes"), "SCHOOL_DATA_DIR": os.environ["DISK"] + "/school"}
settings = Settings.from_env(env)
repository = inspect_repository(Path(os.environ["REPO"]))
clone = SchoolClone.open(repository, settings=settings)
bag = bag_for(repository)
leaves = GitLeafWorktrees(settings)
workspace = leaves.create(bag)
(workspace.path / "big").write_bytes(os.urandom(3_000_000))
try:
    snapshot(workspace, bag=bag, settings=settings)
except WorktreeError as error:
    print("No space left" in str(error) and "is kept as it is" in str(error), error.__cause__.errno == 28)
try:
    leaves.remove(workspace)
except WorktreeError as error:
    print("refused to remove" in str(error), (workspace.path / "big").stat().st_size)
subprocess.run(["mount", "-o", "remount,size=20m", os.environ["DISK"]], check=True)
saved = snapshot(workspace, bag=bag, settings=settings)
leaves.remove(workspace)
print(saved.files_changed, clone.git.text("cat-file", "-s", f"{saved.ref}:big"), workspace.path.exists())
"""


def test_a_full_disk_loses_nothing(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPO", str(repo))
    said = on_small_disk(_ON_A_FULL_DISK, options="size=1m").splitlines()
    assert said == ["True True", "True 3000000", "['big'] 3000000 False"]


def test_a_tree_that_was_never_finished_holds_no_work(lab: Lab) -> None:
    from school.worktrees import layout

    record_path = layout.leaf_record_path(lab.school, lab.workspace.bead)
    record = layout.read_record(record_path)
    assert record is not None
    record.made = False
    layout.write_record(record_path, record)
    (lab.path / "README.md").unlink()
    assert lab.save().files_changed == []


def test_inherited_git_variables_lead_nowhere(
    repo: Path, school: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    write_tree(victim, {"v": "v"})
    git(victim, "init", "-q")
    git(victim, "add", ".")
    git(victim, "commit", "-q", "-m", "victim")
    before = repository_state(victim)
    monkeypatch.setenv("GIT_DIR", str(victim / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(victim))
    monkeypatch.setenv("GIT_INDEX_FILE", str(victim / ".git" / "index"))
    monkeypatch.setenv("GIT_COMMON_DIR", str(victim / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(victim / ".git" / "objects"))
    lab = Lab(repo, school)
    (lab.path / "w").write_text("w")
    saved = lab.save()
    assert saved.files_changed == ["w"]
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.delenv(name)
    assert repository_state(victim) == before
    assert not Git(victim / ".git").ok("cat-file", "-e", saved.head_commit)
