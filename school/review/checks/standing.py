"""A teacher's worktree with the files of one side laid over the other, and commands run there.

``with Standing.on(context, open_bench) as stand: stand.at("head", base=paths, drop=paths); stand.run(argv, …)``: the
bench brings the tree to one side, clean and with that side's environment; then the named files are written as the
other side has them, or taken away. Git does the writing, with a git directory and an index that nothing run in the
worktree can have touched, and it never writes through a symbolic link. The end of the block leaves the worktree
clean at head.

Errors: what the bench raises; ``GitError`` when a file cannot be laid over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from school.contracts import CheckContext, Receipt
from school.review.checks.seams import Bench, OpenBench, Side
from school.system import files
from school.system.git import Git

_FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")


@dataclass(frozen=True)
class Standing:
    """One bead's bench, and what is laid over it."""

    context: CheckContext
    bench: Bench

    @classmethod
    @contextmanager
    def on(cls, context: CheckContext, open_bench: OpenBench) -> Iterator[Standing]:
        with open_bench(context) as bench:
            yield cls(context, bench)

    def at(
        self, side: Side, *, base: Sequence[str] = (), head: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> None:
        """Stand at *side*, with the *base* and *head* files of those sides over it and *drop* taken away."""
        self.bench.go(side)
        if base or head or drop:
            files.ensure_dir(self.context.scratch)
            index = self.context.scratch / "standing.index"
            git = Git(self.context.clone, self.context.worktree, index=index)
            git.run("read-tree", self._commit(side))
            for source, paths in (("base", base), ("head", head)):
                if paths:
                    names = _names(paths)
                    git.run(
                        "--literal-pathspecs", "checkout", self._commit(source), *_FROM_STDIN, stdin=names
                    )
            if drop:
                options = ("-q", "-r", "-f", "--ignore-unmatch", *_FROM_STDIN)
                git.run("--literal-pathspecs", "rm", *options, stdin=_names(drop))

    def run(self, argv: Sequence[str], *, timeout_s: float, check: str) -> Receipt:
        """Run *argv* as the tree now stands."""
        self.context.progress(check)
        return self.bench.run(argv, timeout_s=timeout_s, check=check)

    def tree_now(self) -> str:
        """The tree that the worktree's tracked and new files would make.

        What is ignored does not count, nor what set-up made (``keep``, ``copy_files``): it is nobody's change.
        """
        index = self.context.scratch / "now.index"
        git = Git(self.context.clone, self.context.worktree, index=index)
        terms = self.context.bag.get("terms") or {}
        prepared = [*(terms.get("keep") or []), *(terms.get("copy_files") or [])]
        git.run("read-tree", self._commit("head"))
        # Git refuses to be told to leave out what it ignores already.
        seen = [name for name in prepared if not git.ok("check-ignore", "--quiet", "--", name)]
        git.run("add", "--all", "--", ".", *(f":(exclude,literal){name.rstrip('/')}" for name in seen))
        return git.text("write-tree")

    def _commit(self, side: str) -> str:
        return str(self.context.bag[f"{side}_commit"])


def _names(paths: Sequence[str]) -> bytes:
    return b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths)
