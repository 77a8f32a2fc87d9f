"""A command line agent asked once, by somebody who runs it himself: how it is started, and what its output says.

For reviewers (``school.review.outsider``): ``start(spec, prompt_file, folder)`` is what to run, as the preset of *spec* says,
with what it needs written below *folder*; ``understand(spec, folder, finished)`` reads its answer. An agent without a preset
has its own argv, and its answer is what it prints. The end of a turn that a CLI did not report itself is no answer,
whatever it printed.

Errors: ConfigError for a preset that there is not; MachineError when *folder* cannot be written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from school.agents import presets
from school.agents.presets.base import Preset, Said, Setting, Start
from school.contracts import AgentSpec, Answer
from school.system import clock, files
from school.system.foreign import Finished

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024


def start(spec: AgentSpec, prompt_file: Path, folder: Path) -> Start:
    """What to run; the prompt already lies in *prompt_file*."""
    if not spec.preset:
        values = {"{prompt_file}": str(prompt_file), "{model}": spec.model}
        return Start([_filled(word, values) for word in spec.argv], stdin=spec.prompt == "stdin")
    preset = presets.find(spec.preset)
    setting = Setting(
        spec=spec,
        home=files.ensure_dir(folder / "home"),
        out=files.ensure_dir(folder / "out"),
        prompt_file=prompt_file,
        prompt=prompt_file.read_text("utf-8"),
        key=os.environ.get(spec.api_key_env, "") if spec.api_key_env else "",
    )
    started = preset.start(setting)
    for path, content in started.files.items():
        files.ensure_dir(path.parent)
        files.write_atomic(path, content.encode())
    places = {name: os.environ[name] for name in preset.locations if name in os.environ}
    return Start(started.argv, stdin=started.stdin, env={**places, **started.env})


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def understand(spec: AgentSpec, folder: Path, finished: Finished) -> Answer:
    """What the agent answered; ``reason`` says why it did not."""
    if not spec.preset:
        return Answer(text=finished.stdout.decode("utf-8", "backslashreplace"), model=spec.model)
    preset = presets.find(spec.preset)
    reading = preset.read(_said(preset, folder, finished))
    answer = Answer(model=spec.model or spec.name, usage=reading.usage)
    last = reading.errors[-1] if reading.errors else ""
    if reading.reason:
        answer.reason, answer.detail = reading.reason, reading.detail or last
        answer.retry_at = reading.retry_at
    elif not reading.ended:
        answer.reason, answer.detail = (
            "exit",
            f"{spec.name} reported no end of its turn" + (last and f": {last}"),
        )
    else:
        answer.text = reading.answer
    return answer


def _said(preset: Preset, folder: Path, finished: Finished) -> Said:
    results: dict[str, bytes] = {}
    for name in preset.results:
        try:
            found = files.read_bytes(folder / "out" / name, limit_bytes=RESULT_BYTES_MAX)
        except ValueError:  # a link, or too large: nothing that can be believed
            found = None
        results[name] = found or b""
    return Said(
        now=clock.parse(clock.now()),
        stdout=finished.stdout,
        stderr=finished.stderr,
        exit_code=finished.exit_code,
        files=results,
    )
