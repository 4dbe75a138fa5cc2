"""Opening and switching sessions, with the questions on sessions in use and on trusting a project."""

import asyncio
import os
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.arguments import Arguments
from tui_agent.settings import Settings
from tui_agent.text import clean, counted, displayed, expanded, money_text, one_line
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host
from tui_agent.tui.session.conductor import SessionUnavailable
from tui_agent.tui.wording import age

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tui_agent.agent.agent import Agent
    from tui_agent.models.base import UnknownModel
    from tui_agent.session import Session
    from tui_agent.storage.sessions import SessionInfo
    from tui_agent.tools.base import Ask

MAX_LISTED: Final = 300
"""How many sessions, newest first, have their last words looked up for the picker."""
LEAVE, DELETE, NEW, CHOOSE = "leave", "delete", "new", "choose"
"""Answers to questions."""
NEW_WORKTREE: Final = "/"
"""Chosen for a new worktree; none can have this name."""


class Sessions:
    """The session commands of one app. Call each from a worker: it may ask the user."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def new(self, argument: str = "") -> None:
        """Switch to a new session in this folder, with this one's model and mode; this one is kept."""
        if await self._may_leave():
            self._host.settings = self._host.kept_choices
            self._go(None)

    async def choose(self, argument: str = "") -> None:
        """Switch to another session.

        `argument`: its id or a prefix of that, or a file with a session recorded by another program; empty: the user
        picks one.
        """
        picked: str | None
        if argument:
            from tui_agent.storage.errors import StorageError
            from tui_agent.storage.sessions import session_to_resume

            try:
                picked = (await session_to_resume(self._host.arguments.home, argument)).name
            except StorageError as error:
                if not await asyncio.to_thread((self._host.arguments.folder / expanded(argument)).is_file):
                    self._host.say(Level.WARNING, error.message, hint="/sessions lists them")
                    return
                picked = argument
            fork = False
        else:
            picked, fork = await picked_session(self._host.arguments, self._host, self._present)
        present = self._present
        if picked is None or (present is not None and picked == present.id and not fork):
            return
        if await self._may_leave():
            self._go(picked, fork=fork)

    async def trust(self, argument: str = "") -> None:
        """Ask again whether to trust this project; the session is reopened with the answer."""
        from tui_agent.settings.brought import brought, running
        from tui_agent.tui.dialogs.trust import NO_TRUST, TRUST, TrustScreen

        arguments = self._host.arguments
        lines = await asyncio.to_thread(running, arguments.project)
        found = await asyncio.to_thread(brought, arguments.folder, self._host.settings.context.instruction_files)
        if not found and not arguments.trusted:
            self._host.say(Level.INFO, "Nothing in this project needs trust")
            return
        before = TRUST if arguments.trusted else NO_TRUST
        new = await asyncio.to_thread(_new_in, arguments)
        answer = await self._host.question(TrustScreen(arguments.project, found, before, new))
        if answer is None or not await self._may_leave():
            return
        try:
            arguments, self._host.settings = await asyncio.to_thread(
                answered, arguments, lines, trusted=answer == TRUST
            )
        except ValueError as error:
            self._host.say(Level.ERROR, "The answer does not take effect", str(error), "mend that and try again")
            return
        if answer == before and not new:
            self._host.hint("it stays as it was")
            return
        present = self._present
        talked = present is not None and len(present.agent.engine.view.log)
        self._go(present.id if present is not None and talked else None, arguments)

    async def worktree(self, argument: str = "") -> bool:
        """Start the program again in a git worktree of its own, which the user chooses unless `argument` is `open` and
        perhaps a name; False if the command is about the worktree this session is in.
        """
        from tui_agent.worktrees import WorktreeError, check_name, opened_before, worktree_at

        host, (verb, _, name) = self._host, argument.partition(" ")
        folder = host.arguments.folder
        if verb not in ("", "open"):
            return False
        try:
            if not verb:
                with suppress(WorktreeError):
                    await asyncio.to_thread(worktree_at, folder)
                    return False
            known = await asyncio.to_thread(opened_before, folder)
            if name:
                check_name(name)
        except WorktreeError as error:
            host.say(Level.WARNING, "No worktree was opened", str(error))
            return True
        if not verb:
            from tui_agent.tui.dialogs.pickers import Option

            new = Option(NEW_WORKTREE, "A new one", "at the last commit, on a branch of its own")
            title = "Work in a git worktree beside the project, in a new session?"
            chosen = await host.pick(title, [new, *(Option(each, each) for each in known)], "")
            if chosen is None:
                return True
            name = "" if chosen == NEW_WORKTREE else chosen
        if host.arguments.demo:
            host.say(Level.INFO, "The demonstration goes on in its own folder", hint="/quit ends it")
        elif await self._may_leave(anew=True):
            settings = host.kept_choices
            kept = (f"--set=model.id={settings.model.id}", f"--set=permissions.mode={settings.permissions.mode}")
            host.start_anew(f"--worktree={name}", *kept)
        return True

    async def rename(self, argument: str = "") -> None:
        """Give this session the title that follows the command, or one that is asked for."""
        from tui_agent.storage.sessions import list_sessions
        from tui_agent.tui.dialogs.fields import MAX_TITLE

        await self._host.agent()
        present = self._present
        if present is None:
            return
        infos = await list_sessions(self._host.arguments.home) if not argument else ()
        was = next((info.title for info in infos if info.id == present.id), "")
        await _rename(present.folder, was, self._host, present, title=one_line(argument, MAX_TITLE))

    @property
    def _present(self) -> "Session | None":
        return self._host.session

    async def demo(self, argument: str = "") -> None:
        """Start the program again with the demonstration."""
        if self._host.arguments.demo:
            self._host.say(Level.INFO, "This is the demonstration", hint="/help lists what else there is to try")
        elif await self._may_leave(anew=True):
            self._host.start_anew("--demo")

    async def _may_leave(self, *, anew: bool = False) -> bool:
        """Ask the user if something would be stopped. `anew`: the program is started again."""
        from tui_agent.tui.dialogs.pickers import Option

        if self._host.busy:
            title = "A turn runs. Stop it, and go on in another session?"
        elif running := self._host.in_background(sessions=anew):
            title = f"{running} in the background would be stopped. Go on in another session?"
        else:
            return True
        answers = Option("", "Stay here"), Option(LEAVE, "Stop and go", "what was said so far is kept")
        return await self._host.pick(title, answers, "") == LEAVE

    def _go(self, session: str | None, arguments: Arguments | None = None, *, fork: bool = False) -> None:
        target = (arguments or self._host.arguments)._replace(
            prompt=None, resume=session, continue_last=False, fork=fork
        )
        self._host.switch(target)


