"""What a compaction covers, what it keeps, and which summaries are accepted."""

import re
from typing import Any

import pytest

from tests.context.talks import ARCHIVE, COMPACTION, PROMPTS, SUMMARY, Talk, accepted, shown, situation, total
from tests.conversation.logs import broken_rules
from tui_agent.context.checkpoints import plan_checkpoint
from tui_agent.context.compaction import Author, CompactionPlan, accept, plan_compaction
from tui_agent.context.counting import estimate
from tui_agent.context.handover import FIVE, OUTLINE, sections
from tui_agent.context.refusal import Refusal
from tui_agent.context.summary.facts import HEADING
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Pinned, Restored, Summarized, Undone, tool_result
from tui_agent.conversation.sizes import size_of_text
from tui_agent.settings import Compaction

FILLER = "a line of output that says little and is long enough\n"


def long_talk(turns: int = 12, lines: int = 60) -> Talk:
    talk = Talk()
    for turn in range(turns):
        talk.ask(f"Please look at step {turn}.")
        talk.tool(FILLER * lines + f"value_{turn} = {turn}", path=f"src/part_{turn}.py")
        talk.say(f"Step {turn} is fine.")
    return talk


def plan(talk: Talk, *, trigger: int | None = 8_000, window: int = 20_000, **more: Any) -> CompactionPlan | Refusal:
    here = situation(talk.view, window=window)
    return plan_compaction(talk.view, here, COMPACTION, PROMPTS, trigger=trigger, **more)


def test_the_newest_tokens_stay_at_most_half_of_what_the_trigger_leaves() -> None:
    talk = long_talk()
    planned = plan(talk, trigger=8_000)
    assert isinstance(planned, CompactionPlan)
    groups = talk.view.groups()
    kept = [group for group in groups if group.first >= planned.kept_from]
    tokens = [estimate(size) for group in kept for size in group.sizes.values()]
    before = [group for group in groups if group.first < planned.kept_from][-1]
    room = (8_000 - situation(talk.view).budget.fixed) // 2
    assert sum(tokens) <= room
    assert sum(tokens) + sum(map(estimate, before.sizes.values())) > room - len(kept)


def test_twenty_thousand_tokens_stay_where_the_window_is_large() -> None:
    talk = long_talk(turns=60)
    planned = plan(talk, trigger=170_000, window=200_000)
    assert isinstance(planned, CompactionPlan)
    kept = [group for group in talk.view.groups() if group.first >= planned.kept_from]
    tokens = sum(estimate(size) for group in kept for size in group.sizes.values())
    assert 18_000 < tokens <= 20_000


def test_five_messages_stay_where_tokens_are_unknown() -> None:
    talk = long_talk()
    planned = plan(talk, trigger=None)
    assert isinstance(planned, CompactionPlan)
    kept = [group for group in talk.view.groups() if group.first >= planned.kept_from]
    messages = sum(1 + (len(group.segments[1].blocks) if len(group.segments) > 1 else 0) for group in kept)
    assert messages == 5


def test_what_the_model_has_not_seen_stays() -> None:
    talk = long_talk()
    step = talk.tool(FILLER * 400, path="huge.py")
    planned = plan(talk, keep=0)
    assert isinstance(planned, CompactionPlan)
    assert planned.kept_from == step


def test_a_compaction_during_a_parallel_tool_step_does_not_split_it() -> None:
    talk = long_talk()
    calls = tuple(ToolCall(f"p{number}", "read_file", "{}") for number in range(3))
    step = talk.add(Message(role="assistant", blocks=calls))
    talk.add(tool_result(ToolResult("p1", "the second came first")))
    planned = plan(talk, keep=0)
    assert isinstance(planned, CompactionPlan)
    assert planned.last < step == planned.kept_from
    talk.apply(accepted(planned))
    talk.add(tool_result(ToolResult("p0", "late zero")))
    talk.add(tool_result(ToolResult("p2", "late two")))
    assert broken_rules(talk.view.messages()) == []
    assert "late zero" in talk.shown
    assert "the second came first" in talk.shown


