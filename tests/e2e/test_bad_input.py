"""Bad input: a clear message, the right exit code, exactly one JSON document, and nothing created anywhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import conductor
from school import settings as school_settings
from tests.support import ROOT, git, small_disk, without_bubblewrap, write_tree

pytestmark = pytest.mark.e2e

USAGE, MACHINE = 2, 3
TASK = "version: 1\ntasks:\n  - {id: tidy, role: executor, task: Tidy up., chore: unused-imports}\n"


def tree_of(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def refuse(own_home, capfd, monkeypatch):
    """Run one command line in this process; it must refuse, say why, and make nothing."""

    def run(*argv: str, code: int, says: str, cwd: Path | None = None) -> str:
        if cwd is not None:
            monkeypatch.chdir(cwd)
        before = tree_of(own_home.parent)
        school_settings.configure(None)
        assert conductor.entry([*argv, "--json"]) == code, capfd.readouterr()
        out, err = capfd.readouterr()
        document = json.loads(out)
        assert document["exit"] == code
        assert re.search(says, document["error"]), document["error"]
        # The same words are there for people.
        assert document["error"].splitlines()[0] in err
        assert "Traceback" not in err
        assert tree_of(own_home.parent) == before
        return document["error"]

    return run


def with_tasks(repo: Path, text: str) -> tuple[str, ...]:
    path = repo.parent / "tasks.yaml"
    path.write_text(text)
    return ("--repo", str(repo), "--tasks", str(path))


# --- what was typed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--rounds", "0", "--loop"], "--rounds 0"),
        (["--rounds", "-1", "--loop"], "--rounds -1"),
        (["--rounds", "abc"], "abc"),
        (["--task", "x", "--run", "true", "--rounds", "3"], "--rounds 3: without --loop"),
        (["--leaves", "0"], "--leaves 0"),
        (["--handoff-timeout", "0"], "--handoff-timeout"),
        (["--handoff-timeout", "nan"], "--handoff-timeout"),
        (["--sandbox", "maybe"], "maybe"),
        (["--bogus"], "--bogus"),
        (["--base", "no-such-ref"], "no-such-ref"),
        (["--base", "-x"], "--base"),
        (["--task", "x", "--tasks", "y"], "--task"),
        (["--role", "coder"], "--role .*--task"),
        (["--check", "true"], "--check .*--task"),
        (["--dry-run"], "--dry-run"),
        (["--task", ""], "--task"),
        (["--task", " \n"], "--task"),
        (["--task", "x", "--run", "true", "--chore", "format"], "chore"),
        (["--task", "x", "--run", "'"], "--run"),
        (["--task", "x", "--run", "true", "--check", "'"], "--check"),
        (["--task", "x", "--chore", "no-such-chore"], "no-such-chore.*unused-imports"),
        (["--task", "x", "--agent", "no-such-agent"], "no-such-agent.*demo-good"),
        (["--task", "x", "--run", "true", "--role", "wizard"], "wizard"),
        (["--task", "x", "--run", "true", "--difficulty", "odd"], "odd"),
        (["--task", "x", "--run", "true", "--domain", "No Such"], "No Such"),
        (["--task", "x", "--run", "true", "--accept", "it is nice"], "nobody can judge.*--check"),
        (["--task", "x"], "nobody is to do it"),
        (["--loop", "doctor"], "--loop"),
        (["no-such-command"], "no-such-command"),
        (["show"], "BEAD"),
        (["recover"], "--all"),
        (["recover", "coder-general-00000000"], "no such bead"),
        (["retry", "never"], "no task of that id"),
    ],
)
def test_flags(refuse, repo, argv, says):
    refuse(*argv, code=USAGE, says=says, cwd=repo)


def test_no_task_file_names_the_ways_to_one(refuse, repo):
    refuse("--repo", str(repo), code=USAGE, says="school-tasks.yaml.*init.*demo")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("version: 1\ntasks: []\n", "empty"),
        ("tasks: [\n", r"tasks\.yaml:\d"),
        (TASK.replace("role: executor", "rule: executor"), "rule"),
        (TASK.replace("executor", "wizard"), "wizard"),
        (TASK.replace("task: Tidy up.", "task: Tidy up., difficulty: odd"), "odd"),
        (TASK.replace("chore: unused-imports", "chore: nonsense"), "nonsense"),
        (TASK.replace("chore: unused-imports", "agent: nobody"), "nobody"),
        (TASK.replace("chore: unused-imports", "chore: format, run: [ruff]"), "run"),
        (TASK.replace("chore: unused-imports", "run: ruff check"), "argv|list of words"),
        (TASK.replace("chore: unused-imports", "chore: format, max_attempts: 0"), "max_attempts"),
        (TASK.replace("chore: unused-imports", "chore: format, needs: [tidy]"), "circle"),
        (TASK.replace("chore: unused-imports", "chore: format, needs: [other]"), "other"),
        (TASK.replace("chore: unused-imports", "chore: format, accept: [{text: nice}]"), "nobody can judge"),
        (TASK.replace("id: tidy", "id: a..b"), r"a\.\.b"),
        (TASK.replace("id: tidy", "id: x/y"), "x/y"),
        (TASK.replace("id: tidy", "id: x.lock"), r"x\.lock"),
        (TASK + "  - {id: tidy, role: executor, task: Again., chore: format}\n", "line 3"),
        (TASK + "  - {id: TIDY, role: executor, task: Again., chore: format}\n", "case"),
    ],
)
def test_task_files(refuse, repo, text, says):
    refuse(*with_tasks(repo, text), code=USAGE, says=says)


def test_a_task_file_that_is_a_directory(refuse, repo):
    refuse("--repo", str(repo), "--tasks", str(repo), code=USAGE, says="directory|not a file|regular")


def test_nothing_to_judge_by(refuse, repo):
    (repo / "school.toml").unlink()
    for path in (repo / "tests").iterdir():
        path.unlink()
    git(repo, "commit", "-q", "-a", "-m", "No checks")
    refuse(*with_tasks(repo, TASK), code=USAGE, says="nothing could judge.*--check.*verify")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("[verify]\ncommands = ['make test']\n", "commands"),
        ("[vrify]\n", "vrify"),
        ("[limits]\nleaves = 0\n", "leaves"),
        ("[limits]\nmax_interruptions = 0\n", "max_interruptions"),
        ("[delivery]\nprefix = 'a..b/'\n", "prefix"),
        ("[agents.mine]\nargv = 'my-agent'\n", "argv"),
        ("not toml", "TOML"),
    ],
)
def test_configuration(refuse, repo, config, says):
    (repo / "school.toml").write_text(config)
    git(repo, "commit", "-q", "-a", "-m", "Configure")
    refuse(*with_tasks(repo, TASK), code=USAGE, says=says)


REPOSITORYS, USERS = "{repo}/school.toml: ", "{home}/.hermes/school.toml: "
LOOP = '[agents.loop]\nkind = "model"\nmodel = "openai:m"\n'


@pytest.mark.parametrize(
    ("repositorys", "users", "says"),
    [
        ('[agents.a]\nkind = "acp"\n', "", REPOSITORYS + "[agents.a] argv: expected the program"),
        ("", '[agents.a]\nkind = "acp"\n', USERS + "[agents.a] argv: expected the program"),
        ("", '[agents.a]\nargv = ["x"]\npreset = "vim"\n', USERS + '[agents.a] there is no preset "vim"'),
        (LOOP, '[roles.coder]\nagents = ["loop"]\nmodel = "m"\n', USERS + '[roles.coder] model = "m": which provider?'),
        ('[roles.coder]\nagents = ["loop"]\nmodel = "m"\n', LOOP, REPOSITORYS + '[roles.coder] model = "m": which provider?'),
        ('[roles.coder]\nagents = ["who"]\n', LOOP, REPOSITORYS + "[roles.coder] agents: no agent is called 'who'"),
        ("", '[roles.coder]\nagents = ["who"]\n', USERS + "[roles.coder] agents: no agent is called 'who'"),
        ('[reviewers.coo]\nmodel = "no:m"\n', "", REPOSITORYS + '[reviewers.coo] model = "no:m": no provider is called "no"'),
        ("", '[reviewers.coo]\nmodel = "no:m"\n', USERS + '[reviewers.coo] model = "no:m": no provider is called "no"'),
        ("", '[reviewers.coo]\nagent = "who"\n', USERS + "[reviewers.coo] agent: no agent is called 'who'"),
        ("", "[reviewers.cto]\nrequire_distinct_model = true\n", USERS + "[reviewers.cto] require_distinct_model: there is no"),
        ("", '[coach]\nenabled = true\nmodel = "m"\n', USERS + '[coach] model = "m": which provider?'),
        ('[coach]\nmodel = "m"\n', "[coach]\nenabled = true\n", REPOSITORYS + '[coach] model = "m": which provider?'),
        ("", "[coach]\nenabled = 3\n", USERS + "[coach] enabled: expected true or false"),
        ("[roles.king]\n", "", REPOSITORYS + "[roles.king]: no such role"),
    ],
)  # fmt: skip
def test_what_is_wrong_says_in_which_file_it_stands(refuse, repo, own_home, repositorys, users, says):
    """Either of two files may hold a table, and a key of the upper one counts."""
    (repo / "school.toml").write_text(repositorys)
    git(repo, "commit", "-q", "--allow-empty", "-a", "-m", "Configure")
    (own_home / ".hermes").mkdir()
    (own_home / ".hermes" / "school.toml").write_text(users)
    agent = "a" if "agents.a" in repositorys + users else "loop"
    by_role = "role: coder" if "roles" in says else f"role: coder, agent: {agent}"
    task = TASK.replace("role: executor", by_role).replace(", chore: unused-imports", "")
    if agent == "loop" and "roles" not in says:
        task = TASK
    says = says.replace("{repo}", str(repo)).replace("{home}", str(own_home))
    refuse(*with_tasks(repo, task), code=USAGE, says="^" + re.escape(says))


def test_a_file_that_is_not_the_one_that_counts_says_which_does(refuse, repo):
    (repo / "school.toml").write_text("[nonsense]\n")
    git(repo, "commit", "-q", "-a", "-m", "Wrong")
    (repo / "school.toml").write_text("")
    commit = git(repo, "rev-parse", "HEAD")[:12]
    refuse(*with_tasks(repo, TASK), code=USAGE, says=f"^{re.escape(str(repo))}/school.toml at {commit}: ")


def test_configuration_is_read_from_the_base_commit(refuse, repo):
    """A wrong file in the working tree is nobody's business yet; one in the base commit is."""
    (repo / "school.toml").write_text("[nonsense]\n")
    git(repo, "commit", "-q", "-a", "-m", "Wrong")
    (repo / "school.toml").write_text("")
    refuse(*with_tasks(repo, TASK), code=USAGE, says="nonsense")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HANDOFF_TIMEOUT", "soon"),
        ("HANDOFF_TIMEOUT", "-1"),
        ("HANDOFF_POLL_INTERVAL", "inf"),
        ("DEFAULT_POLL_INTERVAL", "0"),
        ("DEFAULT_REVIEW_TIMEOUT", "x"),
        ("MAX_SESSION_CYCLES", "0"),
    ],
)
def test_environment_variables(refuse, repo, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    refuse(*with_tasks(repo, TASK), code=USAGE, says=f"{name}.*{re.escape(value)}")


def test_worktrees_inside_the_repository(refuse, repo, monkeypatch):
    monkeypatch.setenv("SCHOOL_WORKTREES_DIR", str(repo / "trees"))
    refuse(*with_tasks(repo, TASK), code=USAGE, says="SCHOOL_WORKTREES_DIR.*inside")


def test_worktrees_inside_the_repository_through_a_link(refuse, repo, monkeypatch):
    link = repo.parent / "elsewhere"
    link.symlink_to(repo)
    monkeypatch.setenv("SCHOOL_WORKTREES_DIR", str(link / "trees"))
    refuse(*with_tasks(repo, TASK), code=USAGE, says="inside the repository")


def test_a_branch_that_stands_in_the_way(refuse, repo):
    git(repo, "branch", "school")
    refuse(*with_tasks(repo, TASK), code=USAGE, says="school/tidy.*school")


def test_limits_that_cannot_be_kept_together(refuse, repo, monkeypatch):
    (repo / "school.toml").write_text(
        '[verify]\ncommands = [["true"]]\n[reviewers.coo]\nmodel = "some-model"\n'
    )
    git(repo, "commit", "-q", "-a", "-m", "Configure")
    monkeypatch.setenv("DEFAULT_REVIEW_TIMEOUT", "130")
    refuse(*with_tasks(repo, TASK), code=USAGE, says="130 s.*120 s")


# --- what the machine lacks ---------------------------------------------------------------------------------


def test_no_such_folder(refuse, tmp_path):
    refuse("--repo", str(tmp_path / "nowhere"), code=MACHINE, says="no such folder")


def test_a_file_in_place_of_a_folder(refuse, tmp_path):
    (tmp_path / "file").write_text("")
    refuse("--repo", str(tmp_path / "file"), code=MACHINE, says="file: not a folder")


def test_no_repository(refuse, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    refuse("--repo", str(plain), code=MACHINE, says="not a git repository")


def test_a_bare_repository(refuse, repo):
    git(repo.parent, "clone", "-q", "--bare", str(repo), "bare.git")
    refuse("--repo", str(repo.parent / "bare.git"), code=MACHINE, says="bare")


def test_a_repository_without_a_commit(refuse, tmp_path):
    git(tmp_path, "init", "-q", "unborn")
    refuse("--repo", str(tmp_path / "unborn"), code=MACHINE, says="no commit")


def test_an_agent_that_is_not_installed(refuse, repo):
    (repo / "school.toml").write_text(
        '[verify]\ncommands = [["true"]]\n[agents.mine]\nargv = ["no-such-cli"]\n'
    )
    git(repo, "commit", "-q", "-a", "-m", "Configure")
    refuse(
        "--repo", str(repo), "--task", "x", "--agent", "mine", code=MACHINE, says="no-such-cli.*not on PATH"
    )


def test_confinement_that_is_not_there(refuse, repo, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PATH", without_bubblewrap(tmp_path_factory.mktemp("bin")))
    argv = (*with_tasks(repo, TASK), "--sandbox", "require")
    refuse(*argv, code=MACHINE, says="confinement is required .* bubblewrap is not installed")


def test_a_sandbox_path_that_is_nowhere_in_particular(refuse, repo):
    (repo / "school.toml").write_text('[verify]\ncommands = [["true"]]\n[sandbox]\nwrite = ["cache"]\n')
    git(repo, "commit", "-q", "-a", "-m", "Configure")
    refuse(*with_tasks(repo, TASK), code=USAGE, says=r"\[sandbox\] write: 'cache' must be absolute")


def test_a_state_directory_that_is_a_file(refuse, repo, own_home):
    (own_home / ".hermes").write_text("in the way")
    refuse(*with_tasks(repo, TASK), code=MACHINE, says=r"\.hermes")


@pytest.mark.parametrize("variable", ["HERMES_HOME", "BOOKBAG_DIR", "SIGNAL_DIR", "LOCK_DIR"])
def test_a_full_disk(repo, own_home, variable):
    """Any part of the state on a file system that is too small; nothing is made, there or elsewhere."""
    with small_disk(own_home / "small", 2) as small:
        place = {variable: str(small / "h")}
        before = tree_of(own_home)
        done = run_conductor("--repo", str(repo), "--task", "x", "--run", "true", **place)
        assert tree_of(own_home) == before
    assert done.returncode == MACHINE
    assert re.search(r"space|disk", json.loads(done.stdout)["error"]), done.stderr


def test_the_disk_of_the_repository_is_full_when_its_work_is_done(repo, own_home):
    """The run ends and names the disk; with room again the next one delivers what was judged."""
    with small_disk(own_home / "small", 2) as small:
        there = small / "repo"
        subprocess.run(["git", "clone", "-q", str(repo), str(there)], check=True)
        fill = f"cat /dev/zero > {shlex.quote(str(small / 'fill'))} || echo new > added.txt"
        argv = [
            "--repo",
            str(there),
            "--task",
            "Add a file",
            "--run",
            shlex.join(["sh", "-c", fill]),
            "--sync",
            "--sandbox",
            "off",  # confined, it could not write there
        ]
        done = run_conductor(*argv)
        assert done.returncode == MACHINE, done.stdout
        assert "No space left on device" in json.loads(done.stdout)["error"]
        (small / "fill").unlink()
        again = run_conductor("--repo", str(there), "--resume")
        assert again.returncode == 0, again.stdout
        assert git(there, "show", "school/add-a-file:added.txt") == "new"


def test_init_leaves_no_half_a_file_on_a_full_disk(repo, own_home):
    with small_disk(own_home / "small", 2) as small:
        there = small / "repo"
        subprocess.run(["git", "clone", "-q", str(repo), str(there)], check=True)
        subprocess.run(["sh", "-c", f"cat /dev/zero > {shlex.quote(str(small / 'fill'))}"], check=False)
        assert run_conductor("init", "--repo", str(there)).returncode == MACHINE
        assert not (there / "school-tasks.yaml").exists()


# --- what must work -----------------------------------------------------------------------------------------


def run_conductor(*argv: str, cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **extra}
    return subprocess.run(
        [sys.executable, str(ROOT / "conductor.py"), *argv, "--json"],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def accepted(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    (task,) = json.loads(done.stdout)["tasks"]
    assert task["outcome"] == "accepted"
    return task


EDIT = "python3 -c \"import pathlib; p = pathlib.Path('calc/core.py'); p.write_text(p.read_text() + 'EXTRA = 1' + chr(10))\""


@pytest.mark.parametrize("title", ["…!?", "団隊 AI", "a/b", "..", "-rf", "x" * 300, "two\nlines"])
def test_any_title_becomes_an_id_and_a_branch(repo, title):
    task = accepted(run_conductor("--repo", str(repo), f"--task={title}", "--run", EDIT))
    assert re.fullmatch(r"[a-z0-9-]{1,40}", task["id"])
    assert git(repo, "rev-parse", f"school/{task['id']}") == task["commit"]


def test_a_path_with_blanks_and_other_letters(repo):
    place = repo.parent / "my päth 団"
    repo.rename(place)
    accepted(run_conductor("--repo", str(place), "--task", "Extra", "--run", EDIT))


def test_inherited_git_variables_lead_nowhere(repo, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    write_tree(victim, {"a": "1\n"})
    git(victim, "init", "-q")
    git(victim, "add", ".")
    git(victim, "commit", "-q", "-m", "Victim")
    before = tree_of(victim)
    names = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE")
    values = (victim / ".git", victim / ".git", victim / ".git/objects", victim / ".git/index")
    inherited = {name: str(value) for name, value in zip(names, values, strict=True)}
    accepted(
        run_conductor(
            "--repo", str(repo), "--task", "Extra", "--run", EDIT, GIT_WORK_TREE=str(victim), **inherited
        )
    )
    assert tree_of(victim) == before


def test_hooks_and_signing_of_the_user_stop_nothing(repo, own_home):
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    git(repo, "config", "commit.gpgsign", "true")
    git(repo, "config", "gpg.program", "/bin/false")
    accepted(run_conductor("--repo", str(repo), "--task", "Extra", "--run", EDIT))
