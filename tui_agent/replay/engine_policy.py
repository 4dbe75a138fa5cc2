"""The shipped context engine as a policy.

Nothing is decided here: `ContextEngine` is driven as a turn drives it, what it asks for is carried out in memory, and
what it would send is the prompt. A summary is written by rule and billed as the way to it that the engine chose; one
that is written beside the conversation is there when so long a text can be written, or when the user has written a
prompt. Each answer is recorded with what the simulated call has used, so that the engine measures as it does in a
session.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar, assert_never

import msgspec

from tui_agent.agent.active_model import model_facts
from tui_agent.context.economics import LONGEST_SUMMARY
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AskWriter,
    AwaitWriting,
    Effect,
    Outcome,
    Refusal,
    SaveText,
    ShrinkImages,
    Shrunk,
    StepDone,
    Steps,
    StepStarted,
    WriteBeside,
    carry_out,
)
from tui_agent.context.engine import ContextEngine, Prepared
from tui_agent.context.layers.limits import Evicted, Whole
from tui_agent.context.summary.facts import Source
from tui_agent.context.summary.rendering import fact_sources
from tui_agent.conversation.blocks import Block, Text, ToolResult
from tui_agent.conversation.entries import Artifact, Message, ModelSwitched, Usage
from tui_agent.conversation.request import RequestMessage
from tui_agent.models.pictures import halved
from tui_agent.models.usage import cost_usd
from tui_agent.replay.billing import WRITING_SPEED, Prompt
from tui_agent.replay.policies import Setup, written_by_rule
from tui_agent.replay.script import RecordedCall, RecordedMessage, block_tokens, text_tokens
from tui_agent.replay.showing import ShownBlocks
from tui_agent.settings import Settings

T = TypeVar("T")

MOST_CALLS_BESIDE = 8
"""Calls after which a summary is there also where the recording's times say otherwise, or nothing."""


