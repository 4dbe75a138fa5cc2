"""The commands of a conversation in text form, the same for the full-screen app and for one-shot use.

Each command is one row of `COMMANDS` or `IN_TEXT`: its name, what it does, and the handler that does it. Help and
completion read the rows before there is an agent, so what only a handler needs is imported inside it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from textwrap import shorten
from typing import TYPE_CHECKING, Final, Literal

from tui_agent.agent.commands.reply import Reply
from tui_agent.text import one_line, price_or_time

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.events import ContextStep
    from tui_agent.agent.extensions.own import OwnPrompt
    from tui_agent.context.changes import Outlook
    from tui_agent.context.effects import Refusal
    from tui_agent.context.summary.writing import CompactionResult
    from tui_agent.models.base import ModelProfile
    from tui_agent.tools.gate.permissions import GrantedRule
    from tui_agent.tools.recall import RecallHit

AT_ONCE: Final = "!"
"""Behind the name of a command that the app shows a preview of: do it without one."""

LEARNING_S: Final = 8.0
"""Seconds a command waits for what the provider tells of the model; an SDK's import is among them."""

RECALL_HITS: Final = 8
"""Hits that /recall shows."""

REWOUND: Final = ("", "files", "both", "diff")
"""What may follow the number of /rewind: which of conversation and files is rewound, or what that would change."""

UNDONE: Final = {"": "both", "both": "both", "files": "files", "conversation": "", "diff": "diff"}
"""What may follow /undo, and what of `REWOUND` that is."""

EXCERPT_CHARS: Final = 240
"""Characters shown of a hit of /recall."""

HIT_CALL_CHARS: Final = 60
"""Characters of the call whose result was found."""

SAID_BY: Final = {
    "user": "you",
    "assistant": "the model",
    "reasoning": "the model, thinking",
    "tool_call": "call of",
    "tool_result": "result of",
    "raw_output": "whole output of",
}
"""Whose words a hit of /recall holds; what is not named here says itself what it is."""

DESCRIPTION_CHARS: Final = 200
"""Characters shown of a tool's description."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is typed as ``/name argument``."""

    name: str
    description: str
    run: Callable[["Agent", str], Awaitable[Reply]]
    """Gets what follows the name, without the space around it."""
    argument: str = ""
    """How what follows is called in the help; empty: nothing may follow."""
    aliases: tuple[str, ...] = ()
    previews: Literal["", "compact", "checkpoint", "clear"] = ""
    """The step of which the full-screen app shows first what it would do, except with `AT_ONCE` behind the name."""
    uses_profile: bool = False
    """Its answer depends on what the provider tells of the model, such as the window."""
    is_available: Callable[["Agent"], bool] = lambda agent: True

    @property
    def previewed(self) -> bool:
        """Whether `AT_ONCE` may follow its name."""
        return bool(self.previews)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return (self.name, *self.aliases)


def is_command(text: str) -> bool:
    """Whether a text asks for a command: ``/name``, and not a path."""
    name = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return name.startswith("/") and "/" not in name[1:] and "\n" not in text.strip()


def command_name(text: str) -> str:
    """The name of the command that a text asks for."""
    return text.strip().partition(" ")[0].removeprefix("/").lower()


async def run_command(agent: "Agent", text: str, *, learn: bool = False) -> Reply:
    """Do what ``/name argument`` says. `learn`: wait for what the provider tells of the model, whatever the command.

    Raises `AgentBusy` where it cannot be done while a turn runs, and `StorageError`.
    """
    word, _, argument = text.strip()[1:].partition(" ")
    name, argument = word.lower(), argument.strip()
    commands = available_commands(agent)
    for command in commands:
        if name in command.names or (command.previewed and name.removesuffix(AT_ONCE) in command.names):
            if argument and not command.argument:
                return Reply(f"/{command.name} takes nothing after it", failed=True)
            if command.uses_profile or learn:
                await learn_profile(agent)
            return await command.run(agent, argument)
    close = get_close_matches(name, [known for command in commands for known in command.names], n=1)
    nearest = f"Did you mean /{close[0]}?" if close else "/help lists the commands."
    return Reply(
        f"There is no command /{word}",
        f"{nearest} A space before the slash sends it to the model as it is.",
        failed=True,
    )


def available_commands(agent: "Agent") -> tuple[Command, ...]:
    """The commands this agent has: without checkpoints there is no /done."""
    return tuple(command for command in (*COMMANDS, *IN_TEXT) if command.is_available(agent))


