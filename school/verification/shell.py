"""A shell line, as far as it can be said whose exit status it ends with.

``parse(line) -> list[Segment] | None``: its simple commands and the operators behind them, words without their quotes.
None for whatever is more than a list of simple commands (subshells, groups, functions, substitutions, here-documents,
background, parameter expansion beyond a plain name) or is no correct line at all: of those nothing is claimed.
``inert(segment)`` says whether a command leaves the shell as it is. Everything not known to is taken to change it: a
builtin may end the shell with a status of its own, trap its end, or put another program behind a name.

Not promised: what the shell has inherited (functions, aliases, ``BASH_ENV``), nor what programs that it starts do to
the files that later ones run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

COMMAND_CHARS_MAX: Final = 20_000
_DESCRIPTOR_DIGITS_MAX: Final = 3


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EXPANSION: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}|[?$#@*!0-9-])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=,+@%^-]+")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_REDIRECTION: Final = re.compile(r"&>>|&>|>>|>\||>&|<&|<>|<|>")
_OPERATOR: Final = re.compile(r"&&|\|\||\|&|\||;|&|\n")
_ESCAPED_IN_QUOTES: Final = '$`"\\'

_KEYWORDS: Final = _set("""
    if then else elif fi case esac for select while until do done in function time coproc [[ ]] ! foreach repeat end
    nocorrect
""")
# Every builtin of bash, and those of zsh that bear on what runs.
_BUILTINS: Final = _set("""
    . : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable
    eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd
    read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias
    unset wait autoload bye chdir emulate float functions integer noglob private rehash setopt unfunction unhash unsetopt
    vared zcompile zmodload
""")
_HARMLESS_BUILTINS: Final = _set("echo true false : pwd")
_SET_OPTIONS: Final = _set("errexit nounset xtrace pipefail verbose")

# Variables that say which program runs, what it reads before its arguments, or which of its tests.
_TELLING: Final = re.compile(
    r"(?:PATH|IFS|ENV|SHELL|SHELLOPTS|CDPATH|HOME|UID|EUID|PPID|PS4|PROMPT_COMMAND|EXECIGNORE|GLOBIGNORE|FPATH|PERL5OPT|RUBYOPT)$"
    r"|(?:BASH|LD_|DYLD_|PYTEST|PYTHON|NODE_(?!ENV$)|NPM|npm_|YARN|PNPM|BUN|MAKE|MFLAGS|GNUMAKE|GO|CGO|CARGO|RUST|UV_|PIP"
    r"|POETRY|PDM|HATCH|TOX|NOX|MAVEN|MVN|JAVA|JDK|_JAVA|GRADLE|JEST|VITEST|MOCHA|COV|UNITTEST|GIT_|VIRTUAL_ENV|RUFF"
    r"|MYPY|ESLINT|HYPOTHESIS_)"
    r"|.*(?:PATH|OPTS|OPTIONS|FLAGS|ARGS|ARGUMENTS)$",
)
# Of those, what only says how it looks.
_QUIET: Final = _set("""
    PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 PYTHONFAULTHANDLER
    NPM_CONFIG_COLOR RUST_BACKTRACE CARGO_TERM_COLOR CARGO_INCREMENTAL GIT_TERMINAL_PROMPT
