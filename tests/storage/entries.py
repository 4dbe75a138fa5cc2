"""Entries for storage tests: any that a log can hold, and a stamped log made of them."""

from hypothesis import strategies as st

from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    Cleared,
    Delivered,
    HeadMoved,
    Message,
    ModelSwitched,
    Partial,
    Pinned,
    Prefix,
    Queued,
    Summarized,
    UnattributedCall,
    Usage,
    tool_result,
    user_message,
)
from tui_agent.conversation.log import Log


def stamped(entries: list[AnyEntry], *, start: float = 1_000.0) -> list[AnyEntry]:
    """These entries as a log has them: numbered, with parents, one second apart."""
    log = Log()
    for entry in entries:
        log.append(log.stamp(entry, start + len(log)))
    return list(log)


def conversation(turns: int) -> list[AnyEntry]:
    """A log of a prefix and `turns` questions with their answers."""
    entries: list[AnyEntry] = [Prefix(system="Be brief.")]
    for number in range(turns):
        entries.append(user_message(f"question {number}"))
        answer = (Reasoning("because", "sig"), Text(f"answer {number}"))
        entries.append(
            Message(role="assistant", blocks=answer, model="offline:reader", usage=Usage(10, 0, 0, 5), cost_usd=0.25)
        )
    return stamped(entries)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers(1, 50)

ENTRIES: st.SearchStrategy[AnyEntry] = st.one_of(
    st.builds(Prefix, system=TEXTS),
    st.builds(user_message, TEXTS),
    st.builds(
        Message,
        role=st.just("assistant"),
        blocks=st.tuples(st.builds(Text, TEXTS), st.builds(ToolCall, TEXTS, TEXTS, st.just("{}"), TEXTS)),
        usage=st.none() | st.builds(Usage, NUMBERS, NUMBERS),
        cost_usd=st.none() | st.floats(0, 10),
    ),
    st.builds(lambda text: tool_result(ToolResult("c1", text), artifact=Artifact("a", 1, "b")), TEXTS),
    st.builds(Partial, text=TEXTS, restart=st.booleans()),
    st.builds(Queued, blocks=st.tuples(st.builds(Text, TEXTS))),
    st.builds(Delivered, queued=NUMBERS),
    st.builds(ModelSwitched, model=TEXTS),
    st.just(HeadMoved(to=0)),
    st.builds(
        UnattributedCall,
        model=TEXTS,
        usage=st.builds(Usage, NUMBERS, NUMBERS),
        purpose=st.sampled_from(["summary", "digest", "unfinished"]),
        cost_usd=st.none() | st.floats(0, 10),
    ),
    st.builds(Cleared, results=st.tuples(NUMBERS), texts=st.tuples(TEXTS)),
    st.builds(Summarized, first=NUMBERS, last=NUMBERS, text=TEXTS, reason=TEXTS, cost_usd=st.none() | st.floats(0, 10)),
    st.builds(Pinned, items=st.tuples(NUMBERS)),
)
LOGS = st.lists(ENTRIES, max_size=12).map(stamped)
