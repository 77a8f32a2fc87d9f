"""Secrets in added lines, by detect-secrets, with what it would let pass by a comment taken in again.

``secrets_in(lines)`` gives (line number, what, how sure) for each; the secret itself is never given, so that no
record or terminal repeats it. Only lines that a cheap look finds suspicious are given to the detectors, since those
cost much. Values that are plainly placeholders, templates or references are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

# Whatever the detectors below could find holds one of these.
_SUSPICIOUS: Final = re.compile(
    r"AKIA|ASIA|A3T[A-Z0-9]|AccountKey|AKC[a-zA-Z0-9]{10}|AP[\dABCDEF][a-zA-Z0-9]{8}|://[^/\s:@]+:[^/\s:@]+@|gh[pousr]_|github_pat_"
    r"|glpat-|gl[a-z]{2,4}-|BEGIN [A-Z ]*PRIVATE KEY|BEGIN PGP|PuTTY-User|eyJ[A-Za-z0-9]|-us[0-9]{1,2}\b|_authToken|sk-[A-Za-z0-9-]{8}"
    r"|pypi-Ag|SG\.[\w-]{8}|xox[abeprs]-|hooks\.slack\.com|sq0csp-|[rs]k_live_|\bAC[a-z0-9]{32}|\bSK[a-z0-9]{32}|[MNO][A-Za-z\d_-]{23,25}\."
    r"|\d{8,10}:[\w-]{35}|pass(?:word|wd|phrase)?|pwd|secret|token|api[-_ ]?key|apikey|credential|private[-_ ]?key|auth[-_ ]?key",
    re.IGNORECASE,
)
_SURE: Final = frozenset({"Secret Keyword", "Basic Auth Credentials", "JSON Web Token"})
_PLUGINS: Final = (
    "ArtifactoryDetector AWSKeyDetector AzureStorageKeyDetector BasicAuthDetector CloudantDetector DiscordBotTokenDetector"
    " GitHubTokenDetector GitLabTokenDetector IbmCloudIamDetector IbmCosHmacDetector JwtTokenDetector KeywordDetector"
    " MailchimpDetector NpmDetector OpenAIDetector PrivateKeyDetector PypiTokenDetector SendGridDetector SlackDetector"
    " SoftlayerDetector SquareOAuthDetector StripeDetector TelegramBotTokenDetector TwilioKeyDetector"
)
_FILTERS: Final = (
    "heuristic.is_indirect_reference heuristic.is_not_alphanumeric_string heuristic.is_potential_uuid"
    " heuristic.is_prefixed_with_dollar_sign heuristic.is_sequential_string heuristic.is_templated_secret"
)
_PLACEHOLDER: Final = re.compile(
    r"^(?:x+|\*+|\.+|-+|_+)$|example|placeholder|changeme|change[-_ ]?me|your[-_ ]|dummy|sample|fake|redacted|not[-_ ]?a[-_ ]?secret"
    r"|<[^>]*>|\{[^}]*\}|%\(|\$\{|^(?:none|null|true|false|test(?:ing)?|secret|password|token|foo|bar|baz|hunter2|string|str|abc|abcd|1234?5?6?)$"
    r"|^[a-z]+(?:[ _-][a-z]+)*$|^[A-Z]+(?:_[A-Z]+)*$|EXAMPLE",
    re.IGNORECASE,
)
LINE_CHARS_MAX: Final = 4000
OVERLAP_CHARS: Final = 400


def secrets_in(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, bool]]:
    """(line number, kind, whether its very form proves it) of each secret; a keyword's value is only a guess."""
    step = LINE_CHARS_MAX - OVERLAP_CHARS
    parts = (
        (number, line[start : start + LINE_CHARS_MAX])
        for number, line in lines
        for start in range(0, len(line), step)
    )
    suspicious = [(number, part) for number, part in parts if _SUSPICIOUS.search(part)]
    if not suspicious:
        return
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import transient_settings

    with transient_settings(_settings()):
        for number, line in suspicious:
            kinds = {s.type: s.secret_value or "" for s in scan_line(_without_pragma(line))}
            for kind, value in kinds.items():
                sure = kind not in _SURE
                if sure or not _PLACEHOLDER.search(value):
                    yield number, kind, sure


@cache
def _settings() -> dict[str, Any]:
    """No filter on lines: ``pragma: allowlist secret`` is for the project's own tools, not for whom we judge."""
    return {
        "plugins_used": [{"name": name} for name in _PLUGINS.split()],
        "filters_used": [{"path": f"detect_secrets.filters.{name}"} for name in _FILTERS.split()],
    }


def _without_pragma(line: str) -> str:
    return re.sub(
        r"(?:pragma|allowlist|whitelist)[ :]*(?:allowlist|whitelist)?[ -]*(?:next)?[ -]*(?:line)?[ -]*secret",
        "",
        line,
        flags=re.IGNORECASE,
    )
