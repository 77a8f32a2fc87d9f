"""What a check's command line names: the program that judges, and the files that it looks at.

Commands are argv lists and never a shell's, so reading them is exact as far as it goes: ``program`` is the file of
the repository that is executed, ``mentioned`` the paths of the tree that any word names (``tests/test_a.py::test``
names the file, a folder everything below it). What a program reads by itself cannot be known here.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

from school.guarded import words

_INTERPRETERS: Final = re.compile(
    r"(?:python|python3|pypy3?|node|deno|bun|ruby|perl|php|bash|sh|zsh|dash|fish|pwsh|tsx|ts-node)(?:[\d.]+)?"
)
_WRAPPERS: Final = words("env uv poetry pipenv hatch pdm rye run exec npx nice time timeout command")
# Options of interpreters whose next word is their value and not the script.
_TAKES_VALUE: Final = frozenset({"-W", "-X", "-r", "--require", "-I", "--loader", "--import", "-o", "-O"})
_SHELLS: Final = words("sh bash zsh dash fish ksh")
_CONFIGURATION: Final = (".ini", ".cfg", ".toml", ".conf", ".rc", ".json", ".yaml", ".yml")
_NO_SCRIPT: Final = frozenset({"-m", "-c", "-e", "-p", "--eval", "--print"})
_JUDGES: Final = words(
    "test tests check checks checker verify verifies verification lint validate accept acceptance assert judge ci"
    " typecheck coverage grade score"
)


def judge_like(path: str) -> bool:
    """Whether a file's name says that it checks something (``scripts/check_docs.py``, ``run-tests``)."""
    stem = posixpath.basename(path).partition(".")[0].lower()
    return any(word in _JUDGES for word in re.split(r"[-_]+", stem))


def relative(word: str) -> str:
    """A word as a path within the repository, or ''."""
    if not word or word.startswith(("-", "/")) or "\0" in word:
        return ""
    path = posixpath.normpath(word)
    return "" if path.startswith("..") or path == "." else path


def program(argv: Sequence[str]) -> str:
    """The path of the script that *argv* executes, if it is one of the repository's (relative); else ''."""
    words = _unwrapped(list(argv))
    if not words:
        return ""
    if not _INTERPRETERS.fullmatch(posixpath.basename(words[0])):
        return relative(words[0]) if "/" in words[0] else ""
    words.pop(0)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in _NO_SCRIPT:
            return ""
        if option in _TAKES_VALUE and words:
            words.pop(0)
    return relative(words[0]) if words else ""


def _unwrapped(words: list[str]) -> list[str]:
    """*words* from the program on that ``env``, ``timeout``, ``uv run`` and their kind start."""
    wrapped = False
    while words and (words[0] in _WRAPPERS or ("=" in words[0] and "/" not in words[0].partition("=")[0])):
        wrapped = words.pop(0) in _WRAPPERS or wrapped
    if not wrapped:
        return words
    # A wrapper's options and their values stand between; an interpreter or a path is where it ends.
    starts = [n for n, w in enumerate(words) if _INTERPRETERS.fullmatch(posixpath.basename(w)) or "/" in w]
    return words[starts[0] :] if starts else words


def programs(argv: Sequence[str], tree: Collection[str]) -> list[str]:
    """Every file of *tree* that *argv* executes: its script, those of a shell's ``-c`` line, those that a code string names."""
    found = [program(argv)]
    for option, line in pairwise(argv):
        if option in ("-c", "-lc", "-ec", "-xc", "-euc"):
            found += [program(words) for words in _simple_commands(line)]
        if option in _NO_SCRIPT - {"-m"} and not _is_shell(argv):
            found += [path for path in tree if re.search(rf"(?<![\w/.-]){re.escape(path)}(?![\w-])", line)]
    return [path for path in dict.fromkeys(found) if path in tree]


def _is_shell(argv: Sequence[str]) -> bool:
    return any(posixpath.basename(word) in _SHELLS for word in argv)


def _simple_commands(line: str) -> list[list[str]]:
    """The commands of a shell line, split at its operators; what cannot be split is one word."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # An unbalanced quote: the shell would refuse it too.
        return [[line]]
    return [words for words in commands if words]


def configured_by(argv: Sequence[str]) -> set[str]:
    """Files that an option names as configuration (``--config lint.toml``, ``-c other.ini``)."""
    found = set()
    for before, word in zip(("", *argv), argv, strict=False):
        value = word.partition("=")[2] if word.startswith("-") else word if before.startswith("-") else ""
        if value.endswith(_CONFIGURATION) and relative(value):
            found.add(relative(value))
    return found


def module(argv: Sequence[str]) -> str:
    """The module that *argv* runs with ``-m`` (``python -m pytest``), or ''."""
    for index, word in enumerate(argv[:-1]):
        if word == "-m":
            before = argv[index - 1] if index else ""
            return (
                argv[index + 1]
                if before.startswith("-") or _INTERPRETERS.fullmatch(posixpath.basename(before))
                else ""
            )
    return ""


def tool(argv: Sequence[str]) -> str:
    """The name of the program that really checks: ``pytest`` of ``uv run python -m pytest``."""
    found = module(argv)
    if found:
        return found.partition(".")[0]
    words = [w for w in argv if w not in _WRAPPERS and "=" not in w and not w.startswith("-")]
    return posixpath.basename(words[0]) if words else ""


def mentioned(argv: Sequence[str], tree: Collection[str]) -> list[str]:
    """Every path of *tree* that a word of *argv* names, the executed program among them; folders name all below."""
    named: set[str] = set()
    for word in argv:
        for candidate in {word, word.partition("::")[0], word.rpartition("=")[2], word.partition(":")[0]}:
            path = relative(candidate)
            if path:
                named.add(path)
    return [p for p in tree if p in named or any(folder in named for folder in _parents(p))]


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def named_folder(argv: Sequence[str]) -> bool:
    """Whether *argv* says ``.``: the whole repository."""
    return any(word in (".", "./") for word in argv)
