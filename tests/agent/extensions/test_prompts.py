"""Slash commands of the user's own: what they stand for, whose they are, and that what they run passes the gate."""

from pathlib import Path

import pytest

from tests.agent.serving import OPUS, Serve
from tests.agent.talking import Person, of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Script
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.table import run_command
from tui_agent.agent.events import AgentEvent, ModelChanged
from tui_agent.agent.extensions.files import ExtensionFolder, markdown_files
from tui_agent.conversation.blocks import Text
from tui_agent.session import Session
from tui_agent.tools.base import ToolFailure


def write(folder: Path, name: str, text: str) -> None:
    path = folder / "commands" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def sent(agent: Agent, name: str, argument: str = "") -> str:
    prompt = await agent.own_commands.named(name)
    assert prompt is not None
    return await agent.own_commands.expand(prompt, argument)


STANDS_FOR = [
    ("say $1 and $2, of $ARGUMENTS.", "'a b' c", "say a b and c, of 'a b' c."),
    ("nothing is $3 here", "a", "nothing is $3 here"),
    ("$0 before $1, $ARGUMENTS[1], $2", "a b", "a before b, b, $2"),
    (r"\$1 is $1, \\$1 and \$PATH, \$ARGUMENTS", "a", r"$1 is a, \\a and \$PATH, $ARGUMENTS"),
    (r"\$5.00 for", "a", "$5.00 for\n\nArguments: a"),
    ("release v$1", "2", "release v2"),
    ("---\narguments: [issue, branch]\n---\n$issue on $branch, not $issues", "7", "7 on , not $issues"),
    ("!`echo a b | awk '{print \\$2}'`", "c", "b\n\nArguments: c"),
    ("just this", "and that", "just this\n\nArguments: and that"),
    ("costs $100 and $PATH", "", "costs $100 and $PATH"),
    ("hello !`echo $1`.", "'it; id'", "hello it; id."),
    # What the user typed is not read for signs again.
    ("$1 and $2", "'!`id`' '$1'", "!`id` and $1"),
    ("KEY=!`touch made`", "", "KEY=!`touch made`"),
    ("the issue `$1`", "a", "the issue `a`"),
    ("look at @calc.pyx", "", "look at @calc.pyx"),
    ("mail a@b.example", "", "mail a@b.example"),
]


async def test_what_a_command_stands_for(tmp_path: Path) -> None:
    for number, (text, *_) in enumerate(STANDS_FOR):
        write(tmp_path / "home", f"own-{number}", text)
    async with talking(tmp_path) as session:
        for number, (_, argument, expected) in enumerate(STANDS_FOR):
            assert await sent(session.agent, f"own-{number}", argument) == expected


async def test_places_are_filled_in(tmp_path: Path) -> None:
    write(tmp_path / "home", "own", "in ${CLAUDE_PROJECT_DIR}")
    skill = tmp_path / "home" / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tidy\ndescription: Tidy up.\n---\nRun ${CLAUDE_SKILL_DIR}/run.sh $1")
    plugin = ExtensionFolder(tmp_path / "plugin", "yours", kind="plugin", data=tmp_path / "kept")
    write(plugin.folder, "theirs", "read ${CLAUDE_PLUGIN_ROOT}/rules.md, write ${CLAUDE_PLUGIN_DATA}")
    async with talking(tmp_path) as session:
        assert await sent(session.agent, "own") == f"in {tmp_path / 'project'}"
        assert (await sent(session.agent, "tidy", "a b")).endswith(f"Run {skill.parent}/run.sh b")
        read = await session.agent.own_commands._call("read_file", path=str(skill))
        assert f"Run {skill.parent}/run.sh $1" in read
    (command,) = markdown_files((plugin,), "commands")
    assert command.text == f"read {plugin.folder}/rules.md, write {tmp_path / 'kept'}"
    assert (tmp_path / "kept").is_dir()


async def test_a_file_is_put_in_behind_its_mention(tmp_path: Path) -> None:
    write(tmp_path / "home", "own", "see @calc.py now")
    async with talking(tmp_path) as session:
        text = await sent(session.agent, "own")
        first = (tmp_path / "project/calc.py").read_text().splitlines()[0]
    assert text.startswith("see @calc.py\n1\t" + first)
    assert text.endswith(" now")


