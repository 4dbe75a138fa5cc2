"""What the layers decide on before a call: each is asked in turn, knowing what those before it decided."""

from typing import NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.context.compaction.plan import Plan
from tui_agent.context.economics import Situation
from tui_agent.context.effects import NotYet, Refusal
from tui_agent.context.layers.clearing import ClearingLayer
from tui_agent.context.layers.compaction import CheckpointLayer, CompactionLayer
from tui_agent.context.layers.digests import DigestLayer, DigestPlan
from tui_agent.context.layers.episodes import EpisodeLayer
from tui_agent.conversation.entries import AnyContextEntry, Cleared, Shortened
from tui_agent.conversation.view import View

Decision: TypeAlias = AnyContextEntry | Plan | DigestPlan | NotYet | Refusal
"""What a layer answers: an entry to append, or a summary or digest to have written; `NotYet`; or a refusal if one is
due, but impossible.
"""


class Layer(Protocol):
    """A way to keep the context small, asked before each call. It reads the view and changes nothing, itself included:
    the engine carries out its decision, and remembers what has to be remembered.
    """

    def plan(self, view: View, situation: Situation, /) -> Decision | None:
        """What is due now, with its reason and sizes before and after; None if nothing is."""
        ...


class Due(msgspec.Struct, frozen=True):
    """What the layers have decided on in the situation `here`; the first that succeeds is all that is done."""

    here: Situation
    summary: Decision | None = None
    digest: DigestPlan | None = None
    cleared: Decision | None = None
    folded: Shortened | None = None


class Layers(NamedTuple):
    """The built-in layers."""

    checkpoints: CheckpointLayer
    clearing: ClearingLayer
    compaction: CompactionLayer
    digests: DigestLayer
    episodes: EpisodeLayer

    def due(self, view: View, here: Situation) -> Due:
        summary: Decision | None = self.checkpoints.plan(view, here)
        if summary is not None:
            # The next task is to begin without the finished one, so its first request waits for the record.
            here = structs.replace(here, in_background=False)
        cleared = None if summary else self.clearing.plan(view, here)
        known = structs.replace(here, cleared=cleared if isinstance(cleared, Cleared) else None)
        if summary is None:
            summary = self.compaction.plan(view, known)
        # A summary takes the place of the others, unless it fails.
        return Due(here, summary, self.digests.plan(view, here), cleared, self.episodes.plan(view, known))
