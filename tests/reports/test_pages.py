"""The page of a session: what stands in it, that nothing breaks out of it, and that a long one stays small."""

import json
import re
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings
from typing_extensions import override

from tests.conversation.logs import logs
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    CeilingReached,
    Cleared,
    Delivered,
    HeadMoved,
    Message,
    ModelSwitched,
    Prefix,
    Queued,
    Summarized,
    Usage,
    notice,
    tool_result,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.view import View
from tui_agent.reports.charts import MAX_POINTS, Point, nice_ceiling, thinned
from tui_agent.reports.pages import PAGE_CHARACTERS, Remark, session_page

HOSTILE = (
    "<script>alert(1)</script>",
    "</pre></details><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</title></style><style>@import url(https://evil.example/x)</style>",
    "![p](https://evil.example/p.png) [a](javascript:alert(1)) [b](data:text/html,x) <https://evil.example/>",
    '[c](https://evil.example/?q="onclick=alert(1)) [ref]\n\n[ref]: javascript:alert(1)',
    '```html"><b onclick=1>\n</code></pre><iframe src=//evil.example>\n```',
    "\x1b]0;title\x07\x00\u202e<b>\ud800",
)
TAGS = re.compile(
    "html|head|meta|title|style|body|main|h[1-6]|p|svg|path|text|rect|nav|details|summary|[ou]l|li|a|section|div|pre|code|"
    "span|img|strong|em|s|blockquote|hr|br|table|thead|tbody|tr|th|td"
)
EMPTY = {"meta", "img", "br", "hr"}


