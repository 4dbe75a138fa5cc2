"""Reads hooks from files: our `hooks.json`, the `hooks` in the settings of Claude Code and in its plugins, and those in
the front matter of skills, commands and agents.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.agent.extensions.claude import names_of
from tui_agent.agent.extensions.files import (
    AGENTS,
    COMMANDS,
    ExtensionFolder,
    Source,
    contents,
    named_files,
    signature,
    skill_folders,
)
from tui_agent.regex import regex
from tui_agent.settings.brought import hooks_in_front, hooks_written, plugin_hook_files
from tui_agent.settings.servers import plain_json
from tui_agent.text import error_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.rules import SHELL, Rule, catching_line
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.skills import signature_of, skill_files, skills_signature

Event: TypeAlias = Literal[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "Notification",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Stop",
    "SessionEnd",
    "FileChanged",
    "WorktreeCreate",
    "WorktreeRemove",
]
EVENTS: Final[dict[Event, str]] = {
    "SessionStart": "before the first turn, and after a summary (`compact`); its output goes to the model",
    "UserPromptSubmit": "before your message is added; may refuse it, or tell the model more",
    "PreToolUse": "before a tool call; may refuse or allow it, have you asked about it, or change its arguments",
    "PermissionRequest": "before you are asked about a call; may answer in your place",
    "PostToolUse": "after a tool call that worked; may tell the model more",
    "PostToolUseFailure": "after a tool call that failed; may tell the model more",
    "Notification": "when you are asked something (`permission_prompt`)",
    "SubagentStart": "before a subtask begins; its output goes to the subtask's model",
    "SubagentStop": "before a subtask ends; may make it go on",
    "PreCompact": "before a summary is written; may prevent it, or add to what it is asked to keep",
    "PostCompact": "after a summary was entered",
    "Stop": "before a turn ends; may make it go on",
    "SessionEnd": "when the session is closed",
    "FileChanged": "when a file of the session's folder that the matcher names has changed, whoever did it",
    "WorktreeCreate": "in place of git, when `--worktree` makes one; the last line it prints is the folder",
    "WorktreeRemove": "before the worktree of a session is removed",
}
"""What each event is about."""

ELSEWHERE: Final = frozenset(
    (
        *("Setup", "ConfigChange", "CwdChanged", "DirectoryAdded", "Elicitation", "ElicitationResult"),
        *("InstructionsLoaded", "MessageDisplay", "PermissionDenied", "PostToolBatch", "StopFailure", "TaskCompleted"),
        *("TaskCreated", "TeammateIdle", "UserPromptExpansion"),
    )
)
"""Events of Claude Code that do not occur here: their hooks are listed, and never run."""

TIMEOUT_S: Final = 600.0
"""The default, and the most."""
PROMPT_TIMEOUT_S: Final = 30.0
"""The default for hooks of the type ``prompt``, and on `UserPromptSubmit`."""
LOOKING_TIMEOUT_S: Final = 60.0
"""The default for hooks of the type ``agent``."""
END_TIMEOUT_S: Final = 5.0
"""The default for `SessionEnd`, so that closing does not wait long."""

_KEYS: Final = {
    "command": "command",
    "python": "call",
    "prompt": "prompt",
    "agent": "prompt",
    "http": "url",
    "mcp_tool": "tool",
}
"""The key with what a hook of each type does."""

_WANTED: Final = (
    "a hook is a `command`, of the type `prompt` or `agent` a `prompt`, of the type `http` a `url`, of the type "
    "`mcp_tool` a `server` and a `tool`, or of the type `python` a `call` like module:function, and its `timeout` is a "
    "number of seconds above 0."
)
_OURS: Final = "hooks.json"
_SETTINGS: Final = ("settings.json", "settings.local.json")
_CALL_PYTHON: Final = (
    "import importlib, json, sys; _, module, name = sys.argv[1:]; "
    "said = getattr(importlib.import_module(module), name)(json.load(sys.stdin)); "
    "print(json.dumps(said) if said is not None else '')"
)
_PLACES: Final = regex(r"(\$\{CLAUDE_(?:PROJECT_DIR|PLUGIN_ROOT|PLUGIN_DATA|SKILL_DIR)\})")
"""Variables that are filled in also in a program and arguments for which no shell is meant to be."""
_OF_SKILL: Final = regex(r"\$(?:\{CLAUDE_(?:SKILL_DIR|PLUGIN_ROOT)\}|CLAUDE_(?:SKILL_DIR|PLUGIN_ROOT)\b)")
OF_CALLS: Final = frozenset(("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"))
"""Events about a call: on others a hook with a rule never runs."""
_NAMES: Final = r"[\w|, -]*"
"""A matcher of only these characters lists whole names; any other is a regular expression, found anywhere in a name."""


class PostAction(msgspec.Struct, frozen=True):
    """An address that gets the event; `variables` are those of the environment that its headers may have."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    variables: frozenset[str] = frozenset()


