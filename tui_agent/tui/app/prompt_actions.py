"""Actions on the prompt other than sending: shell commands, the user's editor, pictures, the palette and history."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from tui_agent.settings.schema import PermissionMode
from tui_agent.text import one_line, short_path
from tui_agent.tui.actions import ACTIONS, BY_ID, DIALOGS, TITLES, Action, Place
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.commands.shell import UserCommands, needs_terminal, only_changes_folder
from tui_agent.tui.keys import columns
from tui_agent.tui.pane.status_bar import gauge_words
from tui_agent.tui.session.conductor import SessionUnavailable
from tui_agent.tui.wording import CONFINED, MODES

if TYPE_CHECKING:
    from tui_agent.agent.turn.pictures import Picture
    from tui_agent.conversation.blocks import Image
    from tui_agent.tui.commands.table import Commands
    from tui_agent.tui.host import Host

MAX_SHOWN: Final = 160
"""Characters shown of a sent text in the history search."""
ACTIVITY: Final = "running your command"
CYCLE: Final[tuple[PermissionMode, ...]] = ("plan", "ask", "auto")
"""The modes that the key for the next mode cycles through."""


class PromptActions:
    def __init__(self, app: "Host", commands: "Commands") -> None:
        self.own = UserCommands()
        self._app = app
        self._commands = commands
        self._keeping = asyncio.Lock()

    def run_shell(self, command: str) -> None:
        """Run a shell command of the user's; its output is shown on a card and added to the conversation.

        A program that needs the terminal is handed it, and nothing of it is added to the conversation.
        """
        app = self._app
        if only_changes_folder(command):
            note = f"Each command begins in {short_path(app.arguments.folder)} again."
            hint = "!cd FOLDER && COMMAND runs one elsewhere"
            app.say(Level.INFO, f"{command} has no effect on what follows", note, hint)
        elif needs_terminal(command):
            app.run_worker(self._run_outside(command), name="outside", exclusive=True, group="editor")
        else:
            self.own.start(self._run_shell(command))

    async def _run_outside(self, command: str) -> None:
        from tui_agent.tui.terminal.editor import EditorFailure, run_outside

        try:
            status = await run_outside(self._app, command, self._app.arguments.folder)
        except EditorFailure as failure:
            self._app.say(Level.WARNING, "It was not run", str(failure))
        else:
            ended = f"{command} ended with {status}" if status else f"{command} ended"
            self._app.say(Level.INFO, ended, "It had the terminal: the model has seen nothing of it.")
        self._app.entry.prompt.focus()

    async def pictures(self, text: str) -> "tuple[Image, ...]":
        """Read the pictures that a text names; tell the user of those that cannot be sent."""
        from tui_agent.agent.turn.pictures import smaller_text
        from tui_agent.tui.prompt.mentions import names_pictures, read_pictures

        if not names_pictures(text):
            return ()
        agent = await self._app.agent()
        found = await asyncio.to_thread(read_pictures, text, self._app.arguments.folder, self._app.session_folder)
        if found.problems:
            self._app.say(Level.WARNING, "Not sent as a picture", "\n".join(found.problems))
        if found.images and not agent.profile.images:
            self._app.say(Level.WARNING, f"{agent.profile.name} cannot see pictures", "Only your words were sent.")
            return ()
        if found.smaller:
            self._app.say(Level.INFO, "Sent smaller", smaller_text(found.smaller))
        return found.images

    async def paste_pictures(self, text: str) -> None:
        """Save pasted pictures, or the clipboard's if `text` is empty, and put their chips into the prompt."""
        chips: list[str] = []
        try:
            await self._keep_pictures(text, chips)
        finally:
            # If it is no picture after all, or cannot be saved, insert the pasted text itself.
            self._app.entry.prompt.pictures_pasted(" ".join(chips) or text or self._app.clipboard)

    async def edit_draft(self) -> None:
        """Edit the prompt in the user's editor, which has the terminal meanwhile. A running turn goes on."""
        from tui_agent.tui.terminal.editor import EditorFailure, edited_outside

        prompt = self._app.entry.prompt
        hint = ""

        def keep(left: str) -> None:
            nonlocal hint
            prompt.sent.add(left)
            hint = f"{self._app.keymap.text('history')} finds what was written there"

        try:
            text = await edited_outside(self._app, prompt.draft(), keep)
        except EditorFailure as failure:
            self._app.say(Level.WARNING, "The draft stays as it was", str(failure), hint)
        else:
            prompt.replace_draft(text)
            prompt.focus()

    async def palette(self) -> None:
        from tui_agent.tui.dialogs.pickers import Option, PickerScreen

        offered = [action for action in ACTIONS if action.name or action.in_palette]
        key = self._app.keymap.text
        own = {action.id: action for action in self._commands.own}
        options = [
            Option(each.id, each.usage or key(each.id), self._meaning(each)) for each in (*offered, *own.values())
        ]
        chosen = await self._app.question(PickerScreen("Commands", options, search=True))
        if chosen is None:
            return
        action = own.get(chosen) or BY_ID[chosen]
        if action.does:
            await self._app.run_action(action.does, self._app.entry.prompt if action.place == "prompt" else self._app)
        else:
            self.begin_command(action)

    def begin_command(self, action: Action) -> None:
        """Run a slash command; one that requires an argument is put into the prompt."""
        prompt = self._app.entry.prompt
        if action.needs_argument:
            prompt.focus()
            prompt.type(f"/{action.name} ")
        else:
            self._app.run_worker(self._app.run_command(f"/{action.name}"), name="command")

    def _meaning(self, action: Action) -> str:
        key = self._app.keymap.text(action.id) if action.name and action.id in BY_ID else ""
        return f"{action.help} ({key})" if key else action.help

    async def next_mode(self) -> None:
        """Switch to the next mode; `allow` is not among them and must be chosen by name."""
        agent = await self._app.agent()
        place = CYCLE.index(agent.permissions.mode) + 1 if agent.permissions.mode in CYCLE else 0
        agent.permissions.mode = CYCLE[place % len(CYCLE)]
        self._app.refresh_status()
        confined = agent.permissions.mode == "auto" and self._app.status.status.confined
        self._app.hint(f"mode {agent.permissions.mode}: {CONFINED if confined else MODES[agent.permissions.mode]}")

    async def tell_missing(self, text: str) -> None:
        """Warn of mentioned files that do not exist; the text is sent unchanged."""
        from tui_agent.tui.prompt.mentions import missing_files

        missing = await asyncio.to_thread(missing_files, text, self._app.arguments.folder)
        if missing:
            self._app.hint(f"there is no {one_line(missing[0], 40)} here")

    async def search_history(self) -> None:
        """Let the user pick a sent text, newest first, and put it into the prompt."""
        from tui_agent.tui.dialogs.pickers import Option

        prompt = self._app.entry.prompt
        # Read it synchronously, so that the dialog opens before the next key, which is for its list.
        texts = prompt.sent.newest_first()
        if not texts:
            self._app.hint("nothing was sent yet")
            return
        options = [Option(str(place), one_line(text, MAX_SHOWN)) for place, text in enumerate(texts)]
        chosen = await self._app.pick("What you have sent, the newest first", options, "0", search=True)
        if chosen is not None:
            prompt.begin(texts[int(chosen)])

    def help_sections(self, place: Place) -> dict[str, str]:
        """The sections of the help: keys of this place, then commands."""
        keymap = self._app.keymap
        more = ("search", *DIALOGS) if place == "conversation" else DIALOGS
        return {
            TITLES[place]: keymap.help_text(place),
            "Commands": self._commands.text(),
            "The line at the bottom": gauge_words(self._app.status.status),
            **{TITLES[other]: columns(keymap.rows(other)) for other in more},
        }

    async def _keep_pictures(self, text: str, chips: list[str]) -> None:
        from tui_agent.agent.turn.pictures import PictureProblem
        from tui_agent.tui.prompt.clipboard import ClipboardProblem
        from tui_agent.tui.prompt.pictures import keep

        app = self._app
        try:
            await app.agent()
            if app.session_folder is None:
                return
            async with self._keeping:
                async for read in _pasted(text):
                    try:
                        picture = await asyncio.to_thread(read)
                        chips.append(await asyncio.to_thread(keep, picture, app.session_folder))
                    except (OSError, PictureProblem) as problem:
                        # Go on with the other pictures of the paste.
                        app.say(Level.WARNING, "The picture cannot be sent", str(problem))
        except SessionUnavailable:
            app.say(Level.WARNING, "There is no session to keep a picture in")
        except ClipboardProblem as problem:
            if not app.clipboard:
                app.say(Level.INFO, str(problem))

    async def _run_shell(self, command: str) -> None:
        app = self._app
        try:
            agent = await app.agent()
            if not app.busy:
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


async def _pasted(text: str) -> "AsyncIterator[Callable[[], Picture]]":
    """Functions that read each pasted picture, or the clipboard's if `text` is empty. Raises ClipboardProblem."""
    from tui_agent.agent.turn.pictures import as_picture, read_picture
    from tui_agent.tools.files.reading import MAX_IMAGE_BYTES
    from tui_agent.tui.prompt.clipboard import clipboard_picture
    from tui_agent.tui.prompt.mentions import dropped_files
    from tui_agent.tui.prompt.pictures import decoded, encoded_pictures

    if not text:
        yield partial(as_picture, await clipboard_picture(os.environ, MAX_IMAGE_BYTES))
    elif paths := dropped_files(text):
        for path in paths:
            yield partial(read_picture, path)
    else:
        for piece in await asyncio.to_thread(encoded_pictures, text):
            yield partial(decoded, piece)
