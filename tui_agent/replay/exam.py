"""`tui-agent exam`: a model is asked about a session whose beginning has left the window, under each policy.

Each policy is replayed with summaries that the model itself writes, all by one instruction, so that only the policies
differ. What is then in the window is given to the model as a text, with one question at a time and no tools. The
questions and their scores are by rule (`questions`). One row is without the session: what can be guessed.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.context.compaction.facts import Source
from tui_agent.conversation.blocks import Text, text_in
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.models.base import Completed, Model, ModelError
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.usage import cost_of, cost_usd
from tui_agent.replay.billing import PartKind, PromptPart
from tui_agent.replay.policies import written_by_rule
from tui_agent.replay.questions import ABOUT, Question, Score, chosen, lines_in, questions, score
from tui_agent.replay.replaying import Replay
from tui_agent.replay.script import text_tokens
from tui_agent.replay.simulation import ReplayOutcome
from tui_agent.replay.tables import aligned
from tui_agent.text import counted, money_text

NO_SESSION: Final = "(no session)"
"""The row in which only the questions are given."""
QUESTIONS: Final = 20
LONGEST_REPLY: Final = 1_000
"""Tokens of an answer at most."""
SHORTEST_LIMIT: Final = 4_000
"""Tokens that a summary may take at least, before it is cut off."""
USUAL_REPLY: Final = 30
AT_ONCE: Final = 4
"""Policies that are asked at the same time."""

_SYSTEM: Final = (
    "You worked as a coding agent. The user gives you the conversation as it is in your window now; its beginning may "
    "have been summarised. Then they ask about it. Answer with the exact text alone, on one line, without quotes. If "
    "the conversation does not tell it, answer with one word: unknown"
)
_GIVEN: Final = "The conversation as it is in your window now:\n\n"
_READ: Final = "I have read it. What do you want to know?"
_SUMMARISE: Final = (
    "Summarise this part of a coding agent's conversation for the agent that goes on with the work: what the user "
    "wants and said, what was decided, found and done, what is left. Keep exact names, paths, commands, numbers and "
    "errors. Write at most {words:,} words."
)
_LABELS: Final[dict[PartKind, str]] = {
    "user": "user",
    "answer": "you",
    "result": "result",
    "cleared": "result",
    "preview": "result, its beginning",
    "summary": "summary of earlier turns",
    "digest": "summary of a result",
}


class ExamStopped(Exception):
    """The exam ended early; the message says why and what was spent."""


class Planned(msgspec.Struct, frozen=True):
    """A policy's replay by rule, which is free: its end, and the tokens of what each summary replaces and may take."""

    outcome: ReplayOutcome
    summaries: tuple[tuple[int, int], ...]


class ExamPlan(msgspec.Struct, frozen=True):
    """What will be asked, under which policies, and what that costs in USD, usually and at most (None: not known)."""

    replay: Replay
    profile: ModelProfile
    window: int
    planned: tuple[Planned, ...]
    asked: tuple[Question, ...]
    usual_usd: float | None
    most_usd: float | None


class ExamReply(msgspec.Struct, frozen=True):
    text: str
    score: Score


class ExamResult(msgspec.Struct, frozen=True):
    """The exam under one policy. `outcome` is that of its replay with the model's own summaries."""

    policy: str
    replies: tuple[ExamReply, ...]
    outcome: ReplayOutcome | None
    view_tokens: int

    def scored(self, wanted: Score) -> int:
        return sum(reply.score == wanted for reply in self.replies)


def plan(replay: Replay, profile: ModelProfile, window: int, names: Sequence[str], most: int = QUESTIONS) -> ExamPlan:
    """Replay the session under these policies by rule, choose at most `most` questions, and work out the budget."""
    window = window or replay.recording.window or profile.window
    planned = [_planned(replay, profile, window, name) for name in names]
    views = [lines_in(each.outcome.view) for each in planned]
    found = chosen(questions(replay.script), most, lambda question: sum(question.line not in view for view in views))
    usual = most_usd = 0.0 if profile.prices is not None else None
    if usual is not None and most_usd is not None:
        for each in planned:
            costs = _budget(each, len(found), profile)
            usual, most_usd = usual + costs[0], most_usd + costs[1]
    return ExamPlan(replay, profile, window, tuple(planned), tuple(found), usual, most_usd)


