"""What `tui-agent import` takes over from other agents, and what it says of the rest."""

import json
from pathlib import Path

import pytest

from tui_agent.reports.bringing import import_report
from tui_agent.settings import load_settings

CLAUDE = {
    "model": "claude-opus-4-5[1m]",
    "permissions": {
        "allow": ["Bash(git status:*)", "Bash(make test)", "Bash(npm run:*)", "mcp__git", "Read(~/notes/**)", "Bash"],
        "ask": ["WebFetch(domain:example.org)", "Edit(//etc/**)", "Edit(/src/**)", "TodoWrite"],
        "deny": ["Bash(rm:*)", "Read(./.env)", "Read(**/*.pem)"],
        "defaultMode": "plan",
    },
    "hooks": {},
    "effortLevel": "high",
    "cleanupPeriodDays": 30,
}


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    for name in (".claude", ".codex", ".gemini"):
        (folder / name).mkdir(parents=True)
    return folder


def taken(user: Path, agent: str, *, write: bool = True) -> tuple[str, Path]:
    home = user.parent / "home"
    settings = load_settings(home, None)
    return import_report(agent, user, home, user.parent / "project", settings, write=write), home


def test_claude_codes_settings_come_over_and_what_cannot_is_named(user: Path) -> None:
    (user / ".claude/settings.json").write_text(json.dumps(CLAUDE))
    servers = {
        "git": {"command": "uvx", "args": ["mcp-server-git"]},
        "old": {"type": "sse", "url": "https://x.example"},
        "odd": {"env": {"A": "b"}},
    }
    (user / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    told, home = taken(user, "claude-code", write=False)
    assert not (home / "config.json").exists()
    assert "Nothing was written" in told
    told, home = taken(user, "claude-code")
    settings = load_settings(home, None)
    assert settings.model.id == "anthropic:claude-opus-4-5"
    assert settings.mcp.servers["git"].args == ("mcp-server-git",)
    assert settings.mcp.servers["old"].type == "sse"
    assert settings.model.effort == "high"
    allowed = ("run_command(git status *)", "run_command(make test)", "mcp__git__*", "read_file(~/notes/*)")
    assert settings.permissions.allow == allowed
    assert settings.permissions.ask == ("fetch_url(https://example.org/*)", "edit_file(/etc/*)", "write_file(/etc/*)")
    assert settings.permissions.deny == ("run_command(rm *)", "read_file(.env)", "read_file(*.pem)")
    left = told.partition("Not taken over:")[2]
    named = "Bash(npm run:*)|Edit(/src/**)|TodoWrite|allow: Bash:|odd|defaultMode|hooks|cleanupPeriodDays"
    assert [name for name in named.split("|") if name not in left] == []
    assert taken(user, "claude-code")[0].startswith("Nothing new")


def test_codex_and_gemini(user: Path) -> None:
    (user / ".codex/config.toml").write_text(
        'model = "gpt-5.1"\napproval_policy = "never"\n[mcp_servers.docs]\nurl = "https://docs.example/mcp"\n'
        'enabled_tools = ["search"]\n'
    )
    (user / ".codex/AGENTS.md").write_text("Be brief. See @more.md")
    (user / ".codex/more.md").write_text("More.")
    told, home = taken(user, "codex")
    assert load_settings(home, None).model.id == "openai:gpt-5.1"
    assert "approval_policy: " in told
    assert (home / "AGENTS.md").read_text() == f"Be brief. See @{user}/.codex/more.md"
    assert "mcp.servers.docs: https://docs.example/mcp (only search)" in told
    gemini = {
        "model": {"name": "gemini-2.5-pro"},
        "tools": {"allowed": ["run_shell_command(git log)"]},
        "mcpServers": {"notes": {"command": "notes", "excludeTools": ["drop"], "trust": True}},
    }
    (user / ".gemini/settings.json").write_text("// mine\n" + json.dumps(gemini))
    told, home = taken(user, "gemini", write=False)
    assert "model.id = gemini:gemini-2.5-pro (instead of openai:gpt-5.1)" in told
    assert "mcp.servers.notes: notes (without drop)" in told
    assert "notes: not used: trust." in told
    taken(user, "gemini")
    settings = load_settings(home, None)
    assert settings.mcp.servers["notes"].exclude_tools == ("drop",)
    assert settings.mcp.servers["docs"].include_tools == ("search",)
    assert settings.permissions.allow == ("run_command(git log *)",)
    assert settings.mcp.servers["docs"].url == "https://docs.example/mcp"


def test_a_server_that_the_other_agent_has_off_is_off_here(user: Path) -> None:
    servers = {name: {"command": name} for name in ("one", "two", "three")}
    gemini = {"mcpServers": servers, "mcp": {"allowed": ["one", "two"], "excluded": ["two"], "serverCommand": "x"}}
    (user / ".gemini/settings.json").write_text(json.dumps(gemini))
    (user / ".claude.json").write_text(
        json.dumps(
            {
                "mcpServers": {"four": {"command": "four"}, "five": {"command": "five"}},
                "projects": {str(user.parent / "project"): {"disabledMcpServers": ["five"]}},
            }
        )
    )
    told, home = taken(user, "gemini")
    taken(user, "claude-code")
    found = load_settings(home, None).mcp.servers
    assert {name: server.enabled for name, server in found.items()} == {
        "one": True, "two": False, "three": False, "four": True, "five": False,
    }  # fmt: skip
    assert "mcp.serverCommand: " in told
    assert "mcp.allowed" not in told


def test_what_else_is_in_the_folder_is_named(user: Path) -> None:
    (user / ".codex/skills").mkdir()
    for agent, files, said in (
        ("codex", [".codex/prompts/fix.md", ".codex/hooks.json"], [".codex/prompts: copy", ".codex/hooks.json: they"]),
        ("gemini", [".gemini/commands/fix.toml", ".gemini/extensions/x/y.json"], [".gemini/commands: write"]),
        ("claude-code", [".claude/rules/style.md"], [".claude/rules: copy"]),
    ):
        for name in files:
            (user / name).parent.mkdir(parents=True, exist_ok=True)
            (user / name).write_text("x")
        left = taken(user, agent, write=False)[0].partition("Not taken over:")[2]
        assert all(each in left for each in said)
        assert "skills" not in left


def test_a_server_of_the_users_stays(user: Path) -> None:
    (user / ".claude.json").write_text(json.dumps({"mcpServers": {"git": {"command": "other"}}}))
    home = user.parent / "home"
    home.mkdir()
    (home / "config.json").write_text(json.dumps({"mcp": {"servers": {"git": {"command": "mine"}}}}))
    told, _ = taken(user, "claude-code")
    assert "the server git: your settings have another one" in told
    assert load_settings(home, None).mcp.servers["git"].command == "mine"


@pytest.mark.parametrize("content", ["{", "[]", '{"model": "no-such-model", "permissions": 3}', "\x00"])
def test_a_bad_file_is_told_and_stops_nothing(user: Path, content: str) -> None:
    (user / ".claude/settings.json").write_text(content)
    (user / ".claude.json").write_text(json.dumps({"mcpServers": {"git": {"command": "uvx"}}}))
    told, home = taken(user, "claude-code")
    assert "settings.json" in told or "no-such-model" in told
    assert "git" in load_settings(home, None).mcp.servers
    assert (user / ".claude/settings.json").read_text() == content