class ServerToolAction(msgspec.Struct, frozen=True):
    """A tool of an MCP server, with its arguments as JSON text."""

    server: str
    tool: str
    input: str


class Hook(msgspec.Struct, frozen=True):
    """One hook, for subjects that match `matcher` (empty: all): a command line, a `prompt` for the small model, or for
    a subtask that `looks` at files first (or for `model`), an address to `post` to, or a server's tool to `use`.

    only_if: a rule such as ``Bash(git *)`` that the call has to match as well. waits: whether its answer is waited for.
    root: the folder of the plugin it is from; skill: that of the skill. goes_on: the turn does, when it refuses by a
    prompt. variables: what the settings that it is from add to its environment. once: it has run for good once it has
    worked.
    """

    event: Event
    command: str
    matcher: str
    timeout: float
    source: Source
    file: Path
    name: str
    prompt: str = ""
    only_if: str = ""
    waits: bool = True
    root: Path | None = None
    goes_on: bool = False
    looks: bool = False
    model: str = ""
    post: PostAction | None = None
    use: ServerToolAction | None = None
    variables: tuple[tuple[str, str], ...] = ()
    once: bool = False
    skill: Path | None = None

    @property
    def line(self) -> str:
        """Its command line, with its skill's folder filled in."""
        return _OF_SKILL.sub(lambda _: str(self.skill), self.command) if self.skill is not None else self.command

    @property
    def does(self) -> str:
        if self.post is not None:
            headers = ", ".join(f"{name}: {value}" for name, value in self.post.headers)
            return f"sends the event to {self.post.url}{f' ({headers})' if headers else ''}"
        if self.use is not None:
            return f"calls the tool {self.use.tool} of the server {self.use.server} with {self.use.input}"
        model = self.model or "the small model"
        if self.looks:
            return f"has a subtask of {model} that reads files decide: {self.prompt}"
        return f"asks {model}: {self.prompt}" if self.prompt else f"runs, unconfined: {self.command}"

    def wants(self, event: Event, subjects: Sequence[str], about: str = "") -> bool:
        """Whether to run it for this event. subjects: what the event is about by all its names, such as a tool's; none:
        nothing. about: the command line or path of a call.
        """
        if self.event != event:
            return False
        if self.only_if and not (event in OF_CALLS and _matches_rule(self.only_if, subjects, about)):
            return False
        if self.matcher in {"", "*"} or not subjects:
            return True
        if event == "FileChanged" or re.fullmatch(_NAMES, self.matcher):
            return not {name.strip() for name in re.split(r"[|,]", self.matcher)}.isdisjoint(subjects)
        return any(re.search(self.matcher, subject) is not None for subject in subjects)


Scope: TypeAlias = Literal["skill", "command", "agent"]
"""What hooks in a front matter are bound to."""


class ScopedHooks(NamedTuple):
    """The hooks in the front matter of a file, which run only while what it describes is used: those of a skill or
    command from its first use in a session on, those of an agent in its subtasks.
    """

    kind: Scope
    name: str
    file: Path
    hooks: tuple[Hook, ...]

    @property
    def when(self) -> str:
        return f"in subtasks of the agent {self.name}" if self.kind == "agent" else f"once {self.name} is used"


class FoundHooks(NamedTuple):
    """All hooks that always run, those that never run here as ``EVENT, name``, the problems of their files, and the
    hooks that run while something is used.
    """

    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    scoped: tuple[ScopedHooks, ...] = ()

    def every(self) -> Iterator[Hook]:
        yield from self.hooks
        for each in self.scoped:
            yield from each.hooks


def files_of(root: ExtensionFolder) -> tuple[Path, ...]:
    """The files in a folder of extensions that may have hooks."""
    if root.kind == "plugin":
        return plugin_hook_files(root.folder)
    return tuple(root.folder / name for name in ((_OURS,) if root.kind == "own" else _SETTINGS))


def hooks_signature(extensions: Sequence[ExtensionFolder]) -> tuple[object, ...]:
    """A value that changes whenever one of the files does."""
    return (
        *(signature_of(file) for root in extensions for file in files_of(root)),
        *signature(tuple(extensions), AGENTS, COMMANDS),
        *skills_signature(each for root in extensions for each in skill_folders(root)),
    )


