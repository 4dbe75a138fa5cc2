"""Limits of the screen's parts, each at its value and one beyond: sizes, ages, keys, pastes, history, mentions."""

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from tui_agent.agent import events
from tui_agent.tui import wording
from tui_agent.tui.app.start import MAX_LAST_CHARACTERS, MAX_LAST_LINES, last_answer
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.dialogs.fields import key_problem
from tui_agent.tui.dialogs.files_screen import Piece
from tui_agent.tui.dialogs.reading import explained, hung
from tui_agent.tui.fuzzy import ranked, score
from tui_agent.tui.keys import Keymap, key_text
from tui_agent.tui.painting.glyphs import ASCII, UNICODE
from tui_agent.tui.painting.lines import Line, breaks, crop, fit, make_line, pieces
from tui_agent.tui.painting.lines import Run as TextRun
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.tables import share
from tui_agent.tui.pane.heights import BlockHeights
from tui_agent.tui.pane.status_bar import elapsed_text
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.prompt.completion import Completion, CompletionItem
from tui_agent.tui.prompt.history import MAX_ENTRIES, MAX_SAVED_CHARACTERS, PromptHistory
from tui_agent.tui.prompt.mentions import as_mention, mention_before, missing_files
from tui_agent.tui.prompt.pastes import Pastes
from tui_agent.tui.terminal.early_keys import EarlyKeys
from tui_agent.tui.terminal.filters import own_filters

BLACK = Color(0, 0, 0)


@pytest.mark.parametrize(
    ("text", "wanted", "name_at", "found"),
    [
        ("undo", "undo", 0, 55.0 - 0.004),
        ("undo-edits", "undo", 0, 50.0 - 0.010),
        ("to-undo", "undo", 0, 40.0 - 0.007),
        ("to-undo", "undo", 3, 55.0 - 0.007),
        ("a/undo", "undo", 2, 55.0 - 0.106),
        ("a/undo/", "undo", 2, 55.0 - 0.107),
        ("a/undo/b", "undo", 7, 35.0 - 0.208),
        ("axundo/b", "undo", 7, 30.0 - 0.108),
        ("u-n-d-o", "undo", 0, 20.0 - 0.307),
        ("u-n-d-o/x", "undo", 8, 10.0 - 0.409),
        ("abc", "", 0, -0.003),
        ("abc", "x", 0, None),
    ],
)
def test_a_match_has_its_score(text: str, wanted: str, name_at: int, found: float | None) -> None:
    assert score(text, wanted, name_at) == (None if found is None else pytest.approx(found))


def test_only_what_is_above_scattered_letters_hides_them() -> None:
    assert ranked([(25.0, "a"), (20.0, "b")]) == ("a", "b")
    assert ranked([(25.1, "a"), (25.0, "b"), (30.0, "c")]) == ("c", "a")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0s"),
        (9.94, "9.9s"),
        (9.95, "10s"),
        (59.4, "59s"),
        (59.5, "1m 00s"),
        (3_599.4, "59m 59s"),
        (3_600, "1h 00m"),
        (7_860, "2h 11m"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert wording.duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KB"),
        (10 * 1_024 - 1, "10.0 KB"),
        (10 * 1_024, "10 KB"),
        (1_024**2 - 1, "1024 KB"),
        (1_024**2, "1.0 MB"),
        (1_024**3, "1.0 GB"),
        (25 * 1_024**3, "25 GB"),
    ],
)
def test_sizes(size: int, shown: str) -> None:
    assert wording.size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3_599, "59 min ago"),
        (3_600, "1 h ago"),
        (86_399, "23 h ago"),
        (86_400, "1 d ago"),
        (200_000, "2 d ago"),
    ],
)
def test_ages(seconds: float, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "time", lambda: 1e9)
    assert wording.age(1e9 - seconds) == shown


@pytest.mark.parametrize(
    ("once", "each", "shown"),
    [
        (0.0, 0.0, ""),
        (0.0, 0.1, "saved $0, $0.100 a call from then on"),
        (0.1, 0.0, "saved $0.100, $0 a call from then on"),
        (-0.1, 0.2, "cost $0.100, saves $0.200 a call"),
    ],
)
def test_what_a_step_saved(once: float, each: float, shown: str) -> None:
    assert wording.saved_text(once, each) == shown


