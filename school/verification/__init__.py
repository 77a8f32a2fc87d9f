"""What a teacher finds out by running the project's own checks, on exactly one tree at a time.

``facts`` says what a repository declares; ``commands`` what an argv is; ``runner`` runs one and gives a receipt;
``reports`` reads what a runner says of each test; ``environment`` builds what checks run in and keeps one bead
from changing it for the next; ``bench`` moves a teacher's worktree between base and head; ``compare`` sets head
against base; ``spoil`` makes sources unloadable, ``sight`` asks whether the tests notice; ``blunt`` makes tests fail
and asks whether that is told; ``checks`` is what a teacher calls. Nothing here believes an exit status alone where the runner can name its tests.
"""