@pytest.mark.parametrize("text", ["!`touch made`", "@/etc/hostname"])
async def test_what_it_runs_and_reads_passes_the_gate(tmp_path: Path, text: str) -> None:
    write(tmp_path / "home", "own", text)
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=Person(allowed=False)) as session:
        with pytest.raises(ToolFailure, match="was refused: You declined it"):
            await sent(session.agent, "own")
    assert not (tmp_path / "project/made").exists()


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_projects_commands_count_under_trust_and_come_first(tmp_path: Path, trusted: bool) -> None:
    own, project = tmp_path / "home", tmp_path / "project/.agents"
    write(own, "both", "---\ndescription: mine\n---\nx")
    async with talking(tmp_path) as session:
        assert await session.agent.own_commands.named("theirs") is None
    write(project, "both", "---\ndescription: theirs\nargument-hint: <a>\n---\nx")
    write(project, "sub/theirs", "# Do it\n")
    (project / "commands/out.md").symlink_to("/etc/hostname")
    (project / "commands/empty.md").write_text("---\ndescription: x\n---\n")
    async with talking(tmp_path, trusted=trusted) as session:
        assert (await session.agent.own_commands.named("sub:theirs") is not None) == trusted
        found = {prompt.name: prompt for prompt in await session.agent.own_commands.all()}
        assert found["both"].description == ("theirs" if trusted else "mine")
        assert ("sub:theirs" in found) == trusted
        assert "out" not in found
        if trusted:
            assert (found["both"].hint, found["sub:theirs"].description) == ("<a>", "Do it")
            assert found["empty"].problem
            assert await session.agent.own_commands.named("empty") is None
        # Nothing has to be started again for a new one.
        write(own, "new", "later")
        assert await sent(session.agent, "new") == "later"


async def test_a_command_may_name_the_model_that_answers_its_turn(tmp_path: Path, serve: Serve) -> None:
    write(tmp_path / "home", "own", "---\nmodel: haiku\n---\nsay $1")
    write(tmp_path / "home", "none", "---\nmodel: nothing-known\n---\nsay $1")
    server = serve(AnthropicServer(Script()))
    async with talking(tmp_path, OPUS) as session:
        agent = session.agent
        await say(session, "hello")
        changed: list[AgentEvent] = []
        agent.listen(changed.append)
        await say(session, await sent(agent, "own", "a"))
        assert [event.model for event in of(ModelChanged, changed)] == [
            "anthropic:claude-haiku-5-5",
            "anthropic:claude-opus-5-5",
        ]
        await say(session, "say a")
        with pytest.raises(ToolFailure, match="no model"):
            await sent(agent, "none", "a")
    asked = [(request.json or {})["model"] for request in server.model_requests]
    assert asked == ["claude-opus-5-5", "claude-haiku-5-5", "claude-opus-5-5"]


# Output styles: told to the model without touching what began the conversation


def style(folder: Path, name: str, text: str) -> None:
    (folder / "styles").mkdir(parents=True, exist_ok=True)
    (folder / "styles" / f"{name}.md").write_text(f"---\ndescription: {name} answers\n---\n{text}\n")


def told(session: Session) -> str:
    """All the text that the model is shown of the conversation."""
    blocks = (block for message in session.agent.engine.view.messages() for block in message.blocks)
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


async def test_a_style_is_part_of_what_a_conversation_begins_with(tmp_path: Path) -> None:
    style(tmp_path / "home", "brief", "Be brief.")
    async with talking(tmp_path, {"session.style": "brief"}) as session:
        await say(session, "list .")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        assert "<output-style>\nBe brief.\n</output-style>" in prefix.system
        assert not session.notices
    async with talking(tmp_path, {"session.style": "none"}) as session:
        assert "There is no style none" in session.notices[0].text


async def test_another_style_reaches_the_model_behind_what_began_the_conversation(tmp_path: Path) -> None:
    style(tmp_path / "home", "brief", "Be brief.")
    async with talking(tmp_path) as session:
        await say(session, "list .")
        prefix = session.agent.engine.view.prefix
        assert "brief answers" in (await run_command(session.agent, "/style")).text
        assert (await run_command(session.agent, "/style nothing")).failed
        assert not (await run_command(session.agent, "/style brief")).failed
        await say(session, "list .")
        style(tmp_path / "home", "brief", "Be very brief.")
        await say(session, "list .")
        await run_command(session.agent, "/style off")
        await say(session, "list .")
        assert session.agent.engine.view.prefix == prefix
        said = told(session)
        places = [said.index(text) for text in ("\nBe brief.", "\nBe very brief.", "The output style: gone.")]
        assert places == sorted(places)
