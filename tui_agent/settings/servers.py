"""Reads MCP servers as the pages of their makers print them: for Claude Code, VS Code, Cursor, Gemini CLI and codex."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

import msgspec

from tui_agent.regex import regex
from tui_agent.settings.keys import SERVER_NAME
from tui_agent.settings.schema import OAuth, ToolServer
from tui_agent.text import one_line

_TOKEN: Final = regex(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|\\(?=[ \t]*(?:\n|$))', re.DOTALL)
"""What is in JSON besides its marks: texts, comments, and the backslash with which some pages end a line."""
_LAST_COMMA: Final = regex(r'"(?:[^"\\]|\\.)*"|(?<![\[{,\s:]),(?=\s*[}\]])', re.DOTALL)
_OWN: Final = frozenset(ToolServer.__struct_fields__)
_SAID: Final = frozenset(
    (
        *("type", "transport", "disabled", "timeout", "httpUrl", "serverUrl", "http_headers", "env_http_headers"),
        *("bearer_token_env_var", "tool_timeout_sec", "description", "name", "title", "env_vars", "auth"),
        *("environment", "settings", "source", "transportType", "requestInit", "alwaysLoad"),
    )
)
"""Fields of other agents' that are understood, or say nothing that matters here."""
_SECTIONS: Final = ("mcp_servers", "context_servers", "servers", "mcpServers")
"""Sections with servers at the top of a file; of equal names, the one in the last counts."""
_INCLUDING: Final = frozenset({"includetools", "enabledtools"})
_EXCLUDING: Final = frozenset({"excludetools", "disabledtools"})
"""Names of the lists that narrow what a server offers, without case and marks: Gemini CLI's, codex's, Kiro's."""
_MILLISECONDS: Final = 1_000
"""A `timeout` from this on is in milliseconds; Claude Code and Gemini CLI have these, others have seconds."""
_FOREVER: Final = 1e12
MOST_CHARS: Final = 32_768
"""The longest command line: what Windows allows. Every word of it may name a file that it runs."""


class Printed(NamedTuple):
    """A server, and what of its description is not used, as full sentences."""

    server: ToolServer
    notes: tuple[str, ...] = ()


def plain_json(text: str) -> str:
    """JSON text without the comments, last commas and ends of lines that pages of many programs have, and with the
    braces around it that a part of a page may lack. Line numbers stay.
    """

    def plain(found: re.Match[str]) -> str:
        token = found[0]
        return token if token.startswith('"') else "\n" * token.count("\n")

    text = _LAST_COMMA.sub(plain, _TOKEN.sub(plain, text))
    return f"{{{text.rstrip().rstrip(',')}}}" if text.lstrip().startswith('"') else text