async def own_prompt(agent: "Agent", text: str) -> "OwnPrompt | None":
    """The user's own command that a text asks for, where the program has none of that name."""
    name = command_name(text)
    known = {known for command in available_commands(agent) for known in command.names}
    return None if name in known else await agent.own_prompt(name)


async def learn_profile(agent: "Agent") -> None:
    """Wait for what the provider tells of the model, for `LEARNING_S` at most."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(agent.connect(), LEARNING_S)


# What the context is made of


async def _context(agent: "Agent", _: str) -> Reply:
    from tui_agent.context import stats

    # A window that the user has set is in force whatever the provider tells.
    note = "" if agent.settings.context.context_window else _where_from(agent.profile)
    shown = stats.text(agent.context_stats(), time.time())
    return Reply("Context", f"{shown}\n\n{note}" if note else shown)


async def _stats(agent: "Agent", _: str) -> Reply:
    from tui_agent.agent.commands.spending import usage_text

    return Reply("Usage", usage_text(agent))


async def _cost(agent: "Agent", _: str) -> Reply:
    from tui_agent.agent.commands.spending import cost_text

    return Reply("Cost", cost_text(agent))


async def _items(agent: "Agent", _: str) -> Reply:
    from tui_agent.agent.overview import item_line

    items = agent.items()
    lines = [f"{item.seq:>6}  {item_line(item, agent.excerpt(item.seq))}" for item in items]
    return Reply(f"{len(items)} messages and results", "\n".join(lines))


async def _recall(agent: "Agent", query: str) -> Reply:
    from tui_agent.tools.base import ToolFailure

    if not query:
        return Reply("/recall needs something to search for", failed=True)
    try:
        found = await agent.recall(query, RECALL_HITS)
    except ToolFailure as failure:
        return Reply("Nothing can be searched", str(failure), failed=True)
    if not found.hits:
        return Reply("Nothing of this session has that, nor its words")
    total = max(found.total, len(found.hits))
    told = f"{total:,} place{'s' * (total != 1)} found"
    return Reply(told, "\n".join(line for hit in found.hits for line in _hit_lines(hit)))


def _hit_lines(hit: "RecallHit") -> Iterator[str]:
    """Who said it and whether the model still sees it; then the words around the match."""
    what = f" {hit.tool} {one_line(hit.call, HIT_CALL_CHARS)}".rstrip() if hit.tool else ""
    yield f"{hit.seq:>6}  {SAID_BY.get(hit.role, hit.role)}{what}{', left the window' if hit.hidden else ''}"
    excerpt = " ".join(word for word in _around(hit).split() if not word.startswith("```"))
    yield f"        {one_line(excerpt, EXCERPT_CHARS)}"


def _around(hit: "RecallHit") -> str:
    """The part of an excerpt that has the match in it, from the beginning of a word."""
    start = max(0, hit.offset - EXCERPT_CHARS // 3)
    return hit.excerpt[hit.excerpt.find(" ", start) + 1 if start else 0 :]


async def _todo(agent: "Agent", _: str) -> Reply:
    todo = agent.todo()
    if not todo.items:
        return Reply("There is no task list", "The model keeps one for work of several steps; ask it to.")
    title = f"Task list: {todo.done} of {len(todo.items)} done"
    return Reply(title, "\n".join(one_line(item.line) for item in todo.items))


# Changing the context


async def _preview(agent: "Agent", step: str) -> Reply:
    from tui_agent.context.effects import Refusal

    match step:
        case "" | "compact":
            outlook = await agent.preview("compact")
        case "clear" | "clear-results":
            outlook = await agent.preview("clear")
        case "done" | "checkpoint":
            outlook = await agent.preview("checkpoint")
        case _:
            return Reply("/preview takes compact, clear or done", failed=True)
    if isinstance(outlook, Refusal):
        return Reply("Nothing to do", outlook.reason, failed=True)
    shown = _outlook(outlook)
    note = _where_from(agent.profile)
    return replace(shown, text=f"{shown.text}\n\n{note}") if note else shown


def _outlook(outlook: "Outlook") -> Reply:
    preview, payback = outlook.preview, outlook.payback
    about = "" if outlook.exact else "about "
    lines = [
        f"Tokens now         {preview.before:>10,}",
        f"Tokens after       {about + format(preview.after, ','):>10}",
        f"Leaves the view    {len(preview.leaving):>10,} messages and results",
    ]
    if preview.reasoning_dropped:
        lines.append(f"Reasoning dropped  {preview.reasoning_dropped:>10,} blocks")
    if payback is not None:
        back = f"pays back after {payback.calls:,} calls" if payback.calls is not None else "does not pay back"
        lines.append(f"Cost now           {price_or_time(payback.cost_usd, payback.cost_s):>10}, {back}")
    names = {"compact": "/compact", "clear": "/clear-results", "checkpoint": "/done"}
    return Reply(f"What {names[outlook.step]} would do", "\n".join(lines))


async def _compact(agent: "Agent", focus: str) -> Reply:
    return _summarized(await agent.compact(focus), "Compacted")


async def _done(agent: "Agent", note: str) -> Reply:
    return _summarized(await agent.checkpoint(note), "Checkpoint written")


def _summarized(result: "CompactionResult", done: str) -> Reply:
    if result.error:
        return Reply("The context stays as it is", result.error, failed=True)
    return Reply(f"{done}: {result.before:,} → {result.after:,} tokens", result.text)


async def _clear_results(agent: "Agent", _: str) -> Reply:
    return _changed(await agent.clear_results(), "Cleared {items} results")


async def _pin(agent: "Agent", numbers: str) -> Reply:
    if not numbers:
        return await _items(agent, "")
    return await _with_items(numbers, agent.pin, "Pinned")


async def _unpin(agent: "Agent", numbers: str) -> Reply:
    return await _with_items(numbers, lambda items: agent.pin(items, pinned=False), "Unpinned")


async def _restore(agent: "Agent", numbers: str) -> Reply:
    return await _with_items(numbers, agent.restore, "Brought back")


async def _with_items(
    numbers: str, change: Callable[[list[int]], Awaitable["ContextStep | Refusal"]], done: str
) -> Reply:
    items = [_number(word) for word in numbers.replace(",", " ").split()]
    if not items or None in items:
        return Reply("Name messages by their numbers; /items lists them", failed=True)
    return _changed(await change([item for item in items if item is not None]), done)


async def _kept_words(agent: "Agent", argument: str) -> Reply:
    """List what is kept of the user's words, or keep other words of a message, or none."""
    from tui_agent.conversation.entries import Words

    view = agent.engine.view
    if not argument:
        shown = {each.seq for each in view.shown_words()}
        lines = [f"{each.seq:>6}  {shorten(each.text, EXCERPT_CHARS, placeholder=' …')}" for each in view.words()]
        if not lines:
            return Reply(
                "Your words all stand in the conversation", "After a summary they are kept beside it, as said."
            )
        rest = "" if len(shown) == len(lines) else f"\n\n{len(lines) - len(shown)} of them stand in view themselves."
        text = "\n".join(lines)
        return Reply(
            "What you said, kept word for word",
            f"{text}{rest}\n\n/words NUMBER TEXT keeps other words of it, "
            "/words NUMBER drop none, /pin NUMBER shows it where it stood.",
        )
    number, _, text = argument.partition(" ")
    seq = _number(number)
    if seq is None or not text.strip():
        return Reply("/words takes nothing, or the number of a message and its words, or drop", failed=True)
    kept = "" if text.strip().lower() == "drop" else text.strip()
    return _changed(await agent.edit_words([Words(seq, kept)]), "Dropped" if not kept else "Kept")


