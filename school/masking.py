"""Secrets of the environment, masked in everything that is written or shown.

``Mask.from_environment(names)`` knows the values of the variables in *names* (those that a configuration names as keys)
and of every variable whose name looks like a key's (``…KEY``, ``…TOKEN``, ``…SECRET``, ``…PASSWORD``), and passwords
in URLs. ``text``, ``data`` and ``value`` (a JSON value) replace each by ``[masked NAME]``; ``stream`` does so for an output
that comes in chunks. ``install(names)`` makes one for the process; ``learn(spec, …)`` adds what an agent's configuration
names: its key, and what it passes on that is made like one.

A secret is known as it stands in the environment, as JSON and as a URL would spell it, in base64 (standard and URL-safe,
wherever in a longer text it began), in hexadecimal digits and backwards; of one with several lines, each long line as it
stands. Short values (``LENGTH_MIN``), plain words, paths and numbers of count are none: masking them would spoil
records and hide nothing. ``pieced(lines)`` finds those that only joined string literals make whole.

Not promised: a secret that is encrypted, compressed or encoded otherwise (twice, in base64 with a line break in it),
printed in pieces with something between, or read from a file. What
``set_env`` of an agent's configuration says stays in its bookbag, since the leaf has no other place to read it from.
Errors: none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from school.system import redaction
from school.system.redaction import guard_tracebacks, text

__all__ = ["Mask", "guard_tracebacks", "install", "learn", "looks_secret", "pieced", "text"]

LENGTH_MIN: Final = 8
LENGTH_MAX: Final = 4096
LINE_MIN: Final = 16
WORD_MAX: Final = 16
# Backwards, and without what joins pieces, a shorter one could be there by accident.
CHANGED_MIN: Final = 12
# This much of a secret, when an output ends in the middle of it, is masked as well.
BEGINNING_MIN: Final = 6
_NAME: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:_|\d|$)")
# Compiled when first needed, like what is imported in functions: every program that is started loads this module.
_NO_NAME: Final = r"(?:^|_)(?:FILE|PATH|DIR|FOLDER|SOCK|HOME|MAX|MIN|LIMIT|COUNT|NUM)(?:_|$)"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*://\S+"
_LIKE_A_KEY: Final = r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=_.:-]{20,}|[0-9a-fA-F]{32,}"
# What keys and their encodings are made of. An output without as many of these in a row holds no secret of that length,
# which for more than a few secrets is cheaper to see than the lack of each.
_TOKEN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_IS_TOKEN: Final = bytes(byte in _TOKEN for byte in range(256))
TOKEN_MIN: Final = 20
_FEW: Final = 16
# The end of a string literal and the beginning of the next; and what else may stand between pieces.
_JOINT: Final = r"""["'`]\s*\\?\s*[+.,&|]?\s*\\?\s*[rbfuRBFU]{0,2}["'`]"""
_BETWEEN: Final = str.maketrans("", "", " \t\"'`+\\,()[]&|")
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
        self._tokens: tuple[bytes, ...] = ()
        self._others: tuple[bytes, ...] = ()
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
        if LENGTH_MIN <= len(secrets[0]) <= LENGTH_MAX:
            texts |= dict.fromkeys(_encodings(secrets[0]), f"[masked {name}]")
        if not texts:
            return
        # New tables in the place of the old: another thread may be reading them.
        texts = texts | self._texts
        marks = {os.fsencode(spelling): mark.encode() for spelling, mark in texts.items()}
        self._text_pattern = re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))
        self._pattern = re.compile(b"|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
        self._tokens = tuple(mark for mark in marks if len(mark) >= TOKEN_MIN and _TOKEN.issuperset(mark))
        self._others = tuple(marks.keys() - set(self._tokens))
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
        if self._pattern is None or not self._anywhere(data):
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

    def pieced(self, lines: Sequence[str]) -> list[int]:
        """Where in *lines* a secret begins that is whole only once string literals are joined; each index once."""
        wanted = [w for spelling in self._texts if len(w := spelling.translate(_BETWEEN)) >= CHANGED_MIN]
        if not wanted:
            return []
        # As many lines as before, so that a place can be told.
        joined = re.sub(_JOINT, lambda found: "\n" * found[0].count("\n"), "\n".join(lines))
        parts = [line.translate(_BETWEEN) for line in joined.split("\n")]
        whole = "".join(parts)
        places = {place for secret in wanted if (place := whole.find(secret)) >= 0}
        if not places:
            return []
        from bisect import bisect_right
        from itertools import accumulate

        begins = [0, *accumulate(map(len, parts))][:-1]
        return sorted({bisect_right(begins, place) - 1 for place in places})

    def stream(self) -> redaction.Stream:
        """Something that takes an output chunk by chunk."""
        return _Stream(self)

    def _anywhere(self, data: bytes) -> bool:
        if any(secret in data for secret in self._others):
            return True
        if len(self._tokens) > _FEW and b"\1" * TOKEN_MIN not in data.translate(_IS_TOKEN):
            return False
        return any(secret in data for secret in self._tokens)

    def beginning(self, data: bytes) -> int:
        """How many bytes at the end of *data* may be the beginning of a secret that goes on."""
        longest = _begun(data, self._others, 0)
        # A piece of a token has nothing else in it, so most ends need no look at all.
        if data and data[-1] in _TOKEN:
            longest = _begun(data, self._tokens, longest)
        return longest


def _begun(data: bytes, secrets: Iterable[bytes], longest: int) -> int:
    """The longest end of *data* that begins one of *secrets* and is not the whole; *longest* if none is longer."""
    for secret in secrets:
        at = data.find(secret[:1], max(0, len(data) - len(secret) + 1))
        while at >= 0 and len(data) - at > longest:
            if secret.startswith(data[at:]):
                longest = len(data) - at
            at = data.find(secret[:1], at + 1)
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


def _encodings(secret: str) -> set[str]:
    """*secret* as the usual tools encode it: a fixed, small number of forms, since each costs a search of every output."""
    import base64
    from urllib.parse import quote

    raw = os.fsencode(secret)
    found = {raw.hex(), raw.hex().upper(), _lower_escapes(quote(raw, safe=""))}
    for before in range(3):
        # Only the characters that nothing before or after it has a part in.
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        encoded = base64.b64encode(bytes(before) + raw + bytes(2)).decode()[first:last]
        found |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    if len(secret) >= CHANGED_MIN and not secret.isdigit():
        found.add(secret[::-1])
    return {one for one in found if len(one) >= LENGTH_MIN}


def _lower_escapes(quoted: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)


# --- the mask of this process -----------------------------------------------------------------------------


def install(names: Iterable[str] = ()) -> Mask:
    """Mask the secrets of this process' environment in everything that it writes from now on."""
    mask = Mask.from_environment(names)
    redaction.install(mask)
    return mask


def pieced(lines: Sequence[str]) -> list[int]:
    """``Mask.pieced`` of what this process knows."""
    mask = redaction.installed()
    return mask.pieced(lines) if isinstance(mask, Mask) else []


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
