"""The plain mode: a conversation as lines, for screen readers and for terminals that can only print.

Nothing is drawn and nothing moves: each event is a line that begins with what it is, and each answer is a line that the
terminal itself lets the user edit.
"""

import asyncio
import os
import select
import signal
import sys
import termios
from contextlib import aclosing, suppress
from typing import Final

from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.command import command_name, is_command
from tui_agent.agent.commands.table import available_commands, errand, own_prompt, run_command
from tui_agent.arguments import Arguments, ExitCode
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.headless.report import CUT_OFF, text_of
from tui_agent.headless.running import in_a_line, mentioned_images, ways_to_a_model
from tui_agent.models.catalogue import OFFLINE, catalogue_of
from tui_agent.session import Session, SessionError, open_session
from tui_agent.settings import Settings
from tui_agent.settings.brought import brought, running
from tui_agent.settings.trust import refuse, trust
from tui_agent.storage.errors import StorageError
from tui_agent.text import StreamCleaner, call_summary, clean, counted, money_text, one_line, wait_text
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, ToolFailure
from tui_agent.visible import visible_line

LEAVING: Final = ("exit", "quit", "q")
"""The commands that end the conversation, as the end of input (Ctrl+D) does."""
RESULT_LINES: Final = 5
"""Lines that are shown of a tool's result."""
PASTE_S: Final = 0.05
"""Lines that follow one another within so many seconds were pasted: together they are one message."""
YES, NO, SESSION, ALWAYS = ("y", "yes"), ("n", "no"), ("s", "session"), ("a", "always")
MAX_CALL: Final = 60
"""Characters of a call that is named with its result."""
FIRST: Final = "/help lists the commands, Ctrl+C stops a turn, Ctrl+D or /exit leaves."
_ENDED: Final = {"ok": "Result", "error": "Failed", "denied": "Not done", "interrupted": "Stopped"}


def run(arguments: Arguments, settings: Settings) -> int:
    """Hold a conversation on the terminal until the user leaves; returns the exit code."""
    return asyncio.run(_run(arguments, settings))


def ask_trust(arguments: Arguments, settings: Settings) -> bool:
    """Ask whether to trust the project, showing all that it brings; True if it is trusted now. Raises TrustError."""
    lines = running(arguments.project)
    say(visible_line(f"{arguments.project} brings files that take effect only if you trust it."))
    for new in arguments.new_in_project:
        say(visible_line(f"New since you trusted it: {new}"))
    for each in brought(arguments.folder, settings.context.instruction_files):
        say("\n  ".join(map(visible_line, (f"{each.name}: {each.does}", *each.details))))
    # What was typed before the question is no answer to it.
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    say("Trust this project? yes, no, or an empty line to be asked again next time: ", end="")
    answer = sys.stdin.readline().strip().lower()
    if answer in YES:
        trust(arguments.folder, arguments.home, lines)
    elif answer in NO:
        refuse(arguments.folder, arguments.home)
    return answer in YES


async def _without_key(session: Session) -> str:
    """What a user without a key is told, with the way to a model; empty: the model has a key, or needs none."""
    agent = session.agent
    if (missing := catalogue_of(agent.settings).missing_key(agent.profile.name)) is not None:
        return f"There is no key for {agent.profile.name}: set {missing} and start again, or type /model offline."
    if agent.settings.model.id or agent.profile.provider != OFFLINE:
        return ""
    ways = await ways_to_a_model(agent.settings)
    return f"No API key is set, so the offline model answers: no language model, but it knows a few commands. {ways}."


