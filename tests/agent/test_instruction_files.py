"""What of a project's instruction files enters the prompt, whatever they are."""

import os
from pathlib import Path

from tests.agent.talking import say, talking
from tui_agent.agent.briefing.briefing import INSTRUCTIONS_LIMIT, included_in_project, instructions
from tui_agent.agent.briefing.included import MOST_DEEP, MOST_FILES, included, rebased
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion


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


def files(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_claude_md_names_belongs_to_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    named = "Follow @docs/rules.md, and @./docs/rules.md. Mail a@docs/other.md; `@docs/other.md`; @nowhere.md; @docs"
    fence = "\n```\n@docs/other.md\n```\n@../secret.md @~/secret.md\n"
    files(
        project, CLAUDE_md=named + fence, docs__rules_md="Be kind, says @more.md.", docs__more_md="@../CLAUDE.md More."
    )
    files(project, docs__other_md="OTHER")
    files(tmp_path, secret_md="SECRET")
    (project / "docs/led-out.md").symlink_to(tmp_path / "secret.md")
    with (project / "CLAUDE.md").open("a") as stream:
        stream.write("@docs/led-out.md")
    text = instructions(project, project, ("CLAUDE.md",))
    parts = (
        "# docs/rules.md (named in CLAUDE.md)\n\nBe kind, says @more.md.",
        "# docs/more.md (named in CLAUDE.md)\n\n@../CLAUDE.md More.",
    )
    assert text == "\n\n".join((f"# CLAUDE.md\n\n{named}{fence}@docs/led-out.md", *parts))
    files(project, AGENTS_md="See @docs/other.md")
    assert instructions(project, project, ("AGENTS.md",)) == "# AGENTS.md\n\nSee @docs/other.md"


def test_what_is_named_has_bounds(tmp_path: Path) -> None:
    files(tmp_path, **{f"n{number}_md": f"@n{number + 1}.md" for number in range(20)})
    assert len(included(tmp_path / "n0.md")) == MOST_DEEP
    files(tmp_path, **{f"m{number}_md": "x" for number in range(30)})
    files(tmp_path, CLAUDE_md=" ".join(f"@m{number}.md" for number in range(30)))
    assert len(included(tmp_path / "CLAUDE.md")) == MOST_FILES
    files(tmp_path, CLAUDE_md="@big.md @small.md @data", big_md="x" * INSTRUCTIONS_LIMIT, small_md="y")
    (tmp_path / "data").write_bytes(b"a\0b")
    text = instructions(tmp_path, tmp_path, ("CLAUDE.md",))
    assert text.endswith("# small.md (named in CLAUDE.md)\n\n(does not fit here: read it when it matters)")
    assert "a\0b" not in text


def test_what_was_named_beside_a_file_is_named_from_elsewhere(tmp_path: Path) -> None:
    files(tmp_path, RTK_md="x", rules__a_md="x")
    text = "@RTK.md, @./rules/a.md. `@RTK.md` @none.md @~/x.md a@RTK.md"
    moved = "@~/theirs/RTK.md, @~/theirs/rules/a.md. `@RTK.md` @none.md @~/x.md a@RTK.md"
    assert rebased(text, tmp_path, "~/theirs") == moved


async def test_a_change_of_what_is_named_is_news_and_editing_it_asks(tmp_path: Path) -> None:
    files(tmp_path, project__CLAUDE_md="@docs/rules.md", project__docs__rules_md="Be kind.")
    files(tmp_path, home__AGENTS_md="@own.md", home__own_md="Be brief.")
    asked: list[str] = []

    async def no(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.tool)
        return PermissionAnswer(allowed=False)

    async with talking(tmp_path, {"permissions.mode": "auto"}, trusted=True, ask=no) as session:
        await say(session, "hello")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        assert "# own.md (named in AGENTS.md)\n\nBe brief." in prefix.system
        assert "# docs/rules.md (named in CLAUDE.md)\n\nBe kind." in prefix.system
        files(tmp_path, project__docs__rules_md="Be long.")
        await say(session, "hello again")
        assert any("Be long." in str(message) for message in session.agent.engine.view.messages())
        await say(session, 'write "x" to docs/other.md, write "x" to docs/rules.md')
    assert asked == ["write_file"]
    assert (tmp_path / "project/docs/rules.md").read_text() == "Be long."
    assert included_in_project(tmp_path, tmp_path / "project", ("CLAUDE.md",)) == [tmp_path / "project/docs/rules.md"]


async def test_what_claude_code_has_in_its_folder_is_read(tmp_path: Path) -> None:
    claude = tmp_path / "project/.claude"
    for name, text in (
        ("CLAUDE.md", "Be kind. @more.md"),
        ("more.md", "MORE"),
        ("rules/style.md", "Short lines."),
        ("rules/web/forms.md", "---\npaths: ['src/**/*.tsx', web/**]\n---\nUse labels."),
    ):
        (claude / name).parent.mkdir(parents=True, exist_ok=True)
        (claude / name).write_text(text)
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "hello")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        held = "(holds for src/**/*.tsx, web/**: read it before you change one of these)"
        for text in (
            "# .claude/CLAUDE.md\n\nBe kind. @more.md\n\n# more.md (named in CLAUDE.md)\n\nMORE",
            f"# .claude/rules/style.md\n\nShort lines.\n\n# .claude/rules/web/forms.md\n\n{held}",
        ):
            assert text in prefix.system
        (claude / "rules/new.md").write_text("A new rule.")
        await say(session, "hello again")
        assert any("A new rule." in str(message) for message in session.agent.engine.view.messages())
    (tmp_path / "project/AGENTS.md").write_text("Be brief.")
    assert instructions(tmp_path / "project", tmp_path / "project", ("AGENTS.md", ".claude/CLAUDE.md")) == (
        "# AGENTS.md\n\nBe brief."
    )
