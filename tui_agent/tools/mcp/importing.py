"""Importing servers from the files of other agents into the user's settings.

Supported are Claude Code (``~/.claude.json``, for the user and for this project), codex, Gemini CLI and Cursor.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.settings import ToolServer
from tui_agent.tools.mcp.configuration import read_document, read_json, servers_in

FILES: Final = (
    ("Claude Code", ".claude.json"),
    ("codex", ".codex/config.toml"),
    ("Gemini CLI", ".gemini/settings.json"),
    ("Cursor", ".cursor/mcp.json"),
)
"""The agents and their files with servers, relative to the user's home."""


class ForeignServers(msgspec.Struct, frozen=True):
    """The servers of another agent's file, and sentences about what in it cannot be used."""

    agent: str
    path: Path
    servers: Mapping[str, ToolServer]
    problems: tuple[str, ...] = ()


def foreign(home: Path, project: Path) -> list[ForeignServers]:
    """The servers of other agents, for the user and for this project. Reads files."""
    found = [_read(agent, home / name, project) for agent, name in FILES]
    return [each for each in found if each is not None]


def _read(agent: str, path: Path, project: Path) -> ForeignServers | None:
    """The servers in a file; None if there is no file, or it has none."""
    try:
        document = read_settings(path)
    except ValueError as error:
        return ForeignServers(agent, path, {}, (str(error),))
    if not isinstance(document, dict):
        return None
    listed: dict[str, object] = {}
    for section in _sections(document, project):
        if isinstance(section, dict):
            listed.update(section)
    if not listed:
        return None
    for name, each in listed.items():
        if isinstance(each, dict) and _is_off(name, document, project):
            listed[name] = {**each, "enabled": False}
    found = servers_in({"mcpServers": listed}, str(path))
    return ForeignServers(agent, path, found.servers, found.problems)


def _is_off(name: str, document: Mapping[str, object], project: Path) -> bool:
    """Whether the other agent does not use this server here, by a list of its settings."""
    section, projects = document.get("mcp"), document.get("projects")
    gemini = section if isinstance(section, dict) else {}
    own = projects.get(str(project)) if isinstance(projects, dict) else None
    allowed = gemini.get("allowed", document.get("allowMCPServers"))
    excluded = (
        gemini.get("excluded"),
        document.get("excludeMCPServers"),
        own.get("disabledMcpServers") if isinstance(own, dict) else None,
    )
    return (isinstance(allowed, list) and name not in allowed) or any(
        isinstance(names, list) and name in names for names in excluded
    )


def read_settings(path: Path) -> object:
    """The document in a file of JSON or TOML; None if there is no file. Raises ValueError with a sentence."""
    return read_document(path, tomllib.loads) if path.suffix == ".toml" else read_json(path)


def _sections(document: Mapping[str, object], project: Path) -> list[object]:
    """The sections of a file with servers, the most specific to the project last."""
    projects = document.get("projects")
    own = projects.get(str(project)) if isinstance(projects, dict) else None
    return [
        document.get("mcp_servers"),  # codex
        document.get("mcpServers"),
        own.get("mcpServers") if isinstance(own, dict) else None,  # Claude Code, per project
    ]