class EnginePolicy:
    """The engine under these settings. Owns it, the time, and the texts that the engine had kept.

    `texts` are the kept texts by their paths, `summaries` the summaries written so far.
    """

    def __init__(self, setup: Setup, settings: Settings) -> None:
        self._script, self._ledger, self._window = setup
        context = msgspec.structs.replace(settings.context, context_window=setup.window)
        self._now = 0.0
        self.engine = ContextEngine(
            msgspec.structs.replace(settings, context=context),
            model=model_facts(self._ledger.profile, self._ledger.small),
            clock=lambda: self._now,
        )
        self.prompt = Prompt(setup.script.fixed)
        self.compactions = 0
        self.clearings = 0
        self.texts: dict[str, str] = {}
        self.summaries: list[str] = []
        self.prepared: Prepared | None = None
        """The request of the newest call."""
        self._shown = ShownBlocks(setup.script)
        self._covered = 0, 0, 0
        self._recoveries = 0
        self._beside: tuple[Steps[None], Effect] | None = None
        self._ready_at, self._ready_after = 0.0, 0
        self.engine.extend([ModelSwitched(model=self._ledger.profile.name), setup.script.prefix])

    def before(self, call: RecordedCall) -> None:
        """Take in what arrived, and do before the call what a turn does (`agent.turn.turn`)."""
        for message in call.arrived:
            if message.is_result:
                self._pass_time(message.message.time)
                self._enter_result(message)
        self._pass_time(call.time)
        if call.starts_turn:
            self._recoveries = 0
            self.engine.turn_ended()
            self._carry_out(self.engine.prepare(between_turns=True))
            self._write_beside()
        for message in call.arrived:
            if not message.is_result:
                carried = _without_record(message.message)
                self.engine.extend([self._carry_out(self.engine.fitted(carried))])
        self._ready_after -= 1
        if self._now >= self._ready_at or not self._ready_after:
            self._write_beside()
        self._carry_out(self.engine.prepare())
        self._request()

    def after(self, call: RecordedCall, used: Usage) -> None:
        """Record the answer, with what the call used; its reasoning is billed and not carried."""
        self._pass_time(call.answer.message.time)
        answer = msgspec.structs.replace(
            _without_record(call.answer.message),
            model=self._ledger.profile.name,
            usage=msgspec.structs.replace(used, output_tokens=call.answer.tokens),
            prefix_hash=self.prepared.prefix_hash if self.prepared is not None else "",
        )
        self.engine.extend([answer])

    def _request(self) -> None:
        """Make the request; one that would not fit is made smaller, as often as a turn does that."""
        most = self.engine.settings.compaction.max_compaction_recoveries
        while True:
            if not self.engine.fits:
                self._carry_out(self.engine.recover())
            self.prepared = self.engine.request()
            self._show(self.prepared.request.messages, self.prepared.request.cache_edges)
            if self.prompt.tokens <= self._window or self._recoveries == most:
                return
            self._recoveries += 1
            self.engine.learn_limit(self._window)
            if not self._carry_out(self.engine.recover()):
                return

    def _enter_result(self, result: RecordedMessage) -> None:
        message = _without_record(result.message)
        for block in message.blocks:
            if isinstance(block, ToolResult):
                shortened = self.engine.shorten(block.text, paged=result.is_page)
                if not isinstance(shortened, Whole):
                    artifact = self._save(block.call_id, block.text, evicted=isinstance(shortened, Evicted))
                    entering = msgspec.structs.replace(block, text=shortened.text(artifact.path))
                    message = msgspec.structs.replace(message, blocks=(entering,), artifact=artifact)
        self.engine.extend([message])
        self._shown.arrived(result, len(self.engine.view.log))

    def _pass_time(self, now: float) -> None:
        self._now = max(self._now, now)

    # What the engine asks for

    def _carry_out(self, steps: Steps[T]) -> T:
        return carry_out(steps, self._perform)

    def _perform(self, effect: Effect) -> Outcome:
        match effect:
            case Append():
                self.engine.extend(effect.entries)
                return len(self.engine.view.log)
            case AskModel():
                return self._ask(effect)
            case AskWriter():
                return Refusal("a replay has no writers of its own")
            case SaveText():
                return self._save(effect.name, effect.text, evicted=True)
            case ArchiveTurns():
                path = f"conversation_history/{effect.thread}.md"
                self.texts[path] = self.texts.get(path, "") + effect.text
                return None
            case ShrinkImages():
                return Shrunk(tuple(map(halved, effect.images)))
            case WriteBeside():
                self._beside = effect.steps, next(effect.steps)
                self._ready_at, self._ready_after = self._now + LONGEST_SUMMARY / WRITING_SPEED, MOST_CALLS_BESIDE
                return None
            case AwaitWriting():
                self._write_beside(awaited=True)
                return None
            case StepStarted():
                self._covered = effect.first, effect.last, effect.writes
                return None
            case StepDone():
                if effect.entry is not None:
                    compacted = effect.step in ("summary", "checkpoint")
                    self.compactions += compacted
                    self.clearings += not compacted
                return None
            case _:
                assert_never(effect)

    def _write_beside(self, *, awaited: bool = False) -> None:
        """Write what was to be written beside the conversation; `awaited`: a call stands still until it is there."""
        if self._beside is None:
            return
        (steps, started), self._beside = self._beside, None
        bill = self._ledger.bill
        before = bill.summary_tokens
        self._perform(started)
        self._carry_out(steps)
        if not awaited:
            bill.written_beside += bill.summary_tokens - before

    def _save(self, name: str, text: str, *, evicted: bool) -> Artifact:
        path = next((path for path, kept in self.texts.items() if kept == text), f"large_tool_results/{name}")
        self.texts[path] = text
        data = text.encode()
        return Artifact(path, len(data), sha256(data).hexdigest(), evicted)

    def _ask(self, asked: AskModel) -> Answer:
        """Have a text written by rule, and bill it."""
        ledger, request = self._ledger, asked.request
        profile = ledger.small if asked.who == "small" and ledger.small is not None else ledger.profile
        said = [block for message in request.messages for block in message.blocks]
        if asked.purpose == "digest":
            digests = self.engine.settings.digests
            sources = [Source("tool", block.text) for block in said if isinstance(block, Text)]
            tokens = text_tokens("x" * digests.output_chars, factor=self._script.factor)
        else:
            sources, tokens = self._covered_sources(said)
            self._shown.will_cover(self.engine.view, *self._covered[:2])
        factor = self._script.factor
        text = written_by_rule(sources, tokens, factor)
        writes = text_tokens(text, factor=factor)
        if asked.cached:
            self._show(request.messages, request.cache_edges)
            used = ledger.summary(self.prompt, writes, self._now)
        else:
            asked_tokens = text_tokens(request.system, factor=factor) + block_tokens(said, factor)
            used = ledger.separate(profile, asked_tokens, writes)
        self.summaries.append(text)
        if asked.purpose == "digest":
            self._shown.digests.append(text)
        return Answer(text, profile.name, used, cost_usd(used, profile.prices))

    def _covered_sources(self, said: Sequence[Block]) -> tuple[list[Source], int]:
        """What the summary that is being written is to replace, and the tokens it may take; a merge knows what is said
        in its own request, and no more.
        """
        first, last, tokens = self._covered
        view = self.engine.view
        if any(first <= boundary.first <= last for boundary in view.boundaries()):
            return [Source("assistant", block.text) for block in said if isinstance(block, Text)], tokens
        groups = [group for group in view.groups() if first <= group.first <= last and not group.pinned]
        return fact_sources(groups), tokens

    def _show(self, messages: Sequence[RequestMessage], edges: Sequence[int]) -> None:
        """Make the prompt the one of this request."""
        self._shown.show(self.prompt, self.engine.view, messages, edges)


def _without_record(message: Message) -> Message:
    """What was said, without what its own session recorded of it."""
    return msgspec.structs.replace(message, usage=None, prefix_hash="", model="", artifact=None)
