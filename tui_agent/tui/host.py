"""The app as commands, context screens and the session use it: its widgets and looks, messages and questions."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from textual.app import ComposeResult
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer
from typing_extensions import override

from tui_agent.arguments import Arguments, ExitCode
from tui_agent.printing import in_a_line, write_crash_log
from tui_agent.settings import Settings
from tui_agent.system.resources import styles_folder
from tui_agent.text import one_line, short_path
from tui_agent.tui.actions import BY_ID
from tui_agent.tui.cards.notice import Level, NoticeBlock, notice
from tui_agent.tui.keys import Keymap
from tui_agent.tui.painting.glyphs import ASCII, glyphs_for
from tui_agent.tui.painting.themes import ALIASES, ANSI, appearance, theme_of_terminal
from tui_agent.tui.pane.first_picture import DrawnPane, DrawnPrompt
from tui_agent.tui.pane.status_bar import GaugeMarks, StatusBar
from tui_agent.tui.terminal.attention import Attention
from tui_agent.tui.terminal.filters import NO_COLORS, own_filters, terminal_encoding, without_greys
from tui_agent.tui.terminal.textual_internals import TerminalApp

if TYPE_CHECKING:
    from textual.driver import Driver

    from tui_agent.agent.agent import Agent
    from tui_agent.conversation.blocks import Image
    from tui_agent.models.base import Model
    from tui_agent.session import Session
    from tui_agent.tui.dialogs.permission import PermissionPanel
    from tui_agent.tui.dialogs.pickers import Option
    from tui_agent.tui.pane.conversation import ConversationPane
    from tui_agent.tui.pane.transcript import Transcript
    from tui_agent.tui.prompt.completion import Completion
    from tui_agent.tui.prompt.drafts import Drafts
    from tui_agent.tui.prompt.mentions import ProjectFiles
    from tui_agent.tui.prompt.prompt import PromptArea

Answer = TypeVar("Answer")

HINT_S: Final = 2.0
"""Seconds for which a hint is shown in the status bar."""
ORIGIN: Final = "taken over from the session before"
"""The source shown for the model and mode of a new session."""
STOPPING: Final = "stopping"
"""The activity shown from Esc until the work has stopped."""
AT_ONCE: Final = ("app", "first_picture", "status_bar")
"""The style sheets of the first frame."""


class FirstScreen(Screen[None]):
    """The screen below all dialogs."""

    AUTO_FOCUS = "Prompt"


class Host(TerminalApp):
    """The conversation, the prompt, and the status bar below them. Showing something returns at once; asking the user
    is awaited. What needs the session or the commands is left to the class of the app.
    """

    CSS_PATH = [styles_folder() / f"{name}.tcss" for name in AT_ONCE]  # noqa: RUF012 (not declared as a class variable there)
    ENABLE_COMMAND_PALETTE = False
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (7, "-low"), (14, "-high"), (20, "-tall")]  # noqa: RUF012 (not declared as a class variable there)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 (not declared as a class variable there)
    TITLE = "tui-agent"

    def __init__(self, arguments: Arguments, settings: Settings, *, driver_class: "type[Driver] | None" = None) -> None:
        super().__init__(driver_class=driver_class)
        self.arguments = arguments
        self.settings = settings
        self.session_folder: Path | None = None
        self.completed = False
        """Whether the screen has all its widgets."""
        self.pressed_at = 0.0
        """When any key was last pressed, on the monotonic clock."""
        self.crash = ""
        self.refusal = ""
        self._announced_kept: set[str] = set()
        self._stoppable: asyncio.Task[None] | None = None
        self._hint_timer: Timer | None = None
        self.glyphs = ASCII if settings.ui.glyphs == "ascii" else glyphs_for(sys.stdout.encoding)
        self.keymap = Keymap(settings.ui.keymap)
        self.alt_keys = self.keymap.with_alt
        self._first_words: list[NoticeBlock] = []
        self._drawn_prompt = DrawnPrompt()
        self._drawn = (DrawnPane(self._first_words), self._drawn_prompt)
        self.status = StatusBar(GaugeMarks(settings.ui.gauge_yellow, settings.ui.gauge_red))
        theme = settings.ui.theme if settings.is_set("ui.theme") else self._terminals_theme
        self._appearance = appearance(self, theme, arguments.home)
        self.begin_with_theme(self._appearance.theme)
        self._own_filters = own_filters(self.glyphs, terminal_encoding(), os.environ)
        self.set_class(bool(os.environ.get("NO_COLOR")), NO_COLORS)
        self._attention = Attention(
            self.write_control, os.environ, place=arguments.folder.name, notifications=settings.ui.notifications
        )

        for identity, keys in self.keymap.changes.items():
            if not BY_ID[identity].keys:
                # Textual's keymap can only change keys of actions that have some.
                self.bind(keys, BY_ID[identity].textual_action, show=False)
        if self.keymap.changes:
            self.set_keymap(self.keymap.changes)

    @override
    def get_default_screen(self) -> Screen[None]:
        # Set the breakpoint classes now: the first resize would set them, and style and lay out everything twice.
        places = ((self.size.width, self.HORIZONTAL_BREAKPOINTS), (self.size.height, self.VERTICAL_BREAKPOINTS))
        classes = (max(each for each in breakpoints if each[0] <= size)[1] for size, breakpoints in places)
        return FirstScreen(id="_default", classes=" ".join(classes))

    @override
    def compose(self) -> ComposeResult:
        yield from self._drawn
        yield self.status

    @cached_property
    def pane(self) -> "ConversationPane":
        from tui_agent.tui.pane.conversation import ConversationPane
        from tui_agent.tui.pane.transcript import Transcript

        transcript = Transcript()
        transcript.take_over(self._first_words)
        return ConversationPane(transcript, keymap=self.keymap)

    @cached_property
    def entry(self) -> "PromptArea":
        """The prompt with the lines above it."""
        from tui_agent.tui.prompt.history import PromptHistory
        from tui_agent.tui.prompt.prompt import PromptArea

        history = PromptHistory(self.arguments.home / "history.jsonl")
        return PromptArea(history, self.complete_command, self._files, keymap=self.keymap, drafts=self._drafts)

    @cached_property
    def _drafts(self) -> "Drafts":
        """What is not sent yet, on disk."""
        from tui_agent.tui.prompt.drafts import Drafts

        return Drafts(self.arguments.home, self.arguments.folder)

    async def bring_draft_back(self, session: str) -> None:
        """Put what was written in this session and never sent into the prompt; the program ended before it was.

        Nothing joins what is typed already: then it is offered, like what belongs to another session of this folder.
        """
        self._drafts.session = session
        prompt = self.entry.prompt
        text, others = await asyncio.to_thread(self._drafts.bring_back)
        for each in others:
            prompt.sent.add(each)
        if text and not prompt.text:
            self.give_back(text)
            self.say(Level.INFO, "Your unsent text is back in the prompt", hint="Ctrl+C clears it")
        elif text or others:
            if text:
                prompt.sent.add(text)
            self.say(
                Level.INFO,
                f'You left unsent: "{one_line(text or others[-1], 60)}"',
                hint="Up in an empty prompt brings it back",
            )

    @cached_property
    def _files(self) -> "ProjectFiles":
        from tui_agent.tui.prompt.mentions import ProjectFiles

        return ProjectFiles(self.arguments.folder)

    @cached_property
    def permission(self) -> "PermissionPanel":
        """The panel that asks whether a tool call may run."""
        from tui_agent.tui.dialogs.permission import PermissionPanel

        return PermissionPanel(lambda: max(self.pressed_at, self.entry.prompt.last_key), self.keymap)

    async def complete_screen(self) -> None:
        """Mount the widgets that the first frame lacks or only draws."""
        # In a thread, so that letters typed meanwhile are drawn.
        await asyncio.to_thread(_import_widgets)
        seen_first = set(self.CSS_PATH)
        self.stylesheet.read_all([path for path in sorted(styles_folder().glob("*.tcss")) if path not in seen_first])
        self.stylesheet.parse()
        with self.batch_update():
            await self.mount(self.pane, self.permission, self.entry, before=self.status)
            self.entry.prompt.focus()
            for widget in self._drawn:
                await widget.remove()
        self.completed = True

    # The session and the commands

    def complete_command(self, before_cursor: str) -> "Completion | None":
        """Completions of a slash command up to the cursor."""
        raise NotImplementedError

    async def run_command(self, text: str) -> None:
        """Run a slash command, given as `/name argument`."""
        raise NotImplementedError

    @property
    def session(self) -> "Session | None":
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether a turn is running or about to start."""
        raise NotImplementedError

    @property
    def last_turn_broke_off(self) -> bool:
        """Whether the newest turn ended in an error, or was stopped."""
        raise NotImplementedError

    def occupied(self) -> str:
        """Why the user cannot switch the branch or session now; empty if they can."""
        raise NotImplementedError

    def in_background(self, *, sessions: bool) -> str:
        """What runs unseen and ends with this session, such as ``2 commands``; `sessions`: or with the program."""
        raise NotImplementedError

    async def agent(self) -> "Agent":
        """The agent, once the session is open. Raises SessionUnavailable."""
        raise NotImplementedError

    def switch(self, target: Arguments) -> None:
        """Close this session cleanly, then open another one."""
        raise NotImplementedError

    async def may_switch(self, agent: "Agent", model: "Model") -> bool:
        """Ask the user, after a preview of the effects, whether to switch the model."""
        raise NotImplementedError

    def ask_model(self, text: str, typed: str) -> None:
        """Send a text for the user, who typed the slash command `typed`."""
        raise NotImplementedError

    async def send_to_background(self, prompt: str) -> None:
        """Begin a session with this prompt that is on no screen; without one, have the running turn go on like that."""
        raise NotImplementedError

    def forget_waiting(self, *, give_back: bool) -> None:
        """After a change of branch: forget texts that waited on the old one; `give_back`: they go to the prompt."""
        raise NotImplementedError

    async def pictures(self, text: str) -> "tuple[Image, ...]":
        """Read the pictures that a text names; tell the user of those that cannot be sent."""
        raise NotImplementedError

    def action_help(self) -> None:
        """Show the help: the keys of the focused place, and the commands."""
        raise NotImplementedError

    def quit(self, *, hurry: bool = False) -> None:
        """Close the session and exit. `hurry`: within a second, even if something is still running."""
        raise NotImplementedError

    def start_anew(self, *arguments: str) -> None:
        """Quit without a question, and have the command line start the program again with these arguments."""
        raise NotImplementedError

    @property
    def _transcript(self) -> "Transcript":
        return self.pane.transcript

    # Messages and questions

    def say(self, level: Level, title: str, text: str = "", hint: str = "") -> None:
        self._transcript.add_notice(level, title, text, hint)

    def say_first(self, level: Level, title: str, text: str = "", hint: str = "", lead: str = "") -> NoticeBlock:
        """Show a notice in the first frame."""
        number = len(self._first_words)
        self._first_words.append(notice(level, title, text, hint, id=number + 1, index=number))
        self._first_words[-1].lead = lead
        return self._first_words[-1]

    def working(self, what: str) -> None:
        """Show in the status bar what is being done outside a turn; empty: it is done."""
        began = self.status.status.since if self.status.status.activity else monotonic()
        self.status.show(activity=what, since=began)

    async def until_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Run work that Esc may cancel; False if it was cancelled."""
        task = self._stoppable = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
            self._stoppable = None
        if task.cancelled():
            return False
        task.result()
        return True

    def stop_work(self) -> bool:
        """Cancel the work of `until_stopped`; False if there is none."""
        return self._stoppable is not None and self._stoppable.cancel()

    def hint(self, text: str, seconds: float | None = None) -> None:
        """Show a short text in the status bar for `seconds` (None: `HINT_S`), or until another one replaces it."""
        if self._hint_timer is not None:
            self._hint_timer.stop()
        self.status.show(hint=text)
        self._hint_timer = self.set_timer(HINT_S if seconds is None else seconds, partial(self.hint_over, text))

    def hint_over(self, text: str) -> None:
        """Remove a hint, unless another one has replaced it."""
        if self.status.status.hint == text:
            self.status.show(hint="")

    def call_attention(self, text: str) -> None:
        """Show a desktop notification, unless the terminal has the focus."""
        if not self.app_focus:
            self._attention.notify(text)

    @property
    def kept_choices(self) -> Settings:
        """The settings for a new session, which takes over the model and the mode of this one."""
        from tui_agent.settings.writing import with_setting

        settings, session = self.settings, self.session
        if session is None:
            return settings
        settings = with_setting(settings, "model.id", session.agent.profile.name, ORIGIN)
        return with_setting(settings, "permissions.mode", session.agent.permissions.mode, ORIGIN)

    async def question(self, screen: Screen[Answer]) -> Answer | None:
        """Show a dialog and wait for its result. Never await it in a handler: no key would be handled meanwhile."""
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def answered(result: Answer | None) -> None:
            if not answer.done():
                answer.set_result(result)

        await self.push_screen(screen, answered)
        try:
            return await answer
        except asyncio.CancelledError:
            if screen.is_current:
                screen.dismiss(None)
            raise

    async def pick(
        self,
        title: str,
        options: "Iterable[Option]",
        current: str,
        *,
        text: str = "",
        search: bool = False,
        preview: Callable[[str], None] | None = None,
    ) -> str | None:
        """Let the user choose an option; None if they cancelled. `text`: above the options."""
        from tui_agent.tui.dialogs.pickers import PickerScreen

        return await self.question(PickerScreen(title, options, current, text=text, search=search, preview=preview))

    async def read(
        self, title: str, text: str, again: "Callable[[], str | None] | None" = None, *, at: int | None = None
    ) -> None:
        """Show a text in a dialog; `again`, `at`: see `TextScreen`."""
        from tui_agent.tui.dialogs.reading import TextScreen

        await self.push_screen(TextScreen(title, text, again, at=at))

    def refuse(self, reason: str) -> None:
        """Quit with an error: the settings do not allow what was asked for."""
        self.refusal = reason
        self.exit(return_code=ExitCode.BAD_USAGE)

    def give_back(self, text: str) -> None:
        """Put a text that was not sent back into the prompt."""
        self.entry.prompt.put(text)

    def keep_draft(self) -> None:
        """Have what stands in the prompt in the history too, and on disk, for the next start."""
        if not self.completed and self._drawn_prompt.letters:
            self.entry.prompt.keep(self._drawn_prompt.letters)
        elif "entry" in vars(self):
            self.entry.prompt.keep_draft()
            self.entry.prompt.hold_draft()
            self._drafts.write()

    def show_waiting(self, texts: tuple[str, ...], *, held: bool) -> None:
        """Show the texts that wait to be sent. `held`: no turn is running, so they go with the user's next message."""
        self.entry.waiting.show(texts, held=held)
        self.entry.prompt.recall_first = bool(texts)

    def report(self, error: Exception) -> None:
        """Show an error as a notice; write an unexpected one to the crash log."""
        from tui_agent.models.base import ModelError
        from tui_agent.session import SessionError
        from tui_agent.storage.errors import StorageError

        match error:
            case ModelError():
                self.say(Level.ERROR, "The model cannot be used", error.message, "choose another one with /model")
            case StorageError():
                self.say(Level.ERROR, "The conversation could not be saved", error.message, error.hint)
            case SessionError():
                self.say(Level.ERROR, "The session could not be opened", error.message, error.hint)
            case _:
                detail = f"{in_a_line(error)}\nEverything up to here is kept."
                hint = write_crash_log(error, os.environ)
                self.say(Level.ERROR, "Something went wrong inside the program", detail, hint)

    # Themes

    def theme_names(self) -> tuple[str, ...]:
        """The names of the shipped themes and the user's own."""
        return self._appearance.names

    @property
    def _terminals_theme(self) -> str:
        return ANSI if self.console.color_system == "standard" else theme_of_terminal(os.environ)

    def use_theme(self, name: str) -> None:
        """Switch to another theme, by its name or by ``dark`` or ``light``; empty: the one for this terminal. Another
        name changes nothing.
        """
        name = name or self._terminals_theme
        name = ALIASES.get(name, name)
        if name in self._appearance.names:
            self.theme = name

    async def keep(self, key: str, value: str) -> None:
        """Save a setting in the user's settings file; the user is told once for each setting."""
        from tui_agent.settings import SettingsError
        from tui_agent.settings.writing import keep_setting, with_setting

        try:
            path = await asyncio.to_thread(keep_setting, self.arguments.home, key, value)
        except SettingsError as error:
            self.say(Level.WARNING, "The choice counts until the program ends", str(error), "mend that to have it kept")
            return
        self.settings = with_setting(self.settings, key, value, str(path))
        if key not in self._announced_kept:
            self._announced_kept.add(key)
            what = key.split(".")[0 if key.endswith(".id") else -1]
            self.say(Level.INFO, f"The {what} is saved for every project: {short_path(path)}")

    # The status bar, the title, the terminal

    def refresh_status(self) -> None:
        """Update the status bar from the agent, also after a turn began or ended."""
        self.hint_over(STOPPING)
        if self.session is not None:
            self._show_agent(self.session.agent)
        self._show_attention()

    def _show_agent(self, agent: "Agent") -> None:
        full, spent = agent.context.fullness(), agent.tracker
        self.status.show(
            model=agent.profile.name,
            mode=agent.permissions.mode,
            tokens=full.tokens,
            window=full.window,
            measured=full.measured,
            ticks=full.starts,
            cost_usd=spent.session.known_cost_usd,
            turn_cost_usd=spent.turn.known_cost_usd,
            cache_share=agent.tracker.session.cache_share,
            reading=agent.speed.reading,
            writing=agent.speed.writing,
        )

    def _show_todo(self, agent: "Agent") -> None:
        """Show the task list above the prompt; cancels an update that is under way."""
        self.run_worker(self._look_at_todo(agent), name="todo", group="todo", exclusive=True)

    async def _look_at_todo(self, agent: "Agent") -> None:
        # In a long conversation without a task list this reads every entry.
        todo = await asyncio.to_thread(agent.context.todo)
        current = todo.current
        place = todo.items.index(current) if current is not None else 0
        lines = tuple(item.line for item in todo.items)
        self.entry.todo.show(todo.progress, current.text if current is not None else "", lines, place)

    def _show_attention(self) -> None:
        self._attention.name = self._transcript.topic or self._attention.name
        self._attention.show(working=bool(self.status.status.activity), focused=self.app_focus)

    @override
    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*without_greys(super().get_line_filters()), *self._own_filters]

    @override
    def broken(self, error: Exception) -> int:
        if not self.crash:
            kept = write_crash_log(error, os.environ)
            self.crash = f"stopped by an unexpected error ({type(error).__name__}); {kept}"
        return ExitCode.FAILED


def _import_widgets() -> None:
    import tui_agent.tui.dialogs.permission
    import tui_agent.tui.pane.conversation
    import tui_agent.tui.prompt.prompt  # noqa: F401