""")
_BELOW_HERE: Final = re.compile(r"(?:\.|\.?[A-Za-z0-9_][A-Za-z0-9_.-]*)(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*/?")


@dataclass(slots=True)
class Word:
    """A word without its quotes; ``dynamic`` if a variable is in it, ``pattern`` if the shell may make other names of
    it. ``bare`` counts the characters before the first quote.
    """

    text: str = ""
    dynamic: bool = False
    pattern: bool = False
    bare: int = -1

    @property
    def literal(self) -> bool:
        return not (self.dynamic or self.pattern)


@dataclass(slots=True)
class Segment:
    """A simple command: its assignments, words and redirections, and the operator behind it (empty at the end)."""

    assignments: list[tuple[str, Word]] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirections: list[tuple[str, Word]] = field(default_factory=list)
    after: str = ""

    @property
    def empty(self) -> bool:
        return not (self.words or self.assignments or self.redirections)

    @property
    def argv(self) -> list[str]:
        return [word.text for word in self.words]


class _UnclearError(Exception):
    """The line is more than this module speaks of."""


class _Reader:
    """One pass over a line."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0
        self.segments: list[Segment] = []
        self.segment = Segment()
        self.word: Word | None = None
        self.redirection = ""

    def read(self) -> list[Segment]:
        line, end = self.line, len(self.line)
        while self.at < end:
            plain = _PLAIN.match(line, self.at)
            if plain:
                self._grow(plain[0])
                self.at = plain.end()
            else:
                self._special(line[self.at])
        self._end_word()
        if self.redirection:
            raise _UnclearError
        if not self.segment.empty:
            self.segments.append(self.segment)
        elif self.segments and self.segments[-1].after not in (";", ""):
            raise _UnclearError
        if self.segments and self.segments[-1].after == ";":
            self.segments[-1].after = ""
        return self.segments

    def _grow(self, text: str) -> Word:
        if self.word is None:
            self.word = Word()
        self.word.text += text
        return self.word

    def _quoted(self, text: str) -> Word:
        word = self._grow("")
        if word.bare < 0:
            word.bare = len(word.text)
        word.text += text
        return word

    def _special(self, char: str) -> None:
        line = self.line
        if char in " \t":
            self._end_word()
            self.at += 1
        elif char in _QUOTING:
            _QUOTING[char](self)
        elif char == "#" and self.word is None:
            close = line.find("\n", self.at)
            self.at = len(line) if close < 0 else close
        elif char in "<>" or line.startswith("&>", self.at):
            self._redirect()
        elif char in "&|;\n":
            self._operator()
        elif char in "`(){}" or (char == "!" and self.word is None and not self.segment.words):
            raise _UnclearError
        else:
            word = self._grow(char)
            word.pattern = word.pattern or char in "*?["
            self.at += 1

    def _escape(self) -> None:
        following = self.line[self.at + 1 : self.at + 2]
        if not following:
            raise _UnclearError
        if following != "\n":
            self._quoted(following)
        self.at += 2

    def _single_quotes(self) -> None:
        close = self.line.find("'", self.at + 1)
        if close < 0:
            raise _UnclearError
        self._quoted(self.line[self.at + 1 : close])
        self.at = close + 1

    def _double_quotes(self) -> None:
        self._quoted("")
        self.at += 1
        while True:
            char = self.line[self.at : self.at + 1]
            following = self.line[self.at + 1 : self.at + 2]
            if char == '"':
                self.at += 1
                return
            if not char or char == "`":
                raise _UnclearError
            if char == "$":
                self._expansion(quoted=True)
            elif char == "\\" and following and following in _ESCAPED_IN_QUOTES + "\n":
                self._quoted("" if following == "\n" else following)
                self.at += 2
            else:
                self._quoted(char)
                self.at += 1

    def _expansion(self, *, quoted: bool = False) -> None:
        found = _EXPANSION.match(self.line, self.at)
        following = self.line[self.at + 1 : self.at + 2]
        if found:
            self._quoted(found[0]).dynamic = True
            self.at = found.end()
        elif following in ("(", "{", "[", "\\") or (following in ("'", '"') and not quoted):
            raise _UnclearError
        else:
            self._quoted("$")
            self.at += 1

    def _redirect(self) -> None:
        operator = _REDIRECTION.match(self.line, self.at)
        assert operator is not None
        if self.redirection or self.line.startswith("<<", self.at):
            raise _UnclearError
        before = self.word
        if before is not None and before.bare < 0 and before.text.isdigit() and operator[0][0] != "&":
            if len(before.text) > _DESCRIPTOR_DIGITS_MAX:
                raise _UnclearError
            self.word = None  # it names what is redirected
        self._end_word()
        self.redirection = operator[0]
        self.at = operator.end()

    def _operator(self) -> None:
        self._end_word()
        operator = _OPERATOR.match(self.line, self.at)
        assert operator is not None
        self.at = operator.end()
        if self.redirection or operator[0] in ("&", "|&"):  # not every `sh` knows the second
            raise _UnclearError
        if not self.segment.empty:
            self.segment.after = ";" if operator[0] == "\n" else operator[0]
            self.segments.append(self.segment)
            self.segment = Segment()
        elif operator[0] != "\n":
            raise _UnclearError

    def _end_word(self) -> None:
        word, self.word = self.word, None
        if word is None:
            return
        if self.redirection:
            self.segment.redirections.append((self.redirection, word))
            self.redirection = ""
            return
        assigned = _ASSIGNED.match(word.text) if not self.segment.words else None
        if assigned and (word.bare < 0 or assigned.end() <= word.bare):
            word.text = word.text[assigned.end() :]
            self.segment.assignments.append((assigned[1], word))
        else:
            self.segment.words.append(word)


