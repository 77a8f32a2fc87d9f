"""The task file: each mistake with its file, line and key; ids; ``--task``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from school.errors import ConfigError, TaskFileError
from school.tasks import TaskFile, load_tasks, refuse_unjudgeable, single_task, slug
from school.wording import branch_problem
from tests.support import git

EXAMPLE = """version: 1
defaults: {domain: python-coding, difficulty: easy, max_attempts: 3}
tasks:
  - id: unused-imports
    role: executor
    task: Remove unused imports and sort the rest.
    chore: unused-imports                 # or  run: [ruff, check, --fix, --select, "F401,I001", .]
    allow: ["src/**"]                     # the paths it may change
    preserve: [api]
    accept:
      - text: no unused or unsorted import is left
        check: [ruff, check, --select, "F401,I001", src]
  - id: fix-parse
    role: coder
    agent: codex
    task: parse("") must raise ValueError.
    needs: [unused-imports]
    accept:
      - text: parse("") raises ValueError
        check: [python, -m, pytest, -q, tests/test_parse.py]
"""


@pytest.fixture
def load(tmp_path: Path):
    def load_text(text: str | bytes, **known) -> TaskFile:
        path = tmp_path / "tasks.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_tasks(path, **known)

    return load_text


def tasks(*items: str) -> str:
    """A task file with one flow mapping a line; the first task stands on line 2."""
    return "tasks:\n" + "".join(f"  - {{{item}}}\n" for item in items)


def test_the_example_of_the_contract(load):
    first, second = load(EXAMPLE, agents={"codex"}, chores={"unused-imports"})
    assert (first.id, first.student_role, first.domain, first.max_attempts) == (
        "unused-imports",
        "executor",
        "python-coding",
        3,
    )
    assert (first.chore, first.allow, first.preserve) == ("unused-imports", ["src/**"], ["api"])
    assert second.needs == ["unused-imports"]
    assert [(item.id, item.check) for item in second.criteria] == [
        ("ac-1", ["python", "-m", "pytest", "-q", "tests/test_parse.py"])
    ]


def test_what_a_task_says_wins_over_the_defaults(load):
    text = "defaults: {agent: codex, difficulty: hard, allow: [a]}\n" + tasks(
        "id: a, task: x", "id: b, task: x, difficulty: easy, allow: [b], run: [make]"
    )
    one, two = load(text, agents={"codex"})
    assert (one.agent, one.difficulty, one.allow, one.student_role) == ("codex", "hard", ["a"], "coder")
    # A command needs no agent, so a default one is not a contradiction.
    assert (two.agent, two.difficulty, two.allow, two.student_role) == ("", "easy", ["b"], "executor")


MISTAKES = [
    # text, line, key, what
    ("", 1, "", "the file is empty"),
    ("# nothing\n", 1, "", "the file is empty"),
    ("[]", 1, "", "expected a mapping"),
    ("tasks: []", 1, "tasks", "the list is empty"),
    ("version: 1\n", 1, "tasks", "is required"),
    ("tasks: {a: 1}", 1, "tasks", "expected a list of tasks"),
    ("version: 2\n" + tasks("id: a, task: x"), 1, "version", "this is version 1"),
    ("version: true\n" + tasks("id: a, task: x"), 1, "version", "this is version 1"),
    (tasks("id: a, task: x") + "extra: 1\n", 3, "extra", "unknown key"),
    ("defaults: {dificulty: easy}\n" + tasks("id: a, task: x"), 1, "defaults.dificulty", "unknown key"),
    ("defaults: {domain: X}\n" + tasks("id: a, task: x"), 3, "tasks[0].domain", "lower-case letters"),
    ("tasks:\n  - 17\n", 2, "tasks[0]", "expected a mapping with at least `id` and `task`"),
    (tasks("id: a, task: x", "task: x"), 3, "tasks[1].id", "is required"),
    (tasks("id: a"), 2, "tasks[0].task", "is required"),
    (tasks("id: a, task: ''"), 2, "tasks[0].task", "is empty"),
    (tasks("id: a, task: '  '"), 2, "tasks[0].task", "is empty"),
    (tasks("id: 12, task: x"), 2, "tasks[0].id", "expected a string, found a number (12); quote it"),
    (tasks("id: yes, task: x"), 2, "tasks[0].id", "found a boolean (true); quote it"),
    (tasks("id: a, task: x, colour: red"), 2, "tasks[0].colour", "unknown key"),
    (tasks("id: a, task: x, role: cook"), 2, "tasks[0].role", "'cook' is none of 'searcher'"),
    (tasks("id: a, task: x, difficulty: huge"), 2, "tasks[0].difficulty", "'huge' is none of 'easy'"),
    (tasks("id: a, task: x, preserve: [abi]"), 2, "tasks[0].preserve[0]", "'abi' is none of"),
    (tasks("id: a, task: x, max_attempts: 0"), 2, "tasks[0].max_attempts", "at least 1"),
    (tasks("id: a, task: x, max_attempts: -1"), 2, "tasks[0].max_attempts", "at least 1"),
    (tasks("id: a, task: x, max_attempts: abc"), 2, "tasks[0].max_attempts", "expected a whole number"),
    (tasks("id: a, task: x, max_attempts: 1.5"), 2, "tasks[0].max_attempts", "expected a whole number"),
    (tasks("id: a, task: x, domain: Python Coding"), 2, "tasks[0].domain", "lower-case letters"),
    (tasks("id: a, task: x, run: pytest -q"), 2, "tasks[0].run", "write ['pytest', '-q']"),
    (tasks("id: a, task: x, run: []"), 2, "tasks[0].run", "is empty"),
    (tasks("id: a, task: x, run: ['', b]"), 2, "tasks[0].run[0]", "the program's name is empty"),
    (tasks("id: a, task: x, run: [sleep, 3]"), 2, "tasks[0].run[1]", "quote it"),
    (tasks('id: a, task: x, run: [a, "b\\0"]'), 2, "tasks[0].run[1]", "no argument can have"),
    (tasks("id: a, task: x, run: [a], chore: format"), 2, "tasks[0].chore", "not both"),
    (tasks("id: a, task: x, run: [a], agent: codex"), 2, "tasks[0].agent", "not both"),
    (tasks("id: a, task: x, chore: ''"), 2, "tasks[0].chore", "is empty"),
    (tasks("id: a, task: x, chore: sweep"), 2, "tasks[0].chore", "no known chore (format)"),
    (tasks("id: a, task: x, agent: bond"), 2, "tasks[0].agent", "no known agent (codex)"),
    (tasks("id: a, task: x, allow: src"), 2, "tasks[0].allow", "expected a list"),
    (tasks("id: a, task: x, allow: ['../b']"), 2, "tasks[0].allow[0]", "no pattern of paths"),
    (tasks("id: a, task: x, needs: [a]"), 2, "tasks[0].needs", "circle: a → a"),
    (tasks("id: a, task: x, needs: [zz]"), 2, "tasks[0].needs[0]", "no task of this file"),
    (tasks("id: a, task: x", "id: a, task: y"), 3, "tasks[1].id", "is the id of the task at line 2"),
    (tasks("id: ab, task: x", "id: aB, task: y"), 3, "tasks[1].id", "differs only by case"),
    (tasks("id: a, task: x, accept: [foo]"), 2, "tasks[0].accept[0]", "expected a mapping"),
    (tasks("id: a, task: x, accept: [{text: t, check: ls}]"), 2, "tasks[0].accept[0].check", "argv"),
    (tasks("id: a, task: x, accept: [{text: t, check: []}]"), 2, "tasks[0].accept[0].check", "is empty"),
    (tasks("id: a, task: x, accept: [{check: [ls]}]"), 2, "tasks[0].accept[0].text", "is required"),
    (tasks("id: a, id: b, task: x"), 2, "tasks[0].id", "given twice"),
    (tasks('id: a, task: "\\ud800"'), 2, "tasks[0].task", "no text"),
    (tasks("id: a, task: !!python/name:os.system x"), 2, "tasks[0].task", "has no meaning here"),
    (tasks("id: a, task: !x y"), 2, "tasks[0].task", "has no meaning here"),
    (tasks("id: a, task: " + "9" * 5000), 2, "tasks[0].task", "quote it"),
    ("tasks:\n  - {id: a\n    task: x}\n", 3, "", "not YAML"),
    ("tasks:\n\t- a\n", 2, "", "not YAML"),
    ("a: 1\n---\nb: 2\n", 2, "", "not YAML"),
    ("tasks: *nowhere\n", 1, "", "not YAML"),
    ("tasks:\n  - \x01\n", 2, "", "a character that YAML does not allow"),
    (b"tasks:\n  - \xff\n", 2, "", "not UTF-8"),
    ("tasks: &a [*a]\n", 1, "tasks[0]", "an alias cannot stand for what encloses it"),
    ("x: &x {id: a}\ntasks:\n  - <<: *x\n    task: x\n", 3, "", "merge keys"),
    (tasks("[a, b]: x"), 2, "", "a key must be a plain word"),
]


@pytest.mark.parametrize(("text", "line", "key", "what"), MISTAKES)
def test_a_mistake_names_file_line_and_key(load, tmp_path, text, line, key, what):
    with pytest.raises(TaskFileError) as error:
        load(text, agents={"codex"}, chores={"format"})
    place = f"{tmp_path}/tasks.yaml:{line}: {key}"
    assert any(said.startswith(place) and what in said for said in str(error.value).splitlines())
    assert error.value.exit_code == 2


def test_ids_that_can_be_no_branch(load):
    bad = [
        "a/b",
        "..",
        "-rf",
        ".a",
        "a..b",
        "a.lock",
        "a.",
        "a b",
        "a~1",
        "a:b",
        "a\\b",
        "a@{b",
        "HEAD^",
        "é\u202e",
    ]
    for name in [*bad, "x" * 121, "é" * 61, ""]:
        with pytest.raises(TaskFileError, match=r"tasks.yaml:2: tasks\[0\].id: "):
            load(tasks(f"id: '{name}', task: x"))
    for name in ["a", "A.b_c-1", "修复", "v1.2", "x" * 120]:
        assert load(tasks(f"id: '{name}', task: x")).tasks[0].id == name
    with pytest.raises(TaskFileError, match="no branch of that name"):
        load(tasks("id: HEAD, task: x"), prefix="")


def test_ids_that_differ_only_by_unicode_form_are_two_names_for_one_file(load):
    with pytest.raises(TaskFileError, match="differs only by case or form"):
        load(tasks("id: 'caf\u00e9', task: x", "id: 'cafe\u0301', task: x"))


def test_a_circle_is_named(load):
    with pytest.raises(TaskFileError, match="circle: ") as error:
        load(tasks("id: a, task: x, needs: [b]", "id: b, task: x, needs: [c]", "id: c, task: x, needs: [a]"))
    assert set(str(error.value).split("circle: ")[1].split(" → ")) == {"a", "b", "c"}


def test_every_mistake_is_listed_in_the_order_of_the_file(load):
    with pytest.raises(TaskFileError) as error:
        load(tasks("id: a, task: x, role: cook", "id: b, task: 1", "task: x, max_attempts: 0"))
    lines = [int(said.split(":")[1]) for said in str(error.value).splitlines()]
    assert lines == [2, 3, 4, 4]


def test_a_flood_of_mistakes_is_cut_with_their_number(load):
    with pytest.raises(TaskFileError, match="… and 80 more"):
        load(tasks(*["id: a, task: 1"] * 100))


def test_a_small_file_cannot_become_a_large_one(load):
    layers = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    layers += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    with pytest.raises(TaskFileError, match="more than 200000 values"):
        load(layers)
    with pytest.raises(TaskFileError, match="nested too deeply"):
        load("[" * 5000)
    with pytest.raises(TaskFileError, match="larger than"):
        load("#" * (4 * 1024 * 1024 + 1))


def test_a_file_that_is_absent_or_no_file(tmp_path: Path):
    with pytest.raises(TaskFileError, match="there is no such task file"):
        load_tasks(tmp_path / "none.yaml")
    with pytest.raises(TaskFileError, match="cannot be read"):
        load_tasks(tmp_path)


def test_the_digest_is_of_the_definition_alone(load):
    one = load("# c\n" + tasks("id: a, task: x", "id: b, task: x")).get("a")
    moved = load(tasks("id: b, task: x", "task: x, difficulty: easy, id: a")).get("a")
    edited = load(tasks("id: a, task: x.")).get("a")
    assert one.digest == moved.digest != edited.digest
    assert re.fullmatch(r"[0-9a-f]{12}", one.digest)


def test_what_nobody_could_judge_is_refused_with_the_ways_out(load):
    file = load(tasks("id: a, task: x, accept: [{text: t, check: [ls]}, {text: pretty}]", "id: b, task: y"))
    with pytest.raises(TaskFileError) as error:
        refuse_unjudgeable(file, verifies=False, model_reviews=False)
    first, second = str(error.value).splitlines()
    assert "tasks.yaml:2: tasks[0].accept[1]: nobody can judge 'pretty'" in first
    assert "tasks.yaml:3: tasks[1]: nothing could judge this task" in second
    assert "--check" in second
    assert "[verify]" in second
    refuse_unjudgeable(file, verifies=False, model_reviews=True)
    refuse_unjudgeable(load(tasks("id: b, task: y")), verifies=True, model_reviews=False)
    with pytest.raises(TaskFileError, match="nothing could judge"):
        refuse_unjudgeable(load(tasks("id: b, task: y, verify: false")), verifies=True, model_reviews=False)


# --- --task -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add user auth", r"add-user-auth"),
        ("  Fix\n the   parser ", r"fix-the-parser"),
        ("snake_case name", r"snake-case-name"),
        ("a/b", r"a-b-\d{6}"),
        ("..", r"task-\d{6}"),
        ("-rf", r"rf"),
        ("团队 AI", r"ai-\d{6}"),
        ("🎉", r"task-\d{6}"),
        ("!?.,;", r"task-\d{6}"),
        ("Überprüfe", r"uberprufe-\d{6}"),
        ("x" * 300, r"x{33}-\d{6}"),
        ("word " * 60, r"[a-z-]{1,33}-\d{6}"),
        ("x" * 40, r"x{40}"),
        ('parse("") must raise ValueError.', r"parse-must-raise-valueerror-\d{6}"),
    ],
)
def test_slug(text, expected):
    assert re.fullmatch(expected, slug(text)), slug(text)


@given(st.text())
def test_a_slug_is_always_an_id(text):
    made = slug(text)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", made)
    assert branch_problem(f"school/{made}") == ""
    assert slug(text) == made


def test_texts_that_share_their_first_words_do_not_share_an_id():
    head = "the very same first fifty characters of a long title "
    assert slug(head + "one") != slug(head + "two")


def test_single_task_takes_its_flags():
    file = single_task(
        "Do it",
        role="coder",
        domain="docs",
        difficulty="hard",
        run="ruff check --select 'F401,I001' .",
        accept=["clean", "pretty"],
        check=["ruff check src"],
        chores=set(),
    )
    task = file.tasks[0]
    assert (task.id, task.student_role, task.domain, task.difficulty) == ("do-it", "coder", "docs", "hard")
    assert task.run == ["ruff", "check", "--select", "F401,I001", "."]
    assert [(item.text, item.check) for item in task.accept] == [
        ("clean", ["ruff", "check", "src"]),
        ("pretty", []),
    ]
    assert single_task("x", check=["ls -l"]).tasks[0].accept[0].text == "ls -l succeeds"
    assert file.where("do-it", "accept", 1) == "--task"


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ({"text": "  "}, "--task: the text is empty"),
        ({"run": "a 'b"}, '--run "a \'b": No closing quotation'),
        ({"run": ""}, "--run '': an empty command"),
        ({"check": ["  "]}, "--check '  ': an empty command"),
        ({"accept": [" "]}, "--accept: the text is empty"),
        ({"run": "a", "chore": "format"}, "--chore: a task has `run` or `chore`"),
        ({"run": "a", "agent": "codex"}, "--agent: a task has `agent` or `run`"),
        ({"chore": "sweep"}, "--chore: 'sweep' is no known chore (format)"),
        ({"agent": "bond"}, "--agent: 'bond' is no known agent (codex)"),
        ({"role": "cook"}, "--role: 'cook' is none of"),
        ({"difficulty": "huge"}, "--difficulty: 'huge' is none of"),
        ({"domain": "A b"}, "--domain: 'A b'"),
        ({"max_attempts": 0}, "--max-attempts: 0 is out of range"),
    ],
)
def test_a_wrong_flag_is_named(flags, what):
    text = flags.pop("text", "x")
    with pytest.raises(ConfigError) as error:
        single_task(text, agents={"codex"}, chores={"format"}, **flags)
    assert what in str(error.value)


def test_bytes_that_are_no_text_are_escaped_not_refused():
    task = single_task("caf\udce9").tasks[0]
    assert task.task == "caf\\udce9"


# --- branch names, against git itself ------------------------------------------------------------------------


@given(st.text(alphabet=st.sampled_from(list("aB-./@{}~^:?*[\\ \t\x7flockHEAD~é")), max_size=12))
def test_branch_problem_agrees_with_git(name):
    # ``@`` is short for HEAD wherever a branch is looked up, so it is refused though git would make it.
    assume(name != "@")
    done = subprocess.run(
        ["git", "check-ref-format", "--branch", name], capture_output=True, check=False, cwd="/"
    )
    assert bool(branch_problem(name)) == (done.returncode != 0), name


def test_a_name_as_long_as_git_can_have(repo: Path):
    longest = "school/" + "x" * 250
    assert branch_problem(longest) == ""
    git(repo, "branch", longest)
    assert "longer" in branch_problem(longest + "x")