def _planned(replay: Replay, profile: ModelProfile, window: int, name: str) -> Planned:
    summaries: list[tuple[int, int]] = []

    def write(sources: Sequence[Source], tokens: int, factor: float) -> str:
        summaries.append((text_tokens(*(source.text for source in sources), factor=factor), tokens))
        return written_by_rule(sources, tokens, factor)

    (outcome,) = replay.run([name], profile, window, write)
    return Planned(outcome, tuple(summaries))


def _budget(planned: Planned, asked: int, profile: ModelProfile) -> tuple[float, float]:
    """What a policy costs in USD: usually, with the view in the cache after the first question, and at most."""
    view, marked = sum(part.tokens for part in planned.outcome.view), profile.cache == "marked"
    cached = profile.cache != "none" and view >= profile.cache_minimum
    first = Usage(view, cache_write_tokens=view if marked else 0, output_tokens=USUAL_REPLY)
    later = Usage(view, cache_read_tokens=view if cached else 0, output_tokens=USUAL_REPLY)
    longest = Usage(view, cache_write_tokens=view if marked else 0, output_tokens=LONGEST_REPLY)
    usual, most = [first, *[later] * (asked - 1)], [longest] * asked
    usual += [Usage(size, output_tokens=writes) for size, writes in planned.summaries]
    most += [Usage(size, output_tokens=_limit(writes)) for size, writes in planned.summaries]
    costs = [sum(cost_usd(each, profile.prices) or 0.0 for each in used) for used in (usual, most)]
    return costs[0], costs[1]


def _limit(writes: int) -> int:
    return max(SHORTEST_LIMIT, 2 * writes)


