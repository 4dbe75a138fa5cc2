"""Having a summary written: the ways in order, until one gives a text that is accepted."""

import math
from contextlib import aclosing
from typing import Literal, NamedTuple, TypeAlias

from tui_agent.agent.cost_ceiling import CostCeiling, CostCeilingReached, probably_cached
from tui_agent.agent.metering import Meter
from tui_agent.agent.model_facts import rates_of
from tui_agent.agent.record import Record
from tui_agent.context import pricing
from tui_agent.context.compaction import EXTRACTED, Accepted, Author, CompactionPlan, accept
from tui_agent.context.counting import estimate
from tui_agent.context.digests import DigestPlan
from tui_agent.context.manager import ContextManager
from tui_agent.context.refusal import Refusal
from tui_agent.context.situation import Rates
from tui_agent.context.summarising import Attempt, Way, attempts, joined, merged
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.view import ReasoningPolicy, RequestMessage, View
from tui_agent.models.base import Completed, Metered, Model, ModelError, Retrying
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.usage import Totals, UsageTracker
from tui_agent.settings import Settings

ATTEMPTS = 2
"""How often one request is tried before the next way is taken."""
ANSWER_TOKENS = 4_096
"""The longest summary a model may write."""


class OutOfMoney(Refusal):
    """No model may be asked: the cost ceiling is reached."""


class Written(NamedTuple):
    """A summary that was accepted, the way it came about, what failed before, and what all of it has cost in USD.

    `spent_usd` is None where a price is not known.
    """

    accepted: Accepted
    how: str
    failures: tuple[str, ...] = ()
    spent_usd: float | None = 0.0


_Purpose: TypeAlias = Literal["summary", "digest"]


class _Answer(NamedTuple):
    text: str
    model: str
    usage: Usage
    cost_usd: float | None


