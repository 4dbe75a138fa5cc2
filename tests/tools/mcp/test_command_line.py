"""`tui-agent mcp` with the command lines of servers' own pages, and servers as they are printed there."""

import json
from pathlib import Path

import pytest

from tui_agent.settings import ToolServer, load_settings
from tui_agent.settings.schema import OAuth
from tui_agent.settings.servers import MOST_CHARS, plain_json, server_from
from tui_agent.tools.mcp.command_line import BadServer, run_action


def run(folder: Path, *words: str) -> str:
    settings = load_settings(folder / "home", folder)
    return run_action(words[0], words[1:], folder / "home", folder, settings, trusted=True)


@pytest.mark.parametrize(
    ("line", "server"),
    [
        ("ctx npx -y @upstash/context7-mcp", {"command": "npx", "args": ["-y", "@upstash/context7-mcp"]}),
        ("--transport http sentry https://mcp.sentry.dev/mcp", {"url": "https://mcp.sentry.dev/mcp"}),
        (
            "air --env KEY=k=1 -- npx -y airtable-mcp-server -e x",
            {"command": "npx", "args": ["-y", "airtable-mcp-server", "-e", "x"], "env": {"KEY": "k=1"}},
        ),
        (
            "-t http safe https://a.b/mcp --header Authorization:Bearer${T}",
            {"url": "https://a.b/mcp", "headers": {"Authorization": "Bearer${T}"}},
        ),
        ("-s user --env=A=1 -e B=2 two -- run", {"command": "run", "env": {"A": "1", "B": "2"}}),
    ],
)
def test_a_server_is_added_shown_and_removed(tmp_path: Path, line: str, server: dict[str, object]) -> None:
    words = line.split()
    name = next(word for word in words if word in ("ctx", "sentry", "air", "safe", "two"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.json").write_text('{"mcp": {"servers": {"other": {"command": "o"}}}}')
    assert f"Added {name}" in run(tmp_path, "add", *words)
    written = json.loads((tmp_path / "home/config.json").read_text())["mcp"]["servers"]
    assert written == {"other": {"command": "o"}, name: server}
    assert f"{name}: " in run(tmp_path, "list")
    assert "k=1" not in run(tmp_path, "get", name)
    with pytest.raises(BadServer, match="already"):
        run(tmp_path, "add", *words)
    assert "Removed" in run(tmp_path, "remove", name)
    with pytest.raises(BadServer, match="no server"):
        run(tmp_path, "get", name)


def test_a_projects_server_goes_to_its_own_file(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{\n  // ours\n  "mcpServers": {"old": {"command": "o"},},\n}')
    run(tmp_path, "add", "--scope", "project", "new", "run", "it")
    assert set(json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]) == {"old", "new"}
    assert "new: run it - off" in run(tmp_path, "list")
    with pytest.raises(BadServer, match="there is a server new already"):
        run(tmp_path, "add-json", "--scope", "project", "new", '{"command": "other"}')
    assert "Added more" in run(tmp_path, "add-json", "more", '{"command": "other", "gallery": true}')
    run(tmp_path, "remove", "new")
    assert set(json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]) == {"old"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("add", "expected `mcp add"),
        ("add x", "expected `mcp add"),
        ("add --what x y", "--what"),
        ("add x https://y -s", "-s"),
        ("add x https://y z", "a server at an address has no arguments: z"),
        ("add --scope moon x y", "there is no scope moon"),
        ("add ! y", r"!: no name for a server"),
        ("add -e NAME x y", "expected NAME=VALUE, got 'NAME'"),
        ("add --header :x x https://y", "expected NAME:VALUE, got ':x'"),
        ("add --callback-port p x https://y", "--callback-port needs a number"),
        ("add-json x {", "not JSON"),
        ("add-json x", "expected `mcp add-json NAME JSON`"),
        ("add-json x []", "x: expected a section with `command`"),
        ("remove x", "there is no server x"),
        ("remove", "expected `mcp remove NAME`"),
        ("get", "there is no server$"),
    ],
)
def test_what_cannot_be_understood_is_said(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(BadServer, match=words):
        run(tmp_path, *line.split())


@pytest.mark.parametrize(("text", "words"), [("{", "Expecting"), ("[]", "expected an object at the top")])
def test_a_projects_broken_file_is_left_alone(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    with pytest.raises(BadServer, match=words):
        run(tmp_path, "add", "--scope", "project", "new", "run")
    assert (tmp_path / ".mcp.json").read_text() == text


PRINTED = {
    "type": ({"type": "stdio", "command": "x"}, {"command": "x"}, ""),
    "http": ({"type": "streamable-http", "url": "https://a/b"}, {"url": "https://a/b"}, ""),
    "milliseconds": ({"command": "x", "timeout": 60000}, {"command": "x", "call_seconds": 60.0}, ""),
    "no end of time": ({"command": "x", "timeout": 10**400}, {"command": "x", "call_seconds": 1e9}, ""),
    "seconds": ({"command": "x", "timeout": 60}, {"command": "x", "call_seconds": 60.0}, ""),
    "a port": ({"command": "x", "env": {"PORT": 80}}, {"command": "x", "env": {"PORT": "80"}}, ""),
    "Zed's": ({"command": {"path": "x", "env": {"A": "1"}}}, {"command": "x", "env": {"A": "1"}}, ""),
    "one list": ({"type": "local", "command": ["npx", "-y", "x"]}, {"command": "npx", "args": ["-y", "x"]}, ""),
    "a token": (
        {"url": "https://a/b", "bearer_token_env_var": "T", "http_headers": {"X": "1"}},
        {"url": "https://a/b", "headers": {"X": "1", "Authorization": "Bearer ${T}"}},
        "",
    ),
    "variables": ({"command": "x", "env_vars": ["A"]}, {"command": "x", "env": {"A": "${A}"}}, ""),
    "Gemini CLI's lists": (
        {"command": "x", "includeTools": ["a", "b(1)"], "excludeTools": ["c"], "trust": True},
        {"command": "x", "include_tools": ["a", "b"], "exclude_tools": ["c"]},
        "not used: trust",
    ),
    "codex's lists": (
        {"command": "x", "enabled_tools": [], "disabled_tools": ["c", "c"], "tools": {"c": {"approval_mode": "auto"}}},
        {"command": "x", "include_tools": [], "exclude_tools": ["c"]},
        "not used: tools",
    ),
    "GitHub's list": ({"command": "x", "tools": ["a_*"]}, {"command": "x", "include_tools": ["a_*"]}, ""),
    "all": ({"command": "x", "tools": ["*"], "includeTools": ["a", "*"], "disabledTools": []}, {"command": "x"}, ""),
    "both count": (
        {
            "command": "x",
            "tools": ["a", "b"],
            "includeTools": ["b", "c"],
            "disabledTools": ["d"],
            "excludeTools": ["e"],
        },
        {"command": "x", "include_tools": ["b"], "exclude_tools": ["d", "e"]},
        "",
    ),
    "unknown": (
        {"command": "x", "autoApprove": ["read"], "alwaysAllow": ["read"], "gallery": True},
        {"command": "x"},
        "not used: autoApprove, alwaysAllow, gallery",
    ),
}


@pytest.mark.parametrize("case", PRINTED)
def test_a_server_as_its_maker_prints_it(tmp_path: Path, case: str) -> None:
    given, expected, note = PRINTED[case]
    server, notes = server_from(given)
    assert server == server_from(expected).server
    assert "".join(notes) == note
    # In the settings it never keeps the program from starting.
    (tmp_path / "config.json").write_text(
        json.dumps({"mcpServers": {"my server": given, "bad": {"type": "sse", "url": "x"}}})
    )
    settings = load_settings(tmp_path, None)
    assert settings.mcp.servers == {"my-server": server}
    assert sum("bad" in each for each in settings.notices) == 1
    assert any(note in each for each in settings.notices)


def test_comments_and_last_commas_are_read(tmp_path: Path) -> None:
    text = '{\n  // one\n  "a": "http://x, }", /* two\n lines */ "b": [1, 2, ],\n}'
    assert json.loads(plain_json(text)) == {"a": "http://x, }", "b": [1, 2]}
    assert plain_json(text).count("\n") == text.count("\n")
    (tmp_path / "config.json").write_text('{\n  // mine\n  "ui": {"theme": "light"},\n}')
    assert load_settings(tmp_path, None).ui.theme == "light"


def test_a_registered_client_is_added_with_its_secret_which_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_CLIENT_SECRET", "s-1")
    (tmp_path / "home").mkdir()
    words = ["hub", "https://a.b/mcp", "--client-id", "me", "--client-secret", "--callback-port", "8080"]
    run(tmp_path, "add", *words)
    written = json.loads((tmp_path / "home/config.json").read_text())["mcp"]["servers"]["hub"]
    assert written["oauth"] == {"client_id": "me", "client_secret": "s-1", "callback_port": 8080}
    assert "s-1" not in run(tmp_path, "get", "hub")
    with pytest.raises(BadServer, match="needs a number"):
        run(tmp_path, "add", "two", "https://a.b/mcp", "--callback-port", "x")


@pytest.mark.parametrize(
    ("printed", "oauth"),
    [
        (
            {"oauth": {"clientId": "a", "callbackPort": 8080, "scopes": "read write"}},
            OAuth(client_id="a", callback_port=8080, scopes=("read", "write")),
        ),
        (
            {"auth": {"CLIENT_ID": "a", "CLIENT_SECRET": "b", "scopes": ["read"]}},
            OAuth(client_id="a", client_secret="b", scopes=("read",)),
        ),
        (
            {"oauth": {"clientId": "a", "clientSecret": "b", "scope": "x"}},
            OAuth(client_id="a", client_secret="b", scopes=("x",)),
        ),
        ({"oauth": {"enabled": True}}, None),
        ({"oauth": False}, None),
    ],
)
def test_signing_in_is_read_as_any_agent_writes_it(printed: dict[str, object], oauth: OAuth | None) -> None:
    assert server_from({"url": "https://a.b/mcp", **printed}) == (ToolServer(url="https://a.b/mcp", oauth=oauth), ())


def test_a_command_line_without_end_is_none() -> None:
    arguments = ["x" * 99] * (MOST_CHARS // 99)
    assert server_from({"command": "python", "args": arguments[:-1]}).server.command == "python"
    with pytest.raises(ValueError, match="a command line of more than 32,768 characters"):
        server_from({"command": "python", "args": [*arguments, "x" * 99]})
