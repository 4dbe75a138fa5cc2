"""What holds for a compaction of any conversation."""

import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.context.talks import ARCHIVE, COMPACTION, PROMPTS, SUMMARY, situation, total
from tests.conversation.logs import broken_rules, logs
from tui_agent.context.checkpoints import plan_checkpoint
from tui_agent.context.compaction import Accepted, CompactionPlan, accept, plan_compaction
from tui_agent.context.counting import estimate
from tui_agent.context.handover import CHECKPOINT, FIVE
from tui_agent.context.rebasing import rebased
from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message
from tui_agent.conversation.groups import Group
from tui_agent.conversation.view import View

PLANTED = re.compile(r"planted_\d+_\d+")


def planted(view: View) -> View:
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


def applied(view: View, done: Accepted) -> View:
    after = View(view.log)
    after.messages(view.policy)
    for entry in done.entries:
        after.apply(after.log.stamp(entry, 0.0))
    return after


def check(view: View, plan: CompactionPlan, done: Accepted) -> None:
    groups = view.groups()
    replaced = [boundary.text for boundary in view.boundaries()]
    assert rebased(plan, view, COMPACTION, tokens=total(view), tokens_of=estimate) == plan

    after = applied(view, done)
    left = {group.first: group for group in after.groups()}

    assert broken_rules(after.messages(view.policy)) == []
    inside = {boundary.seq for boundary in view.boundaries() if plan.first <= boundary.first <= plan.last}
    outside = {boundary.seq for boundary in view.boundaries()} - inside
    earlier = [part for part in plan.parts if part.startswith(("[handover written earlier]", "[record of a"))]
    assert len(earlier) == len(inside)
    new = len(view.log) + 1
    assert {boundary.seq for boundary in after.boundaries()} == outside | {new}

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

    whole = done.boundary.text
    facts = set(PLANTED.findall(said_in(gone)))
    for text in replaced:
        if text not in texts:
            facts |= set(PLANTED.findall(text))
    more = re.search(rf"^(\d+) more in {re.escape(ARCHIVE)}$", whole, re.MULTILINE)
    assert len([fact for fact in facts if fact not in whole]) <= (int(more[1]) if more else 0)
    assert all(fact in plan.archive for fact in PLANTED.findall(said_in([group for group in gone if group.kind == ""])))


@given(logs(steps=40), st.integers(0, 3_000), st.booleans(), st.integers(0, 400))
@settings(deadline=None, max_examples=150)
def test_any_compaction_of_any_conversation(drawn: object, keep: int, extracted: bool, facts_tokens: int) -> None:
    assert isinstance(drawn, View)
    view = planted(drawn)
    here = situation(view, window=4_000)
    plan = plan_compaction(view, here, COMPACTION, PROMPTS, trigger=3_000, keep=keep, asked=True)
    assume(isinstance(plan, CompactionPlan))
    assert isinstance(plan, CompactionPlan)
    knobs = replace(COMPACTION, facts_tokens=facts_tokens)
    done = accept(plan, plan.extract if extracted else SUMMARY, knobs, path=ARCHIVE, tokens_of=estimate)
    if isinstance(done, Accepted):
        check(view, plan, done)
        headings = [line[2:] for line in done.boundary.text.splitlines() if line.startswith("# ")]
        assert headings[: len(FIVE.sections)] == list(FIVE.sections)


@given(logs(steps=40))
@settings(deadline=None, max_examples=100)
def test_any_checkpoint_of_any_conversation(drawn: object) -> None:
    assert isinstance(drawn, View)
    view = planted(drawn)
    plan = plan_checkpoint(view, situation(view), COMPACTION, PROMPTS, note="done")
    assume(isinstance(plan, CompactionPlan))
    assert isinstance(plan, CompactionPlan)
    done = accept(plan, plan.extract, COMPACTION, path=ARCHIVE, tokens_of=estimate)
    if isinstance(done, Accepted):
        check(view, plan, done)
        headings = [line[2:] for line in done.boundary.text.splitlines() if line.startswith("# ")]
        assert headings[: len(CHECKPOINT.sections)] == list(CHECKPOINT.sections)
