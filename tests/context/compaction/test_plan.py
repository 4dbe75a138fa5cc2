"""A summary from its plan to its entry: what it is made of, what is accepted as one, and how long its plan holds."""

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.context.talks import (
    ARCHIVE,
    FILLER,
    SUMMARY,
    Talk,
    accepted,
    compaction,
    long_talk,
    material,
    planned,
    situation,
    total,
)
from tests.conversation.logs import broken_rules, logs
from tests.examples import examples
from tui_agent.context.compaction.draft import Draft, accept, accept_anew
from tui_agent.context.compaction.facts import HEADING
from tui_agent.context.compaction.forms import CHECKPOINT, FIVE, OUTLINE, sections
from tui_agent.context.compaction.material import Material
from tui_agent.context.compaction.plan import CHANGED, Plan, plan_checkpoint, plan_compaction, plan_merge, rebased
from tui_agent.context.counting import estimate
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolResult
from tui_agent.conversation.entries import AnyEntry, Cleared, Message, Pinned, Undone, notice
from tui_agent.conversation.request import WORDS_HEADING as WORDS
from tui_agent.conversation.request import words_block
from tui_agent.conversation.view import Group, View
from tui_agent.settings import CompactionSettings


def demanding_talk(turns: int = 12) -> Talk:
    """Turns with a demand of the user each."""
    talk = Talk()
    for number in range(turns):
        talk.ask(f"Question {number}: never touch file_{number}.py!")
        talk.tool(f"value_{number} = {number}\n" * 60, path=f"file_{number}.py")
        talk.say(f"Answer {number}.")
    return talk


def asked_for(talk: Talk) -> Plan:
    return planned(compaction(talk, trigger=0, window=200_000, asked=True, reason="why"))


def on_now(plan: Plan, view: View) -> Plan | Refusal:
    return rebased(plan, view, situation(view))


@pytest.mark.parametrize("keep", range(200, 1_700, 100))
def test_a_cut_never_parts_a_prompt_from_what_came_because_of_it(keep: int) -> None:
    talk, together = Talk(), []
    for number in range(8):
        first = len(talk.view.log) + 1
        for kind in ("hook", "resource"):
            talk.add(replace(notice(FILLER * 8, kind), because=first + 2))
        together.append(range(first, talk.ask(f"Question {number}.") + 1))
        talk.tool(FILLER * 8, path="a.py")
        talk.say(f"Answer {number}.")
    last = planned(compaction(talk, keep=keep)).last
    assert not any(each.start <= last < each.stop - 1 for each in together)


def test_what_was_said_since_stays_after_it() -> None:
    talk = demanding_talk()
    plan = asked_for(talk)
    done = accepted(plan, talk.view)
    talk.ask("And this, too.")
    talk.say("Done.")
    now = planned(on_now(plan, talk.view))
    assert (now.first, now.last, now.replaced) == (plan.first, plan.last, plan.replaced)
    assert now.before == total(talk.view) > plan.before
    again = accept_anew(now, done, done.text, tokens_of=estimate)
    assert isinstance(again, Draft)
    assert again.boundary.text == done.boundary.text
    assert again.after - done.after == now.before - plan.before
    for entry in again.entries:
        talk.add(entry)
    assert talk.shown.index(done.text) < talk.shown.index("And this, too.")
    assert "Answer 0." not in talk.shown
    assert broken_rules(talk.view.messages()) == []


def test_where_all_was_replaced_the_first_word_since_is_the_first_kept() -> None:
    talk = Talk()
    talk.ask("Do it.")
    talk.tool("value = 1\n" * 400, path="a.py")
    talk.say("Done.")
    plan = planned(plan_checkpoint(talk.view, situation(talk.view)))
    assert plan.kept_from == 0
    newest = talk.ask("Next.")
    now = planned(on_now(plan, talk.view))
    assert now.kept_from == newest


