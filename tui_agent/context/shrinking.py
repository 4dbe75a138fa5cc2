"""Shrinks a request that does not fit, without asking a model."""

from collections.abc import Collection, Sequence

from msgspec import structs

from tui_agent.context.changes import preview_change
from tui_agent.context.compaction.plan import Plan, merge_of, plan_compaction
from tui_agent.context.economics import Situation
from tui_agent.context.effects import SaveText, ShrinkImages, Shrunk, Steps, expect
from tui_agent.context.layers.clearing import Clearing
from tui_agent.context.layers.pictures import (
    PICTURE_PASSES,
    REFUSED,
    TOO_MUCH,
    Change,
    changed,
    plan_fewer,
    plan_without,
    to_shrink,
)
from tui_agent.context.layers.recovery import (
    KEPT_SHARE,
    OVERFLOW_STEPS,
    TOO_LARGE,
    OverflowStep,
    pictures_in,
    plan_shortening,
    shortened,
    text_to_keep,
)
from tui_agent.context.state import ContextState
from tui_agent.context.summaries import Summaries
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Artifact, Shortened


class Shrinking:
    """Brings the request of one conversation below its model's limit."""

    def __init__(self, state: ContextState, clearing: Clearing, summaries: Summaries) -> None:
        self._state = state
        self._view = state.view
        self._clearing = clearing
        self._summaries = summaries

    def recover(self) -> Steps[bool]:
        """Shrink the next request without asking a model; True if it is smaller now and fits.

        Waits for a summary that is being written, even if by our own count the request fits, and enters a finished one.
        """
        start = self._state.tokens
        waited = yield from self._summaries.await_writing()
        yield from self._summaries.settle(waited_s=waited)
        if self._state.tokens < start and self._state.fits:
            return True
        for _ in PICTURE_PASSES:
            if fewer := plan_fewer(self._view, self._state.model):
                yield from self._change_pictures(fewer, TOO_MUCH)
        if self._state.tokens < start and self._state.fits:
            return True
        for way in OVERFLOW_STEPS:
            yield from self._recover_by(way)
            if self._state.tokens < start and self._state.fits:
                return True
        return self._state.tokens < start

    def give_way(self, refused: Collection[Image], *, others: bool) -> Steps[bool]:
        """Shrink pictures, or replace them by notes, after the provider refused one; False if nothing changed.

        `refused`: those it named (empty: it may be any). `others`: it has refused one before in this turn.
        """
        changes = plan_without(self._view, refused, others=others)
        if changes:
            yield from self._change_pictures(changes, REFUSED)
        return bool(changes)

    def _recover_by(self, way: OverflowStep) -> Steps[None]:
        here = self._state.situation(between_turns=False)
        match way:
            case "clear_old" | "clear_newest":
                cleared = self._clearing.asked_for(self._view, here, keep=0 if way == "clear_newest" else None)
                if cleared is not None:
                    yield from self._state.change(structs.replace(cleared, reason=TOO_LARGE))
            case "extract" | "extract_if_enough":
                keep = int(min(here.budget.limit or here.tokens, here.tokens) * KEPT_SHARE)
                settings = self._state.settings.compaction
                plan = plan_compaction(
                    self._view, here, settings, trigger=None, asked=True, keep=keep, reason=TOO_LARGE
                )
                if isinstance(plan, Plan) and (way == "extract" or here.budget.fits(plan.after)):
                    yield from self._summaries.extract(plan)
                elif way == "extract" and len(shown := self._view.boundaries()) > 1:
                    yield from self._summaries.extract(merge_of(shown, self._view, here, settings))
            case "shorten":
                yield from self._shorten(here)

    def _shorten(self, here: Situation) -> Steps[None]:
        targets = plan_shortening(self._view, here)
        if not targets:
            return
        pictures, smaller = pictures_in(targets), dict[Image, Image]()
        if pictures:
            made = yield ShrinkImages(pictures)
            smaller = dict(zip(pictures, made.images, strict=True)) if isinstance(made, Shrunk) else {}
        blocks = []
        for target in targets:
            kept, path = text_to_keep(target), target.path
            if kept:
                path = expect(Artifact, (yield SaveText(f"message-{target.seq}", kept))).path
            blocks.append(shortened(target, path=path, smaller=smaller))
        entry = Shortened(
            items=tuple(target.seq for target in targets), blocks=tuple(blocks), reason=TOO_LARGE, before=here.tokens
        )
        after = preview_change(self._view, [entry], here).after
        if after < here.tokens:
            yield from self._state.change(structs.replace(entry, after=after))

    def _change_pictures(self, changes: Sequence[Change], reason: str) -> Steps[None]:
        before, wanted, smaller = self._state.tokens, to_shrink(changes), dict[Image, Image]()
        if wanted:
            made = yield ShrinkImages(wanted)
            smaller = dict(zip(wanted, made.images, strict=True)) if isinstance(made, Shrunk) else {}
        entry = Shortened(
            items=tuple(change.seq for change in changes),
            blocks=tuple(changed(change, smaller) for change in changes),
            reason=reason,
            before=before,
        )
        after = preview_change(self._view, [entry], self._state.situation(between_turns=False)).after
        yield from self._state.change(structs.replace(entry, after=after))
