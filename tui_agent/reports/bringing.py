"""`tui-agent import`: takes the settings of another agent over into the user's settings file.

Supported are Claude Code, codex and Gemini CLI: the model, MCP servers, permission rules and the user's own
instructions. What cannot be taken over is listed with the reason. The other agent's files are only read.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.briefing.briefing import OWN_INSTRUCTIONS
from tui_agent.agent.briefing.included import rebased
from tui_agent.agent.extensions.claude import rules_of
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.settings import Settings, ToolServer
from tui_agent.settings.keys import settings_by_key
from tui_agent.settings.servers import narrowing
from tui_agent.settings.writing import keep_servers, keep_setting
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.text import one_line, short_path
from tui_agent.tools.gate.rules import RuleError
from tui_agent.tools.mcp.importing import ForeignServers, foreign, read_settings


class OtherAgent(msgspec.Struct, frozen=True):
    """Another agent: its name, and its files of settings and of instructions below the user's home."""

    name: str
    settings: str
    memory: str


AGENTS: Final[Mapping[str, OtherAgent]] = {
    "claude-code": OtherAgent("Claude Code", ".claude/settings.json", ".claude/CLAUDE.md"),
    "codex": OtherAgent("codex", ".codex/config.toml", ".codex/AGENTS.md"),
    "gemini": OtherAgent("Gemini CLI", ".gemini/settings.json", ".gemini/GEMINI.md"),
}
_FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "claude-code": {
        "rules": "copy what is to hold everywhere into your own AGENTS.md",
        "keybindings.json": "set keys in ui.keymap",
    },
    "codex": {
        "hooks.json": "they have the form of ours: copy the file into {home}",
        "prompts": "copy the files into {home}/commands",
        "skills": "copy the folders into {home}/skills",
        "rules": "write them as permissions.allow, ask and deny",
        "agents": "write them as Markdown files in {home}/agents",
    },
    "gemini": {
        "commands": "write them as Markdown files in {home}/commands",
        "skills": "copy the folders into {home}/skills",
        "agents": "copy the files into {home}/agents",
        "extensions": "their servers and commands are not read: add what you need of them",
        "policies": "write them as permissions.allow, ask and deny",
    },
}
"""What else other agents have in their folders, and what to do about it."""
_SERVERS: Final = frozenset(("mcpServers", "mcp_servers", "projects", "allowMCPServers", "excludeMCPServers"))
_SWITCHES: Final = ("allowed", "excluded")
"""The keys of Gemini CLI's section `mcp` that say which servers are used."""
_LISTS: Final = ("allow", "ask", "deny")
_GEMINI: Final = {"allow": "allowed", "deny": "exclude"}
"""The names of the lists in the settings of Gemini CLI."""
_ELSEWHERE: Final = {
    "hooks": "hooks are used from ~/.claude, of no other agent",
    "enabledPlugins": "add plugins with `tui-agent plugin add`",
    "env": "set variables in your shell",
    "permissions.defaultMode": "choose a mode with --ask or permissions.mode",
    "approval_policy": "choose a mode with --ask or permissions.mode",
    "sandbox_mode": "see permissions.sandbox",
    "statusLine": "the status line is the app's own",
}
"""Why some settings are not taken over."""
NOT_HERE: Final = "there is no such setting, or it means something else here"


class ImportedFiles(msgspec.Struct, frozen=True):
    """What another agent's files bring: a model, servers, rules by list, and the file of the user's instructions; and
    sentences on what is left.
    """

    model: str
    effort: str
    servers: Mapping[str, ToolServer]
    rules: Mapping[str, tuple[str, ...]]
    memory: Path | None
    left: tuple[str, ...]
    said: tuple[str, ...]


def import_report(agent: str, user_home: Path, home: Path, project: Path, settings: Settings, *, write: bool) -> str:
    """What `tui-agent import --from AGENT` prints; with `write`, it is done as well. Raises SettingsError."""
    found = _brought(AGENTS[agent], user_home, home, project, settings)
    left = [*found.left, *_other_files(agent, user_home, home)]
    lines = [*_changes(found, settings)]
    if write:
        _write(found, home, settings)
    head = f"{'Taken over' if write else 'Would be taken over'} from {AGENTS[agent].name}:"
    report = (
        [head, *(f"  {line}" for line in lines)] if lines else [f"Nothing new to take over from {AGENTS[agent].name}."]
    )
    report += ["Not taken over:", *(f"  {line}" for line in left)] if left else []
    report += found.said
    if lines and not write:
        report.append(f"Nothing was written. `tui-agent import --from {agent} --yes` writes it to your settings.")
    return "\n".join(report)


def _other_files(agent: str, user_home: Path, home: Path) -> Iterator[str]:
    """A sentence for each file and folder that has something in it and is left where it is."""
    folder = (user_home / AGENTS[agent].settings).parent
    for name, why in _FILES[agent].items():
        path = folder / name
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            yield f"{short_path(path)}: {why.format(home=short_path(home))}"


def _changes(found: ImportedFiles, settings: Settings) -> Iterator[str]:
    if found.model:
        before = f" (instead of {settings.model.id})" if settings.model.id else ""
        yield f"model.id = {found.model}{before}"
    if found.effort:
        yield f"model.effort = {found.effort}"
    for name, server in found.servers.items():
        place = " ".join((server.command, *server.args)).strip() or server.url
        yield one_line(f"mcp.servers.{name}: {one_line(place, 300)}{narrowing(server)}", 600)
    if found.memory is not None:
        yield f"your own instructions, for every project: {short_path(found.memory)}"
    for kind, rules in found.rules.items():
        yield from (f"permissions.{kind} + {rule}" for rule in rules)


