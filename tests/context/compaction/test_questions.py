"""Bringing a written text into its form."""

from hypothesis import given
from hypothesis import strategies as st

from tests.context.talks import PROMPTS
from tui_agent.context.compaction.facts import HEADING
from tui_agent.context.compaction.forms import (
    CHECKPOINT,
    FIVE,
    OUTLINE,
    SummaryForm,
    body_of,
    completed,
    compose,
    fill,
    framed,
    questions,
    sections,
)

EXTRACT = compose(FIVE, {name: f"extracted {name}" for name in FIVE.sections})


def test_a_whole_text_is_left_as_it_is() -> None:
    text = compose(FIVE, {name: f"written {name}\n- with a list" for name in FIVE.sections})
    assert completed(FIVE, text, EXTRACT) == text


def test_headings_are_known_however_they_are_written() -> None:
    text = "## 1. Current State:\na\n\n**Files and changes**\nb\n### TECHNICAL CONTEXT\nc\n"
    text += "# Strategy and Approach\nd\n# Exact next steps\ne"
    found = sections(FIVE, text)
    assert [found[name] for name in FIVE.sections] == ["a", "b", "c", "d", "e"]


def test_other_headings_stay_inside_their_section() -> None:
    text = "# Current state\na\n## Details\nb"
    assert sections(FIVE, text)["Current state"] == "a\n## Details\nb"


def test_prose_without_headings_becomes_the_first_section() -> None:
    found = sections(FIVE, completed(FIVE, "All of it in one paragraph.", EXTRACT))
    assert found["Current state"] == "All of it in one paragraph."
    assert found["Exact next steps"] == "extracted Exact next steps"


def test_a_fence_around_the_whole_is_taken_off() -> None:
    found = sections(FIVE, completed(FIVE, "```markdown\n# Current state\nfine\n```", EXTRACT))
    assert found["Current state"] == "fine"


def test_a_frame_goes_on_and_comes_off() -> None:
    whole = framed(FIVE, f"{EXTRACT}\n\n{HEADING}\nNames: a_b", "conversation_history/main.md")
    assert whole.startswith("[Previous conversation summary]\n\n# Current state")
    assert whole.endswith("conversation_history/main.md")
    assert body_of(whole) == EXTRACT


words = st.lists(
    st.sampled_from(["# Task", "## Next steps", "**Artifacts**", "# Current state", "```", "x", "", "# y"])
)


@given(words.map("\n".join) | st.text(), st.sampled_from([FIVE, OUTLINE, CHECKPOINT]))
def test_any_text_comes_out_in_its_form_and_a_second_time_unchanged(text: str, form: SummaryForm) -> None:
    once = completed(form, text, "")
    assert completed(form, once, "") == once
    names = [line[2:] for line in once.splitlines() if line.startswith("# ") and line[2:] in form.sections]
    assert names == list(form.sections)


def test_what_is_filled_in_is_not_filled_again() -> None:
    assert fill("{focus} {words}", {"focus": "keep {words}", "words": "10"}) == "keep {words} 10"


def test_every_form_is_described_by_its_prompt() -> None:
    for form in (FIVE, OUTLINE, CHECKPOINT):
        text = PROMPTS.form(form)
        assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == list(form.sections)
        for question in questions(PROMPTS, form, words=321, focus="the parser", kept="Nothing stays."):
            assert "321" in question
            assert "the parser" in question
            assert "{" not in question