async def _undo_step(agent: "Agent", number: str) -> Reply:
    step = _number(number) if number else None
    if number and step is None:
        return Reply("/undo-step takes the number of a step, or nothing for the newest", failed=True)
    return _changed(await agent.undo(step), "Undone")


def _number(word: str) -> int | None:
    """The number of an entry; no log has one of more than 18 digits."""
    return int(word) if word.isdecimal() and len(word) <= 18 else None


def _changed(step: "ContextStep | Refusal", done: str) -> Reply:
    from tui_agent.context.effects import Refusal

    if isinstance(step, Refusal):
        return Reply("The context stays as it is", step.reason, failed=True)
    return Reply(f"{done.format(items=step.items)}: {step.before:,} → {step.after:,} tokens (step {step.seq})")


# Branches


async def _rewind(agent: "Agent", argument: str) -> Reply:
    if not argument:
        from tui_agent.aside import aside

        said = await aside(agent.prompts)
        lines = [f"{prompt.seq:>6}  {_words(prompt.text)}" for prompt in said]
        return Reply("Take back which message, with all that came after it? /rewind NUMBER", "\n".join(lines))
    number, _, what = argument.partition(" ")
    seq = _number(number)
    if seq is None or what.strip() not in REWOUND:
        return Reply(
            "/rewind takes the number of a message of yours, and then files, both or diff; without one it lists them",
            failed=True,
        )
    try:
        agent.check_prompt(seq)
        return await _rewound(agent, seq, what.strip())
    except ValueError as error:
        return Reply("Nothing was taken back", f"{error}. /rewind lists your messages.", failed=True)


