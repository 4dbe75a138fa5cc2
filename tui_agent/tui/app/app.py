"""The full-screen app: what each key and each message of a widget does."""

import asyncio
import os
from collections.abc import Coroutine
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.screen import ModalScreen
from typing_extensions import override

from tui_agent.agent.commands.command import is_command
from tui_agent.arguments import Arguments
from tui_agent.settings import Settings
from tui_agent.text import one_line
from tui_agent.tui.actions import BACKGROUND_SIGN, BY_NAME, Place, bindings
from tui_agent.tui.app.leaving import AGAIN_S, INSISTING, DoublePress
from tui_agent.tui.app.session_app import SessionApp
from tui_agent.tui.app.typing_order import TypingOrder
from tui_agent.tui.cards.boundary import BoundaryBlock
from tui_agent.tui.cards.notice import Level, NoticeBlock
from tui_agent.tui.host import STOPPING
from tui_agent.tui.session.ending import end_of
from tui_agent.tui.terminal.sequences import through_tmux
from tui_agent.tui.terminal.textual_internals import version_warning
from tui_agent.tui.wording import AGAIN

if TYPE_CHECKING:
    from textual.driver import Driver

    from tui_agent.tui.app.demo_guide import DemoGuide
    from tui_agent.tui.context.panel import ContextPanel
    from tui_agent.tui.dialogs.dialog import Dialog
    from tui_agent.tui.dialogs.permission import PermissionPanel
    from tui_agent.tui.dialogs.trust import TrustScreen
    from tui_agent.tui.pane.conversation import ConversationPane
    from tui_agent.tui.prompt.prompt import Prompt

APP_ONLY: Final = frozenset(
    (
        "break",
        "palette",
        "edit_draft",
        "help",
        "context",
        "toggle_cards",
        "toggle_tasks",
        "send_back",
        "next_mode",
        "search_history",
        "slash",
    )
)


