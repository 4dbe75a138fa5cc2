"""Tells the model about plan mode, and reads the user's later approval of a plan that nobody was there to approve."""

from typing import Final

from tui_agent.agent.record import Record
from tui_agent.conversation.entries import notice
from tui_agent.conversation.plan import PLAN, PLAN_BEGUN, PLAN_OVER, approval, knows_of_plan_mode, waiting_plan
from tui_agent.durable import in_thread
from tui_agent.tools.asking import modes_after_plan
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.registry import ToolRegistry

APPROVING: Final = frozenset(("approve", "approved", "yes", "ok"))
"""Words that approve a plan; the name of a mode may follow."""


class Planning:
    """Tells the model when plan mode begins and ends."""

    def __init__(self, record: Record, gate: PermissionGate, registry: ToolRegistry) -> None:
        self._record = record
        self._gate = gate
        self._registry = registry
        self._head = 0
        self._told = False

    async def announce_mode(self, words: str) -> None:
        """Call it before the user's words enter: tells the model of changes of the mode, also those that the words
        make.

        Raises `StorageError`.
        """
        if PLAN not in self._registry:
            return
        log = self._record.view.log
        plan = waiting_plan(log) if words else None
        if plan is not None and (mode := approving_mode(words, self._gate)) is not None:
            self._gate.mode = mode
            await self._record.append(notice(approval(plan, mode, edited=False)))
        self._told = await in_thread(knows_of_plan_mode, log, self._head, self._told)
        if self._told != (self._gate.mode == "plan"):
            self._told = not self._told
            await self._record.append(notice(PLAN_BEGUN if self._told else PLAN_OVER))
        self._head = log.head


def approving_mode(words: str, gate: PermissionGate) -> Mode | None:
    """The mode in which to carry out a plan, if these words approve it (``approve``, ``approve ask``); else None."""
    word, _, named = words.strip().lower().rstrip(".!").partition(" ")
    modes = modes_after_plan(gate)
    if word.rstrip(",") not in APPROVING:
        return None
    if not named:
        return gate.mode if gate.mode != "plan" else modes[0]
    return next((mode for mode in modes if mode == named.strip()), None)
