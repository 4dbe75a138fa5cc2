"""The laws of the view."""

from collections import Counter
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversation.logs import MODELS, Writer, broken_rules, logs
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Cleared,
    Delivered,
    Digested,
    HeadMoved,
    Message,
    Pinned,
    Prefix,
    Queued,
    Restored,
    Summarized,
    Undone,
    Usage,
    decode,
    encode,
    tool_result,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.request import ReasoningPolicy, RequestMessage
from tui_agent.conversation.sizes import CATEGORIES, NOTHING, TextSize, size_of_block
from tui_agent.conversation.states import Counts
from tui_agent.conversation.view import View

SHOWN = ("verbatim", "preview", "restored", "shortened")


def everything(view: View, carry: ReasoningPolicy) -> tuple[object, ...]:
    return (
        view.messages(carry),
        view.prefix_hash(),
        view.sizes(),
        view.items(),
        view.live_results(),
        view.counts(),
        view.measured_calls(),
        [
            (each.first, each.last, each.pinned, each.open, each.sizes, each.results, each.fingerprints, each.segments)
            for each in view.groups()
        ],
        view.boundaries(),
        view.queued(),
        view.partial,
        view.unanswered(),
        view.reasoning_dropped(),
        view.log.head,
    )


@given(logs(), st.sampled_from(MODELS), st.booleans())
@settings(deadline=None)
def test_entry_by_entry_is_at_once_is_after_a_save_and_load(view: View, model: str, bound: bool) -> None:
    carry = ReasoningPolicy(model, bound)
    entries = list(view.log)
    saved = [encode(entry) for entry in entries]
    assert everything(View(entries), carry) == everything(view, carry)
    assert everything(View(decode(data) for data in saved), carry) == everything(view, carry)
    packed = Log(entries)
    packed.pack(unpacked=0)
    assert everything(View(packed.entries()), carry) == everything(view, carry)
    assert [encode(decode(data)) for data in saved] == saved


@given(logs(steps=40), st.sampled_from(MODELS), st.booleans())
@settings(deadline=None)
def test_every_request_is_valid_and_its_live_results_are_the_items_that_are_shown(
    view: View, model: str, bound: bool
) -> None:
    messages = view.messages(ReasoningPolicy(model, bound))
    assert broken_rules(messages) == []
    live = view.live_results()
    results = (item for item in view.items() if item.category == "results" and item.size != NOTHING)
    shown = {item.seq: (item.state, item.pinned) for item in results if item.state in SHOWN}
    assert {each.seq: (each.state, each.pinned) for each in live} == shown
    answers: dict[str, list[tuple[TextSize, TextSize]]] = {}
    following = NOTHING
    for block in (block for message in reversed(messages) for block in reversed(message.blocks)):
        if isinstance(block, ToolResult):
            answers.setdefault(block.call_id, []).append((size_of_block(block), following))
        following = following.plus(size_of_block(block))
    assert all((each.size, each.after) in answers[each.call.id] for each in live)
    assert [each.after.characters for each in live] == sorted(each.after.characters for each in live)


@given(logs())
@settings(deadline=None)
def test_the_running_counts_are_those_of_the_items_which_can_be_looked_at_one_by_one(view: View) -> None:
    items, outline = view.items(), view.outline()
    states = Counter(item.state for item in items if item.category == "results")
    hidden = sum(item.full.characters for item in items if item.state in ("summarized", "checkpointed"))
    shortened = sum(item.state == "shortened" for item in items)
    assert view.counts() == Counts(states["preview"], states["cleared"], states["digested"], hidden, shortened)
    assert [outline[place] for place in range(-len(outline), 0)] == items
    assert [outline.place_of(item.seq) for item in items] == list(range(len(items)))


