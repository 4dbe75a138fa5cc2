"""What a script works out: calls, their times, what they need, and where that was told."""

from itertools import pairwise
from pathlib import Path

import msgspec

from tests.replay.recordings import answer, call, result, script_of, user, write_lines
from tui_agent.replay.script import ASSUMED_FIXED, make_script
from tui_agent.storage.recordings.reading import read_file
from tui_agent.storage.recordings.recording import Recording


def test_a_call_needs_what_a_result_told_first(tmp_path: Path) -> None:
    script = script_of(
        tmp_path / "a.jsonl",
        user("mend load_config in src/app.py"),
        answer("I read it.", call("1", path="src/app.py")),
        result("1", "def load_config(): return parse_header(4711)  # own_name"),
        answer("It is parse_header that fails, own_name and load_config are fine.", call("2", "grep", pattern="4711")),
        result("2", "src/deep.py:3 parse_header"),
        answer("Look at src/deep.py and parse_header."),
    )
    names = {number: name for name, number in script.numbers.items()}
    needed = [sorted(names[fact] for fact in each.needed) for each in script.calls]
    assert needed == [[], ["4711", "own_name", "parse_header"], ["parse_header", "src/deep.py"]]
    first, second = script.sources[script.numbers["parse_header"]]
    assert (first.call and first.call.id, second.call and second.call.id) == ("1", "2")
    assert [each.starts_turn for each in script.calls] == [True, False, False]


def test_times_are_the_recorded_ones(tmp_path: Path) -> None:
    script = script_of(
        tmp_path / "a.jsonl",
        user("go", time=100),
        answer("", call("1"), time=130),
        result("1", "x", time=150),
        answer("done", time=170),
        user("more", time=900),
        answer("done", time=910),
    )
    assert [each.time for each in script.calls] == [100, 150, 900]
    assert len(script.assumed) == 1


def test_without_times_a_stated_share_of_calls_is_cold(tmp_path: Path) -> None:
    lines = [line for _ in range(200) for line in (user("go"), answer("done"))]
    script = script_of(tmp_path / "a.jsonl", *lines)
    times = [each.time for each in script.calls]
    cold = sum(later - earlier >= 300 for earlier, later in pairwise(times))
    assert cold == 6
    assert any("3% of the calls" in each for each in script.assumed)


def test_the_prefix_is_the_recorded_one_or_assumed(tmp_path: Path) -> None:
    told = script_of(tmp_path / "a.jsonl", {"role": "system", "text": "x" * 290}, user("go"), answer("done"))
    assert (told.fixed, told.prefix.system) == (100, "x" * 290)
    assert script_of(tmp_path / "b.jsonl", user("go"), answer("done")).fixed == ASSUMED_FIXED


def test_only_our_own_tools_give_pages(tmp_path: Path) -> None:
    lines = (user("go"), answer("", call("1"), call("2", "run_command")), result("1", "x"), result("2", "y"))
    recording = read_file(write_lines(tmp_path / "a.jsonl", *lines, answer("done")))
    ours = msgspec.structs.replace(recording, format="session")

    def pages(recording: Recording) -> list[bool]:
        return [each.is_page for each in make_script(recording).calls[1].arrived]

    assert pages(recording) == [False, False]
    assert pages(ours) == [True, False]
