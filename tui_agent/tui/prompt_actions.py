"""What the app does with a prompt beside sending it: a shell command, the user's editor, pictures, the palette."""

import asyncio
import os
from time import monotonic
from typing import TYPE_CHECKING, Final

from textual.app import SuspendNotSupported

from tui_agent.tui.blocks import Level
from tui_agent.tui.conductor import SessionUnavailable
from tui_agent.tui.keys import PLACES, Place, keys_text
from tui_agent.tui.own_commands import OwnCommands

if TYPE_CHECKING:
    from tui_agent.conversation.blocks import Image
    from tui_agent.tui.app import TuiAgent
    from tui_agent.tui.commands import Commands

ACTIVITY: Final = "running your command"

ACTIONS: Final = (
    ("edit_draft", "Ctrl+G", "write in your editor"),
    ("toggle_cards", "Ctrl+O", "open or close all cards"),
    ("help", "F1", "keys and commands for where you are"),
)
"""Actions of the app that the palette offers beside the commands."""


class PromptActions:
    """These actions of one app."""

    def __init__(self, app: "TuiAgent", commands: "Commands") -> None:
        self.own = OwnCommands()
        self._app = app
        self._commands = commands

    def run_shell(self, command: str) -> None:
        """Run a shell command of the user's; its card shows what it prints, and that joins the conversation."""
        self.own.start(self._run_shell(command))

    async def stop_shell(self) -> None:
        """Stop every such command."""
        await self.own.stop()

    async def pictures(self, text: str) -> "tuple[Image, ...]":
        """The pictures that a text names; what cannot be sent is told."""
        from tui_agent.tui.mentions import PICTURES, mentioned, read_pictures

        if not any(name.lower().endswith(PICTURES) for name in mentioned(text)):
            return ()
        found = await asyncio.to_thread(read_pictures, text, self._app.arguments.folder)
        agent = await self._app.agent()
        if found.problems:
            self._app.say(Level.WARNING, "Not sent as a picture", "\n".join(found.problems))
        if found.images and not agent.profile.images:
            self._app.say(Level.WARNING, f"{agent.profile.name} cannot see pictures", "Only your words were sent.")
            return ()
        return found.images

    async def edit_draft(self) -> None:
        """Let the user write in their own editor, which has the terminal until it ends. A running turn goes on."""
        from tui_agent.tui.editor import EditorFailure, edited, editor_command

        app, prompt = self._app, self._app.entry.prompt
        try:
            command = editor_command(os.environ)
            with app.suspend(), app.batch_update():
                text = await edited(prompt.draft(), command, os.environ)
        except EditorFailure as failure:
            app.say(Level.WARNING, "The draft stays as it was", str(failure))
        except SuspendNotSupported:
            app.say(Level.WARNING, "This terminal cannot be handed to an editor")
        else:
            prompt.replace_draft(text)
            prompt.focus()

    async def palette(self) -> None:
        """Let the user choose among all commands and actions."""
        from tui_agent.tui.pickers import Option, PickerScreen

        options = [Option(f"/{each.name}", each.usage, each.description) for each in self._commands.all]
        options += [Option(action, key, meaning) for action, key, meaning in ACTIONS]
        chosen = await self._app.question(PickerScreen("Commands", options, search=True))
        command = next((each for each in self._commands.all if chosen == f"/{each.name}"), None)
        if command is None:
            await self._app.run_action(f"app.{chosen}") if chosen else None
        elif command.argument.startswith("<"):
            self._app.entry.prompt.focus()
            self._app.entry.prompt.type(f"/{command.name} ")
        else:
            await self._app.run_command(f"/{command.name}")

    def help_sections(self, place: Place) -> dict[str, str]:
        """What can be pressed here, then what can be typed."""
        return {PLACES[place][0]: keys_text(place), "Commands": self._commands.help_text()}

    async def _run_shell(self, command: str) -> None:
        app = self._app
        try:
            agent = await app.agent()
            if not app.conductor.busy:
                app.status.show(activity=ACTIVITY, since=monotonic())
            await agent.run_shell(command)
        except SessionUnavailable:
            app.say(Level.WARNING, "There is no session, so this cannot be run")
        except Exception as error:
            app.report(error)
        finally:
            if app.status.status.activity == ACTIVITY and self.own.count <= 1:
                app.status.show(activity="")
            app.refresh_status()
