"""A session as a self-contained HTML page: the conversation with tool calls as cards, the changes to the context, and
the usage of the model calls.

Everything in a session is untrusted. All of it is escaped; the page's content security policy forbids scripts and
loading from any address; and only links to the web become links.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_agent.agent.history.calls import CallRecord, Calls
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult, text_in
from tui_agent.conversation.entries import (
    AnyEntry,
    CeilingReached,
    CeilingReset,
    Checkpointed,
    Cleared,
    ContextEntry,
    Custom,
    Digested,
    HeadMoved,
    Message,
    ModelSwitched,
    Pinned,
    Prefix,
    Restored,
    Shortened,
    Summarized,
    Undone,
    WordsEdited,
    as_delivered,
    model_call,
    typed_in,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.reports.charts import STYLE as CHART_STYLE
from tui_agent.reports.charts import Mark, Point, curve, safe
from tui_agent.system.lenient import decoded
from tui_agent.text import call_summary, clean, compact_count, counted, duration_text, money_text, one_line, time_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

PAGE_CHARACTERS: Final = 12_000_000
"""About how many characters the cards of a page show in all: a browser scrolls a page of that size smoothly."""

CARD_CHARACTERS: Final = (400, 20_000)
"""The least and the most characters that are shown of one text in a card."""

PROSE_CHARACTERS: Final = 40_000
"""The most characters that are shown of one message of the user's or the model's."""

PICTURE_CHARACTERS: Final = 16_000_000
"""The most characters of all pictures on a page, base64-encoded; further ones are only named."""

_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SAFE_LINKS: Final = ("http://", "https://", "mailto:")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_STYLE: Final = """\
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2328; --quiet: #656d76; --rule: #d8dee4; --card: #f6f8fa;
  --accent: #0969da; --boundary: #8250df; --bad: #cf222e; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --quiet: #8b949e; --rule: #30363d;
  --card: #161b22; --accent: #58a6ff; --boundary: #bc8cff; --bad: #ff7b72; --good: #56d364; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 2rem 1rem 6rem; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: .85rem; font-weight: 600; color: var(--quiet); margin: 1.6rem 0 .3rem; }