def test_orphaned_tool_calls_after_a_cut() -> None:
    for keep in range(0, 12_000, 500):
        talk = long_talk()
        planned = plan(talk, keep=keep)
        if isinstance(planned, CompactionPlan):
            talk.apply(accepted(planned))
        assert broken_rules(talk.view.messages()) == []


def test_the_newest_request_survives_a_long_tool_loop() -> None:
    talk = Talk()
    talk.ask("An older request.")
    talk.say("Done.")
    talk.ask("Port the parser, exactly as the standard says.")
    for number in range(30):
        talk.tool(FILLER * 40, path=f"f{number}.py")
    first = accepted(plan(talk, trigger=6_000))
    talk.apply(first)
    texts = [block.text for block in talk.view.messages()[0].blocks if isinstance(block, Text)]
    assert texts[0].startswith("[Previous conversation summary]")
    assert texts[1] == "Port the parser, exactly as the standard says."
    for number in range(30):
        talk.tool(FILLER * 40, path=f"g{number}.py")
    talk.apply(accepted(plan(talk, trigger=6_000)))
    assert talk.shown.count("Port the parser, exactly as the standard says.") == 1
    assert broken_rules(talk.view.messages()) == []


def test_what_arrives_while_a_summary_is_written_is_untouched() -> None:
    talk = long_talk()
    planned = plan(talk)
    talk.ask("And one more thing.")
    talk.tool("late result", path="late.py")
    talk.apply(accepted(planned))
    assert "And one more thing." in talk.shown
    assert "late result" in talk.shown


def test_pins_inside_a_summary_are_shown_after_it() -> None:
    talk = long_talk()
    pinned = talk.view.groups()[1].first
    talk.add(Pinned(items=(pinned,)))
    planned = plan(talk)
    assert isinstance(planned, CompactionPlan)
    assert "value_0" not in "".join(planned.parts)
    talk.apply(accepted(planned))
    assert talk.shown.index("[Previous conversation summary]") < talk.shown.index("value_0 = 0")
    assert broken_rules(talk.view.messages()) == []


def test_a_cut_never_falls_within_what_an_earlier_summary_covers() -> None:
    talk = long_talk()
    first = talk.apply(accepted(plan(talk))).boundary
    inside = [item.group for item in talk.view.items() if item.state == "summarized" and item.category == "results"]
    talk.add(Restored(items=(inside[3], inside[4]), texts=("", "")))
    for keep in range(0, total(talk.view), 200):
        planned = plan(talk, keep=keep, window=4_000)
        if isinstance(planned, CompactionPlan):
            assert planned.first == first.first
            assert planned.last >= first.last
            assert planned.last > inside[4]


def test_a_summary_after_a_record_takes_the_record_in() -> None:
    talk = long_talk()
    talk.apply(
        accepted(
            plan_checkpoint(talk.view, situation(talk.view), COMPACTION, PROMPTS), "# Task\nFirst task, record_name."
        )
    )
    for turn in range(12):
        talk.ask(f"More {turn}")
        talk.tool(FILLER * 60, path=f"more_{turn}.py")
        talk.say("fine")
    planned = plan(talk)
    assert isinstance(planned, CompactionPlan)
    assert "record_name" in planned.parts[0]
    done = talk.apply(accepted(planned))
    assert talk.view.boundaries() == [talk.view.log[len(talk.view.log)]]
    assert "record_name" in done.boundary.text


def test_project_rules_and_pins_never_enter_a_summary() -> None:
    talk = Talk(system="PROJECT RULE: tabs are forbidden.")
    talk.ask("PINNED WORD: keep it.")
    talk.add(Pinned(items=(2,)))
    for number in range(20):
        talk.tool(FILLER * 40, path=f"f{number}.py")
    planned = plan(talk)
    assert isinstance(planned, CompactionPlan)
    told = "".join(planned.parts) + planned.extract + planned.archive + repr(planned.facts)
    assert "PROJECT RULE" not in told
    assert "PINNED WORD" not in told
    talk.apply(accepted(planned))
    assert talk.view.prefix is not None
    assert talk.view.prefix.system == "PROJECT RULE: tabs are forbidden."
    assert "PINNED WORD" in talk.shown


