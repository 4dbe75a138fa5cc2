"""What a conversation begins with, and how a change of instructions, skills or memory reaches the model."""

import asyncio
import os
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.serving import OPUS, Serve
from tests.agent.talking import Person, say, talking
from tests.agent.test_wire import unmarked
from tests.examples import examples
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Script, Step, Turn
from tui_agent.agent.briefing.briefing import (
    NEWS_LIMIT,
    Briefing,
    PromptSections,
    SectionReader,
    news,
    system_prompt,
)
from tui_agent.agent.briefing.tool_servers import bounded
from tui_agent.context.counting import estimate
from tui_agent.conversation.entries import HeadMoved, Message, Prefix, user_message
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import size_of_text
from tui_agent.session import Session
from tui_agent.tools.notes.memory import Notes, memory_folder
from tui_agent.tools.notes.skills import SkillFolder

TEXTS = st.text("ab<>/\n#é", max_size=12)
SECTIONS = st.builds(PromptSections, TEXTS, TEXTS, TEXTS)


def prompt_of(sections: PromptSections) -> str:
    return system_prompt("Rules.", sections, Path("/work"), date(2026, 1, 2))


def add_skill(folder: Path, name: str, description: str) -> Path:
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\ndescription: {description}\n---\nThe body of {name}.\n")
    return file


def text_of(notice: Message) -> str:
    return "".join(getattr(block, "text", "") for block in notice.blocks)


def told(session: Session) -> list[str]:
    """The notices on the conversation's path."""
    entries = session.agent.engine.view.log.path()
    return [
        getattr(block, "text", "")
        for entry in entries
        if isinstance(entry, Message) and entry.kind == "notice"
        for block in entry.blocks
    ]


def test_a_section_that_is_empty_is_absent_and_the_bytes_are_the_same() -> None:
    assert "<" not in prompt_of(PromptSections())
    whole = prompt_of(PromptSections("rule", "- a: b", "- n"))
    assert whole == prompt_of(PromptSections("rule", "- a: b", "- n"))
    assert (
        whole.index("<project-instructions>\nrule\n")
        < whole.index("<skills>\n- a: b\n")
        < whole.index("<memory>\n- n\n")
    )
    assert whole.startswith("Rules.\n\n")
    assert whole.endswith("Started on: 2026-01-02")


def test_a_text_cannot_end_its_own_section() -> None:
    assert prompt_of(PromptSections(skills="x</skills>y")).count("</skills>") == 1


@given(SECTIONS, st.lists(SECTIONS, max_size=5))
@settings(max_examples=examples(10))
def test_news_is_said_once_and_leaves_nothing_unsaid(begun: PromptSections, later: list[PromptSections]) -> None:
    prompt = prompt_of(begun)
    given_so_far: dict[str, str] = {}
    before = begun
    for now in later:
        found = {notice.about: text_of(notice) for notice in news(prompt, now, given_so_far)}
        changed = [number for number in range(len(now)) if now[number] != before[number]]
        assert len(found) == len(changed)
        for number, text in zip(changed, found.values(), strict=True):
            assert text.endswith(now[number]) if now[number] else "no longer applies" in text
        given_so_far |= found
        assert news(prompt, now, given_so_far) == ()
        before = now


def test_a_long_section_is_cut_in_a_notice_and_told_from_another() -> None:
    prompt = prompt_of(PromptSections())
    (notice,) = news(prompt, PromptSections("x" * 2 * NEWS_LIMIT), {})
    one, told = text_of(notice), {notice.about: text_of(notice)}
    assert len(one) < NEWS_LIMIT + 500
    assert f"{NEWS_LIMIT:,} more characters" in one
    assert news(prompt, PromptSections("x" * 2 * NEWS_LIMIT), told) == ()
    assert news(prompt, PromptSections("x" * (2 * NEWS_LIMIT - 1) + "y"), told) != ()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=400), max_size=60), st.integers(50, 600))
def test_an_index_never_passes_its_limit_and_counts_what_it_leaves_out(lines: list[str], tokens: int) -> None:
    text = bounded("Introduction.", lines, tokens, lambda left: f"[{left} more]")
    assert estimate(size_of_text(text)) <= tokens
    if not lines:
        assert text == ""
    elif text.endswith(" more]"):
        left = int(text.rpartition("[")[2].split()[0])
        assert text == "\n".join(["Introduction.", "", *lines[: len(lines) - left], f"[{left} more]"])
    else:
        assert text == "\n".join(["Introduction.", "", *lines])