_QUOTING: Final[dict[str, Callable[[_Reader], None]]] = {
    "\\": _Reader._escape,  # noqa: SLF001 - its own parts
    "'": _Reader._single_quotes,  # noqa: SLF001
    '"': _Reader._double_quotes,  # noqa: SLF001
    "$": _Reader._expansion,  # noqa: SLF001
}


def parse(line: str) -> list[Segment] | None:
    """The simple commands of *line* in order, or None where that is not all it is."""
    if len(line) > COMMAND_CHARS_MAX or _CONTROL.search(line):
        return None
    try:
        return _Reader(line).read()
    except _UnclearError:
        return None


def says_nothing(name: str, value: str, *, literal: bool = True) -> bool:
    """Whether the variable *name* can be set to *value* without it being in doubt what runs."""
    if name == "PYTHONPATH":
        return literal and all(_BELOW_HERE.fullmatch(part) for part in value.split(":"))
    return name in _QUIET or _TELLING.match(name) is None


def inert(segment: Segment) -> bool:
    """Whether *segment* leaves the shell that runs it as it is, and every name in it what it was."""
    if not all(says_nothing(name, word.text, literal=word.literal) for name, word in segment.assignments):
        return False
    words = segment.words
    while words and words[0].literal and words[0].text in ("time", "command"):
        words = words[1:]
        if words and words[0].text.startswith("-") and words[0].text != "-p":
            return False
    if not words:
        return True
    name = words[0]
    if not name.literal or name.text in _KEYWORDS or not name.text or name.text.startswith("-"):
        return False
    return name.text not in _BUILTINS or _inert_builtin(name.text, words[1:])


def _inert_builtin(name: str, arguments: Sequence[Word]) -> bool:
    if name in _HARMLESS_BUILTINS:
        return True
    if not all(word.literal for word in arguments):
        return False
    texts = [word.text for word in arguments]
    if name == "printf":
        return bool(texts) and not texts[0].startswith("-")
    if name == "cd":
        return len(texts) == 1 and not texts[0].startswith("-")
    if name == "export":
        pairs = [text.partition("=") for text in texts]
        return all(re.fullmatch(r"[A-Za-z_]\w*", n) and says_nothing(n, value) for n, _, value in pairs)
    return name == "set" and _plain_options(texts)


def _plain_options(texts: Sequence[str]) -> bool:
    """Whether ``set`` was given ``-e``, ``-u``, ``-x``, ``-o pipefail`` and the like, and nothing else."""
    at = 0
    while at < len(texts):
        if not re.fullmatch(r"-[euxv]*o?", texts[at]) or texts[at] == "-":
            return False
        if texts[at].endswith("o"):
            at += 1
            if at >= len(texts) or texts[at] not in _SET_OPTIONS:
                return False
        at += 1
    return bool(texts)


def sure_to_go_on(segment: Segment) -> bool:
    """Whether *segment* cannot fail, so that ``set -e`` does not end the shell at it."""
    name = segment.words[0].text if segment.words else ":"
    dynamic = any(word.dynamic for word in segment.words)
    return (
        name in {"echo", "printf", "true", ":", "pwd", "set", "export"}
        and not dynamic
        and not segment.redirections
    )


def stops_at_errors(segment: Segment) -> bool:
    """Whether *segment* is a ``set`` that makes the shell end at a failing command or an unset variable."""
    texts = segment.argv
    return texts[:1] == ["set"] and (
        any(text in {"errexit", "nounset"} for text in texts)
        or any(text.startswith("-") and set(text) & set("eu") for text in texts[1:])
    )
