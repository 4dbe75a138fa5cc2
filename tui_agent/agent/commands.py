"""The commands that steer a conversation, in text form: the same for the full-screen app and for one-shot use."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.command_names import CHECKPOINTS, COMMANDS, IN_TEXT, CommandName
from tui_agent.agent.listings import change_model, help_text, model_text, tools_text, unknown_text
from tui_agent.agent.upkeep import CompactionResult
from tui_agent.context import stats
from tui_agent.context.asked import Outlook
from tui_agent.context.refusal import Refusal
from tui_agent.models.base import ModelError
from tui_agent.models.usage import Totals
from tui_agent.text import money_text
from tui_agent.tools.base import ToolFailure

HITS = 8
"""Hits that /recall shows."""
EXCERPT_CHARS = 240


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command answers; `failed`: nothing was done, and the text says why."""

    title: str
    text: str = ""
    failed: bool = False


def commands_for(agent: Agent) -> tuple[CommandName, ...]:
    """The commands this agent has: without checkpoints there is no /done."""
    commands = (*COMMANDS, *IN_TEXT)
    return tuple(command for command in commands if agent.has_checkpointer or command.name not in CHECKPOINTS)


async def run_command(agent: Agent, text: str) -> Reply:
    """Do what ``/name argument`` says.

    Raises `AgentBusy` where it cannot be done while a turn runs, and `StorageError`.
    """
    word, _, argument = text.strip()[1:].partition(" ")
    for command in commands_for(agent):
        if word.lower() in (command.name, *command.aliases):
            if argument.strip() and not command.argument:
                return Reply(f"/{command.name} takes nothing after it", failed=True)
            return await HANDLERS[command.name](agent, argument.strip())
    return Reply(f"There is no command /{word}", unknown_text(word, commands_for(agent)), failed=True)


async def _compact(agent: Agent, focus: str) -> Reply:
    return _summarized(await agent.compact(focus), "Compacted")


async def _done(agent: Agent, note: str) -> Reply:
    return _summarized(await agent.checkpoint(note), "Checkpoint written")


async def _context(agent: Agent, _: str) -> Reply:
    return Reply("Context", stats.text(agent.context_stats(), time.time()))


async def _stats(agent: Agent, _: str) -> Reply:
    total, turn = agent.tracker.session, agent.tracker.turn
    lines = [_totals("Session", total), _totals("Turn", turn)]
    if count := agent.tracker.subtask_count:
        lines.append(_totals(f"Of the session, {count:,} subtask{'s' * (count > 1)}", agent.tracker.subtasks))
    models = agent.tracker.by_model()
    if len(models) > 1:
        lines += ["", *(_totals(name, totals) for name, totals in models.items())]
    return Reply("Usage", "\n".join(lines))


async def _clear_results(agent: Agent, _: str) -> Reply:
    return _changed(await agent.clear_results(), "Cleared {items} results")


async def _undo(agent: Agent, number: str) -> Reply:
    if number and not number.isdecimal():
        return Reply("/undo-compact takes the number of a step, or nothing for the newest", failed=True)
    return _changed(await agent.undo(int(number) if number else None), "Undone")


async def _pin(agent: Agent, numbers: str) -> Reply:
    return await _with_items(agent, numbers, agent.pin, "Pinned")


async def _unpin(agent: Agent, numbers: str) -> Reply:
    return await _with_items(agent, numbers, lambda items: agent.pin(items, pinned=False), "Unpinned")


async def _restore(agent: Agent, numbers: str) -> Reply:
    return await _with_items(agent, numbers, agent.restore, "Brought back")


async def _items(agent: Agent, _: str) -> Reply:
    lines = [
        f"{item.seq:>6}  {item.category:<10} {item.state:<12} {'pinned ' if item.pinned else '       '}"
        f"{item.size.characters:>9,} of {item.full.characters:,} characters  {item.name}".rstrip()
        for item in agent.items()
    ]
    return Reply(f"{len(lines)} messages and results", "\n".join(lines))


async def _preview(agent: Agent, step: str) -> Reply:
    match step:
        case "" | "compact":
            seen = agent.preview("compact")
        case "clear" | "clear-results":
            seen = agent.preview("clear")
        case "done" | "checkpoint":
            seen = agent.preview("checkpoint")
        case _:
            return Reply("/preview takes compact, clear or done", failed=True)
    return Reply("Nothing to do", seen.reason, failed=True) if isinstance(seen, Refusal) else _outlook(seen)


