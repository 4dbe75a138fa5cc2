"""Gets a summary written, trying several ways in order, from the best to one that cannot fail.

First the cheapest way (for a merge: the summaries themselves if they are short enough together, else a text from the
existing summaries of its turns), then a separate model on the whole
transcript, then the same in parts that fit, whose summaries are merged, then the extract. Each failure, overflow or
rejected text leads to the next way; none repeats what failed, and no error text enters a request.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.context.compaction.draft import Draft, accept
from tui_agent.context.compaction.forms import Prompts, Questions, cut, joined
from tui_agent.context.compaction.material import Material, as_material, material_of, questions_of
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.counting import estimate
from tui_agent.context.economics import (
    Situation,
    Summariser,
    WriterChoice,
    choose_summariser,
    signing_cost,
    summaries_limit,
)
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AskWriter,
    BeforeSummary,
    Effect,
    Outcome,
    Refusal,
    StepDone,
    Steps,
    WrongOutcome,
    expect,
    step_of,
)
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Boundary, Prefix, Usage
from tui_agent.conversation.profile import MILLION, ModelProfile
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.sizes import TextSize, size_of_text
from tui_agent.conversation.view import View

WayName: TypeAlias = Literal["own", "joined", "same_prefix", "notes", "whole", "parts", "extract"]

HOW: Final[Mapping[WayName, str]] = {
    "own": "by the writer of its own",
    "joined": "put together without a model",
    "notes": "put together from what was written of its turns",
    "whole": "read on its own",
    "parts": "read in parts",
    "extract": "an extract, without a model",
}
"""How a summary was made, for people, if it was not made in the way that was chosen."""

SIGNED: Final = "by the provider, which signs it: the thinking of the kept messages stays"
OPAQUE: Final = "beside an item that only its model reads"
SIGNED_TOKENS: Final = 12_000
"""The most tokens of a call that writes a signed summary, thinking included."""
ANSWER_TOKENS: Final = 4_096
"""The longest summary a model may write, in tokens."""
UNSURE: Final = 50
"""By one part in so many a server may count more than the estimate, and refuse a request that fills its window."""
MOST_PARTS: Final = 16
_SHORTEST_PART: Final = 400


def answer_tokens(window: int) -> int:
    """The answer limit, in tokens, of a request for a summary to a model with this window (0: unknown)."""
    return min(ANSWER_TOKENS, window // 4) if window else ANSWER_TOKENS


class WritingAttempt(msgspec.Struct, frozen=True):
    """One way to get a summary.

    ``own``: the caller's own writer is asked. ``joined``: the text is there already. ``same_prefix``: the instruction
    is sent as a user message at the end of the running request, with its tools unchanged; calls in the answer are
    ignored. ``whole`` and ``parts``: each of `materials` is sent as a user message, with the instruction as the system
    prompt; several answers are merged by one more request. ``notes``: `materials` are such answers already, so only the
    merging request is sent. ``extract``: no model is asked.
    """

    name: WayName
    materials: tuple[str, ...] = ()


class Order(NamedTuple):
    """A summary to write: from what, and the moment and the request that it was planned at, when the newest entry was
    `seen`.
    """

    plan: Plan
    material: Material
    here: Situation
    running: ModelRequest
    seen: int


class Writers(msgspec.Struct, frozen=True):
    """Who writes the summaries of a conversation, and what they cost.

    path: of the archive. own: the steps whose text the caller writes itself.
    """

    prompts: Prompts
    path: str
    own: Collection[str] = ()

    def order(self, plan: Plan, view: View, here: Situation, running: ModelRequest) -> Order:
        """Collect what a summary is written from."""
        return Order(plan, material_of(plan, view, here, self.prompts), here, running, len(view.log))

    def write(self, order: Order) -> Steps[Draft | Refusal]:
        """Write it; the caller's own writer is asked first.

        Every failure of a model leads to the next way, the last of which needs no model. Only a final refusal, such as
        by the cost ceiling, ends the attempts: a worse summary would be no remedy.
        """
        plan, material, here, running, _ = order
        own = plan.step in self.own
        choice = choose_writer(plan, material.parts, material.questions, here)
        # Merged turns are no longer in the running request, so that cannot be used to summarise them.
        same_prefix = choice.way == "same_prefix" and not plan.boundaries
        failures: list[str] = []
        answers: list[Answer] = []
        first = [WritingAttempt("own")] if own else []
        for way in (*first, *_joined(plan, material, here), *ways(material, here, same_prefix=same_prefix)):
            before = len(answers)
            text = yield from _write(way, plan, material, here, running, answers)
            draft: Draft | Refusal
            if isinstance(text, str):
                given = answers[before:]
                draft = accept(
                    plan,
                    material,
                    text,
                    path=self.path,
                    tokens_of=here.mixed_tokens_of,
                    model=given[-1].model if given else "",
                    usage=sum((each.usage for each in given), Usage()) if given else None,
                    cost_usd=_total_cost(given) if given else None,
                    depth=_depth(way, plan, material),
                )
            elif text.final and way.name != "own":
                return text
            else:
                draft = text
            if isinstance(draft, Draft):
                how = choice.reason if way.name == choice.way else HOW.get(way.name, choice.reason)
                return structs.replace(draft, how=how, failures=tuple(failures), spent_usd=_total_cost(answers))
            failures.append(f"{'own writer' if way.name == 'own' else way.name}: {draft.reason}")
        return Refusal(failures[-1] if failures else "No way to a summary was found.")

    def signed(self, order: Order) -> Steps[Draft | Refusal]:
        """Have the provider write and sign it: `running` has exactly the messages that it summarises."""
        plan, material, here, running, _ = order
        instructions = ""
        if plan.subject or here.settings.compaction.handover != "five":
            instructions = material.questions.same_prefix
        room = min(SIGNED_TOKENS, here.budget.window // 4) if here.budget.window else SIGNED_TOKENS
        asked = structs.replace(running, summarize=instructions, max_tokens=room)
        outcome = yield AskModel("session", asked, "summary", plan.replaced + here.budget.fixed, True)
        if isinstance(outcome, Refusal):
            return outcome
        answer = expect(Answer, outcome)
        if not answer.signed:
            return Refusal("the provider did not sign its summary")
        text, how, spent = answer.text, SIGNED, answer.cost_usd
        if not text:  # what the provider made is for its model alone: we write what everybody else reads
            ours = yield from self.write(order._replace(running=structs.replace(running, summarize=None)))
            if isinstance(ours, Refusal):
                return ours
            text, how = ours.text, f"{OPAQUE}; {ours.how}"
            spent = None if spent is None or ours.spent_usd is None else spent + ours.spent_usd
        draft = accept(
            plan,
            material,
            text,
            path=self.path,
            tokens_of=here.mixed_tokens_of,
            model=answer.model,
            usage=answer.usage,
            cost_usd=spent,
            signed=answer.signed,
        )
        return draft if isinstance(draft, Refusal) else structs.replace(draft, how=how, spent_usd=spent)

    def extract(self, plan: Plan, view: View, here: Situation) -> Draft | Refusal:
        """The summary that is extracted from the turns themselves, without a model."""
        material = material_of(plan, view, here, self.prompts)
        return accept(plan, material, material.extract, path=self.path, tokens_of=here.mixed_tokens_of)

    def usd(self, plan: Plan, view: View, here: Situation) -> float | None:
        """What writing it costs in USD; None if unknown."""
        if here.rates is None or plan.step in self.own:
            return None
        if not here.rates.input_usd:
            return 0.0
        if plan.through:
            return signing_cost(here, here.rates, plan.replaced) * here.rates.input_usd / MILLION
        parts, asked = questions_of(plan, view, here, self.prompts)
        # The expected length, not the longest possible.
        return choose_writer(structs.replace(plan, writes=plan.writes * 2 // 3), parts, asked, here).usd


def heard(plan: Plan, *, asked: bool) -> Steps[Plan | Refusal]:
    """The plan with what the user's hooks ask to keep; why there is to be no summary if they prevent it."""
    if plan.step != "summary" or plan.boundaries:
        return plan
    said = yield BeforeSummary(plan.reason, plan.subject, asked)
    if isinstance(said, Refusal):
        yield failed(plan, said)
        return said
    return (
        structs.replace(plan, subject="\n".join(filter(None, (plan.subject, said)))) if isinstance(said, str) else plan
    )


