"""``doctor``: could a run start here, asked on real directories, repositories and programs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from school.settings import Settings
from school.status.doctor import CHECKS, doctor_document
from school.system.git import version
from tests.support import git, require_confinement, without_bubblewrap


@pytest.fixture(autouse=True)
def fresh_look_at_git() -> None:
    """A process looks at git's version once; each of these tests stands for a new process."""
    version.cache_clear()


def rows_of(school: Settings, repo: Path, *, explicit: bool = True) -> dict[str, dict[str, Any]]:
    rows = doctor_document(school, repo=repo, explicit=explicit)
    assert all(row.keys() == {"check", "ok", "detail"} for row in rows)
    return {row["check"]: row for row in rows}


def wrong(school: Settings, repo: Path) -> set[str]:
    return {name for name, row in rows_of(school, repo).items() if row["ok"] is False}


def test_on_a_sound_machine_a_run_could_start_and_nothing_is_left_of_asking(school: Settings, repo: Path):
    before = sorted(school.hermes_home.parent.iterdir()), git(repo, "status", "--porcelain", "--ignored")
    rows = rows_of(school, repo)
    assert list(rows)[: len(CHECKS)] == list(CHECKS)
    assert wrong(school, repo) == set()
    assert rows["task-file"]["ok"] is None
    assert rows["agent:demo-good"]["ok"] is True
    assert "2." in rows["git"]["detail"]
    assert (
        sorted(school.hermes_home.parent.iterdir()),
        git(repo, "status", "--porcelain", "--ignored"),
    ) == before


def test_what_is_absent_and_optional_is_null(
    school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path
):
    (tmp_path / "bin").mkdir()
    found = shutil.which("git")
    assert found
    (tmp_path / "bin" / "git").symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (repo / "school.toml").write_text('[agents.mine]\nargv = ["no-such-agent"]\n')
    git(repo, "commit", "-qam", "Configure")
    rows = rows_of(school, repo)
    assert rows["orca"]["ok"] is None
    assert rows["confinement"]["ok"] is None
    assert rows["agent:mine"]["ok"] is None
    assert "no-such-agent" in rows["agent:mine"]["detail"]
    assert wrong(school, repo) == set()