class Summarizer:
    """Asks models for summaries of one conversation. `small` is a cheaper model on its own, or None.

    Its calls stop at the session's `ceiling` as every other does.
    """

    def __init__(
        self, manager: ContextManager, tracker: UsageTracker, settings: Settings, ceiling: CostCeiling, record: Record
    ) -> None:
        self._manager = manager
        self._tracker = tracker
        self._meter = Meter(record, tracker)
        self._ceiling = ceiling
        self.settings = settings

    async def write(
        self, plan: CompactionPlan, view: View, model: Model, small: Model | None, *, path: str, cold: bool
    ) -> Written | Refusal:
        """The summary of `plan`; `path` is where its archive lies. Raises `StorageError`.

        Every failure of a model leads to the next way, the last of which needs none; the cost ceiling leads to none.
        """
        choice = self._choose(plan, model, small, cold=cold)
        room = self._room(small) if small is not None else self._room(model)
        tokens_of = self._manager.tokens_of(view)
        ways = attempts(plan, same_prefix=choice.way == "same_prefix", room=room, tokens_of=tokens_of)
        failures: list[str] = []
        started = self._tracker.session
        for way in ways:
            try:
                text, author = await self._try(way, plan, view, model, small or model)
            except CostCeilingReached as reached:
                # A lesser summary is no answer to it: the user decides whether the session goes on.
                return OutOfMoney(f"{reached.message} /resume-after-cost-ceiling lets the session go on.")
            except ModelError as error:
                failures.append(f"{way.way}: {error.message}")
                continue
            accepted = accept(plan, text, self.settings.compaction, path=path, tokens_of=tokens_of, author=author)
            if isinstance(accepted, Accepted):
                return Written(accepted, _how(way.way, choice), tuple(failures), _spent(started, self._tracker.session))
            failures.append(f"{way.way}: {accepted.reason}")
        return Refusal(failures[-1] if failures else "No way to a summary was found.")

    async def digest(self, plan: DigestPlan, model: Model) -> str:
        """The digest's text; empty where the model failed or none is to be asked."""
        if self.settings.digests.strategy != "llm":
            return ""
        try:
            answer = await self._ask_alone(model, plan.instruction, plan.material, "digest")
        except ModelError:
            return ""
        return answer.text

    async def _try(
        self, way: Attempt, plan: CompactionPlan, view: View, model: Model, separate: Model
    ) -> tuple[str, Author]:
        match way.way:
            case "same_prefix":
                tokens = self._manager.tokens(view) + _tokens(way.instruction)
                cached = probably_cached(view.last_call, model.profile)
                with self._ceiling.calling(model.profile, tokens, cached):
                    return _as_written([await self._ask(model, self._same_prefix(view, model, way.instruction))])
            case "whole":
                return _as_written([await self._ask_alone(separate, way.instruction, way.materials[0])])
            case "parts":
                return await self._in_parts(way, plan, separate)
            case "extract":
                return way.text, EXTRACTED

    async def _in_parts(self, way: Attempt, plan: CompactionPlan, separate: Model) -> tuple[str, Author]:
        answers = [await self._ask_alone(separate, way.instruction, part) for part in way.materials]
        texts = [answer.text for answer in answers]
        putting = merged(plan, texts)
        try:
            whole = await self._ask_alone(separate, putting.instruction, putting.materials[0])
        except ModelError:
            return joined(plan, texts), _as_written(answers)[1]
        return whole.text, _as_written([*answers, whole])[1]

    def _choose(self, plan: CompactionPlan, model: Model, small: Model | None, *, cold: bool) -> pricing.Choice:
        instruction = math.ceil(size_of_text(plan.questions.same_prefix).characters / 3)
        same = pricing.Summariser(
            model=model.profile.name,
            rates=_rates(model, plan.before),
            reads=plan.before,
            instruction=instruction,
            writes=ANSWER_TOKENS // 2,
            limit=self._room(model),
            cached=not cold,
        )
        if small is None or small.profile.name == model.profile.name:
            return pricing.choose_summariser(same, None)
        material = math.ceil(sum(map(len, plan.parts)) / 3)
        alone = pricing.Summariser(
            model=small.profile.name,
            rates=_rates(small, material),
            reads=material,
            instruction=instruction,
            writes=ANSWER_TOKENS // 2,
            limit=self._room(small),
            cached=False,
        )
        return pricing.choose_summariser(same, alone)

    def _room(self, model: Model) -> int:
        window = model.profile.window or self.settings.context.default_window
        return window - min(ANSWER_TOKENS, window // 4)

    def _same_prefix(self, view: View, model: Model, instruction: str) -> ModelRequest:
        profile, prefix = model.profile, view.prefix
        messages = view.messages(ReasoningPolicy(profile.name, profile.bound_reasoning))
        asked = RequestMessage("user", (Text(instruction),))
        if messages and messages[-1].role == "user":
            asked = RequestMessage("user", (*messages.pop().blocks, *asked.blocks))
        return ModelRequest(
            system=prefix.system if prefix else "",
            tools=prefix.tools if prefix else (),
            messages=(*messages, asked),
            max_tokens=ANSWER_TOKENS,
            cache_edges=(len(messages) - 1,) if messages else (),
        )

    async def _ask_alone(self, model: Model, instruction: str, material: str, purpose: _Purpose = "summary") -> _Answer:
        with self._ceiling.calling(model.profile, _tokens(instruction) + _tokens(material)):
            return await self._ask(model, _alone(instruction, material), purpose)

    async def _ask(self, model: Model, request: ModelRequest, purpose: _Purpose = "summary") -> _Answer:
        try:
            completed = await self._completed(model, request)
            cost = await self._meter.spent(model.profile, completed.usage, purpose)
        finally:
            await self._meter.broke_off()
        text = "\n\n".join(block.text for block in completed.blocks if isinstance(block, Text))
        return _Answer(text, model.profile.name, completed.usage, cost)

    async def _completed(self, model: Model, request: ModelRequest) -> Completed:
        async with aclosing(stream_with_retries(model, request, attempts=ATTEMPTS)) as stream:
            async for event in stream:
                match event:
                    case Metered():
                        self._meter.told(model.profile, event.usage)
                    case Retrying():
                        await self._meter.broke_off()
                    case Completed():
                        return event
                    case _:
                        pass
        raise ModelError("The model ended its answer without completing it.")


def _alone(instruction: str, material: str) -> ModelRequest:
    return ModelRequest(
        system=instruction,
        tools=(),
        messages=(RequestMessage("user", (Text(material),)),),
        max_tokens=ANSWER_TOKENS,
    )


def _as_written(answers: list[_Answer]) -> tuple[str, Author]:
    usage = Usage()
    for answer in answers:
        usage += answer.usage
    costs = [answer.cost_usd for answer in answers]
    total = None if None in costs else sum(cost for cost in costs if cost is not None)
    return answers[-1].text, Author(answers[-1].model, usage, total)


def _how(way: Way, choice: pricing.Choice) -> str:
    """How a summary came about, for people: why it was written so, or what it had to fall back on."""
    if way == {"same_prefix": "same_prefix", "separate": "whole"}[choice.way]:
        return choice.reason
    fallbacks = {"whole": "read on its own", "parts": "read in parts", "extract": "an extract, without a model"}
    return fallbacks.get(way, choice.reason)


def _spent(before: Totals, after: Totals) -> float | None:
    return after.cost_usd - before.cost_usd if after.unpriced == before.unpriced else None


def _tokens(text: str) -> int:
    return estimate(size_of_text(text))


def _rates(model: Model, tokens: float) -> Rates | None:
    return rates_of(model.profile.prices, int(tokens))
