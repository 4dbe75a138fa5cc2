"""The files of a project that take effect only once the user trusts it, what each would do, and whether they have said
yes to all of it.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tui_agent.regex import regex
from tui_agent.settings.schema import ContextSettings
from tui_agent.settings.servers import listed_servers, plain_json
from tui_agent.settings.trust import (
    CLAUDE_FOLDER,
    EDITORS_SERVERS_FILE,
    PROJECT_FOLDER,
    SERVERS_FILE,
    is_refused,
    is_trusted,
    not_covered,
    project_root,
)
from tui_agent.system.regular import read_bytes
from tui_agent.text import expanded

MAX_READ: Final = 1_000_000
"""The most bytes of a settings file that are read."""
MAX_DETAILS: Final = 500
"""The most lines that are told of one file."""
CONFIG: Final = "config.json"
HOOKS: Final = "hooks.json"
_CLAUDE_SETTINGS: Final = ("settings.json", "settings.local.json")
_RUNNING: Final = (
    f"{PROJECT_FOLDER}/{CONFIG}",
    f"{PROJECT_FOLDER}/{HOOKS}",
    *(f"{CLAUDE_FOLDER}/{name}" for name in _CLAUDE_SETTINGS),
    SERVERS_FILE,
    EDITORS_SERVERS_FILE,
)
"""The files, by path from the project's root, that run something or set something by themselves."""
_MANIFEST: Final = ".claude-plugin/plugin.json"
PLUGIN_DATA: Final = "plugin-data"
"""The folder in the program's home for what plugins keep."""
_PLUGIN_NAME: Final = regex(r"[A-Za-z0-9][\w.-]{0,63}")
CLAUDE: Final = "CLAUDE.md"
INCLUDING: Final = frozenset((CLAUDE, "GEMINI.md"))
"""Instruction files whose own agents include what they name. In `AGENTS.md` an `@` means nothing to others."""
RULES: Final = f"{CLAUDE_FOLDER}/rules"
"""The folder with the rules that Claude Code reads beside its instruction file."""
_TIGHTER: Final = ("permissions.ask = ", "permissions.deny = ")
"""The lines of settings that an untrusted project may add to as well."""

_MEANING: Final = {
    "permissions": "what may happen without asking",
    "model": "which model answers",
    "models": "which models are used",
    "ollama": "where requests are sent",
    "agent": "what a turn may cost",
    "safety": "the guards",
    "watchdog": "the guards",
    "context": "what the model is shown",
    "agentic": "subtasks",
}
"""What the settings of a section are about; those of other sections change how the program works."""


_OWN: Final = {
    HOOKS: "hooks: commands that run by themselves, unconfined, as the session goes",
    "agents": "agents that the model can have do tasks, with tools, models and budgets of their own",
    "styles": "output styles: how answers are written, once one is chosen",
    "commands": "slash commands: texts that are sent to the model, and commands that they run",
}
"""Other files and folders that a project may bring, and what they do."""
_HOOK_DOES: Final = {
    "command": "runs",
    "call": "calls",
    "url": "sends the event to",
    "tool": "calls a server's tool",
    "prompt": "asks the small model",
}
"""The key with what a hook does, and how that is said."""
_HOOK_MORE: Final = ("server", "input", "headers", "allowedEnvVars")
"""Keys of a hook that say more on it."""


MAX_FRONT_HOOKS: Final = 50_000
"""The most characters of the hooks in one front matter: PyYAML reads some 160,000 a second."""
_FRONT_HOOKS: Final = regex(r"(?i:hooks)[ \t]*:(?:[ \t].*)?")
_BELOW: Final = regex(r"\s*(?:#.*)?|[ \t].*|-(?:\s.*)?")
"""A line that belongs to the key above it: empty, a comment, indented, or an item of a list."""
_WITH_FRONT: Final = ("skills", "commands", "agents")
"""Folders whose Markdown files may have hooks in their front matter."""


class BroughtFile(msgspec.Struct, frozen=True):
    """A file or folder, by path from the project's root, and what it does once the project is trusted.

    details: what it runs, and every setting and name in it, a line for each.
    """

    name: str
    does: str
    details: tuple[str, ...] = ()


class TrustAnswer(NamedTuple):
    """What the user answered about a project: they trust all of it, or refuse it, or neither.

    new: what it runs or sets beyond what they were shown when they said yes, a line for each.
    """

    trusted: bool
    refused: bool
    new: tuple[str, ...] = ()


