"""What the pages of other agents and of servers print, pasted where it belongs here: none of it stops a start.

`printed/` holds blocks in the forms of Claude Code, VS Code, Cursor, Gemini CLI, codex, opencode, Zed and others.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.talking import say, talking
from tui_agent.conversation.entries import Message
from tui_agent.settings import SettingsError, ToolServer, load_settings
from tui_agent.tools.mcp.configuration import configured

PRINTED = Path(__file__).parent / "printed"
UNUSABLE = "wss://mcp.example.com/socket"
"""The address of the only server that is named as unusable."""


def printed(name: str) -> Any:
    return json.loads((PRINTED / f"{name}.json").read_text(encoding="utf-8"))


def both(text: str, folder: Path) -> tuple[tuple[str, ...], list[ToolServer]]:
    """The notices, and the servers that are found: the same in the settings and in a project's own file."""
    for name in ("config.json", ".mcp.json"):
        (folder / name).write_text(text)
    settings = load_settings(folder, None, environ={})
    servers, problems = configured({}, folder, folder)
    found = list(settings.mcp.servers.values())
    assert [each.server for each in servers] == found
    return (*settings.notices, *problems), found


@pytest.mark.parametrize("block", printed("servers"), ids=lambda block: json.dumps(block)[:60])
def test_servers_are_read_from_the_settings_and_from_a_project(block: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps(block)
    said, servers = both(text, tmp_path)
    assert len(servers) == (0 if UNUSABLE in text or block == {"mcpServers": {}} else 1)
    assert sum("must begin with http" in each for each in said) == 2 * (UNUSABLE in text)


@pytest.mark.parametrize("text", printed("server_pages"), ids=lambda text: text[:60])
def test_a_part_of_a_page_is_read_as_it_stands_there(text: str, tmp_path: Path) -> None:
    _, (server,) = both(text, tmp_path)
    assert server.command or server.url.startswith(("https://", "${API"))
    if "YOUR_" in text:
        assert server.headers["Authorization"].startswith("Bearer YOUR_")


ELSEWHERE = {
    "a prefix": '{"tool.mcpServers": {"docs": {"command": "docs"}}}',
    "a section of another name": '{"tool.advanced": {"mcpServers": [{"name": "docs", "command": "docs"}]}}',
    "as codex in JSON": '{"mcp_servers": {"docs": {"command": "docs"}}}',
    "a list as codex has it": '{"mcp_servers": [{"name": "docs", "command": "docs"}]}',
    "a comment with a bracket": """{"mcpServers": {"docs": {
      "command": "docs",
      // "tools": ["one", "two"],
      /* } */ "args": []
    }}}""",
    "ends of lines": '{"mcpServers": {\\\n "docs": {\\ \n "command": "docs"\\\n}}}',
    "nothing to leave out": '{"$schema": "https://x.example/s.json", "mcpServers": {"docs": {"command": "docs", '
    '"autoApprove": [], "tools": ["*"], "gallery": false}}}',
}


@pytest.mark.parametrize("text", ELSEWHERE.values(), ids=ELSEWHERE)
def test_servers_are_found_wherever_a_page_has_them(text: str, tmp_path: Path) -> None:
    said, servers = both(text, tmp_path)
    assert ([each.command for each in servers], said) == (["docs"], ())


def test_what_else_a_section_with_servers_has_is_named(tmp_path: Path) -> None:
    block = {"tool.advanced": {"mcpServers": [{"name": "docs", "command": "docs"}], "speed": 3}}
    said, servers = both(json.dumps(block), tmp_path)
    assert [each.command for each in servers] == ["docs"]
    assert "unknown key 'tool.advanced'" in said[0]


NO_JSON = '"tool_servers": 1, "mcpServers": [ "docs": {"command": "docs"} ]'


def test_a_page_that_is_no_json_stops_no_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(NO_JSON)
    settings = load_settings(tmp_path, None, environ={})
    (notice,) = settings.notices
    assert notice.endswith("; nothing in this file is used")
    assert "malformed JSON at line 1" in notice
    (tmp_path / "config.json").write_text(f'"permissions": {{"deny": ["fetch_url"]}}, {NO_JSON}')
    with pytest.raises(SettingsError, match="malformed JSON"):  # a limit must not go unnoticed
        load_settings(tmp_path, None, environ={})


@pytest.mark.parametrize("text", printed("settings_pages") + printed("settings"), ids=lambda text: str(text)[:60])
def test_keys_of_other_agents_in_the_settings_are_named_and_left_alone(text: Any, tmp_path: Path) -> None:
    block: dict[str, Any] = {} if isinstance(text, str) else text
    (tmp_path / "config.json").write_text(json.dumps(block) if block else text)
    settings = load_settings(tmp_path, None, environ={})
    if isinstance(block.get("model"), str):
        assert settings.model.id == block["model"]
    for key in block.keys() - {"model", "permissions", "ui", "$schema"}:
        assert any(f" {key!r}" in notice for notice in settings.notices), key
    assert block or settings.notices


@pytest.mark.parametrize(
    "text",
    [*printed("hook_pages"), *(pytest.param(each, marks=pytest.mark.soak) for each in printed("hooks"))],
    ids=lambda text: str(text)[:60],
)
async def test_a_session_with_printed_hooks_answers(text: Any, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hooks.json").write_text(text if isinstance(text, str) else json.dumps(text))
    async with talking(tmp_path) as session:
        await say(session, "list .")
        entries = session.agent.engine.view.log.path()
        assert any(isinstance(entry, Message) and entry.role == "assistant" for entry in entries)


async def test_printed_agents_are_offered(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "agents"
    folder.mkdir(parents=True)
    for name, text in printed("agents").items():
        (folder / f"{name}.md").write_text(text)
    async with talking(tmp_path) as session:
        await say(session, "hello")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        for name in printed("agents"):
            assert name in prefix.system, name