class Examiner:
    """Asks the model, and stops before a call once `limit_usd` is spent (None: no limit). `step` follows each call."""

    def __init__(
        self, model: Model, profile: ModelProfile, limit_usd: float | None, step: Callable[[], None] = lambda: None
    ) -> None:
        self.spent_usd = 0.0
        self._model, self._profile, self._limit, self._step = model, profile, limit_usd, step

    async def sit(self, plan: ExamPlan) -> list[ExamResult]:
        """The exam under every policy; views that are the same text are asked about once. Raises `ExamStopped`."""
        asked: dict[str, asyncio.Task[tuple[ExamReply, ...]]] = {}
        room = asyncio.Semaphore(AT_ONCE)
        stopped: Exception | None = None

        async def under(planned: Planned | None) -> ExamResult:
            async with room:
                outcome = None if planned is None else await self._replayed(plan, planned)
                view = () if outcome is None else outcome.view
                text = transcript(view)
                if text not in asked:
                    asked[text] = asyncio.ensure_future(self._replies(text, plan.asked))
                name = NO_SESSION if outcome is None else outcome.policy
                return ExamResult(name, await asked[text], outcome, sum(part.tokens for part in view))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(under(planned)) for planned in (*plan.planned, None)]
        except* (ModelError, ExamStopped) as errors:
            stopped = errors.exceptions[0]
        finally:
            for task in asked.values():
                task.cancel()
        if stopped is not None:
            reason = stopped.message if isinstance(stopped, ModelError) else str(stopped)
            raise ExamStopped(f"{reason} {money_text(self.spent_usd)} were spent; no result is kept.") from stopped
        return [task.result() for task in tasks]

    async def _replayed(self, plan: ExamPlan, planned: Planned) -> ReplayOutcome:
        """The policy's replay, with the summaries that the model writes."""
        if not planned.summaries:
            return planned.outcome
        loop = asyncio.get_running_loop()

        def write(sources: Sequence[Source], tokens: int, factor: float) -> str:
            return asyncio.run_coroutine_threadsafe(self._summary(sources, tokens), loop).result()

        policy = [planned.outcome.policy]
        return (await asyncio.to_thread(plan.replay.run, policy, plan.profile, plan.window, write))[0]

    async def _summary(self, sources: Sequence[Source], tokens: int) -> str:
        said = "\n\n".join(
            f"[{'you' if each.speaker == 'assistant' else each.speaker}]\n{each.text}" for each in sources
        )
        message = RequestMessage("user", (Text(said or "(nothing)"),))
        system = _SUMMARISE.format(words=tokens * 2 // 3)
        return await self._ask(ModelRequest(system, (), (message,), _limit(tokens), one_off=True))

    async def _replies(self, text: str, asked: Sequence[Question]) -> tuple[ExamReply, ...]:
        replies = []
        for question in asked:
            said = (_GIVEN + text, _READ, question.text) if text else (question.text,)
            messages = tuple(
                RequestMessage("assistant" if place % 2 else "user", (Text(each),)) for place, each in enumerate(said)
            )
            edges = (0,) if text else ()
            reply = await self._ask(ModelRequest(_SYSTEM, (), messages, LONGEST_REPLY, edges))
            replies.append(ExamReply(reply, score(question, reply)))
        return tuple(replies)

    async def _ask(self, request: ModelRequest) -> str:
        if self._limit is not None and self.spent_usd >= self._limit > 0:
            raise ExamStopped("It costs more than was planned, so it was stopped.")
        done: Completed | None = None
        async with aclosing(stream_with_retries(self._model, request)) as events:
            async for event in events:
                done = event if isinstance(event, Completed) else done
        if done is None:
            return ""
        self.spent_usd += cost_of(done, self._profile) or 0.0
        self._step()
        return text_in(done.blocks, between="")


def transcript(view: Sequence[PromptPart]) -> str:
    return "\n\n".join(f"[{_LABELS.get(part.kind, part.kind)}]\n{part.shown}" for part in view)


def calls_of(plan: ExamPlan) -> int:
    """How many calls of the model an exam makes at most."""
    return len(plan.asked) * (len(plan.planned) + 1) + sum(len(each.summaries) for each in plan.planned)


def budget_text(plan: ExamPlan) -> str:
    summaries = sum(len(each.summaries) for each in plan.planned)
    dollars = "prices not known"
    if plan.usual_usd is not None:
        dollars = f"about {money_text(plan.usual_usd)}, at most {money_text(plan.most_usd)}"
    return (
        f"{counted(len(plan.asked), 'question')} under {counted(len(plan.planned), 'policy', 'policies')} and without "
        f"the session, on {plan.profile.id} with a window of {plan.window:,} tokens; before that, "
        f"{counted(summaries, 'summary', 'summaries')}: {dollars}."
    )


def questions_text(plan: ExamPlan) -> str:
    return "\n\n".join(
        f"{number}. ({each.about}) {each.text}\n   = {each.answer}" for number, each in enumerate(plan.asked, 1)
    )


def table(plan: ExamPlan, sat: Sequence[ExamResult], spent_usd: float) -> str:
    kinds = [about for about in ABOUT if any(each.about == about for each in plan.asked)]
    rows: list[Sequence[str]] = [("policy", "right", *kinds, "unknown", "wrong", "tokens", "cost", "evidence", "sum")]
    for each in sorted(sat, key=lambda each: -each.scored("right")):
        answers = list(zip(each.replies, plan.asked, strict=True))
        scores = ([reply.score for reply, asked in answers if asked.about == about] for about in kinds)
        counts = [f"{about.count('right')}/{len(about)}" for about in scores]
        outcome = each.outcome
        replayed = (
            (money_text(outcome.bill.total), f"{outcome.evidence.share:.3f}", f"{outcome.compactions:,}")
            if outcome is not None
            else ("", "", "")
        )
        scored = str(each.scored("right")), *counts, str(each.scored("unknown")), str(each.scored("wrong"))
        rows.append((each.policy, *scored, f"{each.view_tokens:,}", *replayed))
    asked = counted(len(plan.asked), "question")
    heading = f"{asked}, {plan.profile.id}, window {plan.window:,}; it cost {money_text(spent_usd)}"
    return "\n".join([heading, "", *aligned(rows), "", _NOTE])


_NOTE: Final = (
    "right: the exact text, in all and by what was asked about. unknown: the model said so.\n"
    "tokens: in the window at the end. cost, evidence, sum: what the replay says of the session:\n"
    "its dollars, the evidence in view, and its compactions (docs/replay.md)."
)


def document(plan: ExamPlan, sat: Sequence[ExamResult], spent_usd: float) -> str:
    """The results as a JSON object, with the questions and every answer."""
    fields = {
        "model": plan.profile.id,
        "window": plan.window,
        "cost_usd": spent_usd,
        "questions": [structs.asdict(each) for each in plan.asked],
        "policies": [
            {
                "policy": each.policy,
                **{kind: each.scored(kind) for kind in ("right", "unknown", "wrong")},
                "view_tokens": each.view_tokens,
                "replies": each.replies,
                "replay": None
                if each.outcome is None
                else {
                    "cost_usd": each.outcome.bill.total,
                    "evidence": each.outcome.evidence.share,
                    "verbatim": each.outcome.evidence.verbatim_share,
                    "compactions": each.outcome.compactions,
                },
            }
            for each in sat
        ],
    }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()