def test_no_git_is_said(school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {"git", "repository"} <= wrong(school, repo)


def test_an_old_git_is_said(school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    rows = rows_of(school, repo)
    assert rows["git"]["ok"] is False
    assert "2.20.1 is too old" in rows["git"]["detail"]


@pytest.mark.parametrize("kind", ["no folder", "no repository", "bare", "unborn"])
def test_a_repository_that_cannot_be_worked_on(school: Settings, tmp_path: Path, kind: str):
    place = tmp_path / "place"
    if kind != "no folder":
        place.mkdir()
    if kind in ("bare", "unborn"):
        git(place, "init", "-q", *(["--bare"] if kind == "bare" else []))
    assert "repository" in wrong(school, place)
    # Not named by the user, it is only not there.
    rows = rows_of(school, place, explicit=False)
    assert rows["repository"]["ok"] is None
    assert "--repo" in rows["repository"]["detail"]


def test_a_directory_that_is_none(school: Settings, repo: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    settings = replace(school, lock_dir=tmp_path / "file" / "locks")
    assert wrong(settings, repo) >= {"writable-locks", "hard-links", "kernel-locks"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(school: Settings, repo: Path, tmp_path: Path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    rows = rows_of(replace(school, bookbag_dir=locked / "bookbag"), repo)
    assert rows["writable-bookbag"]["ok"] is False
    assert str(locked) in rows["writable-bookbag"]["detail"]


def test_worktrees_inside_the_repository(school: Settings, repo: Path):
    assert wrong(replace(school, worktrees_dir=repo / "trees"), repo) == {"worktrees-outside-repository"}


@pytest.mark.parametrize("place", ["base", "home"])
def test_a_wrong_configuration_is_said_with_file_and_key(school: Settings, repo: Path, place: str):
    path = repo / "school.toml" if place == "base" else school.hermes_home / "school.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[limits]\nleaves = 0\n")
    if place == "base":
        assert wrong(school, repo) == set()  # what is not committed does not count
        git(repo, "commit", "-qam", "Configure")
    row = rows_of(school, repo)["configuration"]
    assert row["ok"] is False
    assert "[limits] leaves: 0 is out of range" in row["detail"]
    assert "school.toml" in row["detail"]


def test_a_model_that_nobody_could_be_asked_for_is_said(school: Settings, repo: Path):
    (repo / "school.toml").write_text('[reviewers.cto]\nmodel = "nosuch:x"\n[coach]\nmodel = "foo"\n')
    git(repo, "commit", "-qam", "Configure")
    row = rows_of(school, repo)["configuration"]
    assert row["ok"] is False
    assert row["detail"].splitlines() == [
        f'{repo}/school.toml: [reviewers.cto] model = "nosuch:x": no provider is called "nosuch"',
        (
            f'{repo}/school.toml: [coach] model = "foo": which provider? Write "provider:name"; a name alone is for an agent, or a '
            "coach, with the base_url of an OpenAI-compatible endpoint"
        ),
    ]


def test_a_configuration_that_is_not_committed_is_said(school: Settings, repo: Path):
    def said() -> bool:
        row = rows_of(school, repo)["configuration"]
        assert row["ok"] is True
        return "not committed" in row["detail"]

    path = repo / "school.toml"
    assert not said()
    path.write_bytes(b"[limits]\nleaves = 3\n")
    assert said()
    git(repo, "add", "school.toml")
    git(repo, "commit", "-q", "-m", "Configure")
    assert not said()
    path.write_bytes(b"[limits]\r\nleaves = 3\r\n")
    assert not said()
    path.unlink()
    assert not said()


def test_the_task_file_is_read(school: Settings, repo: Path):
    path = repo / "school-tasks.yaml"
    path.write_text("tasks:\n  - {id: a, task: x, chore: format}\n")
    row = rows_of(school, repo)["task-file"]
    assert (row["ok"], "1 tasks" in row["detail"]) == (True, True)
    path.write_text("tasks:\n  - {id: a, task: x, chore: sweep}\n")
    row = rows_of(school, repo)["task-file"]
    assert (row["ok"], "school-tasks.yaml:2: tasks[0].chore" in row["detail"]) == (False, True)


def test_overridden_personas_are_named(school: Settings, repo: Path):
    path = school.hermes_home / "profiles" / "teacher-cto" / "SOUL.md"
    path.parent.mkdir(parents=True)
    path.write_text("# Mine\n")
    row = rows_of(school, repo)["personas"]
    assert (row["ok"], row["detail"]) == (True, f"overridden: teacher-cto from {path}")
    path.write_text("")
    assert rows_of(school, repo)["personas"]["ok"] is False


def test_a_required_sandbox_is_refused_as_the_run_would(
    school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", without_bubblewrap(tmp_path))
    (repo / "school.toml").write_text('[sandbox]\nmode = "require"\n')
    git(repo, "commit", "-qam", "Configure")
    assert wrong(school, repo) == {"confinement"}


def test_a_bubblewrap_that_does_not_work_is_said(
    school, repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho no user namespaces here >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    row = rows_of(school, repo)["confinement"]
    assert (row["ok"], "no user namespaces here" in row["detail"]) == (None, True)


def test_a_bubblewrap_that_confines_nothing_is_none(
    school: Settings, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    row = rows_of(school, repo)["confinement"]
    assert (row["ok"], "bubblewrap does not work here" in row["detail"]) == (None, True)


def test_which_confinement_there_is(school: Settings, repo: Path):
    require_confinement()
    row = rows_of(school, repo)["confinement"]
    assert (row["ok"], row["detail"]) == (True, "agents and checks run within bubblewrap")
    (repo / "school.toml").write_text('[sandbox]\nmode = "off"\n')
    git(repo, "commit", "-qam", "Configure")
    row = rows_of(school, repo)["confinement"]
    assert (row["ok"], row["detail"]) == (
        None,
        '[sandbox] mode is "off": agents and checks run unconfined (bubblewrap)',
    )
