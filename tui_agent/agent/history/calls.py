"""The calls of a session and what the model saw at each: a fold of the log up to the entry before its answer."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from itertools import product
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.agent import events
from tui_agent.agent.history.as_events import step_event
from tui_agent.context.cache_watch import WORDING
from tui_agent.context.counting import estimate
from tui_agent.context.effects import step_of
from tui_agent.context.meter import TokenMeter
from tui_agent.conversation import entries
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.items import Item, LazySequence
from tui_agent.conversation.log import Log, usage_of
from tui_agent.conversation.request import ReasoningPolicy, RequestMessage
from tui_agent.conversation.sizes import Category
from tui_agent.conversation.view import View
from tui_agent.models.errors import redact

NAMES: Final = {"user": "user", "assistant": "model"}


class CallRecord(msgspec.Struct, frozen=True):
    """One answered call of the model.

    number: from 1, in the session's order. seq: the entry of its answer. asked: the newest entry that its request was
    made from. before: the number of the call before it on its branch; 0: none. present: it is on the present branch.
    steps: the context steps since the call before. moved: how the branch was changed before it (``rewind``, ``fork``,
    ``switch``; empty: not). changed: what else is new in front of the messages: the model, or the system prompt or
    tools. lost: why less was read from the cache than was there; empty: it was not. lost_usd: what that cost.
    writing_usd: what summaries and digests since the call before cost. elsewhere: another program made the call, and
    recorded the usage; the model is as named there, and the cost unknown.
    """

    number: int
    seq: int
    asked: int
    before: int
    time: float
    model: str
    usage: entries.Usage
    cost_usd: float | None
    prefix_hash: str
    present: bool
    steps: tuple[events.ContextStep, ...] = ()
    moved: str = ""
    changed: tuple[str, ...] = ()
    lost: str = ""
    lost_usd: float = 0.0
    writing_usd: float = 0.0
    elsewhere: bool = False

    @property
    def cleared(self) -> int:
        """How many results were cleared or digested since the call before."""
        return sum(step.items for step in self.steps if step.step in ("cleared", "digest"))

    @property
    def summarised(self) -> bool:
        return any(step.step in ("summary", "checkpoint") for step in self.steps)

    @property
    def notes(self) -> list[str]:
        found = [f"after a {self.moved}"] if self.moved else []
        found += [f"the {what} changed" for what in self.changed]
        return found + [events.step_text(step.step, step.items or None) for step in self.steps]


class ViewAtCall(msgspec.Struct, frozen=True):
    """What the model saw at a call.

    categories: tokens by category, in all what the provider counted. items: the messages and results of the
    conversation at the time. added: how many of them are new since the call before, by category. exact: the view has
    the hash that was noted with the answer, so the messages are those that were sent. dropped: how many answers lost
    the thinking that came with them since the call before. scale: how many tokens were counted for each that `estimate`
    counts.
    """

    call: CallRecord
    categories: dict[Category, int]
    items: Sequence[Item]
    added: dict[Category, int]
    exact: bool
    dropped: int
    scale: float


class Calls(LazySequence[CallRecord]):
    """Every answered call of a session, on all branches, oldest first; each is read when it is asked for.

    `log` must not be appended to: it is a copy.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._present = set(log.path().numbers)
        self._moves = [seq for seq in range(1, len(log) + 1) if log.kind(seq) is entries.HeadMoved]
        self._read: dict[int, CallRecord] = {}

    @override
    def __len__(self) -> int:
        return len(self._log.answers)

    @override
    def element(self, place: int) -> CallRecord:
        if place not in self._read:
            self._read[place] = self._record(place)
        return self._read[place]

    def tokens(self) -> Sequence[int]:
        """The input tokens of each call, without reading any."""
        return self._log.answer_tokens

    def _record(self, place: int) -> CallRecord:
        log, answers = self._log, self._log.answers
        answer = log.message(answers[place]) or entries.Message(role="assistant", blocks=())
        since, before = self._since(answer)
        earlier = answers[place - 1] if place else 0
        moves = self._moves[bisect_right(self._moves, earlier) : bisect_right(self._moves, answer.seq)]
        moved = log[moves[-1]] if moves else None
        misses = [
            _miss(entry.body) for entry in since if isinstance(entry, entries.Recorded) and entry.kind == "cache_miss"
        ]
        lost, lost_usd = misses[-1] if misses else ("", 0.0)
        others = (entry for entry in since if isinstance(entry, entries.UnattributedCall))
        changed = [
            _IN_FRONT[type(entry)] for entry in since if isinstance(entry, entries.Prefix | entries.ModelSwitched)
        ]
        elsewhere = answer.elsewhere if answer.usage is None else None
        return CallRecord(
            number=place + 1,
            seq=answer.seq,
            asked=answer.parent,
            before=before,
            time=answer.time,
            model=elsewhere.model if elsewhere else answer.model,
            usage=usage_of(answer) or entries.Usage(),
            cost_usd=answer.cost_usd,
            prefix_hash=answer.prefix_hash,
            present=answer.seq in self._present,
            steps=tuple(step_event(step_of(entry)) for entry in since if isinstance(entry, entries.ContextEntry)),
            moved=moved.reason if isinstance(moved, entries.HeadMoved) else "",
            changed=tuple(dict.fromkeys(changed)) if before else (),
            lost=lost,
            lost_usd=lost_usd,
            writing_usd=sum(each.cost_usd or 0.0 for each in others if each.purpose in ("summary", "digest")),
            elsewhere=elsewhere is not None,
        )

    def _since(self, answer: entries.Message) -> tuple[list[entries.AnyEntry], int]:
        """What else stands between an answer and the one before it on its branch, and the number of that one's call."""
        log, answers = self._log, self._log.answers
        found: list[entries.AnyEntry] = []
        seq = answer.parent
        while seq:
            place = bisect_left(answers, seq)
            if place < len(answers) and answers[place] == seq:
                return found[::-1], place + 1
            if not issubclass(log.kind(seq), entries.Message):
                found.append(log[seq])
            seq = log.parent(seq)
        return found[::-1], 0


