"""What of a project's instruction files enters the prompt, whatever they are."""

import os
from pathlib import Path

from tests.agent.talking import say, talking
from tui_agent.agent.briefing.briefing import INSTRUCTIONS_LIMIT, instructions


def told(project: Path) -> str:
    return instructions(project, project, ("AGENTS.md",))


def test_a_link_within_the_project_is_followed_and_one_that_leads_out_is_not(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (project / "docs" / "rules.md").write_text("Be kind.")
    (tmp_path / "secret").write_text("a SECRET")
    (project / "AGENTS.md").symlink_to("docs/rules.md")
    assert told(project) == "# AGENTS.md\n\nBe kind."
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert "SECRET" not in told(project)
    assert "leads out of the project" in told(project)


def test_a_file_of_any_size_is_read_up_to_a_bound(tmp_path: Path) -> None:
    with (tmp_path / "AGENTS.md").open("wb") as stream:
        stream.write(b"Be kind. ")
        os.truncate(stream.fileno(), 3_000_000_000)
    text = told(tmp_path)
    assert text.startswith("# AGENTS.md\n\nBe kind. ")
    assert len(text) < INSTRUCTIONS_LIMIT + 200
    assert text.endswith("more characters in this file]")
    (tmp_path / "AGENTS.md").write_text("x" * (INSTRUCTIONS_LIMIT + 7))
    assert told(tmp_path).endswith("\n[… 7 more characters in this file]")


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "AGENTS.md")
    assert told(tmp_path) == ""


async def test_the_users_own_stand_before_the_projects_and_a_change_is_news(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    own = tmp_path / "home" / "AGENTS.md"
    own.write_text("Be brief.")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "AGENTS.md").write_text("Be kind.")
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "hello")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        assert prefix.system.index("Be brief.") < prefix.system.index("# AGENTS.md\n\nBe kind.")
        own.write_text("Be long.")
        await say(session, "hello again")
        assert any("Be long." in str(message) for message in session.agent.engine.view.messages())
