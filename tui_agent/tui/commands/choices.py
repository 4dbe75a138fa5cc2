"""The commands /mode, /theme and /policy: what runs without asking, the colours, and what context policy to follow."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tui_agent.settings import POLICIES
from tui_agent.text import money_text
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host
from tui_agent.tui.prompt.completion import CompletionItem
from tui_agent.tui.wording import CONFINED, MODES

if TYPE_CHECKING:
    from pathlib import Path

    from tui_agent.agent.agent import Agent
    from tui_agent.replay.many import Result

POLICY_TITLE: Final = "Policy: what this session would have cost, and kept word for word"
POLICY_ALONE: Final = "Policy: what is spent on keeping the conversation word for word"


async def choose_mode(host: Host, argument: str) -> None:
    """Switch the permission mode, and save it for later starts, except `allow`."""
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    meanings = MODES | {"auto": CONFINED} if await asyncio.to_thread(lambda: agent.permissions.runs_confined) else MODES
    options = [Option(mode, mode, meaning) for mode, meaning in meanings.items()]
    name = argument or await host.pick("Mode: what needs your approval", options, agent.permissions.mode)
    if name is None:
        return
    mode = next((known for known in MODES if known == name), None)
    if mode is None:
        host.say(Level.WARNING, f"There is no mode {name}", hint=f"one of {', '.join(MODES)}")
        return
    agent.permissions.mode = mode
    host.refresh_status()
    host.say(Level.INFO, f"Mode {mode}: {meanings[mode]}")
    if mode != "allow":  # it must not come as a surprise in another folder
        await host.keep("permissions.mode", mode)


def mode_choices() -> Iterable[CompletionItem]:
    return (CompletionItem(mode, mode, meaning) for mode, meaning in MODES.items())


async def choose_theme(host: Host, argument: str) -> None:
    """Switch the theme, previewing each as it is marked, and save the choice."""
    from tui_agent.tui.dialogs.pickers import Option
    from tui_agent.tui.painting.themes import ALIASES, KINDS

    names, before = host.theme_names(), host.theme
    options = [Option(name, name, KINDS.get(name, "yours")) for name in names]
    name = argument or await host.pick("Theme", options, before, preview=host.use_theme)
    if name is None:
        host.use_theme(before)
        return
    if name not in (*names, *ALIASES):
        host.say(Level.WARNING, f"There is no theme {name}", hint=f"one of {', '.join(names)}")
        return
    host.use_theme(name)
    await host.keep("ui.theme", host.theme)


def theme_choices(host: Host) -> Iterable[CompletionItem]:
    from tui_agent.tui.painting.themes import KINDS

    return (CompletionItem(name, name, KINDS.get(name, "yours")) for name in host.theme_names())


async def choose_policy(host: Host, argument: str) -> None:
    """Switch the context policy; without a name, first show what each would have cost in this session."""
    from tui_agent.agent.turn.turns import AgentBusy

    agent = await host.agent()
    name = argument or await _picked_policy(host, agent)
    if name is None:
        return
    policy = next((known for known in POLICIES if known == name), None)
    if policy is None:
        host.say(Level.WARNING, f"There is no policy {name}", hint=f"one of {', '.join(POLICIES)}")
        return
    try:
        await agent.context.use_policy(policy)
    except AgentBusy:
        now = agent.settings.context.policy
        host.say(Level.WARNING, f"The policy stays {now} while a turn runs", hint="Esc stops the turn")
        return
    stays = [key for key in POLICIES[policy].values if agent.settings.is_set(key)]
    unchanged = f"{', '.join(stays)}: as you have set it." if stays else ""
    host.refresh_status()
    meaning = POLICIES[policy].meaning
    host.say(
        Level.INFO, f"Policy {policy}: {meaning}", unchanged, "for this session; the setting context.policy keeps it"
    )


async def _picked_policy(host: Host, agent: "Agent") -> str | None:
    from tui_agent.replay.many import policy_costs
    from tui_agent.tui.dialogs.pickers import Option

    costs: list[Result] = []

    async def replay(folder: "Path") -> None:
        window = agent.engine.window.tokens
        costs.extend(await policy_costs(folder, agent.settings, agent.profile.name, window=window))

    if host.session_folder is not None:
        host.working("replaying this session under each policy")
        try:
            if not await host.until_stopped(replay(host.session_folder)):
                return None
        finally:
            host.working("")
    figures = {cost.policy: f"{money_text(cost.cost_usd):>8}  {cost.verbatim_share:>4.0%}  " for cost in costs}
    options = [Option(name, name, figures.get(name, "") + policy.meaning) for name, policy in POLICIES.items()]
    return await host.pick(POLICY_TITLE if costs else POLICY_ALONE, options, agent.settings.context.policy)
