"""Every kind of block, the context panel and the status bar as they are painted, against what was painted before.

`painted.txt` has each line's text, and behind a tab the roles of the palette that its parts have. After a change that
is meant: ``.venv/bin/python -m tests.tui.painting.test_painted`` writes it anew; look at what changed.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs
from rich.cells import cell_len
from rich.style import Style

from tests.tui.context.test_rows import CATEGORIES, NOW, items, seen
from tui_agent.agent.context import SwitchPreview
from tui_agent.context.budget import Threshold
from tui_agent.context.changes import ChangePreview, StepPreview
from tui_agent.context.economics import StepPrice
from tui_agent.context.layers.limits import Evicted
from tui_agent.context.stats import ServerUse
from tui_agent.conversation.entries import NO_OUTCOME, Hit, Outcome
from tui_agent.conversation.tasks import PLAN
from tui_agent.text import call_summary
from tui_agent.tools.base import SubtaskProgress
from tui_agent.tools.diffs import unified
from tui_agent.tui.cards.blocks import Level, ResultSize, ToolState
from tui_agent.tui.cards.footer import FooterBlock
from tui_agent.tui.cards.prose import ProseSections
from tui_agent.tui.context.drawing import (
    SIGNS,
    Bar,
    Column,
    bar_line,
    before_after_line,
    course_lines,
    strip_lines,
    ticks_line,
)
from tui_agent.tui.context.previews import preview_rows, switch_rows
from tui_agent.tui.context.rows import panel_rows
from tui_agent.tui.painting.diffs import DiffLines, counts, diff_sections, draw_diff_start, file_of, visible_diff
from tui_agent.tui.painting.glyphs import ASCII, UNICODE, Glyphs
from tui_agent.tui.painting.lines import Line
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.themes import THEMES
from tui_agent.tui.pane.block_painting import BlockPainting, estimate_height
from tui_agent.tui.pane.status_bar import GaugeMarks, StatusBarFacts, status_line
from tui_agent.tui.pane.transcript import Transcript

KEPT: Final = Path(__file__).with_name("painted.txt")
WIDTHS: Final = (19, 46, 120)
PALETTE: Final = Palette.from_theme(THEMES[0].to_color_system().generate())
ROLES: Final = {style: name for name, style in reversed(structs.asdict(PALETTE).items())}

PROSE: Final = """# A title that is longer than a narrow column

