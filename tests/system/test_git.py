from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from school.errors import GitError, MachineError
from school.system import git as system_git
from school.system import pipes
from school.system.git import FETCHING, Git, GitCommandError
from tests.support import git
from tests.system.support import gone, python_result, until

IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.invalid",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.invalid",
}


def ours(repo: Path, **kwargs) -> Git:
    return Git(repo / ".git", repo, env=IDENTITY, **kwargs)


def trap(directory: Path, name: str) -> tuple[Path, Path]:
    """A program that leaves a mark when it runs, and the mark."""
    program, mark = directory / name, directory / f"{name}-ran"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat\nexit 1\n")
    program.chmod(0o755)
    return program, mark


def test_answers_and_refusals(repo):
    mine = ours(repo)
    assert mine.text("rev-parse", "HEAD") == git(repo, "rev-parse", "HEAD")
    assert mine.ok("cat-file", "-e", "HEAD")
    assert not mine.ok("cat-file", "-e", "0" * 40)
    stored = mine.run("hash-object", "--stdin", stdin=b"x").stdout
    assert stored == b"c1b0730e0133447badcfd47fd144e254807b06e1\n"
    with pytest.raises(
        GitCommandError, match=r"git rev-parse --verify nope: exit 128: fatal: Needed"
    ) as caught:
        mine.run("rev-parse", "--verify", "nope")
    assert isinstance(caught.value, GitError)
    assert (caught.value.returncode, caught.value.argv[:2]) == (128, ("git", "rev-parse"))
    assert "Needed a single revision" in caught.value.stderr
    assert mine.run("rev-parse", "--verify", "nope", check=False).returncode == 128


