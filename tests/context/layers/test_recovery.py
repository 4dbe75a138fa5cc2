"""Making a request that is too large smaller, whatever a user, a model or a tool has put into it."""

import itertools
import json
from collections.abc import Callable

import pytest

from tests.context.performer import Performer
from tests.conversation.logs import broken_rules
from tests.profiles import model_named
from tui_agent.context.effects import Append, Effect, Refusal, SaveText
from tui_agent.context.engine import ContextEngine
from tui_agent.context.layers.shortening import LEVELS, NO_PICTURE, OVERFLOW_STEPS, TOO_LARGE
from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    Artifact,
    Message,
    ModelSwitched,
    Pinned,
    Prefix,
    Shortened,
    tool_result,
    user_message,
)
from tui_agent.conversation.view import View
from tui_agent.settings import ContextSettings, Settings

MODEL = "anthropic:claude-opus-5-5"
LINE = "please read this line of text\n"


def engine(window: int, settings: Settings | None = None, system: str = "rules " * 700) -> ContextEngine:
    model = model_named(MODEL, window=window, source="provider")
    made = ContextEngine(settings, model=model, clock=lambda: 1.0)
    made.extend([ModelSwitched(model=MODEL), Prefix(system=system)])
    return made


def answer(here: ContextEngine, *blocks: Block) -> None:
    here.extend([Message(role="assistant", blocks=blocks, model=MODEL)])


def pasted(here: ContextEngine) -> None:
    """45,000 tokens of the user, sent three times and not answered."""
    for _ in range(3):
        here.extend([user_message(LINE * 4_545)])


def pictures(here: ContextEngine) -> None:
    here.extend([user_message("look", *(Image("image/png", "A" * 4_000 + f"{number:04}") for number in range(9)))])


def small_pictures(here: ContextEngine) -> None:
    """As many as fill the window though each is small already."""
    shown = (Image("image/png", f"{number:04}", weight=0.25) for number in range(50))
    here.extend([user_message("look", *shown)])


def calls(number: int, lines: int = 16) -> Callable[[ContextEngine], None]:
    """A reply of so many calls, all of them answered by so many lines."""

    def say(here: ContextEngine) -> None:
        here.extend([user_message("read them all")])
        paths = (json.dumps({"path": f"src/some/folder/with/file_{index}.py"}) for index in range(number))
        asked = tuple(ToolCall(f"c{index}", "read_file", path) for index, path in enumerate(paths))
        answer(here, Text("I read them all."), *asked)
        here.extend([tool_result(ToolResult(call.id, "a line of the file\n" * lines)) for call in asked])

    return say


def arguments(here: ContextEngine) -> None:
    """One call with 1.6 MB of arguments."""
    here.extend([user_message("write it")])
    content = json.dumps({"path": "a.py", "content": "x = 1\n" * 267_000})
    answer(here, ToolCall("w", "write_file", content))
    here.extend([tool_result(ToolResult("w", "written"))])


def prose(here: ContextEngine) -> None:
    """An answer of 2 MB."""
    here.extend([user_message("tell me")])
    answer(here, Text("one word of it after another " * 69_000))


def everything(here: ContextEngine) -> None:
    for say in (prose, arguments, pictures, calls(1_000), pasted):
        say(here)


CASES = {
    "a paste sent three times": (100_000, pasted),
    "nine pictures": (15_000, pictures),
    "fifty small pictures": (16_000, small_pictures),
    "1,000 calls": (32_000, calls(1_000)),
    "300 calls with long results": (9_000, calls(300, lines=110)),
    "5,000 calls": (200_000, calls(5_000)),
    "1.6 MB of arguments": (200_000, arguments),
    "2 MB of text": (200_000, prose),
    "all at once": (32_000, everything),
}


PICTURED = ("nine pictures", "fifty small pictures", "all at once")


