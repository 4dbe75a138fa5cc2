"""The configured servers: those of the user's settings and plugins, and those of the project's `.mcp.json`.

A project's server starts only once the user has seen its command and turned it on; the choice applies only to the exact
definition they saw. Choices are kept in a private file in the program's home.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from tui_agent.regex import regex
from tui_agent.settings import Settings, ToolServer
from tui_agent.settings.brought import PLUGIN_DATA, plugin_name, plugin_servers
from tui_agent.settings.servers import listed_servers, plain_json, read_servers, usable_name
from tui_agent.settings.trust import EDITORS_SERVERS_FILE, SERVERS_FILE
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded_file
from tui_agent.system.programs import is_written, written_folders
from tui_agent.system.regular import is_regular, read_bytes
from tui_agent.text import expanded, one_line
from tui_agent.tracing import PARENT, STATE

FOLDER: Final = "mcp"
"""The folder in the program's home for everything about servers."""
CHOICES_FILE: Final = "choices.json"
MAX_BYTES: Final = 1_000_000
"""The most bytes of a file with servers that are read."""

_VARIABLE: Final = regex(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{(input:[^}]*)\}")
_WORKSPACE: Final = "workspaceFolder"
"""The variable with which VS Code names the project's folder."""
_USERS_ALONE: Final = ("believe_hints",)
"""Fields of a server that only the user may set."""
_PART: Final = regex(r"[\w./+-]+")
_CODE: Final = (".py", ".js", ".ts", "/__main__.py")
"""What stands behind the name of a module that a server's command line names."""


class ConfiguredServer(msgspec.Struct, frozen=True):
    """A server and who configured it. `folder`: where it runs, and what relative paths start from."""

    name: str
    server: ToolServer
    source: Literal["user", "project"]
    folder: Path

    @property
    def digest(self) -> str:
        """A digest of what runs or is connected to, not of how it is used."""
        server = self.server
        parts: list[object] = [
            server.command,
            server.args,
            server.env,
            server.cwd,
            server.url,
            server.headers,
            str(self.folder),
        ]
        parts += [server.oauth] if server.oauth else []
        return sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:32]

    @property
    def shown(self) -> str:
        """The command line or the address for display, with variables not filled in."""
        server = self.server
        if server.url:
            return one_line(server.url, 2_000)
        names = "".join(f"{name}=… " for name in server.env)
        return one_line(names + shlex.join((server.command, *server.args)), 2_000)

    def resolved(self, environ: Mapping[str, str]) -> ToolServer:
        """The server with its variables filled in. Raises KeyError with the name of an unset one."""

        def filled(text: str) -> str:
            def value(match: re.Match[str]) -> str:
                found = str(self.folder) if match[1] == _WORKSPACE else environ.get(match[1] or "", match[2])
                if found is None:
                    raise KeyError(match[1] or match[3])
                return found

            return _VARIABLE.sub(value, text)

        def whole(value: object) -> object:
            match value:
                case str():
                    return filled(value)
                case dict():
                    return {key: whole(each) for key, each in value.items()}
                case tuple():
                    return tuple(map(whole, value))
                case _:
                    return value

        return msgspec.convert(whole(msgspec.to_builtins(self.server)), ToolServer)


class ServerUnavailable(Exception):
    """A server cannot be used now; the text says why, in a full sentence."""


class ServerTimeouts(msgspec.Struct, frozen=True):
    """The most seconds for a start and for a call."""

    start: float
    call: float


def counts(server: ToolServer, tool: str) -> bool:
    """Whether the definition of a server leaves this tool of its in."""
    included = server.include_tools is None or any(fnmatchcase(tool, each) for each in server.include_tools)
    return included and not any(fnmatchcase(tool, each) for each in server.exclude_tools)


class FoundServers(NamedTuple):
    """The servers of a file, and full sentences about what in it cannot be used."""

    servers: dict[str, ToolServer]
    problems: tuple[str, ...] = ()


def servers_in(document: object, origin: str) -> FoundServers:
    """The servers of a file that several agents share. What is not used of them is named among the problems."""
    listed = listed_servers(document) if isinstance(document, dict) else None
    if listed is None:
        return FoundServers({}, (f"{origin}: there is no section mcpServers.",))
    servers, said = read_servers(listed, origin)
    return FoundServers(servers, tuple(f"{each}." for each in said))


def read_json(path: Path) -> object:
    """The JSON document in a file; None if there is no file. Raises ValueError with a sentence."""
    return read_document(path, lambda text: json.loads(plain_json(text)))


