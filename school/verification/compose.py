"""Docker Compose: do not replace containers that are at work, and know which port is theirs.

``refusal(line, …)`` is asked before a shell line is run: one that would change this project's containers is refused
while some of them run, because what they hold is gone afterwards. Also when docker does not answer, or not in time;
only where docker is not installed is there nothing to protect (the line itself then fails). ``publishes(…)`` says
whether one of the project's containers answers for a port. What it does not see: Compose called by a script.
No errors of its own.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from school.system import processes

PROBE_S: Final = 20.0
_OUTPUT_BYTES: Final = 64 * 1024
_CHANGING: Final = frozenset(
    {"build", "up", "down", "start", "restart", "stop", "kill", "rm", "create", "recreate"}
)
_OPTIONS_WITH_VALUE: Final = frozenset(
    {"-f", "--file", "-p", "--project-name", "--profile", "--env-file", "--project-directory", "--ansi"}
    | {"--parallel", "--progress"}
)


def calls(line: str) -> list[tuple[list[str], str]]:
    """Each call of Compose in a shell line: the words up to its options' end, and the subcommand."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        words = line.split()
    found = []
    for index, word in enumerate(words):
        name = PurePosixPath(word).name
        if name == "docker" and words[index + 1 : index + 2] == ["compose"]:
            at = index + 2
        elif name == "docker-compose":
            at = index + 1
        else:
            continue
        end = at
        while end < len(words) and words[end].startswith("-"):
            end += 2 if words[end] in _OPTIONS_WITH_VALUE else 1
        found.append((words[index:end], words[end] if end < len(words) else ""))
    return found


def refusal(line: str, *, cwd: Path, env: Mapping[str, str], marker: str) -> str:
    """Why *line* must not be run now; empty when it may be."""
    for call, subcommand in calls(line):
        if subcommand in _CHANGING and (why := _refusal(call, cwd, env, marker)):
            return f"{shlex.join(call)} {subcommand}: not run: {why}"
    return ""


def _refusal(call: list[str], cwd: Path, env: Mapping[str, str], marker: str) -> str:
    if shutil.which(call[0], path=env.get("PATH")) is None:
        return ""
    asked = shlex.join([*call, "ps"])
    done = _ask([*call, "ps", "--status", "running", "--quiet"], cwd, env, marker)
    if done.reason == "timeout":
        return f"{asked} did not answer within {PROBE_S:g} s, so nobody knows what runs"
    if done.reason or done.exit_code != 0:
        said = done.last_line or done.detail or f"exit {done.exit_code}"
        return f"{asked} does not say what runs ({said})"
    running = len(done.stdout.split())
    if running:
        return (
            f"{running} container{'s' if running > 1 else ''} of this project run{'' if running > 1 else 's'} "
            "already, and what they hold would be replaced; stop them first"
        )
    return ""


def publishes(line: str, port: int, *, cwd: Path, env: Mapping[str, str], marker: str) -> bool:
    """Whether a container of the project that *line* starts is reached through *port* of this machine."""
    started = [call for call, subcommand in calls(line) if subcommand in _CHANGING]
    return any(
        re.search(rf":{port}->", _ask([*call, "ps"], cwd, env, marker).stdout.decode("utf-8", "replace"))
        for call in started
    )


def _ask(argv: list[str], cwd: Path, env: Mapping[str, str], marker: str) -> processes.Finished:
    limits = processes.RunLimits(timeout_s=PROBE_S, output_bytes=_OUTPUT_BYTES, grace_s=1.0)
    return processes.run(argv, cwd=cwd, env=env, limits=limits, marker=marker)
