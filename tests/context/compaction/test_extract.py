"""The summary that no model writes."""

import pytest

from tests.context.talks import Talk
from tui_agent.context.compaction.extract import extract
from tui_agent.context.compaction.forms import CHECKPOINT, FIVE, OUTLINE, SummaryForm, sections


def talk() -> Talk:
    made = Talk()
    made.ask("Repair the parser.\nNever touch the API.")
    made.tool("def parse(): ...", path="src/parser.py")
    made.tool(
        "edited",
        "edit_file",
        said="I chose a table because recursion overflows.",
        path="src/parser.py",
        old="a",
        new="b",
    )
    made.tool("no such file", failed=True, path="src/missing.py")
    made.tool("collected 3 items\n3 passed\n(exit code 0)", "run_command", command="pytest -q tests/test_parser.py")
    made.say("All done so far.\n1. Update the docs\n2. Release")
    return made


@pytest.mark.parametrize("form", [FIVE, OUTLINE, CHECKPOINT])
@pytest.mark.parametrize("limit", [0, 300, 8_000])
def test_holds_exactly_the_sections_asked_for(form: SummaryForm, limit: int) -> None:
    text = extract(form, talk().view.groups(), limit=limit)
    assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == list(form.sections)
    assert [name for name in sections(form, text) if name] == list(form.sections)


def test_tells_files_commands_errors_decisions_and_next_steps() -> None:
    found = sections(FIVE, extract(FIVE, talk().view.groups(), limit=8_000))
    # What the user said stands beside every summary in their own words.
    assert "Repair the parser." not in "".join(found.values())
    assert found["Files & changes"].splitlines() == ["- read src/missing.py", "- changed src/parser.py"]
    assert "`pytest -q tests/test_parser.py` gave: 3 passed / (exit code 0)" in found["Technical context"]
    assert "read_file failed: no such file" in found["Technical context"]
    assert "I chose a table because recursion overflows." in found["Strategy & approach"]
    assert found["Exact next steps"] == "1. Update the docs\n2. Release"


def test_a_record_carries_the_note() -> None:
    text = extract(CHECKPOINT, talk().view.groups(), note="parser repaired", limit=8_000)
    assert "parser repaired" in sections(CHECKPOINT, text)["Task"]


def test_the_newest_wins_where_room_is_short() -> None:
    made = Talk()
    for number in range(200):
        made.tool("text", path=f"src/part_{number}.py")
    text = extract(FIVE, made.view.groups(), limit=1_000)
    assert "src/part_199.py" in text
    assert "src/part_0.py" not in text
    assert len(text) < 1_400


def test_an_empty_span_still_has_its_form() -> None:
    assert "# Current state\n(nothing)" in extract(FIVE, [], limit=100)