def test_it_does_not_hold_once_what_it_replaces_was_changed() -> None:
    for change in ("cleared", "pinned", "summarised"):
        talk = demanding_talk()
        plan = asked_for(talk)
        result = next(item.seq for item in talk.view.items() if item.category == "results")
        match change:
            case "cleared":
                talk.add(Cleared(results=(result,), texts=("[gone]",)))
            case "pinned":
                talk.add(Pinned(items=(result,)))
            case _:
                talk.apply(accepted(plan, talk.view))
        outcome = on_now(plan, talk.view)
        assert isinstance(outcome, Refusal), change
        assert outcome.reason == CHANGED


def test_it_holds_when_the_summary_before_it_was_undone() -> None:
    talk = demanding_talk()
    talk.apply(accepted(asked_for(talk), talk.view))
    first = len(talk.view.log) - 1
    for number in range(6):
        talk.ask(f"More {number}.")
        talk.tool("words\n" * 200, path=f"more_{number}.py")
        talk.say("Yes.")
    plan = asked_for(talk)
    boundary = next(entry.seq for entry in talk.view.boundaries())
    assert boundary <= first + 1
    talk.add(Undone(target=boundary))
    now = planned(on_now(plan, talk.view))
    assert (now.first, now.last, now.leaving) == (plan.first, plan.last, plan.leaving)
    talk.apply(accepted(now, talk.view))
    assert [each.first for each in talk.view.boundaries()] == [plan.first]
    assert talk.shown.count("never touch file_3.py!") == 1


def test_an_edited_text_is_taken_to_the_letter_or_rejected() -> None:
    talk = demanding_talk()
    plan = asked_for(talk)
    done = accepted(plan, talk.view)
    assert done.facts_appended
    edited = accept_anew(plan, done, "\n Only this: keep file_3.py as it is. \n", tokens_of=estimate)
    assert isinstance(edited, Draft)
    assert edited.text == "Only this: keep file_3.py as it is."
    assert edited.boundary.text == f"[Previous conversation summary]\n\n{edited.text}\n\nThe turns in full: {ARCHIVE}"
    assert edited.after < done.after
    assert edited.facts_missing > 0
    assert edited.facts_appended == 0
    assert edited.boundary.reason == "why, edited"
    twice = accept_anew(plan, edited, "Or rather this.", tokens_of=estimate)
    assert isinstance(twice, Draft)
    assert twice.boundary.reason == "why, edited"

    # The same text gives the same entries, and one that is empty or frees nothing is rejected.
    assert accept_anew(plan, done, done.text, tokens_of=estimate) == done
    assert done.boundary.text.startswith(f"[Previous conversation summary]\n\n{done.text}\n\n")
    empty = accept_anew(plan, done, " \n", tokens_of=estimate)
    assert isinstance(empty, Refusal)
    assert "empty" in empty.reason
    grown = accept_anew(plan, done, SUMMARY + "more words " * 20_000, tokens_of=estimate)
    assert isinstance(grown, Refusal)
    assert "replaces" in grown.reason


def test_project_rules_and_pins_never_enter_a_summary() -> None:
    talk = Talk(system="PROJECT RULE: tabs are forbidden.")
    talk.ask("PINNED WORD: keep it.")
    talk.add(Pinned(items=(2,)))
    for number in range(20):
        talk.tool(FILLER * 40, path=f"f{number}.py")
    plan = planned(compaction(talk))
    made = material(plan, talk.view)
    told = "".join(made.parts) + made.extract + made.archive + repr(made.facts)
    assert "PROJECT RULE" not in told
    assert "PINNED WORD" not in told
    talk.apply(accepted(plan, talk.view))
    assert talk.view.prefix is not None
    assert talk.view.prefix.system == "PROJECT RULE: tabs are forbidden."
    assert "PINNED WORD" in talk.shown


def further(talk: Talk, round_: int) -> None:
    for turn in range(12):
        talk.ask(f"round {round_}, step {turn}")
        talk.tool(FILLER * 60 + f"fresh_{round_}_{turn}", path=f"src/r{round_}_{turn}.py")
        talk.say("fine")


