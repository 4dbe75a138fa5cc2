"""A summary that the user asks for: written, shown with its exact size, and used once they accept it."""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from textual.worker import Worker, get_current_worker

from tui_agent.tui.cards.blocks import Level

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.context.changes import PreviewedStep
    from tui_agent.context.compaction.draft import Draft
    from tui_agent.context.effects import Refusal
    from tui_agent.tui.host import Host

UNCHANGED = "The context stays as it is"


class Drafting:
    """Runs the drafting of summaries for one app."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._writer: Worker[object] | None = None

    @property
    def writing(self) -> bool:
        return self._writer is not None

    def stop(self) -> bool:
        """Stop the writing; the context stays as it was. False if none was being written."""
        writer, self._writer = self._writer, None
        if writer is None:
            return False
        writer.cancel()
        self._host.hint("stopped; the context is as it was")
        return True

    async def run(self, agent: "Agent", step: "PreviewedStep", focus: str) -> None:
        """Write a draft and let the user decide on it; prompts sent meanwhile wait. Call it from a worker.

        Raises `AgentBusy`.
        """
        from tui_agent.context.effects import Refusal

        async with agent.turns.held():
            draft = await self._written(agent, step, focus)
            if isinstance(draft, Refusal):
                self._host.say(Level.WARNING, UNCHANGED, draft.reason)
            else:
                await self._decided(agent, draft)
        self._host.refresh_status()

    async def _written(self, agent: "Agent", step: "PreviewedStep", focus: str) -> "Draft | Refusal":
        self._writer = get_current_worker()
        status = self._host.status
        status.show(activity="preparing", since=monotonic())
        try:
            return await agent.context.draft("checkpoint" if step == "checkpoint" else "compact", focus)
        finally:
            self._writer = None
            # If a prompt waits, the turn that it starts is shown as the activity.
            status.show(activity="sending" if self._host.busy else "")
            self._host.refresh_status()

    async def _decided(self, agent: "Agent", draft: "Draft") -> None:
        """Show the draft until it is used or dropped; if it cannot be used, show why and keep the user's edits."""
        from tui_agent.storage.errors import StorageError
        from tui_agent.tui.context.draft_screen import DraftScreen

        await self._nobody_types()
        problem = ""
        while True:
            screen = DraftScreen(draft, await agent.context.preview_draft(draft), agent, problem=problem)
            accepted = await self._host.question(screen)
            if accepted is None:
                self._host.hint("dropped; the context is as it was")
                return
            draft = accepted
            try:
                problem = (await agent.context.accept(draft)).error
            except StorageError as error:
                problem = error.message
            if not problem:
                return

    async def _nobody_types(self) -> None:
        """Wait for a pause in typing, so that no key meant for the prompt is taken for an answer."""
        from tui_agent.tui.dialogs.dialog import QUIET_S

        prompt = self._host.entry.prompt
        quiet_at = prompt.last_key + QUIET_S
        while quiet_at > monotonic():
            await asyncio.sleep(quiet_at - monotonic())
            quiet_at = prompt.last_key + QUIET_S
