"""The leaf as a process on a real repository: every way an agent can end, and what the record says of it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import bookbag
from leaf import StudentLeaf
from school.agents import registry
from school.contracts import AgentSpec
from school.errors import BookbagInvalidError, LeafError, LeafNotBootedError, WorktreeError
from school.settings import Settings
from school.system import files, processes
from school.worktrees import SchoolClone, workspace_of
from tests import leaves
from tests.leaves import configured, content, demo, new_bead, run, script
from tests.support import CALC_FILES, git

GOOD = "Subtract.\n\nAPPLY: calc/core.py :: return left + right -> return left - right"
QUICK = {"startup_timeout_s": 30.0, "stall_timeout_s": 30.0}
TOUCH = "from pathlib import Path; Path('new.txt').write_text('new')\n"


def claiming(**claim: Any) -> str:
    return f"import os, json; open(os.environ['SCHOOL_RESULT'], 'w').write(json.dumps({claim!r}))\n"


def failed(bag: dict[str, Any], reason: str) -> bool:
    return (bag["status"], bag["reason"]) == ("failed", reason)


def has_flag(bead: str) -> bool:
    return bookbag.BookbagSignal(bead).check()


# --- the good way -------------------------------------------------------------------------------------------


def test_good_work_is_handed_over(repo: Path, school: Settings) -> None:
    acceptance = [{"id": "ac1", "text": "it subtracts", "check": ["true"]}]
    bead = new_bead(repo, demo("good"), task=GOOD, acceptance=acceptance, terms={"allow": ["calc/**"]})
    bag = run(bead, school)

    assert (bag["status"], bag["reason"], bag["claim"], bag["summary"]) == (
        "open",
        "",
        "done",
        "applied 1 edits; unverified: no check of the project was seen to end after the last edit of calc/core.py",
    )
    assert bag["files_changed"] == ["calc/core.py"]
    assert (
        content(bag, school, "calc/core.py")
        == CALC_FILES["calc/core.py"].replace("left + right", "left - right").rstrip()
    )
    assert bag["output"] == "applied 1 edits\n"
    assert bookbag.bookbag_state(bag) == "WRITTEN"
    flag = bookbag.BookbagSignal(bead).read()
    assert flag is not None
    assert (flag["rev"], flag["tree"]) == (bag["rev"], bag["tree"])
    assert git(leaves.clone_of(bag, school), "rev-parse", bag["ref"]) == bag["head_commit"]
    assert git(leaves.clone_of(bag, school), "rev-parse", f"{bag['head_commit']}^{{tree}}") == bag["tree"]
    assert git(leaves.clone_of(bag, school), "rev-parse", f"{bag['head_commit']}^") == bag["base_commit"]
    assert bag["persona"]["name"] == "student-coder"
    assert bag["usage"]["exit_code"] == 0
    assert bag["ac_met"] == []


def test_the_brief_is_the_whole_contract(repo: Path, school: Settings) -> None:
    finding = {
        "section": "acceptance",
        "severity": "HIGH",
        "issue_class": "criterion_unmet",
        "description": "no",
    }
    bead = new_bead(
        repo,
        demo("idler"),
        task="Ä task\n" * 50,
        acceptance=[{"id": "ac1", "text": "t", "check": ["true"]}],
        terms={"allow": ["calc/**"], "preserve": ["api"]},
        earlier_findings=[finding],
        attempt=2,
        max_attempts=3,
    )
    bag = run(bead, school)
    brief = json.loads((Path(bag["worktree"]) / ".hermes" / "briefs" / f"{bead}.json").read_text())
    assert brief["task"] == "Ä task\n" * 50
    assert (brief["bead"], brief["task_id"], brief["attempt"], brief["role"]) == (bead, "do-it", 2, "coder")
    assert (brief["allow"], brief["preserve"]) == (["calc/**"], ["api"])
    assert brief["acceptance"] == [{"id": "ac1", "text": "t", "check": ["true"]}]
    assert brief["findings"][0]["description"] == "no"
    assert brief["persona"].startswith("# Student: coder")
    assert len(brief["guardrails"]) > 3
    assert brief["project"].startswith(f"project: {bag['worktree']}\n")
    assert "\nchecked by: python3 -m unittest" in brief["project"]
    assert brief["result_path"] == str(Path(bag["worktree"]) / ".hermes" / "outputs" / f"{bead}.result.json")
    kept = school.outputs_dir / bead
    assert sorted(path.name for path in kept.iterdir()) == [
        "brief.json",
        "output.json",
        "prompt.md",
        "stderr",
        "stdout",
    ]
    assert json.loads((kept / "output.json").read_text())["head_commit"] == bag["head_commit"]
    assert (
        json.loads((Path(bag["worktree"]) / ".hermes" / "outputs" / f"{bead}.json").read_text())["bead"]
        == bead
    )
    assert "Ä task" in (kept / "prompt.md").read_text()


ENVIRONMENT = """
import json, os, subprocess, sys
git = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True).stdout
print(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "tty": os.isatty(0), "stdin": sys.stdin.read(),
    "leader": os.getsid(0), "me": os.getpid(), "status": git}))
