"""Which paths of a project are guarded, which are tests, which are sources, and what a task allows.

Guarded files are those by which work is judged or steered: tests, the configuration of tests and builds, CI,
and files that instruct agents. A change there is only in order where the task's ``allow`` *names* them
(``named``), which a sweeping ``**`` does not.

Everything here is decided by the path alone, without looking into files, so that whoever does the work and
whoever judges it come to the same answer. Paths are relative to the repository's root, with ``/``. What it does
not promise: a project may keep tests under names that nobody could guess; those count as sources.

``is_test(path)``, ``is_guarded(path)`` (the reason, or ''), ``is_source(path)``, ``is_prose(path)``,
``allowed(path, allow)``, ``named(path, allow)``, ``permitted(path, allow)``. No errors are raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

TEST: Final = "test"
TEST_CONFIG: Final = "test configuration"
BUILD: Final = "build configuration"
TOOL_CONFIG: Final = "tool configuration"
CI: Final = "CI"
INSTRUCTIONS: Final = "instructions for agents"
STARTUP: Final = "loaded by itself at start-up"
GIT: Final = "git configuration"


def words(text: str) -> frozenset[str]:
    """The words of *text*; a table in prose is read more easily than a column of literals."""
    return frozenset(text.split())


def _globs(text: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """One expression for many globs over a single name; in any case, for file systems that fold it."""
    return re.compile("|".join(translate(glob) for glob in text.split()), flags)


_SOURCES: Final = words("""
    .py .pyi .pyx .pxd .js .jsx .mjs .cjs .ts .tsx .mts .cts .vue .svelte .go .rs .java .kt .kts .scala .groovy
    .rb .php .c .h .cc .cpp .cxx .hh .hpp .hxx .m .mm .cs .fs .vb .swift .lua .ex .exs .erl .hs .ml .mli .clj
    .cljs .pl .pm .r .jl .dart .zig .nim .cr .d .f90 .sh .bash .zsh .fish .ps1 .sql .awk
""")
_PROSE: Final = words(".md .markdown .mdx .rst .txt .text .adoc .asciidoc .org .tex")
_PROSE_NAMES: Final = words("""
    license licence notice authors contributors changelog changes history news readme copying todo thanks
""")

_TEST_FOLDERS: Final = words("test tests __tests__ __mocks__ __snapshots__ spec specs testdata e2e")
# The case counts here: Latest.java is no test.
_TEST_FILES: Final = _globs(
    """
    test_*.py *_test.py *_tests.py tests.py test.py test.[jt]s tests.[jt]s test.[cm][jt]s test_*.pyi *.test.?s *.test.?sx *.spec.?s *.spec.?sx
    *.test.m?s *.test.c?s *.spec.m?s *.spec.c?s *_test.go *_spec.rb *_test.rb test_*.rb *Test.java *Tests.java
    *IT.java *Test.kt *Tests.kt *Spec.scala *Test.scala *Test.php *Tests.cs *Test.cs *_test.exs *_test.dart
    *_test.cc *_test.cpp *_unittest.cc *_test.c test_*.c test_*.cpp *_test.rs tests.rs test_*.sh *_test.sh
    *.bats *.doctest
    """,
    re.NOFLAG,
)
_TEST_CONFIG: Final = """
    conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini tox.toml noxfile.py .coveragerc
    nose.cfg unittest.cfg jest.config.* vitest.config.* vitest.workspace.* karma.conf.* .mocharc* ava.config.*
    playwright.config.* cypress.config.* cypress.json wdio.conf.* jest.setup.* setupTests.* .nycrc* .rspec
    phpunit.xml* run_tests.* run-tests.* runtests.* run_test.* runtests codecov.yml .codecov.yml testem.*
    behave.ini cucumber.* .taprc
