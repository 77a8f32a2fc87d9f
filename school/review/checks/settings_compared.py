"""Configuration before and after, as far as it decides what a check sees: which settings changed, and of what tool.

``changed_settings(path, before, after)`` reads TOML, INI, JSON and makefiles and names each setting that differs,
with the tool that it steers (``pytest``, ``ruff``, ``make`` …). Where a file cannot be read, it is named as a whole.
"""

from __future__ import annotations

import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from school.guarded import words

# Sections by which a check's result is made; other parts of such a file (a version, a dependency) are not.
_TOOLS: Final = words(
    "pytest tox nox coverage ruff mypy pyright flake8 pylint isort black bandit codespell pydocstyle interrogate"
    " unittest jest mocha vitest nyc c8 eslintConfig prettier scripts ava hatch pdm poe taskipy setuptools_scm"
    " pycodestyle testenv"
)
_JSON_SECTIONS: Final = frozenset({"scripts", "jest", "mocha", "nyc", "ava", "eslintConfig", "vitest", "c8"})
_INI_TESTS: Final = frozenset({"pytest", "tool:pytest", "nosetests", "unittest"})
_WHOLE: Final = {
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pytest.toml": "pytest",
    ".pytest.toml": "pytest",
    "ruff.toml": "ruff",
    ".ruff.toml": "ruff",
    "mypy.ini": "mypy",
    ".mypy.ini": "mypy",
    ".flake8": "flake8",
    ".pylintrc": "pylint",
    "pylintrc": "pylint",
    ".coveragerc": "coverage",
    ".codespellrc": "codespell",
    "tox.toml": "tox",
    "pyrightconfig.json": "pyright",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that differs: of which tool, its name, both values as text."""

    tool: str
    key: str
    before: str
    after: str


def changed_settings(path: str, before: str | None, after: str | None) -> list[Setting]:
    """What differs between two versions of a configuration file; absent counts as empty."""
    name = posixpath.basename(path)
    try:
        old, new = _read(name, before or ""), _read(name, after or "")
    except (ValueError, configparser.Error, RecursionError):
        return [Setting(_WHOLE.get(name, name), "the whole file", "", "")]
    keys = sorted({*old, *new})
    return [
        Setting(*_tool_and_key(name, key), old.get(key, ""), new.get(key, ""))
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _tool_and_key(name: str, key: str) -> tuple[str, str]:
    tool, _, rest = key.partition("\0")
    return _WHOLE.get(name, tool), rest or tool


def _read(name: str, text: str) -> dict[str, str]:
    lowered = name.lower()
    if lowered.endswith(".toml"):
        return dict(_toml(name, tomllib.loads(text)))
    if lowered.endswith(".json"):
        loaded = json.loads(text) if text.strip() else {}
        return dict(_flat(loaded, "")) if lowered != "package.json" else dict(_json(loaded))
    if lowered in {"makefile", "gnumakefile"} or lowered.startswith("makefile.") or lowered.endswith(".mk"):
        return _makefile(text)
    if lowered.endswith((".ini", ".cfg", "rc")) or name == ".flake8":
        return dict(_ini(name, text))
    return {f"{name}\0content": text}


def _toml(name: str, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if name in _WHOLE:
        yield from ((f"{_WHOLE[name]}\0{key}", value) for key, value in _flat(data, ""))
        return
    for tool, section in (data.get("tool") or {}).items():
        if tool in _TOOLS:
            yield from ((f"{tool}\0{key}", value) for key, value in _flat(section, ""))
    yield from ((f"build-system\0{key}", value) for key, value in _flat(data.get("build-system") or {}, ""))
    if name == "school.toml":
        yield from ((f"school\0{key}", value) for key, value in _flat(data, ""))
    entries = (data.get("project") or {}).get("entry-points") or {}
    yield from ((f"entry-points\0{key}", value) for key, value in _flat(entries, ""))


def _flat(data: Any, prefix: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON is any of them
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix or "value", json.dumps(data, default=str, ensure_ascii=False)


def _json(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for section in _JSON_SECTIONS & set(data):
        yield from ((f"{section}\0{key}", value) for key, value in _flat(data[section], ""))


def _ini(name: str, text: str) -> Iterator[tuple[str, str]]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text if text.lstrip().startswith("[") or not text.strip() else f"[{name}]\n{text}")
    for section in parser.sections():
        tool = re.split(r"[:.\-]", section.removeprefix("tool:"))[0]
        if (
            name == "setup.cfg"
            and tool not in _TOOLS
            and section not in _INI_TESTS
            and section != "options.entry_points"
        ):
            continue
        for key, value in parser.items(section):
            yield f"{tool}\0{section}.{key}", value or ""


def _makefile(text: str) -> dict[str, str]:
    """Each target with its recipe, each variable with its value."""
    found: dict[str, str] = {}
    target = ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            found[target] = found.get(target, "") + line.strip() + "\n"
        elif line.strip() and not line.startswith("#"):
            head = re.match(r"([^:=\s][^:=]*?)\s*(?:::?(?!=)|[:+?!]?=)", line)
            target = f"make\0{head[1] if head else line.strip()}"
            found[target] = found.get(target, "") + line.strip() + "\n"
    return found
