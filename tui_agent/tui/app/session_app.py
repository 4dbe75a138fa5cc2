"""The app with a session behind it: its parts, and opening, showing, asking in and closing the session.

Parts that are not needed for the first frame are properties that import and create them on first use.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from textual.screen import ModalScreen
from typing_extensions import override

from tui_agent.arguments import Arguments
from tui_agent.settings import Settings
from tui_agent.text import counted
from tui_agent.tui.app.leaving import PATIENCE_S, AppExit
from tui_agent.tui.app.welcome import Welcome
from tui_agent.tui.cards.notice import Level
from tui_agent.tui.cards.user import UserBlock
from tui_agent.tui.host import Host
from tui_agent.tui.session.ending import end_of
from tui_agent.tui.wording import WHILE_A_TURN_RUNS, doing

if TYPE_CHECKING:
    from textual.driver import Driver

    from tui_agent.agent.agent import Agent
    from tui_agent.agent.events import AgentEvent
    from tui_agent.agent.history.as_events import Ending
    from tui_agent.conversation.blocks import Image
    from tui_agent.models.base import Model
    from tui_agent.session import Session
    from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
    from tui_agent.tui.app.prompt_actions import PromptActions
    from tui_agent.tui.commands.table import Commands
    from tui_agent.tui.context.steering import Steering
    from tui_agent.tui.prompt.completion import Completion
    from tui_agent.tui.session.background import Background
    from tui_agent.tui.session.conductor import Conductor
    from tui_agent.tui.session.past import EarlierEvents, SessionEnd
    from tui_agent.tui.session.turns import TurnView

REFRESHES: Final = 4
"""How many refreshes of the screen the painting of the pane is waited for."""


class SessionApp(Host):
    """What the app does for a session; what keys do is left to the class of the app."""

    def __init__(self, arguments: Arguments, settings: Settings, *, driver_class: "type[Driver] | None" = None) -> None:
        super().__init__(arguments, settings, driver_class=driver_class)
        self._quits_over = ""
        self.leaving = AppExit(self, self._close)
        self._ending: asyncio.Task[Ending | None] | None = None
        self.before_opening: Callable[[], None] = lambda: None
        self.ready: Callable[[], None] = lambda: None
        self._welcome = Welcome(arguments.folder, resuming=arguments.continue_last or arguments.resume is not None)

    # The parts

    @cached_property
    def conductor(self) -> "Conductor":
        from tui_agent.tui.session.conductor import Conductor

        return Conductor(self, self._open)

    @cached_property
    def commands(self) -> "Commands":
        from tui_agent.tui.commands.table import Commands

        return Commands(self)

    @cached_property
    def background(self) -> "Background":
        from tui_agent.tui.session.background import Background

        return Background(self)

    @override
    async def send_to_background(self, prompt: str) -> None:
        if prompt:
            await self.background.begin(prompt)
        elif self.permission.asking:
            self.say(Level.WARNING, "It waits for your answer first")
        elif self.background.has_room():
            words = self._attention.name
            target = self.arguments._replace(prompt=None, resume=None, continue_last=False, fork=False)
            settings = self.kept_choices
            if (released := self.conductor.release(target)) is None:
                self.say(Level.INFO, "No turn runs", hint="& PROMPT begins one in the background")
            else:
                self.settings = settings
                title = self.background.keep(*released, words)
                await self.agent()
                self.background.tell(title)

    @cached_property
    def _actions(self) -> "PromptActions":
        from tui_agent.tui.app.prompt_actions import PromptActions

        return PromptActions(self, self.commands)

    @cached_property
    def steering(self) -> "Steering":
        from tui_agent.tui.context.steering import Steering

        return Steering(self)

    # The host

    @override
    def complete_command(self, before_cursor: str) -> "Completion | None":
        return self.commands.complete(before_cursor)

    @property
    @override
    def session(self) -> "Session | None":
        return self.conductor.session

    @property
    @override
    def busy(self) -> bool:
        return self.conductor.busy

    @property
    @override
    def last_turn_broke_off(self) -> bool:
        return self.conductor.broke_off

    @override
    def occupied(self) -> str:
        if self.busy:
            return WHILE_A_TURN_RUNS
        return "not while a summary is written; Esc stops it" if self.steering.drafting.writing else ""

    @override
    async def agent(self) -> "Agent":
        return await self.conductor.agent()

    @override
    def switch(self, target: Arguments) -> None:
        self.conductor.switch(target)

    @override
    async def may_switch(self, agent: "Agent", model: "Model") -> bool:
        return await self.steering.may_switch(agent, model)

    @override
    def ask_model(self, text: str, typed: str) -> None:
        self.conductor.send(text, typed)

    @override
    def forget_waiting(self, *, give_back: bool) -> None:
        self.conductor.forget_waiting(give_back=give_back)

    @override
    async def pictures(self, text: str) -> "tuple[Image, ...]":
        return await self._actions.pictures(text)

    @override
    def in_background(self, *, sessions: bool) -> str:
        others = self.background.running if sessions and "background" in vars(self) else 0
        counts = (others, "session"), (self.status.status.jobs, "command")
        return " and ".join(counted(count, what) for count, what in counts if count)

    @override
    def quit(self, *, hurry: bool = False) -> None:
        running = self.in_background(sessions=True)
        if running and not hurry and running != self._quits_over:
            self._quits_over = running
            self.hint(f"{running} in the background would be stopped; once more quits")
            return
        self.leaving.begin(PATIENCE_S if hurry else None)

    @override
    def start_anew(self, *arguments: str) -> None:
        self.leaving.start_next = arguments
        self.leaving.begin()

    async def on_unmount(self) -> None:
        """Close the session cleanly however the app ends, unless the user did not want to wait."""
        self.keep_draft()
        self._drafts.close()
        if not self.leaving.hurried:
            await self._close()

    async def _close(self) -> None:
        await self._actions.own.stop()
        await self._files.close()
        if "background" in vars(self):
            await self.background.close()
        await self.conductor.close()

    async def _open(self, target: Arguments) -> "tuple[Session, TurnView]":
        from tui_agent.tui.commands.switching import open_for_screen
        from tui_agent.tui.session.past import glimpse

        answered = self.session_folder is not None and target.trusted != self.arguments.trusted
        if self.session_folder is not None:
            self._begin_anew()
            if not target.resume and not answered:
                self.say(Level.INFO, "A new session", hint="/resume goes back to the one before")
        reading, self._ending = self._ending, None
        end = await (reading or end_of(target))
        seen = None
        if end is not None:
            seen = await glimpse(end, self.pane, self.status, self.conductor)
            # Paint first: the modules needed for opening take long to import.
            await self._painted()
        self.before_opening()
        try:
            session, self.arguments, self.settings = await open_for_screen(target, self.settings, self, self.ask)
        except BaseException:
            if seen is not None:
                seen.remove()
            raise
        opened = self.arguments
        if seen is not None and (opened.resume, opened.continue_last) != (target.resume, target.continue_last):
            seen.remove()
            seen = None
        try:
            view = await self._shown(session, seen)
            if answered:
                self.say(Level.INFO, f"This project is {'' if opened.trusted else 'not '}trusted from now on")
            return session, view
        except BaseException:
            await session.close()
            raise

    async def _painted(self) -> None:
        """Wait until the pane is painted as it is now, unless something covers it."""
        pane, before = self.pane, self.pane.paintings
        pane.refresh()
        # The first refresh may come too early: a busy pane asks for its painting only after all its messages.
        for _ in range(REFRESHES):
            if pane.paintings == before:
                await pane.wait_for_refresh()

    def _begin_anew(self) -> None:
        """Reset the screen for another session."""
        from tui_agent.tui.commands.branches import free

        for group in ("earlier", "branch", "todo"):
            self.workers.cancel_group(self, group)
        before = self._transcript
        self.pane.show(before.successor())
        self.steering.close()
        self._attention.name = ""
        self.entry.todo.show("", "")
        self.status.show(tokens=0, cost_usd=0.0, turn_cost_usd=0.0, cache_share=None, summarising=False, hint="")
        self.status.show(loop="", jobs=0, problems=0)
        self.run_worker(free(before), name="let go")

    async def _shown(self, session: "Session", seen: "SessionEnd | None") -> "TurnView":
        from tui_agent.tui.session.past import SubtaskSteps, show_newest

        self.run_worker(self._look_at_sandbox(session), name="sandbox")
        self.run_worker(self._welcome.complete(session, self._transcript), name="welcome")
        self.session_folder = session.folder
        self.run_worker(self.bring_draft_back(session.folder.name), name="draft")
        view, past = await show_newest(session.agent, seen, self.pane, self.status, self.conductor)
        SubtaskSteps(view.transcript, session.agent.subtask_progress)
        session.agent.listen(view.show)
        showing = self._show_earlier(session.agent, view, past)
        self.run_worker(showing, name="earlier", group="earlier")
        # Compute the figures of a long conversation once in a thread, so that keys are handled.
        await asyncio.to_thread(session.agent.context.fullness)
        view.changed = lambda event: self._context_changed(session.agent, view, event)
        for notice in session.notices:
            view.show(notice)
        if session.resumed and not any(isinstance(block, UserBlock) for block in self._transcript):
            self.say(Level.INFO, "All of this conversation was taken back", hint="/tree leads back to it")
        session.background.on_change = lambda: self.status.show(jobs=len(session.background.running))
        languages = session.agent.languages
        if languages is not None:
            languages.on_change = lambda: self.status.show(problems=len(languages.problems))
        self._show_agent(session.agent)
        self._show_todo(session.agent)
        self._show_attention()
        if not isinstance(self.screen, ModalScreen) and self.focused is None:
            # A dialog opened before the prompt was focused, so closing it did not focus the prompt.
            self.entry.prompt.focus()
        self.commands.reload_own(session.agent)
        self.run_worker(self._learn(session.agent), name="model")
        return view

    async def _show_earlier(self, agent: "Agent", view: "TurnView", past: "EarlierEvents") -> None:
        from tui_agent.tui.session.past import SubtaskSteps, show_earlier

        await show_earlier(past, view, self.pane)
        SubtaskSteps(view.transcript, agent.subtask_progress)
        self._show_attention()

    async def _look_at_sandbox(self, session: "Session") -> None:
        unconfined = bool(await asyncio.to_thread(lambda: session.sandbox.trouble))
        confined = await asyncio.to_thread(lambda: session.agent.permissions.runs_confined)
        self.status.show(unconfined=unconfined, confined=confined)

    async def _learn(self, agent: "Agent") -> None:
        from tui_agent.tui.commands.switching import learn_model

        try:
            await agent.look_up_model()
            self._show_agent(agent)  # the provider may take seconds, and without a key it is not asked
            await learn_model(agent, self)
        finally:
            self.ready()
        self._show_agent(agent)

    async def _reporting(self, doing: Awaitable[None]) -> None:
        """Await an action, and show errors that prevent it."""
        from tui_agent.tui.session.conductor import SessionUnavailable

        try:
            await doing
        except SessionUnavailable:
            self.say(Level.WARNING, "There is no session, so this cannot be done")
        except Exception as error:
            self.report(error)

    # Questions of the agent

    async def ask(self, question: "PermissionQuestion") -> "PermissionAnswer":
        from tui_agent.conversation.tool_facts import facts_of
        from tui_agent.tui.cards.tool import ToolState

        self._attention.question(facts_of(question.tool).title, focused=self.app_focus)
        try:
            answer = await self.permission.ask(question)
        finally:
            self._attention.answered()
        block = self._transcript.tool(question.call_id)
        if answer.allowed and block is not None:
            self._transcript.set_tool_state(block, ToolState.RUNNING)
            self.status.show(activity=doing(question.tool))
        return answer

    @override
    def refresh_status(self) -> None:
        super().refresh_status()
        if self.session is not None:
            self.commands.reload_own(self.session.agent)

    @override
    def _show_agent(self, agent: "Agent") -> None:
        super()._show_agent(agent)
        self.steering.changed()
        self.steering.watch(agent)

    def _context_changed(self, agent: "Agent", view: "TurnView", event: "AgentEvent") -> None:
        from tui_agent.agent import events
        from tui_agent.conversation.tasks import PLAN, TODO

        if isinstance(event, events.BranchChanged):
            self.commands.branches.moved(agent, view, event)
        sets_list = isinstance(event, events.ToolFinished) and event.name in (TODO, PLAN)
        if sets_list or isinstance(event, events.TurnFinished):
            self.entry.todo.goes_on(goes_on=sets_list)
        if sets_list or isinstance(event, events.BranchChanged):
            self._show_todo(agent)
        if isinstance(event, events.ContextStep | events.BranchChanged | events.ModelChanged):
            self._show_agent(agent)
        elif isinstance(event, events.ModelCallStarted) and not self.status.status.tokens:
            # The first request shows the fixed part of the context: update the gauge.
            self._show_agent(agent)
        elif isinstance(event, events.ToolFinished) and event.name == PLAN:
            self._show_agent(agent)
        self.status.show(cache_share=agent.tracker.session.cache_share)
        self.steering.changed()
