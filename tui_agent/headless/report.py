"""What `--output-format json` prints, and the last line of `stream-json`."""

from typing import Final

import msgspec

from tui_agent.agent import events
from tui_agent.conversation.entries import Usage

COST_DIGITS: Final = 9
"""Digits behind the point of a sum in USD: what is behind them is an error of adding."""


class ErrorReport(msgspec.Struct, frozen=True):
    """Why a turn failed."""

    kind: str
    message: str
    retryable: bool


class QuestionReport(msgspec.Struct, frozen=True):
    """What somebody has to answer before it goes on: whether a call may run (``call``), a ``question`` of the model or
    a ``plan`` of it. `choices` are the answers offered: of a plan, the modes in which it may be carried out.
    """

    kind: str
    tool: str
    text: str
    choices: tuple[str, ...]


class ContextReport(msgspec.Struct, frozen=True):
    """How full the window is, in tokens, and what was done about it, counted over the session."""

    tokens: int
    window: int
    percent: float
    evicted: int
    cleared: int
    digested: int
    compactions: int
    checkpoints: int


class Report(msgspec.Struct, frozen=True):
    """What `--output-format json` prints: one object. `turns` counts the session's own model calls.

    `questions` are all that wait for an answer, `question` the first of them.

    `usage`, `cost_usd` (null where unknown) and `models` are of all calls, those of subtasks and summaries included;
    the most expensive model comes first. `structured_result` is the value that was asked for by a schema, null where
    none was, or none came that is valid under it.
    """

    session_id: str
    result: str
    structured_result: msgspec.Raw
    is_error: bool
    error: ErrorReport | None
    question: QuestionReport | None
    questions: tuple[QuestionReport, ...]
    stop_reason: str
    turns: int
    usage: Usage
    cost_usd: float | None
    models: list[str]
    context: ContextReport
    duration_ms: int


def report_json(report: Report) -> bytes:
    """The object with every field of its parts, zero or not.

    `type`, `subtype`, `num_turns`, `total_cost_usd` and `structured_output` say what other fields say, under the names
    of Claude Code's result object, so that scripts written for that one can read it.
    """
    told: dict[str, object] = {"type": "result", "subtype": _subtype(report)}
    told |= msgspec.structs.asdict(report)
    told["usage"] = msgspec.structs.asdict(report.usage)
    cost = None if report.cost_usd is None else round(report.cost_usd, COST_DIGITS)
    told |= {
        "cost_usd": cost,
        "num_turns": report.turns,
        "total_cost_usd": cost,
        "structured_output": report.structured_result,
    }
    return msgspec.json.encode(told)


def _subtype(report: Report) -> str:
    """How it ended, in Claude Code's words."""
    match report.error.kind if report.error else report.stop_reason:
        case "cost_ceiling":
            return "error_max_budget_usd"
        case "invalid_result":
            return "error_max_structured_output_retries"
        case "interrupted":
            return "error_during_execution"
        case _:
            return "error_during_execution" if report.is_error else "success"


def both(first: events.TurnFinished | None, second: events.TurnFinished | None) -> events.TurnFinished | None:
    """Two turns as one: the end of the second, the figures of both."""
    if first is None or second is None:
        return second or first
    known = first.cost_usd is not None and second.cost_usd is not None
    return events.TurnFinished(
        stop_reason=second.stop_reason,
        text=second.text,
        steps=first.steps + second.steps,
        usage=first.usage + second.usage,
        cost_usd=(first.cost_usd or 0.0) + (second.cost_usd or 0.0) if known else None,
        duration_ms=first.duration_ms + second.duration_ms,
    )