def standing(project: Path, home: Path) -> TrustAnswer:
    """The user's answer about a project, for what it runs and sets now. Raises TrustError."""
    if not is_trusted(project, home):
        return TrustAnswer(False, is_refused(project, home))
    new = not_covered(project, home, running(project))
    return TrustAnswer(not new, False, new)


def running(project: Path) -> tuple[str, ...]:
    """All that the files of a project run and set by themselves, in a line each that begins with the file's name."""
    root = project_root(project)
    session = _document(root / _RUNNING[0]).get("session")
    plugins = session.get("plugins") if isinstance(session, dict) else None
    named = [each for each in plugins if isinstance(each, str)] if isinstance(plugins, list) else []
    places = {each: root / expanded(each) for each in named}
    return (
        *(
            f"{name}: {line}"
            for name in _RUNNING
            for line in _lines(root / name)
            if name != _RUNNING[0] or not line.startswith(_TIGHTER)
        ),
        *(
            f"{each}/{file.relative_to(plugin)}: {line}"
            for each, plugin in places.items()
            for file in plugin_hook_files(plugin)
            for written in hooks_written(file, _document(file))
            if isinstance(written, dict)
            for line in _hooks(written.get("hooks", written))
        ),
        *(f"{each}: {line}" for each, plugin in places.items() for line in plugin_starts(plugin)),
        *(
            f"{name}/{line}"
            for name, folder in ({each: root / each for each in (PROJECT_FOLDER, CLAUDE_FOLDER)} | places).items()
            for kind in _WITH_FRONT
            for line in _front_hooks(folder / kind)
        ),
        *(
            f"{each}/{line}"
            for each, plugin in places.items()
            for kind in _WITH_FRONT
            for place in plugin_places(plugin, kind)
            for line in _front_hooks(place)
        ),
    )


def plugin_manifest(plugin: Path) -> Mapping[str, object]:
    """What one of Claude Code's plugins says of itself. Reads a file."""
    return _document(plugin / _MANIFEST)


def plugin_name(plugin: Path) -> str:
    """The name that all of one of Claude Code's plugins is called after: the one it gives itself, else its folder's.

    Reads a file.
    """
    given = plugin_manifest(plugin).get("name")
    return given if isinstance(given, str) and _PLUGIN_NAME.fullmatch(given) else plugin.name


def plugin_places(plugin: Path, key: str) -> Iterator[Path]:
    """The files and folders in a plugin that its manifest names under `key`, one or a list of them. Reads a file."""
    given, top = plugin_manifest(plugin).get(key), os.path.realpath(plugin)
    for each in given if isinstance(given, list) else [given]:
        if isinstance(each, str) and Path(os.path.realpath(plugin / each)).is_relative_to(top):
            yield plugin / each


def plugin_hook_files(plugin: Path) -> tuple[Path, ...]:
    """The files in a plugin that have hooks: the usual one, those that its manifest names, and the manifest itself if
    hooks are written in it. Reads a file.
    """
    given = plugin_manifest(plugin).get("hooks")
    written = any(isinstance(each, dict) for each in (given if isinstance(given, list) else [given]))
    inside = [plugin / _MANIFEST] if written else []
    return tuple(dict.fromkeys((plugin / "hooks" / HOOKS, *plugin_places(plugin, "hooks"), *inside)))


def hooks_written(path: Path, document: object) -> list[object]:
    """The objects with hooks in a file of a plugin, whose manifest may have one or a list of them."""
    given = document.get("hooks") if isinstance(document, dict) else None
    if path.parts[-2:] != tuple(_MANIFEST.split("/")) or given is None:
        return [document]
    return [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, dict)]


def hooks_in_front(file: Path) -> object:
    """What the front matter of a Markdown file says of hooks; None: nothing. Raises OSError and ValueError."""
    data = read_bytes(file, MAX_READ)
    return hooks_in_text(data.decode(errors="replace")) if b"hooks" in data.lower() else None


def hooks_in_text(text: str) -> object:
    """The same of the text of such a file. `tools.notes.front_matter` reads the other keys, which people write in ways
    that are no YAML. Raises ValueError, saying what of it cannot be read.
    """
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    if lines[0].rstrip() != "---":
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in {"---", "..."}), 0)
    start = next((number for number, line in enumerate(lines[1:end], 1) if _FRONT_HOOKS.fullmatch(line)), 0)
    if not start:
        return None
    rest = lines[start + 1 : end]
    many = next((number for number, line in enumerate(rest) if not _BELOW.fullmatch(line)), len(rest))
    written = "\n".join([lines[start], *rest[:many]])
    if len(written) > MAX_FRONT_HOOKS:
        raise ValueError(f"they are longer than {MAX_FRONT_HOOKS:,} characters")
    return _value_of_yaml(written)


