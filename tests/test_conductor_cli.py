"""The command line: every flag and subcommand, one document on stdout, exit codes, and what a run then does."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import bookbag
import conductor
from school import settings as school_settings
from tests.support import ROOT, git, write_tree

COUNTS = {"accepted": 0, "rejected": 0, "failed": 0, "expired": 0, "blocked": 0, "no_change": 0}


def add(path: str, text: str = "x = 1") -> list[str]:
    """A command that makes a file."""
    code = f"import pathlib; p = pathlib.Path({path!r}); p.parent.mkdir(exist_ok=True); p.write_text({text + chr(10)!r})"
    return ["python3", "-c", code]


def task(name: str, **more):
    return {"id": name, "role": "executor", "task": f"Do {name}.", "max_attempts": 1, **more}


@pytest.fixture
def run(school, repo, capfd):
    """One command line in this process, ``--json``: (exit code, document, stderr)."""

    def go(*argv: str):
        capfd.readouterr()
        code = conductor.entry([*argv, "--repo", str(repo), "--json"])
        out, err = capfd.readouterr()
        school_settings.configure(school)
        return code, json.loads(out), err

    return go


@pytest.fixture
def tasks(run, repo):
    """A run of these tasks, reviewed in this process."""

    def go(*entries, flags=("--loop", "--sync")):
        path = repo.parent / "tasks.yaml"
        path.write_text(json.dumps({"version": 1, "tasks": list(entries)}))
        return run("--tasks", str(path), *flags)

    return go


def outcomes(document):
    return {row["id"]: (row["outcome"], row["reason"]) for row in document["tasks"]}


# --- a run ----------------------------------------------------------------------------------------------------


def test_one_accepted_task_ends_on_a_branch_and_leaves_nothing_else(tasks, repo, school):
    before = git(repo, "for-each-ref"), git(repo, "status", "--porcelain"), (repo / ".git/config").read_text()
    code, document, _ = tasks(task("extra", run=add("calc/extra.py")))
    (row,) = document["tasks"]
    assert (code, row["outcome"], row["attempts"]) == (0, "accepted", 1)
    assert (row["cto_verdict"], row["coo_verdict"], row["branch"]) == ("PASS", "PASS", "school/extra")
    assert git(repo, "show", "school/extra:calc/extra.py") == "x = 1"
    assert git(repo, "rev-parse", row["ref"]) == row["commit"] == git(repo, "rev-parse", "school/extra")
    assert document["counts"] == {**COUNTS, "accepted": 1}
    assert document["exit"] == 0
    gained = set(git(repo, "for-each-ref", "--format=%(refname)").split()) - {"refs/heads/main"}
    assert gained == {row["ref"], "refs/heads/school/extra"}
    assert (git(repo, "status", "--porcelain"), (repo / ".git/config").read_text()) == before[1:]
    assert bookbag.list_bookbags() == []
    for folder in (
        school.signal_dir,
        school.processes_dir,
        school.worktree_records_dir,
        school.bead_repos_dir,
    ):
        assert [path.name for path in folder.iterdir() if "teacher" not in path.name] == [], folder
    assert list(school.worktrees_dir.glob("*/study-*")) == []


def test_an_accepted_task_is_not_done_again_and_an_edited_one_is(tasks):
    first = tasks(task("extra", run=add("calc/extra.py")))[1]["tasks"][0]
    code, document, _ = tasks(task("extra", run=add("calc/extra.py")))
    assert (code, document["tasks"][0]["bead"]) == (0, first["bead"])
    code, document, _ = tasks(task("extra", run=add("calc/extra.py", "x = 2")))
    (row,) = document["tasks"]
    assert (code, row["outcome"], row["branch"]) == (0, "accepted", "school/extra-2")
    assert row["bead"] != first["bead"]


def test_attempts_that_are_used_up_stay_rejected_until_retry(tasks, run):
    idle = task("idle", run=["true"])
    (said,) = outcomes(tasks(idle)[1]).values()
    assert said[0] == "rejected"
    assert said[1].startswith("no_artifact: "), said
    code, document, _ = tasks(idle)
    assert (code, document["tasks"][0]["attempts"]) == (1, 1)
    assert run("retry", "idle")[:2] == (
        0,
        {"task_id": "idle", "records": 1, "archived": [], "readmitted": []},
    )
    bead = tasks(idle)[1]["tasks"][0]["bead"]
    assert bead != document["tasks"][0]["bead"]


def test_without_loop_there_is_one_round_and_with_it_the_next_brief_has_the_findings(tasks):
    idle = task("idle", run=["true"], max_attempts=2)
    code, document, _ = tasks(idle, flags=("--sync",))
    assert (code, document["tasks"][0]["attempts"]) == (1, 1)
    code, document, _ = tasks(idle, flags=("--sync", "--loop", "--rounds", "5"))
    assert (code, document["tasks"][0]["attempts"]) == (1, 2)
    bag = bookbag.read_archived(document["tasks"][0]["bead"])
    assert (bag["attempt"], bag["max_attempts"]) == (2, 2)
    assert "no_artifact" in {finding["issue_class"] for finding in bag["earlier_findings"]}


def test_an_honest_no_change_is_neither_accepted_nor_delivered(tasks, repo):
    says = "import json, os; json.dump({'status': 'no_change', 'summary': 'fine'}, open(os.environ['SCHOOL_RESULT'], 'w'))"
    check = {"text": "it adds", "check": ["python3", "-c", "from calc import add; assert add(1, 2) == 3"]}
    code, document, _ = tasks(task("fine", run=["python3", "-c", says], accept=[check]))
    (row,) = document["tasks"]
    assert (code, row["outcome"], row["branch"]) == (0, "no_change", "")
    assert document["counts"] == {**COUNTS, "no_change": 1}
    assert "school" not in git(repo, "branch", "--list", "school/*")


# --- needs ----------------------------------------------------------------------------------------------------


def test_a_task_starts_from_what_it_needs_merged_in(tasks, repo, school):
    code, document, _ = tasks(
        task("b", run=add("calc/b.py")),
        task("a", run=add("calc/a.py")),
        task(
            "both",
            run=["python3", "-c", "import calc.a, calc.b; open('calc/c.py', 'w').write('x = 1\\n')"],
            needs=["b", "a"],
        ),
    )
    assert (code, document["counts"]["accepted"]) == (0, 3)
    (clone,) = school.clones_dir.glob("*.git")
    assert git(clone, "for-each-ref", "refs/school/pins") == "", "nothing is in flight, so no base is pinned"
    names = git(repo, "ls-tree", "--name-only", "school/both", "calc/").split()
    assert names == ["calc/__init__.py", "calc/a.py", "calc/b.py", "calc/c.py", "calc/core.py"]


def test_unmet_needs_block_by_name(tasks):
    _, document, _ = tasks(task("idle", run=["true"]), task("next", run=add("calc/b.py"), needs=["idle"]))
    assert outcomes(document)["next"] == ("blocked", "needs:idle")
    assert document["counts"] == {**COUNTS, "rejected": 1, "blocked": 1}


def test_needs_that_conflict_block_with_their_names_and_paths(tasks):
    _, document, _ = tasks(
        task("a", run=add("calc/x.py", "x = 1")),
        task("b", run=add("calc/x.py", "x = 2")),
        task("both", run=add("calc/c.py"), needs=["a", "b"]),
    )
    outcome, reason = outcomes(document)["both"]
    assert (outcome, reason) == ("blocked", "needs do not merge: a, b (in calc/x.py)")


def test_needs_that_merge_and_do_not_work_together_block_with_the_test(tasks, repo):
    crowd = (
        "import pathlib\nimport unittest\n\n\nclass CrowdTest(unittest.TestCase):\n    def test_crowd(self):\n"
        "        self.assertLess(len(list(pathlib.Path('calc').glob('extra_*.py'))), 2)\n"
    )
    write_tree(repo, {"tests/test_crowd.py": crowd})
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "A test of how many there are")
    code, document, _ = tasks(
        task("a", run=add("calc/extra_a.py")),
        task("b", run=add("calc/extra_b.py")),
        task("both", run=add("calc/c.py"), needs=["a", "b"]),
    )
    outcome, reason = outcomes(document)["both"]
    assert (code, outcome) == (1, "blocked")
    assert reason.startswith("needs do not work together: a, b: ")
    assert "test_crowd" in reason


# --- what goes wrong --------------------------------------------------------------------------------------------


def test_a_leaf_that_fails_by_its_agent_is_charged_and_its_work_kept(tasks, repo):
    argv = ["python3", "-c", "open('calc/half.py', 'w').write('half\\n'); import time; time.sleep(60)"]
    (repo / "school.toml").write_text(
        (repo / "school.toml").read_text() + "[limits]\ncommand_timeout_s = 1\n"
    )
    git(repo, "commit", "-q", "-a", "-m", "Less patience")
    code, document, _ = tasks(task("slow", run=argv))
    (row,) = document["tasks"]
    assert (code, row["outcome"], row["reason"], row["attempts"]) == (1, "failed", "timeout", 1)
    assert git(repo, "show", f"{row['ref']}:calc/half.py") == "half"
    assert "git" in bookbag.read_archived(row["bead"])["summary"]


def test_a_student_that_changes_the_users_configuration_stops_the_run(tasks, repo):
    meddle = ["git", "config", "-f", str(repo / ".git/config"), "core.pager", "evil"]
    # Confined it could not; what is watched is the repository of those whom nothing confines.
    flags = ("--sync", "--leaves", "1", "--sandbox", "off")
    code, document, stderr = tasks(
        task("meddler", run=meddle), task("other", run=add("calc/b.py")), flags=flags
    )
    assert code == 1
    assert outcomes(document) == {
        "meddler": ("failed", "repository_changed"),
        "other": ("expired", "not_started: repository_changed"),
    }
    assert document["tasks"][0]["attempts"] == 0
    assert "nothing new is started" in stderr


def test_a_blocked_student_waits_for_a_human_and_retry_clears_it(tasks, run):
    says = "import json, os; json.dump({'status': 'blocked', 'blockers': ['no key']}, open(os.environ['SCHOOL_RESULT'], 'w'))"
    stuck = task("stuck", run=["python3", "-c", says])
    code, document, _ = tasks(stuck)
    bead = document["tasks"][0]["bead"]
    assert (code, document["tasks"][0]["outcome"]) == (1, "blocked")
    assert bookbag.bookbag_state(bookbag.read_bookbag(bead)) == "BLOCKED"
    assert tasks(stuck)[1]["tasks"][0]["bead"] == bead
    assert run("retry", "stuck")[1]["archived"] == [bead]
    assert bookbag.read_bookbag(bead) is None
    assert tasks(stuck)[1]["tasks"][0]["bead"] != bead


# --- taking up ------------------------------------------------------------------------------------------------


def test_nothing_to_resume_says_so_and_exits_0(run, repo):
    code, document, _ = run("--resume")
    assert (code, document["tasks"], document["exit"], document["counts"]) == (0, [], 0, COUNTS)


def test_resume_continues_with_the_same_tasks_base_and_options(tasks, run, repo):
    _, first, _ = tasks(
        task("idle", run=["true"], max_attempts=2), task("a", run=add("calc/a.py")), flags=("--sync",)
    )
    git(repo, "commit", "-q", "--allow-empty", "-m", "Meanwhile")
    code, document, _ = run("--resume")
    assert [row["id"] for row in document["tasks"]] == ["idle", "a"]
    assert (code, document["base"], document["tasks"][0]["attempts"]) == (1, first["base"], 2)
    code, document, _ = run("--resume")
    assert (code, document["exit"], len(document["tasks"])) == (0, 0, 2)


def test_a_bead_that_nobody_runs_any_more_is_taken_up_and_not_charged(tasks, repo, school):
    """What a conductor leaves that died between the record and the leaf."""
    _, document, _ = tasks(task("a", run=add("calc/a.py")))
    old = bookbag.read_archived(document["tasks"][0]["bead"])
    kept = (
        "task",
        "domain",
        "difficulty",
        "repo",
        "repo_key",
        "base_commit",
        "task_id",
        "task_digest",
        "agent",
        "terms",
    )
    orphan = bookbag.write_bookbag(
        "executor-general-0badcafe", student="executor", status="running", run="an-earlier-run",
        **{name: old[name] for name in kept if name != "task_digest"}, task_digest="0" * 12,
    )  # fmt: skip
    code, document, _ = tasks(task("b", run=add("calc/b.py")))
    by_bead = {row["bead"]: row for row in document["tasks"]}
    taken = by_bead[orphan["bead"]]
    assert (taken["outcome"], taken["reason"], taken["attempts"]) == ("failed", "conductor_died", 0)
    assert (code, document["counts"]["accepted"]) == (1, 1)
    assert bookbag.bookbag_state(bookbag.read_archived(orphan["bead"]), archived=True) == "DISPOSED"


# --- the other commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["status", "list", "leaderboard", "governor", "check", "doctor", "stop", "init"]
)
def test_json_and_repo_stand_before_or_after_a_name(school, repo, capfd, name):
    documents = []
    for argv in (["--json", "--repo", str(repo), name], [name, "--repo", str(repo), "--json"]):
        assert conductor.entry(argv) == 0
        documents.append(json.loads(capfd.readouterr().out))
        school_settings.configure(school)
    assert type(documents[0]) is type(documents[1])


def test_show_has_the_bag_and_its_state(tasks, run):
    bead = tasks(task("a", run=add("calc/a.py")))[1]["tasks"][0]["bead"]
    code, document, _ = run("show", bead)
    assert (code, document["state"], document["outcome"], document["bead"]) == (
        0,
        "DISPOSED",
        "accepted",
        bead,
    )


def test_list_all_leaderboard_and_check_after_a_run(tasks, run):
    tasks(task("a", run=add("calc/a.py")))
    assert [row["task_id"] for row in run("list", "--all")[1]] == ["a"]
    assert run("list")[1] == []
    assert run("leaderboard")[1][0]["agent"] == "run:python3"
    code, rows, _ = run("check")
    assert (code, [row for row in rows if not row["ok"]]) == (0, [])


def test_init_writes_what_is_missing_and_keeps_what_is_there(run, repo):
    kept = (repo / "school.toml").read_text()
    code, rows, _ = run("init")
    assert code == 0
    assert [(Path(row["file"]).name, row["action"]) for row in rows] == [
        ("school.toml", "kept"),
        ("school-tasks.yaml", "written"),
    ]
    assert (repo / "school.toml").read_text() == kept
    code, document, _ = run("--sync")
    assert (code, document["tasks"][0]["id"]) == (0, "unused-imports")


def test_recover_brings_back_what_was_not_accepted(tasks, run, repo):
    _, document, _ = tasks(task("stray", run=add("calc/a.py"), allow=["docs/**"]))
    (row,) = document["tasks"]
    assert row["outcome"] == "rejected"
    git(repo, "update-ref", "-d", row["ref"])
    _, rows, _ = run("recover", row["bead"])
    assert (rows[0]["ref"], git(repo, "rev-parse", row["ref"])) == (row["ref"], row["commit"])
    assert run("recover", "--all")[1] == rows


def test_prune_names_first_and_removes_when_told(tasks, run):
    tasks(task("stray", run=add("calc/a.py"), allow=["docs/**"]), task("fine", run=add("calc/b.py")))
    beads = {row["bead"] for row in run("list", "--all")[1]}
    code, named, _ = run("prune", "--beads", "0")
    assert (code, {row["bead"] for row in named}) == (0, beads)
    assert {row["action"] for row in named} <= {"would_remove", "kept"}
    _, applied, _ = run("prune", "--beads", "0", "--apply")
    gone = {row["bead"] for row in applied if row["action"] == "removed"}
    assert gone == {row["bead"] for row in named if row["action"] == "would_remove"}
    assert {row["bead"] for row in run("list", "--all")[1]} == beads - gone
    assert run("prune", "--days", "-1")[0] == 2


def test_clean_worktrees_with_nothing_to_clean(run):
    assert run("--clean-worktrees", "--dry-run")[:2] == (0, [])
    assert run("--clean-worktrees")[:2] == (0, [])


def test_the_last_line_for_people(school, repo, capfd):
    argv = ["--repo", str(repo), "--task", "Add b", "--run", "touch calc/b.txt", "--sync"]
    code = conductor.entry(argv)
    out = capfd.readouterr().out.splitlines()
    assert code in (0, 1)
    assert not any("does not count" in line for line in out)
    assert out[-1].startswith("accepted ")
    assert out[-1].endswith("no_change 0")


LOADS = "import pickle\n\n\ndef load(raw):\n    return pickle.loads(raw)"


def test_what_was_found_in_accepted_work_is_in_the_document(tasks):
    def there(path):
        return [{"text": "it is there", "check": ["test", "-f", path]}]

    document = tasks(
        task("loads", run=add("calc/loads.py", LOADS), accept=there("calc/loads.py")),
        task("plain", run=add("docs/plain.md", "Plain."), accept=there("docs/plain.md")),
    )[1]
    loads, plain = document["tasks"]
    assert (loads["outcome"], plain["outcome"]) == ("accepted", "accepted")
    assert {"severity": "MEDIUM", "issue_class": "dangerous_code", "citation": "calc/loads.py:5"} in loads[
        "findings"
    ]
    assert loads["refused"] == plain["refused"] == 0
    assert plain["findings"] == []


def test_people_are_told_what_was_found_in_accepted_work(school, repo, capfd):
    code = f"import pathlib; pathlib.Path('calc/loads.py').write_text({LOADS + chr(10)!r})"
    argv = ["--task", "Add loads", "--run", shlex.join(["python3", "-c", code]), "--sync"]
    conductor.entry(["--repo", str(repo), *argv, "--accept", "there", "--check", "test -f calc/loads.py"])
    out = capfd.readouterr().out
    (at_once,) = [line for line in out.splitlines() if "add-loads: accepted" in line]
    assert "MEDIUM dangerous_code" in at_once
    assert re.search(
        r"accepted with \d findings?: .*, branch school/add-loads; more: show executor-", at_once
    )
    assert re.search(r"\n  accepted with \d findings?: .*\n  more:   python conductor.py show executor-", out)


def test_people_are_told_where_work_lies_that_became_no_branch(school, repo, capfd):
    (repo / "school.toml").write_text("# Changed, and not committed.\n")
    there = ["--accept", "calc/c.txt is there", "--check", "test -f calc/c.txt"]
    conductor.entry(["--repo", str(repo), "--task", "Add c", "--run", "touch calc/b.txt", *there, "--sync"])
    out = capfd.readouterr().out
    assert "note: school.toml as it lies there does not count" in out
    assert "add-c: rejected, its work is kept as refs/school/" in out
    commands = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if line[:2] == "  "}
    subprocess.run(["sh", "-c", commands["keep:"]], check=True)
    bead = commands["keep:"].split()[-2]
    assert git(repo, "ls-tree", "--name-only", bead, "calc/b.txt") == "calc/b.txt"
    looked = subprocess.run(["sh", "-c", commands["look:"]], check=True, capture_output=True, text=True)
    assert "calc/b.txt" in looked.stdout
    assert commands["why:"] == f"python conductor.py show {bead}"
    assert "again:" not in commands


def test_a_student_that_changed_nothing_left_no_work_to_keep(school, repo, capfd):
    assert conductor.entry(["--repo", str(repo), "--task", "Idle", "--run", "true", "--sync"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "idle: rejected:" in lines
    assert not [line for line in lines if line.startswith(("  look:", "  keep:"))]


def test_help_is_quick_because_it_loads_nothing_of_a_run():
    code = "import sys, conductor; conductor.entry(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert not loaded & {"pydantic", "rich", "yaml", "structlog", "watchdog", "filelock", "griffe", "psutil"}
    assert "--handoff-timeout" in done.stdout
