"""The commands on the model, tools, permissions, extensions, styles, skills, memory, cost and worktrees.

Modules that only a handler needs are imported inside it.
"""

import asyncio
import contextlib
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.command import CommandReply, number_of, refused
from tui_agent.text import counted, expanded, money_text, one_line, short_path

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.conversation.profile import ModelProfile
    from tui_agent.models.usage import Totals


OFF: Final = "off"
"""The name that turns the output style off."""

LEARNING_S: Final = 8.0
"""Seconds a command waits for the provider's facts on the model, including the import of an SDK."""

DESCRIPTION_CHARS: Final = 200
"""Characters shown of a tool's description."""


async def learn_profile(agent: "Agent") -> None:
    """Wait at most `LEARNING_S` for the provider's facts on the model."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(agent.connect(), LEARNING_S)


async def model(agent: "Agent", name: str) -> CommandReply:
    if name:
        from tui_agent.models.base import ModelError
        from tui_agent.models.catalogue import catalogue_of
        from tui_agent.models.choice import meant_model

        try:
            name = await asyncio.to_thread(meant_model, agent.settings, name)
            missing = catalogue_of(agent.settings).missing_key(name)
            if missing is None:
                await agent.swap_model(name)
                return CommandReply(f"{agent.profile.name} answers from here on")
            why = f"There is no key for {name}: set {missing}."
        except ModelError as error:
            why = error.message
        return refused(f"The model stays {agent.profile.name}", why)
    await learn_profile(agent)
    profile, prices = agent.profile, agent.profile.prices
    facts = [profile.name, "" if profile.tier == "unknown" else profile.tier]
    facts.append(f"{profile.window:,} tokens" if profile.window else "window unknown")
    facts.append(f"${prices.input:g} / ${prices.output:g} per million tokens" if prices else "price unknown")
    others = "/model NAME lets another one answer: a name or a part of one, PROVIDER:NAME, offline."
    return CommandReply(", ".join(filter(None, facts)), "\n".join(filter(None, (figures_from(profile), others))))


def figures_from(profile: "ModelProfile") -> str:
    """The source of a model's figures if they are not from the provider; else empty."""
    match profile.source:
        case "provider" | "settings":
            return ""
        case "catalogue":
            return f"The provider reports nothing about {profile.name}: its window and prices are from the catalogue."
        case _:
            return f"Neither the provider nor the catalogue knows the window of {profile.name}: it is assumed."


async def escalate(agent: "Agent", _: str) -> CommandReply:
    from tui_agent.models.base import ModelError

    busy = agent.busy
    try:
        name = await agent.escalate()
    except ModelError as error:
        return refused(f"The model stays {agent.profile.name}", error.message)
    if not name:
        return refused(f"The model stays {agent.profile.name}", "No larger model is available; see /model.")
    return CommandReply(f"{name} answers from {'the next step' if busy else 'here'} on")


async def tools(agent: "Agent", _: str) -> CommandReply:
    tools = agent.tools()
    width = max((len(tool.name) for tool in tools), default=0) + 2
    sentences = (" ".join(tool.description.split()).split(". ", 1)[0].rstrip(".") for tool in tools)
    shown = (shorten(sentence, DESCRIPTION_CHARS, placeholder=" …") for sentence in sentences)
    lines = [f"{tool.name:<{width}}{line}" for tool, line in zip(tools, shown, strict=True)]
    return CommandReply(counted(len(tools), "tool"), "\n".join(lines))