_IN_FRONT: Final[dict[type[entries.AnyEntry], str]] = {
    entries.Prefix: "system prompt or the tools",
    entries.ModelSwitched: "model",
}


def _miss(body: str) -> tuple[str, float]:
    """Why the cache was not read, and what that cost, as recorded."""
    noted = json.loads(body)
    part, cost = noted.get("part"), noted.get("cost_usd")
    detail = str(noted.get("detail") or noted.get("reason") or "")
    why = next((words for each, words in WORDING.items() if each == part), "the cache was not read")
    return f"{why} ({detail})" if detail else why, float(cost) if isinstance(cost, int | float) else 0.0


class CallHistory:
    """The calls of a session, and the view at each. Use it from one thread at a time.

    `view` is a copy, which goes to the call that is looked at: that costs what differs from the one looked at before.
    `meter`: what the categories are weighed with, as everywhere else.
    """

    def __init__(self, view: View, meter: TokenMeter | None = None) -> None:
        self.calls = Calls(view.log)
        self._at, self._meter = view, meter or TokenMeter()
        self._policies: dict[str, ReasoningPolicy] = {view.policy.model: view.policy}

    def at(self, number: int) -> ViewAtCall:
        """What the model saw at the call with this number, from 1. Raises IndexError."""
        call = self._call(number)
        before = self._call(call.before) if call.before else None
        without = 0
        if before is not None and before.model == call.model:
            without = self._view(before)[0].calls_without_reasoning()
        view, exact = self._view(call)
        tokens, whole = call.usage.input_tokens, sum(map(estimate, view.sizes().values()))
        scale = tokens / whole if tokens and whole else 1.0
        # Together they are what the provider counted.
        sizes = self._meter.shares(view, tokens or round(whole))
        items = view.outline_now()
        added: dict[Category, int] = {}
        for item in reversed(items):
            if before is not None and item.seq <= before.asked:
                break
            added[item.category] = added.get(item.category, 0) + 1
        dropped = max(0, view.calls_without_reasoning() - without) if before is not None else 0
        return ViewAtCall(call, sizes, items, added, exact, dropped, scale)

    def messages(self, number: int) -> tuple[RequestMessage, ...]:
        return tuple(self._view(self._call(number))[0].messages())

    def request(self, number: int) -> str:
        """The request of a call as text: system prompt, tools, messages. Keys are redacted; the rest is untrusted."""
        front, messages = self._parts(number)
        return redact("\n".join((*front, *message_lines(messages))))

    def difference(self, number: int, other: int) -> str:
        """What differs in the request of call `number` from that of call `other`, as a unified diff; empty: nothing."""
        (front, old), (new_front, new) = self._parts(other), self._parts(number)
        pairs = enumerate(zip(old, new, strict=False))
        # Messages that stayed are the same objects, so this is fast for long requests.
        same = next((place for place, (a, b) in pairs if a is not b and a != b), min(len(old), len(new)))
        before, after = (list(message_lines(each[same:], same + 1)) for each in (old, new))
        if front != new_front:
            before, after = front + before, new_front + after
        was, now = "\n".join(before).split("\n"), "\n".join(after).split("\n")
        return redact("\n".join(unified_diff(was, now, f"call {other}", f"call {number}", lineterm="")))

    def _call(self, number: int) -> CallRecord:
        if not 1 <= number <= len(self.calls):
            raise IndexError(f"there is no call {number} among {len(self.calls)}")
        return self.calls[number - 1]

    def _parts(self, number: int) -> tuple[list[str], tuple[RequestMessage, ...]]:
        """System prompt and tools of a request as text, and its messages."""
        view, _ = self._view(self._call(number))
        prefix = view.prefix
        front = ["# System prompt", "", prefix.system if prefix else "", ""]
        for tool in prefix.tools if prefix else ():
            deferred = " (withheld until it is looked for, if the model can search its tools)" if tool.deferred else ""
            front += [f"# Tool {tool.name}{deferred}", "", tool.description, tool.schema, ""]
        return front, tuple(view.messages())

    def _view(self, call: CallRecord) -> tuple[View, bool]:
        """The view at a call, and whether it has the hash that was noted."""
        policy = self._policies.get(call.model, ReasoningPolicy(call.model))
        view = self._at
        view.policy = policy
        view.go_to(call.asked)
        exact = not call.prefix_hash or view.prefix_hash() == call.prefix_hash
        if not exact and call.model not in self._policies:
            # What that model's provider takes is not in the log; the hash tells.
            for bound, signed in product((True, False), repeat=2):
                view.policy = ReasoningPolicy(call.model, bound, signed)
                if view.prefix_hash() == call.prefix_hash:
                    self._policies[call.model] = view.policy
                    return view, True
        self._policies.setdefault(call.model, view.policy)
        return view, exact and not call.elsewhere


def message_lines(messages: Iterable[RequestMessage], first: int = 1) -> Iterator[str]:
    """Messages of a request as text, each under its role and its number, from `first` on."""
    for number, message in enumerate(messages, first):
        yield f"# Message {number}: {NAMES[message.role]}"
        yield ""
        for block in message.blocks:
            yield _block_text(block)
            yield ""


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case Reasoning():
            return f"[thinking]\n{block.text}" if block.text else "[thinking, of which only the signature is known]"
        case ToolCall():
            return f"[call {block.id}] {block.name} {block.malformed or block.arguments}"
        case ToolResult():
            failed = ", failed" if block.is_error else ""
            pictures = f"\n[{len(block.images)} pictures]" if block.images else ""
            return f"[result of {block.call_id}{failed}]\n{block.text}{pictures}"
        case Image():
            return f"[a picture, {block.media_type}]"
