"""Which servers there are, which of them may start, and taking over those of other agents."""

import json
from pathlib import Path

import pytest
from msgspec import to_builtins

from tui_agent.settings import ToolServer, load_settings
from tui_agent.settings.brought import brought
from tui_agent.settings.schema import OAuth
from tui_agent.settings.writing import keep_servers
from tui_agent.tools.mcp.configuration import ConfiguredServer, ServerSwitches, configured
from tui_agent.tools.mcp.importing import foreign


def test_a_projects_servers_wait_for_the_user_and_for_that_very_definition(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    write(project / ".mcp.json", {"mcpServers": {"theirs": {"command": "run", "args": ["it"]}}})
    assert brought(project)
    users = {"mine": ToolServer(command="mine")}
    (mine, theirs), problems = configured(users, project, project)
    assert not problems
    choices = ServerSwitches(home)
    assert (choices.is_on(mine), choices.is_new(mine)) == (True, False)
    assert not choices.is_on(theirs)
    assert choices.is_new(theirs)
    choices.turn(theirs, on=True)
    assert ServerSwitches(home).is_on(theirs), "it is remembered"
    changed = ConfiguredServer("theirs", ToolServer(command="run", args=("something else",)), "project", project)
    assert not ServerSwitches(home).is_on(changed)
    assert ServerSwitches(home).is_new(changed)
    choices.turn(mine, on=False)
    assert not ServerSwitches(home).is_on(mine)


def test_only_the_user_may_believe_a_server(tmp_path: Path) -> None:
    write(tmp_path / ".mcp.json", {"mcpServers": {"theirs": {"command": "run", "believe_hints": True}}})
    ((theirs,), _) = configured({}, tmp_path, tmp_path)
    assert not theirs.server.believe_hints


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "Expecting"),
        ({"mcpServers": []}, "no section mcpServers"),
        ({"mcpServers": {"a": {}}}, "either `command` or `url`"),
        ({"mcpServers": {"a": {"url": "file:///etc/passwd"}}}, "must begin with http"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "Expected `array`"),
        ({"mcpServers": {"!": {"command": "x"}}}, "no name for a server"),
        ({"mcpServers": {"a": {"command": "x", "excludeTools": "delete"}}}, "excludeTools: expected a list of names"),
        ({"mcpServers": {"a": {"command": "x", "enabled_tools": [1]}}}, "enabled_tools: expected a list of names"),
    ],
)
def test_a_broken_file_is_said_and_stops_nothing(document: object, said: str, tmp_path: Path) -> None:
    write(tmp_path / ".mcp.json", document)
    servers, problems = configured({"mine": ToolServer(command="x")}, tmp_path, tmp_path)
    assert [server.name for server in servers] == ["mine"]
    assert said in problems[0]


def test_a_projects_settings_bring_no_servers(tmp_path: Path) -> None:
    write(tmp_path / ".agents" / "config.json", {"mcp": {"servers": {"a": {"command": "x"}}}})
    with pytest.raises(Exception, match=r"belong into its .mcp.json"):
        load_settings(tmp_path / "home", tmp_path, trusted=True)


def test_servers_of_other_agents_are_found_and_taken_over_once(tmp_path: Path) -> None:
    home, program, project = tmp_path / "user", tmp_path / "program", tmp_path / "project"
    own = {str(project): {"mcpServers": {"near": {"command": "near", "env": {"K": "v"}}}}}
    write(home / ".claude.json", {"mcpServers": {"far": {"type": "http", "url": "https://far/mcp"}}, "projects": own})
    write(home / ".gemini" / "settings.json", {"mcpServers": {"gem": {"httpUrl": "https://gem/mcp", "timeout": 5}}})
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"cur": {"command": "npx", "args": ["-y", "cur"]}}})
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text('[mcp_servers.dex]\ncommand = "dex"\nargs = ["serve"]\n')
    found = foreign(home, project)
    assert [each.agent for each in found] == ["Claude Code", "codex", "Gemini CLI", "Cursor"]
    every = {name: server for each in found for name, server in each.servers.items()}
    assert every["gem"].url == "https://gem/mcp"
    assert every["dex"].args == ("serve",)
    write(program / "config.json", {"ui": {"theme": "light"}, "mcp": {"servers": {"far": {"command": "mine"}}}})
    keep_servers(program, {name: to_builtins(server) for name, server in every.items()})
    settings = load_settings(program, None)
    assert settings.mcp.servers.keys() == {"far", "near", "dex", "gem", "cur"}
    assert settings.ui.theme == "light"
    assert settings.mcp.servers["far"].command == "mine"
    assert settings.mcp.servers["near"].env == {"K": "v"}


def test_other_agents_files_that_cannot_be_read_or_name_no_server(tmp_path: Path) -> None:
    write(tmp_path / ".claude.json", "{")
    write(tmp_path / ".codex/config.toml", "model = 'x'")
    write(tmp_path / ".gemini/settings.json", "[]")
    (tmp_path / ".cursor/mcp.json").mkdir(parents=True)
    broken, folder = foreign(tmp_path, tmp_path / "project")
    assert (broken.agent, broken.servers, len(broken.problems)) == ("Claude Code", {}, 1)
    assert folder.problems == (f"{tmp_path / '.cursor/mcp.json'}: cannot be read: it is not a regular file.",)


def test_variables_are_filled_in_wherever_a_server_has_texts(tmp_path: Path) -> None:
    server = ToolServer(
        command="${TOOL}",
        args=("--token=${TOKEN}", "${PORT:-80}", "${workspaceFolder}/x", "$TOKEN"),
        env={"A": "${TOKEN}"},
        oauth=OAuth(client_secret="${TOKEN}"),
        call_seconds=3.0,
        always_load=("a",),
    )
    found = ConfiguredServer("a", server, "user", tmp_path).resolved({"TOOL": "run", "TOKEN": "t"})
    assert (found.command, found.args) == ("run", ("--token=t", "80", f"{tmp_path}/x", "$TOKEN"))
    assert (found.env, found.oauth, found.call_seconds) == ({"A": "t"}, OAuth(client_secret="t"), 3.0)
    with pytest.raises(KeyError, match="TOKEN"):
        ConfiguredServer("a", server, "user", tmp_path).resolved({"TOOL": "run"})


def test_a_server_is_shown_without_its_secrets_on_a_line_that_ends(tmp_path: Path) -> None:
    server = ToolServer(command="run", args=("a b", "${TOKEN}", "x" * 3_000), env={"A": "secret"})
    shown = ConfiguredServer("a", server, "user", tmp_path).shown
    assert shown.startswith("A=… run 'a b' '${TOKEN}' xxx")
    assert len(shown) == 2_000
    assert len(ConfiguredServer("a", ToolServer(url="https://a/" + "x" * 3_000), "user", tmp_path).shown) == 2_000


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
