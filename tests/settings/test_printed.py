"""What the pages of other agents and of servers print, pasted where it belongs here: none of it stops a start.

`printed/` holds blocks in the forms of Claude Code, VS Code, Cursor, Gemini CLI, codex, opencode, Zed and others.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.talking import say, talking
from tui_agent.conversation.entries import Message
from tui_agent.settings import SettingsError, load_settings
from tui_agent.tools.mcp.configuration import configured

PRINTED = Path(__file__).parent / "printed"
UNUSABLE = "wss://mcp.example.com/socket"
"""The address of the only server that is named as unusable."""


def printed(name: str) -> Any:
    return json.loads((PRINTED / f"{name}.json").read_text(encoding="utf-8"))


def test_there_are_a_hundred() -> None:
    assert sum(len(printed(name)) for name in ("servers", "settings", "hooks", "agents")) == 60
    assert sum(len(printed(f"{name}_pages")) for name in ("server", "settings", "hook")) == 40


@pytest.mark.parametrize("block", printed("servers"), ids=lambda block: json.dumps(block)[:60])
def test_servers_are_read_from_the_settings_and_from_a_project(block: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps(block)
    wanted = 0 if UNUSABLE in text or block == {"mcpServers": {}} else 1
    (tmp_path / "config.json").write_text(text)
    (tmp_path / ".mcp.json").write_text(text)
    settings = load_settings(tmp_path, None, environ={})
    servers, problems = configured({}, tmp_path, tmp_path)
    assert len(settings.mcp.servers) == len(servers) == wanted
    if UNUSABLE in text:
        assert "must begin with http" in problems[0]
        assert "must begin with http" in settings.notices[0]
    assert [each.server for each in servers] == list(settings.mcp.servers.values())


@pytest.mark.parametrize("text", printed("server_pages"), ids=lambda text: text[:60])
def test_a_part_of_a_page_is_read_as_it_stands_there(text: str, tmp_path: Path) -> None:
    for name in ("config.json", ".mcp.json"):
        (tmp_path / name).write_text(text)
    settings = load_settings(tmp_path, None, environ={})
    servers, _ = configured({}, tmp_path, tmp_path)
    (server,) = settings.mcp.servers.values()
    assert [each.server for each in servers] == [server]
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
    for name in ("config.json", ".mcp.json"):
        (tmp_path / name).write_text(text)
    settings = load_settings(tmp_path, None, environ={})
    servers, problems = configured({}, tmp_path, tmp_path)
    assert [each.server.command for each in servers] == ["docs"]
    assert list(settings.mcp.servers) == ["docs"]
    assert settings.notices == ()
    assert problems == ()


def test_what_else_a_section_with_servers_has_is_named(tmp_path: Path) -> None:
    block = {"tool.advanced": {"mcpServers": [{"name": "docs", "command": "docs"}], "speed": 3}}
    (tmp_path / "config.json").write_text(json.dumps(block))
    settings = load_settings(tmp_path, None, environ={})
    assert list(settings.mcp.servers) == ["docs"]
    assert "unknown key 'tool.advanced'" in settings.notices[0]


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


@pytest.mark.parametrize("text", printed("settings_pages"), ids=lambda text: text[:60])
def test_what_does_not_fit_in_the_settings_of_others_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    assert load_settings(tmp_path, None, environ={}).notices


@pytest.mark.parametrize("text", printed("hook_pages"), ids=lambda text: text[:60])
async def test_a_session_with_hooks_of_a_page_answers(text: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hooks.json").write_text(text)
    async with talking(tmp_path) as session:
        await say(session, "list .")
        entries = session.agent.engine.view.log.path()
        assert any(isinstance(entry, Message) and entry.role == "assistant" for entry in entries)


@pytest.mark.parametrize("block", printed("settings"), ids=lambda block: json.dumps(block)[:60])
def test_keys_of_other_agents_in_the_settings_are_named_and_left_alone(block: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(block))
    settings = load_settings(tmp_path, None, environ={})
    if isinstance(block.get("model"), str):
        assert settings.model.id == block["model"]
    for key in block.keys() - {"model", "permissions", "ui", "$schema"}:
        assert any(f" {key!r}" in notice for notice in settings.notices), key


@pytest.mark.parametrize("block", printed("hooks"), ids=lambda block: json.dumps(block)[:60])
async def test_a_session_with_printed_hooks_answers(block: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hooks.json").write_text(json.dumps(block))
    async with talking(tmp_path) as session:
        await say(session, "list .")
        assert any(
            isinstance(entry, Message) and entry.role == "assistant" for entry in session.agent.engine.view.log.path()
        )


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
