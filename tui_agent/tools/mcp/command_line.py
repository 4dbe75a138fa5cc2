"""`tui-agent mcp`: adding, listing, showing and removing servers, with the syntax of Claude Code's `claude mcp`."""

import json
import os
from collections.abc import Mapping, Sequence
from getpass import getpass
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.settings import Settings, ToolServer
from tui_agent.settings.servers import listed_servers, server_from, usable_name
from tui_agent.settings.sources import USER_FILE
from tui_agent.settings.trust import SERVERS_FILE
from tui_agent.settings.writing import keep_servers
from tui_agent.system.durable import write_file
from tui_agent.tools.mcp.configuration import ConfiguredServer, ServerSwitches, configured, plugins_of, read_json

_VALUES: Final = {
    **dict.fromkeys(("-s", "--scope"), "scope"),
    **dict.fromkeys(("-t", "--transport"), "transport"),
    **dict.fromkeys(("-e", "--env"), "env"),
    **dict.fromkeys(("-H", "--header"), "header"),
    "--client-id": "client_id",
    "--callback-port": "callback_port",
}
_SECRET: Final = "MCP_CLIENT_SECRET"  # noqa: S105
"""The variable with the secret of `--client-secret`; without it, the secret is asked for."""
_SCOPES: Final = ("user", "local", "project")


class BadServer(Exception):
    """The words of the command cannot be understood or carried out; the text says why, in a full sentence."""


class _Given(msgspec.Struct, frozen=True):
    """The words of ``mcp add``: its options, and the rest."""

    options: Mapping[str, list[str]]
    words: tuple[str, ...]

    def one(self, name: str, default: str) -> str:
        return self.options.get(name, [default])[-1]


def run_action(action: str, words: Sequence[str], home: Path, project: Path, settings: Settings, trusted: bool) -> str:
    """Carry out ``mcp ACTION WORDS``; returns what to print. Raises `BadServer`, `SettingsError`, `OSError`."""
    match action:
        case "add":
            return _add(_read(words), home, project, settings)
        case "add-json":
            given = _read(words)
            if len(given.words) != 2:
                raise BadServer("expected `mcp add-json NAME JSON`")
            try:
                server = json.loads(given.words[1])
            except ValueError as error:
                raise BadServer(f"the server is not JSON: {error}") from None
            return _keep(given.words[0], server, given.one("scope", "user"), home, project, settings)
        case "remove":
            return _remove(_read(words), home, project, settings)
        case "get":
            return _shown(_read(words), home, project if trusted else None, settings)
        case _:
            return _list(home, project if trusted else None, settings)


def _read(words: Sequence[str]) -> _Given:
    """Options stand before the command of a server or anywhere beside an address; after ``--`` there are none."""
    options: dict[str, list[str]] = {}
    rest: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        name, equals, value = word.partition("=")
        place += 1
        if word == "--":
            return _Given(options, (*rest, *words[place:]))
        is_command = len(rest) > 1 and not rest[1].startswith(("http://", "https://"))
        if is_command or not word.startswith("-"):
            rest.append(word)
            continue
        if name == "--client-secret" and not equals:
            options["client_secret"] = [os.environ.get(_SECRET) or getpass("Client secret: ")]
            continue
        if name not in _VALUES:
            raise BadServer(f"unknown option {name}; put `--` before the command of a server")
        if not equals:
            if place == len(words):
                raise BadServer(f"{name} needs a value")
            value, place = words[place], place + 1
        options.setdefault(_VALUES[name], []).append(value)
    return _Given(options, tuple(rest))


def _add(given: _Given, home: Path, project: Path, settings: Settings) -> str:
    name, *command = given.words or ("",)
    if not name or not command:
        raise BadServer("expected `mcp add NAME COMMAND [ARGUMENT …]` or `mcp add --transport http NAME URL`")
    transport = given.one("transport", "http" if command[0].startswith(("http://", "https://")) else "stdio")
    server: dict[str, object] = {"type": transport}
    if transport == "stdio":
        server |= {"command": command[0], "args": command[1:], "env": _pairs(given.options.get("env", []), "=")}
    elif len(command) == 1:
        oauth = {key: given.one(key, "") for key in ("client_id", "client_secret") if key in given.options}
        port = given.one("callback_port", "0")
        if not port.isdigit():
            raise BadServer(f"--callback-port needs a number, got {port!r}")
        headers = _pairs(given.options.get("header", []), ":")
        server |= {"url": command[0], "headers": headers, "oauth": {**oauth, "callback_port": int(port)}}
    else:
        raise BadServer(f"a server at an address has no arguments: {' '.join(command[1:])}")
    return _keep(name, server, given.one("scope", "user"), home, project, settings)