def _write(found: ImportedFiles, home: Path, settings: Settings) -> None:
    """Raises SettingsError, and OSError."""
    if found.memory is not None:
        make_private_folder(home)
        text = found.memory.read_bytes().decode("utf-8-sig", "surrogateescape")
        text = rebased(text, found.memory.parent, short_path(found.memory.parent))
        write_file(home / OWN_INSTRUCTIONS, text.encode(errors="surrogateescape"))
    if found.model:
        keep_setting(home, "model.id", found.model)
    if found.effort:
        keep_setting(home, "model.effort", found.effort)
    if found.servers:
        keep_servers(home, {name: msgspec.to_builtins(server) for name, server in found.servers.items()})
    for kind, rules in found.rules.items():
        if rules:
            keep_setting(home, f"permissions.{kind}", (*_users(settings, kind), *rules))


def _users(settings: Settings, kind: str) -> tuple[str, ...]:
    lists = {"allow": settings.permissions.allow, "ask": settings.permissions.ask, "deny": settings.permissions.deny}
    return lists[kind]


def _brought(agent: OtherAgent, user_home: Path, home: Path, project: Path, settings: Settings) -> ImportedFiles:
    path = user_home / agent.settings
    left: list[str] = []
    try:
        document = read_settings(path)
    except ValueError as error:
        document, left = None, [str(error)]
    if not isinstance(document, dict | None):
        left.append(f"{path}: there are no settings in it")
    document = document if isinstance(document, dict) else {}
    listed = [each for each in foreign(user_home, project) if each.agent == agent.name]
    servers = _new_servers(listed, settings, left)
    given = document.get("model")
    name = given.get("name") if isinstance(given, dict) else given
    if name and isinstance(provider := document.get("model_provider"), str):  # codex
        name = f"{provider}:{name}"
    model = _model(name, settings, left) if name else ""
    rules = {kind: tuple(_rules(document, kind, settings, left)) for kind in _LISTS}
    left += [f"{one_line(key, 80)}: {_ELSEWHERE.get(key, NOT_HERE)}" for key in _others(document)]
    said = ["CLAUDE.md, AGENTS.md and GEMINI.md of a trusted project are read where they are."]
    memory = user_home / agent.memory if (user_home / agent.memory).is_file() else None
    if memory is not None and (home / OWN_INSTRUCTIONS).exists():
        left.append(f"~/{agent.memory}: you have instructions of your own in {short_path(home / OWN_INSTRUCTIONS)}")
        memory = None
    if not document and not listed and not left:
        said.insert(0, f"{path}: there is no such file, or nothing in it.")
    asked = document.get("effortLevel", document.get("model_reasoning_effort"))
    effort = "low" if asked == "minimal" else str(asked)
    if effort not in settings_by_key()["model.effort"].allowed.choices or effort == settings.model.effort:
        effort = ""
    return ImportedFiles(model, effort, servers, rules, memory, tuple(left), tuple(said))


def _others(document: Mapping[str, object]) -> Iterator[str]:
    """The settings that nothing here looks at."""
    known = {"model", "model_provider", "effortLevel", "model_reasoning_effort", "$schema", *_SERVERS}
    for key, value in document.items():
        lists = {"permissions": _LISTS, "tools": tuple(_GEMINI.values()), "mcp": _SWITCHES}.get(key)
        if lists is not None and isinstance(value, dict):
            yield from (f"{key}.{name}" for name in value if name not in lists)
        elif key not in known:
            yield key


def _new_servers(listed: list[ForeignServers], settings: Settings, left: list[str]) -> dict[str, ToolServer]:
    found: dict[str, ToolServer] = {}
    for each in listed:
        left += [problem for problem in each.problems if problem not in left]
        for name, server in each.servers.items():
            if name not in settings.mcp.servers:
                found[name] = server
            elif settings.mcp.servers[name] != server:
                left.append(f"the server {name}: your settings have another one of this name")
    return found


def _model(name: object, settings: Settings, left: list[str]) -> str:
    """The model by our name; empty if there is none, or it is the present one."""
    try:
        found = str(catalogue_of(settings).resolve(re.sub(r"\[\w+\]$", "", str(name))))  # opus[1m]
    except UnknownModel as error:
        left.append(f"the model {one_line(str(name), 80)}: {error.message}")
        return ""
    return "" if found == settings.model.id else found


def _rules(document: Mapping[str, object], kind: str, settings: Settings, left: list[str]) -> Iterator[str]:
    """The rules of one list in our form, without those that the settings have."""
    section, tools = document.get("permissions"), document.get("tools")
    given = section.get(kind) if isinstance(section, dict) else None
    if isinstance(tools, dict):  # Gemini CLI
        given = tools.get(_GEMINI.get(kind, ""), given)
    seen = set(_users(settings, kind))
    for text in given if isinstance(given, list) else ():
        try:
            rules = [rule.text for rule in rules_of(str(text), kind)]
        except (RuleError, ValueError) as error:
            left.append(f"permissions.{kind}: {one_line(str(text), 200)}: {one_line(str(error), 200)}")
            continue
        yield from (rule for rule in rules if rule not in seen)
        seen.update(rules)