def test_the_indexes_of_skills_and_memory_are_bounded(tmp_path: Path) -> None:
    for number in range(400):
        add_skill(tmp_path / "skills", f"skill-{number:03}", "what it is for " * 5)
    notes = Notes(tmp_path / "memory")
    notes.folder.mkdir()
    notes.index.write_text("# Memory\n" + "".join(f"- [n{n}](n{n}.md): about it\n" for n in range(1_000)))
    knowledge = SectionReader(tmp_path, tmp_path, (), (SkillFolder(tmp_path / "skills"),), notes, memory_tokens=500)
    sections = knowledge.sections()
    assert 1_900 < estimate(size_of_text(sections.skills)) <= 2_000
    assert "skill-000" in sections.skills
    assert "skill-399" not in sections.skills
    assert "more skills do not fit here" in sections.skills
    assert 400 < estimate(size_of_text(sections.memory)) <= 500
    assert f"more lines do not fit here: read {notes.index}" in sections.memory


async def test_a_new_conversation_begins_with_all_sections_and_no_bodies(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    async with talking(tmp_path):
        pass
    add_skill(project / ".agents" / "skills", "ours", "Of the project.")
    mine = add_skill(home / "skills", "mine", "Of the user.")
    (project / "AGENTS.md").write_text("Always test.")
    notes = Notes(memory_folder(home, project))
    notes.folder.mkdir(parents=True)
    (notes.folder / "n.md").write_text("The note's own text")
    notes.index.write_text("- [n](n.md): what n says\n")
    for trusted in (False, True):
        async with talking(tmp_path, trusted=trusted) as session:
            await say(session, f"read {mine}")
            prefix = session.agent.engine.view.prefix
            assert prefix is not None
            assert ("Always test." in prefix.system) is trusted
            assert ("- ours: Of the project." in prefix.system) is trusted
            assert f"- mine: Of the user. ({mine})" in prefix.system
            assert "- [n](n.md): what n says" in prefix.system
            assert "The body of" not in prefix.system
            assert "own text" not in prefix.system
            assert {"fetch_url", "memory"} <= {tool.name for tool in prefix.tools}
            assert "Of the user." in await session.agent.briefing.skills_text()
            assert ("Of the project." in await session.agent.briefing.skills_text()) is trusted
            knowledge = session.agent.briefing.knowledge
            assert knowledge is not None
            assert "what n says" in knowledge.memory_text()
            assert not told(session)


async def test_reading_a_skill_or_a_note_asks_nobody(tmp_path: Path) -> None:
    person = Person()
    mine = add_skill(tmp_path / "home" / "skills", "mine", "Of the user.")
    notes = Notes(memory_folder(tmp_path / "home", tmp_path / "project"))
    notes.folder.mkdir(parents=True)
    (notes.folder / "n.md").write_text("The note's own text")
    async with talking(tmp_path, ask=person) as session:
        seen = str(await say(session, f"read {mine} and {notes.folder / 'n.md'}"))
    assert "The body of mine" in seen
    assert "The note's own text" in seen
    assert person.asked == []


async def test_an_edit_reaches_the_model_as_a_notice_once(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    notes = Notes(memory_folder(home, project))
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "hello")
        name, prefix = session.id, session.agent.engine.view.prefix
    notes.folder.mkdir(parents=True)
    steps: list[tuple[Callable[[], object], str]] = [
        (lambda: (project / "AGENTS.md").write_text("Always test."), "The project's instructions changed"),
        (lambda: add_skill(home / "skills", "late", "Came later."), "- late: Came later."),
        (lambda: notes.index.write_text("- [n](n.md): by hand\n"), "- [n](n.md): by hand"),
        ((project / "AGENTS.md").unlink, "The project's instructions: gone."),
    ]
    for number, (change, words) in enumerate(steps, 1):
        # Changed while it is open and while it is not.
        change() if number % 2 else None
        async with talking(tmp_path, trusted=True, resume=name) as session:
            change() if not number % 2 else None
            for _ in range(2):
                await say(session, "hello")
                assert len(told(session)) == number
                assert words in told(session)[-1]
            assert session.agent.engine.view.prefix == prefix


async def test_an_edit_does_not_rewrite_what_was_sent(tmp_path: Path, serve: Serve) -> None:
    """On the wire: the system prompt, the tools and every message before the notice stay byte for byte."""
    writing = Call("memory", {"action": "write", "name": "own", "description": "by the model", "text": "t"})
    script = Script((Turn((Step(calls=(writing,)), Step(text="Noted.")), when="remember"),), Step(text="Yes."))
    notes = Notes(memory_folder(tmp_path / "home", tmp_path / "project"))
    server = serve(AnthropicServer(script))
    async with talking(tmp_path, OPUS, trusted=True) as session:
        await say(session, "one")
        (tmp_path / "project" / "AGENTS.md").write_text("A rule from now on.")
        await say(session, "two")
        await say(session, "remember this")
        add_skill(tmp_path / "home" / "skills", "late", "Came later.")
        await say(session, "four")
        notes.index.write_text(notes.index.read_text() + "- [n](n.md): by hand\n")
        await say(session, "five")
    requests = [request.json for request in server.model_requests]
    assert server.violations == []
    assert len(requests) == 6
    heads, messages = zip(*map(_parts, requests), strict=True)
    assert len(set(heads)) == 1
    for before, after in pairwise(messages):
        assert after[: len(before)] == before
        assert len(after) > len(before)
    last = str(messages[-1])
    for words, since in (("A rule from now on.", 1), ("Came later.", 4), ("by hand", 5)):
        assert [words in str(each) for each in messages] == [False] * since + [True] * (6 - since)
        assert last.count(words) == 1
    assert last.index("A rule from now on.") < last.index("two")
    # What the model wrote itself it need not be told.
    assert ["index of memory" in str(each) for each in messages] == [False] * 5 + [True]


def _parts(body: dict[str, Any] | None) -> tuple[str, list[tuple[str, str]]]:
    """What comes before the messages, and the blocks of all messages in a row; without the cache marks, which move."""
    request = unmarked(body)
    blocks = [(message["role"], str(block)) for message in request["messages"] for block in message["content"]]
    return str([request["system"], request["tools"]]), blocks


async def test_a_note_of_the_models_own_is_told_to_the_next_conversation(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    async with talking(tmp_path, trusted=True) as earlier:
        await say(earlier, "hello")
    notes = Notes(memory_folder(home, project))
    await asyncio.to_thread(notes.folder.mkdir, parents=True)
    notes.index.write_text("- [n](n.md): kept\n")
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "hello")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        assert "- [n](n.md): kept" in prefix.system
        assert not told(session)
    async with talking(tmp_path, trusted=True, resume=earlier.id) as session:
        await say(session, "hello")
        assert "- [n](n.md): kept" in told(session)[0]


async def test_going_back_before_a_notice_says_it_again(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "memory")
    briefing = Briefing(prompt_of, (), SectionReader(tmp_path, tmp_path, ("AGENTS.md",), (), notes))
    await briefing.refresh(100_000)
    log = Log()
    log.append(log.stamp(briefing.prefix, 1.0))
    log.append(log.stamp(user_message("hello"), 2.0))
    begun = log[1]
    assert isinstance(begun, Prefix)
    assert briefing.news(log, begun) == ()
    (tmp_path / "AGENTS.md").write_text("New.")
    await briefing.refresh(100_000)
    (found,) = briefing.news(log, begun)
    assert briefing.news(log, begun) == (found,)
    log.append(log.stamp(found, 3.0))
    assert briefing.news(log, begun) == ()
    log.append(log.stamp(user_message("more"), 4.0))
    assert briefing.news(log, begun) == ()
    log.append(log.stamp(HeadMoved(to=2), 5.0))
    assert briefing.news(log, begun) == (found,)
    assert begun.system != briefing.prefix.system
    log.append(log.stamp(briefing.prefix, 6.0))
    renewed = log[len(log)]
    assert isinstance(renewed, Prefix)
    assert briefing.news(log, renewed) == ()


async def test_nothing_is_read_while_nothing_changes(tmp_path: Path) -> None:
    file = add_skill(tmp_path / "skills", "x", "Before.")
    seen = file.stat()
    knowledge = SectionReader(tmp_path, tmp_path, (), (SkillFolder(tmp_path / "skills"),), Notes(tmp_path / "m"))
    first = knowledge.sections()
    # The same size, inode and time: a change that cannot be seen shows whether the file is read.
    with file.open("r+") as stream:
        stream.write(file.read_text().replace("Before.", "After!!"))
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert knowledge.sections() is first
    file.touch()
    assert "After!!" in knowledge.sections().skills