def test_summaries_that_have_become_too_large_are_merged_from_the_original_turns() -> None:
    talk = long_talk()
    for round_ in range(4):
        talk.apply(accepted(compaction(talk), talk.view))
        further(talk, round_)
    newest = talk.view.boundaries()[-1]
    assert plan_merge(talk.view, situation(talk.view, settings=CompactionSettings(summaries_tokens=100_000))) is None
    plan = plan_merge(talk.view, situation(talk.view, settings=CompactionSettings(summaries_tokens=500)))
    assert plan is not None
    made = material(plan, talk.view)
    told = "".join(made.parts)
    assert "fresh_0_3" in told
    assert "fresh_1_3" in told
    assert "[Previous conversation summary]" not in told
    done = talk.apply(accepted(plan, talk.view))
    assert talk.view.boundaries() == [talk.view.context_entry(len(talk.view.log)), newest]
    assert talk.shown.count(WORDS) == 1
    assert "]\nround 0, step 3" in talk.shown
    assert done.after < plan.before
    assert broken_rules(talk.view.messages()) == []
    talk.add(Undone(target=len(talk.view.log)))
    assert len(talk.view.boundaries()) == 4


def test_turns_of_which_nothing_was_written_directly_are_read_anew() -> None:
    talk = long_talk()
    for round_ in range(3):
        done = accepted(compaction(talk), talk.view)
        # The first was so long that it was written in parts.
        first = replace(done.boundary, depth=2) if round_ == 0 else done.boundary
        talk.apply(replace(done, boundary=first))
        further(talk, round_)
    plan = plan_merge(talk.view, situation(talk.view, settings=CompactionSettings(summaries_tokens=500)))
    assert plan is not None
    assert material(plan, talk.view).notes == ()


def offered(text: str) -> Draft | Refusal:
    """What becomes of a text that was written as the summary of a long talk."""
    talk = long_talk()
    plan = planned(compaction(talk))
    return accept(plan, material(plan, talk.view), text, path=ARCHIVE, tokens_of=estimate)


@pytest.mark.parametrize("text", ["", " \n ", "{}", "....", "ok", "again and " * 400])
def test_garbage_is_rejected_and_so_is_growth(text: str) -> None:
    assert isinstance(offered(text), Refusal)
    grown = offered(SUMMARY + " ".join(map(str, range(20_000))))
    assert isinstance(grown, Refusal)
    assert "replaces" in grown.reason


def test_verification_never_blocks_a_compaction() -> None:
    talk = Talk()
    talk.ask("Look at all of it.")
    for number in range(30):
        names = " ".join(f"name_{number}_{index}" for index in range(150))
        talk.tool(names, path=f"f{number}.py")
    done = talk.apply(accepted(compaction(talk), talk.view))
    assert done.after < 20_000
    found = re.search(r"(\d+) more in conversation_history/main.md", done.boundary.text)
    assert found is not None
    kept = set(re.findall(r"name_\d+_\d+", done.boundary.text))
    assert done.facts_missing == int(found[1]) + len(kept) + len(set(re.findall(r"f\d+\.py", done.boundary.text)))


def test_missing_sections_are_completed_and_an_echo_is_removed() -> None:
    written = (
        "[Previous conversation summary]\nHere it is:\n\n## Technical Context:\nruns on 3.11\n\n"
        f"**Files and changes**\nnone\n\n{HEADING}\nNames: made_up_name\n"
    )
    done = offered(written)
    assert isinstance(done, Draft)
    body = sections(FIVE, done.boundary.text)
    assert set(FIVE.sections) <= set(body)
    assert body["Technical context"] == "runs on 3.11"
    assert body["Current state"] == "Here it is:"
    assert body["Exact next steps"].startswith("1. ")
    assert "Exact next steps" in done.sections_added
    assert "made_up_name" not in done.boundary.text
    assert done.boundary.text.count("[Previous conversation summary]") == 1


def test_a_summary_tells_where_the_turns_are_and_who_wrote_it() -> None:
    talk = long_talk()
    plan = planned(compaction(talk, reason="85% of the window is used."))
    made = material(plan, talk.view)
    done = accept(
        plan, made, SUMMARY, path=ARCHIVE, tokens_of=estimate, model="anthropic:claude-haiku-5-5", cost_usd=0.01
    )
    assert not isinstance(done, Refusal)
    assert done.boundary.text.endswith(ARCHIVE)
    assert (done.boundary.path, done.boundary.model) == (ARCHIVE, "anthropic:claude-haiku-5-5")
    assert done.boundary.reason == "85% of the window is used."
    assert "value_0 = 0" in made.archive