def test_the_users_constraints_are_not_lost_in_a_summary() -> None:
    talk = Talk()
    talk.ask("Repair it. Never change the public API of parser.py!")
    talk.say("Understood.")
    for number in range(20):
        talk.ask(f"go on {number}")
        talk.tool(FILLER * 40, path=f"f{number}.py")
        talk.say("ok")
    for _ in range(3):
        talk.apply(accepted(plan(talk)))
        assert "Never change the public API of parser.py!" in talk.shown
        for number in range(20):
            talk.ask(f"and {number}")
            talk.tool(FILLER * 40, path=f"h{number}.py")
            talk.say("ok")


def test_a_summary_of_a_summary_replaces_it_and_does_not_grow_each_time() -> None:
    talk = long_talk()
    sizes = []
    chosen = Compaction(facts_tokens=300)
    for round_ in range(12):
        done = talk.apply(accepted(plan(talk), settings=chosen))
        sizes.append(estimate(size_of_text(done.boundary.text)))
        assert len(talk.view.boundaries()) == 1
        assert done.boundary.first == 2
        for turn in range(12):
            talk.ask(f"round {round_}, step {turn}")
            talk.tool(FILLER * 60 + f"fresh_{round_}_{turn}", path=f"src/r{round_}_{turn}.py")
            talk.say("fine")
    assert max(sizes) <= sizes[0] + 300
    assert talk.shown.count("[Previous conversation summary]") == 1
    assert talk.shown.count(HEADING) == 1


def test_the_extract_of_an_extract_does_not_grow_either() -> None:
    talk = long_talk()
    sizes = []
    for round_ in range(8):
        planned = plan(talk)
        assert isinstance(planned, CompactionPlan)
        talk.apply(accepted(planned, planned.extract))
        sizes.append(len(planned.extract))
        for turn in range(12):
            talk.ask(f"round {round_}, step {turn}, because it is needed")
            talk.tool(FILLER * 60, path=f"src/r{round_}_{turn}.py")
            talk.say("fine, instead of the other way")
    assert max(sizes) < 10_000


def test_a_compaction_loop_without_headroom_ends_in_one_warning() -> None:
    talk = long_talk(turns=2, lines=400)
    talk.ask("next")
    talk.tool(FILLER * 900, path="huge.py")
    compactions = 0
    for _ in range(20):
        planned = plan(talk, trigger=5_000, window=30_000)
        if isinstance(planned, Refusal):
            assert "too few" in planned.reason or "nothing to summarise" in planned.reason
            break
        compactions += 1
        talk.apply(accepted(planned))
    assert isinstance(planned, Refusal)
    assert compactions <= 2


def test_a_threshold_below_the_fixed_overhead_does_not_loop() -> None:
    talk = Talk(system="rule " * 20_000)
    for number in range(4):
        talk.ask(f"word {number}")
        talk.say("ok")
    assert isinstance(plan(talk, trigger=5_000, window=60_000), Refusal)


def test_the_user_may_compact_a_short_conversation() -> None:
    talk = long_talk(turns=4, lines=30)
    assert isinstance(plan(talk, trigger=170_000, window=200_000), Refusal)
    planned = plan(talk, trigger=170_000, window=200_000, asked=True, focus="the parser")
    assert isinstance(planned, CompactionPlan)
    done = talk.apply(accepted(planned))
    assert isinstance(done.boundary, Summarized)
    assert done.boundary.focus == "the parser"
    assert "the parser" in planned.questions.separate
    assert "the parser" in planned.questions.same_prefix


def test_an_empty_conversation_has_nothing_to_compact() -> None:
    assert isinstance(plan(Talk(), asked=True), Refusal)


def test_growth_is_rejected() -> None:
    planned = plan(long_talk())
    assert isinstance(planned, CompactionPlan)
    outcome = accept(planned, SUMMARY + " ".join(map(str, range(20_000))), COMPACTION, path=ARCHIVE, tokens_of=estimate)
    assert isinstance(outcome, Refusal)
    assert "replaces" in outcome.reason


@pytest.mark.parametrize("text", ["", " \n ", "{}", "....", "ok", "again and " * 400])
def test_garbage_is_rejected(text: str) -> None:
    planned = plan(long_talk())
    assert isinstance(planned, CompactionPlan)
    assert isinstance(accept(planned, text, COMPACTION, path=ARCHIVE, tokens_of=estimate), Refusal)


