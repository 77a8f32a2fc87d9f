"""Where the checks of a run come from: the base commit, whatever lies in the folder or comes after it."""

from __future__ import annotations

import json
from pathlib import Path

from school.settings import Settings
from school.supervisor.beads import repository_terms
from school.supervisor.plan import Plan, prepare
from school.supervisor.request import Request
from tests.support import git, write_tree

SAVED = {"name": "calc", "bootstrap": ["python3 -m venv .venv"], "test": ["python3 -m unittest -q"]}


def plan_of(repo: Path, school: Settings) -> Plan:
    return prepare(Request(repo=str(repo), task="Do it.", run="true"), school)


def saved(repo: Path, text: str) -> None:
    (repo / "school.toml").unlink(missing_ok=True)
    write_tree(repo, {".hermes/environment.json": text})
    git(repo, "add", "-Af", ".")
    git(repo, "commit", "-qm", "Save a recipe")


def test_a_saved_recipe_of_base_says_how_teachers_check_and_set_up(repo: Path, school: Settings) -> None:
    saved(repo, json.dumps(SAVED))
    write_tree(repo, {".hermes/environment.json": json.dumps({**SAVED, "test": ["true"]})})  # not committed
    terms = repository_terms(plan_of(repo, school))
    assert terms.verify == [["python3", "-m", "unittest", "-q"]]
    assert terms.setup == [["python3", "-m", "venv", ".venv"]]


def test_the_configuration_comes_first(repo: Path, school: Settings) -> None:
    write_tree(repo, {".hermes/environment.json": json.dumps(SAVED)})
    git(repo, "add", "-Af", ".")
    git(repo, "commit", "-qm", "Save a recipe")
    assert plan_of(repo, school).verify == [["python3", "-m", "unittest", "discover", "-v"]]


def test_what_cannot_be_used_of_a_recipe_is_a_remark(repo: Path, school: Settings) -> None:
    saved(repo, "{")
    plan = plan_of(repo, school)
    assert plan.verify == [["python3", "-m", "unittest", "discover"]]
    assert [remark[:42] for remark in plan.remarks] == [".hermes/environment.json: cannot be used: "]
