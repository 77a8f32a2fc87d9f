"""What a configuration opens, and what it never does, however it is spelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from school.confinement import Place, for_checks, for_leaf, for_reader
from school.contracts import AgentSpec, SandboxTerms, Workspace
from school.settings import Settings
from school.system import files, processes
from school.system.confine import Policy
from school.system.processes import RunLimits
from tests.support import require_confinement, write_tree

Line = Callable[..., str]


def _ran(line: str, cwd: Path, policy: Policy | None) -> str:
    done = processes.run(
        ["sh", "-c", line], cwd=cwd, env={"PATH": "/usr/bin:/bin"}, marker="m", limits=RunLimits(timeout_s=20),
        confinement=policy,
    )  # fmt: skip
    return done.stdout.decode().strip()


@pytest.fixture
def leaf(school: Settings, tmp_path: Path) -> Line:
    """Run a shell line as the student of one bead: *write* is its agent's, *sandbox* the project's."""
    require_confinement()
    for folder in school.record_dirs():
        files.ensure_dir(folder)
    (school.bookbag_dir / "bead.json").write_text("a record")
    tree, git_dir = school.worktrees_dir / "key" / "study", school.bead_repos_dir / "bead.git"
    clone, repo = school.clones_dir / "key.git", tmp_path / "project"
    for folder in (tree, git_dir, clone / "objects", repo):
        files.ensure_dir(folder)
    workspace = Workspace(
        bead="bead", path=tree, git_dir=git_dir, clone=clone, repo=repo, repo_key="key", base_commit="0" * 40
    )

    def leaf(line: str, *, agent: Sequence[str] = (), **sandbox: list[str]) -> str:
        spec = AgentSpec(name="x", kind="command", argv=["x"], write=list(agent))
        place = Place(workspace, school.scratch_dir / "bead")
        return _ran(line, tree, for_leaf(SandboxTerms.model_validate(sandbox), spec, place, school).policy)

    return leaf


@pytest.mark.parametrize("spelled", ["plain", "dots", "link"])
@pytest.mark.parametrize("where", ["agent", "write", "read"])
def test_our_records_stay_closed_however_they_are_opened(
    leaf: Line, school: Settings, tmp_path: Path, where: str, spelled: str
) -> None:
    bags = school.bookbag_dir
    (tmp_path / "link").symlink_to(bags)
    name = {"plain": f"{bags}", "dots": f"{bags}/../{bags.name}", "link": f"{tmp_path}/link"}[spelled]
    said = leaf(f"cat {bags}/bead.json; echo x > {bags}/forged", **{where: [name]})
    assert said.count("Permission denied") == 2, said
    assert not (bags / "forged").exists()


@pytest.mark.parametrize("there", [True, False])
def test_who_keeps_its_state_beside_our_folders_decides_nothing(
    leaf: Line, school: Settings, there: bool
) -> None:
    home = school.hermes_home
    write_tree(home, {"profiles/cto/SOUL.md": "Be strict.\n", "state": "s\n"})
    if there:
        write_tree(home, {"school.toml": "# mine\n"})
    tries = f"cd {home}; echo 'mode = 1' >> school.toml; mv school.toml x; echo x > profiles/cto/SOUL.md; mv profiles y"
    said = leaf(f"{tries}; echo t > state", agent=[str(home)])
    assert said.count("Read-only file system") == 2, said
    assert said.count("Device or resource busy") == 2, said
    assert (home / "school.toml").read_text() == ("# mine\n" if there else "")
    assert (home / "profiles/cto/SOUL.md").read_text() == "Be strict.\n"
    assert (home / "state").read_text() == "t\n"


def test_a_reviewer_decides_nothing_either(school: Settings, tmp_path: Path) -> None:
    require_confinement()
    for name in ("tree", "clone", "project", "tmp", "folder"):
        files.ensure_dir(tmp_path / name)
    files.ensure_dir(school.bookbag_dir)
    write_tree(school.hermes_home, {"school.toml": "# mine\n"})
    checks = for_checks(
        SandboxTerms(), worktree=tmp_path / "tree", clone=tmp_path / "clone", repo=tmp_path / "project",
        tmpdir=tmp_path / "tmp", settings=school,
    )  # fmt: skip
    spec = AgentSpec(
        name="x", kind="command", argv=["x"], write=[str(school.hermes_home), str(school.bookbag_dir)]
    )
    policy = for_reader(checks.policy, spec, worktree=tmp_path / "tree", folder=tmp_path / "folder")
    line = f"cd {school.hermes_home}; echo x > state; echo x > school.toml; echo x > bookbag/forged"
    said = _ran(line, tmp_path / "tree", policy)
    assert said.count("Read-only file system") == 1, said
    assert said.count("Permission denied") == 1, said
    assert sorted(path.name for path in school.hermes_home.iterdir()) == ["bookbag", "school.toml", "state"]


def test_keys_are_closed_and_what_a_project_opens_of_them_is_not(leaf: Line, own_home: Path) -> None:
    names = (".ssh/id", ".git-credentials", ".config/git/credentials", ".Xauthority", ".aws/credentials")
    write_tree(own_home, {name: f"key of {name}\n" for name in (*names, ".config/git/ignore")})
    said = leaf(f"cd {own_home}; cat {' '.join(names)} .config/git/ignore 2>/dev/null", read=["~/.aws"])
    assert said.splitlines() == ["key of .aws/credentials", "key of .config/git/ignore"]
