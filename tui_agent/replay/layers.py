"""Our own layers as a policy: the context manager itself, over a real view.

Nothing is decided here. Before each call the manager is asked what is due, a summary is written by rule in the place of
a model, and the entries are appended to the view; what the view then shows is the prompt. Each answer is recorded with
what the simulated call has used, so that the manager measures as it does in a session.
"""

from collections.abc import Sequence

import msgspec

from tui_agent.agent.active_model import model_facts
from tui_agent.agent.model_facts import rates_of
from tui_agent.context.economics import ModelFacts, Summariser, choose_summariser
from tui_agent.context.effects import Refusal
from tui_agent.context.engine import ContextEngine
from tui_agent.context.layers.digests import DigestPlan, accept_digest
from tui_agent.context.layers.limits import Evicted, Whole
from tui_agent.context.manager import RECOVERIES, Pass
from tui_agent.context.summary.plan import SummaryPlan, accept
from tui_agent.context.summary.questions import Prompts
from tui_agent.context.summary.rendering import material
from tui_agent.conversation.blocks import Block, Text, ToolResult
from tui_agent.conversation.entries import AnyEntry, Artifact, Cleared, Message, ModelSwitched
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.sizes import size_of_block
from tui_agent.conversation.view import View
from tui_agent.replay.policy import Moment, Setup
from tui_agent.replay.prompt import Piece, Prompt
from tui_agent.replay.script import Said, text_tokens, tokens_of
from tui_agent.replay.summaries import INSTRUCTION_TOKENS, written_summary
from tui_agent.resources import prompt_text
from tui_agent.settings import Settings

HISTORY_PATH = "conversation_history/main.md"


