"""Messages and results that are shown shortened, because they were too large to be sent."""

from tests.conversation.logs import MODELS, broken_rules
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    Message,
    Restored,
    Shortened,
    Summarized,
    Undone,
    tool_result,
    user_message,
)
from tui_agent.conversation.request import ReasoningPolicy, RequestMessage
from tui_agent.conversation.sizes import NOTHING
from tui_agent.conversation.view import View

ASK, ANSWER, FIRST = 1, 2, 3
"""The numbers of the user's message, of the answer with its calls, and of the first result."""


class Large:
    """A long text of the user with a picture, answered by four calls, each with a long result."""

    def __init__(self, results: int = 4) -> None:
        self.view = View()
        self.add(user_message("look " * 500, Image("image/png", "AAAA")))
        calls = tuple(ToolCall(f"c{number}", "read_file", f'{{"path":"{number}.py"}}') for number in range(4))
        self.view.messages(ReasoningPolicy(MODELS[0]))
        said: tuple[Block, ...] = (Reasoning("hm", "signed"), Text("I read them all."), *calls)
        prefix = self.view.prefix_hash()
        self.add(Message(role="assistant", blocks=said, model=MODELS[0], prefix_hash=prefix))
        for number in range(results):
            self.add(tool_result(ToolResult(f"c{number}", f"line {number}\n" * 200)))

    def add(self, entry: AnyEntry) -> int:
        self.view.apply(self.view.log.stamp(entry, 0.0))
        return len(self.view.log)

    def shorten(self, seq: int, *blocks: Block) -> int:
        return self.add(Shortened(items=(seq,), blocks=(blocks,), reason="too large", before=9, after=5))

    def keep_calls(self, *kept: int) -> int:
        """Show the answer with these of its calls alone."""
        calls = (ToolCall(f"c{number}", "read_file", "{}") for number in kept)
        return self.shorten(ANSWER, Text("[2 calls are not shown]"), *calls)

    def blocks(self, role: str) -> list[Block]:
        return [block for message in self.view.messages() if message.role == role for block in message.blocks]

    def states(self) -> dict[int, str]:
        return {item.seq: item.state for item in self.view.items()}


def test_a_shortened_message_is_shown_so_and_an_undo_brings_it_back() -> None:
    talk = Large()
    before = talk.view.messages()
    step = talk.shorten(ASK, Text("look [... 2,490 characters left out ...]"))
    assert talk.blocks("user")[0] == Text("look [... 2,490 characters left out ...]")
    assert not any(isinstance(block, Image) for block in talk.blocks("user"))
    item = talk.view.item(ASK)
    assert item is not None
    assert (item.state, item.size.characters, item.full.characters) == ("shortened", 40, 2_500)
    assert talk.view.counts().shortened == 1
    talk.add(Undone(target=step))
    assert talk.view.messages() == before
    assert talk.view.counts().shortened == 0
    talk.add(Undone(target=len(talk.view.log)))
    assert talk.view.counts().shortened == 1


def test_what_the_user_brings_back_is_whole_again_until_it_is_shortened_anew() -> None:
    talk = Large()
    before = talk.view.messages()
    talk.shorten(ASK, Text("short"))
    talk.shorten(FIRST, ToolResult("c0", "li"))
    talk.add(Restored(items=(ASK, FIRST), texts=("", "")))
    assert talk.view.messages() == before
    assert (talk.states()[ASK], talk.states()[FIRST]) == ("restored", "restored")
    talk.shorten(ASK, Text("short again"))
    assert talk.blocks("user")[0] == Text("short again")
    assert talk.states()[ASK] == "shortened"


def test_calls_that_are_left_out_are_not_shown_nor_are_their_results() -> None:
    talk = Large()
    before = talk.view.messages()
    step = talk.keep_calls(0, 2)
    assert broken_rules(talk.view.messages()) == []
    shown = [block.call_id for block in talk.blocks("user") if isinstance(block, ToolResult)]
    assert shown == ["c0", "c2"]
    assert [result.call.id for result in talk.view.live_results()] == ["c2", "c0"]
    left_out = [item for item in talk.view.items() if item.seq in (FIRST + 1, FIRST + 3)]
    assert [(item.state, item.size) for item in left_out] == [("shortened", NOTHING)] * 2
    assert talk.view.counts().shortened == 3
    newest, oldest = talk.view.live_results()
    assert newest.after == NOTHING
    assert oldest.after == newest.size
    talk.add(Undone(target=step))
    assert talk.view.messages() == before


def test_a_call_that_is_left_out_may_still_be_answered() -> None:
    talk = Large(results=1)
    talk.keep_calls(0)
    assert broken_rules(talk.view.messages()) == []
    assert [call.id for call in talk.view.unanswered()] == ["c1", "c2", "c3"]
    (only,) = talk.view.live_results()
    assert (only.call.id, only.after) == ("c0", NOTHING)
    request = talk.view.messages()
    talk.add(tool_result(ToolResult("c1", "late")))
    assert talk.view.messages() == request
    talk.add(Undone(target=len(talk.view.log) - 1))
    assert ToolResult("c1", "late") in talk.blocks("user")
    assert broken_rules(talk.view.messages()) == []


def test_reasoning_does_not_go_back_with_a_shortened_answer() -> None:
    talk = Large()
    assert any(isinstance(block, Reasoning) for block in talk.blocks("assistant"))
    talk.keep_calls(0, 1, 2, 3)
    assert not any(isinstance(block, Reasoning) for block in talk.blocks("assistant"))


def test_what_comes_back_from_behind_a_summary_is_as_short_as_it_was() -> None:
    talk = Large()
    whole = talk.blocks("user")[0]
    talk.shorten(ASK, Text("short"))
    talk.add(Summarized(first=ASK, last=FIRST + 3, text="the summary"))
    talk.add(Restored(items=(ASK,), texts=("",)))
    assert talk.view.messages() == [RequestMessage("user", (Text("the summary"), Text("short")))]
    assert talk.states()[ASK] == "shortened"
    talk.add(Restored(items=(ASK,), texts=("",)))
    assert talk.blocks("user")[:2] == [Text("the summary"), whole]
    assert View(talk.view.log).messages(talk.view.policy) == talk.view.messages()


def test_it_says_where_the_whole_lies() -> None:
    kept = Artifact("large_tool_results/c0", 1_600, "0", evicted=True)
    evicted = Large(results=0)
    evicted.add(tool_result(ToolResult("c0", "preview"), artifact=kept))
    evicted.shorten(FIRST, ToolResult("c0", "pre"))
    assert evicted.view.live_results()[0].artifact == kept