def server_from(given: object) -> Printed:
    """Parse a server as any agent writes it. Raises ValueError."""
    if not isinstance(given, Mapping):
        raise ValueError("expected a section with `command` and `args`, or `url`")  # noqa: TRY004
    known = {str(key): value for key, value in given.items() if key in _OWN and value is not None}
    if isinstance(given.get("alwaysLoad"), bool):
        known.setdefault("always_load", given["alwaysLoad"])
    known["type"] = "sse" if "sse" in (given.get("type"), given.get("transport")) else ""
    if given.get("disabled") is True or given.get("enabled") is False:
        known["enabled"] = False
    for other in ("httpUrl", "serverUrl"):
        if "url" not in known and isinstance(given.get(other), str):
            known["url"] = given[other]
    request = given.get("requestInit")
    sent = (given.get("headers"), given.get("http_headers"), request.get("headers") if _is_map(request) else None)
    known["headers"] = {
        **{name: text for each in sent for name, text in _texts(each).items()},
        **_from_variables(given),
    }
    known["env"] = {**{name: f"${{{name}}}" for name in _names(given.get("env_vars"))}, **_texts(given.get("env"))}
    known["env"] |= _texts(given.get("environment"))
    command = known.get("command")
    if _is_map(command):  # Zed writes the program as a section
        known["env"] |= _texts(command.get("env"))
        known["args"] = command.get("args", ())
        known["command"] = command = command.get("path")
    if isinstance(command, list | tuple) and command:  # opencode writes the program and its arguments as one list
        known["command"], known["args"] = command[0], [*command[1:], *known.get("args", ())]
    known["include_tools"], known["exclude_tools"], lists = _narrowed(given)
    known["oauth"], notes = _oauth(given)
    seconds = given.get("tool_timeout_sec", given.get("timeout"))
    if "call_seconds" not in known and isinstance(seconds, int | float) and seconds > 0:
        known["call_seconds"] = min(seconds, _FOREVER) / _MILLISECONDS if seconds >= _MILLISECONDS else seconds
    try:
        server = msgspec.convert(known, ToolServer)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if sum(map(len, (server.command, *server.args))) > MOST_CHARS:
        raise ValueError(f"a command line of more than {MOST_CHARS:,} characters")
    used = _OWN | _SAID | lists
    unknown = [str(key) for key, value in given.items() if key not in used and _says(value)]
    unknown += notes
    return Printed(server, (f"not used: {', '.join(unknown)}",) if unknown else ())


def narrowing(server: ToolServer) -> str:
    """Which tools of a server count, in words that follow its command; empty if all do."""
    only = f"only {', '.join(server.include_tools) or 'none'}" if server.include_tools is not None else ""
    without = f"without {', '.join(server.exclude_tools)}" if server.exclude_tools else ""
    both = "; ".join(filter(None, (only, without)))
    return f" ({both})" if both else ""


def _narrowed(given: Mapping[str, object]) -> tuple[list[str] | None, list[str], set[str]]:
    """The names of the only tools that count (None: all) and of those that do not, and the fields with these lists.

    Lists that permit calls (``autoApprove``) are none of them. Raises ValueError: a limit that cannot be read must not
    go unnoticed.
    """
    only: list[str] | None = None
    without: list[str] = []
    fields: set[str] = set()
    for key, value in given.items():
        kind = str(key).replace("_", "").replace("-", "").lower()
        # GitHub's name for it means other things elsewhere.
        is_githubs = key == "tools" and isinstance(value, list) and bool(value) and len(_names(value)) == len(value)
        if value is None or not (is_githubs or kind in _INCLUDING or kind in _EXCLUDING):
            continue
        names = _names(value)
        if not isinstance(value, list | tuple) or len(names) < len(value):
            raise ValueError(f"{key}: expected a list of names of tools")
        fields.add(str(key))
        # Gemini CLI takes a name with arguments for the name.
        names = [name.partition("(")[0].strip() for name in names]
        if kind in _EXCLUDING:
            without += names
        else:
            only = names if only is None or "*" in only else [name for name in only if name in names or "*" in names]
    return None if only is not None and "*" in only else only, [*dict.fromkeys(without)], fields


def _says(value: object) -> bool:
    """Whether leaving a field out changes anything: not an empty one, and not one that names everything."""
    return value not in (None, False, "", [], {}, "*", ["*"])


def usable_name(name: str) -> str:
    """Make a name usable, since other agents allow any. Raises ValueError if nothing of it can be used."""
    usable = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:40]
    if not re.fullmatch(SERVER_NAME, usable):
        raise ValueError("no name for a server: letters, digits, - and _ (at most 40)")
    return usable


