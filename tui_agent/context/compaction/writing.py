"""Gets a summary written, trying several ways in order, from the best to one that cannot fail.

First the cheapest way (for a merge: from the existing summaries of its turns), then a separate model on the whole
transcript, then the same in parts that fit, whose summaries are merged, then the extract. Each failure, overflow or
rejected text leads to the next way; none repeats what failed, and no error text enters a request.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import structs

from tui_agent.context.compaction.draft import Draft, accept
from tui_agent.context.compaction.material import Material
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.compaction.questions import Questions
from tui_agent.context.compaction.rendering import cut, material
from tui_agent.context.counting import estimate
from tui_agent.context.economics import Choice, Summariser, choose_summariser
from tui_agent.context.effects import Answer, AskModel, AskWriter, Effect, Outcome, Refusal, Steps, WrongOutcome
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.sizes import Size, size_of_text

Way: TypeAlias = Literal["own", "same_prefix", "notes", "whole", "parts", "extract"]

NAMES: Final[Mapping[Way, str]] = {"own": "own writer"}
EXPECTED: Final[Mapping[Literal["same_prefix", "separate"], Way]] = {"same_prefix": "same_prefix", "separate": "whole"}
HOW: Final[Mapping[Way, str]] = {
    "own": "by the writer of its own",
    "notes": "put together from what was written of its turns",
    "whole": "read on its own",
    "parts": "read in parts",
    "extract": "an extract, without a model",
}
"""How a summary was made, for people, if it was not made in the way that was chosen."""

ANSWER_TOKENS: Final = 4_096
"""The longest summary a model may write, in tokens."""
MOST_PARTS: Final = 16
_SHORTEST_PART: Final = 400


def answer_tokens(window: int) -> int:
    """The answer limit, in tokens, of a request for a summary to a model with this window (0: unknown)."""
    return min(ANSWER_TOKENS, window // 4) if window else ANSWER_TOKENS


class Attempt(NamedTuple):
    """One way to get a summary.

    ``same_prefix``: `instruction` is sent as a user message at the end of the running request, with its tools
    unchanged; calls in the answer are ignored. ``whole`` and ``parts``: each of `materials` is sent as a user message,
    with `instruction` as the system prompt; several answers are merged by one more request. ``notes``: `materials` are
    such answers already, so only the merging request is sent. ``extract``: no model is asked.
    """

    way: Way
    instruction: str = ""
    materials: tuple[str, ...] = ()


class Writers(NamedTuple):
    """The models that could write a summary, and how each counts tokens.

    model: the conversation's. request: makes its next request with an instruction at the end; without that it has
    `tokens` tokens. cold: the provider's cache of it has expired. tokens_of, small_tokens_of: convert sizes to tokens
    of that model and of the cheaper one. own: the caller's own writer is asked first.
    """

    model: ModelProfile
    tokens: int
    cold: bool
    request: Callable[[str], ModelRequest]
    tokens_of: Callable[[Size], int]
    small_tokens_of: Callable[[Size], int]
    default_window: int
    own: bool = False

    @property
    def small(self) -> ModelProfile | None:
        """The cheaper model, if it is a different one."""
        small = self.model.small
        return small if small is not None and small.name != self.model.name else None

    def room(self, model: ModelProfile) -> int:
        """The largest request, in tokens, that leaves `model` room for its answer."""
        return (model.window or self.default_window) - self.answer(model)

    def answer(self, model: ModelProfile) -> int:
        """The answer limit for `model`, in tokens."""
        return answer_tokens(model.window or self.default_window)


class CompactionResult(NamedTuple):
    """The outcome of a compaction or checkpoint: tokens before and after, the entry (0: none), and any error."""

    before: int
    after: int
    seq: int = 0
    text: str = ""
    error: str = ""


def write_summary(plan: Plan, material: Material, writers: Writers, *, path: str) -> Steps[Draft | Refusal]:
    """Write the summary of `plan`. `path`: of its archive.

    Every failure of a model leads to the next way, the last of which needs no model. Only a final refusal, such as by
    the cost ceiling, ends the attempts: a worse summary would be no remedy.
    """
    choice = choose_writer(plan, material.parts, material.questions, writers)
    # Merged turns are no longer in the running request, so that cannot be used to summarise them.
    same_prefix = choice.way == "same_prefix" and not plan.boundaries
    failures: list[str] = []
    answers: list[Answer] = []
    ways = attempts(material, writers, same_prefix=same_prefix)
    for attempt in (Attempt("own"), *ways) if writers.own else ways:
        before = len(answers)
        text: str | Refusal = material.extract
        if attempt.way == "own":
            asked = AskWriter(plan.step, material.parts, material.questions.separate, plan.subject)
            answer = yield from _answered(asked, answers)
            text = answer if isinstance(answer, Refusal) else answer.text
        elif attempt.way != "extract":
            text = yield from _ask(attempt, material, writers, answers)
        if isinstance(text, Refusal):
            if text.final and attempt.way != "own":
                return text
            failures.append(f"{NAMES.get(attempt.way, attempt.way)}: {text.reason}")
            continue
        given = answers[before:]
        draft = accept(
            plan,
            material,
            text,
            path=path,
            tokens_of=writers.tokens_of,
            model=given[-1].model if given else "",
            usage=sum((each.usage for each in given), Usage()) if given else None,
            cost_usd=_total_cost(given) if given else None,
            depth=2 if len(attempt.materials) > 1 else 1,
        )
        if isinstance(draft, Draft):
            how = choice.reason if attempt.way == EXPECTED[choice.way] else HOW.get(attempt.way, choice.reason)
            return structs.replace(draft, how=how, failures=tuple(failures), spent_usd=_total_cost(answers))
        failures.append(f"{NAMES.get(attempt.way, attempt.way)}: {draft.reason}")
    return Refusal(failures[-1] if failures else "No way to a summary was found.")


def choose_writer(plan: Plan, parts: Sequence[str], asked: Questions, writers: Writers) -> Choice:
    """Choose the cheaper writer: the conversation's own model with its cached prefix, or the small one, which reads
    only `parts`.

    If the conversation's model is itself the small one, it may still be cheaper to have it read only `parts` than a
    prefix that is no longer cached.
    """
    model, small = writers.model, writers.model.small
    writes = min(ANSWER_TOKENS, plan.writes)
    same = Summariser(
        model=model.name,
        rates=model.rates(plan.before),
        reads=plan.before,
        instruction=math.ceil(len(asked.same_prefix) / 3),
        writes=writes,
        limit=writers.room(model),
        cached=not writers.cold,
    )
    if small is None:
        return choose_summariser(same, None)
    reads = math.ceil(sum(map(len, parts)) / 3)
    alone = Summariser(
        model=small.name,
        rates=small.rates(reads),
        reads=reads,
        instruction=math.ceil(len(asked.separate) / 3),
        writes=writes,
        limit=writers.room(small),
        cached=False,
    )
    return choose_summariser(same, alone)


def attempts(written_from: Material, writers: Writers, *, same_prefix: bool) -> tuple[Attempt, ...]:
    """The ways to try, in order."""
    found: list[Attempt] = []
    if same_prefix:
        found.append(Attempt("same_prefix", written_from.questions.same_prefix))
    separate, tokens_of = writers.small or writers.model, writers.tokens_of
    if writers.small is not None:
        tokens_of = writers.small_tokens_of
    instruction = written_from.questions.separate
    left = writers.room(separate) - tokens_of(size_of_text(instruction))
    if written_from.notes:
        told = size_of_text(written_from.questions.merging, _as_parts(written_from.notes))
        if tokens_of(told) <= writers.room(separate):
            found.append(Attempt("notes", instruction, written_from.notes))
    if left > 0:
        whole = material(written_from.parts)
        size = tokens_of(size_of_text(whole))
        if size <= left:
            found.append(Attempt("whole", instruction, (whole,)))
            left = size // 2
        pieces = chunks(written_from.parts, limit=left, tokens_of=tokens_of)
        if len(pieces) > 1:
            found.append(Attempt("parts", instruction, pieces))
    found.append(Attempt("extract"))
    return tuple(found)


def chunks(parts: Sequence[str], *, limit: int, tokens_of: Callable[[Size], int]) -> tuple[str, ...]:
    """Pack the parts, in order, into as few materials of at most `limit` tokens as possible, at most 16.

    A part that is too large by itself is cut in the middle; if 16 materials are not enough, all parts are cut. Empty if
    even shortened parts would not fit.
    """
    total = sum(tokens_of(size_of_text(part)) + 1 for part in parts)
    frame = tokens_of(size_of_text(material(())))
    room = limit - frame
    if room <= 0 or not parts:
        return ()
    longest = max(map(len, parts))
    while longest >= _SHORTEST_PART or total <= room:
        packed = _packed([cut(part, longest) for part in parts], room, tokens_of)
        if packed is not None and len(packed) <= MOST_PARTS:
            return tuple(material(group) for group in packed)
        if longest < _SHORTEST_PART:
            break
        longest //= 2
    return ()


def _ask(
    attempt: Attempt, written_from: Material, writers: Writers, answers: list[Answer]
) -> Generator[Effect, Outcome, str | Refusal]:
    """Carry out an attempt and return its text. `answers` collects all answers, also those before a failure."""
    if attempt.way == "same_prefix":
        request = writers.request(attempt.instruction)
        tokens = writers.tokens + estimate(size_of_text(attempt.instruction))
        answer = yield from _answered(AskModel("session", request, "summary", tokens, True), answers)
        return answer if isinstance(answer, Refusal) else answer.text
    texts: list[str] = list(attempt.materials) if attempt.way == "notes" else []
    for part in attempt.materials if not texts else ():
        answer = yield from _answered(_alone(attempt.instruction, part, writers), answers)
        if isinstance(answer, Refusal):
            return answer
        texts.append(answer.text)
    if len(texts) == 1:
        return texts[0]
    merging = _alone(written_from.questions.merging, _as_parts(texts), writers)
    answer = yield from _answered(merging, answers)
    if isinstance(answer, Refusal):
        if attempt.way == "notes":
            return answer
        # If merging fails, the concatenated summaries of the parts are better than none.
        return answer if answer.final else "\n\n".join(text.strip() for text in texts)
    return answer.text


def _as_parts(texts: Sequence[str]) -> str:
    """Summaries of consecutive parts as the input of the merging request."""
    return material([f"[part {number} of {len(texts)}]\n{text.strip()}" for number, text in enumerate(texts, 1)])


def _alone(instruction: str, told: str, writers: Writers) -> AskModel:
    messages = (RequestMessage("user", (Text(told),)),)
    writes = writers.answer(writers.small or writers.model)
    request = ModelRequest(system=instruction, tools=(), messages=messages, max_tokens=writes, one_off=True)
    tokens = estimate(size_of_text(instruction, told))
    return AskModel("small" if writers.small is not None else "session", request, "summary", tokens)


def _answered(asked: AskModel | AskWriter, answers: list[Answer]) -> Generator[Effect, Outcome, Answer | Refusal]:
    outcome = yield asked
    if isinstance(outcome, Answer):
        answers.append(outcome)
        return outcome
    if isinstance(outcome, Refusal):
        return outcome
    raise WrongOutcome(f"a question to a model was answered by {type(outcome).__name__}")


def _total_cost(answers: Sequence[Answer]) -> float | None:
    costs = [answer.cost_usd for answer in answers]
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)


def _packed(parts: Sequence[str], room: int, tokens_of: Callable[[Size], int]) -> list[list[str]] | None:
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
