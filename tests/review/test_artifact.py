"""There is a change where one is due, and it is the one that the record speaks of."""

import pytest

from tests.review.support import CORE, classes
from tests.support import git


def test_a_change_is_an_artifact(judged):
    assert judged.one("artifact", {"calc/core.py": CORE.replace("import os\n", "")}).findings == []


def test_an_unchanged_tree_that_claims_done_fails(judged):
    result = judged.one("artifact", {}, claim="done", output="I did all of it.", summary="done")
    assert classes(result) == {"no_artifact": "CRITICAL"}


def test_ignored_output_only_is_no_artifact(judged):
    assert classes(judged.one("artifact", {"build/result.txt": "42"})) == {"no_artifact": "CRITICAL"}


def test_an_unchanged_tree_may_claim_no_change(judged):
    assert judged.one("artifact", {}, claim="no_change").findings == []


def test_a_change_may_not_claim_no_change(judged):
    assert classes(judged.one("artifact", {"new.py": "A = 1\n"}, claim="no_change")) == {
        "claim_mismatch": "HIGH"
    }


def test_a_searcher_needs_an_answer_and_no_change(judged):
    assert judged.one("artifact", {}, student="searcher", output="It is in calc/core.py:7.").findings == []
    assert classes(judged.one("artifact", {}, student="searcher", output=" \n")) == {
        "no_artifact": "CRITICAL"
    }


@pytest.mark.parametrize(
    "edit",
    [
        {"PLAN.md": "# Steps I will take\n\n1. Think.\n"},
        {"NOTES": "", "calc/empty.py": ""},
        {".gitignore": "__pycache__/\nbuild/\ncalc/new.py\n"},
    ],
)
def test_notes_empty_files_and_ignore_rules_are_no_work(judged, edit):
    assert classes(judged.one("artifact", edit)) == {"no_artifact": "HIGH"}


@pytest.mark.parametrize(
    ("edit", "task"),
    [
        ({"calc/py.typed": ""}, "Add the marker py.typed to the package."),
        ({"GUIDE.md": "# Guide\n"}, "Write a guide for beginners."),
        ({".gitignore": "__pycache__/\nbuild/\n.venv/\n"}, "Let .gitignore ignore .venv."),
        ({"calc/core.py": ""}, "Make the module empty."),
    ],
)
def test_what_the_task_asks_for_is_work(judged, edit, task):
    assert judged.one("artifact", edit, task=task).findings == []


def test_a_record_that_speaks_of_another_tree_is_not_judged(judged):
    other = git(judged.repo, "rev-parse", f"{judged.base}^{{tree}}")
    result = judged.one("artifact", {"new.py": "A = 1\n"}, tree=other)
    assert "is not that of the recorded commit" in result.no_verdict
    assert result.findings == []


def test_a_head_with_history_of_its_own_is_not_judged(judged):
    def two_commits(repo):
        (repo / "one.py").write_text("A = 1\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "agent's own")
        (repo / "two.py").write_text("B = 1\n")

    assert "is not one commit on base" in judged.one("artifact", two_commits).no_verdict
