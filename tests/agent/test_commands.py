"""The table of the commands in text form: cheap to read, and each name and mark means one thing."""

import subprocess
import sys
from pathlib import Path

from tests.agent.talking import talking
from tui_agent.agent.commands.command import AT_ONCE
from tui_agent.agent.commands.table import COMMANDS, IN_TEXT, available_commands, run_command
from tui_agent.session import Session
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.rules import Rule


def test_help_and_completion_import_nothing_heavy() -> None:
    code = "import sys, tui_agent.agent.commands.table; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"textual", "rich", "anthropic", "google", "msgspec", "sqlite3", "aiosqlite", "httpx", "tiktoken"}
    assert heavy & set(done.stdout.split()) == set()


def test_no_name_is_used_twice() -> None:
    names = [name for command in (*COMMANDS, *IN_TEXT) for name in command.names]
    assert len(names) == len(set(names))


async def test_only_what_has_a_preview_can_be_asked_for_without_one(session: Session) -> None:
    for command in (*COMMANDS, *IN_TEXT):
        for name in command.names:
            reply = await run_command(session.agent, f"/{name.upper()}{AT_ONCE}")
            assert reply.failed
            assert ("There is no command" in reply.title) is not bool(command.previews)


async def test_without_checkpoints_there_is_no_done(tmp_path: Path) -> None:
    async with talking(tmp_path, {"checkpoints.enabled": "false"}) as session:
        names = [name for command in available_commands(session.agent) for name in command.names]
        assert "done" not in names
        assert "compact" in names
        assert (await run_command(session.agent, "/done!")).title == "There is no command /done!"
        assert "/done" not in (await run_command(session.agent, "/help")).text


async def test_without_rules_it_is_said_where_they_come_from(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        reply = await run_command(session.agent, "/permissions")
    assert reply.title == "0 rules"
    assert "permissions.allow" in reply.text


async def test_rules_are_listed_and_taken_back(tmp_path: Path) -> None:
    project, store = tmp_path / "project", tmp_path / "home" / "permissions.json"
    project.mkdir()
    RememberedRules(store, project).add([Rule("run_command", "make test"), Rule("edit_file", "*")])
    async with talking(tmp_path, {"permissions.deny": ["fetch_url"]}) as session:
        listed = (await run_command(session.agent, "/permissions")).text
        assert "run_command(make test) · the command make test (remembered)" in listed
        assert "edit_file(*) · every edit in this project (remembered)" in listed
        assert "fetch_url (settings, deny)" in listed
        assert (await run_command(session.agent, "/permissions 3")).failed
        assert (await run_command(session.agent, "/permissions 9")).failed
        reply = await run_command(session.agent, "/permissions 1")
        assert (reply.title, reply.text) == ("You will be asked again", "run_command(make test)")
        assert [rule.text for rule in session.agent.permissions.rules()] == ["edit_file(*)", "fetch_url"]
    assert [rule.text for rule in RememberedRules(store, project).rules] == ["edit_file(*)"]


async def test_a_part_of_several_models_names_switches_to_none(session: Session) -> None:
    reply = await run_command(session.agent, "/model gemini-3")
    assert (reply.failed, session.agent.profile.name) == (True, "offline:offline")
    assert "several models: gemini-3.8-flash" in reply.text
    assert "There is no key for anthropic:claude-haiku" in (await run_command(session.agent, "/model haiku")).text
