"""`recall`: bounded answers, whatever is asked and whatever is found."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.entries import stamped
from tests.tools.support import call
from tui_agent.conversation.blocks import ToolResult
from tui_agent.conversation.entries import AnyEntry, tool_result, user_message
from tui_agent.conversation.recalled import RecallHit, RecallHits
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.recall import search
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.recall import Recall


class Session:
    """A real index over a log, as a session gives it to the tool."""

    def __init__(self, folder: Path, entries: list[AnyEntry], hidden: set[int] | None = None) -> None:
        self._artifacts = Artifacts(folder)
        self._entries = entries
        self._hidden = hidden

    async def __call__(self, query: str, limit: int) -> RecallHits:
        return await search(self._artifacts, self._entries, query, limit, hidden=self._hidden)


class Found:
    """Always the same hits."""

    def __init__(self, *hits: RecallHit, total: int = 0) -> None:
        self._hits = hits
        self._total = max(total, len(hits))

    async def __call__(self, query: str, limit: int) -> RecallHits:
        return RecallHits(self._hits[:limit], self._total)


HIT = RecallHit(
    seq=7,
    time=1_000.0,
    role="tool_result",
    tool="grep",
    call='pattern="x"',
    match="exact",
    hidden=True,
    excerpt="the fact is 42",
    offset=4,
    place="characters 0-14 of 14, from line 1",
    read='read_file(path="/s/large_tool_results/a", offset=1)',
)


async def test_an_answer_says_what_stands_where(tmp_path: Path) -> None:
    output = await call(Recall(Found(HIT)), tmp_path, query="fact")
    assert output.text.splitlines()[1:] == [
        '1. Entry 7, result of grep(pattern="x"); 1970-01-01 00:16 UTC; no longer in view',
        "characters 0-14 of 14, from line 1",
        'More of it: read_file(path="/s/large_tool_results/a", offset=1)',
        "~~~",
        "the fact is 42",
        "~~~",
    ]
    assert "instruction" in output.text.splitlines()[0]
    assert output.paged
    assert output.summary == "1 found"


@pytest.mark.parametrize(
    ("hit", "told"),
    [
        (
            {"role": "odd", "hidden": False, "tool": "", "call": ""},
            "1. Entry 7, odd; 1970-01-01 00:16 UTC\ncharacters 0-14 of 14",
        ),
        ({"tool": "t" * 60, "call": "c" * 300}, f", result of {'t' * 60}({'c' * 300}); "),
        ({"role": "tool_call", "tool": "t" * 61, "call": "c" * 301}, f", your call of {'t' * 60}…({'c' * 300}…); "),
        (
            {"role": "user", "session": "s1", "tool": "", "call": ""},
            "1. Session s1, the user; 1970-01-01 00:16 UTC\nch",
        ),
        ({"read": "", "excerpt": "a\n~~~~\nb"}, "from line 1\n===\na\n~~~~\nb\n==="),
    ],
)
async def test_what_is_told_of_a_hit(hit: dict[str, object], told: str, tmp_path: Path) -> None:
    found = msgspec.convert({**msgspec.structs.asdict(HIT), **hit}, RecallHit)
    assert told in (await call(Recall(Found(found)), tmp_path, query="y")).text


@pytest.mark.parametrize(("size", "shown"), [(10, 8), (500, 8), (1_700, 3), (9_000, 1)])
async def test_eight_hits_are_told_in_six_thousand_characters(size: int, shown: int, tmp_path: Path) -> None:
    hits = [msgspec.structs.replace(HIT, excerpt="y" * size, offset=0)] * 10
    text = (await call(Recall(Found(*hits)), tmp_path, query="y")).text
    assert text.count("Entry 7") == shown
    assert f"[{10 - shown} more. To narrow" in text
    assert len(text) <= 6_000


async def test_a_fact_is_found_byte_for_byte(tmp_path: Path) -> None:
    fact = '\tx = "a\\b"\r\n~~~~\n  Größe::漢字/a-42 '
    log = stamped([user_message("hi"), tool_result(ToolResult("c1", f"noise {fact} noise"))])
    output = await call(Recall(Session(tmp_path, log, hidden={2})), tmp_path, query=fact)
    assert fact in output.text
    assert "no longer in view" in output.text


@given(excerpt=st.text("~=#+ab\n", max_size=60))
async def test_nothing_in_an_excerpt_can_end_it(excerpt: str) -> None:
    output = await call(Recall(Found(msgspec.structs.replace(HIT, excerpt=excerpt))), Path(), query="x")
    fence = output.text.splitlines()[-1]
    assert fence not in excerpt
    assert output.text.endswith(f"\n{fence}\n{excerpt}\n{fence}")


@pytest.mark.parametrize("query", ["\0", '"', "NEAR(", "x" * 10_000, "\u202e", "a\nb", "-", "😀"])
async def test_an_odd_query_finds_nothing_in_one_line(tmp_path: Path, query: str) -> None:
    output = await call(Recall(Session(tmp_path, stamped([user_message("hello")]))), tmp_path, query=query)
    assert len(output.text.splitlines()) == 1
    assert len(output.text) < 300


async def test_an_empty_query_is_answered_with_what_to_do(tmp_path: Path) -> None:
    output = await call(Recall(Found(HIT)), tmp_path, query="")
    assert output.is_error
    assert "quote" in output.text


async def test_it_needs_nobody_s_word(tmp_path: Path) -> None:
    recall = Recall(Found())
    assert recall.effect == "none"
    assert recall.access('{"query": "x"}', Workspace(tmp_path)) == ()
    assert 'query: "a\\nb"' in recall.preview('{"query": "a\\nb"}', Workspace(tmp_path)).text
    with pytest.raises(ToolFailure, match="no other sessions"):
        await call(recall, tmp_path, query="x", other_sessions=True)