"""
_BUILD: Final = """
    pyproject.toml setup.py setup.cfg requirements*.txt requirements*.in constraints*.txt Pipfile Pipfile.lock
    poetry.lock uv.lock uv.toml pdm.lock pdm.toml pixi.toml pixi.lock pylock.toml pylock.*.toml hatch.toml
    environment.yml environment.yaml conda-lock.yml MANIFEST.in meson.build meson_options.txt CMakeLists.txt
    *.cmake Makefile GNUmakefile Makefile.* *.mk justfile .justfile Taskfile.yml Taskfile.yaml Rakefile Gemfile
    Gemfile.lock package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml
    pnpm-workspace.yaml bun.lock bun.lockb bunfig.toml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs lerna.json
    nx.json turbo.json tsconfig.json tsconfig.*.json jsconfig.json babel.config.* .babelrc* webpack.config.*
    vite.config.* rollup.config.* esbuild.config.* deno.json deno.jsonc Cargo.toml Cargo.lock build.rs
    rust-toolchain rust-toolchain.toml go.mod go.sum go.work go.work.sum pom.xml build.gradle build.gradle.kts
    settings.gradle settings.gradle.kts gradle.properties gradlew gradlew.bat mvnw mvnw.cmd build.sbt build.xml
    composer.json composer.lock mix.exs mix.lock *.csproj *.sln Directory.Build.* BUILD BUILD.bazel WORKSPACE
    WORKSPACE.bazel MODULE.bazel .bazelrc configure configure.ac Makefile.am Dockerfile Dockerfile.*
    Containerfile docker-compose*.yml docker-compose*.yaml compose.yml compose.yaml .python-version
    .node-version .nvmrc .ruby-version .tool-versions .mise.toml mise.toml flake.nix flake.lock shell.nix
    school.toml school-tasks.yaml Procfile
"""
_TOOL_CONFIG: Final = """
    ruff.toml .ruff.toml mypy.ini .mypy.ini pyrightconfig.json .flake8 .pylintrc pylintrc .isort.cfg .bandit
    .pre-commit-config.yaml .pre-commit-hooks.yaml .eslintrc* eslint.config.* .eslintignore .prettierrc*
    prettier.config.* .stylelintrc* biome.json biome.jsonc .golangci.* clippy.toml .clippy.toml rustfmt.toml
    .rustfmt.toml .rubocop.yml .codespellrc .semgrepignore .secrets.baseline
"""
_STARTUP: Final = "sitecustomize.py usercustomize.py *.pth *.egg-link .env .envrc .env.local .env.test .pdbrc"
_INSTRUCTIONS: Final = """
    AGENTS.md AGENTS.override.md AGENT.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md CODEX.md HERMES.md .hermes.md
    SOUL.md SKILL.md COPILOT.md copilot-instructions.md *.instructions.md *.prompt.md .cursorrules .windsurfrules
    .clinerules .goosehints .aider.conf.yml .aiderignore .mcp.json llms.txt opencode.json
"""
_CI: Final = """
    .gitlab-ci.yml .travis.yml appveyor.yml .appveyor.yml azure-pipelines*.yml Jenkinsfile bitbucket-pipelines.yml
    .drone.yml .cirrus.yml .cirrus.star buildspec.yml cloudbuild.yaml .woodpecker.yml renovate.json
    .renovaterc* dependabot.yml CODEOWNERS .readthedocs.yml .readthedocs.yaml wercker.yml netlify.toml
    vercel.json .releaserc*
"""
_IN_FOLDERS: Final = (
    (
        INSTRUCTIONS,
        _globs("""
            .claude .cursor .windsurf .codex .gemini .agents .agent .hermes .clinerules .roo .continue .kiro
            .opencode .aider .amazonq .junie .trae .goose .qwen
        """),
    ),
    (
        CI,
        _globs("""
            .github .gitlab .circleci .buildkite .woodpecker .drone .azure-pipelines .azuredevops .teamcity .ci
            .gitea .forgejo .husky .githooks
        """),
    ),
    (STARTUP, _globs("*.dist-info *.egg-info .venv venv site-packages node_modules")),
    (TOOL_CONFIG, _globs(".vscode .idea .devcontainer .cargo")),
)
_BY_NAME: Final = (
    (INSTRUCTIONS, _globs(_INSTRUCTIONS)),
    (CI, _globs(_CI)),
    (STARTUP, _globs(_STARTUP)),
    (TEST_CONFIG, _globs(_TEST_CONFIG)),
    (BUILD, _globs(_BUILD)),
    (TOOL_CONFIG, _globs(_TOOL_CONFIG)),
    (GIT, _globs(".gitattributes .gitmodules .lfsconfig .gitconfig")),
)
_REQUIREMENTS: Final = re.compile(
    r"(?:.*/)?requirements/[^/]+\.(?:txt|in)|(?:.*/)?gradle/wrapper/.*", re.DOTALL
)


@lru_cache(maxsize=16_384)
def is_test(path: str) -> bool:
    """Whether *path* belongs to the tests: by its name, or because it lies in a folder of tests (data too)."""
    *folders, name = path.split("/")
    return any(f.lower() in _TEST_FOLDERS for f in folders) or _TEST_FILES.fullmatch(name) is not None


@lru_cache(maxsize=16_384)
def is_guarded(path: str) -> str:
    """Why *path* is guarded, or '' if it is not."""
    *folders, name = path.split("/")
    for reason, globs in _IN_FOLDERS:
        if any(globs.fullmatch(folder) for folder in folders):
            return reason
    for reason, globs in _BY_NAME:
        if globs.fullmatch(name):
            return reason
    if is_test(path):
        return TEST
    return BUILD if _REQUIREMENTS.fullmatch(path) else ""


@lru_cache(maxsize=16_384)
def is_source(path: str) -> bool:
    """Whether *path* is program text that does the project's work (a known language, and not guarded)."""
    return PurePosixPath(path).suffix.lower() in _SOURCES and not is_guarded(path)


