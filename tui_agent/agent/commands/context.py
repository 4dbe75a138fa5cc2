"""The commands that show and change the context. Modules that only a handler needs are imported inside it."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.command import CommandReply, number_of, refused
from tui_agent.agent.commands.session import figures_from
from tui_agent.text import counted, one_line

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.events import ContextStep
    from tui_agent.context.changes import PreviewedStep
    from tui_agent.context.effects import Refusal
    from tui_agent.conversation.recalled import RecallHit, RecallHits

RECALL_HITS: Final = 8
"""Hits that /recall shows."""

EXCERPT_CHARS: Final = 240
"""Characters shown of a hit of /recall."""

HIT_CALL_CHARS: Final = 60
"""Characters shown of the call whose result was found."""

PREVIEWED: "Final[dict[str, PreviewedStep]]" = {
    "": "compact",
    "compact": "compact",
    "clear": "clear",
    "clear-results": "clear",
    "done": "checkpoint",
    "checkpoint": "checkpoint",
}
"""What may follow /preview."""

SAID_BY: Final = {
    "user": "you",
    "assistant": "the model",
    "reasoning": "the model, thinking",
    "tool_call": "call of",
    "tool_result": "result of",
    "raw_output": "whole output of",
}
"""Who said the words of a hit of /recall, by kind; other kinds are shown by their own names."""


async def context(agent: "Agent", _: str) -> CommandReply:
    from tui_agent.agent.commands.context_text import text

    # If the user has set the window, it does not come from the provider.
    note = "" if agent.settings.context.context_window else figures_from(agent.profile)
    shown = text(agent.context_stats(), time.time())
    return CommandReply("Context", f"{shown}\n\n{note}" if note else shown)


async def keep(agent: "Agent", _: str) -> CommandReply:
    agent.context.keep_as_it_is()
    seen = await agent.context.forecast_when_known()
    costs = f"It costs {seen.price(seen.cost)} plus the answer." if seen.cost else ""
    return CommandReply("The next message is sent with everything in view as it is now", costs)


async def items(agent: "Agent", _: str) -> CommandReply:
    from tui_agent.agent.context import item_line

    items, scale = agent.context.items(), agent.context_stats().scale
    lines = [f"{item.seq:>6}  {item_line(item, agent.context.excerpt(item.seq), scale)}" for item in items]
    return CommandReply(f"{len(items):,} {_things(len(items))}", "\n".join(lines))


async def at(agent: "Agent", number: str) -> CommandReply:
    from tui_agent.agent.commands.context_text import call_line, call_text
    from tui_agent.system.durable import in_thread

    past = await agent.context.past()
    if not past.calls:
        return CommandReply("No call was answered yet")
    if not number:
        head = (
            f"{'call':>6}  {'input':>9} {'cached':>9} {'written':>9} {'output':>7} {'cost':>8}  since the call before"
        )
        lines = [head, *map(call_line, past.calls), "", "/at CALL shows what the model saw at it."]
        return CommandReply(counted(len(past.calls), "call"), "\n".join(lines))
    wanted = number_of(number)
    if wanted is None or not 1 <= wanted <= len(past.calls):
        return refused(f"/at takes the number of a call, from 1 to {len(past.calls):,}; without one it lists them")
    seen = await in_thread(past.at, wanted)
    return CommandReply(f"Call {wanted:,} of {len(past.calls):,}", call_text(seen))


async def recall(agent: "Agent", query: str) -> CommandReply:
    from tui_agent.tools.base import ToolFailure

    query, everywhere = everywhere_in(query)
    if not query:
        return refused("/recall needs something to search for")
    try:
        found = await agent.context.recall(query, RECALL_HITS, everywhere=everywhere)
    except ToolFailure as failure:
        return refused("Nothing can be searched", str(failure))
    if not found.hits:
        where = hits_title(found) if everywhere else "Nothing like that was said in this session"
        return CommandReply(where, "" if everywhere else "/recall --all WORDS looks in the project's other sessions.")
    lines = [line for hit in found.hits for line in (hit_title(hit), f"        {hit_words(hit)}")]
    return CommandReply(hits_title(found), "\n".join(lines))


def everywhere_in(query: str) -> tuple[str, bool]:
    """What is asked of /recall, and whether it is asked of all sessions of the project."""
    word, _, rest = query.partition(" ")
    return (rest.strip(), True) if word in ("--all", "-a") else (query, False)


def hits_title(found: "RecallHits") -> str:
    """How many places were found, and in how many sessions."""
    places = f"{counted(max(found.total, len(found.hits)), 'place')} found"
    if not found.sessions:
        return places
    left = f"; {counted(found.left_out, 'older one')} not searched" if found.left_out else ""
    return f"{places} in {counted(found.sessions, 'other session')} of this project{left}"


def hit_title(hit: "RecallHit") -> str:
    """The number of a hit of /recall, who said it, and whether the model still sees it."""
    what = f" {hit.tool} {one_line(hit.call, HIT_CALL_CHARS)}".rstrip() if hit.tool else ""
    if hit.session:
        day = datetime.fromtimestamp(hit.time).strftime("%Y-%m-%d")
        return f"{day}  {SAID_BY.get(hit.role, hit.role)}{what}, {one_line(hit.session)}"
    return f"{hit.seq:>6}  {SAID_BY.get(hit.role, hit.role)}{what}{', left the window' * hit.hidden}"


def hit_words(hit: "RecallHit") -> str:
    """The words around the match, from the beginning of one."""
    start = max(0, hit.offset - EXCERPT_CHARS // 3)
    around = hit.excerpt[hit.excerpt.find(" ", start) + 1 if start else 0 :].split()
    return one_line(" ".join(word for word in around if not word.startswith("```")), EXCERPT_CHARS)


async def todo(agent: "Agent", _: str) -> CommandReply:
    todo = agent.context.todo()
    if not todo.items:
        return CommandReply("There is no task list", "The model keeps one for work of several steps; ask it to.")
    title = f"Task list: {todo.done} of {len(todo.items)} done"
    return CommandReply(title, "\n".join(one_line(item.line) for item in todo.items))


async def preview(agent: "Agent", step: str) -> CommandReply:
    from tui_agent.context.effects import Refusal
    from tui_agent.context.forecast import price_lines

    kind = PREVIEWED.get(step)
    if kind is None:
        return refused("/preview takes compact, clear or done")
    seen = await agent.context.preview(kind)
    if isinstance(seen, Refusal):
        return refused("Nothing to do", seen.reason)
    change, price = seen.preview, seen.price
    about = "" if seen.exact else "about "
    lines = [
        f"Tokens now         {change.before:>10,}",
        f"Tokens after       {about + format(change.after, ','):>10}",
        f"Leaves the view    {len(change.leaving):>10,} {_things(len(change.leaving))}",
    ]
    if change.thinking_calls:
        lines.append(
            f"Drops the thinking of {change.thinking_calls:>7,} {'call' if change.thinking_calls == 1 else 'calls'}"
        )
    if price is not None:
        lines += [f"{label:<19}{value}" for label, value in price_lines(price, exact=seen.exact)]
    if note := figures_from(agent.profile):
        lines += ["", note]
    names = {"compact": "/compact", "clear": "/clear-results", "checkpoint": "/done"}
    return CommandReply(f"What {names[seen.step]} would do", "\n".join(lines))


def _things(count: int) -> str:
    return "message or result" if count == 1 else "messages and results"


async def compact(agent: "Agent", focus: str) -> CommandReply:
    return _summarized(await agent.compact(focus), "Compacted")


async def done(agent: "Agent", note: str) -> CommandReply:
    return _summarized(await agent.checkpoint(note), "Checkpoint written")


def _summarized(result: "ContextStep", done: str) -> CommandReply:
    if result.error:
        return refused("The context stays as it is", result.error)
    return CommandReply(f"{done}: {result.before:,} → {result.after:,} tokens", result.text)


async def clear_results(agent: "Agent", _: str) -> CommandReply:
    return _changed(await agent.context.clear_results(), "Cleared {items} old result{s}")


async def pin(agent: "Agent", numbers: str) -> CommandReply:
    if not numbers:
        return await items(agent, "")
    return await _with_items(agent, numbers, agent.context.pin, "Pinned")


async def unpin(agent: "Agent", numbers: str) -> CommandReply:
    return await _with_items(agent, numbers, lambda items: agent.context.pin(items, pinned=False), "Unpinned")


async def restore(agent: "Agent", numbers: str) -> CommandReply:
    return await _with_items(agent, numbers, agent.context.restore, "Brought back")


async def _with_items(
    agent: "Agent", numbers: str, change: Callable[[list[int]], Awaitable["ContextStep | Refusal"]], done: str
) -> CommandReply:
    words = numbers.replace(",", " ").split()
    items = [item for word in words if (item := number_of(word)) is not None]
    if not words or len(items) != len(words):
        return refused("Name messages by their numbers; /items lists them")
    reply = _changed(await change(items), done)
    lines = [f"{item:>6}  {one_line(agent.context.excerpt(item), EXCERPT_CHARS)}" for item in items]
    return reply if reply.failed else CommandReply(reply.title, "\n".join(lines))


async def words(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.conversation.entries import Words

    view = agent.engine.view
    if not argument:
        shown = view.shown_words()
        lines = [f"{each.seq:>6}  {shorten(each.text, EXCERPT_CHARS, placeholder=' …')}" for each in view.words()]
        if not lines and not shown.left_out:
            return CommandReply(
                "All your words are still in the conversation", "After a summary they stand word for word."
            )
        in_view, rest = len(lines) - len(shown.words), ""
        if in_view:
            rest += f"\n\n{in_view} of them are still in view themselves."
        if shown.left_out:
            rest += f"\n\n{counted(shown.left_out, 'older message')} left out for want of room; /recall finds them."
        text = "\n".join(lines)
        return CommandReply(
            "What you said, kept word for word",
            f"{text}{rest}\n\n/words NUMBER TEXT keeps other words of it, "
            "/words NUMBER drop none, /pin NUMBER shows it where it stood.",
        )
    number, _, text = argument.partition(" ")
    seq = number_of(number)
    if seq is None or not text.strip():
        return refused("/words takes nothing, or the number of a message and its words, or drop")
    kept = "" if text.strip().lower() == "drop" else text.strip()
    return _changed(await agent.context.edit_words([Words(seq, kept)]), "Dropped" if not kept else "Kept")


async def undo_step(agent: "Agent", number: str) -> CommandReply:
    step = number_of(number) if number else None
    if number and step is None:
        return refused("/undo-step takes the number of a step, or nothing for the newest")
    return _changed(await agent.context.undo(step), "Undone")


def _changed(step: "ContextStep | Refusal", done: str) -> CommandReply:
    from tui_agent.context.effects import Refusal

    if isinstance(step, Refusal):
        return refused("The context stays as it is", step.reason)
    sizes = f": {step.before:,} → {step.after:,} tokens" if step.before != step.after else ""
    return CommandReply(f"{done.format(items=step.items, s='s' * (step.items != 1))}{sizes} (step {step.seq})")