async def picked_session(
    arguments: Arguments, host: Host, present: "Session | None" = None, why: str = ""
) -> tuple[str | None, bool]:
    """The id of the session the user picks, None if they cancel, and whether to fork it. `why`: they have to pick."""
    from tui_agent.agent.presence import statuses
    from tui_agent.storage.errors import StorageError
    from tui_agent.storage.sessions import last_words, list_sessions
    from tui_agent.tui.commands.elsewhere import visit
    from tui_agent.tui.dialogs.sessions_screen import SessionsScreen

    marked = ""
    now = partial(statuses, arguments.home)
    while True:
        try:
            sessions = [info for info in await list_sessions(arguments.home) if info.messages and not info.problem]
            last = {info.id: await last_words(info.folder) for info in sessions[:MAX_LISTED]}
            open_now = await asyncio.to_thread(now)
        except StorageError as error:
            host.say(Level.ERROR, "The sessions cannot be listed", error.message, error.hint)
            return None, False
        if not sessions:
            if not why:
                host.say(Level.INFO, "There is no earlier session")
            return None, False
        current = present.id if present is not None else ""
        screen = SessionsScreen(sessions, last, arguments.folder, current, marked, open_now, now, why)
        verb, _, wanted = (await host.question(screen) or "").rpartition(" ")
        if not wanted:
            return None, False
        info = next(each for each in sessions if each.id == wanted)
        open_now = await asyncio.to_thread(now)
        match verb:
            case "" if info.id in open_now and info.id != current:
                if await visit(host, arguments.home, info):
                    return None, False
            case "":
                return info.id, False
            case "fork":
                return info.id, True
            case "rename":
                await _rename(info.folder, info.title, host, present)
            case "delete":
                await _delete(info, arguments, host, present)
        marked = info.id