def test_inherited_git_variables_lead_nowhere(repo, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.mkdir()
    git(victim, "init", "-q")
    for name, value in {
        "GIT_DIR": victim / ".git",
        "GIT_WORK_TREE": victim,
        "GIT_INDEX_FILE": victim / "index",
        "GIT_COMMON_DIR": victim / ".git",
        "GIT_OBJECT_DIRECTORY": victim / "objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": victim,
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.worktree",
        "GIT_CONFIG_VALUE_0": victim,
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_TRACE": victim / "trace",
        "GIT_CEILING_DIRECTORIES": repo,
        "GIT_NAMESPACE": "elsewhere",
    }.items():
        monkeypatch.setenv(name, str(value))
    (repo / "new").write_text("x")
    mine = ours(repo)
    mine.run("add", "new")
    mine.run("commit", "-q", "-m", "Add")
    assert Git(cwd=repo).text("log", "-1", "--format=%s") == "Add"
    assert Git(cwd=repo / "calc").text("rev-parse", "--show-toplevel") == str(repo)
    assert sorted(path.name for path in victim.iterdir()) == [".git"]


def test_nothing_that_a_repository_or_a_user_configures_is_run(repo, tmp_path, own_home):
    program, mark = trap(tmp_path, "trap")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change"):
        (hooks / hook).symlink_to(program)
        (repo / ".git" / "hooks" / hook).symlink_to(program)
    for key, value in {
        "core.hooksPath": hooks,
        "core.fsmonitor": program,
        "core.pager": program,
        "core.editor": program,
        "gpg.program": program,
        "commit.gpgSign": "true",
        "tag.gpgSign": "true",
        "diff.external": program,
        "diff.evil.command": program,
        "diff.evil.textconv": program,
        "credential.helper": program,
        "alias.status": f"!{program}",
        "core.sshCommand": program,
    }.items():
        git(repo, "config", key, str(value))
        git(repo, "config", "--global", key, str(value))
    (repo / ".gitattributes").write_text("*.py diff=evil\n")
    (repo / "calc" / "core.py").write_text("changed\n")
    mine = ours(repo)
    mine.run("add", "-A")
    mine.run("commit", "-q", "-m", "Change")
    mine.run("tag", "-a", "-m", "x", "v1")
    mine.run("checkout", "-q", "HEAD~1")
    for command in (
        ("diff", "HEAD", "v1"),
        ("diff-tree", "-p", "v1"),
        ("diff-index", "-p", "v1"),
        ("log", "-p", "v1"),
        ("show", "v1"),
        ("format-patch", "--stdout", "HEAD..v1"),
        ("-c", "x.y=z", "--no-pager", "diff", "HEAD", "v1"),
        ("status",),
    ):
        assert b"trap" not in mine.run(*command).stdout
    assert b"+changed" in mine.run("show", "v1").stdout
    assert not mine.ok("ls-remote", "ssh://example.invalid/x")
    assert not mark.exists()


def test_the_users_and_the_systems_configuration_are_not_read(repo, own_home, tmp_path):
    (own_home / ".config" / "git").mkdir(parents=True)
    (own_home / ".config" / "git" / "ignore").write_text("*.secret\n")
    git(repo, "config", "--global", "user.name", "Somebody Else")
    (repo / "a.secret").write_text("x")
    mine = ours(repo)
    assert "a.secret" in mine.text("status", "--porcelain")
    assert not mine.ok("config", "user.name")
    assert mine.text("log", "-1", "--format=%an") == "Test Person"
    assert ours(repo, config={"user.name": "Given"}).text("config", "user.name") == "Given"


def test_paths_come_as_they_are(repo):
    odd = os.fsencode(str(repo)) + b"/na\xffme \xc3\xa9\n.txt"
    Path(os.fsdecode(odd)).write_text("x")
    mine = ours(repo)
    mine.run("add", "-A")
    names = mine.run("ls-files", "-z").stdout.split(b"\0")
    assert b"na\xffme \xc3\xa9\n.txt" in names
    text = mine.text("ls-files", "-z")
    assert "na\udcffme é\n.txt" in text


def test_messages_do_not_depend_on_the_language(repo, monkeypatch):
    monkeypatch.setenv("LANGUAGE", "de:fr")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with pytest.raises(GitError, match="Needed a single revision"):
        ours(repo).run("rev-parse", "--verify", "nope")


def test_only_fetches_by_path(repo, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "clone.git")
    clone = Git(tmp_path / "clone.git", config=FETCHING)
    clone.run("fetch", "-q", "--no-tags", "--no-write-fetch-head", str(repo), "HEAD:refs/school/x")
    assert clone.text("rev-parse", "refs/school/x") == git(repo, "rev-parse", "HEAD")
    for url in ("https://example.invalid/x", "ext::sh -c true", "git://example.invalid/x"):
        with pytest.raises(GitError, match="not allowed"):
            clone.run("fetch", url)


def test_a_missing_object_starts_no_program_that_the_repository_names(repo, tmp_path):
    """Whatever the version: those before GIT_NO_LAZY_FETCH read it as they read any other variable."""
    with (repo / ".git" / "config").open("a") as config:
        config.write(
            '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote "origin"]\n'
            f'\turl = {repo}\n\tpromisor = true\n\tuploadpack = "touch {tmp_path}/ran; false"\n'
        )
    (repo / ".git" / "HEAD").write_text("1" * 40 + "\n")
    for env in ({}, {"GIT_NO_LAZY_FETCH": "0"}):
        assert not Git(cwd=repo, env=env).ok("rev-parse", "--verify", "HEAD^{commit}")
        assert not (tmp_path / "ran").exists()
    clone = Git(tmp_path / "other.git")
    git(tmp_path, "init", "-q", "--bare", "other.git")
    with pytest.raises(GitError, match="not allowed"):
        clone.run("fetch", "-q", str(repo), "HEAD")


def test_a_repository_of_another_user_can_be_read(repo, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(repo, 12345, 12345)
    os.chown(repo / ".git", 12345, 12345)
    assert Git(cwd=repo).text("rev-parse", "HEAD")
    git(tmp_path, "init", "-q", "--bare", "clone.git")
    Git(tmp_path / "clone.git", config=FETCHING).run("fetch", "-q", str(repo), "HEAD:refs/school/x")


def test_an_explicit_git_directory_is_never_looked_for_higher_up(repo):
    inner = repo / "inner"
    inner.mkdir()
    with pytest.raises(GitError, match="not a git repository"):
        Git(inner / ".git", inner).run("status")


def test_a_private_index_leaves_the_real_one_alone(repo, tmp_path):
    before = (repo / ".git" / "index").read_bytes()
    (repo / "new").write_text("x")
    mine = ours(repo, index=tmp_path / "index")
    mine.run("add", "-A")
    assert mine.text("write-tree") != git(repo, "rev-parse", "HEAD^{tree}")
    assert (repo / ".git" / "index").read_bytes() == before


def test_time_and_output_are_bounded_and_nothing_goes_on_afterwards(repo, tmp_path):
    mine = ours(repo, config={"alias.slow": f"!echo $$ > {tmp_path}/pid; sleep 60", "alias.much": "!yes"})
    begun = time.monotonic()
    with pytest.raises(GitError, match=r"git slow: no end after 0\.3 s"):
        mine.run("slow", timeout_s=0.3)
    assert time.monotonic() - begun < 5
    pid = int((tmp_path / "pid").read_text())
    assert until(lambda: gone(pid))
    with pytest.raises(GitError, match="more than 1000 bytes"):
        mine.run("much", limit_bytes=1000)
    cut = mine.run("much", limit_bytes=1000, cut=True)
    assert (cut.returncode, cut.stdout) == (0, b"y\n" * 500)


def test_large_input_and_output_at_once_do_not_block(repo):
    blob = os.urandom(1 << 20)
    mine = ours(repo)
    oid = mine.run("hash-object", "-w", "--stdin", stdin=blob).stdout.decode().strip()
    wanted = f"{oid}\n".encode() * 20
    answer = mine.run("cat-file", "--batch", stdin=wanted).stdout
    assert answer.count(blob) == 20
    assert mine.run("version", stdin=blob).stdout.startswith(b"git version")  # it reads none of it


def test_a_background_process_of_gits_delays_nothing(repo):
    mine = ours(repo, config={"alias.leave": "!sleep 3 & echo started"})
    begun = time.monotonic()
    assert mine.text("leave") == "started"
    assert time.monotonic() - begun < 2.5


def test_git_that_is_missing_or_old_is_named(repo, tmp_path, monkeypatch):
    with pytest.raises(GitError, match="no such directory"):
        Git(cwd=tmp_path / "absent").run("status")
    code = """
        import os
        from school.errors import MachineError
        from school.system import git
        for path in ("/nonexistent", os.environ["SHIM"]):
            os.environ["PATH"] = path
            git.version.cache_clear()
            try:
                git.version()
            except MachineError as error:
                print(error)
    """
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho git version 2.20.1\n")
    shim.chmod(0o755)
    monkeypatch.setenv("SHIM", str(shim.parent))
    assert python_result(code).splitlines() == [
        "git is not installed, or not on PATH",
        "git 2.20.1 is too old: 2.32 or newer is needed",
    ]
    assert system_git.version() >= system_git.MINIMUM
    assert issubclass(MachineError, OSError)


def test_pieces_reach_a_reader_that_is_slower_than_git(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "LINGER_S", 0.02)
    (repo / "big.txt").write_bytes(b"0123456789abcde\n" * 100_000)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "big")
    read = bytearray()
    pieces = Git(repo / ".git").pieces("cat-file", "blob", "HEAD:big.txt")
    for at, piece in enumerate(pieces):
        read += piece
        if at == 1:
            time.sleep(0.2)  # git has long ended, and its pipe is full
    assert bytes(read) == b"0123456789abcde\n" * 100_000


def test_pieces_tell_of_failure_and_of_time(repo: Path) -> None:
    with pytest.raises(GitError, match="exit 128"):
        list(Git(repo / ".git").pieces("cat-file", "blob", "HEAD:absent"))
    with pytest.raises(GitError, match=r"no end after 0\.2 s"):
        list(Git(cwd=repo).pieces("-c", "alias.wait=!sleep 5", "wait", timeout_s=0.2))
