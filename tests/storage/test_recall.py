"""The search behind `recall`: whatever a model once saw is found by quoting it."""

import json
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.entries import LOGS, stamped
from tests.tools.support import call
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    Checkpointed,
    Delivered,
    Digested,
    HeadMoved,
    Message,
    Queued,
    Summarized,
    Withdrawn,
    notice,
    tool_result,
    user_message,
)
from tui_agent.conversation.recalled import RecallHit, RecallHits
from tui_agent.storage.artifacts import RAW_FOLDER, Artifacts
from tui_agent.storage.recall import OVERLAP, STRIDE, search
from tui_agent.tools.files.reading import ReadFile

EVERYTHING = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
PLANTED = st.one_of(
    EVERYTHING,
    st.text("ab \n", min_size=1, max_size=8),
    st.text(st.sampled_from("\"*-(){}:^'~./\\äß漢字😀\0\u0301"), min_size=1, max_size=12),
    st.builds(lambda text, times: text * times, EVERYTHING, st.integers(1, 300)),
)


ODD = ["", "\ud800", 'a"b', "a AND", "NOT", "col:x", "a* (b", '"a" OR NEAR(a)', "x" * 10_000, "é " * 5_000]


@asynccontextmanager
async def session() -> AsyncIterator[Artifacts]:
    with tempfile.TemporaryDirectory() as folder:
        yield Artifacts(Path(folder))


class Index:
    """A session's entries and files, to be searched."""

    def __init__(self, entries: list[AnyEntry], artifacts: Artifacts) -> None:
        self.entries = entries
        self.artifacts = artifacts

    async def search(
        self, query: str, limit: int, *, hidden: set[int] | None = None, elsewhere: Collection[int] = ()
    ) -> RecallHits:
        return await search(self.artifacts, self.entries, query, limit, hidden=hidden, elsewhere=elsewhere)


def said(*texts: str) -> list[AnyEntry]:
    return stamped([user_message(text) for text in texts])


def called(
    tool: str, arguments: str, result: str, *, call_id: str = "c1", artifact: Artifact | None = None
) -> list[AnyEntry]:
    return [
        Message(role="assistant", blocks=(ToolCall(call_id, tool, arguments),)),
        tool_result(ToolResult(call_id, result), artifact=artifact),
    ]


async def quoted(index: Index, text: str) -> list[RecallHit]:
    """The hits that hold `text` exactly."""
    hits = (await index.search(text, 10)).hits
    return [hit for hit in hits if hit.match == "exact" and hit.excerpt.startswith(text[:2_000], hit.offset)]


def placed(text: str) -> list[tuple[str, AnyEntry]]:
    """Entries that hold `text`, each in another place."""
    return [
        ("user", user_message(text)),
        ("assistant", Message(role="assistant", blocks=(Text(f"So: {text}."),))),
        ("reasoning", Message(role="assistant", blocks=(Reasoning(text), Text("Right.")))),
        ("tool_call", Message(role="assistant", blocks=(ToolCall("c1", "write_file", json.dumps({"content": text})),))),
        ("tool_call", Message(role="assistant", blocks=(ToolCall("c1", "t", json.dumps({"a": [{text: 1}]})),))),
        ("tool_call", Message(role="assistant", blocks=(ToolCall("c1", "t", "{}", malformed=text),))),
        ("tool_result", tool_result(ToolResult("c1", text))),
        ("notice", notice(text)),
        ("summary", Summarized(first=1, last=1, text=text)),
        ("checkpoint", Checkpointed(first=1, last=1, text=text)),
        ("digest", Digested(results=(), placeholder="", text=text)),
    ]