def answered(arguments: Arguments, lines: "Iterable[str]", *, trusted: bool) -> tuple[Arguments, Settings]:
    """Save whether the project is trusted, with these lines on what it runs or sets; returns the arguments and settings
    that follow from it.

    Raises ValueError, and then saves nothing.
    """
    from tui_agent.settings import SettingsError, load_settings
    from tui_agent.settings.brought import running
    from tui_agent.settings.trust import TrustError, refuse, trust

    if trusted and running(arguments.project) != tuple(lines):
        raise ValueError("The project's files changed while you were asked: /trust shows what they are now.")
    try:
        settings = load_settings(
            arguments.home, arguments.project, trusted=trusted, environ=os.environ, overrides=arguments.overrides
        )
        if trusted:
            trust(arguments.project, arguments.home, lines)
        else:
            refuse(arguments.project, arguments.home)
    except (SettingsError, TrustError) as error:
        raise ValueError(str(error)) from error
    return arguments._replace(trusted=trusted, ask_trust=False, new_in_project=()), settings


async def _rename(folder: Path, was: str, host: Host, present: "Session | None", *, title: str | None = None) -> None:
    from tui_agent.storage.errors import StorageError
    from tui_agent.storage.sessions import rename_session
    from tui_agent.tui.dialogs.fields import TitleScreen

    title = title or await host.question(TitleScreen(was))
    if not title:
        return
    try:
        if present is not None and present.folder == folder:
            await present.rename(title)
            host.say(Level.INFO, f"This session is called “{title}” now")
        else:
            await rename_session(folder, title)
    except StorageError as error:
        host.say(Level.WARNING, "The session keeps its title", error.message, error.hint)


async def _delete(info: "SessionInfo", arguments: Arguments, host: Host, present: "Session | None") -> None:
    from tui_agent.storage.errors import StorageError
    from tui_agent.storage.sessions import delete_session
    from tui_agent.tui.dialogs.fields import MAX_TITLE
    from tui_agent.tui.dialogs.pickers import Option

    if present is not None and present.id == info.id:
        host.say(
            Level.WARNING, "This is the session you are in", hint="/new begins another one; then it can be deleted"
        )
        return
    figures = f"{age(info.updated)}, {counted(info.messages, 'message')}, {money_text(info.cost_usd)}"
    text = f"{displayed(clean(one_line(info.title, MAX_TITLE) or info.id))}\n{figures}"
    answers = Option("", "Keep it"), Option(DELETE, "Delete it", "for good, with the files kept for it")
    if await host.pick("Delete this session?", answers, "", text=text) != DELETE:
        return
    try:
        await delete_session(arguments.home, info.id)
    except StorageError as error:
        host.say(Level.WARNING, "The session was not deleted", error.message, error.hint)


async def _with_trust(arguments: Arguments, settings: Settings, host: Host) -> tuple[Arguments, Settings]:
    """Ask whether to trust a project that has its own settings or extensions, or new ones, and apply the answer."""
    from tui_agent.settings.brought import brought, running

    if arguments.trusted and not arguments.ask_trust:
        new = await asyncio.to_thread(_new_in, arguments)
        arguments = arguments._replace(trusted=not new, ask_trust=bool(new), new_in_project=new)
    if not arguments.ask_trust:
        return arguments, settings
    from tui_agent.tui.dialogs.trust import NO_TRUST, TRUST, TrustScreen

    # What is shown and what is saved come from here: a file that changes meanwhile is asked about again.
    lines = await asyncio.to_thread(running, arguments.project)
    found = await asyncio.to_thread(brought, arguments.folder, settings.context.instruction_files)
    answer = await host.question(TrustScreen(arguments.project, found, NO_TRUST, arguments.new_in_project))
    try:
        if answer is not None:
            arguments, settings = await asyncio.to_thread(answered, arguments, lines, trusted=answer == TRUST)
    except ValueError as error:
        host.say(Level.ERROR, "The project's settings do not take effect", str(error), "mend that, then start again")
    # Do not ask again for the next session, even if opening this one fails.
    arguments = arguments._replace(ask_trust=False)
    host.arguments = host.arguments._replace(
        trusted=arguments.trusted, ask_trust=False, new_in_project=arguments.new_in_project
    )
    host.settings = settings
    return arguments, settings