def read_hooks(extensions: Sequence[ExtensionFolder]) -> FoundHooks:
    """The hooks in all folders of extensions. Reads files: call it in a thread. Never raises."""
    hooks: dict[Hook, Hook] = {}
    places: dict[Hook, Path] = {}
    variables: dict[Path, dict[str, str]] = {}
    problems: list[str] = []
    idle: list[str] = []
    for root, path in ((each, file) for each in extensions for file in files_of(each)):
        try:
            if (data := contents(root, path)) is None:
                continue
            document = json.loads(plain_json(data.decode("utf-8-sig")))
        except (ToolFailure, OSError, ValueError, RecursionError) as error:
            problems.append(f"{path} cannot be read: {error_text(error, 200)}")
            continue
        if isinstance(document, dict) and root.kind == "claude":
            variables.setdefault(root.folder, {}).update(_variables(document.get("env")))
        if isinstance(document, dict) and document.get("disableAllHooks") is True:
            continue
        if isinstance(document, dict) and root.kind != "own" and "hooks" not in document:
            outside = [name for name in (*EVENTS, *ELSEWHERE) if name in document]
            problems += [f"{path}: {', '.join(outside)}: not read outside a section `hooks`."] if outside else []
            continue
        for found in (
            each for written in hooks_written(path, document) for each in _hooks_in(written, root, path, problems, idle)
        ):
            # The same one in several files of settings runs once; a plugin's stays apart.
            hooks.setdefault(structs.replace(found, file=root.folder if found.root else Path(), source="yours"), found)
            places.setdefault(found, root.folder)
    set_up = (
        structs.replace(each, variables=tuple(variables.get(places[each], {}).items())) for each in hooks.values()
    )
    scoped = tuple(_scoped_in(extensions, problems, idle))
    return FoundHooks(tuple(set_up), tuple(problems), tuple(idle), scoped)


def _scoped_in(extensions: Sequence[ExtensionFolder], problems: list[str], idle: list[str]) -> Iterator[ScopedHooks]:
    """The hooks in the front matter of skills, commands and agents. A plugin's agents have none, as in Claude Code."""
    named: list[tuple[Scope, str, Path, ExtensionFolder]] = [
        ("skill", f"{root.prefix}{file.parent.name}", file, root)
        for root in extensions
        for file in skill_files(skill_folders(root))
    ]
    others: tuple[tuple[Scope, str], ...] = (("command", COMMANDS), ("agent", AGENTS))
    for kind, subfolder in others:
        named += [
            (kind, shown(name, 64), file, root)
            for name, (file, root) in named_files(tuple(extensions), subfolder).items()
            if (kind, root.kind) != ("agent", "plugin")
        ]
    for kind, name, file, root in named:
        try:
            if (value := hooks_in_front(file)) is None:
                continue
        except (OSError, ValueError) as error:
            why = error_text(error, 200) if isinstance(error, OSError) else str(error)
            problems.append(f"{file}: its hooks cannot be read: {why}")
            continue
        place = file.parent if kind == "skill" else None
        found = tuple(
            structs.replace(each, once=each.once and kind != "agent", skill=place)
            for each in _hooks_in({"hooks": value}, root, file, problems, idle)
        )
        if found:
            yield ScopedHooks(kind, name, file, found)