def failed(plan: Plan, why: Refusal) -> StepDone:
    return StepDone(plan.step, plan.before, plan.before, plan.reason, error=why.reason)


def enter_draft(draft: Draft, boundary: Boundary, view: View, thread: str, renewed: Prefix | None) -> Steps[StepDone]:
    """Append the entries of a draft, and report the step. `renewed`: a prefix to adopt now, since the cache is lost.

    `boundary`: the draft's, with what is known at this moment. `thread`: the name of the history to which replaced
    turns go.
    """
    plan, (_, *others) = draft.plan, draft.entries
    if draft.material.archive:
        yield ArchiveTurns(thread, draft.material.archive)
    entries: list[AnyEntry] = [boundary, *others]
    if renewed is not None and not boundary.signed:
        entries.append(renewed)
    seq = expect(int, (yield Append(tuple(entries)))) - len(entries) + 1
    done = structs.replace(
        step_of(view.context_entry(seq)),
        reason=f"{boundary.reason}; {draft.how}",
        items=len(plan.leaving) + len(plan.boundaries),
        details=(
            ("how", draft.how),
            ("failures", draft.failures),
            ("facts_missing", draft.facts_missing),
            ("sections_added", draft.sections_added),
        ),
    )
    yield done
    return done


def choose_writer(plan: Plan, parts: Sequence[str], asked: Questions, here: Situation) -> WriterChoice:
    """Choose the cheaper writer: the conversation's own model with its cached prefix, or the small one, which reads
    only `parts`.

    If the conversation's model is itself the small one, it may still be cheaper to have it read only `parts` than a
    prefix that is no longer cached.
    """
    model, small = here.model, here.model.small
    writes = min(ANSWER_TOKENS, plan.writes)
    same = Summariser(
        model=model.name,
        rates=model.rates(plan.before),
        reads=plan.before,
        instruction=math.ceil(len(asked.same_prefix) / 3),
        writes=writes,
        limit=_window(model, here) - writes - plan.before // UNSURE,
        cached=not here.cold,
    )
    if small is None and same.fits:
        return WriterChoice("same_prefix", same.usd, "there is no other model to ask")
    small = small or model
    reads = math.ceil(sum(map(len, parts)) / 3)
    alone = Summariser(
        model=small.name,
        rates=small.rates(reads),
        reads=reads,
        instruction=math.ceil(len(asked.separate) / 3),
        writes=writes,
        limit=_room(small, here),
        cached=False,
    )
    return choose_summariser(same, alone)