class TuiAgent(SessionApp):
    """The app's handlers for the user's actions and the session's events."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    def __init__(self, arguments: Arguments, settings: Settings, *, driver_class: "type[Driver] | None" = None) -> None:
        super().__init__(arguments, settings, driver_class=driver_class)
        self._break = DoublePress()
        self._back = DoublePress()
        self._order = TypingOrder(self)
        self._guide: DemoGuide | None = None

    # Start and end

    def on_mount(self) -> None:
        """Show the first frame."""
        self.leaving.watch()
        self.app_resume_signal.subscribe(self, self._on_resume)
        self.screen_change_signal.subscribe(self, lambda _screen: self.call_later(self._order.go_on))
        self.status.show(mode=self.settings.permissions.mode, hint="")
        self._greet()

    def on_ready(self) -> None:
        """Start everything slow, now that the first frame is shown."""
        self.run_worker(self._begin(), name="begin")

    def _greet(self) -> None:
        self._welcome.greet(self.say_first, self.keymap.text("help"))
        if warning := version_warning():
            self.say_first(Level.WARNING, "The screen is made for another Textual", warning)
        for problem in self._appearance.problems:
            self.say_first(
                Level.WARNING, "A theme cannot be used", problem, "mend it and start again, or choose with /theme"
            )
        for problem in self.keymap.problems:
            self.say_first(
                Level.WARNING, "A key stays as it was", problem, "mend the setting ui.keymap and start again"
            )

    async def _begin(self) -> None:
        self._ending = asyncio.create_task(end_of(self.arguments), name="ending")
        # Let its thread start before the rest of the screen is built.
        await asyncio.sleep(0)
        await self.complete_screen()
        if self.arguments.demo:
            from tui_agent.tui.app.demo_guide import DemoGuide

            self._guide = DemoGuide()
            await self.mount(self._guide, before=self.status)
        self.on_prompt_area_resized()
        self.conductor.open(self.arguments)
        # In the demonstration, opening the panel is the first step.
        if self._guide is None and 0 < self.settings.ui.panel_columns <= self.size.width:
            self.steering.toggle(asked_for=False)
        if self.arguments.prompt:
            self.conductor.send(self.arguments.prompt)
        await self._order.begin()

    @override
    async def on_event(self, event: events.Event) -> None:
        if self._order.keeps(event):
            if not self.completed and isinstance(event, events.Key):
                self._drawn_prompt.type(event)
            return
        if isinstance(event, events.InputEvent | events.Paste) and self._insists(event):
            return
        is_new = isinstance(event, events.Key) and not event.is_forwarded
        target, screen = (self.focused or self.screen, self.screen) if is_new else (None, None)
        if is_new:
            self.pressed_at = monotonic()
        await super().on_event(event)
        if target is not None and screen is not None:
            self._order.follow(event, target, screen)

    async def on_typing_order_mark(self, mark: TypingOrder.Mark) -> None:
        """A key has taken effect: hand on the next."""
        await self._order.came_back(mark)

    async def on_dialog_unused(self, message: "Dialog.Unused") -> None:
        """Pass a character that closed a dialog on to the prompt."""
        await self._order.first(message.key)

    def on_trust_screen_typed(self, message: "TrustScreen.Typed") -> None:
        """Keep a character for the prompt that was typed while the question about trust was open."""
        self.entry.prompt.type(message.character)

    def on_key(self, event: events.Key) -> None:
        """Pass a character to the prompt if nothing has the focus, or the focused widget does not use it."""
        if isinstance(self.screen, ModalScreen) or not event.is_printable or not event.character:
            return
        reading = (self.pane.has_focus or self.steering.has_focus) and not event.character.isspace()
        if self.focused is None or (reading and event.key not in self.screen.active_bindings):
            self.entry.prompt.focus()
            self.entry.prompt.type(event.character)

    async def on_dialog_stands(self) -> None:
        """Hand a dialog the keys that were typed for it."""
        await self._order.go_on()

    def _insists(self, event: events.InputEvent | events.Paste) -> bool:
        """Whether this is the second Ctrl+C in a row while a dialog is open and has no use for it."""
        if event.is_forwarded or isinstance(event, events.MouseMove):
            return False
        if not (isinstance(event, events.Key) and event.key in self.keymap.keys("stop")):
            self._back.disarm()
        if isinstance(event, events.Key) and event.key in self.keymap.keys(INSISTING):
            if isinstance(self.screen, ModalScreen) and self._break.pressed():
                self.quit(hurry=True)
                return True
        elif self._break.disarm():
            self.status.show(hint="")
        return False

    # User actions

    def on_prompt_area_resized(self) -> None:
        """Tell the permission panel how many lines prompt and status bar take; a context panel that opened by itself
        does not cover the conversation when the terminal becomes narrow.
        """
        if not self.completed:
            return
        if self.steering.may_leave:
            self._show_conversation()
        others = (self.permission, self.entry, self.status)
        air = sum(widget.styles.margin.top for widget in others)
        guide = self._guide.size.height if self._guide is not None else 0
        self.permission.leave(air + self.entry.size.height + guide + self.status.size.height)

    def on_prompt_sent(self, message: "Prompt.Sent") -> None:
        """Run a command, or send the text to the agent."""
        from tui_agent.tui.commands.shell import SIGN, shell_command

        self.pane.scroll_to_tail()
        if is_command(message.written):
            self.run_worker(self.run_command(message.written), name="command")
        elif command := shell_command(message.text):
            self._show_conversation()
            self._actions.run_shell(command)
        elif message.text.strip() == SIGN:
            self.say(Level.INFO, "Nothing was run", hint="a command follows the !: !git status")
        elif message.written.startswith(BACKGROUND_SIGN) and (prompt := message.text[1:].strip()):
            self.run_worker(self._reporting(self.send_to_background(prompt)), name="background")
        elif message.text.strip() == AGAIN and self.conductor.send_again():
            self._show_conversation()
        else:
            self._attention.name = self._attention.name or one_line(message.written, 60)
            self._show_conversation()
            self.conductor.send(message.text)
            if "@" in message.text:
                self.run_worker(self._actions.tell_missing(message.text), name="mentions")

    def on_prompt_begun(self) -> None:
        """Do due context work while the user is typing."""
        self.conductor.prepare_ahead()

    def _show_conversation(self) -> None:
        """Close the panel where it covers the conversation, as on a narrow screen."""
        if not self.pane.display:
            self.steering.close()

    @override
    async def run_command(self, text: str) -> None:
        newest = self._newest_notice
        await self._reporting(self.steering.run(text, self.commands.run))
        if self._guide is not None:
            name = text.strip()[1:].partition(" ")[0].lower().rstrip("!")
            # The step behind the summary takes it back: there must be one.
            steps = (each for each in self._transcript.blocks if isinstance(each, BoundaryBlock))
            if name != "compact" or any(each.frees for each in steps):
                self._guide.did(name)
        if self._newest_notice is not newest:
            self._show_conversation()

    @property
    def _newest_notice(self) -> NoticeBlock | None:
        return next((block for block in reversed(self._transcript.blocks) if isinstance(block, NoticeBlock)), None)

    def on_prompt_recalled(self) -> None:
        self.conductor.take_back()

    def on_paste(self, event: events.Paste) -> None:
        """Pass a paste that no widget took, such as one into the conversation, to the prompt."""
        self.entry.prompt.paste(event.text)

    def on_prompt_pictures_pasted(self, message: "Prompt.PicturesPasted") -> None:
        self.run_worker(self._actions.paste_pictures(message.text), name="pictures")

    def action_paste_picture(self) -> None:
        self.entry.prompt.action_paste_picture()

    def on_prompt_left(self) -> None:
        """Quit on Ctrl+D in an empty prompt."""
        self.quit()

    def action_interrupt(self) -> None:
        """Stop the turn; if none is running, focus the prompt; pressed twice in an empty one, rewind."""
        prompt, in_prompt = self.entry.prompt, self.entry.prompt.has_focus
        rewinds = not prompt.draft() and not self.occupied()
        prompt.focus()
        if self._stop() or not in_prompt:
            return
        if self.steering.panel is not None:
            self.steering.close()
        elif rewinds:
            if self._back.pressed():
                self.action_slash("rewind")
            else:
                self.hint(f"{self.keymap.text('stop')} again rewinds", AGAIN_S)

    def _stop(self) -> bool:
        """Stop what is running; False if nothing was."""
        if self.stop_work() or self.steering.drafting.stop():
            return True
        runs = self.conductor.busy or self.status.status.summarising or bool(self._actions.own.count)
        if self.conductor.busy or self._actions.own.count:
            self.hint(STOPPING)
        if self._actions.own.count:
            self.run_worker(self._actions.own.stop(), name="stop")
        self.conductor.stop()
        return runs

    def action_break(self) -> None:
        """Copy the selection, else empty the prompt, else stop what runs; pressed again after that, quit."""
        if self._copied_selection():
            return
        runs = self.conductor.busy or self._actions.own.count or self.steering.drafting.writing
        if runs and self.entry.prompt.clear_draft():
            self._break.disarm()
            self.hint("prompt cleared; Ctrl+C again stops what runs", AGAIN_S)
            return
        if self._break.pressed():
            self.quit(hurry=True)
            return
        if self.entry.prompt.clear_draft():
            done = "prompt cleared"
        elif runs:
            done = STOPPING
            self._stop()
        else:
            done = ""
        again = "Ctrl+C again to quit"
        if running := self.in_background(sessions=True):
            again += f", which stops {running} in the background"
        self.hint(f"{done}; {again}" if done else again, AGAIN_S)

    def _copied_selection(self) -> bool:
        text = self.entry.prompt.selected_text or self.screen.get_selected_text()
        if not text:
            return False
        self.copy_to_clipboard(text)
        self.screen.clear_selection()
        self._tell_copied(text)
        return True

    @override
    def copy_to_clipboard(self, text: str) -> None:
        super().copy_to_clipboard(text)
        if os.environ.get("TMUX"):
            from base64 import b64encode

            self.write_control(through_tmux(f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07"))

    def _tell_copied(self, text: str, what: str = "") -> None:
        """Put a text on the desktop's clipboard too, and say what is known: a terminal does not answer."""

        async def put() -> None:
            from tui_agent.tui.prompt.clipboard import copied_by_program

            done = await asyncio.to_thread(copied_by_program, text, os.environ)
            self.hint(f"{what} {'copied' if done else 'sent to the terminal to copy'}".strip())

        self.run_worker(put(), name="copy", group="copy", exclusive=True)

    def on_conversation_pane_copied(self, message: "ConversationPane.Copied") -> None:
        self._tell_copied(message.text, message.what)

    def action_toggle_cards(self) -> None:
        self.pane.toggle_all()

    def action_toggle_tasks(self) -> None:
        """Show the whole task list above the prompt, or its current item alone."""
        if not self.entry.todo.toggle():
            self.hint("there is no task list")

    def action_send_back(self) -> None:
        """Let the command that is waited for go on in the background."""
        from tui_agent.tools.base import ToolFailure

        try:
            sent = self.session is not None and self.session.background.send_back()
        except ToolFailure as failure:
            self.hint(failure.why)
        else:
            self.hint("it goes on in the background; /jobs shows it" if sent else "no command is waited for")

    def action_page(self, direction: int) -> None:
        """Scroll the conversation, or the panel covering it, by a page without leaving the prompt."""
        if self.pane.display or self.steering.panel is None:
            self.pane.action_page(direction)
        else:
            self.steering.panel.page(direction)

    def action_latest(self) -> None:
        """Go to the end of the conversation without leaving the prompt."""
        self.pane.action_tail()

    @override
    def action_focus_next(self) -> None:
        if self.permission.asking and not self.permission.has_focus_within:
            self.permission.focus()
        elif self.steering.panel is not None and self.entry.prompt.has_focus:
            self.steering.panel.take_keys()
        elif self.steering.has_focus and self.pane.display:
            self.pane.focus()
        elif self.steering.panel is not None and self.pane.has_focus:
            self.entry.prompt.focus()
        else:
            super().action_focus_next()

    @override
    def action_help(self) -> None:
        place: Place = "conversation" if self.pane.has_focus else "prompt"
        if self.permission.has_focus_within:
            place = "question"
        elif self.steering.has_focus:
            place = "context"
        from tui_agent.tui.dialogs.reading import HelpScreen

        self.push_screen(HelpScreen(self._actions.help_sections(place)))

    def action_slash(self, name: str) -> None:
        """Run a slash command by its key; one that requires an argument is put into the prompt."""
        self._actions.begin_command(BY_NAME[name])

    def action_next_mode(self) -> None:
        self.run_worker(self._reporting(self._actions.next_mode()), name="mode", group="mode")

    def action_search_history(self) -> None:
        self.run_worker(self._actions.search_history(), name="history")

    def action_palette(self) -> None:
        self.run_worker(self._actions.palette(), name="palette")

    def action_edit_draft(self) -> None:
        self.run_worker(self._actions.edit_draft(), name="editor", exclusive=True, group="editor")

    def action_context(self) -> None:
        if self._guide is not None:
            self._guide.did("context")
        self.steering.toggle()

    def on_context_panel_closed(self) -> None:
        self.steering.close()

    async def on_context_panel_opened(self, message: "ContextPanel.Opened") -> None:
        await self.read(message.title, message.text)

    def on_context_panel_previewing(self, message: "ContextPanel.Previewing") -> None:
        self.run_worker(self.run_command(message.command), name="command")

    def on_context_panel_changing(self, message: "ContextPanel.Changing") -> None:
        self._go(self.steering.change(message.change))

    def on_conversation_pane_undo_asked(self, message: "ConversationPane.UndoAsked") -> None:
        self._go(self.steering.undo(message.block))

    def on_conversation_pane_rewind_asked(self, message: "ConversationPane.RewindAsked") -> None:
        self._go(self.commands.branches.rewind(str(message.seq)))

    def on_conversation_pane_fork_asked(self, message: "ConversationPane.ForkAsked") -> None:
        self._go(self.commands.branches.fork(str(message.seq)))

    def _go(self, going: Coroutine[None, None, None]) -> None:
        self.run_worker(self._reporting(going), name="branch")

    def action_leave(self) -> None:
        self.quit()

    @override
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the app's keys while a dialog is open."""
        return not (action in APP_ONLY and isinstance(self.screen, ModalScreen))

    def on_permission_panel_typed(self, message: "PermissionPanel.Typed") -> None:
        """Pass a character that is no answer to the prompt."""
        self.entry.prompt.focus()
        self.entry.prompt.type(message.character)

    def on_permission_panel_unsaid(self, message: "PermissionPanel.Unsaid") -> None:
        """Put words written for a withdrawn question into the prompt."""
        self.give_back(message.words)

    def on_permission_panel_edit_asked(self, message: "PermissionPanel.EditAsked") -> None:
        """Let the user edit a plan before they approve it."""
        from tui_agent.tui.context.draft_screen import WordsScreen

        nothing = "Nothing is left of it: the plan stays as it was"
        self.push_screen(WordsScreen("The plan", message.text, nothing), self.permission.use_edited)

    def on_permission_panel_closed(self, message: "PermissionPanel.Closed") -> None:
        if message.had_focus:
            self.entry.prompt.focus()

    @override
    def key_read(self, key: str) -> None:
        self.leaving.key_read(key)

    @override
    def not_stopped(self) -> None:
        self.hint("there is no shell to go back to")

    def _on_resume(self, app: App[object]) -> None:
        # The terminal comes back empty, but Textual would paint only what has changed.
        self._attention.again()
        for screen in self.screen_stack:
            for widget in screen.walk_children(with_self=True):
                widget.refresh()