@pytest.mark.parametrize(
    ("step", "count", "shown"),
    [
        ("cleared", 1, "1 result cleared"),
        ("cleared", 1_200, "1,200 results cleared"),
        ("cleared", None, "results cleared"),
        ("summary", 5, "older turns summarised"),
        ("pinned", None, "pinned"),
        ("unheard", 3, "unheard"),
    ],
)
def test_steps_in_words(step: str, count: int | None, shown: str) -> None:
    assert events.step_text(step, count) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a:b", "a:b"), ("llamacpp:/models/x.gguf", "llamacpp:x.gguf"), ("/models/x.gguf", "x.gguf"), ("a/b", "a/b")],
)
def test_a_model_that_is_a_path_is_shown_by_its_file(name: str, shown: str) -> None:
    assert wording.model_label(name) == shown


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("ctrl+o", "Ctrl+O"),
        ("pageup", "PgUp"),
        ("escape", "Esc"),
        ("left_square_bracket", "["),
        ("j", "j"),
        ("f1", "F1"),
        ("alt+shift+x", "Alt+Shift+X"),
        ("space", "Space"),
        ("ctrl+space", "Ctrl+Space"),
    ],
)
def test_keys_are_shown_as_people_write_them(key: str, shown: str) -> None:
    assert key_text(key) == shown


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
    ("natural", "room", "widths"),
    [
        ([3, 5], 8, [3, 5]),
        ([3, 5], 7, [3, 4]),
        ([5, 5], 9, [4, 4]),
        ([10, 2, 10], 12, [5, 2, 5]),
        ([10, 8], 10, [5, 5]),
        ([0, 0], 9, [1, 1]),
        ([4, 4], 1, [1, 1]),
        ([9, 1], 4, [3, 1]),
    ],
)
def test_columns_share_what_room_there_is(natural: list[int], room: int, widths: list[int]) -> None:
    assert share(natural, room) == widths


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two", 7, ["one two"]),
        ("one two", 6, ["one", "two"]),
        ("one two", 3, ["one", "two"]),
        ("one two", 2, ["on", "e", "tw", "o"]),
        ("one ", 3, ["one"]),
        ("  one", 4, ["  on", "e"]),
        ("日本語", 4, ["日本", "語"]),
        ("日本語", 5, ["日本", "語"]),
        ("日本 語", 5, ["日本", "語"]),
        ("", 3, [""]),
    ],
)
def test_text_breaks_at_spaces_where_it_can(text: str, width: int, lines: list[str]) -> None:
    assert [text[start:end] for start, end, _ in breaks(text, width)] == lines
    assert "".join(text[start:end] for start, end in pieces(text, width)) == text


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("abcd", 1, "…"),
        ("abcd", 0, ""),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("a bcd", 3, "a…"),
    ],
)
def test_text_is_cut_to_its_width(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown


def test_a_line_is_cut_between_cells() -> None:
    base = Palette.from_theme({}).base
    line: Line = make_line([TextRun("ab", base), TextRun("日本", base)])
    assert [(crop(line, width).text, crop(line, width).width) for width in (6, 5, 4, 2, 1)] == [
        ("ab日本", 6), ("ab日", 4), ("ab日", 4), ("ab", 2), ("a", 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        ("\n".join("a" * 12), ""),
        ("\n".join("a" * 12) + "\n", ""),
        ("\n".join("a" * 13), "[pasted 13 lines]"),
        ("a" * 1_500, ""),
        ("a" * 1_501, "[pasted 1,501 characters]"),
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
    history.add("x" * (MAX_SAVED_CHARACTERS + 1), saved="y" * MAX_SAVED_CHARACTERS)
    history.add("x" * (MAX_SAVED_CHARACTERS + 2), saved="y" * (MAX_SAVED_CHARACTERS + 1))
    saved = [json.loads(line) for line in path.read_text().splitlines()]
    assert saved[:3] == ["one", "two", "once"]
    assert [text[:1] + str(len(text)) for text in saved[3:]] == ["y250000", "x250000"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("entries", "kept"), [(2 * MAX_ENTRIES, 2_000), (2 * MAX_ENTRIES + 1, 1_000)])
def test_at_twice_as_many_entries_the_history_is_written_anew(entries: int, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'"{number}"\n' for number in range(entries)) + '"cut\n{}\n')
    assert len(PromptHistory(path).newest_first()) == kept
    assert len(path.read_text().splitlines()) == (kept if kept == 1_000 else entries + 2)


@pytest.mark.parametrize(
    ("text", "start", "typed"),
    [
        ("@a", 0, "a"),
        ("see @src/a", 4, "src/a"),
        ("(@a", 1, "a"),
        ("a@b", None, ""),
        ("@a b", None, ""),
        ('@"a b', 0, "a b"),
        ('@"a b"', None, ""),
        ("@", 0, ""),
        ("x" * 4_096 + " @a", 4_097, "a"),
        ("@" + "a" * 4_095, 0, "a" * 4_095),
        ("@" + "a" * 4_096, None, ""),
    ],
)
def test_a_mention_is_completed_while_it_is_written(text: str, start: int | None, typed: str) -> None:
    found = mention_before(text)
    assert (None if found is None else found.start) == start
    assert (found.typed if found else "") == typed


def test_twenty_mentions_are_looked_up_and_names_of_people_are_none(tmp_path: Path) -> None:
    (tmp_path / "here.py").touch()
    assert missing_files("@here.py @gone.py @person @gone.png @gone.py", tmp_path) == ["gone.py"]
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
    ("key", "problem"),
    [
        ("", "Nothing was entered."),
        ("sk-1", ""),
        ("sk 1", "blanks or special characters"),
        ("sk-é", "blanks or special characters"),
        ("sk\x01", "blanks or special characters"),
        ("/help", "This is a command, and no key"),
    ],
)
def test_what_can_be_a_key(key: str, problem: str) -> None:
    assert (problem in key_problem(key)) if problem else (key_problem(key) == "")


@pytest.mark.parametrize(
    ("data", "lines", "keys"),
    [
        (b"hello\n", 6, b"hello\r"),
        (b"a\nb\n", 4, b"a\nb\n"),  # a paste
        (b"a\n\n", 2, b"a\r\n"),
        (b"a\n", 0, b"a\n"),
    ],
)
def test_what_was_typed_before_the_screen_stood_is_sent_if_it_is_one_line(data: bytes, lines: int, keys: bytes) -> None:
    early = EarlyKeys()
    early.lines = lines
    assert (early.read(data), early.read(data)) == (keys, data)


def test_a_line_that_is_told_of_files_is_cut_at_a_thousand_characters() -> None:
    look = Look(Palette.from_theme({}), ASCII)
    for size in (999, 1_000, 1_001):
        rows = list(Piece("x" * size + "\x1b[31m").rows(400))
        assert "".join(row.draw(400, look).text.strip() for row in rows) == "x" * min(size, 1_000)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "  0s"), (9.9, "  9s"), (59.9, " 59s"), (60, "1m00s"), (3_599, "59m59s"), (3_600, "1h00m"), (7_859, "2h10m")],
)
def test_how_long_a_turn_has_run(seconds: float, shown: str) -> None:
    assert elapsed_text(seconds) == shown


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


@pytest.mark.parametrize(
    ("line", "width", "rows"),
    [
        ("one two", 7, ["one two"]),
        ("one two", 6, ["one", "two"]),
        ("key  a text that goes on", 16, ["key  a text that", "     goes on"]),
        ("a long key  text of it", 16, ["a long key  text", "of it"]),
        ("12345  words and more", 14, ["12345  words", "       and", "       more"]),
        ("123456  words and more", 14, ["123456  words", "and more"]),
    ],
)
def test_a_line_of_two_columns_hangs_where_its_second_begins(line: str, width: int, rows: list[str]) -> None:
    assert hung(line, width) == rows


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (34, "ctrl+x    opens it and shows all\nplain"),
        (31, "ctrl+x    opens it and shows\n          all\nplain"),
        (30, "ctrl+x    opens it and shows\n          all\nplain"),
        (29, "ctrl+x    opens it and shows\n    all\nplain"),
    ],
)
def test_what_keys_do_is_explained_in_a_column_that_is_wide_enough(width: int, shown: str) -> None:
    assert explained("ctrl+x    opens it and shows all\nplain", width).plain == shown