def _variables(given: object) -> dict[str, str]:
    """What a file of Claude Code's settings puts into the environment."""
    named = given.items() if isinstance(given, dict) else ()
    return {name: value for name, value in named if isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*", name)}


def _hooks_in(
    document: object, root: ExtensionFolder, path: Path, problems: list[str], idle: list[str]
) -> Iterator[Hook]:
    """The hooks of a file. Notes a sentence for each part that cannot be used, and events that do not occur here."""
    named = document.get("hooks", document) if isinstance(document, dict) else None
    if not isinstance(named, dict):
        problems.append(f"{path}: it has no object that lists hooks by event.")
        return
    for name, groups in named.items():
        event = next((known for known in EVENTS if known == name), None)
        if name in ELSEWHERE and isinstance(groups, list):
            idle.append(f"{name} in {path}")
            continue
        if event is None or not isinstance(groups, list):
            problems.append(f"{path}: {name!r} is not an event, or has no list; the events are {', '.join(EVENTS)}.")
            continue
        for group in groups:
            # Some programs write a hook where others have a group of them.
            listed = group.get("hooks", [group] if "type" in group else None) if isinstance(group, dict) else None
            if not isinstance(group, dict) or not isinstance(listed, list):
                problems.append(f"{path}: {event}: every entry needs a list of `hooks`.")
                continue
            matcher = group.get("matcher") or ""
            try:
                re.compile("" if matcher == "*" or event == "FileChanged" else matcher)
                usable = isinstance(matcher, str) and (event != "FileChanged" or matcher == "*" or "*" not in matcher)
            except (re.error, TypeError):
                usable = False
            if not usable:
                wanted = "list of file names" if event == "FileChanged" else "regular expression"
                problems.append(f"{path}: {event}: the matcher {matcher!r} is not a {wanted}.")
                continue
            for given in listed:
                hook = _hook(event, given, matcher, root, path) if isinstance(given, dict) else None
                if hook is not None:
                    yield hook
                else:
                    problems.append(f"{path}: {event}: {_WANTED}")


def _hook(event: Event, given: Mapping[str, object], matcher: str, root: ExtensionFolder, path: Path) -> Hook | None:
    kind = given.get("type", "command")
    line = given.get(_KEYS[kind]) if isinstance(kind, str) and kind in _KEYS else None
    if not isinstance(line, str) or not line.strip():
        return None
    default = END_TIMEOUT_S if event == "SessionEnd" else TIMEOUT_S
    if kind == "prompt" or event == "UserPromptSubmit":
        default = PROMPT_TIMEOUT_S
    if kind == "agent":
        default = LOOKING_TIMEOUT_S
    timeout = given.get("timeout", default)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        return None
    command, prompt, arguments = line.strip(), "", given.get("args")
    post, use = None, None
    if kind == "python":
        if not re.fullmatch(r"[\w.]+:\w+", line):
            return None
        # The module is named as one that Python is to run, since that is what asks whether it has changed look for.
        command = shlex.join((sys.executable, "-c", _CALL_PYTHON, "-m", *line.split(":")))
    elif kind in ("prompt", "agent"):
        command, prompt = "", line.strip()
    elif kind == "http":
        command, post = "", _post(line.strip(), given)
        if post is None:
            return None
    elif kind == "mcp_tool":
        server, fields = given.get("server"), given.get("input", {})
        if not (isinstance(server, str) and isinstance(fields, dict)):
            return None
        command, use = "", ServerToolAction(server, line.strip(), json.dumps(fields))
    elif isinstance(arguments, list) and all(isinstance(argument, str) for argument in arguments):
        command = " ".join(map(_word, (line, *arguments)))
    condition, model = given.get("if"), given.get("model")
    return Hook(
        event,
        command,
        matcher,
        float(min(timeout, TIMEOUT_S)),
        root.source,
        path,
        f"{event}, {' '.join(line.split())[:80]}",
        prompt=prompt,
        only_if=condition if isinstance(condition, str) else "",
        waits=True not in (given.get("async"), given.get("asyncRewake")),
        root=root.folder if root.kind == "plugin" else None,
        goes_on=kind == "agent" or given.get("continueOnBlock") is True,
        looks=kind == "agent",
        model=model.strip() if isinstance(model, str) else "",
        post=post,
        use=use,
        once=given.get("once") is True,
    )


def _post(url: str, given: Mapping[str, object]) -> PostAction | None:
    headers, names = given.get("headers", {}), given.get("allowedEnvVars", [])
    if not (url.startswith(("http://", "https://")) and isinstance(headers, dict) and isinstance(names, list)):
        return None
    texts = tuple((name, value) for name, value in headers.items() if isinstance(value, str))
    return PostAction(url, texts, frozenset(name for name in names if isinstance(name, str)))


def _word(text: str) -> str:
    """A word for the shell that stays as it is, but for the places of project and plugin."""
    parts = [f'"{part}"' if _PLACES.fullmatch(part) else shlex.quote(part) for part in _PLACES.split(text) if part]
    return "".join(parts) or "''"


def _matches_rule(rule: str, names: Sequence[str], about: str) -> bool:
    """Whether a call has one of the names that the rule is for, and what it is about fits the rule's pattern: any
    command of a line, also one that may be hidden in it.
    """
    name, _, pattern = rule.strip().removesuffix(")").partition("(")
    if not any(fnmatchcase(each, name) for each in (*names, *(n for each in names for n in names_of(each)))):
        return False
    pattern = f"{pattern.removesuffix(':*')} *" if pattern.endswith(":*") else pattern
    if SHELL in names:
        line = re.sub(r"^(?:\w+=\S*\s+)+", "", about.strip())
        return catching_line([Rule(SHELL, pattern)], line) is not None
    return not pattern or any(fnmatchcase(each, pattern) for each in (about, Path(about).name))