def _joined(plan: Plan, material: Material, here: Situation) -> Iterator[WritingAttempt]:
    """A merge that needs no model: the texts of its summaries, if they leave room for facts within the limit on all.

    What a cheaper model writes is shorter, which saves more than it costs.
    """
    if material.standing and _small(here) is None:
        text = joined(plan.form, material.standing)
        if here.mixed_tokens_of(size_of_text(text)) <= summaries_limit(here) - plan.facts_limit:
            yield WritingAttempt("joined", (text,))


def _depth(way: WritingAttempt, plan: Plan, material: Material) -> int:
    """Through how many summaries a text written in this way has passed."""
    if way.name == "joined":
        return max(each.depth for each in plan.boundaries)
    return 1 + (material.depth if way.name == "notes" else len(way.materials) > 1)


def ways(material: Material, here: Situation, *, same_prefix: bool) -> tuple[WritingAttempt, ...]:
    found = [WritingAttempt("same_prefix")] if same_prefix else []
    small = _small(here)
    tokens_of, room = here.mixed_tokens_of if small is None else here.small_tokens_of, _room(small or here.model, here)
    if material.notes:
        size = size_of_text(material.questions.merging, _as_parts(material.notes))
        if tokens_of(size) <= room:
            found.append(WritingAttempt("notes", material.notes))
    left = room - tokens_of(size_of_text(material.questions.separate))
    if left > 0:
        whole = as_material(material.parts)
        tokens = tokens_of(size_of_text(whole))
        if tokens <= left:
            found.append(WritingAttempt("whole", (whole,)))
            left = tokens // 2
        pieces = chunks(material.parts, limit=left, tokens_of=tokens_of)
        if len(pieces) > 1:
            found.append(WritingAttempt("parts", pieces))
    return (*found, WritingAttempt("extract"))


def _small(here: Situation) -> ModelProfile | None:
    """The cheaper model, if it is a different one."""
    small = here.model.small
    return small if small is not None and small.name != here.model.name else None


def _room(model: ModelProfile, here: Situation) -> int:
    """The largest request, in tokens, that leaves `model` room for its answer."""
    window = _window(model, here)
    return window - answer_tokens(window)


def _window(model: ModelProfile, here: Situation) -> int:
    return model.window or here.settings.context.default_window