async def permissions(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.tools.gate.remembered import RememberedError

    rules = agent.permissions.rules()
    if not argument:
        lines = [f"Mode {agent.permissions.mode}."]
        if not rules:
            lines.append("A question answered with “always” adds one, and so do permissions.allow, ask and deny.")
        for place, rule in enumerate(rules, 1):
            said = "" if rule.said == rule.text else f" · {one_line(rule.said, 4_000)}"
            lines.append(f"{place:>3}  {one_line(rule.text, 4_000)}{said} ({rule.source})")
        again = "/permissions NUMBER takes a remembered one back." if any(rule.remembered for rule in rules) else ""
        return CommandReply(counted(len(rules), "rule"), "\n".join(filter(None, [*lines, again])))
    number = number_of(argument)
    if number is None or not 1 <= number <= len(rules):
        return refused("There is no such rule", "/permissions lists them by number.")
    rule = rules[number - 1]
    if not rule.remembered:
        where = "`tui-agent config` says which file has it, if not .claude/settings.json, here or in your home."
        return refused("That rule comes from the settings: take it out there", where)
    try:
        await asyncio.to_thread(agent.permissions.take_back, rule.text)
    except RememberedError as error:
        return refused("The rule is taken back for this session only", str(error))
    return CommandReply("You will be asked again", one_line(rule.text, 4_000))


async def extensions(agent: "Agent", _: str) -> CommandReply:
    skills = "\n  ".join(("Skills", *(await agent.briefing.skills_text()).split("\n")))
    return CommandReply("Your own, and the project's", f"{await agent.own_commands.listed()}\n\n{skills}")


async def style(agent: "Agent", name: str) -> CommandReply:
    if not name:
        styles = await agent.own_commands.styles()
        lines = [f"  {each.name:<20}  {each.problem or each.description}" for each in styles]
        present = agent.briefing.style
        now = f"Answers are written in the style {present}." if present else "Answers are written as always."
        more = "/style NAME chooses one, /style off none; the setting session.style does for every session."
        if not styles:
            more = "There is no style yet: write one as .agents/styles/NAME.md, in a project or at home."
        return CommandReply(now, "\n".join((*lines, more)))
    if not await agent.own_commands.use_style("" if name == OFF else name.lower()):
        where = "/style alone lists those there are, and says where they are written."
        return refused(f"There is no style {name}", where)
    return CommandReply("Answers are written as always" if name == OFF else f"Answers are written in the style {name}")


async def memory(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.agent.commands.memory import notes_and_proposals

    return await notes_and_proposals(agent, argument)


async def skills(agent: "Agent", _: str) -> CommandReply:
    return CommandReply("Skills", await agent.briefing.skills_text())


async def diagnostics(agent: "Agent", _: str) -> CommandReply:
    from tui_agent.tools.lsp.diagnosing import problem_text

    if agent.languages is None or not agent.languages.are_used:
        hint = "pip install 'tui-agent[lsp]', and diagnostics.enabled, let servers that are there be asked."
        return refused("No language server is asked", hint)
    states = [f"{name}: {state}" for name, state in agent.languages.states.items()]
    if not states:
        return CommandReply("No language server has been started", "The first edit of a file that one knows starts it.")
    found = agent.languages.problems
    root = agent.folder
    names = [each.path.relative_to(root) if each.path.is_relative_to(root) else each.path for each in found]
    lines = [problem_text(each, one_line(str(name), 300)) for each, name in zip(found, names, strict=True)]
    so_far = " so far" if agent.languages.is_looking else ""
    return CommandReply(
        f"{counted(len(found), 'problem')}{so_far} in the files edited here and in those that use them",
        "\n".join([*lines, *states]),
    )


async def continue_spending(agent: "Agent", _: str) -> CommandReply:
    return CommandReply(agent.reset_cost_ceiling())


async def stats(agent: "Agent", _: str) -> CommandReply:
    total, turn = agent.tracker.session, agent.tracker.turn
    lines = [_totals("Session", total), _totals("Turn", turn)]
    if count := agent.tracker.subtask_count:
        lines.append(_totals(f"Of the session, {counted(count, 'subtask')}", agent.tracker.subtasks))
    models = agent.tracker.by_model()
    if len(models) > 1:
        lines += ["", *(_totals(name, totals) for name, totals in models.items())]
    context = agent.context_stats()
    if context.waits:
        lines.append(f"Turns that had to wait for a summary: {context.waits:,}, {context.waited_s:.0f} s in all")
    elif context.compactions or context.checkpoints:
        lines.append("No turn had to wait for a summary")
    if missed := agent.context.missed_caches():
        lines += ["", *missed]
    return CommandReply("Usage", "\n".join(lines))


async def cost(agent: "Agent", _: str) -> CommandReply:
    from tui_agent.context.forecast import next_call

    tracker = agent.tracker
    rows = [("Session", tracker.session), ("This turn", tracker.turn)]
    rows += [(f"Subtasks ({tracker.subtask_count:,})", tracker.subtasks)] if tracker.subtask_count else []
    rows += [(f"  {name}", totals) for name, totals in tracker.by_model().items()]
    width = max(len(name) for name, _ in rows) + 2
    lines: list[str] = []
    for name, totals in rows:
        price = "unknown" if totals.known_cost_usd is None else money_text(totals.known_cost_usd)
        cached = f", {100 * totals.cache_share:.0f}% from the cache" if totals.cache_share else ""
        lines.append(f"{name:<{width}}{price:>9}  {counted(totals.calls, 'call')}{cached}")
    return CommandReply("Cost", "\n".join([*lines, "", next_call(await agent.context.forecast_when_known())]))


async def usage(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.agent.spending import GROUPS, as_text, spending

    days, by = 30, GROUPS[0]
    for word in argument.split():
        group = next((each for each in GROUPS if each == word), None)
        if group is None and not word.isdecimal():
            return CommandReply(f"/usage {word}: unknown", f"/usage [DAYS] [{'|'.join(GROUPS)}]")
        days, by = (days, group) if group is not None else (int(word), by)
    if agent.home is None:
        return CommandReply("No sessions are kept")
    return CommandReply(
        "Usage of all sessions", as_text(await asyncio.to_thread(spending, agent.home, days=days, by=by))
    )


def _totals(name: str, totals: "Totals") -> str:
    usage = totals.usage
    hits = 100 * (totals.cache_share or 0.0)
    money = "price unknown" if totals.known_cost_usd is None else money_text(totals.known_cost_usd)
    # Not every provider tells it apart.
    thought = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    return (
        f"{name}: {counted(totals.calls, 'call')}, {usage.input_tokens:,} in ({hits:.0f}% from the cache), "
        f"{usage.output_tokens:,} out{thought}, {money}"
    )


STAT_LINES = 20
"""Changed files that a preview lists."""


async def worktree(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.worktrees import WorktreeError

    verb, _, file = argument.partition(" ")
    try:
        async with agent.turns.held():
            return await asyncio.to_thread(_handed_back, agent.folder, verb, file.strip())
    except WorktreeError as error:
        return refused("Nothing was handed back", f"{one_line(str(error), 2_000)}\nThe worktree is as it was.")
    except OSError as error:
        return refused("No patch was written", f"{error.filename}: {error.strerror}")


def _handed_back(folder: Path, verb: str, file: str) -> CommandReply:
    from tui_agent.worktrees import apply, handover_of, merge, patch_of, worktree_at

    made = worktree_at(folder)
    place, kept = short_path(made.repository), f"The worktree stays in {short_path(made.folder)}"
    if verb not in ("", "merge", "apply", "patch") or (file and verb != "patch"):
        opens = "`tui-agent --worktree NAME` opens another."
        return refused("/worktree takes nothing, or merge, or apply, or patch [FILE]", opens)
    found = handover_of(made)
    left = [f"Not handed over: changes inside the submodule {one_line(name)}." for name in found.left]
    if not found.stat:
        same = f"{short_path(made.folder)} {'otherwise ' if left else ''}is what {place} has."
        return CommandReply("Nothing is to be handed back", "\n".join((*left, same)))
    if verb == "merge":
        done = merge(made)
        kept_until = f"{kept} until the session ends, and longer if something changes again."
        return CommandReply(f"Merged into {one_line(done.target)} in {place}", f"{_stat(done.stat)}\n{kept_until}")
    if verb == "apply":
        apply(made)
        return CommandReply(f"Its changes are in {place}, not committed", f"{kept}.")
    if verb == "patch":
        path = folder / expanded(file) if file else made.folder.with_name(f"{made.folder.name}.patch")
        patch = patch_of(made).encode(errors="surrogateescape")
        with path.open("xb") as stream:
            stream.write(patch)
        return CommandReply(f"{len(patch):,} bytes in {short_path(path)}", f"`git apply` takes it. {kept}.")
    lines = [_stat(found.stat), *(one_line(obstacle, 2_000) for obstacle in found.obstacles)]
    lines += left
    lines += ["What is not committed would be committed first."] if found.uncommitted else []
    lines.append("It cannot be merged now." if found.obstacles else "/worktree merge merges it without conflict.")
    lines.append(
        f"/worktree apply changes the files in {place} without a commit, /worktree patch [FILE] writes a patch."
    )
    return CommandReply(f"{one_line(made.branch)} into {one_line(found.target)} in {place}", "\n".join(lines))


def _stat(stat: str) -> str:
    *files, total = (one_line(line, 100) for line in stat.splitlines())
    more = [f"… {len(files) - STAT_LINES} more"] if len(files) > STAT_LINES else []
    return "\n".join((*files[:STAT_LINES], *more, total))
