"""What is found out by running a project's own checks: by a teacher, on exactly one tree at a time; by a user's word.

For a teacher: ``facts`` says what a repository declares; ``commands`` what an argv is; ``runner`` runs one and gives a receipt;
``reports`` reads what a runner says of each test; ``environment`` builds what checks run in and keeps one bead
from changing it for the next; ``bench`` moves a teacher's worktree between base and head; ``compare`` sets head
against base; ``spoil`` makes sources unloadable, ``sight`` asks whether the tests notice; ``blunt`` makes tests fail
and asks whether that is told; ``checks`` is what a teacher calls. Nothing here believes an exit status alone where the runner can name its tests.

``due`` says which commands those are, ``filing`` enters what ran into the ledger.

For a user: ``recipe`` is how a project is installed, built, tested and started, saved or found by ``detection``;
``phases`` runs it, ``service`` sees what it starts answer, ``compose`` keeps it off containers at work, ``tree_now``
says what it is evidence of.

For a session: ``classify_command`` says what a shell command is evidence of (``shell`` reads the line, ``tools`` what it
runs, ``scope`` what its arguments leave of it, ``printed`` what it said), and ``evidence`` keeps it for as long as
``digest`` sees the same files (``evidence_db`` is its file); ``stop`` decides at the end of a turn whether a check is still due.

The first two stand on ``trees`` and ``roots``: the files of a project, and where it begins.
"""

from school.verification.classify import Classification, classify_command

__all__ = ["Classification", "classify_command"]