@given(logs(steps=40), st.sampled_from(MODELS), st.booleans(), st.data())
@settings(deadline=None)
def test_a_moved_head_shows_what_stood_there_byte_for_byte(
    view: View, model: str, bound: bool, data: st.DataObject
) -> None:
    entries, policy = list(view.log), ReasoningPolicy(model, bound)
    to = data.draw(st.integers(0, len(entries)))
    if to and isinstance(entries[to - 1], HeadMoved):
        return
    if data.draw(st.booleans()):
        view.messages(policy)
    view.apply(view.log.stamp(HeadMoved(to=to, reason="rewind"), 0.0))
    assert everything(view, policy) == everything(View(entries[:to]), policy)
    assert len(view.log) == len(entries) + 1


@given(logs(steps=30), st.sampled_from(MODELS), st.booleans(), st.data())
@settings(deadline=None)
def test_a_copy_is_the_same_and_goes_on_by_itself(view: View, model: str, bound: bool, data: st.DataObject) -> None:
    policy = ReasoningPolicy(model, bound)
    other = view.copy()
    before = everything(view, policy)
    assert everything(other, policy) == before
    for grown, still in ((other, view), (view, other)):
        untouched = everything(still, policy)
        writer = Writer(cast(st.DrawFn, data.draw), grown)
        for _ in range(data.draw(st.integers(1, 6))):
            writer.step()
        assert everything(still, policy) == untouched
        assert everything(grown, policy) == everything(View(grown.log), policy)


@given(logs(steps=30), st.sampled_from(MODELS), st.booleans(), st.data())
@settings(deadline=None)
def test_what_a_view_would_be_after_entries_is_what_it_becomes_and_what_it_is_once_they_are_applied(
    view: View, model: str, bound: bool, data: st.DataObject
) -> None:
    policy = ReasoningPolicy(model, bound)
    before, applied = everything(view, policy), view.copy()
    start = len(view.log)
    writer = Writer(cast(st.DrawFn, data.draw), applied)
    for _ in range(data.draw(st.integers(0, 4))):
        writer.step()
    entries = list(applied.log)[start:]
    then = view.after(entries, policy)
    assert everything(view, policy) == before
    assert everything(then, policy) == everything(applied, policy)
    view.become(then)
    assert everything(view, policy) == everything(View(applied.log), policy)
    assert (list(view.log), view.moves) == (list(applied.log), applied.moves)
    view.apply(view.log.stamp(user_message("more"), 0.0))
    applied.apply(applied.log.stamp(user_message("more"), 0.0))
    assert everything(view, policy) == everything(applied, policy)


@given(logs(steps=30), st.integers(0, 60))
@settings(deadline=None)
def test_the_tail_is_the_newest_groups_that_fit_and_the_one_that_does_not(view: View, room: int) -> None:
    found = view.before_tail(lambda size: size.characters <= room)
    tail = 0
    for group in reversed(view.groups()):
        if tail <= room:
            tail += sum((size.characters for size in group.sizes.values()), 0)
    if not view.boundaries():
        assert found.tail.characters == tail
    assert 0 <= found.messages <= len(view.messages())
    assert found.results.characters <= view.sizes()["results"].characters
    everything_fits = view.before_tail(lambda size: True)
    assert (everything_fits.messages, everything_fits.result_count) == (0, 0)


@given(logs(steps=30), st.data())
@settings(deadline=None)
def test_what_a_copy_shows_otherwise_is_told_item_by_item(view: View, data: st.DataObject) -> None:
    then = view.copy()
    writer = Writer(cast(st.DrawFn, data.draw), then)
    for _ in range(data.draw(st.integers(1, 4))):
        if then.moves == view.moves:
            writer.step()
    if then.moves != view.moves:
        return
    shown = {item.seq: item for item in then.items()}
    told = {old.seq: (old, new) for old, new in view.changed_items(then)}
    for item in view.items():
        if item.seq in shown and shown[item.seq] != item:
            assert told[item.seq] == (item, shown[item.seq])
    before, after, rest = view.messages(), then.messages(), then.messages_after_shared(view)
    same = len(after) - len(rest) if rest else min(len(before), len(after))
    assert before[:same] == after[:same]
    assert not rest or before[same] != after[same]