def read_document(path: Path, parse: Callable[[str], object]) -> object:
    """The document in a file, as `parse` reads its text; None if there is no file. Raises ValueError, saying why."""
    try:
        data = read_bytes(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}.") from None
    try:
        return parse(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


class ServerPlugin(NamedTuple):
    """A plugin of the user's; `data`: where it keeps what outlasts its updates."""

    folder: Path
    data: Path


def plugins_of(settings: Settings, folder: Path, home: Path) -> tuple[ServerPlugin, ...]:
    """The plugins that the settings name, relative to `folder`."""
    places = (folder / expanded(each) for each in settings.session.plugins)
    return tuple(ServerPlugin(place, home / PLUGIN_DATA / place.name) for place in places)


def configured(
    users: Mapping[str, ToolServer], folder: Path, project: Path | None, plugins: Iterable[ServerPlugin] = ()
) -> tuple[list[ConfiguredServer], tuple[str, ...]]:
    """All servers, and sentences about what cannot be used. `project`: the root of a trusted project. Reads files.

    Of two servers with the same name, the user's wins.
    """
    problems: tuple[str, ...] = ()
    for plugin in plugins:
        added, more = _of_plugin(plugin)
        users, problems = {**added, **users}, (*problems, *more)
    found = [ConfiguredServer(name, server, "user", folder) for name, server in users.items()]
    if project is not None:
        ours, editors = (_in_file(project / name) for name in (SERVERS_FILE, EDITORS_SERVERS_FILE))
        theirs, more = FoundServers({**editors.servers, **ours.servers}, (*ours.problems, *editors.problems))
        problems = (*problems, *more)
        found += [
            ConfiguredServer(name, server, "project", project) for name, server in theirs.items() if name not in users
        ]
    return sorted(found, key=lambda each: each.name), problems


def _of_plugin(plugin: ServerPlugin) -> FoundServers:
    """The servers of a plugin, named after it, with its places filled in."""
    places = {"CLAUDE_PLUGIN_ROOT": str(plugin.folder), "CLAUDE_PLUGIN_DATA": str(plugin.data)}
    text = json.dumps(plugin_servers(plugin.folder))
    if "CLAUDE_PLUGIN_DATA" in text:
        with suppress(OSError):
            make_private_folder(plugin.data)
    for name, place in places.items():
        text = text.replace(f"${{{name}}}", json.dumps(place)[1:-1])
    found = _tamed(servers_in({"mcpServers": json.loads(text)}, str(plugin.folder)))
    called = plugin_name(plugin.folder)
    return found._replace(
        servers={
            usable_name(f"plugin_{called}_{name}"): msgspec.structs.replace(server, env=places | server.env)
            for name, server in found.servers.items()
        }
    )


def _in_file(path: Path) -> FoundServers:
    try:
        document = read_json(path)
    except ValueError as error:
        return FoundServers({}, (str(error),))
    return FoundServers({}) if document is None else _tamed(servers_in(document, str(path)))


def _tamed(found: FoundServers) -> FoundServers:
    """Servers without what only the user may say of them."""
    tamed = {
        name: msgspec.structs.replace(server, **dict.fromkeys(_USERS_ALONE, False))
        for name, server in found.servers.items()
    }
    return FoundServers(tamed, found.problems)


def own_files(server: ConfiguredServer) -> str:
    """A digest of what starting a server runs or reads first, as an exact rule does, where commands may write it.

    Empty if there is nothing. Reads files.
    """
    from tui_agent.tools.gate.judging import PlainCommand
    from tui_agent.tools.gate.read_first import contents_of
    from tui_agent.tools.gate.workspace import Workspace

    place = Path(os.path.realpath(Path(server.folder, expanded(server.server.cwd))))
    words = [os.path.expanduser(word) for word in (server.server.command, *server.server.args)]  # noqa: PTH111
    # Of `server:app` and `import server` the file is server.py.
    parts = {part for word in words for part in (word, *_PART.findall(word))}
    forms = {f"{form}{end}" for part in parts for form in (part, part.replace(".", "/")) for end in ("", *_CODE)}
    named = {path for form in forms if is_regular(path := place / form) and is_written(path)}
    found = contents_of((PlainCommand(tuple(words), place),), Workspace(place, written_folders()), also=named)
    own = {str(path): digest for path, digest in found.items() if is_written(path)}
    return sha256(msgspec.json.encode(own, order="deterministic")).hexdigest()[:32] if own else ""


class ServerSwitches:
    """Which servers the user turned on or off, in a private file. The methods read or write it: call them off the loop.

    A server whose own files a command may have changed since it was turned on, or first used, is new again. Raises
    OSError if a choice cannot be written; it then applies until the program ends.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FOLDER / CHOICES_FILE
        kept = self._read()
        self._chosen, self._files = kept.servers, kept.files

    def is_on(self, server: ConfiguredServer) -> bool:
        """Whether it may start: a project's server only if the user turned on exactly this definition."""
        chosen = self._chosen.get(self._key(server))
        if chosen is None:
            chosen = server.source == "user" and server.server.enabled
        return chosen and not self._changed(server)

    def is_new(self, server: ConfiguredServer) -> bool:
        """Whether the user has not decided about it yet, or its files have changed since."""
        unknown = server.source == "project" and self._key(server) not in self._chosen
        return unknown or (self._chosen.get(self._key(server), True) and self._changed(server))

    def turn(self, server: ConfiguredServer, *, on: bool) -> None:
        self._chosen[self._key(server)] = on
        self._write({self._key(server): on}, {self._key(server): own_files(server)} if on else {})

    def _changed(self, server: ConfiguredServer) -> bool:
        found, key = own_files(server), self._key(server)
        if found and key not in self._files:
            with suppress(OSError):
                self._write({}, {key: found})
        return bool(found) and self._files.get(key, found) != found

    def _write(self, chosen: dict[str, bool], files: dict[str, str]) -> None:
        self._files.update(files)
        kept = {"servers": {**self._read().servers, **chosen}, "files": self._files}
        make_private_folder(self._path.parent)
        write_file(self._path, json.dumps(kept, indent=2).encode() + b"\n")

    @staticmethod
    def _key(server: ConfiguredServer) -> str:
        return f"{server.source} {server.name} {server.digest if server.source == 'project' else ''}".strip()

    def _read(self) -> "_Kept":
        return decoded_file(self._path, _Kept) or _Kept()


class _Kept(msgspec.Struct):
    """The file of choices: which servers are on, and the digest of each one's own files."""

    servers: dict[str, bool] = msgspec.field(default_factory=dict)
    files: dict[str, str] = msgspec.field(default_factory=dict)


SAFE_VARIABLES: Final = (
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TZ",
    PARENT,
    STATE,
)
"""The variables of this program's environment that a server gets besides its own: no keys (as in the official SDK)."""


def environment_of(server: ToolServer, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a server's process."""
    return {name: environ[name] for name in SAFE_VARIABLES if name in environ} | server.env