a { color: var(--accent); }
pre { margin: .4rem 0; padding: .6rem .8rem; background: var(--card); border-radius: 6px; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; }
code { font: .88em ui-monospace, Menlo, Consolas, monospace; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--rule); padding: .2rem .6rem; text-align: left; }
blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid var(--rule); color: var(--quiet); }
.quiet, .facts, footer { color: var(--quiet); font-size: .85rem; }
.turn { content-visibility: auto; contain-intrinsic-size: auto 14rem; padding-top: 1.4rem; }
.user { border-left: 3px solid var(--accent); padding: .1rem 0 .1rem .9rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font-weight: 500; }
.answer { margin: .8rem 0; overflow-wrap: anywhere; }
.answer > :first-child { margin-top: 0; } .answer > :last-child { margin-bottom: 0; }
.used { margin: .2rem 0 1rem; }
details { margin: .3rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.card { border: 1px solid var(--rule); border-radius: 6px; padding: .25rem .7rem; }
.card > summary { font-size: .9rem; }
.card .name { font-weight: 600; }
.error { border-color: var(--bad); } .error .name, .bad { color: var(--bad); }
.boundary { border: 0; border-top: 1px dashed var(--boundary); border-bottom: 1px dashed var(--boundary);
  border-radius: 0; color: var(--boundary); margin: 1rem 0; }
.boundary pre { color: var(--ink); }
.step { margin: .5rem 0; color: var(--boundary); font-size: .85rem; overflow-wrap: anywhere; }
.left { opacity: .55; }
.add { color: var(--good); } .del { color: var(--bad); }
img { max-width: 100%; max-height: 24rem; display: block; margin: .5rem 0; border-radius: 6px; }
nav ol { max-height: 24rem; overflow-y: auto; padding-left: 3rem; }
@media print { .turn { content-visibility: visible; } }
"""


class Remark(NamedTuple):
    """An event that is not in the log, such as a refused permission: its time (seconds since 1970) and a line."""

    time: float
    text: str
    bad: bool = False


def session_page(name: str, entries: Sequence[AnyEntry], remarks: Iterable[Remark] = ()) -> Iterator[str]:
    """The page of the session called `name`, in pieces.

    `entries` are its whole log, in order; abandoned branches are shown too, and marked. `remarks` are inserted by their
    time. Raises `ValueError` if the entries are not a complete log.
    """
    session = _Session(entries)
    yield from session.head(name)
    yield from session.figures()
    yield from session.contents()
    yield from session.conversation(sorted(remarks))
    yield "</main></body></html>\n"


class _Session:
    """A session's data that all parts of the page need."""

    def __init__(self, entries: Sequence[AnyEntry]) -> None:
        log = Log(entries)
        self._calls = {call.seq: call for call in Calls(log)}
        self._entries = list(as_delivered(entries))
        self._shown = {entry.seq for entry in log.path()}
        self._results, self._alone = paired(self._entries)
        texts = 1
        for entry in self._entries:
            match entry:
                case Message(kind="user_shell"):
                    texts += 1
                case Message(kind="tool_result" | "tool_result_archived"):
                    texts += 1 + bool(entry.diff)
                case Message():
                    texts += sum(isinstance(block, Reasoning | ToolCall) for block in entry.blocks)
                case ContextEntry():
                    texts += 1
        least, most = CARD_CHARACTERS
        self._card = max(least, min(most, PAGE_CHARACTERS // texts))
        self._pictures = PICTURE_CHARACTERS
        self._turns = [entry for entry in self._entries if self._words(entry) is not None]
        self._title = next((self._label(entry) for entry in self._turns), "")

    def head(self, name: str) -> Iterator[str]:
        calls = [call for entry in self._entries if (call := model_call(entry)) is not None]
        prices = [call.cost_usd for call in calls if call.cost_usd is not None]
        models = list(dict.fromkeys(call.model for call in calls if call.model))
        title = self._title or name
        times = dict.fromkeys(time_text(entry.time) for entry in (*self._entries[:1], *self._entries[-1:]))
        facts = [name, *([" to ".join(times)] if times else [])]
        facts += [", ".join(models) or "no model was asked", counted(len(self._turns), "turn")]
        facts += [counted(len(calls), "model call"), money_text(sum(prices)) if len(prices) == len(calls) else "$?"]
        yield (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="referrer" content="no-referrer">'
            f"<title>{safe(title)}</title><style>\n{_STYLE}{CHART_STYLE}\n</style></head><body><main>\n"
            f'<h1>{safe(title)}</h1><p class="facts">{safe(" · ".join(facts))}</p>\n'
        )

    def figures(self) -> Iterator[str]:
        """The charts of context and cost over the answered calls, with marks for changes to the context."""
        sizes: list[Point] = []
        costs: list[Point] = []
        marks: list[Mark] = []
        spent = 0.0
        for entry in self._entries:
            if (made := model_call(entry)) is not None:
                spent += made.cost_usd or 0.0
            if (call := self._calls.get(entry.seq)) is not None:
                target, when = f"e{call.seq}", f"call {call.number:,}, {time_text(call.time)}"
                tokens = call.usage.input_tokens + call.usage.output_tokens
                sizes.append(Point(call.number, tokens, f"{when}: {_call_text(call)}", target))
                costs.append(Point(call.number, spent, f"{when}: {money_text(spent)} so far", target))
            elif isinstance(entry, Cleared | Digested | Summarized | Checkpointed | Shortened):
                marks.append(Mark(len(sizes), step_line(entry)))
        if len(sizes) > 1:
            yield "<h2>Context, in tokens, call by call (dashed: it was made smaller; a click leads to the call)</h2>\n"
            yield from curve(sizes, marks, compact_count)
        if spent:
            yield "\n<h2>Cost, in US dollars, so far</h2>\n"
            yield from curve(costs, marks, money_text)
            yield "\n"

    def contents(self) -> Iterator[str]:
        if len(self._turns) > 1:
            yield f"<nav><details><summary>{counted(len(self._turns), 'turn')}</summary><ol>\n"
            for entry in self._turns:
                left = "" if entry.seq in self._shown else ' class="left"'
                yield f'<li{left}><a href="#e{entry.seq}">{safe(self._label(entry))}</a></li>\n'
            yield "</ol></details></nav>\n"

    def conversation(self, remarks: Sequence[Remark]) -> Iterator[str]:
        """Everything in its order, with a section for each turn so that a browser lays out only what is visible."""
        parts: list[Iterable[AnyEntry | Remark]] = [self._entries, remarks]
        yield '<section class="turn">\n'
        for part in merge(*parts, key=lambda each: each.time):
            if isinstance(part, Remark):
                yield f'<p class="step{" bad" if part.bad else ""}">{safe(part.text)}</p>\n'
                continue
            if self._words(part) is not None:
                kind = "turn" if part.seq in self._shown else "turn left"
                yield f'</section>\n<section class="{kind}" id="e{part.seq}">\n'
            yield from self._entry(part)
        yield "</section>\n"

    def _entry(self, entry: AnyEntry) -> Iterator[str]:
        match entry:
            case Message(role="assistant"):
                yield from self._answer(entry)
            case Message() if self._words(entry) is not None:
                yield from self._said(entry)
            case Message(kind="tool_result" | "tool_result_archived") if entry.seq in self._alone:
                for block in entry.blocks:
                    if isinstance(block, ToolResult):
                        yield self._card_of("Result", entry.summary, self._pre(block.text), bad=block.is_error)
            case Custom():
                shown = "\n".join(filter(None, (text_in(entry.blocks), entry.data)))
                yield self._card_of(entry.name, one_line(entry.data, 120), self._pre(shown))
            case Message(kind="notice" | "hook" | "resource" | "approval" | "plan_begun" | "plan_over" | "interrupted"):
                text = text_in(entry.blocks, between="\n")
                yield self._card_of("Told to the model", one_line(text, 120), self._pre(text))
            case Prefix():
                prompt_text = f"{entry.system}\n\nTools: {', '.join(tool.name for tool in entry.tools) or 'none'}"
                yield self._card_of("System prompt", counted(len(entry.tools), "tool"), self._pre(prompt_text))
            case Summarized() | Checkpointed():
                line = safe(step_line(entry))
                yield f'<details class="card boundary"><summary>{line}</summary>{self._pre(entry.text)}</details>\n'
            case ContextEntry() | HeadMoved() | ModelSwitched() | CeilingReached() | CeilingReset():
                yield f'<p class="step">{safe(step_line(entry))}</p>\n'

    def _said(self, message: Message) -> Iterator[str]:
        yield f'<p class="quiet">{time_text(message.time)}</p>'
        for block in message.blocks:
            if isinstance(block, ToolCall):
                yield self._call(block, message)
            elif isinstance(block, Text):
                yield f'<div class="user">{safe(_cut(block.text, PROSE_CHARACTERS))}</div>\n'
            elif isinstance(block, Image):
                yield self._picture(block)

    def _answer(self, message: Message) -> Iterator[str]:
        for block in message.blocks:
            match block:
                case Reasoning(text=text) if text.strip():
                    yield self._card_of("Reasoning", one_line(text, 100), self._pre(text))
                case Text(text=text) if text.strip():
                    yield f'<div class="answer">{_prose(text)}</div>\n'
                case ToolCall():
                    yield self._call(block, self._results.get((message.seq, block.id)))
        number = f"call {call.number:,} · " if (call := self._calls.get(message.seq)) is not None else ""
        yield f'<p class="quiet used" id="e{message.seq}">{number}{safe(_used(message))}</p>\n'

    def _call(self, call: ToolCall, entry: Message | None) -> str:
        """A call and its result as one card."""
        body = [self._pre(_indented(call.malformed or call.arguments))]
        parts = [call_summary(call.arguments)]
        bad = False
        if entry is None:
            parts.append("no result")
        else:
            parts += [entry.summary, duration_text(entry.duration_ms) if entry.duration_ms else ""]
            body += [_diff(_cut(entry.diff, self._card))] if entry.diff else []
            for block in entry.blocks:
                if isinstance(block, ToolResult):
                    bad = bad or block.is_error
                    body += [self._pre(block.text), *map(self._picture, block.images)]
            if entry.artifact is not None:
                body.append(f'<p class="quiet">The whole text: {safe(entry.artifact.path)} in the session’s folder</p>')
        return self._card_of(facts_of(call.name).title, " · ".join(filter(None, parts)), "".join(body), bad=bad)

    def _card_of(self, name: str, detail: str, body: str, *, bad: bool = False) -> str:
        kind = "card error" if bad else "card"
        line = f'<span class="name">{safe(name)}</span> <span class="quiet">{safe(one_line(detail, 300))}</span>'
        return f'<details class="{kind}"><summary>{line}</summary>{body}</details>\n'

    def _pre(self, text: str) -> str:
        return f"<pre>{safe(_cut(text, self._card))}</pre>" if text.strip() else ""

    def _picture(self, image: Image) -> str:
        data = image.data
        fits = image.media_type in _PICTURES and data.isascii() and len(data) <= self._pictures
        if not fits or _NO_BASE64.search(data):
            return f'<p class="quiet">A picture ({safe(image.media_type)}), not shown here</p>\n'
        self._pictures -= len(data)
        return f'<img alt="A picture of the conversation" loading="lazy" src="data:{image.media_type};base64,{data}">\n'

    def _words(self, entry: AnyEntry) -> str | None:
        """The user's text in this entry; None if it is not the user's."""
        return typed_in(entry) if isinstance(entry, Message) and entry.user_visible else None

    def _label(self, entry: AnyEntry) -> str:
        return one_line(self._words(entry) or "", 100) or "a picture"


_NO_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]")


def paired(entries: Sequence[AnyEntry]) -> tuple[dict[tuple[int, str], Message], set[int]]:
    """The entries of the results, by the entry that called and the call's id, which some providers use again; and the
    results whose call is not in the log.
    """
    results: dict[tuple[int, str], Message] = {}
    alone: set[int] = set()
    callers: dict[str, int] = {}
    for entry in (each for each in entries if isinstance(each, Message)):
        for block in entry.blocks:
            match block:
                case ToolCall(id=name):
                    callers[name] = entry.seq
                case ToolResult(call_id=name) if name in callers:
                    results[callers[name], name] = entry
                case ToolResult():
                    alone.add(entry.seq)
    return results, alone


def step_line(entry: AnyEntry) -> str:
    """What an entry did to the context or the conversation's branches, on one line."""
    match entry:
        case Summarized():
            done = "Summary in place of what came before"
        case Checkpointed():
            done = "A finished task, kept as its record"
        case Cleared():
            done = f"{counted(len(entry.results), 'old result')} cleared"
        case Digested():
            done = f"{counted(len(entry.results), 'result')} shown as a digest"
        case Shortened(episodes=folded) if folded:
            done = f"{counted(len(folded), 'finished episode')} folded"
        case Shortened():
            done = f"{counted(len(entry.items), 'item')} shortened to fit"
        case Pinned():
            done = f"{counted(len(entry.items), 'item')} {'pinned' if entry.pinned else 'no longer pinned'}"
        case Restored():
            done = f"{counted(len(entry.items), 'item')} shown whole again"
        case WordsEdited():
            done = "The kept words of the user were edited"
        case Undone():
            done = f"The change of entry {entry.target} was undone"
        case HeadMoved():
            moves = {"fork": "Another branch begins", "switch": "Back to another branch"}
            return f"{moves.get(entry.reason, 'Taken back')}: it goes on after entry {entry.to}"
        case ModelSwitched():
            return f"From here on {entry.model} answers"
        case CeilingReached():
            return entry.message
        case CeilingReset():
            return "The session may go on past its cost ceiling"
        case _:
            return ""
    sizes = f"{compact_count(entry.before)} → {compact_count(entry.after)} tokens" if entry.before else ""
    return " · ".join(filter(None, (done, sizes, entry.reason)))


def _call_text(call: CallRecord) -> str:
    """A call's tokens and cost, and what happened since the call before, as `/at` says it."""
    used = call.usage
    cache = f"{used.cache_read_tokens:,} read from the cache, {used.cache_write_tokens:,} written to it"
    lost = [f"cache lost, {money_text(call.lost_usd)} more: {one_line(call.lost)}"] if call.lost else []
    tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
    return "; ".join((tokens, cache, money_text(call.cost_usd), *call.notes, *lost))


def _used(message: Message) -> str:
    usage = message.usage
    parts = [message.model]
    if usage is not None:
        cached = f" ({compact_count(usage.cache_read_tokens)} cached)" if usage.cache_read_tokens else ""
        parts.append(f"{compact_count(usage.input_tokens)} in{cached}, {compact_count(usage.output_tokens)} out")
        parts.append(money_text(message.cost_usd))
    parts.append(duration_text(message.duration_ms) if message.duration_ms else "")
    parts.append("" if message.stop_reason in {"", "end_turn", "tool_calls"} else message.stop_reason)
    return " · ".join(filter(None, parts))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


def _indented(arguments: str) -> str:
    """The arguments of a call for people to read, with line breaks in strings shown as such."""
    if (values := decoded(arguments, dict[str, object])) is None:
        return arguments
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
    )


def _diff(diff: str) -> str:
    kinds = {"+": "add", "-": "del"}
    lines = (
        f'<span class="{kinds[line[0]]}">{safe(line)}</span>' if line[:1] in kinds else safe(line)
        for line in clean(diff).split("\n")
    )
    return "<pre>" + "\n".join(lines) + "</pre>"


def _prose(text: str) -> str:
    """An answer's Markdown as HTML. HTML in it is shown as text, and no picture is loaded."""
    rendered: str = _parser().render(clean(_cut(text, PROSE_CHARACTERS)))
    return rendered


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["reference", "html_block", "html_inline", "image"])
    parser.add_render_rule("link_open", _link)
    return parser


def _link(_renderer: object, tokens: Sequence["Token"], index: int, *_: object) -> str:
    """A link to the web, with its address as tooltip; any other link becomes plain text."""
    address = str(tokens[index].attrGet("href") or "")
    if not address.lower().startswith(_SAFE_LINKS):
        return "<a>"
    return f'<a href="{escape(address)}" title="{escape(address)}" rel="noopener noreferrer nofollow">'