async def _rewound(agent: "Agent", seq: int, what: str) -> Reply:
    from tui_agent.agent.history.file_texts import done_text, plan_text, plan_title, title_of_done

    planned = await agent.file_changes(seq)
    if what == "diff":
        return Reply(plan_title(planned), plan_text(planned))
    told: list[str] = []
    if what in {"files", "both"}:
        done = await agent.put_back(planned, tell=what == "files")
        told = [title_of_done(done), done_text(planned, done)]
        if what == "files":
            return Reply(told[0], told[1], failed=not done.done)
    elif planned:
        told = [f"{plan_title(planned)}. The files stay as they are: /rewind {seq} both puts them back as well."]
    text = await agent.rewind(seq)
    shown = "\n\n".join(part for part in (text, *told) if part)
    return Reply(f"Message {seq} and what followed is taken back; /tree leads back to it", shown)


async def _undo(agent: "Agent", what: str) -> Reply:
    """Take the newest turn back: what was said and the files it changed, or one of them."""
    from tui_agent.aside import aside

    if what not in UNDONE:
        return Reply(f"/undo takes nothing, or one of {', '.join(filter(None, UNDONE))}", failed=True)
    said = await aside(agent.prompts)
    if not said:
        return Reply("There is nothing to undo", failed=True)
    return await _rewound(agent, said[-1].seq, UNDONE[what])


async def _undo_edits(agent: "Agent", argument: str) -> Reply:
    from tui_agent.agent.history.file_texts import (
        NOTHING,
        NOTHING_TO_REDO,
        done_text,
        plan_text,
        plan_title,
        title_of_done,
    )

    if argument not in {"", "diff", "redo"}:
        return Reply("/undo-edits takes nothing, or diff, or redo", failed=True)
    planned = await agent.newest_file_changes(redo=argument == "redo")
    if planned is None or not planned:
        return Reply(NOTHING_TO_REDO if argument == "redo" else NOTHING, failed=True)
    if argument == "diff":
        return Reply(plan_title(planned), plan_text(planned))
    done = await agent.put_back(planned)
    return Reply(title_of_done(done), done_text(planned, done), failed=not done.done)


async def _fork(agent: "Agent", number: str) -> Reply:
    seq = _number(number) if number else None
    if number and seq is None:
        return Reply("/fork takes the number of a message, or nothing for the newest", failed=True)
    try:
        place = await agent.fork(seq)
    except ValueError as error:
        return Reply("No branch was begun", f"{error}. /items lists the messages.", failed=True)
    return Reply(f"A branch begins after entry {place}; /tree leads back to the other one")


async def _tree(agent: "Agent", number: str) -> Reply:
    if number:
        tip = _number(number)
        try:
            await agent.switch_branch(tip or 0)
        except ValueError as error:
            return Reply("The conversation stays on its branch", f"{error}. /tree lists them.", failed=True)
        return Reply(f"Back on the branch that ends at {tip}")
    from tui_agent.aside import aside

    branches = await aside(agent.branches)
    lines = [
        f"{'*' if branch.present else ' '}{branch.tip:>6}  {branch.messages:>5} messages"
        f"{'' if branch.present else f' from {branch.fork}'}  {_words(branch.text)}".rstrip()
        for branch in branches
    ]
    title = f"{len(branches)} branches" if len(branches) != 1 else "One branch"
    return Reply(f"{title}; /tree NUMBER goes on with one", "\n".join(lines))


def _words(text: str) -> str:
    return shorten(" ".join(text.split()), 60, placeholder=" …")


# The model, its tools, and what else there is


