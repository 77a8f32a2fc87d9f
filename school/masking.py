"""Secrets of the environment, masked in everything that is written or shown.

``Mask.from_environment(names)`` knows the values of the variables in *names* (those that a configuration names as keys)
and of every variable whose name looks like a key's (``…KEY``, ``…TOKEN``, ``…SECRET``, ``…PASSWORD``), and passwords
in URLs. ``text``, ``data`` and ``value`` (a JSON value) replace each by ``[masked NAME]``; ``stream`` does so for an output
that comes in chunks. ``install(names)`` makes one for the process; ``learn(spec, …)`` adds what an agent's configuration
names: its key, and what it passes on that is made like one.

A secret is known as it stands in the environment, as JSON and as a URL would spell it; of one with several lines, each
long line. Short values (``LENGTH_MIN``), plain words, paths and numbers of count are none: masking them would spoil
records and hide nothing.

Not promised: a secret that is encoded otherwise, printed in pieces with something between, or read from a file. What
``set_env`` of an agent's configuration says stays in its bookbag, since the leaf has no other place to read it from.
Errors: none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from school.system import redaction
from school.system.redaction import guard_tracebacks, text

__all__ = ["Mask", "guard_tracebacks", "install", "learn", "looks_secret", "text"]

LENGTH_MIN: Final = 8
LENGTH_MAX: Final = 4096
LINE_MIN: Final = 16
WORD_MAX: Final = 16
# This much of a secret, when an output ends in the middle of it, is masked as well.
BEGINNING_MIN: Final = 6
_NAME: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:_|\d|$)")
# Compiled when first needed, like what is imported in functions: every program that is started loads this module.
_NO_NAME: Final = r"(?:^|_)(?:FILE|PATH|DIR|FOLDER|SOCK|HOME|MAX|MIN|LIMIT|COUNT|NUM)(?:_|$)"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*://\S+"
_LIKE_A_KEY: Final = r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=_.:-]{20,}|[0-9a-fA-F]{32,}"
# What an agent's configuration has, and nothing that an agent says: there ``set_env`` stays as it is.
_KEPT: Final = "set_env"
_CONFIGURATION: Final = frozenset({"name", "kind", "argv", "api_key_env", _KEPT})


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable *name* with *value* holds a key, by its name and by what cannot be one."""
    upper = name.upper()
    if not _NAME.search(upper) or re.search(_NO_NAME, upper) or _is_path(value):
        return False
    # MAX_TOKENS and its like count something.
    if len(value) < LENGTH_MIN or _is_word(value):
        return False
    return not (value.isdigit() and "TOKENS" in upper)


def _is_word(value: str) -> bool:
    """A plain word (``postgres``) is in paths and names of all kinds; to mask it everywhere would spoil the records."""
    return value.isalpha() and len(value) < WORD_MAX and (value.islower() or value.isupper())


def _is_path(value: str) -> bool:
    if value.startswith(("~/", "./", "../")):
        return True
    if not value.startswith("/") or "\n" in value or "\0" in value:
        return False
    from pathlib import Path

    path = Path(value)
    try:
        return path.exists() or (path.parent.exists() and path.parent != Path("/"))
    except OSError:  # a name too long for any file is none
        return False


def _is_url(value: str) -> bool:
    return "://" in value and re.fullmatch(_SCHEME, value) is not None


def _password(value: str) -> str:
    """The password in a URL, '' without one."""
    if not _is_url(value):
        return ""
    from urllib.parse import urlsplit

    try:
        found = urlsplit(value).password or ""
    except ValueError:
        return ""
    return "" if _is_word(found) else found