def say(text: str, end: str = "\n") -> None:
    """Print lines without anything that acts on a terminal."""
    sys.stdout.buffer.write(f"{clean(text)}{end}".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


class Keyboard:
    """Reads lines from the terminal, which the terminal itself lets the user edit."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()

    async def line(self, words: str) -> str | None:
        """Ask with these words for a line, or for several that are pasted at once; None: there is no more input."""
        say(words, end="")
        loop, ready, typed = asyncio.get_running_loop(), asyncio.Event(), b""
        loop.add_reader(self._file, ready.set)
        try:
            while not typed.endswith(b"\n") or self._waiting(PASTE_S):
                ready.clear()
                await ready.wait()
                piece = os.read(self._file, 65_536)
                if not piece:
                    say("")
                    return typed.decode("utf-8", "replace") if typed else None
                typed += piece
        finally:
            loop.remove_reader(self._file)
        return typed.decode("utf-8", "replace").removesuffix("\n")

    def forget(self) -> str:
        """Discard what was typed already, so that it answers no question; returns its complete lines."""
        typed = b""
        while self._waiting(0) and (piece := os.read(self._file, 65_536)):
            typed += piece
        with suppress(termios.error):
            termios.tcflush(self._file, termios.TCIFLUSH)
        return typed.decode("utf-8", "replace")

    def _waiting(self, seconds: float) -> bool:
        return bool(select.select([self._file], [], [], seconds)[0])


class PlainOutput:
    """Says each event as a line that begins with what it is; an answer comes by whole lines."""

    def __init__(self) -> None:
        self._cleaner = StreamCleaner()
        self._rest = ""
        self._answering = self._thinking = False
        self._calls: dict[str, str] = {}
        """What is running, by the ids of the calls."""
        self._told = ""
        """The call that was told of last, if no result was since."""

    def tell(self, event: events.AgentEvent) -> None:
        match event:
            case events.ModelCallStarted():
                self._answering = self._thinking = False
            case events.ReasoningDelta() if not self._thinking:
                self._thinking = True
                say("Thinking.")
            case events.TextDelta():
                *lines, self._rest = (self._rest + self._cleaner.feed(event.text)).split("\n")
                for line in lines:
                    self._answer(line)
            case events.AssistantMessage():
                self.finish()
                if not self._answering and event.text.strip():
                    say(f"Agent: {event.text.strip()}")
            case events.Retrying():
                self.finish()
                say(f"{event.sentence}. The answer begins again.")
            case events.ToolStarted():
                facts = facts_of(event.name)
                arguments = call_summary(event.arguments)
                say(f"{(facts.doing or facts.title).capitalize()}: {arguments}")
                self._told = event.call_id
                self._calls[event.call_id] = one_line(f"{facts.title or event.name} {arguments}", MAX_CALL)
            case events.ToolFinished():
                call = self._calls.pop(event.call_id, "")
                _tell_result(event, call if self._calls or event.call_id != self._told else "")
                self._told = ""
            case events.ContextStepStarted() if not event.in_background:
                say(f"Context: writing a {event.step} of {event.tokens:,} tokens.")
            case events.ContextStep():
                sizes = f"from {event.before:,} to {event.after:,} tokens."
                say(f"Context: {event.step}, {f'which failed. {event.error}' if event.error else sizes}")
            case events.Notice():
                say(in_a_line(event))
            case events.Alert():
                say(f"Watchdog: {event.text} {event.hint}".rstrip())
            case events.TurnFailed():
                self.finish()
                say(f"The turn failed. {event.message} {event.hint}".rstrip())
            case events.TurnFinished():
                self.finish()
                why = CUT_OFF.get(event.stop_reason, "Stopped." if event.stop_reason == "interrupted" else "Done.")
                say(f"{why} {wait_text(event.duration_ms / 1_000)}, {money_text(event.cost_usd)}.")

    def finish(self) -> None:
        """Say what is left of an answer's last line."""
        rest, self._rest = self._rest + self._cleaner.finish(), ""
        if rest:
            self._answer(rest)

    def _answer(self, line: str) -> None:
        if self._answering or line.strip():
            say(line if self._answering else f"Agent: {line}")
            self._answering = True


def _tell_result(event: events.ToolFinished, call: str) -> None:
    """Say a result; `call`: what it is the result of, if that is not clear."""
    lines = clean(event.diff or event.text).strip("\n").split("\n")
    what = ", ".join(filter(None, (call, one_line(event.summary))))
    say(f"{_ENDED.get(event.status, event.status)}: {what}".rstrip(": "))
    for line in lines[:RESULT_LINES]:
        say(f"  {one_line(line)}")
    if len(lines) > RESULT_LINES:
        say(f"  and {counted(len(lines) - RESULT_LINES, 'more line')}")


class PlainConversation:
    """One conversation: what the user types, and the questions of the agent."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._keyboard = Keyboard()
        self._telling = PlainOutput()
        self._one_question = asyncio.Lock()
        self._doing: asyncio.Task[None] | None = None

    async def hold(self, session: Session) -> None:
        """Answer what the user types until they leave."""
        agent = session.agent
        agent.listen(self._tell_outside)
        say(f"Plain mode. Model {agent.profile.name}. {FIRST}")
        for notice in session.notices:
            self._telling.tell(notice)
        if session.resumed:
            self._tell_last(list(agent.branches.history()))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop, session)
        if missing_key := await _without_key(session):
            say(missing_key)
        text = self._arguments.prompt
        if text:
            say(f"You: {text}")
        while text is not None or (text := await self._keyboard.line("You: ")) is not None:
            if is_command(text) and command_name(text) in LEAVING:
                return
            if text.strip():
                await self._do(session, text)
            text = None

    async def _do(self, session: Session, text: str) -> None:
        """Answer a text, unless Ctrl+C stops it."""
        self._doing = asyncio.create_task(self._answer(session, text))
        try:
            await self._doing
        except StorageError as error:
            say(f"{error.message} {error.hint}".strip())
        except asyncio.CancelledError:
            if (here := asyncio.current_task()) is not None and here.cancelling():
                raise
            say("Stopped.")
        finally:
            self._doing = None

    def _stop(self, session: Session) -> None:
        say("")
        if session.agent.interrupt():
            return
        if self._doing is not None:
            self._doing.cancel()
        else:
            say("Nothing is running. Ctrl+D or /exit leaves.\nYou: ", end="")

    async def _answer(self, session: Session, text: str) -> None:
        """Run a turn, a slash command, or a shell command of the user's own."""
        agent, words = session.agent, text
        if text.startswith("!"):
            await agent.run_shell(text[1:].strip())
            return
        if asked := errand(text, self._arguments.project, agent.settings.context.instruction_files):
            if agent.profile.provider == OFFLINE:
                say("This needs a real model: the offline one would take words of the task for its commands.")
                return
            words = asked
        elif is_command(text) and not text[:1].isspace():
            prompt = await own_prompt(agent, text)
            if prompt is None:
                await self._run_command(agent, text)
                return
            try:
                words = await agent.own_commands.expand(prompt, text.strip().partition(" ")[2].strip())
            except ToolFailure as failure:
                say(f"/{prompt.name}: {failure}")
                return
        if "\n" in text:
            say(f"Sent as one message of {counted(text.count(chr(10)) + 1, 'line')}.")
        images = await mentioned_images(session, text, self._arguments.folder)
        async with aclosing(agent.run(words, images, typed=text)) as stream:
            async for event in stream:
                self._telling.tell(event)

    async def _run_command(self, agent: Agent, text: str) -> None:
        """Run a slash command; if it takes something out of the context, show what it would do and ask first."""
        name = command_name(text)
        step = next((each.previews for each in available_commands(agent) if name in each.names), "")
        for command in (f"/preview {step}", text) if step else (text,):
            reply = await run_command(agent, command)
            say("\n".join(part for part in (reply.title, reply.text) if part))
            if reply.failed or command is text:
                return
            if (await self._said("Do it? yes or no: ")).lower() not in YES:
                say("Nothing was changed.")
                return

    def _tell_outside(self, event: events.AgentEvent) -> None:
        """Say what happens outside a turn; the steps of a command are in its reply."""
        if not isinstance(event, events.ContextStep):
            self._telling.tell(event)

    def _tell_last(self, history: list[events.AgentEvent]) -> None:
        """Say the last message of the user and what followed."""
        said = [place for place, event in enumerate(history) if isinstance(event, events.UserMessage)]
        say("The conversation so far ends with:")
        for event in history[said[-1] if said else 0 :]:
            if isinstance(event, events.UserMessage):
                say(f"You: {event.typed or event.text}")
            self._telling.tell(event)

    # Questions

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        """See `Ask`: show all of the question, and take an answer that was typed after it."""
        # The events before the question wait in the turn's stream; its reader is next.
        await asyncio.sleep(0)
        async with self._one_question:
            self._telling.finish()
            return await (self._ask_permission(question) if question.kind == "call" else self._ask_choice(question))

    async def _ask_permission(self, question: PermissionQuestion) -> PermissionAnswer:
        question_text = text_of(question)
        say(f"Permission needed: {visible_line(question.preview.title)}. {clean(question.reason)}")
        say(f"It is {counted(question_text.count(chr(10)) + 1, 'line')}:\n{question_text}\nThat is all of it.")
        for rule in question.rules:
            say(f"Session and always would allow: {visible_line(rule)}")
        outside = "Allow it outside the sandbox?" if question.outside else "Allow it?"
        while True:
            said = await self._said(f"{outside} yes, {'session, always, ' * bool(question.rules)}no, or no and why: ")
            answer = said.lower()
            if answer in YES or (answer in (*SESSION, *ALWAYS) and question.rules):
                return PermissionAnswer(allowed=True, always=answer in ALWAYS, for_session=answer in SESSION)
            first, _, why = said.partition(" ")
            if first.lower().rstrip(",.:;") in ("", *NO):
                return PermissionAnswer(allowed=False, feedback=why.strip())
            say("That is none of the answers.")

    async def _ask_choice(self, question: PermissionQuestion) -> PermissionAnswer:
        plan = question.kind == "plan"
        say("A plan, which waits for your approval:" if plan else "The agent asks:")
        say(text_of(question))
        for number, choice in enumerate(question.choices, 1):
            say(f"{number}. {'Approve; mode ' * plan}{visible_line(choice)}")
        while True:
            said = await self._said("A number, or what to change: " if plan else "A number, or your own words: ")
            if said in (numbers := [str(number) for number in range(1, len(question.choices) + 1)]):
                return PermissionAnswer(allowed=True, choice=question.choices[numbers.index(said)])
            if not (said.isdecimal() and numbers):
                own = bool(said) and not plan
                return PermissionAnswer(allowed=own, choice=said * own, feedback=said * (not own))
            say("There is no such number.")

    async def _said(self, words: str) -> str:
        """One line typed after these words; empty: there is none."""
        while True:
            if early := self._keyboard.forget().strip():
                say(f"Typed before the question, so no answer to it: {one_line(early)}")
            said = await self._keyboard.line(words)
            if said is None or "\n" not in said:
                return (said or "").strip()
            say("Several lines came at once. An answer is one line.")


async def _run(arguments: Arguments, settings: Settings) -> int:
    talk, code = PlainConversation(arguments), ExitCode.DONE
    try:
        session = await open_session(settings, arguments, talk.ask)
    except SessionError as error:
        say(f"{error.message} {error.hint}".strip())
        return ExitCode.BAD_USAGE
    if (here := asyncio.current_task()) is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, here.cancel)
    try:
        learning = asyncio.create_task(session.agent.connect())
        await talk.hold(session)
        learning.cancel()
    except asyncio.CancelledError:
        code = ExitCode.INTERRUPTED
    finally:
        try:
            await session.close()
        except StorageError as error:
            say(f"{error.message} {error.hint}".strip())
    if session.folder.exists():
        say(f"To go on with this conversation: tui-agent --plain -r {session.id}")
    return code