@given(logs())
@settings(deadline=None)
def test_running_sizes_are_the_sizes_of_what_is_sent(view: View) -> None:
    sent = TextSize()
    for message in view.messages():
        for block in message.blocks:
            if block != Text("[The conversation goes on from here.]"):
                sent = sent.plus(size_of_block(block))
    counted = TextSize()
    for category in CATEGORIES:
        if category not in ("system", "tools"):
            counted = counted.plus(view.sizes()[category])
    assert counted == sent


@given(st.data())
@settings(deadline=None)
def test_without_context_steps_a_request_begins_with_the_one_before(data: st.DataObject) -> None:
    writer = Writer(cast(st.DrawFn, data.draw))
    carry = ReasoningPolicy(MODELS[0])
    before: list[object] = []
    for _ in range(data.draw(st.integers(1, 12))):
        writer.append(user_message("go on"))
        writer.append(writer.answer())
        for call in writer.view.unanswered():
            writer.append(tool_result(ToolResult(call.id, "done")))
        now = [(message.role, block) for message in writer.view.messages(carry) for block in message.blocks]
        assert now[: len(before)] == before
        before = list(now)


class Talk:
    """A short conversation with two tool steps, and what is done to it."""

    def __init__(self) -> None:
        self.view = View()
        self.add(Prefix(system="rules"))
        self.ask = self.add(user_message("fix it"))
        self.first = self.answer("c1")
        self.result1 = self.add(tool_result(ToolResult("c1", "one " * 50)))
        self.second = self.answer("c2")
        self.result2 = self.add(tool_result(ToolResult("c2", "two " * 50)))
        self.third = self.answer()

    def add(self, entry: AnyEntry) -> int:
        self.view.apply(self.view.log.stamp(entry, 0.0))
        return len(self.view.log)

    def answer(self, call: str = "") -> int:
        carry = ReasoningPolicy(MODELS[0])
        self.view.messages(carry)
        calls = (ToolCall(call, "read_file", "{}"),) if call else ()
        blocks = (Reasoning("hm", "signed"), Text(f"answer {call}"), *calls)
        return self.add(Message(role="assistant", blocks=blocks, model=MODELS[0], prefix_hash=self.view.prefix_hash()))

    def messages(self, *, bound: bool = True) -> list[RequestMessage]:
        return self.view.messages(ReasoningPolicy(MODELS[0], bound))

    def text(self) -> str:
        return "\n".join(
            block.text
            for message in self.messages()
            for block in message.blocks
            if isinstance(block, Text | ToolResult)
        )

    def reasoning(self, *, bound: bool = True) -> int:
        return sum(isinstance(b, Reasoning) for m in self.messages(bound=bound) for b in m.blocks)


def test_reasoning_goes_back_only_under_the_prefix_it_was_made_under() -> None:
    talk = Talk()
    assert talk.reasoning() == 3
    cleared = talk.add(Cleared(results=(talk.result1,), texts=("[cleared]",)))
    assert talk.reasoning() == 1
    assert talk.view.reasoning_dropped() == 2
    assert talk.reasoning(bound=False) == 3
    talk.add(Undone(target=cleared))
    assert talk.reasoning() == 3
    assert talk.view.messages(ReasoningPolicy(MODELS[1])) == [
        RequestMessage(each.role, tuple(block for block in each.blocks if not isinstance(block, Reasoning)))
        for each in talk.messages()
    ]


