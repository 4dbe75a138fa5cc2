"""The permission mode in the log: tells the model about plan mode, reads the user's later approval of a plan that
nobody was there to approve, and goes back to the earlier mode when such a change is taken back.
"""

from collections.abc import Iterable
from typing import Final, get_args

from msgspec import structs

from tui_agent.agent.record import Record
from tui_agent.conversation.entries import Message, ModeChanged, Outcome, notice
from tui_agent.conversation.tasks import (
    PLAN,
    PLAN_BEGUN,
    PLAN_OVER,
    approval,
    knows_of_plan_mode,
    waiting_plan,
)
from tui_agent.system.durable import in_thread
from tui_agent.tools.asking import modes_after_plan
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.registry import ToolRegistry

APPROVING: Final = frozenset(("approve", "approved", "yes", "ok"))
"""Words that approve a plan; the name of a mode may follow."""


_LOOSEST_LAST: Final[tuple[Mode, ...]] = get_args(Mode)


class Planning:
    """Keeps the log and the model told of the permission mode."""

    def __init__(self, record: Record, gate: PermissionGate, registry: ToolRegistry) -> None:
        self._record = record
        self._gate = gate
        self._registry = registry
        self._opened_in = self._loosest = gate.mode
        self._head = 0
        self._knows_plan_mode = False

    async def news(self, words: str) -> list[Message | ModeChanged]:
        """What enters with the user's words to tell the model of the mode, also of changes that the words make; call
        `entered` once it has.

        Raises `StorageError`.
        """
        if PLAN not in self._registry:
            return []
        gate, log = self._gate, self._record.view.log
        before = self._record.view.mode or self._opened_in
        self._loosest = max(self._loosest, gate.mode, key=_LOOSEST_LAST.index)
        if gate.mode != before:
            # The user changed it themselves: that is not because of these words.
            await self._record.append(ModeChanged(mode=gate.mode, before=before))
        entries: list[Message | ModeChanged] = []
        mode: Mode | None = gate.mode
        plan = waiting_plan(log) if words else None
        if plan is not None and (mode := approving_mode(words, gate)) is not None:
            entries.append(ModeChanged(mode=mode, before=gate.mode))
            approved = notice(approval(plan, mode, edited=False), "approval")
            entries.append(structs.replace(approved, outcome=Outcome(steps=plan.steps)))
        knows = await in_thread(knows_of_plan_mode, log, self._head, self._knows_plan_mode)
        self._head, self._knows_plan_mode = log.head, knows
        plans = (mode or gate.mode) == "plan"
        if plans != (knows and not entries):
            entries.append(notice(PLAN_BEGUN, "plan_begun") if plans else notice(PLAN_OVER, "plan_over"))
        return entries

    def entered(self, entries: Iterable[Message | ModeChanged]) -> None:
        """Change the mode as these entries say."""
        for entry in entries:
            if isinstance(entry, ModeChanged):
                self._gate.mode = next(mode for mode in _LOOSEST_LAST if mode == entry.mode)

    async def follow(self, left: int) -> str:
        """After the head was moved from entry `left`: go back to the mode of that time; returns it if it is another.

        A mode that allows more than the user has allowed since the program started is not entered.
        """
        gate = self._gate
        log, then = self._record.view.log, self._record.view.mode
        if not then:
            # Before the first change; empty: the same as at the entry that was left.
            then = await in_thread(lambda: next((entry.before for entry in log.path(left).of(ModeChanged)), ""))
        loosest = max(self._loosest, gate.mode, key=_LOOSEST_LAST.index)
        mode = next((mode for mode in _LOOSEST_LAST[: _LOOSEST_LAST.index(loosest) + 1] if mode == then), gate.mode)
        if mode == gate.mode:
            return ""
        gate.mode = mode
        return mode


def approving_mode(words: str, gate: PermissionGate) -> Mode | None:
    """The mode in which to carry out a plan, if these words approve it (``approve``, ``approve ask``); else None."""
    word, _, named = words.strip().lower().rstrip(".!").partition(" ")
    modes = modes_after_plan(gate)
    if word.rstrip(",") not in APPROVING:
        return None
    if not named:
        return gate.mode if gate.mode != "plan" else modes[0]
    return next((mode for mode in modes if mode == named.strip()), None)
