from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from school.contracts import Terms
from school.errors import TeacherError
from school.settings import Settings
from school.verification import survey
from school.verification.environment import Prepared, SetupFailedError, kept_names, prepare
from tests.support import write_tree
from tests.verification.support import Case, classes, unit

# A set-up that is quick, and whose product is a real interpreter with its own site-packages.
VENV = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", ".venv"]
_MAKE = """
import pathlib
made = pathlib.Path("made")
made.mkdir(exist_ok=True)
(made / "count").open("a").write("x")
(made / "from").write_text(open("calc/core.py").read())
"""
MARK = [sys.executable, "-c", _MAKE]


class Teacher:
    """A case with set-up commands; ``prepare(files)`` is what a teacher does before its checks."""

    def __init__(self, case: Case, settings: Settings, **terms: Any) -> None:
        self.case = case
        self.settings = settings
        self.terms = Terms(**terms)
        self.count = 0

    @property
    def tree(self) -> Path:
        return self.case.worktree

    def prepare(self, files: dict[str, str | None]) -> Prepared:
        head = self.case.head(files)
        self.case.stand(head)
        self.count += 1
        bag = {
            "bead": f"coder-python-coding-{self.count:08d}",
            "repo": str(self.case.repo),
            "base_commit": self.case.base,
            "head_commit": head,
        }
        return prepare(
            self.tree, self.terms, role="cto", settings=self.settings, progress=lambda _: None, bag=bag
        )


HARMLESS: dict[str, str | None] = {"calc/core.py": "def add(a, b):\n    return b + a\n"}


@pytest.fixture
def teacher(case: Case, school: Settings) -> Teacher:
    return Teacher(case, school, setup=[MARK], keep=["made"])


def made(teacher: Teacher) -> str:
    return (teacher.tree / "made/count").read_text()


def test_it_is_built_once_at_base_and_serves_the_next_bead(teacher: Teacher) -> None:
    first = teacher.prepare(HARMLESS)
    assert not first.throwaway
    assert not first.failed
    assert "return a + b" in (teacher.tree / "made/from").read_text()
    assert "return b + a" in (teacher.tree / "calc/core.py").read_text()
    second = teacher.prepare({"calc/core.py": "def add(a, b):\n    return sum((a, b))\n"})
    assert second.fingerprint == first.fingerprint
    assert made(teacher) == "x"


def change_content(tree: Path) -> None:
    (tree / "made/from").write_text("changed")


def add_file(tree: Path) -> None:
    (tree / "made/sitecustomize.py").write_text("raise SystemExit(0)")


def change_mode(tree: Path) -> None:
    (tree / "made/from").chmod(0o755)


def swap_for_link(tree: Path) -> None:
    (tree / "made").rename(tree / "elsewhere")
    (tree / "made").symlink_to(tree / "elsewhere")


