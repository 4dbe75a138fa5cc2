"""Limits of the screen's parts, each at its value and one beyond: sizes, ages, keys, pastes, history, mentions."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from tui_agent.agent import events
from tui_agent.text import compact_count
from tui_agent.tui import wording
from tui_agent.tui.app.start import MAX_LAST_CHARACTERS, MAX_LAST_LINES, last_answer
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.dialogs.fields import key_problem
from tui_agent.tui.dialogs.files_screen import Piece
from tui_agent.tui.dialogs.reading import explained, hung
from tui_agent.tui.fuzzy import best, holds, ranked, score
from tui_agent.tui.keys import Keymap, key_text
from tui_agent.tui.painting.glyphs import ASCII, UNICODE
from tui_agent.tui.painting.lines import Run as TextRun
from tui_agent.tui.painting.lines import breaks, crop, fit, make_line, pieces
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.tables import share
from tui_agent.tui.pane.heights import BlockHeights
from tui_agent.tui.pane.status_bar import elapsed_text
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.prompt.completion import Completion, CompletionItem
from tui_agent.tui.prompt.history import MAX_ENTRIES, MAX_SAVED_CHARACTERS, PromptHistory
from tui_agent.tui.prompt.mentions import Mention, as_mention, mention_before, missing_files
from tui_agent.tui.prompt.pastes import Pastes
from tui_agent.tui.terminal.early_keys import EarlyKeys
from tui_agent.tui.terminal.filters import own_filters

BLACK = Color(0, 0, 0)
NOW = 1e9
NO_KEY = "This cannot be a key: it has blanks or special characters in it."


def crop_of(width: int) -> tuple[str, int]:
    base = Palette.from_theme({}).base
    line = crop(make_line([TextRun("ab", base), TextRun("日本", base)]), width)
    return line.text, line.width


def broken(text: str, width: int) -> list[str]:
    assert "".join(text[start:end] for start, end in pieces(text, width)) == text
    return [text[start:end] for start, end, _ in breaks(text, width)]


def told_of_files(size: int) -> int:
    rows = list(Piece("x" * size + "\x1b[31m").rows(400))
    return len("".join(row.draw(400, Look(Palette.from_theme({}), ASCII)).text.strip() for row in rows))


def typed_early(data: bytes, lines: int) -> bytes:
    """What is sent of bytes of which so many came before the screen stood: the Enter behind one line, no paste."""
    early = EarlyKeys()
    early.lines = lines
    read = early.read(data)
    assert early.read(data) == data
    return read


def best_of(typed: str, *names: str) -> tuple[str, ...]:
    return best(names, typed, lambda name: (name,))


SHOWN: Final[dict[Callable[..., object], dict[tuple[Any, ...], object]]] = {
    wording.duration: {
        (0,): "0.0s", (9.94,): "9.9s", (9.95,): "10s", (59.4,): "59s", (59.5,): "1m 00s", (3_599.4,): "59m 59s",
        (3_600,): "1h 00m", (7_860,): "2h 11m",
    },
    elapsed_text: {
        (-1,): "  0s", (9.9,): "  9s", (59.9,): " 59s", (60,): "1m00s", (3_599,): "59m59s", (3_600,): "1h00m",
        (7_859,): "2h10m",
    },
    wording.size: {
        (0,): "0 B", (1_023,): "1023 B", (1_024,): "1.0 KB", (10 * 1_024 - 1,): "10.0 KB", (10 * 1_024,): "10 KB",
        (1_024**2 - 1,): "1024 KB", (1_024**2,): "1.0 MB", (1_024**3,): "1.0 GB", (25 * 1_024**3,): "25 GB",
    },
    wording.age: {
        (NOW + 5,): "just now", (NOW - 59,): "just now", (NOW - 60,): "1 min ago", (NOW - 3_599,): "59 min ago",
        (NOW - 3_600,): "1 h ago", (NOW - 86_399,): "23 h ago", (NOW - 86_400,): "1 d ago", (NOW - 2e5,): "2 d ago",
    },
    compact_count: {
        (0,): "0", (999,): "999", (1_000,): "1.0k", (9_949,): "9.9k", (84_200,): "84k", (999_499,): "999k",
        (1_300_000,): "1.3M",
    },
    wording.saved_text: {
        (0.0, 0.0): "",
        (0.0, 0.1): "saved $0, $0.100 a call from then on",
        (0.1, 0.0): "saved $0.100, $0 a call from then on",
        (-0.1, 0.2): "cost $0.100, saves $0.200 a call",
    },
    events.step_text: {
        ("cleared", 1): "1 result cleared", ("cleared", 1_200): "1,200 results cleared",
        ("cleared", None): "results cleared", ("summary", 5): "older turns summarised", ("pinned", None): "pinned",
        ("unheard", 3): "unheard",
    },
    wording.model_label: {
        ("a:b",): "a:b", ("llamacpp:/models/x.gguf",): "llamacpp:x.gguf", ("/models/x.gguf",): "x.gguf",
        ("a/b",): "a/b",
    },
    key_text: {
        ("ctrl+o",): "Ctrl+O", ("pageup",): "PgUp", ("escape",): "Esc", ("left_square_bracket",): "[", ("j",): "j",
        ("f1",): "F1", ("alt+shift+x",): "Alt+Shift+X", ("space",): "Space", ("ctrl+space",): "Ctrl+Space",
    },
    key_problem: {
        ("",): "Nothing was entered.", ("sk-1",): "",
        **dict.fromkeys((("sk 1",), ("sk-é",), ("sk\x01",)), NO_KEY),
        ("/help",): "This is a command, and no key: Esc leaves the question.",
    },
    share: {
        ((3, 5), 8): [3, 5], ((3, 5), 7): [3, 4], ((5, 5), 9): [4, 4], ((10, 2, 10), 12): [5, 2, 5],
        ((10, 8), 10): [5, 5], ((0, 0), 9): [1, 1], ((4, 4), 1): [1, 1], ((9, 1), 4): [3, 1],
    },
    broken: {
        ("one two", 7): ["one two"], ("one two", 6): ["one", "two"], ("one two", 3): ["one", "two"],
        ("one two", 2): ["on", "e", "tw", "o"], ("one ", 3): ["one"], ("  one", 4): ["  on", "e"],
        ("日本語", 4): ["日本", "語"], ("日本語", 5): ["日本", "語"], ("日本 語", 5): ["日本", "語"], ("", 3): [""],
    },
    fit: {
        ("abc", 3): "abc", ("abcd", 3): "ab…", ("abcd", 1): "…", ("abcd", 0): "", ("日本語", 5): "日本…",
        ("日本語", 4): "日…", ("a bcd", 3): "a…",
    },
    crop_of: {(6,): ("ab日本", 6), (5,): ("ab日", 4), (4,): ("ab日", 4), (2,): ("ab", 2), (1,): ("a", 1)},
    told_of_files: {(999,): 999, (1_000,): 1_000, (1_001,): 1_000},
    hung: {
        ("one two", 7): ["one two"],
        ("one two", 6): ["one", "two"],
        ("key  a text that goes on", 16): ["key  a text that", "     goes on"],
        ("a long key  text of it", 16): ["a long key  text", "of it"],
        ("12345  words and more", 14): ["12345  words", "       and", "       more"],
        ("123456  words and more", 14): ["123456  words", "and more"],
    },
    lambda width: explained("ctrl+x    opens it and shows all\nplain", width).plain: {
        (34,): "ctrl+x    opens it and shows all\nplain",
        (31,): "ctrl+x    opens it and shows\n          all\nplain",
        (30,): "ctrl+x    opens it and shows\n          all\nplain",
        (29,): "ctrl+x    opens it and shows\n    all\nplain",
        (18,): "ctrl+x    opens it\n    and shows all\nplain",
    },
    score: {
        ("undo", "undo", 0): 55.0 - 0.004, ("undo-edits", "undo", 0): 50.0 - 0.010,
        ("to-undo", "undo", 0): 40.0 - 0.007, ("to-undo", "undo", 3): 55.0 - 0.007, ("a/undo", "undo", 2): 55.0 - 0.106,
        ("a/undo/", "undo", 2): 55.0 - 0.107, ("a/undo/b", "undo", 7): 35.0 - 0.208,
        ("axundo/b", "undo", 7): 30.0 - 0.108, ("u-n-d-o", "undo", 0): 20.0 - 0.307,
        ("u-n-d-o/x", "undo", 8): 10.0 - 0.409, ("abc", "", 0): -0.003, ("abc", "x", 0): None, ("model", "lm", 0): None,
    },
    best_of: {
        ("cp", "compact", "clear", "cap"): ("cap", "compact"),
        ("comp", "compact", "clear", "cap"): ("compact",),
        ("CA", "compact", "clear", "cap"): ("cap",),
        ("tests", "contests/", "tests/"): ("tests/", "contests/"),
        ("", "b", "a"): ("b", "a"),
        ("lm", "model"): (),
    },
    ranked: {
        (((25.0, "a"), (20.0, "b")),): ("a", "b"),
        (((25.1, "a"), (25.0, "b"), (30.0, "c")),): ("c", "a"),
    },
    mention_before: {
        ("@a",): Mention(0, "a"), ("see @src/a",): Mention(4, "src/a"), ("(@a",): Mention(1, "a"), ("a@b",): None,
        ("@a b",): None, ('@"a b',): Mention(0, "a b"), ('@"a b"',): None, ("@",): Mention(0, ""), ("",): None,
        ("x" * 4_096 + " @a",): Mention(4_097, "a"), ("@" + "a" * 4_095,): Mention(0, "a" * 4_095),
        ("@" + "a" * 4_096,): None,
    },
    typed_early: {
        (b"hello\n", 6): b"hello\r", (b"a\nb\n", 4): b"a\nb\n", (b"a\n\n", 2): b"a\r\n", (b"a\n", 0): b"a\n",
    },
    holds: {
        ("rename the parser", ("parser", "rename")): True,
        ("rename the parser", ("parser", "tests")): False,
    },
}  # fmt: skip
"""What each function makes of these arguments."""


@pytest.mark.parametrize("told", SHOWN, ids=lambda told: told.__name__)
def test_what_is_told_at_each_limit(told: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "time", lambda: NOW)
    for given, shown in SHOWN[told].items():
        assert told(*given) == (pytest.approx(shown) if isinstance(shown, float) else shown), given


def test_a_name_that_is_another_ones_alias_comes_first() -> None:
    names = {"undo-edits": ("undo-edits",), "back": ("undo", "my-undo")}
    assert best(names, "undo", names.__getitem__) == ("back", "undo-edits")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("cards=ctrl+l", ""),
        ("cards=", "an action and its keys are wanted"),
        ("cards", "an action and its keys are wanted"),
        ("card=ctrl+l", "there is no action card; did you mean cards?"),
        ("zzzzzzzz=ctrl+l", "the documentation lists the actions"),
        ("cards=ctrl+nonsense", "there is no key ctrl+nonsense"),
        ("cards=ctrl+i", "Ctrl+I is Tab for most terminals"),
        ("cards=x", "x is for writing in the prompt"),
        ("cards=ctrl+k", "is for writing in the prompt"),
        ("cards=f7", "cards: F7 is for writing in the prompt (select all)"),
        ("\x1b[31m=x", "there is no action"),
        ("cards=wrong+l", "there is no key wrong+l"),
        ("prompt.send=x", "x is for writing in the prompt"),
        ("completion.take=space", "Space is for writing in the prompt"),
        ("prompt.yank=ctrl+k", ""),
        ("prompt.help=x", ""),
        ("conversation.copy=x", ""),
        ("conversation.copy=+", ""),
    ],
)
def test_what_can_be_bound(entry: str, problem: str) -> None:
    keymap = Keymap([entry])
    assert (problem in " ".join(keymap.problems)) if problem else (keymap.problems == ())
    assert "\x1b" not in "".join(keymap.problems)
    identity, _, key = entry.partition("=")
    assert keymap.changes == ({} if problem else {identity: key.replace("+", "plus") if key == "+" else key})
    assert problem or keymap.keys(identity) == tuple(keymap.changes.values())


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (["cards=ctrl+l", "context=ctrl+l"], "context: Ctrl+L is the key of cards (open or close all cards); give"),
        (["prompt.yank=ctrl+o"], "prompt.yank: Ctrl+O is the key of cards"),
        (["conversation.copy=u"], "conversation.copy: u is the key of conversation.undo"),
        (["preview.edit=y"], "preview.edit: y is the key of preview.accept"),
        (["prompt.yank=ctrl+v,alt+v"], "prompt.yank: Alt+V is the key of prompt.picture"),
        (["cards=ctrl+p"], "cards: Ctrl+P is the key of palette (all commands, searchable)"),
        (["conversation.open=f1"], "conversation.open: F1 is the key of help"),
        (["picker.cancel=enter"], "picker.cancel: Enter is the key of picker.choose"),
        (["sessions.rename=up"], "sessions.rename: Up is the key of picker.up"),
        (["cards=ctrl+p", "palette=ctrl+o"], ""),
        (["conversation.copy=i"], ""),  # a key of the context panel
        (["preview.edit=ctrl+o"], ""),  # above all else
    ],
)
def test_two_actions_cannot_have_one_key_where_both_are(entries: list[str], problem: str) -> None:
    keymap = Keymap(entries)
    assert "\n".join(keymap.problems).startswith(problem)
    assert len(keymap.problems) == bool(problem) == len(entries) - len(keymap.changes)


def test_the_keys_of_a_place_are_told() -> None:
    keymap = Keymap(["cards=alt+c"])
    assert keymap.action_of("alt+c", "everywhere") == "cards"
    assert keymap.action_of("alt+c", "prompt") == ""
    assert keymap.with_alt == {"alt+c", "alt+enter", "alt+z", "alt+shift+z", "alt+v"}
    helps = {place: keymap.help_text(place).splitlines() for place in ("everywhere", "prompt", "completion", "picker")}
    assert "Ctrl+_, Ctrl+-       undo typing" in helps["prompt"]
    told = {
        place: [sum(line.startswith(key) for line in lines) for key in ["@", "Esc", "Alt+C"]]
        for place, lines in helps.items()
    }
    assert told == {"everywhere": [0, 1, 1], "prompt": [1, 1, 1], "completion": [0, 1, 1], "picker": [0, 1, 0]}


def test_a_key_of_the_sessions_is_none_of_the_list_they_stand_in_but_of_other_dialogs() -> None:
    (problem,) = Keymap(["picker.first=ctrl+r"]).problems
    assert problem.startswith("picker.first: Ctrl+R is the key of sessions.rename")
    assert Keymap(["reading.close=ctrl+r"]).problems == ()


@pytest.mark.parametrize("seed", range(3))
def test_heights_are_sums_however_they_came(seed: int) -> None:
    random, heights, plain = Random(seed), BlockHeights(), list[int]()
    assert heights.find(5) == (0, 0)
    for _ in range(60):
        if plain and random.random() < 0.3:
            place, height = random.randrange(len(plain)), random.randrange(5)
            assert heights.set(place, height) == height - plain[place]
            plain[place] = height
        elif random.random() < 0.05:
            heights.replace(list(plain))
        else:
            height = random.randrange(1, 6)
            heights.append(height)
            plain.append(height)
        assert heights.total == sum(plain)
        assert [heights.start_of(place) for place in range(len(plain) + 1)] == [
            sum(plain[:place]) for place in range(len(plain) + 1)
        ]
        lines = [(place, line) for place, height in enumerate(plain) for line in range(height)]
        assert [heights.find(line) for line in range(sum(plain))] == lines
        assert heights.find(-3) == lines[0] if lines else True
        assert heights.find(sum(plain)) == (len(plain) - 1, max(0, plain[-1] - 1))
        assert (len(heights), heights[len(plain) - 1]) == (len(plain), plain[-1])


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        ("\n".join("a" * 12), ""),
        ("\n".join("a" * 12) + "\n", ""),
        ("\n".join("a" * 13), "[pasted 13 lines]"),
        ("a" * 1_500, ""),
        ("a" * 1_501, "[pasted 1,501 characters]"),
        ("a" * 1_500 + "\nb", "[pasted 2 lines]"),
        ("a\x1b[31m", "[pasted 6 characters]"),
        ("a\r\nb\rc", ""),
    ],
)
def test_a_long_paste_is_folded(text: str, chip: str) -> None:
    pastes = Pastes()
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert pastes.fold(text) == (chip or plain)
    assert pastes.unfold(f"x {chip} y") == (f"x {plain} y" if chip else "x  y")
    if chip:
        assert pastes.fold(text) == chip
        assert pastes.fold(plain[:-1] + "z") == f"{chip[:-1]} #2]"
        assert pastes.fold_again(f"x {plain}") == f"x {chip}"
        assert list(pastes.chips_in(f"ab{chip}")) == [(2, 2 + len(chip))]


def test_the_history_steps_through_what_begins_so_and_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = PromptHistory(path)
    for text in ("one", "two", "two", " ", "once"):
        history.add(text)
    assert history.newest_first() == ("once", "two", "one")
    assert [history.older("on"), history.older("once"), history.older("one")] == ["once", "one", None]
    assert [history.newer("one"), history.newer("once"), history.newer("on")] == ["once", "on", None]
    assert (history.older(""), history.newer("once"), history.newer("")) == ("once", "", None)
    history.add("x" * (MAX_SAVED_CHARACTERS + 1), saved="y" * MAX_SAVED_CHARACTERS)
    history.add("x" * (MAX_SAVED_CHARACTERS + 2), saved="y" * (MAX_SAVED_CHARACTERS + 1))
    saved = [json.loads(line) for line in path.read_text().splitlines()]
    assert saved[:3] == ["one", "two", "once"]
    assert [text[:1] + str(len(text)) for text in saved[3:]] == ["y250000", "x250000"]
    assert path.stat().st_mode & 0o777 == 0o600
    history.add("[pasted 3 lines]", saved="a\nb\nc")
    assert [PromptHistory(path).older(""), history.older("")] == ["a\nb\nc", "[pasted 3 lines]"]


@pytest.mark.parametrize(("entries", "kept"), [(2 * MAX_ENTRIES, 2_000), (2 * MAX_ENTRIES + 1, 1_000)])
def test_at_twice_as_many_entries_the_history_is_written_anew(entries: int, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'"{number}"\n' for number in range(entries)) + '"cut\n{}\n')
    assert len(PromptHistory(path).newest_first()) == kept
    assert len(path.read_text().splitlines()) == (kept if kept == 1_000 else entries + 2)


def test_twenty_mentions_are_looked_up_and_names_of_people_are_none(tmp_path: Path) -> None:
    (tmp_path / "here.py").touch()
    assert missing_files("@here.py @gone.py @person @gone.png @gone.py", tmp_path) == ["gone.py"]
    (tmp_path / "a b.py").touch()
    text = 'see @"a b.py", @gone.py and @src/lost.md; @anna, me@home.org, @x.png and @docs:notes.md know, \0@\0.py'
    assert missing_files(text, tmp_path) == ["gone.py", "src/lost.md"]
    many = [f"n{number}.py" for number in range(21)]
    assert missing_files(" ".join(f"@{name}" for name in many), tmp_path) == many[:20]
    assert [as_mention(path) for path in ("a.py", "a b.py", "a,b", "a;b")] == ["@a.py", '@"a b.py"', '@"a,b"', '@"a;b"']


def test_a_prefix_of_one_choice_means_it() -> None:
    undo, edits = CompletionItem("/undo ", "/undo", names=("/back",)), CompletionItem("/undo-edits", "/undo-edits")
    both = Completion(0, (undo, edits))
    assert [both.means(undo, typed) for typed in ("/undo", "/UNDO", "/und", "/back", "/b", "/")] == [
        True, True, False, True, True, False
    ]  # fmt: skip
    assert [both.means(edits, typed) for typed in ("/undo-", "/undo", "/undo-edits")] == [True, False, True]


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("ascii", "a ✓ é 日", "a x ? ??"),
        ("latin-1", "a ✓ é 日", "a x é ??"),
        ("no-such", "é", "?"),
        ("", "é…", "?~"),
        ("UTF-8", "✓ é 日", "x é 日"),
        (None, "é", "?"),
    ],
)
def test_a_terminal_gets_what_it_can_show(encoding: str | None, text: str, shown: str) -> None:
    (plain,) = own_filters(ASCII, encoding, {"NO_COLOR": ""})
    assert [segment.text for segment in plain.apply([Segment(text), Segment("a")], BLACK)] == [shown, "a"]
    assert own_filters(UNICODE, encoding, {}) == ()


@pytest.mark.parametrize(
    ("style", "reverse"),
    [
        (None, None),
        ("bold #ff0000", False),
        ("#ffffff on default", False),
        ("#ffffff on #323232", False),  # a fifth of the way from black
        ("#ffffff on #343434", True),
        ("#ffffff on red", False),  # a colour that the terminal chooses
    ],
)
def test_without_colours_a_selection_is_reversed(style: str | None, reverse: bool | None) -> None:
    (without,) = own_filters(UNICODE, "utf-8", {"NO_COLOR": "1"})
    ((text, found, _),) = without.apply([Segment("a", Style.parse(style) if style else None)], BLACK)
    assert text == "a"
    assert (found is None) == (reverse is None)
    if found is not None:
        assert (bool(found.reverse), found.bold) == (reverse, True if style and "bold" in style else None)
        assert [color is None or color.is_default for color in (found.color, found.bgcolor)] == [True, True]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("an answer\n", "an answer"),
        ("\n".join(["x"] * MAX_LAST_LINES), "\n".join(["x"] * MAX_LAST_LINES)),
        ("\n".join(["x"] * (MAX_LAST_LINES + 1)), "\n".join(["x"] * MAX_LAST_LINES) + " [...]"),
        ("x" * MAX_LAST_CHARACTERS, "x" * MAX_LAST_CHARACTERS),
        ("x" * (MAX_LAST_CHARACTERS + 1), "x" * MAX_LAST_CHARACTERS + " [...]"),
        ("", ""),
    ],
)
def test_the_last_answer_stands_in_the_terminal_afterwards(said: str, shown: str) -> None:
    transcript = Transcript()
    app: Any = SimpleNamespace(pane=SimpleNamespace(transcript=transcript))
    bare: Any = SimpleNamespace()
    assert last_answer(app) == ""
    transcript.add_user("a question")
    assert last_answer(app) == ""
    transcript.add_prose(said)
    transcript.add_notice(Level.INFO, "a notice")
    assert last_answer(app) == shown
    transcript.add_user("another one")
    assert last_answer(app) == last_answer(bare) == ""