@pytest.mark.parametrize(
    ("name", "shrinks", "pinned"),
    [
        *(pytest.param(name, True, False, marks=[pytest.mark.soak] if name == "5,000 calls" else []) for name in CASES),
        *((name, True, True) for name in ("a paste sent three times", "1,000 calls", "2 MB of text")),
        *((name, False, True) for name in PICTURED),
    ],
)
def test_whatever_was_said_the_next_request_fits(name: str, shrinks: bool, pinned: bool) -> None:
    window, say = CASES[name]
    here = engine(window)
    say(here)
    if pinned:
        here.extend([Pinned(items=tuple(item.seq for item in here.view.items()))])
    caller, before, entries = Performer(here, shrinks=shrinks), here.tokens, list(here.view.log)
    assert not here.budget.fits(here.tokens)

    assert caller.run(here.recover())
    entered_at = next((place for place, effect in enumerate(caller.effects) if shortens(effect)), len(caller.effects))
    assert not any(isinstance(effect, SaveText) for effect in caller.effects[entered_at:])
    assert here.fits
    assert here.tokens < before
    assert broken_rules(here.view.messages()) == []
    assert caller.asked == []
    assert list(here.view.log)[: len(entries)] == entries
    assert all(done.after < done.before and TOO_LARGE in done.reason for done in caller.done)
    entered = here.view.log[len(here.view.log)]
    if isinstance(entered, Shortened):
        items = {item.seq: item for item in here.view.items()}
        assert all(items[seq].size.characters for seq in entered.items), "only what is shown is shortened"
    sizes = [size for done in caller.done for size in (done.before, done.after)]
    assert sizes == sorted(sizes, reverse=True) or max(map(abs, steps_off(sizes))) <= 20
    again = View(here.view.log)
    assert again.messages(here.view.policy) == here.view.messages()

    for _ in range(12):
        size, length = here.tokens, len(here.view.log)
        smaller = caller.run(here.recover())
        assert smaller is (here.tokens < size)
        assert broken_rules(here.view.messages()) == []
        if not smaller:
            break
    assert len(here.view.log) == length, "a recovery that makes nothing smaller leaves no trace"


def shortens(effect: Effect) -> bool:
    return isinstance(effect, Append) and any(isinstance(entry, Shortened) for entry in effect.entries)


def steps_off(sizes: list[int]) -> list[int]:
    """How much more each size is than the one before it, where it is more."""
    return [max(0, later - sooner) for sooner, later in itertools.pairwise(sizes)]


def test_no_more_is_taken_away_than_has_to_be() -> None:
    here = engine(32_000)
    calls(1_000)(here)
    here.extend([Pinned(items=tuple(item.seq for item in here.view.items()))])
    Performer(here).run(here.recover())
    shown = [block for message in here.view.messages() for block in message.blocks if isinstance(block, ToolCall)]
    assert len(shown) == LEVELS[0].calls
    whole = [item for item in here.view.items() if item.category == "results" and item.state == "verbatim"]
    assert [item.size.characters for item in whole] == [304] * LEVELS[0].calls


def test_a_pasted_text_keeps_its_ends_and_lies_whole_in_a_file() -> None:
    here = engine(50_000)
    here.extend([user_message(f"First words.\n{LINE * 6_000}The last words.")])
    caller = Performer(here)
    assert caller.run(here.recover())
    (message,) = here.view.messages()
    (block,) = message.blocks
    assert isinstance(block, Text)
    assert block.text.startswith("First words.\n")
    assert block.text.endswith("The last words.")
    ((path, kept),) = caller.texts.items()
    assert kept == f"First words.\n{LINE * 6_000}The last words."
    assert f'read_file(path="{path}")' in block.text
    left_out = len(kept) - LEVELS[0].characters
    assert f"{left_out:,} characters left out" in block.text
    # What is shortened twice is shortened from the whole.
    here.learn_limit(2_500)
    assert caller.run(here.recover())
    assert list(caller.texts.values()) == [kept]
    (block,) = here.view.messages()[0].blocks
    assert isinstance(block, Text)
    assert block.text.count("left out") == 1
    assert block.text.startswith("First words.\n")
    shown = len(block.text.partition("\n[...")[0]) + len(block.text.partition("...]\n")[2])
    assert f"[... {len(kept) - shown:,} characters left out" in block.text


def test_each_long_text_of_a_message_is_kept() -> None:
    here = engine(16_000)
    texts = tuple(Text(f"{name} text. {LINE * 2_000}") for name in ("First", "Second"))
    here.extend([Message(role="user", blocks=texts)])
    caller = Performer(here)
    assert caller.run(here.recover())
    ((path, kept),) = caller.texts.items()
    assert kept == "\n\n".join(text.text for text in texts)
    shown = here.view.messages()[0].blocks
    assert all(isinstance(block, Text) and path in block.text for block in shown)