def _value_of_yaml(text: str) -> object:
    """The value of the one key of a YAML document. Raises ValueError."""
    import yaml

    # A few lines that name each other could stand for more than fits into memory.
    repeated = yaml.AnchorToken, yaml.AliasToken, yaml.TagToken
    try:
        if any(isinstance(token, repeated) for token in yaml.scan(text, yaml.SafeLoader)):
            raise ValueError("anchors, aliases and tags of YAML are not read here")
        document = yaml.load(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = f" (line {error.problem_mark.line + 1} of it)" if error.problem_mark is not None else ""
        raise ValueError(f"{error.problem or error.context or 'it is no YAML'}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).split("\n")[0]) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return next(iter(document.values())) if isinstance(document, dict) else None


def plugin_servers(plugin: Path) -> Mapping[str, object]:
    """The MCP servers of one of Claude Code's plugins, by name: in its manifest, in the file that this names, or in
    ``.mcp.json``, with a section around them or without. Reads files.
    """
    given = plugin_manifest(plugin).get("mcpServers", SERVERS_FILE)
    if isinstance(given, str):
        path = Path(os.path.realpath(plugin / given))
        document = _document(path) if path.is_relative_to(os.path.realpath(plugin)) else {}
        listed = listed_servers(document)
        given = document if listed is None else listed
    return given if isinstance(given, Mapping) else {}


def plugin_starts(plugin: Path) -> list[str]:
    """What each server of a plugin runs, or the address that is asked. Reads files."""
    return list(_servers_started(plugin_servers(plugin)))


def brought(
    folder: Path, instruction_files: Iterable[str] = ContextSettings().instruction_files
) -> tuple[BroughtFile, ...]:
    """What waits for trust, from the project's root down to `folder`; if empty, there is nothing to ask the user."""
    root, resolved = project_root(folder), folder.resolve()
    on_the_way = [place for place in (resolved, *resolved.parents) if place.is_relative_to(root)]
    names = tuple(instruction_files)
    return tuple(
        BroughtFile(str(path.relative_to(root)), does, _details(path))
        for place in reversed(on_the_way)
        for path, does in (
            *_instructions(place, names),
            *_own(place / PROJECT_FOLDER),
            *(_of_claude(root / CLAUDE_FOLDER) if place == root else ()),
            *(each for name in (SERVERS_FILE, EDITORS_SERVERS_FILE) if place == root for each in _servers(root / name)),
        )
    )


def _instructions(place: Path, names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    found = [place / name for name in names if os.path.lexists(place / name)]
    for path in found:
        parts = ", with the files that it names with an @" if path.name in INCLUDING else ""
        yield path, f"instructions that the model follows{parts}"
    if any(path.name == CLAUDE for path in found) and (place / RULES).is_dir():
        yield place / RULES, "instructions that the model follows"


def _servers(path: Path) -> Iterator[tuple[Path, str]]:
    if os.path.lexists(path):
        yield path, "names MCP servers; each starts only once you turn it on"


def _own(folder: Path) -> Iterator[tuple[Path, str]]:
    if not os.path.lexists(folder):
        return
    if not (names := _names_in(folder)):
        yield folder, "cannot be read" if names is None else "nothing yet"
    for name in names or ():
        if name == CONFIG:
            yield folder / name, _settings(folder / name)
        elif name == "skills":
            yield folder / name, _skills(folder / name)
        elif name in _OWN:
            yield folder / name, _OWN[name]
        else:
            yield folder / name, "not used by this version"


def _has_hooks(folder: Path) -> bool:
    """Whether the settings of Claude Code in its folder have hooks, for which all their variables are set."""
    return any("hooks" in _document(folder / name) for name in _CLAUDE_SETTINGS)


def _of_claude(folder: Path) -> Iterator[tuple[Path, str]]:
    """What the folder of Claude Code brings; what is not used here is not named."""
    matter = {"hooks", "env"} if _has_hooks(folder) else set()
    for name in _CLAUDE_SETTINGS:
        if matter & _document(folder / name).keys():
            yield folder / name, _OWN[HOOKS]
    for name, ours in (("agents", "agents"), ("commands", "commands"), ("output-styles", "styles")):
        if (folder / name).is_dir():
            yield folder / name, _OWN[ours]
    if (folder / "skills").is_dir():
        yield folder / "skills", _skills(folder / "skills")


def _document(path: Path) -> Mapping[str, object]:
    """The JSON object in a file, which may have comments as servers and settings may; empty if there is none."""
    from json import loads

    try:
        document = loads(plain_json(read_bytes(path, MAX_READ).decode("utf-8-sig")))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _settings(path: Path) -> str:
    document = _document(path)
    if not document:
        return "no settings, or settings that cannot be read"
    about = dict.fromkeys(_MEANING.get(str(key).split(".")[0], "how the program works") for key in document)
    return f"settings: {', '.join(about)}"


def _names_in(folder: Path) -> list[str] | None:
    """What is in a folder; None: it cannot be read."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return None


def _skills(folder: Path) -> str:
    if (names := _names_in(folder)) is None:
        return "skills that cannot be read"
    return f"skills that the model may follow: {', '.join(names)}" if names else "no skills"


def _front_hooks(path: Path) -> list[str]:
    """What the hooks in the front matter of the Markdown files of a folder, or in that of a file, run, a line each that
    begins with the path.
    """
    found: list[str] = []
    places = sorted(each for depth in ("*.md", "*/*.md") for each in path.glob(depth)) if path.is_dir() else [path]
    for file in places:
        with suppress(OSError, ValueError):
            found += (f"{file.relative_to(path.parent)}: {line}" for line in _hooks(hooks_in_front(file)))
    return found


def _details(path: Path) -> tuple[str, ...]:
    """What a file runs and sets, or the names in a folder, in full."""
    if path.is_dir():
        if (found := _names_in(path)) is None:
            return ()
        if path.name in _WITH_FRONT:
            found += _front_hooks(path)
    else:
        found = _lines(path)
    more = len(found) - MAX_DETAILS
    rest = [f"{more:,} more lines are not shown: read the file before you trust it"] if more > 0 else []
    return (*found[:MAX_DETAILS], *rest)


def _lines(path: Path) -> list[str]:
    """All that a file runs and sets."""
    if path.suffix != ".json":
        return []
    document = dict(_document(path))
    if path.name == HOOKS:
        return list(_hooks(document.get("hooks", document)))
    if path.parent.name == CLAUDE_FOLDER:
        variables = _flat(document.get("env")) if _has_hooks(path.parent) else ()
        return [*_hooks(document.get("hooks")), *(f"sets for hooks: {each}" for each in variables)]
    if path.name == CONFIG:
        servers = document.pop("mcpServers", None)
        return [*_servers_started(servers), *_flat(document)]
    return list(_servers_started(listed_servers(document)))


def _hooks(value: object, event: str = "", about: str = "") -> Iterator[str]:
    """What every hook runs or asks, with the event it runs on and the calls it is for."""
    if isinstance(value, dict):
        only = [str(value[key]) for key in ("matcher", "if") if value.get(key) not in (None, "", "*")]
        about += "".join(f" ({each})" for each in only)
        args = value.get("args")
        more = ", ".join(_flat({key: value[key] for key in _HOOK_MORE if key in value}))
        for key, does in _HOOK_DOES.items():
            if isinstance(value.get(key), str | list):
                words = value[key] if isinstance(value[key], list) else [value[key]]
                does = f"asks {value['model']}" if key == "prompt" and value.get("model") else does
                line = " ".join(map(str, [*words, *(args if isinstance(args, list) else ())]))
                yield f"{event or 'hook'}{about} {does}: {line}" + (f" ({more})" if more else "")
        for key, inner in value.items():
            if key not in _HOOK_MORE:
                yield from _hooks(inner, event or str(key), about)
    elif isinstance(value, list):
        for inner in value:
            yield from _hooks(inner, event, about)


def _servers_started(value: object) -> Iterator[str]:
    """What each MCP server runs, or the address that is asked, and all else that its description says."""
    for name, server in value.items() if isinstance(value, Mapping) else ():
        if isinstance(server, dict):
            rest = {key: each for key, each in server.items() if key not in ("command", "args", "type")}
            command, args = server.get("command", ""), server.get("args")
            words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else ())]
            line = " ".join(str(word) for word in words if word != "")
            if not line:
                address = next((rest.pop(key) for key in ("url", "httpUrl", "serverUrl") if key in rest), "?")
            more = ", ".join(_flat(rest))
            yield (f"{name} runs: {line}" if line else f"{name} is at: {address}") + (f" ({more})" if more else "")


def _flat(value: object, key: str = "") -> Iterator[str]:
    """Every setting with its value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _flat(inner, key)
    elif key:
        from json import dumps

        yield f"{key} = {dumps(value, ensure_ascii=False)}"
