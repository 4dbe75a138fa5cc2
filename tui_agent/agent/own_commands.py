"""What users, projects and MCP servers add to a session: slash commands of their own, and output styles."""

import asyncio
from pathlib import Path

from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.extensions.own import Extensions, OwnPrompt
from tui_agent.agent.extensions.styles import OwnStyle
from tui_agent.agent.model_choice import configured_model, meant_model
from tui_agent.agent.turn.turn import Parts
from tui_agent.agent.turn.turns import Turns
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.tools.base import ToolFailure


class OwnCommands:
    """The slash commands and styles of one session. `found`: those in folders; None if there are no such folders."""

    def __init__(
        self, parts: Parts, turns: Turns, briefing: Briefing, found: Extensions | None, offered: OfferedTools | None
    ) -> None:
        self._parts = parts
        self._turns = turns
        self._briefing = briefing
        self._found = found
        self._offered = offered

    async def listed(self) -> str:
        """A listing of the user's and the project's extensions, for people."""
        if self._found is None:
            return "There are no folders for extensions here."
        return await asyncio.to_thread(self._found.listed, self._parts.hooks)

    async def styles(self) -> tuple[OwnStyle, ...]:
        """All output styles."""
        return await asyncio.to_thread(self._found.styles) if self._found is not None else ()

    async def use_style(self, name: str) -> bool:
        """Switch to an output style from the next prompt on; empty: none. False if there is no such style.

        The system prompt stays as it is; a notice tells the model.
        """
        if name and (self._found is None or await asyncio.to_thread(self._found.style, name) is None):
            return False
        self._briefing.style = name
        return True

    async def all(self) -> tuple[OwnPrompt, ...]:
        """All slash commands of the user's own and of MCP servers."""
        files = await asyncio.to_thread(self._found.prompts) if self._found is not None else ()
        return (*files, *(self._offered.prompts() if self._offered is not None else ()))

    async def named(self, name: str) -> OwnPrompt | None:
        """The command of this name, the user's own first; None if there is none that can be used."""
        found = await asyncio.to_thread(self._found.prompt, name) if self._found is not None else None
        servers = self._offered.prompts() if self._offered is not None else ()
        return found or next((prompt for prompt in servers if prompt.name == name), None)

    async def expand(self, prompt: OwnPrompt, argument: str) -> str:
        """The text to send for a command. What the command runs and reads passes the gate.

        If the command names a model, that model answers a turn that is started with this text next.

        Raises `ToolFailure` if something is refused or fails, and `NobodyToAsk`.
        """
        from tui_agent.agent.extensions.prompts import expanded

        if prompt.server and self._offered is not None:
            return await self._offered.expand(prompt, argument)

        async def call(name: str, arguments: str) -> str:
            parts = self._parts
            return await parts.toolbox.call_for_user(name, arguments, parts.record.engine, parts.steps.tell)

        model = await asyncio.to_thread(self._lent, prompt.model) if prompt.model else ""
        text = await expanded(prompt, argument, self._found.folder if self._found is not None else Path.cwd(), call)
        self._turns.have_answered(text, model)
        return text

    def _lent(self, name: str) -> str:
        """The model that a command names. Raises `ToolFailure` if it cannot be asked."""
        settings = self._parts.record.engine.settings
        try:
            model = configured_model(
                settings, meant_model(settings, name, self._parts.active.profile.name)
            ).profile.name
        except UnknownModel as error:
            raise ToolFailure(error.message, "Name another `model` in the command's file, or none.") from error
        if (missing := catalogue_of(settings).missing_key(model)) is not None:
            raise ToolFailure(f"{model}, which the command names, needs a key: set {missing}.")
        return model