def listed_servers(document: Mapping[str, object]) -> Mapping[str, object] | None:
    """The servers of a file by name, wherever an agent has them; None if it has none.

    That is under ``mcpServers``, ``servers`` (VS Code), ``mcp`` (opencode), ``context_servers`` (Zed), ``mcp_servers``
    (codex) or ``….mcpServers`` (Amp), or below another section (Augment).
    """
    section = document.get("mcp")
    inner = section if _is_map(section) else {}
    own = {
        name: each
        for name, each in inner.items()
        if name != "servers" and _is_map(each) and {"command", "url"} & each.keys()
    }
    prefixed = (each for name, each in document.items() if name.endswith(".mcpServers"))
    sections = (each.get("mcpServers") for name, each in document.items() if name != "mcp" and _is_map(each))
    named = (document.get(name) for name in _SECTIONS)
    places = [_by_name(each) for each in (*sections, *prefixed, *named)]
    found = [place for place in (own, *places, inner.get("servers")) if _is_map(place)]
    return {name: each for place in found for name, each in place.items()} if own or len(found) > 1 else None


def _by_name(place: object) -> object:
    """A list of servers that say their names, as a table."""
    if isinstance(place, list) and place and all(_is_map(each) and isinstance(each.get("name"), str) for each in place):
        return {each["name"]: each for each in place}
    return place


def servers_of_settings(document: Mapping[str, object], origin: str, notices: list[str]) -> Mapping[str, object]:
    """The settings of a file with its servers in our form: what cannot be used of them becomes a notice."""
    listed, section = listed_servers(document), document.get("mcp")
    if listed is None:
        return document
    servers, said = read_servers(listed, origin)
    notices += said
    rest = {key: value for key, value in document.items() if not _has_servers(key, value)}
    others = {key: value for key, value in section.items() if key not in listed} if _is_map(section) else {}
    return {**rest, "mcp": {**others, "servers": msgspec.to_builtins(servers)}}


def read_servers(listed: Mapping[str, object], origin: str) -> tuple[dict[str, ToolServer], list[str]]:
    """The servers of a file that can be used, by usable names, and what of it cannot."""
    servers: dict[str, ToolServer] = {}
    said: list[str] = []
    for name, each in listed.items():
        try:
            usable, (server, notes) = usable_name(str(name)), server_from(each)
        except ValueError as error:
            said.append(f"{origin}: the server {one_line(str(name), 60)} is not used: {error}")
            continue
        servers[usable] = server
        said += [f"{origin}: the server {usable}: {note}" for note in notes]
    return servers, said


def _has_servers(key: str, value: object) -> bool:
    """Whether `listed_servers` takes servers from this part of a file, and there is nothing else in it."""
    within = _is_map(value) and key != "mcp" and value.keys() == {"mcpServers"}
    return key in _SECTIONS or key.endswith(".mcpServers") or within


def _is_map(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _texts(value: object) -> dict[str, object]:
    """A table of texts; numbers and truth values count as texts, as in an environment."""
    if not _is_map(value):
        return {} if value is None else {"": value}
    return {str(key): str(each) if isinstance(each, int | float) else each for key, each in value.items()}


def _names(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list | tuple) else []


def _oauth(given: Mapping[str, object]) -> tuple[dict[str, object] | None, list[str]]:
    """The section on signing in, by any agent's names for its fields; and those that are not used."""
    section = given.get("oauth") or given.get("auth")
    if not _is_map(section):
        return None, []
    named = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower(): value for key, value in section.items()}
    named["scopes"] = named.pop("scope", None) or named.get("scopes") or ()
    if isinstance(scopes := named["scopes"], str):
        named["scopes"] = scopes.replace(",", " ").split()
    ours = OAuth.__struct_fields__
    used = {key: value for key, value in named.items() if key in ours and value not in ("", None, 0, ())}
    return used or None, [f"oauth.{key}" for key in named if key not in (*ours, "enabled")]


def _from_variables(given: Mapping[str, object]) -> dict[str, str]:
    """Headers whose values codex takes from environment variables."""
    found = {}
    token, named = given.get("bearer_token_env_var"), given.get("env_http_headers")
    if isinstance(token, str) and token:
        found["Authorization"] = f"Bearer ${{{token}}}"
    if _is_map(named):
        found |= {header: f"${{{name}}}" for header, name in named.items()}
    return found