async def _model(agent: "Agent", name: str) -> Reply:
    if name:
        refused = await _change_model(agent, name)
        if refused:
            return Reply(f"The model stays {agent.profile.name}", refused, failed=True)
        return Reply(f"{agent.profile.name} answers from here on")
    await learn_profile(agent)
    profile = agent.profile
    facts = [profile.name, "" if profile.tier == "unknown" else profile.tier]
    facts.append(f"{profile.window:,} tokens" if profile.window else "window unknown")
    prices = profile.prices
    facts.append(f"${prices.input:g} / ${prices.output:g} per million tokens" if prices else "price unknown")
    others = "/model NAME lets another one answer; claude-…, gemini-…, openai:NAME, ollama:NAME, offline."
    return Reply(
        ", ".join(fact for fact in facts if fact), "\n".join(line for line in (_where_from(profile), others) if line)
    )


async def _change_model(agent: "Agent", name: str) -> str:
    """Let the model `name` answer from here on; why it does not, or empty. Raises `AgentBusy`, `StorageError`."""
    from tui_agent.agent.model_choice import configured_model
    from tui_agent.models.base import ModelError
    from tui_agent.models.catalogue import missing_key

    try:
        missing = missing_key(name)
        if missing is not None:
            return f"There is no key for {name}: set {missing}."
        await agent.swap_model(await asyncio.to_thread(configured_model, agent.settings, name))
    except ModelError as error:
        return error.message
    return ""


def _where_from(profile: "ModelProfile") -> str:
    """Where the figures of a model come from, where the provider has not told them; else empty."""
    match profile.source:
        case "provider" | "settings":
            return ""
        case "catalogue":
            return f"The provider has told nothing of {profile.name}: its window and prices are the catalogue's."
        case _:
            return f"Neither the provider nor the catalogue has told the window of {profile.name}: it is assumed."


async def _escalate(agent: "Agent", _: str) -> Reply:
    from tui_agent.models.base import ModelError

    busy = agent.busy
    try:
        name = await agent.escalate()
    except ModelError as error:
        return Reply(f"The model stays {agent.profile.name}", error.message, failed=True)
    if not name:
        return Reply(f"The model stays {agent.profile.name}", "No larger one can be asked; see /model.", failed=True)
    return Reply(f"{name} answers from {'the next step' if busy else 'here'} on")


async def _tools(agent: "Agent", _: str) -> Reply:
    tools = agent.tools()
    width = max((len(tool.name) for tool in tools), default=0) + 2
    lines = [f"{tool.name:<{width}}{_first_sentence(tool.description)}" for tool in tools]
    return Reply(f"{len(tools)} tools", "\n".join(lines))


def _first_sentence(text: str) -> str:
    line = " ".join(text.split()).split(". ", 1)[0].rstrip(".")
    return shorten(line, DESCRIPTION_CHARS, placeholder=" …")


async def _permissions(agent: "Agent", argument: str) -> Reply:
    from tui_agent.tools.gate.remembered import RememberedError

    rules = agent.permission_rules()
    if not argument:
        lines = [f"{place:>3}  {rule_text(rule)}" for place, rule in enumerate(rules, 1)]
        again = "/permissions NUMBER takes a remembered one back." if any(rule.remembered for rule in rules) else ""
        shown = "\n".join(filter(None, [f"Mode {agent.mode}.", *lines, again]))
        return Reply(f"{len(rules)} rule{'s' * (len(rules) != 1)}", shown)
    number = _number(argument)
    if number is None or not 1 <= number <= len(rules):
        return Reply("There is no such rule", "/permissions lists them by number.", failed=True)
    rule = rules[number - 1]
    if not rule.remembered:
        return Reply(
            "That rule is of the settings", "`tui-agent config` says which file has it; take it out there.", failed=True
        )
    try:
        await agent.take_back(rule.text)
    except RememberedError as error:
        return Reply("The rule is taken back for this session only", str(error), failed=True)
    return Reply("You will be asked again", one_line(rule.text, 4_000))


def rule_text(rule: "GrantedRule") -> str:
    """A rule on a line, for a person to read."""
    source = "remembered" if rule.remembered else f"settings, {rule.kind}"
    said = "" if rule.said == rule.text else f" · {one_line(rule.said, 4_000)}"
    return f"{one_line(rule.text, 4_000)}{said} ({source})"


async def _mcp(agent: "Agent", argument: str) -> Reply:
    from tui_agent.agent.commands.servers import mcp

    return await mcp(agent, argument)


