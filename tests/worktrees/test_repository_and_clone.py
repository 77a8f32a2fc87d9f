"""Which repositories can be worked on, and what their clone is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from school.errors import ConfigError, MachineError, WorktreeError
from school.settings import Settings
from school.system.git import Git
from school.worktrees import (
    Conflict,
    GitLeafWorktrees,
    Merged,
    SchoolClone,
    TeacherTrees,
    check_space,
    clone_for,
    fingerprint,
    inspect_repository,
    publish,
    resolve_base,
    snapshot,
)
from school.worktrees import repository as repository_module
from tests.support import CALC_FILES, git, write_tree
from tests.support_git import bag_for, opened, repository_state


def make_repository(root: Path, *init: str) -> Path:
    root.mkdir(parents=True)
    write_tree(root, CALC_FILES)
    git(root, "init", "-q", *init)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def commit(root: Path, name: str, text: str = "x\n") -> str:
    write_tree(root, {name: text})
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", name)
    return git(root, "rev-parse", "HEAD")


# --- inspect --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("absent", "no such folder"),
        ("plain", "not a git repository"),
        ("bare", "bare repository"),
        ("unborn", "no commit yet"),
        ("partial", "partial clone"),
        ("inside", "inside a git directory"),
    ],
)
def test_what_cannot_be_worked_on(what: str, message: str, tmp_path: Path, repo: Path) -> None:
    place = tmp_path / "place"
    if what != "absent":
        place.mkdir()
    if what == "bare":
        git(place, "init", "-q", "--bare")
    elif what == "unborn":
        git(place, "init", "-q")
    elif what == "partial":
        git(repo, "config", "uploadpack.allowFilter", "true")
        place.rmdir()
        git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{repo}", "place")
    elif what == "inside":
        place = repo / ".git" / "refs"
    with pytest.raises(MachineError, match=message) as caught:
        inspect_repository(place)
    assert str(place) in str(caught.value) or str(place.parent) in str(caught.value)


def test_what_is_known_of_a_repository(repo: Path) -> None:
    (repo / "README.md").write_text("changed")
    (repo / "new").write_text("new")
    found = inspect_repository(repo)
    assert (found.path, found.common_dir, found.name) == (repo, repo / ".git", "calc-repo")
    assert (found.head_ref, found.dirty, found.object_format) == ("refs/heads/main", 2, "sha1")
    assert found.head_commit == git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "--detach")
    assert inspect_repository(repo).head_ref == ""


def test_the_key_follows_the_repository_and_not_its_name(tmp_path: Path) -> None:
    one = inspect_repository(make_repository(tmp_path / "a" / "Same Näme"))
    two = inspect_repository(make_repository(tmp_path / "b" / "Same Näme"))
    assert one.key != two.key
    assert one.key.startswith("Same-N-me-")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert inspect_repository(tmp_path / "link" / "Same Näme").key == one.key


def test_a_bare_repository_with_linked_trees_can_be_used_through_one(
    tmp_path: Path, school: Settings
) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(make_repository(tmp_path / "r")), "hub.git")
    git(tmp_path / "hub.git", "worktree", "add", "-q", str(tmp_path / "wt"), "main")
    repository, clone = opened(tmp_path / "wt", school)
    assert repository.key.startswith("hub-")
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "x").write_text("x")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert publish(clone, repository, saved.head_commit, saved.ref)
    assert git(tmp_path / "wt", "show", f"{saved.ref}:x") == "x"


def test_base_is_a_commit_or_refused(repo: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    second = commit(repo, "two")
    git(repo, "tag", "-a", "-m", "t", "v1", first)
    found = inspect_repository(repo)
    assert resolve_base(found, None) == second
    assert resolve_base(found, "HEAD~1") == first
    assert resolve_base(found, "v1") == first
    for wrong in ("", "nope", "--all", "HEAD:README.md", "-h", "a\0b"):
        with pytest.raises(ConfigError, match="names no commit"):
            resolve_base(found, wrong)


def test_the_fingerprint_sees_config_hooks_and_info(repo: Path) -> None:
    found = inspect_repository(repo)
    seen = [fingerprint(found)]
    assert fingerprint(found) == seen[0]
    git(repo, "config", "core.hooksPath", "/somewhere")
    seen.append(fingerprint(found))
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    seen.append(fingerprint(found))
    hook.chmod(0o755)
    seen.append(fingerprint(found))
    hook.unlink()
    hook.symlink_to("/bin/true")
    seen.append(fingerprint(found))
    (repo / ".git" / "info" / "exclude").write_text("*.x\n")
    seen.append(fingerprint(found))
    assert len(set(seen)) == len(seen)
    git(repo, "branch", "b")
    git(repo, "update-server-info")
    assert fingerprint(found) == seen[-1]


def test_space_is_counted_before_anything_is_made(
    repo: Path, school: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = inspect_repository(repo)
    clone, checkouts = repository_module.space_needed(found, 3)
    assert clone > 0
    assert checkouts == 5 * sum((len(text.encode()) + 4095) // 4096 * 4096 for text in CALC_FILES.values())
    check_space(school, found, 3)
    monkeypatch.setattr(repository_module, "_SLACK_BYTES", 1 << 60)
    with pytest.raises(MachineError, match=r"MiB free, about \d+ MiB needed"):
        check_space(school, found, 3)
    assert not school.clones_dir.exists()


# --- the clone ------------------------------------------------------------------------------------------------


def test_the_clone_shares_nothing_and_is_found_again(repo: Path, school: Settings) -> None:
    before = repository_state(repo)
    repository, clone = opened(repo, school)
    ours = {path.stat().st_ino for path in (clone.path / "objects").rglob("*") if path.is_file()}
    users = {path.stat().st_ino for path in (repo / ".git" / "objects").rglob("*") if path.is_file()}
    assert not ours & users
    assert not (clone.path / "objects" / "info" / "alternates").exists()
    assert git(clone.path, "config", "--get", "gc.auto") == "0"
    assert git(clone.path, "remote") == ""
    assert stat.S_IMODE(clone.path.stat().st_mode) & 0o077 == 0
    assert clone_for({"repo_key": repository.key}, settings=school).path == clone.path
    assert repository_state(repo) == before
    with pytest.raises(WorktreeError, match="no school clone"):
        clone_for({"repo_key": "other-12345678"}, settings=school)
    for bad in ("", "../x", "a/b", ".git"):
        with pytest.raises(WorktreeError, match="no key"):
            clone_for({"repo_key": bad}, settings=school)


def test_new_commits_are_brought_in_by_name(repo: Path, school: Settings) -> None:
    _, clone = opened(repo, school)
    new = commit(repo, "later")
    assert not clone.has(new)
    _, clone = opened(repo, school)
    assert clone.has(new)
    git(repo, "checkout", "-q", "--detach")
    hidden = commit(repo, "on no branch")
    git(repo, "checkout", "-q", "main")
    repository = inspect_repository(repo)
    SchoolClone.open(repository, commits=[hidden], settings=school)
    assert clone.has(hidden)
    with pytest.raises(WorktreeError, match="could not be fetched"):
        SchoolClone.open(repository, commits=["1" * 40], settings=school)


def test_what_a_killed_one_left_is_no_clone(repo: Path, school: Settings) -> None:
    repository = inspect_repository(repo)
    half = school.clones_dir / f"{repository.key}.making"
    half.mkdir(parents=True)
    (half / "HEAD").write_text("half")
    _, clone = opened(repo, school)
    assert not half.exists()
    assert clone.has(repository.head_commit)


def test_locks_of_a_killed_git_are_taken_away_and_nobody_elses(repo: Path, school: Settings) -> None:
    _, clone = opened(repo, school)
    left = [clone.path / name for name in ("refs/school/pins/base.lock", "packed-refs.lock")]
    left.append(repo / ".git" / "refs" / "school" / "coder-x-00000000.lock")
    users = [repo / ".git" / name for name in ("refs/heads/main.lock", "index.lock")]
    held = clone.path / "refs" / "school" / "pins" / "held.lock"
    for lock in [*left, *users, held]:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        if lock != held:
            os.utime(lock, (1_000_000_000, 1_000_000_000))
    opened(repo, school)
    assert [lock.exists() for lock in left] == [False] * 3
    assert [lock.exists() for lock in [*users, held]] == [True] * 3


def test_a_broken_clone_is_kept_aside_and_made_again(repo: Path, school: Settings) -> None:
    repository, clone = opened(repo, school)
    (clone.path / "HEAD").unlink()
    _, again = opened(repo, school)
    assert again.has(repository.head_commit)
    assert len(list((school.clones_dir / "broken").iterdir())) == 1


@pytest.mark.parametrize(
    "how", ["sha256", "shallow", "borrowed", "odd path", "packed", "detached", "old protocol"]
)
def test_every_kind_of_repository_goes_all_the_way(how: str, tmp_path: Path, school: Settings) -> None:
    place = tmp_path / ("a 'place' ünïcode\n团队" if how == "odd path" else "place")
    if how in ("shallow", "borrowed"):
        source = make_repository(tmp_path / "source")
        commit(source, "second")
        commit(source, "third")
        flags = ["--depth", "1"] if how == "shallow" else ["--shared"]
        git(
            tmp_path,
            "clone",
            "-q",
            *flags,
            f"file://{source}" if how == "shallow" else str(source),
            str(place),
        )
    else:
        make_repository(place, *(["--object-format=sha256"] if how == "sha256" else []))
    if how == "packed":
        git(place, "gc", "-q")
    if how == "detached":
        git(place, "checkout", "-q", "--detach")
        commit(place, "on no branch")
    if how == "old protocol":
        git(place, "config", "protocol.version", "0")
    before = repository_state(place)
    repository, clone = opened(place, school)
    bag = bag_for(repository)
    leaves = GitLeafWorktrees(school)
    workspace = leaves.create(bag)
    (workspace.path / "work").write_text("work")
    git(workspace.path, "add", ".")
    git(workspace.path, "commit", "-q", "-m", "agent")
    saved = snapshot(workspace, bag=bag, settings=school)
    assert saved.files_changed == ["work"]
    assert clone.ref(saved.agent_ref) == git(workspace.path, "rev-parse", "HEAD")
    teachers = TeacherTrees("cto", school)
    path = teachers.ensure(bag)
    teachers.checkout(path, saved.head_commit)
    assert (path / "work").read_text() == "work"
    publish(clone, repository, saved.head_commit, saved.ref)
    assert git(place, "show", f"{saved.ref}:work") == "work"
    assert git(place, "rev-list", "--count", saved.ref) == str(
        int(git(place, "rev-list", "--count", "HEAD")) + 1
    )
    leaves.remove(workspace)
    assert repository_state(place) == before
    git(place, "fsck", "--strict")


def test_a_hostile_configuration_of_the_users_blocks_nothing(
    repo: Path, school: Settings, own_home: Path
) -> None:
    trap = own_home / "ran"
    hooks = own_home / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {trap}\nexit 1\n")
        (hooks / name).chmod(0o755)
    lines = (
        f"[core]\n\thooksPath = {hooks}\n\tfsmonitor = touch {trap}\n\tautocrlf = true\n"
        "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n[user]\n\tsigningKey = none\n"
        "[init]\n\ttemplateDir = /nonexistent\n[fetch]\n\tprune = true\n\tfsckObjects = true\n"
        f'[url "{own_home}/nowhere"]\n\tinsteadOf = {repo}\n[safe]\n\tdirectory = /nothing\n'
    )
    for config in (own_home / ".gitconfig", repo / ".git" / "config"):
        with config.open("a") as file:
            file.write(lines)
    before = repository_state(repo)
    repository, clone = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    (workspace.path / "x").write_text("x")
    git(workspace.path, "add", ".")
    git(workspace.path, "commit", "-q", "-m", "the agent's own commit is not blocked either")
    saved = snapshot(workspace, bag=bag, settings=school)
    publish(clone, repository, saved.head_commit, saved.ref)
    assert not trap.exists()
    assert saved.files_changed == ["x"]
    assert repository_state(repo) == before


def test_what_the_user_ignores_privately_is_ignored(repo: Path, school: Settings, own_home: Path) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "exclude").write_text("# mine\n*.private\n")
    (own_home / ".config" / "git").mkdir(parents=True)
    (own_home / ".config" / "git" / "ignore").write_text(".DS_Store\n")
    repository, _ = opened(repo, school)
    bag = bag_for(repository)
    workspace = GitLeafWorktrees(school).create(bag)
    write_tree(workspace.path, {"a.private": "x", "sub/.DS_Store": "x", "b": "x"})
    assert git(workspace.path, "status", "--porcelain") == "?? b"
    saved = snapshot(workspace, bag=bag, settings=school)
    assert (saved.files_changed, saved.rescue_ref) == (["b"], "")
    (own_home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {own_home}/all\n")
    (own_home / "all").write_text("b\n")
    opened(repo, school)
    assert snapshot(workspace, bag=bag, settings=school).files_changed == ["sub/.DS_Store"]


def test_files_are_read_by_commit(repo: Path, school: Settings) -> None:
    (repo / "a\nb").write_text("odd")
    (repo / "link").symlink_to("README.md")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "odd")
    repository, clone = opened(repo, school)
    head = repository.head_commit
    assert clone.read_file(head, "README.md") == b"# calc\n\nA small calculator.\n"
    assert clone.read_file(head, "a\nb") == b"odd"
    assert clone.read_file(head, "link") == b"README.md"
    for absent in ("nope", "calc", "calc/", "", "*.md", ":(glob)*"):
        assert clone.read_file(head, absent) is None
    assert clone.list_files(head) == sorted([*CALC_FILES, "a\nb", "link"])


def test_pins_come_and_go(repo: Path, school: Settings) -> None:
    repository, clone = opened(repo, school)
    clone.pin(repository.head_commit, "run-1")
    assert clone.ref("refs/school/pins/run-1") == repository.head_commit
    clone.unpin("run-1")
    clone.unpin("run-1")
    assert clone.ref("refs/school/pins/run-1") == ""


def _side(root: Path, name: str, files: dict[str, str]) -> str:
    git(root, "checkout", "-q", "-b", name, "main")
    write_tree(root, files)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", name)
    made = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "main")
    return made


@pytest.mark.parametrize("old_git", [False, True])
def test_merging_needs(repo: Path, school: Settings, old_git: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    base = git(repo, "rev-parse", "HEAD")
    one = _side(repo, "one", {"one.txt": "1", "README.md": "# calc one\n\nA small calculator.\n"})
    two = _side(repo, "two", {"two.txt": "2"})
    three = _side(repo, "three", {"README.md": "# calc three\n\nA small calculator.\n", "w ü": "w"})
    repository = inspect_repository(repo)
    clone = SchoolClone.open(repository, commits=[base, one, two, three], settings=school)
    if old_git:
        monkeypatch.setattr("school.worktrees.clone.MERGE_TREE_SINCE", (999, 0))
    assert clone.merge(base, []) == Merged(base)
    assert clone.merge(base, [("base", base)]) == Merged(base)
    merged = clone.merge(base, [("one", one), ("two", two), ("base", base)])
    assert isinstance(merged, Merged)
    assert clone.merge(base, [("one", one), ("two", two)]) == merged
    assert {"one.txt", "two.txt"} <= set(clone.list_files(merged.commit))
    assert clone.git.text("show", "-s", "--format=%an|%s", merged.commit) == "School|Merge two"
    assert clone.merge(merged.commit, [("one", one)]) == merged
    conflict = clone.merge(base, [("one", one), ("three", three)])
    assert conflict == Conflict(names=["one", "three"], paths=["README.md"])
    assert not list((clone.path / "worktrees").glob("*")) if (clone.path / "worktrees").exists() else True


def test_only_one_at_a_time_makes_it(repo: Path, school: Settings) -> None:
    repository = inspect_repository(repo)
    one, two = (SchoolClone(school.clones_dir / f"{repository.key}.git") for _ in range(2))
    with one.lock(), one.lock(), pytest.raises(WorktreeError, match="locked by another"), two.lock(0.05):
        pass
    with two.lock(0.05):
        pass


def test_the_clone_takes_no_config_of_ours_from_git_environment(repo: Path, school: Settings) -> None:
    _, clone = opened(repo, school)
    assert b"GIT_DIR" in Git(clone.path).environment()
    assert os.environ.get("GIT_DIR") is None
