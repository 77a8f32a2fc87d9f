"""``plugins.enabled`` of a Hermes home's ``config.yaml``: read it, and add one name to it with everything else left as it is.

``enabled(path, name)`` is "on", "off" or "disabled" (named in ``plugins.disabled``, which wins in Hermes). ``enable(path,
name)`` adds the name where it is missing, as one insertion into the text: comments, order, quotes and line ends stay. Before
the file is replaced the new text is read again and must say the old settings plus the name, nothing else; the old file is
kept beside it, and its name returned ('' when nothing was to be done). A file that is a symlink is edited where it lies.

Errors: ConfigError when the file is no YAML, no mapping, or writes its plugins in a way that cannot be added to (aliases, a
single word where a list is due): it is left as it was, and the message says what to write by hand. MachineError.
"""

from __future__ import annotations

import copy
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from school.errors import ConfigError
from school.system import clock, files

if TYPE_CHECKING:
    import yaml

ENABLED: Final = "on"
OFF: Final = "off"
DISABLED: Final = "disabled"


def enabled(path: Path, name: str) -> str:
    """Whether Hermes would load the plugin *name*; ConfigError when it could not read *path* at all."""
    plugins = _loaded(path, _text(path)).get("plugins")
    plugins = plugins if isinstance(plugins, dict) else {}
    if name in _names(plugins.get("disabled")):
        return DISABLED
    return ENABLED if name in _names(plugins.get("enabled")) else OFF


def enable(path: Path, name: str) -> str:
    """Add *name* to ``plugins.enabled``; where the file before it lies, '' when there was nothing to do."""
    path = path.resolve()
    text = _text(path)
    before = _loaded(path, text)
    plugins = before.get("plugins")
    if isinstance(plugins, dict) and name in _names(plugins.get("enabled")):
        return ""
    after = _inserted(path, text, name)
    _confirm(path, before, after, name)
    backup = _backup(path, text)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else files.FILE_MODE
    files.write_atomic(path, after.encode(), mode=mode)
    return backup