def test_verification_never_blocks_a_compaction() -> None:
    talk = Talk()
    talk.ask("Look at all of it.")
    for number in range(30):
        names = " ".join(f"name_{number}_{index}" for index in range(150))
        talk.tool(names, path=f"f{number}.py")
    done = talk.apply(accepted(plan(talk)))
    assert done.after < 20_000
    found = re.search(r"(\d+) more in conversation_history/main.md", done.boundary.text)
    assert found is not None
    kept = set(re.findall(r"name_\d+_\d+", done.boundary.text))
    assert done.facts_missing == int(found[1]) + len(kept) + len(set(re.findall(r"f\d+\.py", done.boundary.text)))


def test_missing_sections_are_completed_and_an_echo_is_removed() -> None:
    planned = plan(long_talk())
    written = (
        "[Previous conversation summary]\nHere it is:\n\n## Technical Context:\nruns on 3.11\n\n"
        f"**Files and changes**\nnone\n\n{HEADING}\nNames: made_up_name\n"
    )
    done = accepted(planned, written)
    body = sections(FIVE, done.boundary.text)
    assert set(FIVE.sections) <= set(body)
    assert body["Technical context"] == "runs on 3.11"
    assert body["Current state"] == "Here it is:"
    assert body["Exact next steps"].startswith("1. ")
    assert "Exact next steps" in done.sections_added
    assert "made_up_name" not in done.boundary.text
    assert done.boundary.text.count("[Previous conversation summary]") == 1


def test_a_summary_tells_where_the_turns_are_and_who_wrote_it() -> None:
    planned = plan(long_talk(), reason="85% of the window is used.")
    assert isinstance(planned, CompactionPlan)
    author = Author("anthropic:claude-haiku-5-5", None, 0.01)
    done = accept(planned, SUMMARY, COMPACTION, path=ARCHIVE, tokens_of=estimate, author=author)
    assert not isinstance(done, Refusal)
    assert done.boundary.text.endswith(ARCHIVE)
    assert (done.boundary.path, done.boundary.model) == (ARCHIVE, "anthropic:claude-haiku-5-5")
    assert done.boundary.reason == "85% of the window is used."
    assert "value_0 = 0" in planned.archive


def test_figures_after_an_edit_are_of_the_new_view() -> None:
    talk = long_talk()
    done = talk.apply(accepted(plan(talk)))
    assert done.boundary.before > done.boundary.after == done.after
    assert abs(done.after - total(talk.view)) <= 2 * len(talk.view.log)


def test_the_outline_has_its_four_sections() -> None:
    talk = long_talk()
    here = situation(talk.view, window=20_000)
    chosen = Compaction(handover="outline")
    planned = plan_compaction(talk.view, here, chosen, PROMPTS, trigger=8_000)
    assert isinstance(planned, CompactionPlan)
    done = accepted(planned, "# Key decisions\nNone were needed so far.", settings=chosen)
    assert [line[2:] for line in done.boundary.text.splitlines() if line.startswith("# ")][:4] == list(OUTLINE.sections)


def test_the_separate_model_sees_results_cut_and_the_facts_see_them_whole() -> None:
    talk = Talk()
    talk.ask("Read it.")
    talk.tool(FILLER * 400 + "hidden_name_here\n" + FILLER * 400, path="long.py")
    for number in range(20):
        talk.tool(FILLER * 40, path=f"f{number}.py")
    planned = plan(talk)
    assert isinstance(planned, CompactionPlan)
    assert max(len(part) for part in planned.parts) < 2 * COMPACTION.summary_result_chars
    assert "hidden_name_here" not in "".join(planned.parts)
    assert "hidden_name_here" in planned.archive
    assert "hidden_name_here" in talk.apply(accepted(planned)).boundary.text


def test_an_undone_summary_shows_its_turns_again() -> None:
    talk = long_talk()
    before = shown(talk.view)
    talk.apply(accepted(plan(talk)))
    talk.add(Undone(target=len(talk.view.log)))
    assert shown(talk.view) == before