def test_reasoning_made_while_earlier_reasoning_was_left_out_stays_out_once_that_is_back() -> None:
    talk = Talk()
    cleared = talk.add(Cleared(results=(talk.result1,), texts=("[cleared]",)))
    talk.add(user_message("and now?"))
    talk.answer()
    assert talk.reasoning() == 2
    undone = talk.add(Undone(target=cleared))
    assert talk.reasoning() == 3
    talk.add(Undone(target=undone))
    assert talk.reasoning() == 2
    # Without a change of any text: the reasoning of a model that comes back after another one.
    again = Talk()
    again.view.messages(ReasoningPolicy(MODELS[1]))
    blocks = (Reasoning("hm", "signed"), Text("from the other model"))
    again.add(Message(role="assistant", blocks=blocks, model=MODELS[1], prefix_hash=again.view.prefix_hash()))
    again.add(user_message("and now?"))
    again.answer()
    assert (again.reasoning(), again.view.reasoning_dropped()) == (4, 0)


def test_a_pinned_result_survives_with_its_group_after_the_summary_that_passed_over_it() -> None:
    talk = Talk()
    talk.add(Pinned(items=(talk.result1,)))
    talk.add(Cleared(results=(talk.result1, talk.result2), texts=("[cleared]", "[cleared]")))
    talk.add(Summarized(first=talk.ask, last=talk.result2, text="the summary"))
    text = talk.text()
    assert text.index("the summary") < text.index("one one") < text.rindex("answer ")
    assert "two" not in text
    assert "fix it" not in text
    talk.add(Pinned(items=(talk.first,), pinned=False))
    assert "one" not in talk.text()


def test_the_newest_cover_that_counts_decides() -> None:
    talk = Talk()
    talk.add(Cleared(results=(talk.result1,), texts=("[cleared]",)))
    restored = talk.add(Restored(items=(talk.result1,), texts=("shown again",)))
    assert "shown again" in talk.text()
    talk.add(Digested(results=(talk.result1,), placeholder="[archived: see digest]", text="the digest"))
    assert "[archived: see digest]" in talk.text()
    assert talk.text().endswith("the digest")
    talk.add(Undone(target=restored))
    assert "[archived: see digest]" in talk.text()


def test_a_request_that_another_branch_repeated_was_read_then() -> None:
    view = View()

    def add(entry: AnyEntry, time: float) -> Message:
        view.apply(view.log.stamp(entry, time))
        last = view.last_call
        return last if last is not None else Message(role="user", blocks=())

    def answer(time: float) -> Message:
        return add(Message(role="assistant", blocks=(Text("yes"),), model=MODELS[0], usage=Usage(9)), time)

    add(user_message("one"), 1)
    first = answer(10)
    assert view.last_read(first) == 10
    add(user_message("two"), 40)
    second = answer(50)
    assert view.last_call == second
    assert (view.last_read(second), view.last_read(first)) == (50, 50)
    add(HeadMoved(to=first.seq, reason="rewind"), 60)
    assert view.last_call == first
    assert view.last_read(first) == 50
    add(HeadMoved(to=1, reason="rewind"), 70)
    add(user_message("another"), 80)
    third = answer(90)
    assert view.last_read(third) == 90
    add(HeadMoved(to=second.seq, reason="switch"), 100)
    assert view.last_read(second) == 50


def test_a_queued_text_is_a_message_where_it_was_delivered() -> None:
    view = View()
    for entry in (user_message("first"), Queued(blocks=(Text("second"),))):
        view.apply(view.log.stamp(entry, 0.0))
    assert [queued.seq for queued in view.queued()] == [2]
    view.apply(view.log.stamp(Delivered(queued=2), 0.0))
    assert view.queued() == ()
    assert view.messages() == [RequestMessage("user", (Text("first"), Text("second")))]


def test_a_log_refuses_what_is_not_next() -> None:
    view = View()
    entry = view.log.stamp(user_message("hello"), 0.0)
    view.apply(entry)
    for wrong in (entry, view.log.stamp(HeadMoved(to=7), 0.0)):
        try:
            view.apply(wrong)
        except ValueError:
            continue
        raise AssertionError("it was taken")
    assert len(view.log) == 1
    assert view.sizes()["user"] == TextSize(5, 0, 0)
    assert view.sizes()["system"] == NOTHING
