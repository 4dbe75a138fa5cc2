"""The calls of a session and what the model saw at each: a fold of the log up to the entry before its answer."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from itertools import islice, product
from typing import Final, NamedTuple

from tui_agent.agent import events
from tui_agent.agent.history.as_events import step_event
from tui_agent.context.cache_watch import WORDING
from tui_agent.context.counting import estimate
from tui_agent.context.effects import step_of
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    ContextEntry,
    HeadMoved,
    Message,
    ModelSwitched,
    Prefix,
    Recorded,
    UnattributedCall,
    Usage,
)
from tui_agent.conversation.items import Item
from tui_agent.conversation.log import Log
from tui_agent.conversation.request import ReasoningPolicy, RequestMessage
from tui_agent.conversation.sizes import Category
from tui_agent.conversation.view import View
from tui_agent.models.errors import redact
from tui_agent.text import counted

KEPT_EVERY: Final = 4_000
"""Entries between two kept views: folding so many takes about 0.15 s."""
KEPT_BEFORE: Final = 48
"""Entries before the view last looked at at which another one is kept, for going back call by call."""
STEPS: Final = {
    "cleared": "result cleared",
    "digest": "result digested",
    "summary": "older turns summarised",
    "checkpoint": "a task recorded",
    "pinned": "item pinned",
    "unpinned": "item unpinned",
    "restored": "item restored",
    "shortened": "message shortened",
    "words": "message of yours edited",
    "undone": "step undone",
}
"""What each context step did, for one thing."""
NAMES: Final = {"user": "user", "assistant": "model"}


class CallRecord(NamedTuple):
    """One answered call of the model.

    number: from 1, in the session's order. seq: the entry of its answer. asked: the newest entry that its request was
    made from. before: the number of the call before it on its branch; 0: none. present: it is on the present branch.
    steps: the context steps since the call before. moved: how the branch was changed before it (``rewind``, ``fork``,
    ``switch``; empty: not). changed: what else is new in front of the messages: the model, or the system prompt or
    tools. lost: why less was read from the cache than was there; empty: it was not. lost_usd: what that cost.
    writing_usd: what summaries and digests since the call before cost.
    """

    number: int
    seq: int
    asked: int
    before: int
    time: float
    model: str
    usage: Usage
    cost_usd: float | None
    prefix_hash: str
    present: bool
    steps: tuple[events.ContextStep, ...] = ()
    moved: str = ""
    changed: tuple[str, ...] = ()
    lost: str = ""
    lost_usd: float = 0.0
    writing_usd: float = 0.0

    @property
    def cleared(self) -> int:
        """How many results were cleared or digested since the call before."""
        return sum(step.items for step in self.steps if step.step in ("cleared", "digest"))

    @property
    def summarised(self) -> bool:
        """Whether turns were summarised since the call before."""
        return any(step.step in ("summary", "checkpoint") for step in self.steps)

    @property
    def notes(self) -> list[str]:
        """What happened since the call before, in words."""
        told = [f"after a {self.moved}"] if self.moved else []
        told += [f"the {what} changed" for what in self.changed]
        for step in self.steps:
            words = STEPS.get(step.step, step.step)
            told.append(
                f"{counted(step.items, words.split(' ')[0])} {words.partition(' ')[2]}" if step.items else words
            )
        return told


class SeenThen(NamedTuple):
    """What the model saw at a call.

    categories: tokens by category, in all what the provider counted. items: the messages and results of the
    conversation at the time. added: how many of them are new since the call before, by category. exact: the view has
    the hash that was noted with the answer, so the messages are those that were sent. dropped: how many answers lost
    the thinking that came with them since the call before.
    """

    call: CallRecord
    categories: dict[Category, int]
    items: tuple[Item, ...]
    added: dict[Category, int]
    exact: bool
    dropped: int


def calls(log: Log) -> tuple[CallRecord, ...]:
    """Every answered call of the session, on all branches, oldest first. Reads the whole log: call it in a thread."""
    return tuple(_Reader(log).read())


class _Reader:
    """Reads the calls from a log; notes what happens between two of them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._present = set(log.path().numbers)
        self._number_of: dict[int, int] = {}
        self._before = 0
        self._begin(0)

    def _begin(self, before: int, moved: str = "") -> None:
        self._before, self._moved = before, moved
        self._steps: list[events.ContextStep] = []
        self._changed: dict[str, None] = {}
        self._lost, self._lost_usd, self._writing_usd = "", 0.0, 0.0

    def read(self) -> Iterator[CallRecord]:
        wanted = (Message, HeadMoved, Prefix, ModelSwitched, Recorded, UnattributedCall)
        for seq in range(1, len(self._log) + 1):
            kind = self._log.kind(seq)
            if not issubclass(kind, wanted) and not issubclass(kind, ContextEntry):
                continue
            entry = self._log[seq]
            if isinstance(entry, Message) and entry.role == "assistant" and entry.usage is not None:
                self._number_of[seq] = len(self._number_of) + 1
                yield self._call(entry, entry.usage)
                self._begin(seq)
            elif isinstance(entry, HeadMoved):
                self._move(entry)
            else:
                self._note(entry)

    def _call(self, answer: Message, usage: Usage) -> CallRecord:
        return CallRecord(
            number=self._number_of[answer.seq],
            seq=answer.seq,
            asked=answer.parent,
            before=self._number_of.get(self._before, 0),
            time=answer.time,
            model=answer.model,
            usage=usage,
            cost_usd=answer.cost_usd,
            prefix_hash=answer.prefix_hash,
            present=answer.seq in self._present,
            steps=tuple(self._steps),
            moved=self._moved,
            changed=tuple(self._changed) if self._before else (),
            lost=self._lost,
            lost_usd=self._lost_usd,
            writing_usd=self._writing_usd,
        )

    def _move(self, move: HeadMoved) -> None:
        """Go on from another entry: what stands between it and the call before it there counts again."""
        between: list[int] = []
        seq = move.to
        while seq and seq not in self._number_of:
            between.append(seq)
            seq = self._log[seq].parent
        self._begin(seq, move.reason)
        for number in reversed(between):
            self._note(self._log[number])

    def _note(self, entry: AnyEntry) -> None:
        match entry:
            case ContextEntry():
                self._steps.append(step_event(step_of(entry)))
            case Prefix():
                self._changed["system prompt or the tools"] = None
            case ModelSwitched():
                self._changed["model"] = None
            case UnattributedCall(purpose="summary" | "digest"):
                self._writing_usd += entry.cost_usd or 0.0
            case Recorded(kind="cache_miss"):
                self._miss(entry.body)
            case _:
                pass

    def _miss(self, body: str) -> None:
        told = json.loads(body)
        part, cost = told.get("part"), told.get("cost_usd")
        detail = str(told.get("detail") or told.get("reason") or "")
        why = next((words for each, words in WORDING.items() if each == part), "the cache was not read")
        self._lost = f"{why} ({detail})" if detail else why
        self._lost_usd = float(cost) if isinstance(cost, int | float) else 0.0


