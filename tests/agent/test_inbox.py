"""What came up in several sessions is proposed, shown, and only then written."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import Person, put, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import ParsedRequest, Step
from tui_agent.agent import remembering
from tui_agent.agent.commands.command import CommandReply
from tui_agent.agent.commands.table import run_command
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message
from tui_agent.session import Session
from tui_agent.settings import GivenValue

UNCONFINED: dict[str, GivenValue] = {"permissions.sandbox": "off"}


def proposed(reply: CommandReply) -> list[str]:
    """The lines that are proposed, without where they came up."""
    lines = [line for line in reply.text.splitlines() if line[:1].isdigit()]
    return [line.partition(". ")[2].rpartition(" (")[0] for line in lines]


async def held(folder: Path, *prompts: str, then: Callable[[Session], object] = lambda _: None) -> None:
    """A session in which this is said."""
    async with talking(folder, UNCONFINED) as session:
        for prompt in prompts:
            await say(session, prompt)
        then(session)


async def memory(folder: Path, *arguments: str) -> CommandReply:
    """The reply to the last of these, typed in one new session."""
    async with talking(folder, UNCONFINED) as session:
        for argument in arguments:
            reply = await run_command(session.agent, f"/memory {argument}".strip())
        return reply


async def test_what_came_up_in_several_sessions_is_proposed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("# Here\n")
    for number in range(3):
        await held(
            tmp_path,
            f"read README.md and nowhere.md and run `touch {number}` then run `ls` and run `touch done`",
            "Bitte nimm uv statt pip. It has to be quick." if number else "Go on then. It has to be quick.",
        )
    # The next start says that there is something.
    async with talking(tmp_path, UNCONFINED) as session:
        (notice,) = [notice for notice in session.notices if notice.title == "Memory"]
        assert notice.text == "4 things from earlier sessions here could be remembered"
        assert notice.hint == "/memory shows them"
    reply = await memory(tmp_path, "")
    assert proposed(reply) == [
        "you: “It has to be quick.”",
        "you: “Bitte nimm uv statt pip.”",
        "`touch done` works",
        "begins by reading README.md",
    ]
    assert "3 sessions, last on" in reply.text


async def test_it_is_written_once_it_was_read_and_proposed_no_more(tmp_path: Path) -> None:
    for _ in range(3):
        await held(tmp_path, "run `touch done`", "Now go on. It has to be quick.")
    project = tmp_path / "project"
    (project / "AGENTS.md").write_text("# Rules\r\n\nBe kind.\n", newline="")
    assert proposed(await memory(tmp_path, "")) == ["you: “It has to be quick.”", "`touch done` works"]
    reply = await memory(tmp_path, "take 2")
    assert reply.failed
    assert "Read it first" in reply.title
    assert "+- This works: `touch done`" in reply.text
    assert (project / "AGENTS.md").read_bytes() == b"# Rules\r\n\nBe kind.\n"
    reply = await memory(tmp_path, "take 2")
    assert not reply.failed
    written = (project / "AGENTS.md").read_bytes()
    assert written == b"# Rules\r\n\nBe kind.\n\n## From earlier sessions\n\n- This works: `touch done`\n"
    reply = await memory(tmp_path, "1", "take 1")
    assert "/memory forget wishes takes it back" in reply.text
    reply = await memory(tmp_path, "")
    assert proposed(reply) == []
    assert "wishes" in reply.text
    async with talking(tmp_path, UNCONFINED) as session:
        await say(session, "hello")
        stats = session.agent.context_stats()
        assert 0 < stats.memory < stats.categories["system"]
        listed = await run_command(session.agent, "/memory")
        assert f"takes {stats.memory:,} tokens" in listed.text
        assert "memory" in (await run_command(session.agent, "/context text")).text
    assert "- It has to be quick." in (await memory(tmp_path, "wishes")).text
    assert "- Be quick." in (await memory(tmp_path, "edit wishes - Be quick.", "wishes")).text
    assert (await memory(tmp_path, "forget wishes", "wishes")).failed


async def test_what_was_dropped_or_stands_elsewhere_is_not_proposed(tmp_path: Path) -> None:
    for _ in range(3):
        await held(tmp_path, "run `touch done`", "Now go on. It has to be quick.")
    await memory(tmp_path, "drop 1")
    assert proposed(await memory(tmp_path, "")) == ["`touch done` works"]
    async with talking(tmp_path, UNCONFINED, trusted=True) as session:
        (tmp_path / "project/AGENTS.md").write_text("Check with `touch done`.\n")
        assert proposed(await run_command(session.agent, "/memory")) == []
    assert proposed(await memory(tmp_path / "another", "")) == []


async def test_corrections_need_one_session(tmp_path: Path) -> None:
    no = Person(allowed=False, feedback="Never write to that file.")
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=no) as session:
        await say(session, 'write "x" to a.txt')
        await put(session, Message(role="assistant", blocks=(Text("I go on"),), stop_reason="interrupted"))
        await say(session, "Nein, das andere Verzeichnis ist gemeint.")
    assert proposed(await memory(tmp_path, "")) == [
        "you: “Never write to that file.”",
        "you: “Nein, das andere Verzeichnis ist gemeint.”",
    ]


async def test_commands_in_a_row_make_a_skill(tmp_path: Path) -> None:
    for _ in range(2):
        await held(tmp_path, "run `touch one`", "run `touch two`", "run `touch three`")
    assert proposed(await memory(tmp_path, "")) == ["`touch one; then touch two; then touch three`"]
    await memory(tmp_path, "1", "take 1")
    skill = (tmp_path / "project/.agents/skills/touch-three/SKILL.md").read_text()
    assert skill.startswith("---\nname: touch-three\ndescription: ")
    assert "1. `touch one`\n2. `touch two`\n3. `touch three`\n" in skill
    async with talking(tmp_path, UNCONFINED, trusted=True) as session:
        assert "touch-three" in await session.agent.briefing.skills_text()


async def test_the_small_model_proposes_only_if_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    monkeypatch.setattr(remembering, "IDLE_S", 0.01)

    def answers(request: ParsedRequest) -> Step:
        asked = "said to a coding agent in one session" in request.system
        return Step(text="- The port is 8080.\n- \x1b[2JUse uv.\nnone") if asked else Step(text="Yes.")

    serve(AnthropicServer(answers))
    for by_model in (False, True):
        settings: dict[str, GivenValue] = {"model.id": "claude-opus-5-5", "memory.by_model": by_model}
        async with talking(tmp_path, settings) as session:
            await say(session, "Please look at the port of the server " * 8)
            for _ in range(300):
                reply = await run_command(session.agent, "/memory")
                if not by_model or proposed(reply):
                    break
                await asyncio.sleep(0.05)
            assert (session.agent.tracker.subtask_count == 1) is by_model
    assert proposed(reply) == ["The port is 8080.", "Use uv."]