class Mask:
    """The secrets that are known, and what stands in their place; see the module."""

    def __init__(self) -> None:
        self._marks: dict[bytes, bytes] = {}
        self._texts: dict[str, str] = {}
        self.longest = 0
        self._pattern: re.Pattern[bytes] | None = None
        self._text_pattern: re.Pattern[str] | None = None

    @classmethod
    def from_environment(cls, names: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Mask:
        """A mask of what *environ* (the process environment) holds; *names* are keys whatever they are called."""
        mask = cls()
        environ = os.environ if environ is None else environ
        for name, value in environ.items():
            mask.add(name, value if looks_secret(name, value) else _password(value))
        mask.name(names, environ)
        return mask

    def name(self, names: Iterable[str], environ: Mapping[str, str] | None = None) -> None:
        """Know the values of the variables *names*, whatever they are called; a path or a bare URL is no secret."""
        environ = os.environ if environ is None else environ
        for name in names:
            value = environ.get(name, "")
            if not _is_path(value) and not _is_url(value):
                self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Know *value*, shown as *name*; of several lines, each by itself as well."""
        lines = [line.strip() for line in value.splitlines()] if "\n" in value.strip() else []
        secrets = [value.strip(), *(line for line in lines if len(line) >= LINE_MIN)]
        texts = {
            spelling: f"[masked {name}]"
            for secret in secrets
            if LENGTH_MIN <= len(secret) <= LENGTH_MAX
            for spelling in _spellings(secret)
        }
        if not texts:
            return
        # New tables in the place of the old: another thread may be reading them.
        texts = texts | self._texts
        marks = {os.fsencode(spelling): mark.encode() for spelling, mark in texts.items()}
        self._text_pattern = re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))
        self._pattern = re.compile(b"|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
        self.longest = max(map(len, marks))
        self._texts, self._marks = texts, marks

    def __bool__(self) -> bool:
        return bool(self._marks)

    def text(self, text: str) -> str:
        """*text* without secrets."""
        texts = self._texts
        if self._text_pattern is None or not any(secret in text for secret in texts):
            return text
        return self._text_pattern.sub(lambda found: self._texts[found[0]], text)

    def data(self, data: bytes) -> bytes:
        """*data* without secrets."""
        marks = self._marks
        if self._pattern is None or not any(secret in data for secret in marks):
            return data
        return self._pattern.sub(lambda found: self._marks[found[0]], data)

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """A JSON value whose texts are without secrets; what an agent is to be given (``set_env``) stays."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            kept = _KEPT if value.keys() >= _CONFIGURATION else None
            return {
                self.text(key) if isinstance(key, str) else key: item if key == kept else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def stream(self) -> redaction.Stream:
        """Something that takes an output chunk by chunk."""
        return _Stream(self)

    def beginning(self, data: bytes) -> int:
        """How many bytes at the end of *data* may be the beginning of a secret that goes on."""
        tail, longest = data[-(self.longest - 1) :] if self.longest > 1 else b"", 0
        for secret in self._marks:
            at = tail.find(secret[:1], max(0, len(tail) - len(secret) + 1))
            while at >= 0 and len(tail) - at > longest:
                if secret.startswith(tail[at:]):
                    longest = len(tail) - at
                at = tail.find(secret[:1], at + 1)
        return longest


class _Stream:
    """One output; what may be the beginning of a secret waits for the next chunk."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""

    def __call__(self, chunk: bytes, *, final: bool = False) -> bytes:
        clean = self._mask.data(self._held + chunk)
        waits = self._mask.beginning(clean)
        self._held, clean = (clean[-waits:], clean[:-waits]) if waits else (b"", clean)
        if not final:
            return clean
        rest, self._held = self._held, b""
        return clean + (b"[masked]" if len(rest) >= BEGINNING_MIN else rest)


def _spellings(secret: str) -> set[str]:
    """*secret* as it is, as JSON writes it, and as a URL does."""
    import json
    from urllib.parse import quote, unquote

    plain = {secret, unquote(secret)} if "%" in secret else {secret}
    found = set(plain)
    for one in plain:
        well = one.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        found |= {
            well,
            json.dumps(well)[1:-1],
            json.dumps(well, ensure_ascii=False)[1:-1],
            quote(well, safe=""),
        }
    return {spelling for spelling in found if len(spelling) >= LENGTH_MIN}


# --- the mask of this process -----------------------------------------------------------------------------


def install(names: Iterable[str] = ()) -> Mask:
    """Mask the secrets of this process' environment in everything that it writes from now on."""
    mask = Mask.from_environment(names)
    redaction.install(mask)
    return mask


class Configured(Protocol):
    """What the configuration of an agent says of variables."""

    @property
    def env(self) -> list[str]: ...

    @property
    def set_env(self) -> dict[str, str]: ...

    @property
    def api_key_env(self) -> str: ...


def learn(*specs: Configured) -> None:
    """Mask also what these agents' configuration names; without ``install`` before, nothing is masked."""
    mask = redaction.installed()
    if not isinstance(mask, Mask):
        return
    for spec in specs:
        # What else is passed on may be a model's name or a mode; only what is made like a key is one.
        like_keys = [name for name in spec.env if re.fullmatch(_LIKE_A_KEY, os.environ.get(name, ""))]
        mask.name([*like_keys, *([spec.api_key_env] if spec.api_key_env else [])])
        for name, value in spec.set_env.items():
            if looks_secret(name, value):
                mask.add(name, value)
