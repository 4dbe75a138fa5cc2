"""The context engine: the owner of a conversation's view, token meter, model facts and layers.

Before every model call it decides what context work to do, at the moments when that costs least; between those, a
request only grows, byte for byte. The engine is pure: to write, save or ask a model it yields an effect (`effects`),
which its caller carries out.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import structs
from typing_extensions import override

from tui_agent.context.cache_watch import ColdSend, cold_send
from tui_agent.context.changes import (
    PreviewedStep,
    StepPreview,
    plan_pin,
    plan_restore,
    plan_undo,
    plan_unpin,
    plan_words,
    preview_clearing,
    preview_draft,
    preview_plan,
)
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.compaction.questions import Prompts
from tui_agent.context.compaction.writing import CompactionResult
from tui_agent.context.counting import Ratios
from tui_agent.context.economics import LayerPreview, Situation
from tui_agent.context.effects import Refusal, SaveText, StepDone, Steps, expect
from tui_agent.context.layers.checkpoints import Checkpoints
from tui_agent.context.layers.clearing import Clearing, stays
from tui_agent.context.layers.compaction import Compaction
from tui_agent.context.layers.digests import Digests
from tui_agent.context.layers.limits import Shortened as ShortenedText
from tui_agent.context.layers.limits import Whole, eviction_tokens, shorten, shorten_prompt
from tui_agent.context.layers.recovery import TOO_LARGE
from tui_agent.context.shrinking import Shrinking
from tui_agent.context.state import ContextState
from tui_agent.context.stats import ContextStats, counts, marks, next_layer
from tui_agent.context.summaries import Summaries
from tui_agent.conversation.blocks import Image, Text
from tui_agent.conversation.entries import AnyContextEntry, Artifact, Message, Words
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

LONGEST_ANSWER = 16_384
"""The longest answer to ask for if the window is unknown, in tokens."""

PAGE_BYTES_PER_TOKEN = 2
"""Bytes assumed for a token when sizing a page: few enough for any script."""


class Layer(Protocol):
    """A way to keep the context small: before a call, it may return an entry to append."""

    @property
    def name(self) -> str: ...

    def plan(self, view: View, situation: Situation, /) -> AnyContextEntry | None:
        """The entry that is due now, with its reason and sizes before and after; None if none is."""
        ...


class Prepared(NamedTuple):
    """The next request, of about `tokens` tokens. `prefix_hash`: to store with the answer."""

    request: ModelRequest
    tokens: int
    prefix_hash: str


class ContextEngine(ContextState):
    """Decides on context work for one conversation, whose `view` it owns.

    `never_clear`: folders (of memory and skills); results of reading their files are never cleared. `more`: custom
    layers, asked after the built-in ones. `thread`: the name of the history to which replaced turns go. For the other
    parameters see `ContextState`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        prompts: Prompts | None = None,
        view: View | None = None,
        model: ModelProfile | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        never_clear: Collection[str] = (),
        checkpoints: bool = True,
        own_writers: Collection[str] = (),
        thread: str = "main",
        more: Sequence[Layer] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        settings = settings or Settings()
        super().__init__(
            settings,
            view=view,
            model=model,
            ratios=ratios,
            task_threshold=task_threshold,
            own_writers=own_writers,
            clock=clock,
        )
        prompts = prompts or Prompts.shipped()
        preset, never = settings.context.preset, stays(settings.clearing, never_clear)
        self.checkpoints = Checkpoints(settings, on=checkpoints)
        self.clearing = Clearing(settings.clearing, never, on=preset in ("layered", "digest"))
        self.compaction = Compaction(settings)
        self.digests = Digests(settings.digests, prompts.digest, on=preset == "digest")
        self.more = tuple(more)
        self._summaries = Summaries(self, self.compaction, self.clearing, self.digests, prompts, thread)
        self._shrinking = Shrinking(self, self.clearing, self._summaries)
        self._sent = 0
        self._edge: tuple[int, int] | None = None

    @override
    def use(self, model: ModelProfile) -> None:
        """Decide for this model from now on; also call it when more became known of the present one."""
        if model.name != self.model.name:
            self._sent = 0
        super().use(model)

    def follow(self, settings: Settings) -> None:
        """Decide by these settings from now on, after a change of policy."""
        self.settings = settings
        self.compaction.follow(settings)
        self.checkpoints.follow(settings)

    def turn_ended(self) -> None:
        """Note the end of a turn."""
        self.compaction.backoff = self.compaction.backoff.turn_ended()

    # Limits on what enters

    def shorten(self, text: str, *, paged: bool) -> ShortenedText:
        """Cut a raw tool result to what enters the conversation; `paged`: the tool returned a page of limited size."""
        return shorten(
            text,
            self.settings.output,
            history_budget=self.budget.history,
            tokens_of=lambda each: self.meter.tokens_of_text(self.view, each),
            paged=paged,
        )

    @property
    def page_bytes(self) -> int:
        """The most bytes of one page, so that it is never large enough to be evicted."""
        return PAGE_BYTES_PER_TOKEN * eviction_tokens(self.settings.output, self.budget.history)

    def fitted(self, said: Message) -> Steps[Message]:
        """Cut the user's words to what enters the conversation: a text too large for the window goes to a file."""
        budget = self.budget
        text = "\n\n".join(block.text for block in said.blocks if isinstance(block, Text))
        short = shorten_prompt(
            text,
            self.settings.output,
            history_budget=budget.history,
            tokens_of=lambda each: self.meter.tokens_of_text(self.view, each, "prose"),
        )
        if not budget.known or isinstance(short, Whole):
            return said
        artifact = expect(Artifact, (yield SaveText(f"prompt-{len(self.view.log) + 1}", text)))
        others = tuple(block for block in said.blocks if not isinstance(block, Text))
        return structs.replace(said, blocks=(Text(short.text(artifact.path)), *others), artifact=artifact)

    # Before a call

    def prepare(self, *, between_turns: bool = False) -> Steps[None]:
        """Do all context work that is due before the next call, in one pass.

        A summary is written in the background, and entered before the first call after it is done; this waits for it
        only if the next request does not fit. Until then the other layers leave the entries it replaces alone.
        """
        waited = 0.0 if self.fits else (yield from self._summaries.await_writing())
        if self._summaries.writing is None and not waited:
            yield from self._look(between_turns=between_turns)
        else:
            yield from self._summaries.settle(waited_s=waited)
        for layer in self.more:
            entry = layer.plan(self.view, self.situation(between_turns=between_turns))
            if entry is not None:
                yield from self.change(entry)

    def _look(self, *, between_turns: bool) -> Steps[None]:
        """Find the layer that is due, and do what it plans."""
        here = self.situation(between_turns=between_turns)
        checkpoint = None if self.compaction.backoff.resting else self.checkpoints.plan(self.view, here)
        cleared = None if checkpoint else self.clearing.plan(self.view, here)
        beside = self.settings.compaction.background and self.fits
        summary = checkpoint or self.compaction.plan_with(self.view, here, cleared, beside=beside)
        if summary is not None and beside:
            yield from self._summaries.begin_beside(summary)
            return
        began = self.clock()
        draft = (yield from self._summaries.write(summary)) if summary is not None else None
        if isinstance(draft, Draft):
            yield from self.enter(draft, waited_s=self.clock() - began)
        else:
            yield from self._summaries.digest_and_clear(self.digests.plan(self.view, here), cleared)

    def request(self) -> Prepared:
        """The next request, with cache breakpoints at the edge of the protected tail and at the end of the last
        request.
        """
        messages = tuple(self.view.messages())
        edges = {self._protected_edge(len(messages)), self._sent - 1}
        self._sent = len(messages)
        prefix = self.view.prefix
        request = ModelRequest(
            system=prefix.system if prefix else "",
            tools=self.tools_of(prefix),
            messages=messages,
            max_tokens=self.budget.reserve or LONGEST_ANSWER,
            cache_edges=tuple(sorted(edge for edge in edges if 0 <= edge < len(messages) - 1)),
        )
        return Prepared(request, self.tokens, self.view.prefix_hash())

    def _protected_edge(self, messages: int) -> int:
        """The index of the last message before the protected tail, in which nothing is cleared; -1: there is none.

        It stays where the last edit left it: the part before it is read from the cache by every call, which keeps it
        cached, while a moving breakpoint would be written again each time.
        """
        edited = self.view.edits
        if self._edge is None or self._edge[0] != edited or self._edge[1] >= messages:
            tokens_of, protected = self.meter.mixed_tokens_of(self.view), self.protected_tokens
            self._edge = (edited, self.view.before_tail(lambda size: tokens_of(size) <= protected).messages - 1)
        return self._edge[1]

    def recover(self) -> Steps[bool]:
        """Shrink the next request without asking a model; True if it is smaller now and fits."""
        return self._shrinking.recover()

    def give_way(self, refused: Collection[Image], *, others: bool) -> Steps[bool]:
        """Shrink pictures, or replace them by notes, after the provider refused one; False if nothing changed.

        `refused`: those it named (empty: it may be any). `others`: it has refused one before in this turn.
        """
        return self._shrinking.give_way(refused, others=others)

    # Steps that the user asks for

    def clear_results(self) -> Steps[StepDone | Refusal]:
        """Clear all old results now, however small they are."""
        before = self.tokens
        cleared = self.clearing.asked_for(self.view, self.situation(between_turns=True))
        if cleared is not None:
            return (yield from self.change(cleared))
        if not self.fits and (yield from self.recover()):
            return StepDone("shortened", before, self.tokens, TOO_LARGE)
        return self._nothing_to_clear()

    def _nothing_to_clear(self) -> Refusal:
        keep = self.settings.clearing.keep
        return Refusal(f"There is nothing to clear: the newest {keep} results and pins stay.")

    def clear_items(self, items: Sequence[int]) -> Steps[StepDone | Refusal]:
        """Clear these results now, even the newest."""
        cleared = self.clearing.asked_for(self.view, self.situation(between_turns=True), keep=0, only=items)
        return (
            yield from self._asked_change(
                cleared
                or Refusal(
                    "Only a tool result that is shown whole, is not pinned, and is larger than its placeholder can be "
                    "cleared."
                )
            )
        )

    def pin(self, items: Sequence[int], *, pinned: bool = True) -> Steps[StepDone | Refusal]:
        """Pin messages or results, each with its group, or unpin them."""
        here = self.situation(between_turns=True)
        share = self.settings.context.pins_share
        plan = plan_pin(self.view, items, here, share=share) if pinned else plan_unpin(self.view, items, here)
        return (yield from self._asked_change(plan))

    def restore(self, items: Sequence[int], texts: Sequence[str] = ()) -> Steps[StepDone | Refusal]:
        """Restore messages or results to full text; `texts`: see `plan_restore`."""
        here = self.situation(between_turns=True)
        return (yield from self._asked_change(plan_restore(self.view, items, here, texts=texts)))

    def edit_words(self, edits: Sequence[Words]) -> Steps[StepDone | Refusal]:
        """Change the kept words of the user's messages; an empty text drops those of a message."""
        here = self.situation(between_turns=True)
        return (yield from self._asked_change(plan_words(self.view, edits, here, self.settings.compaction)))

    def undo(self, target: int | None = None) -> Steps[StepDone | Refusal]:
        """Undo a context step, by default the newest."""
        here = self.situation(between_turns=True)
        return (yield from self._asked_change(plan_undo(self.view, here, target=target)))

    def _asked_change(self, plan: AnyContextEntry | Refusal) -> Steps[StepDone | Refusal]:
        return plan if isinstance(plan, Refusal) else (yield from self.change(plan))

    # Summaries

    def compact(self, step: Literal["compact", "checkpoint"] = "compact", subject: str = "") -> Steps[CompactionResult]:
        """Write a summary or completion record and enter it without review.

        If nothing can be summarised and the request does not fit, shrink it as `recover` does.
        """
        before = self.tokens
        draft = yield from self.draft(step, subject)
        if isinstance(draft, Draft):
            result = yield from self.enter(draft)
            # Free the turns one by one: freeing all of a long conversation at once would block every thread.
            parts: list[object] = [*draft.plan.leaving, *draft.material.parts]
            del draft
            while parts:
                parts.pop()
            return result
        if step == "compact" and not self.fits and (yield from self.recover()):
            return CompactionResult(before, self.tokens, len(self.view.log), draft.reason)
        return CompactionResult(before, before, error=draft.reason)

    def draft(self, step: Literal["compact", "checkpoint"], subject: str = "") -> Steps[Draft | Refusal]:
        """Write a summary or completion record without changing the conversation."""
        return self._summaries.draft(step, subject)

    def current(self, draft: Draft, text: str | None = None) -> Draft | Refusal:
        """The draft for the present view, with another `text` if given; a refusal if it no longer applies."""
        return self._summaries.current(draft, text)

    def enter(self, draft: Draft, text: str | None = None, *, waited_s: float = 0.0) -> Steps[CompactionResult]:
        """Enter a draft, with another text if given, together with other context work that is due then."""
        return self._summaries.enter(draft, text, waited_s=waited_s)

    def settle(self) -> Steps[None]:
        """Enter the summary that was written in the background, if there is one and it still applies."""
        return self._summaries.settle()

    @property
    def writing(self) -> Plan | None:
        """The plan of the summary that is being written in the background or waits to be entered."""
        return self._summaries.writing

    @property
    def written(self) -> bool:
        """Whether a summary that was written in the background waits to be entered."""
        return self._summaries.written

    def still_holds(self) -> bool:
        """Whether the summary that is being written could still be entered. Reads everything it replaces."""
        return self._summaries.still_holds()

    # Previews and figures

    def preview(self, step: PreviewedStep, subject: str = "") -> StepPreview | Refusal:
        """Preview a step's effects and cost: exact for clearing, estimated for a summary. Copies the view."""
        here = self.situation(between_turns=True)
        if step == "clear":
            cleared = self.clearing.asked_for(self.view, here)
            return self._nothing_to_clear() if cleared is None else preview_clearing(self.view, here, cleared)
        plan = self._summaries.plan(step, subject)
        if isinstance(plan, Refusal):
            return plan
        return preview_plan(self.view, here, plan, self._summaries.expected_usd(plan))

    def preview_draft(self, draft: Draft) -> StepPreview:
        """Preview the effects and cost of entering a written summary. Copies the view."""
        return preview_draft(self.view, self.situation(between_turns=True), draft)

    def preview_layer(self, layer: str) -> LayerPreview:
        """What the layer ``clear`` or ``compact`` would do if it acted now; empty for any other."""
        here = self.situation(between_turns=False)
        match layer:
            case "clear":
                return self.clearing.preview(self.view, here)
            case "compact":
                return self.compaction.preview(here)
            case _:
                return LayerPreview()

    def stats(self) -> ContextStats:
        """How full the window is, what comes next, and what was done; the caller adds costs and models."""
        tokens, budget, limits, done = self.tokens, self.budget, self.thresholds, counts(self.view)
        return ContextStats(
            model=self.model.name,
            tokens=tokens,
            window=budget.window,
            reserve=budget.reserve,
            measured=self.meter.measured,
            categories=self.meter.breakdown(self.view),
            messages=done.messages,
            evicted=done.evicted,
            cleared=done.cleared,
            digested=done.digested,
            compactions=done.compactions.count,
            checkpoints=done.checkpoints.count,
            summarised_chars=done.summarised_chars,
            summaries=done.summaries,
            depth=done.depth,
            waits=done.waits,
            waited_s=done.waited_s,
            reasoning_dropped=self.view.reasoning_dropped(),
            last_compaction=done.compactions,
            last_checkpoint=done.checkpoints,
            marks=marks(limits, budget.window),
            next_layer=next_layer(tokens, limits, self.preview_layer),
        )

    def cold_send(self) -> ColdSend | None:
        """The warning if the next request has a cold cache; None if there is nothing to warn of."""
        cache = self.cache
        if not cache.cold or self.view.last_call is None:
            return None
        here, least = self.situation(between_turns=False), self.settings.context.cold_notice_usd
        return cold_send(here, cache, self.preview_layer("compact"), at_least_usd=least)