Some *emphasis*, **strong**, `code`, ~~gone~~ and [a guide](https://x.y/z) in a paragraph that is wrapped, with 日本語.

## Smaller

1. one
2. two that goes on and on for a while
   - [x] nested
   - [ ] open
10. ten

> quoted text that is wrapped in a narrow column
>
> - in it

| name | count | what it is |
|:--|--:|---|
| a | 1 | short |
| a longer name | 1,000 | with words that are wrapped where they do not fit |

```python
def average(amounts: list[float]) -> float:
    return sum(amounts) / len(amounts)  # a comment that is far too long for the width of any of these columns

text = 'a' + "b" * 3
```

***

Last  \nbroken
"""
MORE_PROSE: Final = """Title
=====

Second
---

> one
> > two
>
> ```
> code
> ```

3. three
4. four

   with a paragraph

   ```sh
   ls -l
   ```
- [ ]
-
* a **bold *and slanted* text**, `` a`b ``, ![a picture](p.png), <https://a.example>, https://b.example and a\\*b\\*
  - deep
    - deeper
      - deepest, in a line that is wrapped in each of the columns, however wide they are, since it has so many words

| l | c | r |
|---|:-:|--:|
| `x` | **y** | [z](https://z.example) |
| only one |

[google.com](https://evil.example) [https://a.example](https://a.example) [same](same) [](https://empty.example)

<b>html</b> &amp; &lt; <script>alert(1)</script> [bold]x[/bold] &#x202e;y

[x.y](http://x.y/) <https://x.y/z> [a@x.y](mailto:a@x.y)

These:
- one
  ```
  - code
  ```
- two

after

    indented code

```unknown-language
a\tb
```

```
	日本 and a line of code that is longer than any of the columns, so that it has to be broken somewhere in the middle
```
"""
DIFFS: Final = (
    unified("", "one\ntwo\n", "new.py"),
    unified("one\ntwo", "", "gone.py"),
    unified("a\n", "a", "ended.txt"),
    unified("a", "a\nb", "both.txt"),
    unified("def f(a, b):\n    return a\n", "def f(a, c):\n    return a + c\n", "words.py"),
    unified("same\nall other here\n", "same\nnothing in common\n", "lines.txt"),
    unified("a\tb\n日本語 text\n", "a\tc\n日本語 Text\n", "wide.txt"),
    unified("word " * 81 + "\n", "word " * 40 + "wort, " + "word " * 40 + "\n", "long.txt"),
    unified("one\ntwo\nthree\n", "1\n2\n", "fewer.txt"),
    unified("".join(f"{n}\n" for n in range(40)), "".join(f"{n}\n" for n in range(40) if n not in (3, 30)), "far.txt"),
    unified("def f(a, b): return a + b", "def g(a, c): return a + c", "each.txt"),
    unified("    call(one, three)", "        call(one, two, three)", "moved.txt"),
    unified("one two three four", "one 2 3 four", "joined.txt"),
    unified("a\fb\u2028c\nold\n", "a\fb\u2028c\nnew\n", "unseen.txt"),
    unified("one\rold\rtwo\n", "one\rnew\rtwo\n", "returns.txt"),
    unified("a\r\nold\r\n", "a\r\nnew\r\n", "windows.txt"),
    unified("a\r\n", "a\n", "ends.txt"),
    unified("a\n", "b", "ended.txt"),
    unified("a", "b", "endless.txt"),
    "--- a\n+++ b\nBinary files differ",
    "@@ -98,3 +99,3 @@\n a\n-b\n+\x1b[1mc\n\n… 5 more lines",
)
PROGRESS: Final = SubtaskProgress(
    "claude-haiku-5-5",
    "working",
    12_345,
    0.0042,
    calls=(
        ("grep", '{"pattern":"TODO","path":"src"}'),
        ("read_file", '{"path":"src/a.py"}'),
        ("read_file", '{"path":"src/long_long_na…'),
        ("list_dir", '{"path":"."}'),
    ),
    earlier=2,
)
LIST: Final = (
    ("read the parser", "done"),
    ("read its callers", "done"),
    ("rename it", "in_progress"),
    ("run the tests", "pending"),
    ("say so", "pending"),
)
FULL: Final = StatusBarFacts(
    model="anthropic:claude-sonnet-5-5",
    mode="auto",
    tokens=84_000,
    window=200_000,
    measured=True,
    cost_usd=0.1234,
    activity="running run_command",
    since=100.0,
)
OLD: Final = "".join(f"line {number}\n" for number in range(1, 13)) + "total = first + second\n\tend"
NEW: Final = OLD.replace("line 3\n", "").replace("line 11", "line 11\nand a new one").replace("second", "third") + "\n"


def _tasks(*items: tuple[str, str]) -> str:
    return json.dumps({"items": [{"text": text, "state": state} for text, state in items]})


def conversation(*, open_all: bool) -> Transcript:
    """A block of each kind, in each state that looks different."""
    shown = Transcript()
    shown.add_user("Do it, please, and say what you did while you were at it.\n\n```\ncode\n```\nmore", seq=1)
    shown.add_user("\n".join(f"line {number}" for number in range(30)), seq=2)
    shown.add_prose(PROSE)
    shown.add_reasoning(
        "First this.\n\nThen **that**, which is said at some length, as always.", seconds=3.2, tokens=120
    )
    shown.add_reasoning("", seconds=75.0, tokens=1_200)
    for state in ToolState:
        tool = shown.add_tool(f"s{state}", "read_file", summary="a/long/path/to/some/file.py", arguments='{"path":"a"}')
        result = "\n".join(f"{number}\trow {number}" for number in range(1, 8))
        note = "no such file" if state is ToolState.ERROR else ""
        shown.finish_tool(tool, state, result, note=note, size=ResultSize(7, 40), seconds=2.04)
    for count in (3, 4, 5):
        tool = shown.add_tool(f"l{count}", "list_dir", summary=".")
        shown.finish_tool(tool, ToolState.OK, "\n".join(f"file {number}" for number in range(count)), seconds=0.2)
    edit = shown.add_tool("e", "edit_file", summary="a.py", arguments='{"path":"a.py","old":"x","new":"y"}')
    shown.finish_tool(edit, ToolState.OK, "Replaced.", diff=unified(OLD, NEW, "a.py"), seconds=0.1)
    for count in (3, 4, 5, 40):
        hits = tuple(
            Hit(f"src/file{number}.py", number, f"text = {number}  # and more of it") for number in range(1, 5)
        )
        found = shown.add_tool(f"g{count}", "grep", summary="text", arguments='{"pattern":"text"}')
        shown.finish_tool(found, ToolState.OK, "text", outcome=Outcome(hits=hits[:count], hit_count=count), seconds=0.3)
    pages = shown.add_tool("w", "web_search", summary="text")
    page = Hit("A page with a title", 0, "https://example.org/a/page")
    shown.finish_tool(pages, ToolState.OK, "text", outcome=Outcome(hits=(page,), hit_count=2))
    running = shown.add_tool("r", "run_command", summary="make test && make install", state=ToolState.RUNNING)
    shown.show_progress(running, "one\ntwo\n\nthree\nfour\n", above=1_000)
    for code in (0, 2):
        ran = shown.add_tool(f"c{code}", "run_command", summary="make test", arguments='{"command":"make test"}')
        state = ToolState.ERROR if code else ToolState.OK
        text = "\n".join(f"step {number}" for number in range(9)) + f"\n[exit code {code}]"
        shown.finish_tool(ran, state, text, note="9 steps", outcome=Outcome(exit_code=code, notes=1), seconds=61.0)
    work = shown.add_tool("a", "agentic_research", summary="find all", state=ToolState.RUNNING)
    shown.show_progress(work, PROGRESS.text, subtask=PROGRESS)
    tasks = shown.add_tool("t", "todo", summary="{…}", arguments=_tasks(*LIST))
    shown.finish_tool(tasks, ToolState.OK, "Noted.", note="2/5 done")
    for steps in (6, 7):
        plan = json.dumps({"plan": "## Why\n\nBecause.", "steps": [f"step {number}" for number in range(steps)]})
        asked = shown.add_tool(f"p{steps}", PLAN, summary=call_summary(plan), arguments=plan)
        outcome = Outcome(steps=tuple(f"step {number}" for number in range(steps)))
        shown.finish_tool(asked, ToolState.OK, "Approved.", note="approved, mode auto", outcome=outcome)
    for level in Level:
        shown.add_notice(level, "What happened, in a few words", "Why it did,\nand what was kept.", "Try again.")
    shown.add_notice(Level.INFO, "A title alone")
    shown.add_boundary(
        "compaction", before=120_000, after=30_000, saved="$0.12", reason="it is full", text="## Goal\n\nAll."
    )
    shown.add_boundary("clearing", before=9_000, after=8_000, reason="the cache is cold")
    for seconds, usd, files in ((0.9, 0.1, 0), (1.0, 0.1, 1), (9.9, 0.0, 0), (10.0, 0.0, 2)):
        shown.add(FooterBlock(**shown.place(), seconds=seconds, usd=usd, files=files))
    if open_all:
        shown.toggle_all()
    return shown


class Call(NamedTuple):
    """A finished call of a tool, and what its card is given."""

    tool: str = "tool"
    result: str = "done"
    state: ToolState = ToolState.OK
    note: str = ""
    diff: str = ""
    summary: str = ""
    arguments: str = ""
    outcome: Outcome = NO_OUTCOME
    size: ResultSize | None = None
    seconds: float | None = None


PRINTED: Final = "".join(f"line {number}\n" for number in range(1, 3_001)) + "[exit code 0, 0.1 s]"
LEFT_RUNNING: Final = "still running in the background as process 71: command_output(process=71) reads what it prints"
CALLS: Final = (
    Call("run_command", "..\n2 passed\n[exit code 0]", note="exit code 0 · 2 passed"),
    Call(result="..\n2 passed\n[exit code 0]", note="exit code 0 · 2 passed"),
    Call(result="Do not repeat it.", state=ToolState.DENIED, note="You declined it: use make"),
    Call("run_command", "Do not repeat it.", ToolState.DENIED, "You declined it"),
    Call(result="no module\n[exit code 1]", state=ToolState.ERROR, note="exit code 1 · no module"),
    Call(result="no module\n[exit code 1]", state=ToolState.ERROR, note="stopped"),
    Call("read_file", "1\tone\n2\t\n3\tthree\n4\n"),
    Call(result="one\n\nthree"),
    Call("write_file", diff=unified("", "".join(f"new {number}\n" for number in range(50)), "a")),
    Call("edit_file", arguments='{"old": "a", "new": "b"}', diff="--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b"),
    Call(summary="a.py limit=5", arguments='{"path": "a.py", "content": "one\\ntwo", "limit": 5}'),
    Call(arguments="{not json"),
    Call("grep", "a.py", outcome=Outcome(hits=(Hit("a.py", 1, "x" * 200), Hit("2024.md", 3, "third")), hit_count=2)),
    Call("web_search", "for the model\n" * 20, outcome=Outcome(
        hits=tuple(Hit(f"Title {number}\x1b[2J", 0, f"https://{number}.example/") for number in range(5)), hit_count=5
    )),
    Call("your shell", "".join(f"line {number}\n" for number in range(1, 21)), summary="seq 20"),
    Call("your shell", f"begins {'and goes on ' * 700}\nlast"),
    Call("run_command", Evicted(PRINTED, PRINTED[:900], PRINTED[-900:]).text("large/1"),
         outcome=Outcome(exit_code=0, line_count=3_001, notes=1), size=ResultSize(lines=3_001)),
    Call("run_command", f"ready\n[{LEFT_RUNNING}]", note=LEFT_RUNNING, summary="serve --all " * 20,
         outcome=Outcome(left_running=71, notes=1), seconds=1.1),
    Call("run_command", "begin\n\nthe end\n\n[exit code 1, 0.3 s]\n[and a note]", ToolState.ERROR,
         outcome=Outcome(exit_code=1, notes=2)),
    Call("todo", "todo: item 1 has no text.", ToolState.ERROR, arguments=_tasks(*LIST)),
    Call("todo", "Noted: there is no task list any more.", arguments=_tasks()),
    Call("todo", arguments=_tasks(*((text, "pending") for text, _ in LIST))),
    Call("todo", arguments=_tasks(*((text, "done") for text, _ in LIST))),
    Call("todo", arguments=_tasks(
        ("\x1b[2Jone\ntwo [red]three[/]\u202e", "in_progress"), ("漢字" * 60, "pending"), ("word " * 30, "done")
    )),
    Call("agentic_research", "There are two.", summary="find all"),
)  # fmt: skip


def details(*, open_all: bool) -> Transcript:
    """What differs in a detail from a block of `conversation`."""
    shown = Transcript()
    over = structs.replace(PROGRESS, log="20260101-010101-abcd:sub:12345678")
    for number, call in enumerate(CALLS):
        tool = shown.add_tool(
            f"{number}", call.tool, summary=call.summary, arguments=call.arguments, state=ToolState.RUNNING
        )
        shown.show_progress(tool, "", subtask=over)
        shown.finish_tool(
            tool, call.state, call.result, size=call.size, diff=call.diff, note=call.note, outcome=call.outcome,
            seconds=call.seconds,
        )  # fmt: skip
    waiting = shown.add_tool("w", "agentic_research", state=ToolState.RUNNING)
    shown.show_progress(waiting, "", subtask=SubtaskProgress("", "waiting: other subtasks are running"))
    shown.add_reasoning("So.", seconds=0.04, tokens=25)
    shown.add_notice(
        Level.INFO,
        "Found",
        "Sandbox  what commands may write here, all of them\nplain text that wraps in a column\n"
        "     3  you said this and then more of it\n        and so on it went",
    )
    shown.add_user("".join(f"pasted {number}\n" for number in range(1, 301)) + "what is this?")
    shown.add_user("x" * 3_000)
    saved = "cost $0.047, saves $0.0020 a call"
    for seq, reason in enumerate(("asked for; 5 facts are left out", "", "undone"), 1):
        shown.add_boundary(
            "turns summarised", before=84_200, after=21_000, saved=saved, reason=reason, text="# S", seq=seq,
            restores=not reason,
        )  # fmt: skip
    shown.mark_undone(3)
    if open_all:
        shown.toggle_all()
    return shown


def _written(line: Line) -> str:
    roles: list[str] = []
    for segment in line.segments:
        style = segment.style or Style.null()
        name = ROLES.get(style, str(style))
        roles += [name] if roles[-1:] != [name] else []
    return f"{line.text.rstrip()}\t{' '.join(roles)}{' #' if line.header else ''}{line.ending!r}"


def _blocks(shown: Transcript, width: int, glyphs: Glyphs, most: int = 1_000) -> Iterator[str]:
    """Each block; of one that is taller, the first and the last of its lines."""
    before = None
    for block in shown:
        painting = BlockPainting(block, before, width, Look(PALETTE, glyphs))
        before = block
        estimated = painting.height
        lines = [line for section in range(len(painting.heights)) for line in painting.lines(section)]
        assert all(line.width <= width for line in lines)
        yield f"--- {type(block).__name__}, {len(lines)} lines, estimated {estimated}"
        yield from map(_written, lines if len(lines) <= most else [*lines[: most // 2], *lines[-3:]])


def _painted() -> Iterator[str]:
    for open_all in (False, True):
        for width in WIDTHS:
            yield f"=== {'open' if open_all else 'closed'}, {width} cells"
            yield from _blocks(conversation(open_all=open_all), width, UNICODE if width != WIDTHS[0] else ASCII)
        yield f"=== details, {'open' if open_all else 'closed'}"
        yield from _blocks(details(open_all=open_all), 62, UNICODE, most=24)
        for width in (1, 5, 9):
            assert any(_blocks(details(open_all=open_all), width, ASCII))
    yield "=== lines each is estimated at, closed and open"
    for shown in (conversation(open_all=False), details(open_all=False)):
        for collapsed in (True, False):
            yield " ".join(str(estimate_height(block, None, 62, collapsed=collapsed)) for block in shown)
    yield "=== what is copied"
    yield from (f"{block.plain_text[:400]!r} {len(block.code)}" for block in details(open_all=False))
    look = Look(PALETTE, UNICODE)
    for from_change, at_most in ((False, None), (True, 5)):
        diff = DiffLines(visible_diff(unified(OLD, NEW, "a.py")), from_change=from_change, at_most=at_most)
        yield f"=== a diff, {at_most} rows, {diff.cut}"
        for number, start, end in diff.breaks(16):
            yield diff.text(number, start, end)
            yield _written(diff.draw(number, start, end, 16, look))
    for text in map(visible_diff, DIFFS):
        yield f"=== diff of {file_of(text)!r}, {counts(text)}"
        for section in diff_sections(text):
            yield from map(_written, section.draw(40, look))
        yield from map(_written, draw_diff_start(text, 2, 17, Look(PALETTE, ASCII), indent=4))
        diff = DiffLines(text, from_change=True)
        yield from (_written(diff.draw(*place, 30, look)) for place in diff.breaks(30))
    for width, quiet in ((24, False), (70, False), (40, True)):
        yield f"=== Markdown, {width} cells"
        for section in ProseSections(quiet=quiet).update(MORE_PROSE):
            lines = section.draw(width, look)
            yield from (f"{each.gutter} {_written(each)}" for each in lines)
    yield from _context()
    for theme in THEMES:
        yield f"=== theme {theme.name}"
        palette = Palette.from_theme(theme.to_color_system().generate())
        yield from (f"{name} {style}" for name, style in structs.asdict(palette).items())


def _context() -> Iterator[str]:
    """The context panel, previews of steps, charts of calls, and the status bar."""
    stats = seen().stats
    servers = (ServerUse(name="docs", sent=1_200, saved=3_400, sent_usd=0.01, saved_usd=0.02),)
    more = structs.replace(stats, servers=servers, measured=True, window=100_000)
    shown = (seen(), seen(0), structs.replace(seen(), stats=more, items=items("read_file")))
    price = StepPrice(0.1, 0.2, 0.1, 0.4)
    preview = StepPreview("clear", ChangePreview(50_000, 20_000, items(), (), 4_000, 2, 2), True, price, "")
    switch = SwitchPreview("a", "b", 150_000, 1_000_000, 200_000, (), "compact", 0.6, 0.02, None, 3)
    columns = [Column(number * 997 % 1_000, SIGNS["lost"][0] if number == 7 else " ", "error") for number in range(30)]
    marks = (Threshold(layer="clear", tokens=600), Threshold(layer="compact", tokens=850))
    bar = Bar(categories=CATEGORIES, tokens=46_400, window=100_000, reserve=8_000, marks=marks)
    for width in (50, 99):
        look = Look(PALETTE, UNICODE if width == 50 else ASCII)
        rows = [
            row for each in shown for row in panel_rows(each, NOW, lambda _: "the text", width, focused=width == 50)
        ]
        rows += [*preview_rows(preview, NOW, lambda _: "the text"), *switch_rows(switch)]
        yield f"=== context, {width} cells"
        yield from (_written(row.draw(width, look)) for row in rows)
        for count in (1, 3, 30):
            yield from map(_written, strip_lines(columns[:count], count // 2, width - 30, look))
            yield from map(
                _written, course_lines([(each.tokens, each.tokens % 2) for each in columns[:count]], 9, look)
            )
        for tokens in (0, 1, 46_400, 200_000):
            yield from map(_written, (bar_line(replace(bar, tokens=tokens), width, look), ticks_line(bar, width, look)))
            yield _written(before_after_line("now", tokens, 100_000, "50%", width, look))
    ticks = (("clear", 0.6), ("compact", 0.85))
    local = structs.replace(FULL, reading=812.5, writing=9.96, cost_usd=None, ticks=ticks, soon="summary in 2 calls")
    idle = StatusBarFacts(
        model="m", mode="plan", tokens=69_999, window=100_000, jobs=1, problems=2, cache_share=0.849, ticks=ticks
    )
    wait = structs.replace(FULL, activity="until the limit resets", until=1_000.0, turn_cost_usd=0.02, summarising=True)
    for status in (
        FULL,
        local,
        idle,
        wait,
        structs.replace(idle, tokens=90_000, unconfined=True, confined=True),
        structs.replace(idle, tokens=900, mode="auto", confined=True, problems=0, model="x" * 24, measured=True),
        structs.replace(idle, tokens=2_000_000, jobs=0, mode="allow", model="p:" + "x" * 25, writing=10.0),
        structs.replace(FULL, window=0, since=-3_600.0, cost_usd=0.02, turn_cost_usd=0.02, measured=False),
        StatusBarFacts(model="m", hint="Press Ctrl+C again to quit", tokens=1, window=100_000, ticks=(("clear", 1.0),)),
        StatusBarFacts(activity="starting", since=200.0),
        StatusBarFacts(model="ollama:\x1b]0;x\x07a\nb", activity="running a command", since=100.0, loop="10m"),
        StatusBarFacts(model="m", activity="running a command", since=106.0, window=1_000_000, tokens=4_700, soon="x"),
    ):
        yield from _status(status)


def _status(status: StatusBarFacts) -> Iterator[str]:
    """The line at each width at which it changes."""
    before: list[str] = []
    for width in range(131):
        glyphs = ASCII if width % 2 else UNICODE
        line = status_line(status, width, glyphs, GaugeMarks(), 112.5)
        assert sum(cell_len(span.text) for span in line) == width
        shown = "".join(span.text for span in status_line(status, width, UNICODE, GaugeMarks(), 112.5))
        if shown.split() != before:
            yield "".join(span.text for span in line) + "\t" + " ".join(dict.fromkeys(span.color for span in line))
        before = shown.split()


def test_what_is_painted_is_what_was_painted_before() -> None:
    kept, painted = KEPT.read_text("utf-8").split("\n"), [*"\n".join(_painted()).split("\n"), ""]
    changed = list(unified_diff(kept, painted, "painted.txt", "now", n=1, lineterm=""))
    assert not changed, "\n".join(changed[:40]) + f"\n{__doc__}"


if __name__ == "__main__":
    KEPT.write_text("\n".join(_painted()) + "\n", "utf-8")