def same_size_same_time(tree: Path) -> None:
    import os

    path = tree / "made/from"
    status = path.stat()
    path.write_bytes(b"#" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("harm", [change_content, add_file, change_mode, swap_for_link, same_size_same_time])
def test_what_a_bead_does_to_it_never_meets_the_next(teacher: Teacher, harm: Any) -> None:
    teacher.prepare(HARMLESS)
    before = survey.take(teacher.tree, ["made"])
    harm(teacher.tree)
    teacher.prepare({"calc/core.py": "def add(a, b):\n    return sum((a, b))\n"})
    assert survey.same(survey.take(teacher.tree, ["made"]), before)
    assert made(teacher) == "x"
    assert not (teacher.tree / "made").is_symlink()


def test_a_file_that_was_only_touched_is_no_reason_to_build(teacher: Teacher) -> None:
    teacher.prepare(HARMLESS)
    inode = (teacher.tree / "made/from").stat().st_ino
    (teacher.tree / "made/from").touch()
    teacher.prepare(HARMLESS)
    assert (teacher.tree / "made/from").stat().st_ino == inode


def test_without_set_up_nothing_is_kept(case: Case, school: Settings) -> None:
    teacher = Teacher(case, school, keep=[".venv"])
    teacher.prepare(HARMLESS)
    write_tree(teacher.tree, {".venv/bin/python": "#!/bin/sh\nexit 0\n"})
    done = teacher.prepare(HARMLESS)
    assert not (teacher.tree / ".venv").exists()
    assert str(teacher.tree) not in done.env["PATH"]


def test_a_real_venv_that_a_bead_poisoned_is_built_anew(case: Case, school: Settings) -> None:
    teacher = Teacher(case, school, setup=[VENV], keep=[".venv"])
    done = teacher.prepare(HARMLESS)
    assert done.env["PATH"].startswith(f"{teacher.tree}/.venv/bin:")
    assert done.env["VIRTUAL_ENV"] == f"{teacher.tree}/.venv"
    packages = next((teacher.tree / ".venv/lib").glob("python*")) / "site-packages"
    (packages / "evil.pth").write_text("import sys; sys.exit(0)\n")
    done = teacher.prepare(HARMLESS)
    ran = subprocess.run(
        ["python", "-c", "print('alive')"], env=done.env, capture_output=True, text=True, check=False
    )
    assert ran.stdout == "alive\n"
    assert not (packages / "evil.pth").exists()


def test_a_change_of_a_manifest_gets_an_environment_of_its_own_once(teacher: Teacher) -> None:
    plain = teacher.prepare(HARMLESS)
    changed: dict[str, str | None] = {"requirements.txt": "x\n", "calc/core.py": "HEAD = 1\n"}
    own = teacher.prepare(changed)
    assert own.throwaway
    assert own.fingerprint != plain.fingerprint
    assert (teacher.tree / "made/from").read_text() == "HEAD = 1\n"
    # The very same change in another bead does not get this one's environment.
    again = teacher.prepare(changed)
    assert again.fingerprint != own.fingerprint
    back = teacher.prepare(HARMLESS)
    assert back.fingerprint == plain.fingerprint
    assert "return a + b" in (teacher.tree / "made/from").read_text()


def test_a_change_that_breaks_the_set_up_is_told_from_a_set_up_that_is_broken(
    case: Case, school: Settings
) -> None:
    line = "import sys; print('needs x'); sys.exit('x' not in open('requirements.txt').read())"
    setup = [[sys.executable, "-c", line]]
    case.base = case.commit({"requirements.txt": "x\n"}, "with requirements")
    teacher = Teacher(case, school, setup=setup, keep=["made"])
    done = teacher.prepare({"requirements.txt": "y\n"})
    assert "needs x" in done.failed
    assert done.throwaway
    case.base = case.commit({"requirements.txt": "z\n"}, "broken at base")
    with pytest.raises(SetupFailedError, match="at base") as failure:
        teacher.prepare({"requirements.txt": "y\n"})
    assert failure.value.side == "base"
    assert isinstance(failure.value, TeacherError)
    with pytest.raises(SetupFailedError, match="needs x"):
        teacher.prepare(HARMLESS)


def test_what_set_up_makes_beside_the_kept_folders_is_made_at_every_move(
    case: Case, school: Settings
) -> None:
    line = "import pathlib; pathlib.Path('generated.py').write_text('X = 1')"
    teacher = Teacher(case, school, setup=[MARK, [sys.executable, "-c", line]], keep=["made"])
    teacher.prepare(HARMLESS)
    teacher.prepare(HARMLESS)
    assert made(teacher) == "xx"


def test_a_set_up_program_that_is_missing_is_said(case: Case, school: Settings) -> None:
    teacher = Teacher(case, school, setup=[["no-such-program"]])
    with pytest.raises(SetupFailedError, match="no-such-program"):
        teacher.prepare(HARMLESS)


def test_an_unreadable_record_is_no_fact(teacher: Teacher) -> None:
    teacher.prepare(HARMLESS)
    for path in (teacher.settings.baselines_dir / "cto").glob("environment-*.json"):
        path.write_text('{"fingerprint": ')
    teacher.prepare(HARMLESS)
    assert made(teacher) == "x"


def test_which_folders_may_be_kept() -> None:
    names = [".venv", "a/b/", "../x", "/abs", ".", ".git", "a/../../b", "tracked", "docs"]
    terms = Terms(setup=[["true"]], keep=names)
    assert kept_names(terms, frozenset({"tracked", "docs/index.md"})) == [".venv", "a/b"]
    assert kept_names(Terms(keep=[".venv"]), frozenset()) == []


def test_the_environment_is_reduced(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TRACE2_PARENT_NAME", "x")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    done = teacher.prepare(HARMLESS)
    assert not {"GIT_TRACE2_PARENT_NAME", "PYTHONPATH", "SECRET_TOKEN", "VIRTUAL_ENV"} & set(done.env)
    assert done.env["PYTHONDONTWRITEBYTECODE"] == "1"
    assert done.env["PATH"].endswith(str(Path(sys.executable).parent))
    assert list(Path(done.env["TMPDIR"]).iterdir()) == []


# What a bead's own test leaves behind: every test of a later run would pass.
EVIL = """
import unittest
unittest.TestCase.run = lambda self, result=None: (result.startTest(self), result.addSuccess(self), result.stopTest(self))
"""
LEAVES_IT = f"""
import pathlib, sysconfig, unittest

class T(unittest.TestCase):
    def test_leaves(self):
        site = pathlib.Path(sysconfig.get_path("purelib"))
        assert ".venv" in str(site)
        (site / "sitecustomize.py").write_text({EVIL!r})
"""
BAD: dict[str, str | None] = {"calc/core.py": "def add(a, b):\n    return a - b\n"}
RUN = ["python", "-m", "unittest", "discover"]


def test_a_sitecustomize_left_by_one_bead_helps_neither_it_nor_the_next(case: Case) -> None:
    # Confined it could not even be written; here it is told by the fingerprint.
    terms = {"setup": [VENV], "keep": [".venv"], "sandbox": {"mode": "off"}}
    assert classes(case.verification(HARMLESS, [RUN], **terms)) == {}
    first = case.verification({**BAD, "tests/test_leaves.py": LEAVES_IT}, [RUN], **terms)
    assert classes(first) == {"tests_broken": "HIGH"}
    left = list((case.worktree / ".venv/lib").glob("python*/site-packages/sitecustomize.py"))
    second = case.verification(BAD, [RUN], **terms)
    assert classes(second) == {"tests_broken": "HIGH"}
    assert second.receipts[-1].tests["passed"] == 1
    assert not any(path.exists() for path in left)


def test_a_change_that_breaks_its_own_set_up_is_a_finding(case: Case) -> None:
    line = "import sys; print('needs x'); sys.exit('x' not in open('requirements.txt').read())"
    case.base = case.commit({"requirements.txt": "x\n"}, "with requirements")
    terms = {"setup": [[sys.executable, "-c", line]], "keep": ["made"]}
    broken = case.verification({"requirements.txt": "y\n"}, **terms)
    assert classes(broken) == {"setup_failed": "HIGH"}
    assert "needs x" in broken.findings[0].citation
    case.base = case.commit({"requirements.txt": "z\n"}, "broken at base")
    neither = case.verification({"requirements.txt": "y\n"}, **terms)
    assert neither.findings == []
    assert "set-up failed at base" in neither.no_verdict


def test_a_change_of_manifests_is_judged_in_its_own_environment(case: Case) -> None:
    """The dependency that head declares is there at head, and only there."""
    install = "import pathlib; n = open('requirements.txt').read().strip(); d = pathlib.Path('made'); d.mkdir(); (d / f'{n}.py').touch()"
    case.base = case.commit({"requirements.txt": "old\n"}, "with requirements")
    terms = {"setup": [[sys.executable, "-c", install]], "keep": ["made"]}
    new = {
        "requirements.txt": "new\n",
        "tests/test_new.py": unit("test_new", "import new", "import sys; sys.path.insert(0, 'made')"),
    }
    assert classes(case.verification(new, **terms)) == {}
    stale: dict[str, str | None] = {"tests/test_new.py": new["tests/test_new.py"]}
    assert classes(case.verification(stale, **terms)) == {"new_tests_fail": "HIGH"}