class Reader(HTMLParser):
    """Takes a page apart as a browser would, and holds it to what a page may be made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.text: list[str] = []
        self.classes: list[str] = []
        self.feed(page)
        self.close()
        self.problems += [f"{tag} is left open" for tag in self.open]

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not TAGS.fullmatch(tag):
            self.problems.append(f"tag {tag}")
        for name, value in attrs:
            told = value or ""
            if name.startswith("on") or (name == "style" and not re.fullmatch(r"text-align:(left|right|center)", told)):
                self.problems.append(f"{tag} {name}={told}")
            if name == "src" and not re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*", told):
                self.problems.append(f"{tag} {name}={told}")
            if name == "href" and not told.startswith(("#e", "https://", "http://", "mailto:")):
                self.problems.append(f"{tag} {name}={told}")
            if name == "class":
                self.classes += told.split()
        if tag not in EMPTY:
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    @override
    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"/{tag} closes nothing")

    @override
    def handle_data(self, data: str) -> None:
        self.text.append(data)


def stamped(entries: Iterable[AnyEntry]) -> list[AnyEntry]:
    """The entries as a log has them, a minute apart."""
    log = Log()
    for number, entry in enumerate(entries):
        log.append(log.stamp(entry, 1_800_000_000.0 + 60 * number))
    return list(log)


def read(entries: Sequence[AnyEntry], remarks: Iterable[Remark] = ()) -> Reader:
    return Reader("".join(session_page("session x", entries, remarks)))


def everywhere(text: str) -> list[AnyEntry]:
    """A session with `text` at every place that somebody else writes."""
    kept = "".join(character for character in text if not "\ud800" <= character <= "\udfff")
    call = ToolCall("c1", kept, json.dumps({"path": kept, "list": [kept]}), malformed="")
    picture = Image(kept, kept)
    return stamped(
        [
            ModelSwitched(model=kept),
            Prefix(system=kept, tools=(ToolDefinition(kept, kept, "{}"),)),
            Message(role="user", blocks=(Text(kept), picture)),
            Message(
                role="assistant",
                blocks=(Reasoning(kept), Text(kept), call, ToolCall("c2", kept, "{", malformed=kept)),
                model=kept,
                usage=Usage(10, 0, 0, 5),
                stop_reason=kept,
                cost_usd=0.1,
            ),
            tool_result(
                ToolResult("c1", kept, images=(picture,)),
                artifact=Artifact(kept, 1, "0"),
                summary=kept,
                diff=f"+{kept}\n-{kept}\n {kept}",
            ),
            tool_result(ToolResult("lost", kept, is_error=True), summary=kept),
            notice(kept),
            Queued(blocks=(Text(kept),)),
            Delivered(queued=8),
            Message(role="assistant", blocks=(Text(kept),), model=kept, usage=Usage(20, 0, 0, 5), cost_usd=0.2),
            Summarized(first=1, last=5, text=kept, reason=kept, before=100, after=10),
            Cleared(results=(5,), texts=(kept,), reason=kept),
            CeilingReached(bound="turn", message=kept, limit_usd=1.0),
            HeadMoved(to=3, reason="rewind"),
        ]
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    entries = everywhere(text)
    reader = read(entries, [Remark(1_800_000_000.0, text, True)])
    assert reader.problems == []
    assert not re.search("[\x00-\x08\x1b\u202e\ud800-\udfff]", "".join(reader.text))


@given(logs())
@settings(max_examples=15)
def test_any_log_has_a_page(view: View) -> None:
    assert read(list(view.log)).problems == []


def test_what_was_said_and_done_stands_in_it() -> None:
    reader = read(
        stamped(
            [
                user_message("Read the *file*"),
                Message(
                    role="assistant",
                    blocks=(Text("On **it**"), ToolCall("1", "read_file", '{"path": "a.py"}')),
                    model="anthropic:claude-opus-5-5",
                    usage=Usage(1000, 800, 0, 50),
                    cost_usd=0.25,
                ),
                tool_result(ToolResult("1", "x = 1"), summary="1 line", diff="-x = 0\n+x = 1", duration_ms=2500),
                Summarized(first=1, last=3, text="All is read.", reason="the window is full", before=9000, after=400),
                Message(role="assistant", blocks=(Text("Done"),), model="m", usage=Usage(400), cost_usd=0.05),
                HeadMoved(to=1, reason="rewind"),
                user_message("Another way"),
            ]
        ),
        [Remark(1_800_000_130.0, "permission: refused")],
    )
    text = " ".join("".join(reader.text).split())
    assert reader.problems == []
    for said in (
        "2 turns · 2 model calls · $0.300",
        "Read the *file*",
        "On it",
        "Read a.py · 1 line · 2.5 s",
        "-x = 0 +x = 1",
        "1.0k in (800 cached), 50 out · $0.250",
        "Summary in place of what came before · 9.0k → 400 tokens · the window is full",
        "All is read.",
        "Taken back: it goes on after entry 1",
        "call 2, ",
        "1,000 tokens in, 50 out; 800 read from the cache, 0 written to it; $0.250",
        "older turns summarised",
    ):
        assert said in text, said
    # The summary's line crosses both curves; the remark stands where it was made; what was taken back is marked.
    assert reader.classes.count("mark") == 2
    assert text.index("permission: refused") < text.index("All is read.")
    assert {"add", "del", "curve", "boundary"} <= set(reader.classes)


def test_each_call_of_the_charts_leads_to_its_answer() -> None:
    answers = [Message(role="assistant", blocks=(Text(text),), usage=Usage(9), cost_usd=0.1) for text in "ab"]
    page = "".join(session_page("x", stamped([user_message("ask"), *answers])))
    assert page.count('<a href="#e2"><rect') == page.count('<a href="#e3"><rect') == 2  # in each of both charts
    assert page.index("<p>a</p>") < page.index('id="e2">call 1') < page.index("<p>b</p>") < page.index('id="e3">call 2')


def test_calls_with_the_same_id_keep_their_own_results() -> None:
    turns = [
        [Message(role="assistant", blocks=(ToolCall("call_1", "glob", "{}"),)), tool_result(ToolResult("call_1", text))]
        for text in ("first result", "second result")
    ]
    page = "".join(session_page("x", stamped(entry for turn in turns for entry in turn)))
    assert page.count("first result") == page.count("second result") == 1
    assert page.index("first result") < page.index("second result")


def test_pictures_are_in_the_page_as_far_as_they_fit() -> None:
    page = "".join(session_page("x", stamped([user_message("look", Image("image/png", "iVBORw0KGgo="))])))
    assert 'src="data:image/png;base64,iVBORw0KGgo="' in page
    assert "<img" not in "".join(session_page("x", stamped([user_message("look", Image("image/svg+xml", "AAAA"))])))


def test_a_session_of_5000_turns_has_a_page_that_a_browser_can_show() -> None:
    answer = Message(role="assistant", blocks=(Text("done"),), usage=Usage(100, 0, 0, 1), cost_usd=0.001)
    call = Message(role="assistant", blocks=(ToolCall("c", "read_file", "{}"),), usage=Usage(100), cost_usd=0.001)
    result = tool_result(ToolResult("c", "line\n" * 4000))
    turn = [user_message("go on"), call, result, answer]
    page = "".join(session_page("x", stamped([*turn] * 5000)))
    assert len(page) < 2 * PAGE_CHARACTERS
    assert page.count('<rect class="spot"') <= 2 * (MAX_POINTS + 1)
    assert "5,000 turns · 10,000 model calls · $10.00" in page


def test_thinning_keeps_the_peaks_and_the_end() -> None:
    points = [Point(number, 99.0 if number == 503 else number % 7, "", "") for number in range(1000)]
    kept = thinned(points, 50)
    assert len(kept) <= 51
    assert points[503] in kept
    assert kept[-1] == points[-1]


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.0042, 0.006), (1, 1), (13_300, 20_000), (9.1, 10), (61, 80)])
def test_the_axis_ends_at_a_plain_number(value: float, top: float) -> None:
    assert nice_ceiling(value) == pytest.approx(top)


def test_a_log_that_is_no_whole_one_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        read([msgspec.structs.replace(user_message("x"), seq=5)])