@lru_cache(maxsize=16_384)
def is_prose(path: str) -> bool:
    """Whether *path* is written for people only: documentation, a licence, a change log."""
    pure = PurePosixPath(path)
    if is_guarded(path):
        return False
    return pure.suffix.lower() in _PROSE or (not pure.suffix and pure.name.lower() in _PROSE_NAMES)


# --- what a task allows -----------------------------------------------------------------------------------


def _segment(text: str) -> str:
    """One path component of a glob as a regular expression."""
    out, i = "", 0
    while i < len(text):
        char = text[i]
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := text.find("]", i + 2)) > 0:
            body = text[i + 1 : end].replace("\\", "\\\\")
            out += f"[{'^' + body[1:] if body[0] in '!^' else body}]"
            i = end
        elif char == "\\" and i + 1 < len(text):
            i += 1
            out += re.escape(text[i])
        else:
            out += re.escape(char)
        i += 1
    return out


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A gitignore-like glob: anchored if it holds a slash that is not its last; a folder means all below it."""
    body = pattern.removesuffix("/")
    anchored = "/" in body
    parts = [part for part in body.split("/") if part not in ("", ".")]
    out = "" if anchored else "(?:.*/)?"
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out += ".+" if last else "(?:[^/]+/)*"
        else:
            out += _segment(part) + ("" if last else "/")
    try:
        return re.compile(out + "(?:/.*)?", re.DOTALL)
    except re.error:  # A malformed range such as [z-a]: git treats the glob as one that matches nothing.
        return re.compile(r"(?!)")


def _matches(path: str, pattern: str) -> bool:
    return _compiled(pattern).fullmatch(path) is not None


def _unsafe(path: str) -> bool:
    return not path or path.startswith("/") or any(part in ("..", ".git") for part in path.split("/"))


def allowed(path: str, allow: Sequence[str]) -> bool:
    """Whether *path* is among what *allow* lists. Empty allows everything; a later ``!glob`` takes back."""
    if _unsafe(path):
        return False
    verdict = not allow or all(pattern.startswith("!") for pattern in allow)
    for pattern in allow:
        if _matches(path, pattern.removeprefix("!")):
            verdict = not pattern.startswith("!")
    return verdict


def _names_guarded(pattern: str) -> bool:
    """Whether a glob means guarded files and not merely sweeps over them: it still reads as one, wildcards filled in."""
    example = re.sub(r"\*+|\?|\[[^\]]*\]", "x", pattern.strip("/"))
    return bool(is_guarded(example) or is_guarded(example + "/x"))


def named(path: str, allow: Sequence[str]) -> bool:
    """Whether *allow* names this guarded *path*: ``tests/**`` and ``pyproject.toml`` do, ``**`` and ``src/**`` do not."""
    verdict = False
    for pattern in allow:
        if pattern.startswith("!"):
            verdict = verdict and not _matches(path, pattern[1:])
        elif _matches(path, pattern) and (pattern.strip("/") == path or _names_guarded(pattern)):
            verdict = True
    return verdict and not _unsafe(path)


def permitted(path: str, allow: Sequence[str]) -> bool:
    """Whether an *existing* file may be changed: allowed, and named where it is guarded."""
    return allowed(path, allow) and (not is_guarded(path) or named(path, allow))
