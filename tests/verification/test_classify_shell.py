"""What is classified, held against real shells: generated commands around a check that fails, or passes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from school.verification import classify_command

SHELLS = [shell for shell in ("/bin/bash", "/bin/sh") if os.access(shell, os.X_OK)]
CANONICAL = ["pytest", "bash scripts/run_tests.sh"]
# What a command may find on PATH beside the check.
TOOLS = ("sh", "bash", "true", "false", "cat", "tee", "env", "timeout", "nice", "cp", "ln", "tail", "nohup")
EXAMPLES = int(os.environ.get("SHELL_EXAMPLES", "200"))

CHECKS = [
    "pytest",
    "pytest -q",
    "pytest -k x",
    "pytest tests/a.py",
    "py\\test",
    "'pytest'",
    '"pytest"',
    ".venv/bin/pytest",
    "bash scripts/run_tests.sh",
    "./scripts/run_tests.sh",
    "sh scripts/run_tests.sh",
]
BEFORE_IT = [
    *(
        "time ",
        "time -p ",
        "! ",
        "env A=1 ",
        "env -i ",
        "command ",
        "command -v ",
        "builtin ",
        "exec ",
        "eval ",
    ),
    *(
        "timeout 5 ",
        "timeout -k 1 5 ",
        "timeout --preserve-status 5 ",
        "timeout --help ",
        "nice -n 1 ",
        "nohup ",
    ),
    *(
        "FOO=1 ",
        "FOO=$HOME ",
        "PATH=/nowhere ",
        "PATH=$GOOD ",
        "env PATH=$GOOD ",
        "coproc ",
        "bash -c ",
        "A=( ",
        "- ",
    ),
]
OTHERS = [
    *(
        "true",
        "false",
        "echo hi",
        "echo $HOME",
        "echo 'a;b'",
        "echo a \\; b",
        ":",
        "pwd",
        "cd good",
        "cd nowhere",
        "cd",
    ),
    *(
        "exit 0",
        "exit",
        "'exit' 0",
        "e\\xit 0",
        "command exit 0",
        "time exit 0",
        "return 0",
        "exec true",
        "exec",
    ),
    *(
        "trap 'exit 0' EXIT",
        "trap 'exit 0' ERR",
        "trap 'exit 0' DEBUG",
        "X=exit",
        "$X 0",
        "$\\\nX 0",
        "{exit,0}",
    ),
    *(
        "set -e",
        "set +e",
        "set -n",
        "set -u",
        "set -euo pipefail",
        "set -x",
        "set -- exit",
        "echo $UNSET",
        "$1 0",
    ),
    *("shopt -s lastpipe", "shopt -s expand_aliases", "alias pytest=true", "hash -p $GOOD/pytest pytest"),
    *(
        "pytest() { true; }",
        "function pytest { :; }",
        "bash() { :; }",
        "source rc/functions",
        ". rc/functions",
        "unset PATH",
    ),
    *(
        "PATH=/nowhere",
        "PATH=$GOOD",
        "PATH+=:x",
        "export PATH=$GOOD:$PATH",
        "export PATH",
        "printf -v PATH $GOOD",
    ),
    *(
        "read PATH <<< $GOOD",
        "declare PATH=$GOOD",
        "typeset -x PATH=$GOOD",
        "readonly FOO=1",
        "FOO=2",
        "FOO=3 true",
    ),
    *(
        "cp good/pytest bin/pytest",
        "cp good/* bin",
        "ln -sf ../good/pytest bin/pytest",
        "cat good/pytest > bin/pytest",
    ),
    *(
        "cp good/pytest scripts/run_tests.sh",
        "echo exit 0 > scripts/run_tests.sh",
        "echo a | tee b",
        "let PATH=1",
    ),
    *(
        "if true; then",
        "if false; then",
        "else",
        "fi",
        "while false; do",
        "done",
        "case x in y)",
        "esac",
        "do",
        "then",
    ),
    *(
        "{",
        "}",
        "(",
        ")",
        "[[ 1 ]]",
        "[ 1 ]",
        "test 1",
        "wait",
        "break",
        "kill -9 $$",
        "EOF",
        "# comment",
        "$(true)",
    ),
    *(
        "enable -n exit",
        "bind",
        "ulimit -n 64",
        "umask 22",
        "UID=1",
        "IFS=x",
        "BASH_ENV=rc/functions",
        "ENV=rc/functions",
    ),
]
BETWEEN = [
    *(
        "; ",
        ";",
        " && ",
        "&&",
        " || ",
        " | ",
        " |& ",
        " & ",
        "\n",
        "\n\n",
        " ",
        " ;; ",
        " &&\n",
        " |\n",
        "\\\n",
        " # ",
    ),
    *(
        " > log ",
        " 2>&1 ",
        " 2> log; ",
        " &> log ",
        " &> log; ",
        " >& log ",
        " < /dev/null ",
        " <<EOF\n",
        " <<< a; ",
    ),
    *(" > log && ", "'", '"', " $(", "`", ") ", " } ", "; }; ", " {log}> log; ", " >| log\n", "\t", "\r\n"),
]

check = st.builds(str.__add__, st.sampled_from(["", "", "", *BEFORE_IT]), st.sampled_from(CHECKS))
piece = st.one_of(check, st.sampled_from(OTHERS), st.sampled_from(OTHERS))
composed = st.lists(st.tuples(piece, st.sampled_from(BETWEEN)), min_size=1, max_size=4).map(
    lambda parts: "".join(part for pair in parts for part in pair)
)
ending_in_the_check = st.builds(
    lambda before, it, after: before + it + after,
    composed,
    check,
    st.sampled_from(["", "", "", ";", "\n", *BETWEEN]),
)
scraps = st.text(alphabet=" \n\t;&|()<>{}$!#\\'\"`=*?[]~-:0", max_size=8)
noise = st.builds(lambda a, it, b: a + it + b, scraps, check, scraps)
commands = st.one_of(ending_in_the_check, ending_in_the_check, composed, noise)


# A redirection that cannot be made is a failure that cannot be told from the check's own.
TO_NOWHERE = re.compile(r">[ \t]*\S*nowhere")


class Place:
    """A folder with a check that ends with *code* and leaves a mark when it runs."""

    def __init__(self, root: Path, code: int) -> None:
        self.root = root
        self.mark = root.parent / f"{root.name}-ran"
        self.check = f'#!/bin/sh\n: > "{self.mark}"\nexit {code}\n'
        for tool in TOOLS:
            found = shutil.which(tool)
            if found:  # Copied, not linked: what is generated may write to what it finds on its PATH.
                (root / "bin").mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(found).resolve(), root / "bin" / tool)
        (root / "rc").mkdir()
        (root / "rc" / "functions").write_text("pytest() { true; }\nbash() { true; }\n")
        self.script(root / "good" / "pytest", "#!/bin/sh\nexit 0\n")

    @staticmethod
    def script(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, shell: str, command: str) -> int:
        self.mark.unlink(missing_ok=True)
        for name in ("bin/pytest", ".venv/bin/pytest", "scripts/run_tests.sh"):
            self.script(self.root / name, self.check)
        # A shell that reads from its own output, or waits for itself, is ended: no status 0.
        done = subprocess.run(
            ["timeout", "-s", "KILL", "10", shell, "-c", command],
            cwd=self.root,
            env={
                "PATH": str(self.root / "bin"),
                "HOME": str(self.root),
                "GOOD": str(self.root / "good"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("failing") / "place", 1)


@pytest.fixture(scope="module")
def passing(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("passing") / "place", 0)


generated = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shell", SHELLS)
@generated
@given(command=commands)
@example(command="X=exit; $\\\nX; pytest")
@example(command="pytest &> log")
@example(command="exit 0; pytest")
@example(command="cp good/* bin; pytest")
def test_no_failing_check_is_ever_passed(failing: Place, shell: str, command: str) -> None:
    if "\0" in command:
        return
    code = failing.run(shell, command)
    found = classify_command(command, exit_code=code, canonical=CANONICAL)
    if code == 0:
        assert found is None, f"{command!r} ended with 0 while its check failed"
    elif found and not TO_NOWHERE.search(command):
        assert found.status == "failed"
        assert failing.mark.exists(), f"{command!r} is blamed for a check that never ran"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shell", SHELLS)
@generated
@given(command=commands)
@example(command="true >& log; pytest")
@example(command="true |& tee log; pytest")
def test_what_passed_really_ran(passing: Place, shell: str, command: str) -> None:
    code = passing.run(shell, command)
    found = classify_command(command, exit_code=code, canonical=CANONICAL)
    if found and found.status == "passed":
        assert passing.mark.exists(), f"{command!r} is passed, and the check never ran"
    elif found and not TO_NOWHERE.search(command):
        pytest.fail(f"{command!r} is blamed, and its check passes")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "command", ["pytest", "FOO=1 pytest -q", "echo a; pytest", "set -e\npytest > log 2>&1"]
)
def test_the_plain_ones_are_evidence_in_a_real_shell(
    failing: Place, passing: Place, shell: str, command: str
) -> None:
    for place, status in ((failing, "failed"), (passing, "passed")):
        code = place.run(shell, command)
        found = classify_command(command, exit_code=code, canonical=CANONICAL)
        assert found is not None
        assert found.status == status