def test_the_outline_has_its_four_sections() -> None:
    talk = long_talk()
    chosen = CompactionSettings(handover="outline")
    here = situation(talk.view, window=20_000, settings=chosen, trigger=8_000)
    plan = plan_compaction(talk.view, here)
    done = accepted(plan, talk.view, "# Key decisions\nNone were needed so far.", settings=chosen)
    assert [line[2:] for line in done.boundary.text.splitlines() if line.startswith("# ")][:4] == list(OUTLINE.sections)


def test_the_separate_model_sees_results_cut_and_the_facts_see_them_whole() -> None:
    talk = Talk()
    talk.ask("Read it.")
    talk.tool(FILLER * 400 + "hidden_name_here\n" + FILLER * 400, path="long.py")
    for number in range(20):
        talk.tool(FILLER * 40, path=f"f{number}.py")
    plan = planned(compaction(talk))
    made = material(plan, talk.view)
    assert max(len(part) for part in made.parts) < 2 * CompactionSettings().summary_result_chars
    assert "hidden_name_here" not in "".join(made.parts)
    assert "hidden_name_here" in made.archive
    assert "hidden_name_here" in talk.apply(accepted(plan, talk.view)).boundary.text


PLANTED = re.compile(r"planted_\d+_\d+")


def with_planted_facts(view: View) -> View:
    """The same log with long texts, a fact and a demand in each."""
    return View(_filled(entry) for entry in view.log)


def _filled(entry: AnyEntry) -> AnyEntry:
    if not isinstance(entry, Message):
        return entry
    blocks: list[Block] = []
    for index, block in enumerate(entry.blocks):
        words = f"planted_{entry.seq}_{index} " + "some words that fill the space " * 40
        if isinstance(block, Text | ToolResult) and block.text.strip():
            block = replace(block, text=f"{block.text} {words}")
        blocks.append(block)
    return replace(entry, blocks=tuple(blocks))


def told(group: Group) -> list[Block]:
    """What a group says, its reasoning aside."""
    return [block for segment in group.segments for block in segment.blocks if not isinstance(block, Reasoning)]


def said_in(groups: list[Group]) -> str:
    return "\n".join(block.text for group in groups for block in told(group) if isinstance(block, Text | ToolResult))


def applied(view: View, done: Draft) -> View:
    after = View(view.log)
    after.messages(view.policy)
    for entry in done.entries:
        after.apply(after.log.stamp(entry, 0.0))
    return after


def check(view: View, plan: Plan, made: Material, done: Draft) -> None:
    groups = view.groups()
    now = planned(rebased(plan, view, situation(view, window=4_000)))
    assert (replace(now, kept=plan.kept), now.kept_from) == (plan, plan.kept_from)

    after = applied(view, done)
    left = {group.first: group for group in after.groups()}

    assert broken_rules(after.messages(view.policy)) == []
    assert [each.seq for each in after.boundaries()] == [*(each.seq for each in view.boundaries()), len(view.log) + 1]

    gone = [group for group in groups if group.first not in left]
    assert all(plan.first <= group.first <= plan.last and not group.pinned for group in gone)
    stayed = [group for group in groups if group.first in left]
    assert set(left) == {group.first for group in stayed}
    assert [told(left[group.first]) for group in stayed] == [told(group) for group in stayed]
    for group in groups:
        covered = plan.first <= group.first <= plan.last
        assert (group.first in left) == (not covered or group.pinned or group.first in plan.brought_back)
    assert not gone or gone[-1] is not groups[-1] or not groups[-1].open

    texts = [
        block.text for message in after.messages() for block in message.blocks if isinstance(block, Text | ToolResult)
    ]
    at = texts.index(done.boundary.text)
    for group in stayed:
        if group.first >= plan.first:
            for block in told(group):
                if isinstance(block, Text | ToolResult) and PLANTED.search(block.text):
                    assert block.text in texts[at + 1 :]

    whole = done.boundary.text + words_block(done.boundary.words, left_out=0)
    # What the user said is kept as far as there is room, and stays in the archive.
    facts = set(PLANTED.findall(said_in([group for group in gone if group.role == "assistant"])))
    more = re.search(rf"^(\d+) more in {re.escape(ARCHIVE)}$", whole, re.MULTILINE)
    assert len([fact for fact in facts if fact not in whole]) <= (int(more[1]) if more else 0)
    assert all(fact in made.archive for fact in PLANTED.findall(said_in([group for group in gone if group.kind == ""])))


