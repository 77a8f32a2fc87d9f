"""What a run sweeps before it begins."""

from __future__ import annotations

import subprocess
import sys

from school.settings import Settings
from school.supervisor.opening import sweep
from school.system import files
from tests.support import ROOT


def test_half_written_indexes_of_killed_teachers_go_and_those_of_the_living_stay(school: Settings) -> None:
    admin = school.clones_dir / "calc-00000000.git" / "worktrees" / "teacher-coo"
    admin.mkdir(parents=True)
    code = (
        "import sys; from school.system import files; open(files.temporary_name(sys.argv[1]), 'w').write('x')"
    )
    subprocess.run([sys.executable, "-c", code, str(admin / "index")], cwd=ROOT, check=True)
    (dead,) = admin.iterdir()
    living = files.temporary_name(admin / "index")
    with open(living, "w") as file:  # noqa: PTH123 - a plain string
        file.write("x")
    sweep(school)
    assert [str(path) for path in admin.iterdir()] == [living]
    assert not dead.exists()