class Layers:
    """A preset of ours. Owns the view and the manager, and keeps the prompt the same as the view."""

    def __init__(self, setup: Setup, settings: Settings) -> None:
        self.script, self.ledger, self.window = setup
        context = msgspec.structs.replace(settings.context, context_window=setup.window)
        self.settings = msgspec.structs.replace(settings, context=context)
        self.prompt = Prompt(Piece("fixed", setup.script.fixed))
        self.compactions = 0
        self.clearings = 0
        self.manager = ContextEngine(self.settings, _prompts())
        self._view = View()
        self._clock = 0.0
        self._pieces: dict[Block, Piece] = {}
        self._by_call: dict[str, Said] = {}
        self._by_entry: dict[int, Said] = {}
        self._append(ModelSwitched(model=self.ledger.profile.name), setup.script.prefix)

    def add(self, said: Said) -> None:
        """Append the message to the log; a large result as its limits let it in."""
        message = msgspec.structs.replace(said.message, usage=None, prefix_hash="", model="", artifact=None)
        if message.role == "assistant":
            usage = msgspec.structs.replace(self.ledger.newest, output_tokens=said.tokens)
            self._append(msgspec.structs.replace(message, model=self.ledger.profile.name, usage=usage))
            self.manager.meter.measure(self._view, usage)
            return
        for block in message.blocks:
            if isinstance(block, ToolResult):
                message = self._limited(message, block)
                self._by_call[block.call_id] = said
        self._append(message)
        if said.is_result:
            self._by_entry[len(self._view.log)] = said

    def prepare(self, moment: Moment) -> None:
        """Do what the manager says is due."""
        self._clock = moment.now
        self._show()
        if moment.starts_turn:
            self.manager.turn_ended()
        due = self.manager.due(self._view, self._facts(), moment.now, between_turns=moment.starts_turn)
        plan = due.checkpoint or due.summary
        if plan is not None:
            self._summarise(plan, moment)
        else:
            self._do(due)
        budget = self.manager.budget(self._view, self._facts())
        if not budget.fits(self.manager.tokens(self._view)):
            self._recover(moment)
        self._mark_edge()

    def _facts(self) -> ModelFacts:
        profile = msgspec.structs.replace(self.ledger.profile, window=self.window)
        return model_facts(profile, self.manager.tokens(self._view), self.ledger.small)

    def _summarise(self, plan: SummaryPlan, moment: Moment) -> None:
        text = written_summary(plan.facts.mentions, plan.replaced)
        cold = self.manager.cache(self._view, self._facts(), moment.now).cold
        if not self._accept(plan, text):
            return
        self._pay(plan, text_tokens(text), moment, cold=cold)
        self._show()
        follow_up = self.manager.follow_up(self._view, self._facts(), moment.now, kept_from=plan.kept_from)
        self._do(follow_up)

    def _accept(self, plan: SummaryPlan, text: str) -> bool:
        tokens_of_view = self.manager.tokens_of(self._view)
        accepted = accept(plan, text, self.settings.compaction, path=HISTORY_PATH, tokens_of=tokens_of_view)
        if isinstance(accepted, Refusal):
            self.manager.backoff = self.manager.backoff.failed()
            return False
        self._append(*accepted.entries)
        self.manager.backoff = self.manager.backoff.succeeded()
        self.compactions += 1
        return True

    def _pay(self, plan: SummaryPlan, writes: int, moment: Moment, *, cold: bool) -> None:
        """Have the summary written by the way that is cheaper; the prompt still is what it was before."""
        profile, small = self.ledger.profile, self.ledger.small
        same = Summariser(
            profile.id,
            rates_of(profile.prices, plan.before),
            plan.before,
            INSTRUCTION_TOKENS,
            writes,
            self.window,
            not cold,
        )
        separate = None
        reads = text_tokens(material(plan.parts)) + text_tokens(plan.questions.separate)
        if small is not None:
            separate = Summariser(small.id, rates_of(small.prices, reads), reads, 0, writes, small.window, False)
        if choose_summariser(same, separate).way == "separate":
            self.ledger.separate(reads, writes)
        else:
            self.ledger.summary(self.prompt, INSTRUCTION_TOKENS, writes, moment.now)

    def _do(self, due: Pass) -> None:
        if due.digest is not None:
            self._digest(due.digest)
        if due.cleared is not None:
            self._append(due.cleared)
            self.clearings += 1
        self._show()

    def _digest(self, plan: DigestPlan) -> None:
        if self.settings.digests.strategy == "llm":
            reads = text_tokens(plan.instruction) + text_tokens(plan.material)
            self.ledger.separate(reads, text_tokens(plan.by_rule))
        self._append(accept_digest(plan))
        self.clearings += 1

    def _recover(self, moment: Moment) -> None:
        """Make the request smaller by the ways that need no model, until it fits."""
        for way, only_if_enough in RECOVERIES:
            plan = self.manager.recovery(self._view, self._facts(), moment.now, way)
            budget = self.manager.budget(self._view, self._facts())
            if plan is None or (only_if_enough and not budget.fits(plan.after)):
                continue
            if isinstance(plan, Cleared):
                self._do(Pass(cleared=plan))
            else:
                self._accept(plan, plan.extract)
                self._show()
            if budget.fits(self.manager.tokens(self._view)):
                return

    def _append(self, *entries: AnyEntry) -> None:
        for entry in entries:
            self._view.apply(self._view.log.stamp(entry, self._clock))

    def _limited(self, message: Message, result: ToolResult) -> Message:
        history = self.manager.budget(self._view, self._facts()).history
        entering = self.manager.shorten(self._view, result.text, history_budget=history, paged=False)
        if isinstance(entering, Whole):
            return message
        path = f"large_tool_results/{result.call_id}"
        short = msgspec.structs.replace(result, text=entering.text(path))
        artifact = Artifact(path, len(entering.source.encode()), "", isinstance(entering, Evicted))
        return msgspec.structs.replace(message, blocks=(short,), artifact=artifact)

    def _mark_edge(self) -> None:
        """Mark the cache where the agent does: at the edge of the protected tail."""
        messages = self._view.messages()
        edge = self.manager.protected_edge(self._view, self._facts(), messages)
        self.prompt.edge = 1 + sum(len(message.blocks) for message in messages[: edge + 1]) if edge >= 0 else 0

    def _show(self) -> None:
        """Bring the prompt up to date with the view."""
        shown = [self.prompt.pieces[0], *self._shown(self._view.messages())]
        old = self.prompt.pieces
        start = _common(old, shown)
        if start == len(old):
            for piece in shown[start:]:
                self.prompt.append(piece)
        else:
            end = _common(old[start:][::-1], shown[start:][::-1])
            self.prompt.splice(start, len(old) - end, shown[start : len(shown) - end])

    def _shown(self, messages: Sequence[RequestMessage]) -> list[Piece]:
        pieces = []
        for message in messages:
            for block in message.blocks:
                piece = self._pieces.get(block)
                if piece is None:
                    piece = self._pieces[block] = self._piece(block)
                pieces.append(piece)
        return pieces

    def _piece(self, block: Block) -> Piece:
        tokens = tokens_of(size_of_block(block))
        match block:
            case ToolResult() if (said := self._by_call.get(block.call_id)) is not None:
                if block.text == said.text:
                    return Piece("result", tokens, said.facts, said=said)
                return Piece("cleared", tokens, self.script.facts_in(block.text), (said,), said, block.text)
            case Text() if (span := self._span(block.text)) is not None:
                leads = tuple(said for seq, said in self._by_entry.items() if span[0] <= seq <= span[1])
                return Piece("summary", tokens, self.script.facts_in(block.text), leads, text=block.text)
            case _:
                return Piece("user", tokens, self.script.facts_of(block))

    def _span(self, text: str) -> tuple[int, int] | None:
        """The first and last entry that the boundary with this text covers, if it is one."""
        found = (boundary for boundary in self._view.boundaries() if boundary.text == text)
        return next(((boundary.first, boundary.last) for boundary in found), None)


def _common(one: Sequence[Piece], other: Sequence[Piece]) -> int:
    """How many of the first pieces are the same."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if one[place] is not other[place])


def _prompts() -> Prompts:
    return Prompts(**{name: prompt_text(name) for name in Prompts.__struct_fields__})