def _keep(name: str, given: object, scope: str, home: Path, project: Path, settings: Settings) -> str:
    if scope not in _SCOPES:
        raise BadServer(f"there is no scope {scope}: it is {', '.join(_SCOPES)}")
    try:
        name, (server, notes) = usable_name(name), server_from(given)
    except ValueError as error:
        raise BadServer(f"{name}: {error}") from None
    if scope == "project":
        path = project / SERVERS_FILE
        document, servers = _project_file(path)
    else:
        path, document, servers = home / USER_FILE, {}, dict(settings.mcp.servers)
    if name in servers:
        raise BadServer(f"there is a server {name} already: `tui-agent mcp remove {name}` removes it")
    if scope == "project":
        _write(path, {**document, "mcpServers": {**servers, name: _as_written(server)}})
    else:
        keep_servers(home, {name: _as_written(server)})
    done = f"Added {name} to {path}."
    more = " It starts once you turn it on: /mcp on " + name if scope == "project" else ""
    return "\n".join((f"{done}{more}", *(f"{name}: {note}" for note in notes)))


def _remove(given: _Given, home: Path, project: Path, settings: Settings) -> str:
    [name] = given.words if len(given.words) == 1 else [""]
    scope = given.one("scope", "")
    if not name:
        raise BadServer("expected `mcp remove NAME`")
    if name in settings.mcp.servers and scope != "project":
        keep_servers(home, {}, without=name)
        return f"Removed {name} from {home / USER_FILE}."
    path = project / SERVERS_FILE
    document, servers = _project_file(path)
    if name not in servers or scope in ("user", "local"):
        raise BadServer(f"there is no server {name}")
    rest = {each: server for each, server in servers.items() if each != name}
    _write(path, {**document, "mcpServers": rest})
    return f"Removed {name} from {path}."


def _configured(home: Path, project: Path | None, settings: Settings) -> tuple[list[ConfiguredServer], tuple[str, ...]]:
    folder = project or Path.cwd()
    return configured(settings.mcp.servers, folder, project, plugins_of(settings, folder, home))


def _list(home: Path, project: Path | None, settings: Settings) -> str:
    found, problems = _configured(home, project, settings)
    choices = ServerSwitches(home)
    lines = [f"{each.name}: {each.shown} - {_state(each, choices)}" for each in found]
    return "\n".join((*(lines or ["No servers. `tui-agent mcp add` adds one."]), *problems))


def _shown(given: _Given, home: Path, project: Path | None, settings: Settings) -> str:
    found, _ = _configured(home, project, settings)
    server = next((each for each in found if each.name in given.words), None)
    if server is None:
        raise BadServer(f"there is no server {' '.join(given.words)}".rstrip())
    where = f"your settings ({home / USER_FILE})" if server.source == "user" else f"this project ({SERVERS_FILE})"
    if server.name not in settings.mcp.servers and server.source == "user":
        where = f"the plugin {server.server.env['CLAUDE_PLUGIN_ROOT']}"
    secret = {"env": dict.fromkeys(server.server.env, "…"), "headers": dict.fromkeys(server.server.headers, "…")}
    fields = {**_as_written(server.server), **{key: value for key, value in secret.items() if value}}
    if oauth := server.server.oauth:
        fields["oauth"] = {"client_id": oauth.client_id, "scopes": oauth.scopes, "client_secret": "…"}
    lines = [f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    head = (server.name, f"  from: {where}", f"  state: {_state(server, ServerSwitches(home))}")
    return "\n".join((*head, *lines))


def _state(server: ConfiguredServer, choices: ServerSwitches) -> str:
    return "on" if choices.is_on(server) else "off: /mcp on turns it on"


def _pairs(given: Sequence[str], mark: str) -> dict[str, str]:
    found = {}
    for each in given:
        name, separator, value = each.partition(mark)
        if not separator or not name.strip():
            raise BadServer(f"expected NAME{mark}VALUE, got {each!r}")
        found[name.strip()] = value.strip() if mark == ":" else value
    return found


def _as_written(server: ToolServer) -> dict[str, object]:
    return msgspec.convert(msgspec.to_builtins(server), dict[str, object])


def _project_file(path: Path) -> tuple[dict[str, object], dict[str, object]]:
    """The document in a project's file, and the servers in it. Raises `BadServer`."""
    try:
        document = read_json(path)
    except ValueError as error:
        raise BadServer(str(error)) from None
    if document is None:
        return {}, {}
    if not isinstance(document, dict):
        raise BadServer(f"{path}: expected an object at the top")
    return document, dict(listed_servers(document) or {})


def _write(path: Path, document: Mapping[str, object]) -> None:
    write_file(path, json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