def chunks(parts: Sequence[str], *, limit: int, tokens_of: Callable[[TextSize], int]) -> tuple[str, ...]:
    """Pack the parts, in order, into as few materials of at most `limit` tokens as possible, at most 16.

    A part that is too large by itself is cut in the middle; if 16 materials are not enough, all parts are cut. Empty if
    even shortened parts would not fit.
    """
    total = sum(tokens_of(size_of_text(part)) + 1 for part in parts)
    room = limit - tokens_of(size_of_text(as_material(())))
    if room <= 0 or not parts:
        return ()
    longest = max(map(len, parts))
    while longest >= _SHORTEST_PART or total <= room:
        packed = _packed([cut(part, longest) for part in parts], room, tokens_of)
        if packed is not None and len(packed) <= MOST_PARTS:
            return tuple(as_material(group) for group in packed)
        if longest < _SHORTEST_PART:
            break
        longest //= 2
    return ()


def _packed(parts: Sequence[str], room: int, tokens_of: Callable[[TextSize], int]) -> list[list[str]] | None:
    """The parts in groups of at most `room` tokens; None if a single part is larger."""
    groups: list[list[str]] = []
    used = room + 1
    for part in parts:
        tokens = tokens_of(size_of_text(part)) + 1
        if tokens > room:
            return None
        if used + tokens > room:
            groups.append([])
            used = 0
        groups[-1].append(part)
        used += tokens
    return groups


def _write(
    way: WritingAttempt, plan: Plan, material: Material, here: Situation, running: ModelRequest, answers: list[Answer]
) -> Generator[Effect, Outcome, str | Refusal]:
    """Get a text in this way. `answers` collects all answers, also those before a failure."""
    asked, texts = material.questions, list(way.materials)
    match way.name:
        case "extract":
            return material.extract
        case "own":
            return (yield from _answered(AskWriter(plan.step, material.parts, asked.separate, plan.subject), answers))
        case "same_prefix":
            tokens = here.tokens + estimate(size_of_text(asked.same_prefix))
            most = answer_tokens(here.budget.window)
            if here.budget.window:
                most = min(most, max(plan.writes, here.budget.window - tokens - tokens // UNSURE))
            request = _with_instruction(running, asked.same_prefix, most)
            return (yield from _answered(AskModel("session", request, "summary", tokens, True), answers))
        case "whole" | "parts":
            for place, part in enumerate(way.materials):
                text = yield from _answered(_alone(asked.separate, part, here), answers)
                if isinstance(text, Refusal):
                    return text
                texts[place] = text
    if len(texts) == 1:
        return texts[0]
    merged = yield from _answered(_alone(asked.merging, _as_parts(texts), here), answers)
    if isinstance(merged, Refusal) and way.name == "parts" and not merged.final:
        # If merging fails, the concatenated summaries of the parts are better than none.
        return "\n\n".join(text.strip() for text in texts)
    return merged


def _with_instruction(running: ModelRequest, instruction: str, max_tokens: int) -> ModelRequest:
    """The running request with an instruction at its end, as part of the newest user message or as a new one."""
    asked, before = RequestMessage("user", (Text(instruction),)), running.messages
    if before and before[-1].role == "user":
        before, asked = before[:-1], RequestMessage("user", (*before[-1].blocks, *asked.blocks))
    edges = (len(before) - 1,) if before else ()
    return structs.replace(running, messages=(*before, asked), max_tokens=max_tokens, cache_edges=edges)


def _as_parts(texts: Sequence[str]) -> str:
    """Summaries of consecutive parts as the input of the merging request."""
    return as_material([f"[part {number} of {len(texts)}]\n{text.strip()}" for number, text in enumerate(texts, 1)])


def _alone(instruction: str, text: str, here: Situation) -> AskModel:
    small = _small(here)
    writes = answer_tokens((small or here.model).window or here.settings.context.default_window)
    tokens = estimate(size_of_text(instruction, text))
    return question(instruction, text, "summary", small=small is not None, writes=writes, tokens=tokens)


def question(
    instruction: str, text: str, purpose: Literal["summary", "digest"], *, small: bool, writes: int, tokens: int
) -> AskModel:
    """A question to the `small` or the conversation's model that has nothing of the conversation but `text`."""
    messages = (RequestMessage("user", (Text(text),)),)
    request = ModelRequest(system=instruction, tools=(), messages=messages, max_tokens=writes, one_off=True)
    return AskModel("small" if small else "session", request, purpose, tokens)


def _answered(asked: AskModel | AskWriter, answers: list[Answer]) -> Generator[Effect, Outcome, str | Refusal]:
    outcome = yield asked
    if isinstance(outcome, Answer):
        answers.append(outcome)
        return outcome.text
    if isinstance(outcome, Refusal):
        return outcome
    raise WrongOutcome(f"a question to a model was answered by {type(outcome).__name__}")


def _total_cost(answers: Sequence[Answer]) -> float | None:
    costs = [answer.cost_usd for answer in answers]
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)