async def _recall(agent: Agent, query: str) -> Reply:
    if not query:
        return Reply("/recall needs something to search for", failed=True)
    try:
        found = await agent.recall(query, HITS)
    except ToolFailure as failure:
        return Reply("Nothing can be searched", str(failure), failed=True)
    lines = [
        f"{hit.seq:>6}  {hit.place}\n        {' '.join(hit.excerpt.split())[:EXCERPT_CHARS]}" for hit in found.hits
    ]
    return Reply(f"{found.total} hits", "\n".join(lines))


async def _skills(agent: Agent, _: str) -> Reply:
    return Reply("Skills", await agent.skills())


async def _memory(agent: Agent, _: str) -> Reply:
    return Reply("Memory", await agent.memory())


async def _resume(agent: Agent, _: str) -> Reply:
    return Reply(agent.reset_cost_ceiling())


async def _help(agent: Agent, _: str) -> Reply:
    return Reply("Commands", help_text(commands_for(agent)))


async def _tools(agent: Agent, _: str) -> Reply:
    return Reply(f"{len(agent.tools())} tools", tools_text(agent))


async def _model(agent: Agent, name: str) -> Reply:
    if not name:
        return Reply(
            model_text(agent), "/model NAME lets another one answer; claude-…, gemini-…, ollama:NAME, offline."
        )
    refused = await change_model(agent, name)
    if refused:
        return Reply(f"The model stays {agent.profile.name}", refused, failed=True)
    return Reply(f"{agent.profile.name} answers from here on")


async def _escalate(agent: Agent, _: str) -> Reply:
    busy = agent.busy
    try:
        name = await agent.escalate()
    except ModelError as error:
        return Reply(f"The model stays {agent.profile.name}", error.message, failed=True)
    if not name:
        return Reply(f"The model stays {agent.profile.name}", "No larger one can be asked; see /model.", failed=True)
    return Reply(f"{name} answers from {'the next step' if busy else 'here'} on")


HANDLERS: Final[dict[str, Callable[[Agent, str], Awaitable[Reply]]]] = {
    "compact": _compact,
    "done": _done,
    "context": _context,
    "stats": _stats,
    "preview": _preview,
    "clear-results": _clear_results,
    "items": _items,
    "pin": _pin,
    "unpin": _unpin,
    "restore": _restore,
    "undo-compact": _undo,
    "recall": _recall,
    "skills": _skills,
    "memory": _memory,
    "resume-after-cost-ceiling": _resume,
    "help": _help,
    "tools": _tools,
    "model": _model,
    "escalate": _escalate,
}


async def _with_items(
    agent: Agent,
    numbers: str,
    change: Callable[[list[int]], Awaitable[events.ContextStep | Refusal]],
    done: str,
) -> Reply:
    words = numbers.replace(",", " ").split()
    if not words or not all(word.isdecimal() for word in words):
        return Reply("Name messages by their numbers; /items lists them", failed=True)
    return _changed(await change([int(word) for word in words]), done)


def _summarized(result: CompactionResult, done: str) -> Reply:
    if result.error:
        return Reply("The context stays as it is", result.error, failed=True)
    return Reply(f"{done}: {result.before:,} → {result.after:,} tokens", result.text)


def _changed(step: events.ContextStep | Refusal, done: str) -> Reply:
    if isinstance(step, Refusal):
        return Reply("The context stays as it is", step.reason, failed=True)
    return Reply(f"{done.format(items=step.items)}: {step.before:,} → {step.after:,} tokens (step {step.seq})")


def _outlook(seen: Outlook) -> Reply:
    preview, payback = seen.preview, seen.payback
    about = "" if seen.exact else "about "
    lines = [
        f"Tokens now         {preview.before:>10,}",
        f"Tokens after       {about + format(preview.after, ','):>10}",
        f"Leaves the view    {len(preview.leaving):>10,} messages and results",
    ]
    if preview.reasoning_dropped:
        lines.append(f"Reasoning dropped  {preview.reasoning_dropped:>10,} blocks")
    if payback is not None:
        back = f"pays back after {payback.calls:,} calls" if payback.calls is not None else "does not pay back"
        lines.append(f"Cost now           {money_text(payback.cost_usd):>10}, {back}")
    names = {"compact": "/compact", "clear": "/clear-results", "checkpoint": "/done"}
    return Reply(f"What {names[seen.step]} would do", "\n".join(lines))


def _totals(name: str, totals: Totals) -> str:
    usage, cost = totals.usage, totals.known_cost_usd
    hits = 100 * usage.cache_read_tokens / usage.input_tokens if usage.input_tokens else 0
    money = "price unknown" if cost is None else money_text(cost)
    calls = f"{totals.calls:,} call{'' if totals.calls == 1 else 's'}"
    return (
        f"{name}: {calls}, {usage.input_tokens:,} in ({hits:.0f}% from the cache), "
        f"{usage.output_tokens:,} out ({usage.reasoning_tokens:,} reasoning), {money}"
    )