@pytest.mark.parametrize("which", range(len(placed(""))))
@given(planted=PLANTED, before=st.integers(0, 2 * STRIDE), after=st.integers(0, STRIDE))
@settings(max_examples=examples(5), deadline=None)
async def test_what_is_planted_anywhere_is_found_by_quoting_it(
    which: int, planted: str, before: int, after: int
) -> None:
    role, entry = placed("x\n" * (before // 2) + planted + "y " * (after // 2))[which]
    async with session() as artifacts:
        index = Index(stamped([user_message("hello"), entry]), artifacts)
        hits = await quoted(index, planted)
        assert (2, role) in {(hit.seq, hit.role) for hit in hits}


@given(planted=PLANTED, before=st.integers(0, 2 * STRIDE), after=st.integers(0, STRIDE))
@settings(max_examples=examples(15), deadline=None)
async def test_what_is_planted_in_an_artifact_is_found_and_paged(planted: str, before: int, after: int) -> None:
    async with session() as artifacts:
        text = "line\n" * (before // 5) + planted + " end" * (after // 4)
        saved = await artifacts.save("c1", text, evicted=True)
        index = Index(stamped(called("grep", "{}", "[preview]", artifact=saved)), artifacts)
        hits = [hit for hit in await quoted(index, planted) if hit.read]
        assert [hit.seq for hit in hits][:1] == [2]
        assert all(str(artifacts.folder / saved.path) in json.loads(_argument(hit.read)) for hit in hits)


def _argument(read: str) -> str:
    return read.removeprefix("read_file(path=").partition(", offset=")[0]


@pytest.mark.parametrize("length", [OVERLAP - 1, OVERLAP, OVERLAP + 1, STRIDE, 10_000, 30_000])
@pytest.mark.parametrize("before", [0, STRIDE - 1, STRIDE, STRIDE + OVERLAP, 2 * STRIDE - OVERLAP])
async def test_a_quote_over_any_border_is_found_once(tmp_path: Path, length: int, before: int) -> None:
    planted = "".join(f"<{number}>" for number in range(length))[:length]
    index = Index(said("-" * before + planted + "+" * 5_000), Artifacts(tmp_path))
    found = await index.search(planted, 10)
    assert (found.total, [hit.match for hit in found.hits]) == (1, ["exact"])
    assert found.hits[0].excerpt.startswith(planted[:2_000], found.hits[0].offset)
    assert found.hits[0].place.startswith(f"characters {max(before - 200, 0):,}-")


async def test_a_long_quote_is_not_missed_where_it_only_begins_elsewhere(tmp_path: Path) -> None:
    begun = "a" * OVERLAP
    index = Index(said(f"{begun}x {begun}y"), Artifacts(tmp_path))
    assert await quoted(index, f"{begun}y")
    assert not await quoted(index, f"{begun}z")


@given(log=LOGS, query=st.one_of(st.text(), PLANTED, st.sampled_from(ODD)))
@settings(max_examples=examples(15), deadline=None)
async def test_any_query_is_safe(log: list[AnyEntry], query: str) -> None:
    async with session() as artifacts:
        index = Index(log, artifacts)
        for hidden in (None, {1, 3}):
            found = await index.search(query, 5, hidden=hidden)
            assert len(found.hits) <= min(found.total, 5)


@pytest.mark.parametrize(
    "fact", ["a-42", "a/b", "foo(bar)", "x::y", "Größenwahn", "漢字", "漢", "naïve", "C:\\dir", "100%", "it's", "😀"]
)
async def test_names_are_found_as_they_are_written(tmp_path: Path, fact: str) -> None:
    index = Index(said("other words", f"the fact is {fact}, remember", "more words"), Artifacts(tmp_path))
    for query in (fact, f" {fact}\n", f'"{fact}"'):
        (hit,) = (await index.search(query, 5)).hits
        assert (hit.seq, hit.match, hit.excerpt) == (2, "exact", f"the fact is {fact}, remember")


async def test_words_are_looked_for_where_nothing_quotes_the_query(tmp_path: Path) -> None:
    texts = ("the timeout of the proxy is 31 s", "the proxy is new", "nothing of the sort", "Timeouts are bad")
    index = Index(said(*texts), Artifacts(tmp_path))
    found = await index.search("proxy timeout?", 5)
    assert [(hit.seq, hit.match) for hit in found.hits] == [(1, "all_words")]
    some = (await index.search("proxy banana", 5)).hits
    assert {(hit.seq, hit.match) for hit in some} == {(1, "some_words"), (2, "some_words")}
    assert (await index.search("timeout elephant", 5)).hits[0].seq in {1, 4}
    assert (await index.search("elephant", 5)).hits == ()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("resume the naive", "the résumé of a naïve one"),
        ("TIMEOUT PROXY", "the proxy's Timeouts"),
        ("порту открыт", "сервер открыт на порту 8421"),
        ("foo_bar baz", "baz(foo_bar)"),
        ("図書館 会議", "次の会議は火曜日に図書館で行います。"),
        ("ห้องสมุด ประชุม", "การประชุมครั้งต่อไปจะจัดขึ้นที่ห้องสมุด"),
        ("बैठक में पुस्तकालय", "अगली बैठक पुस्तकालय के भवन में होगी।"),
        ("اجتماع مكتبة", "الاجتِماع القادم سيكون في المكتبة."),
    ],
)
async def test_words_are_found_whatever_their_case_and_accents(tmp_path: Path, query: str, text: str) -> None:
    others = ("supernaive transport", "ขอบคุณ 何の話か जैसे मैं कहता هذا")
    found = await Index(said(text, *others), Artifacts(tmp_path)).search(query, 5)
    assert [(hit.seq, hit.match) for hit in found.hits] == [(1, "all_words")]


async def test_of_the_words_asked_for_the_rare_one_counts_most(tmp_path: Path) -> None:
    texts = (*("the port is open" for _ in range(20)), "a gateway", *("the port is shut" for _ in range(20)))
    found = await Index(said(*texts), Artifacts(tmp_path)).search("the gateway port", 5)
    assert (found.hits[0].seq, found.hits[0].match) == (21, "some_words")


async def test_words_are_shown_where_most_of_them_stand(tmp_path: Path) -> None:
    text = "alpha " + "- " * 600 + "álpha of Bèta and gamma" + " -" * 100
    index = Index(said(text), Artifacts(tmp_path))
    (hit,) = (await index.search("gamma alpha beta", 5)).hits
    assert hit.excerpt[hit.offset :].startswith("álpha of Bèta and gamma")


async def test_what_left_the_view_comes_first_and_is_marked(tmp_path: Path) -> None:
    index = Index(said("port 8421", "port 8421 again", "port 8421 once more"), Artifacts(tmp_path))
    found = await index.search("port 8421", 5, hidden={1, 2})
    assert [(hit.seq, hit.hidden) for hit in found.hits] == [(2, True), (1, True), (3, False)]
    assert not any(hit.hidden for hit in (await index.search("port 8421", 5)).hits)


async def test_a_question_in_view_does_not_stand_in_front_of_its_answer(tmp_path: Path) -> None:
    index = Index(said("our gateway port is 8421", "which gateway port?"), Artifacts(tmp_path))
    found = await index.search("gateway port?", 5, hidden={1})
    assert [(hit.seq, hit.match, hit.hidden) for hit in found.hits] == [(2, "exact", False), (1, "all_words", True)]


async def test_the_file_of_a_result_is_shown_in_place_of_its_preview(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    saved = await artifacts.save("c1", "head\n" + "x\n" * 9_000 + "needle-7\n", evicted=True)
    index = Index(stamped(called("grep", '{"pattern": "x"}', "head … needle-7", artifact=saved)), artifacts)
    (seen,) = (await index.search("needle-7", 5, hidden=set())).hits
    assert (seen.seq, seen.tool, seen.call, seen.hidden) == (2, "grep", "x", False)
    assert seen.read.startswith("read_file(")
    (unseen,) = (await index.search("x\nx\nneedle-7\n", 5, hidden=set())).hits
    assert unseen.hidden


@pytest.mark.parametrize("filler", ["one line\n", "no line end "])
async def test_the_call_given_with_a_hit_reads_it(tmp_path: Path, filler: str) -> None:
    artifacts = Artifacts(tmp_path / "session")
    saved = await artifacts.save("c1", filler * 2_000 + "fact=Größe-42" + filler * 500, evicted=True)
    index = Index(stamped(called("grep", "{}", "[preview]", artifact=saved)), artifacts)
    (hit,) = (await index.search("fact=Größe-42", 5)).hits
    paging = dict(part.split("=") for part in hit.read[:-1].split(", ")[1:])
    page = await call(
        ReadFile(),
        tmp_path,
        path=json.loads(_argument(hit.read)),
        limit=30,
        **{name: int(value) for name, value in paging.items()},
    )
    assert "fact=Größe-42" in page.text
    body = page.text.partition("\t")[2]
    assert body.startswith(hit.excerpt.partition("\n")[0])


async def test_a_search_does_not_find_itself(tmp_path: Path) -> None:
    log = stamped([*called("recall", '{"query": "needle"}', "1. Entry 9: needle"), user_message("Go on.")])
    index = Index(log, Artifacts(tmp_path))
    assert (await index.search("needle", 5)).total == 0


async def test_what_no_model_was_shown_is_not_found(tmp_path: Path) -> None:
    hidden = msgspec.structs.replace(user_message("my secret"), agent_visible=False)
    index = Index(stamped([hidden]), Artifacts(tmp_path))
    assert (await index.search("secret", 5)).total == 0


async def test_a_queued_text_moves_to_where_it_was_delivered(tmp_path: Path) -> None:
    log = stamped(
        [
            Queued(blocks=(Text("first thought"),)),
            Queued(blocks=(Text("second thought"),)),
            Delivered(queued=1),
            Withdrawn(queued=2),
        ]
    )
    for upto in (2, 4):
        index = Index(log[:upto], Artifacts(tmp_path))
    assert [hit.seq for hit in (await index.search("thought", 5)).hits] == [3]


async def test_what_is_on_another_branch_is_found_and_says_so(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    saved = await artifacts.save("c1", "the port was 8421", evicted=True)
    log = stamped(
        [
            user_message("which port 8421?"),
            user_message("port 8421, once more"),
            *called("grep", "{}", "[preview]", artifact=saved),
            HeadMoved(to=1),
            user_message("we begin anew with port 8421"),
        ]
    )
    index = Index(log, artifacts)
    found = await index.search("8421", 5, hidden={1}, elsewhere={2, 3, 4, 5})
    assert [(hit.seq, hit.hidden, "on another branch" in hit.place) for hit in found.hits] == [
        (1, True, False),
        (4, True, True),
        (2, True, True),
        (6, False, False),
    ]
    assert found.hits[1].place.endswith(" of large_tool_results/c1, on another branch")


async def test_a_queued_text_that_was_delivered_on_two_branches_is_found_on_both(tmp_path: Path) -> None:
    queued = Queued(blocks=(Text("a thought"),))
    log = stamped([queued, Delivered(queued=1), HeadMoved(to=1), Delivered(queued=1), HeadMoved(to=1)])
    index = Index(log[:3], Artifacts(tmp_path))
    index = Index(log, Artifacts(tmp_path))
    assert [hit.seq for hit in (await index.search("a thought", 5)).hits] == [4, 2]


async def test_the_raw_stream_of_a_command_is_followed_as_it_grows(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    log = stamped(called("run_command", '{"command": "make"}', "left running", call_id="toolu:1"))
    path = artifacts.folder / RAW_FOLDER / "toolu_1-ab_cd12.log"
    path.parent.mkdir()
    index = Index(log, artifacts)
    written = b""
    for number in range(8):
        written += b"\x1b[1mstep " + b"\xff\xc3\xa4 " * 900 + f"done-{number}\n".encode() + "ä".encode()[: number % 2]
        path.write_bytes(written)
        await quoted(index, "step")
    (hit,) = (await index.search("done-5\n", 5)).hits
    assert (hit.seq, hit.role, hit.tool) == (2, "raw_output", "run_command")
    assert hit.place.endswith(f"from line 6 of raw/{path.name}")
    hit = (await index.search("5 done", 5)).hits[0]
    assert (hit.match, hit.excerpt[hit.offset :].startswith("done-5")) == ("all_words", True)


async def test_a_missing_or_changed_artifact_leaves_what_the_message_shows(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    saved = await artifacts.save("c1", "the whole", evicted=True)
    artifacts.path_of(saved).write_text("forged!!!")
    outside = Artifact("../../etc/passwd", 1, "0")
    log = [*called("t", "{}", "shown-1", artifact=saved), *called("t", "{}", "shown-2", call_id="c2", artifact=outside)]
    index = Index(stamped(log), artifacts)
    assert [hit.seq for hit in (await index.search("shown-", 5)).hits] == [4, 2]
    assert (await index.search("forged", 5)).total == 0