def _names(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(path: Path) -> str:
    try:
        raw = files.read_bytes(path, follow=True)
        return (raw or b"").decode("utf-8")
    except ValueError as cause:
        raise ConfigError(f"{path}: cannot be read: {cause}") from cause


def _loaded(path: Path, text: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as cause:
        raise ConfigError(
            f"{path} is no valid YAML, so Hermes ignores all of it; mend it first: {_where(cause)}"
        ) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no mapping of settings; it was left as it is")
    return found


def _where(cause: yaml.YAMLError) -> str:
    mark, problem = getattr(cause, "problem_mark", None), getattr(cause, "problem", None)
    line = f"line {mark.line + 1}: " if mark else ""
    return line + (problem or " ".join(str(cause).split()))


def _inserted(path: Path, text: str, name: str) -> str:
    """*text* with *name* in ``plugins.enabled``, by one insertion."""
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    newline = "\r\n" if "\r\n" in text else "\n"
    block = f"plugins:{newline}  enabled:{newline}    - {name}{newline}"
    if root is None:
        return _on_a_line(text, newline) + block
    assert isinstance(root, yaml.MappingNode)
    plugins = _child(root, "plugins")
    if plugins is None:
        if root.flow_style:
            return _into_flow(text, root, f"plugins: {{enabled: [{name}]}}")
        return _on_a_line(text[: _end(text, root)], newline) + block + text[_end(text, root) :]
    return _into_plugins(path, text, plugins, name, newline)


def _into_plugins(path: Path, text: str, found: tuple[yaml.Node, yaml.Node], name: str, newline: str) -> str:
    import yaml

    key, plugins = found
    if _is_null(plugins):
        return _after_key(text, key, f" {{enabled: [{name}]}}")
    if not isinstance(plugins, yaml.MappingNode) or plugins.start_mark.index < key.end_mark.index:
        raise _by_hand(path, "plugins", name)
    listed = _child(plugins, "enabled")
    if listed is None:
        if plugins.flow_style:
            return _into_flow(text, plugins, f"enabled: [{name}]")
        at, indent = plugins.start_mark.index, " " * plugins.start_mark.column
        return f"{text[:at]}enabled:{newline}{indent}  - {name}{newline}{indent}{text[at:]}"
    return _into_list(path, text, *listed, name, newline)


def _into_list(path: Path, text: str, key: yaml.Node, listed: yaml.Node, name: str, newline: str) -> str:
    import yaml

    if _is_null(listed):
        return _after_key(text, key, f" [{name}]")
    if not isinstance(listed, yaml.SequenceNode) or listed.start_mark.index < key.end_mark.index:
        raise _by_hand(path, "plugins.enabled", name)
    if listed.flow_style:
        return _into_flow(text, listed, name)
    last = _end(text, listed)
    indent = " " * listed.start_mark.column
    return f"{_on_a_line(text[:last], newline)}{indent}- {name}{newline}{text[last:]}"


def _child(mapping: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value of *name*; of several the last, which is the one that counts."""
    return next(((key, value) for key, value in reversed(mapping.value) if key.value == name), None)


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _after_key(text: str, key: yaml.Node, value: str) -> str:
    """*text* with *value* for *key*, which has none, or one that says null."""
    at = key.end_mark.index
    found = re.compile(r"[ \t]*:(?:[ \t]+(?:null|Null|NULL|~)(?=[ \t\r\n]|$))?").match(text, at)
    end = found.end() if found else at
    return f"{text[:at]}:{value}{text[end:]}"


def _into_flow(text: str, node: yaml.CollectionNode, value: str) -> str:
    """*text* with *value* at the end of a collection in brackets."""
    at = node.end_mark.index - 1
    before = text[:at].rstrip()
    comma = "" if not node.value or before.endswith(",") else ","
    space = " " if node.value else ""
    return f"{before}{comma}{space}{value}{text[at:]}"


def _end(text: str, node: yaml.CollectionNode) -> int:
    """Where a block's last item ends, with the rest of its line: what comes behind may be comments of others."""
    last: yaml.Node = node
    while isinstance(last.value, list) and last.value and not getattr(last, "flow_style", False):
        item = last.value[-1]
        last = item[1] if isinstance(item, tuple) else item
    at = last.end_mark.index
    # The end of a block scalar is the beginning of the next line.
    if at and text[at - 1] == "\n":
        return at
    line_end = text.find("\n", at)
    return len(text) if line_end < 0 else line_end + 1


def _on_a_line(text: str, newline: str) -> str:
    """*text*, so that what follows begins a line."""
    return text if not text or text.endswith("\n") else text + newline


def _by_hand(path: Path, key: str, name: str) -> ConfigError:
    return ConfigError(
        f"{path}: {key} is written in a way that cannot be added to; add {name} to plugins.enabled by hand"
    )


def _confirm(path: Path, before: dict[str, Any], after: str, name: str) -> None:
    """The new text says what the old one did, and the name; anything else is not written."""
    import yaml

    wanted = copy.deepcopy(before)
    plugins = wanted.get("plugins") or {}
    plugins["enabled"] = [*(plugins.get("enabled") or []), name]
    wanted["plugins"] = plugins
    try:
        same = yaml.safe_load(after) == wanted
    except yaml.YAMLError:
        same = False
    if not same:
        raise _by_hand(path, "it", name)


def _backup(path: Path, text: str) -> str:
    """A copy of the file as it was, under a name that nothing has; '' when there was none."""
    if not path.exists():
        return ""
    stamp = re.sub(r"[^0-9]", "", clock.now())[:20]
    backup = path.with_name(f"{path.name}.before-schoolhouse.{stamp}")
    files.create_atomic(backup, text.encode(), mode=stat.S_IMODE(path.stat().st_mode))
    return str(backup)