async def _extensions(agent: "Agent", _: str) -> Reply:
    skills = (await agent.skills()).split("\n")
    return Reply("Your own, and the project's", f"{await agent.extensions_text()}\n\nSkills\n  " + "\n  ".join(skills))


async def _style(agent: "Agent", name: str) -> Reply:
    from tui_agent.agent.extensions.styles import OFF

    if not name:
        styles = await asyncio.to_thread(agent.extensions.styles) if agent.extensions is not None else ()
        lines = [f"  {each.name:<20}  {each.problem or each.description}" for each in styles]
        now = f"Answers are written in the style {agent.style}." if agent.style else "Answers are written as always."
        more = "/style NAME chooses one, /style off none; the setting session.style does for every session."
        return Reply(now, "\n".join((*lines, more)))
    if not await agent.use_style("" if name == OFF else name.lower()):
        return Reply(f"There is no style {name}", "/style lists those there are.", failed=True)
    return Reply("Answers are written as always" if name == OFF else f"Answers are written in the style {name}")


async def _skills(agent: "Agent", _: str) -> Reply:
    return Reply("Skills", await agent.skills())


async def _memory(agent: "Agent", _: str) -> Reply:
    return Reply("Memory", await agent.memory())


async def _resume(agent: "Agent", _: str) -> Reply:
    return Reply(agent.reset_cost_ceiling())


async def _help(agent: "Agent", _: str) -> Reply:
    return Reply("Commands", help_text(available_commands(agent)))


def help_text(commands: Iterable[Command]) -> str:
    """Every command on a line."""
    usages = [(f"/{command.name} {command.argument}".rstrip(), command) for command in commands]
    width = max(len(usage) for usage, _ in usages) + 2
    return "\n".join(f"{usage:<{width}}{command.description}" for usage, command in usages)


COMMANDS: Final = (
    Command("compact", "summarise older turns now", _compact, "[focus]", ("summarize",), previews="compact"),
    Command(
        "done",
        "record the finished task",
        _done,
        "[note]",
        ("checkpoint",),
        previews="checkpoint",
        is_available=lambda agent: agent.has_checkpointer,
    ),
    Command("context", "what fills the window", _context, "[text]", ("boundaries",), uses_profile=True),
    Command("stats", "tokens, cost and cache hits, per model", _stats),
    Command("cost", "what was spent, and what the next call costs", _cost, uses_profile=True),
    Command("preview", "see what compact, clear or done would do", _preview, "[step]", uses_profile=True),
    Command("clear-results", "clear all old tool results", _clear_results, previews="clear", uses_profile=True),
    Command("items", "all messages and results: number, size, words", _items),
    Command("pin", "keep messages or results whole", _pin, "[number ...]", uses_profile=True),
    Command("unpin", "take pins off", _unpin, "<number ...>"),
    Command("restore", "show them whole again", _restore, "<number ...>", uses_profile=True),
    Command("words", "what is kept of what you said, or change it", _kept_words, "[number text]", uses_profile=True),
    Command("undo-step", "undo a context step", _undo_step, "[number]", ("undo-compact",), uses_profile=True),
    Command("undo", "take the last turn back: files, words, or both", _undo, "[what]"),
    Command("rewind", "take back a message and what followed", _rewind, "[number [what]]"),
    Command("undo-edits", "put back the files that the newest turn changed", _undo_edits, "[redo]"),
    Command("fork", "begin another branch at a message", _fork, "[number]"),
    Command("tree", "the branches, or go to one", _tree, "[number]", ("branches",)),
    Command("todo", "the model's task list", _todo),
    Command("recall", "search all that was ever said", _recall, "<text>"),
    Command("permissions", "what may happen unasked; take a rule back", _permissions, "[number]"),
    Command("mcp", "servers of tools: state, price, on and off", _mcp, "[name]", uses_profile=True),
    Command("extensions", "your own commands and hooks, and the project's", _extensions),
    Command("style", "how answers are written", _style, "[name]"),
    Command("skills", "the skills the model can read", _skills),
    Command("memory", "the notes kept about this project", _memory),
    Command("continue-spending", "go on after the ceiling", _resume),
)

IN_TEXT: Final = (
    Command("help", "what can be typed", _help),
    Command("tools", "what the model can use", _tools),
    Command("model", "who answers, or let another model answer", _model, "[name]"),
    Command("escalate", "go on with the provider's frontier model", _escalate, uses_profile=True),
)
"""Commands that the full-screen app has in a form of its own."""
