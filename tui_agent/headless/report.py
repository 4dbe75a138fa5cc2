"""What a run came to: its exit code, and the object that `--output-format json` prints."""

from typing import Final

import msgspec

from tui_agent.agent import events
from tui_agent.arguments import ExitCode
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.entries import Usage
from tui_agent.models.usage import Totals, UsageTracker
from tui_agent.tools.base import PermissionQuestion
from tui_agent.visible import visible

COST_DIGITS: Final = 9
"""Decimal places of a cost in USD; the rest is rounding error of the sum."""
UNANSWERED: Final = frozenset(("needs_approval", "needs_answer"))
"""Failures that end with `ExitCode.NEEDS_APPROVAL`: there is nobody to ask."""
CUT_OFF: Final = {
    "refusal": "The model refused to answer.",
    "max_tokens": "The answer was cut off: it reached the most tokens that one may have (--max-tokens).",
    "context_window": "The answer was cut off: the model's context window is full.",
}
"""What to say of an answer that is none, or only a part of one, by its stop reason."""

_TOKENS: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
_SUBTYPES: Final = {
    "call_limit": "error_max_turns",
    "cost_ceiling": "error_max_budget_usd",
    "invalid_result": "error_max_structured_output_retries",
    "interrupted": "error_during_execution",
}
"""How it ended, in Claude Code's terms."""


class RunReport:
    """What the events of a run have told so far, and which models were used meanwhile.

    `structured`: the valid result as JSON text; empty: there is none.
    """

    def __init__(self, tracker: UsageTracker) -> None:
        self.failure: events.TurnFailed | None = None
        self.finished: events.TurnFinished | None = None
        self.structured = ""
        self._tracker = tracker
        self._before = tracker.by_model()

    def add(self, turn: events.TurnFinished | None) -> None:
        """Take in the end of a turn; several add up."""
        before, self.finished = self.finished, turn or self.finished
        if turn is not None and before is not None:
            known = before.cost_usd is not None and turn.cost_usd is not None
            self.finished = msgspec.structs.replace(
                turn,
                steps=before.steps + turn.steps,
                usage=before.usage + turn.usage,
                cost_usd=(before.cost_usd or 0.0) + (turn.cost_usd or 0.0) if known else None,
                duration_ms=before.duration_ms + turn.duration_ms,
            )

    def fail(self, kind: str, message: str, *, retryable: bool = False, hint: str = "") -> None:
        self.failure = events.TurnFailed(kind=kind, message=message, retryable=retryable, hint=hint)

    @property
    def text(self) -> str:
        return self.finished.text if self.finished else ""

    @property
    def ended_well(self) -> bool:
        """Whether there is an answer: the turn neither failed nor was stopped."""
        return self.failure is None and self.finished is not None and self.finished.stop_reason != "interrupted"

    @property
    def questions(self) -> tuple[PermissionQuestion, ...]:
        return self.failure.questions if self.failure is not None else ()

    @property
    def exit_code(self) -> int:
        if self.failure is not None:
            return ExitCode.NEEDS_APPROVAL if self.failure.kind in UNANSWERED else ExitCode.FAILED
        return ExitCode.DONE if self.ended_well else ExitCode.INTERRUPTED

    def as_json(self, session_id: str, stats: ContextStats, duration_ms: int) -> bytes:
        """The object with all fields, even those that are zero (docs/headless.md, "JSON").

        Some repeat others under the names of Claude Code's result object, so that scripts written for it work.
        """
        failure, finished = self.failure, self.finished
        stop_reason, turns = (finished.stop_reason, finished.steps) if finished else ("interrupted", 0)
        cost = None if finished is None or finished.cost_usd is None else round(finished.cost_usd, COST_DIGITS)
        structured = msgspec.Raw(self.structured.encode() or b"null")
        used = {name: _during(self._before.get(name, Totals()), now) for name, now in self._tracker.by_model().items()}
        used = {name: figures for name, figures in used.items() if any(figures.values())}
        questions = [
            {"kind": each.kind, "tool": each.tool, "text": text_of(each), "choices": each.choices}
            for each in self.questions
        ]
        kind = failure.kind if failure else stop_reason
        return msgspec.json.encode(
            {
                "type": "result",
                "subtype": _SUBTYPES.get(kind, "error_during_execution" if failure else "success"),
                "session_id": session_id,
                "result": self.text,
                "structured_result": structured,
                "is_error": failure is not None,
                "error": failure and {"kind": failure.kind, "message": failure.message, "retryable": failure.retryable},
                "question": next(iter(questions), None),
                "questions": questions,
                "stop_reason": stop_reason,
                "turns": turns,
                "usage": msgspec.structs.asdict(finished.usage if finished else Usage()),
                "cost_usd": cost,
                "models": list(used),
                "model_usage": used,
                "context": {"tokens": stats.tokens, "window": stats.window, **stats.figures},
                "duration_ms": duration_ms,
                "num_turns": turns,
                "total_cost_usd": cost,
                "structured_output": structured,
                "modelUsage": {name: _as_there(figures) for name, figures in used.items()},
            }
        )


def text_of(asked: PermissionQuestion) -> str:
    """All that a question is about, in its visible form (`tui_agent.visible`)."""
    shown = asked.preview
    parts = [shown.command, shown.diff, shown.text, *(f"{each.title}\n{each.diff}" for each in shown.changes)]
    return visible("\n".join(part for part in parts if part) or asked.arguments, tabs=False)


def _during(before: Totals, now: Totals) -> dict[str, float | None]:
    """The part of a model's totals that came after `before`; its cost is None if unknown."""
    calls = now.calls - before.calls
    unknown = calls == now.unpriced - before.unpriced
    tokens = {name: getattr(now.usage, name) - getattr(before.usage, name) for name in _TOKENS}
    cost = None if calls and unknown else round(now.cost_usd - before.cost_usd, COST_DIGITS)
    return {"calls": calls, **tokens, "cost_usd": cost}


def _as_there(used: dict[str, float | None]) -> dict[str, float | None]:
    """A model's usage under the names of Claude Code, whose input tokens are those outside the cache."""
    tokens, read, write, output = (used[name] or 0 for name in _TOKENS)
    return {
        "inputTokens": max(0, tokens - read - write),
        "outputTokens": output,
        "cacheReadInputTokens": read,
        "cacheCreationInputTokens": write,
        "costUSD": used["cost_usd"],
    }