@given(logs(steps=40), st.integers(0, 3_000), st.booleans(), st.integers(0, 400))
@settings(deadline=None, max_examples=examples(20))
def test_any_compaction_of_any_conversation(drawn: object, keep: int, extracted: bool, facts_tokens: int) -> None:
    assert isinstance(drawn, View)
    view = with_planted_facts(drawn)
    knobs = replace(CompactionSettings(), facts_tokens=facts_tokens)
    here = situation(view, window=4_000, settings=knobs, trigger=3_000)
    plan = plan_compaction(view, here, keep=keep, asked=True)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    made = material(plan, view, knobs)
    done = accept(plan, made, made.extract if extracted else SUMMARY, path=ARCHIVE, tokens_of=estimate)
    if isinstance(done, Draft):
        check(view, plan, made, done)
        headings = [line[2:] for line in done.boundary.text.splitlines() if line.startswith("# ")]
        assert headings[: len(FIVE.sections)] == list(FIVE.sections)


@given(logs(steps=80))
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_any_checkpoint_of_any_conversation(drawn: object) -> None:
    assert isinstance(drawn, View)
    view = with_planted_facts(drawn)
    plan = plan_checkpoint(view, situation(view, window=4_000), note="done")
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    made = material(plan, view)
    done = accept(plan, made, made.extract, path=ARCHIVE, tokens_of=estimate)
    if isinstance(done, Draft):
        check(view, plan, made, done)
        headings = [line[2:] for line in done.boundary.text.splitlines() if line.startswith("# ")]
        assert headings[: len(CHECKPOINT.sections)] == list(CHECKPOINT.sections)


def test_what_a_provider_counts_as_less_than_leaves_becomes_no_less_than_the_summary() -> None:
    talk = long_talk()
    here = replace(situation(talk.view, window=20_000, trigger=100), tokens=total(talk.view) // 3)
    plan = planned(plan_compaction(talk.view, here))
    assert plan.before == here.tokens
    assert plan.after > plan.words_growth
    moved = rebased(plan, talk.view, replace(here, tokens=here.tokens // 2))
    assert isinstance(moved, Plan)
    assert moved.after > moved.words_growth
    assert accepted(moved, talk.view).after > 0


def test_a_prompt_comes_back_with_what_came_because_of_it() -> None:
    talk = long_talk()
    prompt = len(talk.view.log) + 2
    talk.add(Message(role="user", kind="hook", blocks=(Text("The hook says: branch main."),), because=prompt))
    talk.ask("Now do the long thing.")
    after = Message(role="user", kind="resource", blocks=(Text("The resource says: port 80."),), because=prompt)
    resource = talk.add(after)
    for number in range(40):
        talk.tool(FILLER * 30, path=f"src/long_{number}.py")
    plan = planned(compaction(talk))
    assert plan.brought_back == (prompt - 1, prompt, resource)
    talk.apply(accepted(plan, talk.view))
    for text in ("The hook says: branch main.", "Now do the long thing.", "The resource says: port 80."):
        assert talk.shown.count(text) == 1
    assert broken_rules(talk.view.messages()) == []
    # A newer prompt takes its place: the whole group leaves again.
    talk.ask("And now something else.")
    for number in range(40):
        talk.tool(FILLER * 30, path=f"src/longer_{number}.py")
    done = talk.apply(accepted(compaction(talk), talk.view))
    assert len(done.plan.lapsed) == 1
    assert "The hook says" not in talk.shown
    assert "The resource says" not in talk.shown
    assert talk.shown.count("And now something else.") == 1