def _new_in(arguments: Arguments) -> tuple[str, ...]:
    """What a project runs or sets since the user trusted it."""
    from tui_agent.settings.brought import standing
    from tui_agent.settings.trust import TrustError

    try:
        return standing(arguments.project, arguments.home).new
    except TrustError:
        return ()  # the list was damaged while the app ran: the answer at its start holds


async def open_for_screen(
    arguments: Arguments, settings: Settings, host: Host, ask: "Ask"
) -> tuple["Session", Arguments, Settings]:
    """Open the session that the arguments ask for; also returns these and the settings after the user's answers.

    Raises SessionUnavailable after telling the user why it cannot be opened, or why the program ends.
    """
    arguments, settings = await _with_trust(arguments, settings, host)
    await asyncio.to_thread(import_module, "tui_agent.session")
    from tui_agent.models.base import UnknownModel
    from tui_agent.session import SessionError, SessionRefused, open_session
    from tui_agent.storage.errors import SessionBusy
    from tui_agent.storage.sessions import NoSuchSession
    from tui_agent.tui.dialogs.pickers import Option

    why = ""
    while True:
        if arguments.resume == "":
            session, fork = await picked_session(arguments, host, why=why)
            arguments = arguments._replace(resume=session, fork=arguments.fork or fork)
        try:
            return await open_session(settings, arguments, ask), arguments, settings
        except SessionRefused as refused:
            host.refuse(f"{refused.message} {refused.hint}")
            raise SessionUnavailable from refused
        except SessionError as error:
            wanted = None
            if arguments.continue_last and isinstance(error.__cause__, NoSuchSession):
                missing = "There was no session of this folder to go on with"
                host.say(Level.INFO, missing, "This is a new one.", "/sessions lists those of all folders")
                wanted = NEW
            elif isinstance(error.__cause__, NoSuchSession):
                why = error.message
                host.say(Level.WARNING, why, hint="a new one begins unless you choose an earlier one")
                wanted = CHOOSE
            if isinstance(error.__cause__, SessionBusy):
                answers = Option(NEW, "A new session here"), Option(CHOOSE, "Choose another session")
                text = displayed(clean(error.message))
                wanted = await host.pick("The session is in use", answers, NEW, text=text)
            if isinstance(error.__cause__, UnknownModel):
                with_model = await _with_another_model(settings, host, error.__cause__)
                if with_model is not None:
                    settings = with_model
                    continue
            if wanted not in {NEW, CHOOSE}:
                host.say(Level.ERROR, "The session could not be opened", error.message, error.hint)
                raise SessionUnavailable from error
            arguments = arguments._replace(resume="" if wanted == CHOOSE else None, continue_last=False, fork=False)


async def _with_another_model(settings: Settings, host: Host, problem: "UnknownModel") -> Settings | None:
    """The settings with a model that the user picks in place of an unknown one, or of a part of several names: the
    offline one, if they pick none. None: another setting names the unknown model.
    """
    from tui_agent.models.base import SeveralModels
    from tui_agent.models.base import UnknownModel as Unknown
    from tui_agent.models.catalogue import OFFLINE, catalogue_of
    from tui_agent.settings.writing import with_setting
    from tui_agent.tui.commands.models import TITLE, model_options, pick_of

    text = f"{problem.message} Esc begins with the offline one."
    if isinstance(problem, SeveralModels):
        name = await pick_of(host, settings, OFFLINE, settings.model.id, problem.names, text)
        return with_setting(settings, "model.id", name or OFFLINE, "the list of models")
    try:
        if settings.model.id:
            catalogue_of(settings).resolve(settings.model.id)
        return None
    except Unknown:
        pass
    options = await asyncio.to_thread(model_options, OFFLINE, settings)
    name = await host.pick(TITLE, options, OFFLINE, text=text, search=True)
    return with_setting(settings, "model.id", name or OFFLINE, "the list of models")


async def learn_model(agent: "Agent", host: Host) -> None:
    """Ask the provider for the model's facts; without a key, tell the user what is missing. Never raises."""
    from tui_agent.models.catalogue import catalogue_of

    missing = catalogue_of(agent.settings).missing_key(agent.profile.name)
    if missing is not None:
        name = agent.profile.name
        hint = f"enter it with /key, or set {missing} and start again; /model offline needs none"
        host.say(Level.WARNING, f"There is no key for {name}", hint=hint)
        return
    await agent.connect()