"""


def test_the_agent_sees_a_reduced_environment(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, script(ENVIRONMENT, env=["MY_KEY"], set_env={"MODE": "batch"}))
    extra = {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere", "MY_KEY": "k", "OTHER_KEY": "o"}
    bag = run(bead, school, **extra)
    seen = json.loads(bag["output"])
    env = seen["env"]
    assert [name for name in env if name.startswith("GIT_")] == ["GIT_TERMINAL_PROMPT"]
    assert (env["MY_KEY"], env["MODE"], env["GIT_TERMINAL_PROMPT"]) == ("k", "batch", "0")
    assert not {"OTHER_KEY", "HERMES_HOME", "BOOKBAG_DIR", "SCHOOL_LIFELINE_FD"} & set(env)
    assert env["SCHOOL_BEAD"] == bead
    assert Path(env["SCHOOL_BRIEF"]).is_file()
    assert env["TMPDIR"] == str(school.scratch_dir / bead)
    assert (
        env["PATH"].endswith(str(Path(sys.executable).parent))
        or str(Path(sys.executable).parent) in env["PATH"]
    )
    assert (seen["cwd"], seen["tty"], seen["stdin"], seen["status"]) == (bag["worktree"], False, "", "")
    assert seen["leader"] != os.getsid(0)
    assert not (school.scratch_dir / bead).exists()


def test_a_persona_of_the_users_is_said(repo: Path, school: Settings) -> None:
    path = school.hermes_home / "profiles" / "student-coder" / "SOUL.md"
    path.parent.mkdir(parents=True)
    path.write_text("Somebody else.")
    bag = run(new_bead(repo, demo("idler")), school)
    assert bag["persona"]["source"] == str(path)


# --- exit status and claims -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "status", "reason", "claim"),
    [
        (TOUCH + "raise SystemExit(1)", "run", "open", "", "done"),
        ("raise SystemExit(1)", "run", "failed", "exit", ""),
        (TOUCH + "raise SystemExit(1)", "command", "failed", "exit", ""),
        (TOUCH + claiming(status="done") + "raise SystemExit(3)", "command", "open", "", "done"),
        (claiming(status="no_change", summary="nothing to do"), "run", "open", "", "no_change"),
        (TOUCH + claiming(status="blocked", blockers=["no network"]), "run", "blocked", "agent", "blocked"),
        (TOUCH + claiming(status="failed", summary="gave up"), "command", "failed", "agent", "failed"),
        (TOUCH + claiming(status="failed", retry_at="2030-01-01T00:00:00Z"), "command", "failed", "quota", "failed"),
        (TOUCH + claiming(status="hooray"), "run", "open", "", "done"),
        (TOUCH + "import os; os.mkfifo(os.environ['SCHOOL_RESULT'])", "run", "open", "", "done"),
        (TOUCH + "import os; os.symlink('/etc/passwd', os.environ['SCHOOL_RESULT'])", "run", "open", "", "done"),
        (TOUCH + "import os; os.truncate(open(os.environ['SCHOOL_RESULT'], 'w').fileno(), 1 << 30)", "run", "open", "", "done"),
        (TOUCH + "import os; os.kill(os.getpid(), 9)", "run", "failed", "killed", ""),
        (TOUCH + "import os; os.kill(os.getpid(), 11)", "command", "failed", "killed", ""),
    ],
)  # fmt: skip
def test_how_it_ended_and_what_it_claims(
    code: str, kind: str, status: str, reason: str, claim: str, repo: Path, school: Settings
) -> None:
    bead = new_bead(repo, script(code, kind=kind))
    bag = run(bead, school, status=0 if status == "open" else 1)
    assert (bag["status"], bag["reason"], bag["claim"]) == (status, reason, claim)
    assert has_flag(bead) == (status == "open")
    assert (bag["files_changed"] == ["new.txt"]) == code.startswith(TOUCH)


def test_a_failure_says_where_the_work_is_and_how_to_get_it(repo: Path, school: Settings) -> None:
    bag = run(new_bead(repo, demo("dier"), task=GOOD), school, status=1)
    assert failed(bag, "killed")
    assert bag["output"] == "about to die\n"
    assert bag["ref"] in bag["summary"]
    command = bag["summary"].rpartition("brings it back: ")[2]
    git(repo, *shlex.split(command)[1:])
    assert "left - right" in git(repo, "cat-file", "blob", f"{bag['ref']}:calc/core.py")


def test_blockers_and_quota_are_kept(repo: Path, school: Settings) -> None:
    code = claiming(status="blocked", blockers=["no network"], retry_at="2030-01-01T00:00:00Z")
    bag = run(new_bead(repo, script(code)), school, status=1)
    assert (bag["reason"], bag["blockers"], bag["retry_at"]) == (
        "quota",
        ["no network"],
        "2030-01-01T00:00:00Z",
    )


def test_an_odd_result_file_is_noted(repo: Path, school: Settings) -> None:
    bag = run(new_bead(repo, script(TOUCH + claiming(status="hooray"))), school)
    assert "'hooray' means nothing" in bag["notes"][0]


def test_a_program_that_is_not_there(repo: Path, school: Settings) -> None:
    spec = AgentSpec(name="gone", kind="command", argv=["no-such-program-anywhere"])
    bag = run(new_bead(repo, spec), school, status=1)
    assert failed(bag, "not_installed")
    assert "no-such-program-anywhere" in bag["summary"]


@pytest.mark.parametrize(("code", "reason"), [(3, "exit"), (137, "killed"), (255, "exit")])
def test_an_exit_status_is_what_it_says(repo: Path, school: Settings, code: int, reason: str) -> None:
    bag = run(new_bead(repo, script(f"import sys; sys.exit({code})")), school, status=1)
    assert failed(bag, reason)


def test_a_chore_end_to_end(repo: Path, school: Settings) -> None:
    bag = run(new_bead(repo, registry.for_chore("unused-imports", ["calc/**"])), school)
    assert (bag["claim"], bag["files_changed"]) == ("done", ["calc/core.py"])
    assert bag["summary"].startswith("unused-imports: 1 of 2 files changed; unverified: ")
    bag = run(new_bead(repo, registry.for_chore("modern-syntax")), school)
    assert (bag["status"], bag["claim"], bag["files_changed"], bag["tree"]) == (
        "open",
        "no_change",
        [],
        git(repo, "rev-parse", "HEAD^{tree}"),
    )


# --- limits ---------------------------------------------------------------------------------------------------

HANG = "import time; time.sleep(600)\n"


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        (TOUCH + "print('busy', flush=True)\nwhile True: pass", {"command_timeout_s": 1.0, **QUICK}, "timeout"),
        (TOUCH + "print('Trust this folder?', flush=True)\n" + HANG, {**QUICK, "stall_timeout_s": 1.0}, "stalled"),
        ("import ctypes; ctypes.CDLL(None).pause()", {**QUICK, "startup_timeout_s": 1.0}, "startup"),
    ],
)  # fmt: skip
def test_limits_end_the_agent_and_keep_its_work(
    code: str, limits: dict[str, float], reason: str, repo: Path, school: Settings
) -> None:
    if reason == "startup":  # a program that does nothing at all, not even start an interpreter
        spec = AgentSpec(name="mute", kind="run", argv=["sleep", "600"], prompt="none")
    else:
        spec = script(code)
    bead = new_bead(repo, spec, limits=limits)
    bag = run(bead, school, status=1)
    assert failed(bag, reason), bag["summary"]
    assert processes.marked(bead) == {}
    if reason != "startup":
        assert content(bag, school, "new.txt") == "new"
    if reason == "stalled":
        assert "Trust this folder?" in bag["summary"]


def test_a_hanging_agent_that_ignores_requests_is_ended(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("hanger"), task=GOOD, limits={**QUICK, "agent_timeout_s": 1.0})
    bag = run(bead, school, status=1)
    assert failed(bag, "timeout")
    assert "left - right" in content(bag, school, "calc/core.py")


ORPHANS = """
import os, subprocess, sys, time
from pathlib import Path
loop = "import time, pathlib\\nfor n in range(6000):\\n    pathlib.Path(r'%s').write_text(str(n)); time.sleep(0.05)"
subprocess.Popen([sys.executable, "-c", loop % "plain.txt"])
subprocess.Popen([sys.executable, "-c", loop % "session.txt"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        subprocess.Popen([sys.executable, "-c", loop % "daemon.txt"], env={}, start_new_session=True)
    os._exit(0)
while not all(Path(n + ".txt").exists() for n in ("plain", "session", "daemon")):
    time.sleep(0.02)
print("done")
"""


def test_nothing_that_an_agent_started_outlives_it(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, script(ORPHANS))
    bag = run(bead, school)
    assert bag["files_changed"] == ["daemon.txt", "plain.txt", "session.txt"]
    tree = Path(bag["worktree"])
    assert processes.marked(bead) == {}
    for name in bag["files_changed"]:
        assert content(bag, school, name) == (tree / name).read_text()


# --- input and output -----------------------------------------------------------------------------------------


def test_a_prompt_of_300_kb_arrives_whole(repo: Path, school: Settings) -> None:
    task = "".join(f"line {number} ü\n" for number in range(25_000))
    code = "import sys; text = sys.stdin.read(); print(len(text.encode()), 'line 24999 ü' in text)"
    bag = run(new_bead(repo, script(code, kind="command", prompt="stdin"), task=task), school)
    size, whole = bag["output"].split()
    assert (int(size) > 300_000, whole) == (True, "True")


def test_a_prompt_that_nobody_reads(repo: Path, school: Settings) -> None:
    agent = script("print('no thanks')", kind="command", prompt="stdin")
    bag = run(new_bead(repo, agent, task="x" * 300_000), school)
    assert (bag["status"], bag["output"]) == ("open", "no thanks\n")


def test_a_prompt_in_a_file(repo: Path, school: Settings) -> None:
    code = "import sys; print(sys.argv[1:3], 'Do it.' in open(sys.argv[3]).read(), sys.stdin.read() == '')"
    argv = [sys.executable, "-c", code, "--model={model}", "{nothing}", "{prompt_file}"]
    bag = run(new_bead(repo, configured(argv=argv, prompt="file", model="m-1")), school)
    assert bag["output"] == "['--model=m-1', '{nothing}'] True True\n"
    assert bag["files_changed"] == []


def test_braces_of_a_plain_command_are_its_own(repo: Path, school: Settings) -> None:
    bag = run(new_bead(repo, registry.for_run(["echo", "{model}", "$HOME", "*"])), school)
    assert bag["output"] == "{model} $HOME *\n"


def test_output_that_is_no_text(repo: Path, school: Settings) -> None:
    code = "import os; os.write(1, b'a\\xff\\xfe\\x00' + '\\u00fc'.encode()[:1]); os.write(2, b'\\xed\\xa0\\x80 err')"
    bag = run(new_bead(repo, script(TOUCH + code)), school)
    assert bag["output"] == "a\\xff\\xfe\x00\\xc3\n--- stderr ---\n\\xed\\xa0\\x80 err"
    json.loads((school.bookbag_dir / f"{bag['bead']}.json").read_bytes().decode("utf-8"))


def test_a_flood_is_bounded_everywhere(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("flooder"), task=GOOD, limits={**QUICK, "output_bytes": 1_000_000})
    bag = run(bead, school, SCHOOL_FLOOD_BYTES=str(256 * 1024 * 1024))
    assert bag["status"] == "open"
    assert "left - right" in content(bag, school, "calc/core.py")
    assert bag["usage"]["output_bytes"] >= 256 * 1024 * 1024
    assert len(bag["output"].encode()) <= 64 * 1024
    assert bag["output"].endswith("applied 1 edits\n")
    assert (school.outputs_dir / bead / "stdout").stat().st_size <= 1_100_000
    assert (school.bookbag_dir / f"{bead}.json").stat().st_size < 100_000


# --- set-up ---------------------------------------------------------------------------------------------------


def test_set_up_runs_first_and_its_products_stay_out(repo: Path, school: Settings) -> None:
    (repo / ".env").write_text("SECRET=1\n")
    terms = {
        "setup": [
            ["python3", "-c", "open('built.pyc', 'w').write('x')"],
            ["mkdir", "-p", "venv/bin"],
            ["touch", "venv/a"],
        ],
        "copy_files": [".env", "absent.env"],
        "keep": ["venv"],
    }
    code = "import os; print(sorted(n for n in os.listdir('.') if n in ('.env', 'built.pyc', 'venv')))"
    bag = run(new_bead(repo, script(code), terms=terms), school)
    assert bag["output"] == "['.env', 'built.pyc', 'venv']\n"
    assert bag["files_changed"] == []
    assert bag["notes"] == [f"[setup] copy_files: there is no {repo / 'absent.env'}"]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"setup": [["python3", "-c", "print('no such wheel'); raise SystemExit(3)"]]}, "ended with exit status 3: no such wheel"),
        ({"setup": [["no-such-tool"]]}, "no-such-tool"),
        ({"setup": [["sleep", "60"]], "setup_timeout_s": 0.5}, "sleep 60"),
        ({"setup": [["touch", "left.txt"]]}, "changed files that git keeps: left.txt"),
        ({"setup": [["sh", "-c", "echo >> README.md"]], "keep": ["README.md"]}, "changed files that git tracks: README.md; let a last"),
        ({"copy_files": ["../outside"]}, "outside the repository"),
        ({"copy_files": ["README.md"]}, "git tracks README.md"),
    ],
)  # fmt: skip
def test_a_failing_set_up_blocks_the_task(
    terms: dict[str, Any], said: str, repo: Path, school: Settings
) -> None:
    bead = new_bead(repo, demo("good"), task=GOOD, terms=terms)
    bag = run(bead, school, status=1)
    assert (bag["status"], bag["reason"], bag["claim"]) == ("blocked", "setup", "")
    assert said in bag["summary"]
    assert said in bag["blockers"][0]
    assert not has_flag(bead)
    if "no such wheel" in said:
        assert bag["output"] == "no such wheel\n"


# --- a hostile or odd tree ------------------------------------------------------------------------------------


def test_a_repository_whose_hermes_folder_is_a_link(repo: Path, school: Settings, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repo / ".hermes").symlink_to(elsewhere)
    git(repo, "add", ".hermes")
    git(repo, "commit", "-q", "-m", "Link")
    bag = run(new_bead(repo, demo("good"), task=GOOD), school)
    assert (bag["status"], bag["claim"], bag["files_changed"]) == ("open", "done", ["calc/core.py"])
    assert list(elsewhere.iterdir()) == []


def test_an_agent_that_puts_a_link_in_our_way(repo: Path, school: Settings, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = f"import os, shutil; shutil.rmtree('.hermes'); os.symlink({str(elsewhere)!r}, '.hermes'); open('new.txt', 'w')"
    bag = run(new_bead(repo, script(code)), school)
    assert bag["status"] == "open"
    assert "new.txt" in bag["files_changed"]
    assert list(elsewhere.iterdir()) == []


def test_an_agent_that_removes_its_git_file(repo: Path, school: Settings) -> None:
    before = git(repo, "for-each-ref") + git(repo, "status", "--porcelain")
    bag = run(new_bead(repo, script(TOUCH + "import os; os.unlink('.git')")), school)
    assert (bag["status"], bag["files_changed"]) == ("open", ["new.txt"])
    assert git(repo, "for-each-ref") + git(repo, "status", "--porcelain") == before


def test_the_agents_own_commits_are_kept_and_named(repo: Path, school: Settings) -> None:
    code = TOUCH + (
        "import subprocess\nfor a in (['add', '-A'], ['commit', '-qm', 'mine'], ['rm', '-q', 'new.txt'], ['commit', '-qm', 'gone']):\n"
        "    subprocess.run(['git', *a], check=True)\nraise SystemExit(2)"
    )
    bag = run(new_bead(repo, script(code)), school, status=1)
    assert failed(bag, "exit")
    assert bag["files_changed"] == []
    assert bag["agent_ref"] in bag["summary"]
    assert git(leaves.clone_of(bag, school), "cat-file", "blob", f"{bag['agent_ref']}~1:new.txt") == "new"


# --- what cannot be run -----------------------------------------------------------------------------------------


def test_a_base_that_is_not_there_leaves_nothing(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("good"), base_commit="1" * 40)
    bag = run(bead, school, status=1)
    assert failed(bag, "machine")
    assert "1" * 40 in bag["summary"]
    assert list(school.worktrees_dir.glob("*/*")) == []
    assert workspace_of(bag, settings=school) is None


def test_no_such_bead_and_no_such_name(repo: Path, school: Settings) -> None:
    for bead, said in (("coder-x-00000000", "no bookbag"), ("../x", "x"), ("", "bead")):
        process = leaves.start(bead, school)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 2, err
        assert said in err
    assert not school.worktree_records_dir.exists()
    assert not school.processes_dir.exists()


def test_a_bead_that_is_handed_over_is_not_run_again(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("good"), task=GOOD)
    first = run(bead, school)
    process = leaves.start(bead, school)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2, err
    assert "stands at WRITTEN" in err
    assert bookbag.read_bookbag(bead) == first


def test_steps_before_boot_are_refused(repo: Path, school: Settings) -> None:
    leaf = StudentLeaf(new_bead(repo, demo("good")), settings=school)
    for step in (
        leaf.write_brief,
        leaf.run_task,
        leaf.write_output,
        leaf.signal_ready,
        leaf.wait_for_handoff,
        leaf.dispose,
    ):
        with pytest.raises(LeafNotBootedError):
            step()
    with pytest.raises(BookbagInvalidError):
        StudentLeaf("../x", settings=school)
    with pytest.raises(LeafError, match="no bookbag"):
        StudentLeaf("coder-x-00000000", settings=school).boot()


def test_the_steps_by_hand(repo: Path, school: Settings) -> None:
    bead = new_bead(repo, demo("good"))
    leaf = StudentLeaf(bead, settings=school)
    path = leaf.boot()
    assert leaf.boot() == path
    with pytest.raises(WorktreeError, match="no snapshot"):
        leaf.dispose()
    assert json.loads(leaf.write_brief(GOOD).read_text())["task"] == GOOD
    assert leaf.run_task()["status"] == "open"
    assert files.read_json(leaf.write_output({"seen": 1})) == {"seen": 1}
    leaf.signal_ready()
    assert has_flag(bead)
    assert leaf.wait_for_handoff(0.0) == ("", "")
    leaf.dispose()
    leaf.dispose()
    assert not Path(path).exists()
    assert SchoolClone.at(leaf.bag["repo_key"], settings=school).has(leaf.bag["head_commit"])


@pytest.mark.parametrize(
    ("instead", "status"),
    [("os.symlink(repo, tree)", "failed"), ("os.mkdir(tree)", "open"), ("pass", "failed")],
)
def test_an_agent_that_puts_something_else_in_the_place_of_its_tree(
    repo: Path, school: Settings, instead: str, status: str
) -> None:
    """Nothing of ours is written through it; an empty folder is a tree in which everything was removed."""
    before = sorted(str(path) for path in repo.rglob("*") if ".git/" not in str(path))
    code = f"import os, pathlib; repo, tree = {str(repo)!r}, os.getcwd()\n"
    code += f"pathlib.Path('work').write_text('x'); os.rename(tree, tree + '.moved'); {instead}"
    bead = new_bead(repo, script(code), terms={"sandbox": {"mode": "off"}})
    bag = run(bead, school, status=int(status == "failed"))
    assert (bag["status"], bag["confinement"]) == (status, 'none: [sandbox] mode is "off"')
    assert sorted(str(path) for path in repo.rglob("*") if ".git/" not in str(path)) == before
    tree = Path(bag["worktree"])
    assert not (tree.is_dir() and (tree / ".hermes").exists())
    assert (school.outputs_dir / bead / "outputs" / f"{bead}.json").is_file()
