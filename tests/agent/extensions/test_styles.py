"""Output styles: chosen in the settings or in the session, told to the model without touching what began it."""

from pathlib import Path

from tests.agent.talking import say, talking
from tui_agent.agent.commands.table import run_command
from tui_agent.conversation.blocks import Text
from tui_agent.session import Session


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