def test_a_result_that_lies_in_a_file_points_there_and_is_not_kept_twice() -> None:
    here = engine(16_000, Settings(context=ContextSettings(max_tokens_share=0.5)))
    here.extend([user_message("go")])
    asked = tuple(ToolCall(f"c{number}", "read_file", "{}") for number in range(8))
    answer(here, *asked)
    for call in asked:
        kept = Artifact(f"large_tool_results/{call.id}", 900_000, "0", evicted=True)
        here.extend([tool_result(ToolResult(call.id, f"[{call.id}] " + "x" * 4_500), artifact=kept)])
    here.extend([Pinned(items=tuple(item.seq for item in here.view.items()))])
    caller = Performer(here)
    assert not here.budget.fits(here.tokens)
    assert caller.run(here.recover())
    assert caller.texts == {}
    short = [
        block
        for block in here.view.messages()[-1].blocks
        if isinstance(block, ToolResult) and "characters left out" in block.text
    ]
    assert short
    assert all(f'read_file(path="large_tool_results/{block.call_id}") shows the whole' in block.text for block in short)


def test_pictures_become_smaller_first_and_then_a_note() -> None:
    here = engine(16_000)
    pictures(here)
    caller = Performer(here)
    assert caller.run(here.recover())
    shown = [block for block in here.view.messages()[0].blocks if isinstance(block, Image)]
    assert {image.weight for image in shown} == {0.25, 1.0} or {image.weight for image in shown} == {0.25}
    assert len(shown) == 9
    here.learn_limit((here.tokens - 100) * 4 // 3)
    assert not here.budget.fits(here.tokens)
    assert caller.run(here.recover())
    assert Text(NO_PICTURE) in here.view.messages()[0].blocks


def test_what_the_provider_does_not_take_is_made_smaller_though_it_seems_to_fit() -> None:
    """The estimate is too low, or the server's limit is another one: it does not say which."""
    here = engine(200_000)
    here.extend([user_message(LINE * 1_000)])
    assert here.fits
    caller, before = Performer(here), here.tokens
    assert caller.run(here.recover())
    assert here.tokens < before * 0.75


def test_of_an_unknown_window_the_request_only_gets_smaller() -> None:
    here = engine(0, Settings(context=ContextSettings(context_window=-1, max_context_tokens=0)))
    pasted(here)
    caller, before = Performer(here), here.tokens
    assert caller.run(here.recover())
    assert here.tokens < before


def test_the_mildest_way_that_is_enough_is_taken() -> None:
    def grown(window: int, results: int, *, turns: int = 0) -> tuple[ContextEngine, Performer]:
        here = engine(window)
        for number in range(turns):
            here.extend([user_message(f"question {number}")])
            answer(here, Text(f"answer {number} " * 120))
        here.extend([user_message("go")])
        for number in range(results):
            answer(here, ToolCall(f"c{number}", "read_file", f'{{"path":"{number}.py"}}'))
            here.extend([tool_result(ToolResult(f"c{number}", LINE * 100))])
        caller = Performer(here)
        assert not here.budget.fits(here.tokens)
        assert caller.run(here.recover())
        return here, caller

    old_results, caller = grown(20_000, 16)
    assert [done.step for done in caller.done] == ["cleared"]
    newest = [item.state for item in old_results.view.items() if item.category == "results"][-3:]
    assert newest == ["verbatim"] * 3
    _, caller = grown(20_000, 4, turns=50)
    assert [done.step for done in caller.done] == ["cleared", "summary"]
    assert OVERFLOW_STEPS[-1] == "shorten"


def test_a_step_of_it_is_undone_like_any_other() -> None:
    here = engine(100_000)
    pasted(here)
    caller, before = Performer(here), here.view.messages()
    caller.run(here.recover())
    here.model = model_named(MODEL, window=1_000_000, source="provider")
    done = caller.run(here.undo())
    assert not isinstance(done, Refusal)
    assert here.view.messages() == before


@pytest.mark.parametrize("asked", ["compact", "clear"])
def test_where_nothing_else_helps_the_user_gets_there_too(asked: str) -> None:
    here = engine(100_000)
    pasted(here)
    caller = Performer(here)
    if asked == "compact":
        result = caller.run(here.compact())
        assert result.error == ""
        assert (result.before, result.after) == (caller.done[0].before, here.tokens)
    else:
        done = caller.run(here.clear_results())
        assert not isinstance(done, Refusal)
        assert done.after == here.tokens < done.before
    assert here.fits
    assert isinstance(here.view.log[len(here.view.log)], Shortened)
