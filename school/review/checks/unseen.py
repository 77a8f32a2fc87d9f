"""Text that a reader does not see as it is, and text that speaks to the reader instead of doing the work.

``unseen(line, prose=…)`` names characters that hide or reorder; ``mixed_names(line)`` identifiers that look like
others; ``steering(line)`` words addressed to whoever judges. All look at single lines and are pure.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

_OVERRIDES: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MARKS: Final = frozenset("\u200e\u200f\u061c")
_INVISIBLE: Final = frozenset(
    "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u180e\u3164\u115f\u1160"
)
_PLAIN: Final = frozenset("\t\r\n\f")
_ZWJ: Final = "\u200d"
_SCRIPTS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
_TAGS: Final = range(0xE0000, 0xE0200)


def unseen(line: str, *, prose: bool = False) -> tuple[str, bool]:
    """What a line hides, and whether that is bad anywhere; ('', False) for an honest line."""
    if line.isascii() and line.isprintable():
        return "", False
    return next((found for char in line if (found := _hides(char, line, prose=prose))[0]), ("", False))


def _hides(char: str, line: str, *, prose: bool) -> tuple[str, bool]:
    what, bad = "", True
    if char in _OVERRIDES:
        what = "a bidirectional override"
    elif ord(char) in _TAGS:
        what = "an invisible tag character"
    elif unicodedata.category(char) == "Cc" and char not in _PLAIN:
        what, bad = "a control character", not prose
    elif char in _MARKS and not prose:
        what, bad = "a direction mark", False
    elif char in _INVISIBLE and not (prose or _in_emoji(line, char)):
        what, bad = "an invisible character", not line.startswith(char)
    return (f"{what} ({_called(char)})", bad) if what else ("", False)


def _called(char: str) -> str:
    return f"U+{ord(char):04X}"


def _in_emoji(line: str, char: str) -> bool:
    """A joiner between two pictures makes one picture, and hides nothing."""
    if char != _ZWJ:
        return False
    joined = re.findall(r"(.)\ufe0f?\u200d(.)", line)
    return bool(joined) and all(ord(a) > 0x2000 and ord(b) > 0x2000 for a, b in joined)  # noqa: PLR2004


def mixed_names(line: str) -> str:
    """An identifier made of look-alike scripts (a Cyrillic letter among Latin ones), or ''."""
    if line.isascii():
        return ""
    for word in re.findall(r"\w+", line):
        if not word.isascii() and len(_scripts(word)) > 1:
            return str(word)
    return ""


def _scripts(word: str) -> set[str]:
    names = [unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()]
    return {name for name in names if name in _SCRIPTS}


# --- words to the judge -----------------------------------------------------------------------------------

_JUDGE: Final = r"(?:(?:code[- ]?)?review(?:er|ers|ing)|teachers?|judges?|graders?|evaluators?|auditors?|cto|coo|llm|ai|assistant|model|agent|claude|gpt)"
_STRONG: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|these\s+)*(?:previous|prior|above|earlier|preceding|other|system)\s+"
    r"(?:\w+\s+)?(?:instructions?|prompts?|rules|guidelines|messages|context|findings)"
    # A greeting speaks to somebody; "instructions to the model, which" only speaks of somebody.
    rf"|\b(?:attention|dear|hey|hello|hi)\b[\s,:]*(?:to|for)?\s*(?:the\s+|all\s+|any\s+)*{_JUDGE}\b\s*[:,!\-]"
    rf"|\b(?:note|message|hint|instructions?)\b\s*(?:to|for)?\s*(?:the\s+|all\s+|any\s+)*{_JUDGE}\b\s*(?:[:!]|[-\u2013\u2014]\s)"
    # Programs return what they accept, in small letters; a verdict is shouted.
    r"|\b(?:reply|respond|answer|say)\s+(?:only\s+|just\s+|with\s+|back\s+|a\s+|the\s+)*(?:verdict\s*(?:of|:|=)?\s*)?[\"'`*]*(?:PASS(?:ED)?|APPROVED?|ACCEPT(?:ED)?|LGTM)\b"
    r"|\b(?:output|return|print|write|give|emit)\s+(?:only\s+|just\s+|with\s+|back\s+|a\s+|the\s+)*(?:verdict\s*(?:of|:|=)?\s*)?[\"'`*]*(?-i:PASS(?:ED)?|APPROVED?|ACCEPT(?:ED)?|LGTM)\b"
    r"|\b(?:do\s+not|don't|never|please\s+do\s+not|no\s+need\s+to)\s+(?:report|flag|mention|raise|list|object\s+to)\s+(?:\w+\s+){0,4}(?:issues?|findings?|problems?)"
    r"|\b(?:do\s+not|don't|never|please\s+do\s+not|no\s+need\s+to)\s+(?:look\s+at|review|inspect)\s+(?:\w+\s+){0,4}(?:issues?|findings?|problems?|changes?|files?|lines?|code)"
    rf"|\b(?:as|you\s+are)\s+(?:an?|the)\s+{_JUDGE}\b[^.]{{0,60}}\b(?:must|should|shall|will|have\s+to)\b[^.]{{0,60}}\b(?:pass|approve|accept|lgtm)"
    r"|\b(?:approve|accept|pass)\s+(?:this|the)\s+(?:change|diff|patch|pull\s+request|pr|commit|work|bead|submission|task)\b"
    r"|\b(?:mark|treat|consider|count|grade|score|rate)\s+(?:this|the|it|all|every)\b[^.]{0,40}\bas\s+(?:pass(?:ed|ing)?|approved|accepted|complete[d]?|correct|safe)\b",
    re.IGNORECASE,
)
_WEAK: Final = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext)[^|]*\|>|\[/?INST\]|<</?SYS>>|^\W*(?:system|assistant|developer)\s*:\s*\S"
    r"|</?(?:system|assistant|instructions?|untrusted|student_work|diff|evidence)(?:[-_ ][\w=\"'-]+)*>\s*$"
    r"|[\"'](?:verdict|cto_verdict|coo_verdict|review_outcome)[\"']\s*:\s*[\"'](?:PASS|ACCEPT|APPROVE)"
    r"|^\W*(?:final\s+)?verdict\s*[:=]\s*\W*(?:PASS|APPROVED|ACCEPTED)\b"
    r"|^\W*(?:END|BEGIN)\s+(?:OF\s+)?(?:UNTRUSTED|DIFF|EVIDENCE|STUDENT|REVIEW|INPUT|DATA)\b",
    re.IGNORECASE,
)


def is_order(text: str) -> bool:
    """Whether *text* holds a plain order to whoever judges."""
    return _STRONG.search(text) is not None


def steering(line: str) -> Literal["", "strong", "weak"]:
    """Whether a line speaks to whoever judges: a plain order, or only the shape of one."""
    if is_order(line):
        return "strong"
    return "weak" if _WEAK.search(line) else ""