class Past:
    """The calls of a session, and the view at each. Use it from one thread at a time.

    `log` must not be appended to: it is a copy. A view is folded from the nearest earlier one that was kept.
    """

    def __init__(self, log: Log, policy: ReasoningPolicy) -> None:
        self.calls = calls(log)
        self._log = log
        self._kept: dict[int, View] = {}
        self._near = 0
        """The kept view that is replaced when another part of the session is looked at."""
        self._newest: tuple[int, View | None] = 0, None
        self._policies: dict[str, ReasoningPolicy] = {policy.model: policy}

    def at(self, number: int) -> SeenThen:
        """What the model saw at the call with this number, from 1. Raises IndexError."""
        call = self._call(number)
        before = self._call(call.before) if call.before else None
        without = 0
        if before is not None and before.model == call.model:
            without = self._view(before)[0].calls_without_reasoning()
        view, exact = self._view(call)
        sizes = {category: estimate(size) for category, size in view.sizes().items()}
        items = tuple(view.outline())
        added: dict[Category, int] = {}
        for item in reversed(items):
            if before is not None and item.seq <= before.asked:
                break
            added[item.category] = added.get(item.category, 0) + 1
        tokens = call.usage.input_tokens
        dropped = max(0, view.calls_without_reasoning() - without) if before is not None else 0
        return SeenThen(call, _scaled(sizes, tokens), items, added, exact, dropped)

    def messages(self, number: int) -> tuple[RequestMessage, ...]:
        """The messages of a call's request."""
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
        view = self._folded(call.asked, policy)
        exact = not call.prefix_hash or view.prefix_hash() == call.prefix_hash
        if not exact and call.model not in self._policies:
            # What that model's provider takes is not in the log; the hash tells.
            for bound, signed in product((True, False), repeat=2):
                view.policy = ReasoningPolicy(call.model, bound, signed)
                if view.prefix_hash() == call.prefix_hash:
                    self._policies[call.model] = view.policy
                    return view, True
        self._policies.setdefault(call.model, view.policy)
        return view, exact

    def _folded(self, seq: int, policy: ReasoningPolicy) -> View:
        """The view with entry `seq` as the newest; it is used until the next one is asked for."""
        path = self._log.path(seq).numbers
        start = max((kept for kept in self._kept if _contains(path, kept)), default=0)
        view, (last, newest) = None, self._newest
        if newest is not None and last >= start and _contains(path, last):
            start, view = last, newest
        elif start:
            view = self._kept[start].copy(self._log)
        place = bisect_right(path, start)
        stops = list(islice(path, place + KEPT_EVERY - 1, None, KEPT_EVERY))
        near = path[-KEPT_BEFORE] if len(path) - KEPT_BEFORE > place else 0
        for stop in sorted({*stops, near} - {0}):
            view, start = View.past(self._log, stop, policy, view, start), stop
            if stop == near:
                self._kept.pop(self._near, None)
                self._near = stop if stop not in stops else 0
            self._kept[stop] = view.copy(self._log)
        view = View.past(self._log, seq, policy, view, start)
        self._newest = seq, view
        return view


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


def _scaled(sizes: dict[Category, int], tokens: int) -> dict[Category, int]:
    """Estimates, scaled so that their sum is what the provider counted; as they are if it counted nothing."""
    whole = sum(sizes.values())
    if not whole or not tokens:
        return sizes
    return {category: round(size * tokens / whole) for category, size in sizes.items()}


def _contains(path: Sequence[int], seq: int) -> bool:
    place = bisect_right(path, seq) - 1
    return place >= 0 and path[place] == seq
