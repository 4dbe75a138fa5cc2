"""An open session of a connection: its prompts, questions, choices and end."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from acp.exceptions import RequestError
from acp.helpers import update_agent_message_text, update_agent_thought_text, update_current_mode
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    ConfigOptionUpdate,
    DeclineElicitationResponse,
    PermissionOption,
    PromptResponse,
    SessionConfigOptionSelect,
    SessionInfoUpdate,
    StopReason,
    ToolCallProgress,
    ToolCallUpdate,
    Usage,
)

from tui_agent.acp.choices import MODE, MODEL, MODES, commands, config_options
from tui_agent.acp.editor import EditorBuffers, Terminals
from tui_agent.acp.prompts import EditorPrompt, PromptBlock, read_prompt
from tui_agent.acp.updates import (
    Translator,
    Update,
    answer_in_form,
    fenced,
    form,
    locations_of,
    plan,
    question_content,
    remark,
    title_of_question,
    usage,
)
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.command import is_command
from tui_agent.agent.commands.table import errand, own_prompt, run_command
from tui_agent.agent.turn.turns import AgentBusy, NotRunning
from tui_agent.arguments import Arguments
from tui_agent.conversation.entries import Usage as Used
from tui_agent.conversation.tasks import PLAN, TODO
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import OFFLINE, catalogue_of
from tui_agent.models.choice import configured_model, meant_model
from tui_agent.session import Session, SessionError, open_session
from tui_agent.settings import Settings
from tui_agent.storage.artifacts import RAW_FOLDER
from tui_agent.storage.errors import SessionBusy, StorageError
from tui_agent.storage.sessions import NoSuchSession
from tui_agent.system.lenient import object_in
from tui_agent.text import clean, one_line
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, ToolFailure

ONCE: Final = "once"
SESSION: Final = "session"
ALWAYS: Final = "always"
DECLINE: Final = "decline"
CHOICE: Final = "choice-"

IN_THE_CHAT: Final = "They want to answer in their own words: end your turn, and they will."
"""The answer for the model if the user took none of the offered answers."""

KEEPING_UP_S: Final = 1.0
"""Seconds that a question waits until the client knows of its call; calls of subtasks are never sent to it."""

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "interrupted": "cancelled",
}
TITLE_CHARS: Final = 80
ALONE: Final = "Nobody is here to ask. Decide yourself what is most likely wanted, say what you decided, and go on."
NO_MODEL: Final = (
    "No model was chosen, and unattended none is chosen for you. Name one: `tui-agent acp --unattended --model NAME`, "
    "`TUI_AGENT__MODEL__ID`, or the session's option `model`."
)


class EditorConversation:
    """A session whose front end is the client of a connection. Create it with `opened`."""

    def __init__(self, client: Client, arguments: Arguments) -> None:
        self._client = client
        self._arguments = arguments
        self._session: Session | None = None
        self._translator = Translator(arguments.folder)
        self._caught_up = asyncio.Event()
        self._said: list[events.Notice] = []
        self._mode = ""
        self._doing: asyncio.Task[PromptResponse] | None = None
        self._introducing: asyncio.Task[None] | None = None
        self._has_forms = False
        self._terminals: Terminals | None = None
        self.every_model = arguments.unattended
        """Whether the client is offered all known models."""
        self._unusable = ""
        """Why the model that was asked for cannot be used; empty if it can, or none was."""

    @classmethod
    async def opened(
        cls,
        client: Client,
        settings: Settings,
        arguments: Arguments,
        notices: Iterable[str] = (),
        able: ClientCapabilities | None = None,
    ) -> "EditorConversation":
        """Open the session named by `arguments`, or a new one. `notices` are sent with its own; `able` are the client's
        capabilities.

        Raises `SessionError`.
        """
        made = cls(client, arguments)
        able = able or ClientCapabilities()
        made._has_forms = able.elicitation is not None and able.elicitation.form is not None
        shares = able.fs is not None and bool(able.fs.read_text_file and able.fs.write_text_file)
        buffers = EditorBuffers(client) if shares else None
        session = made._session = await open_session(settings, arguments, made._ask, buffers=buffers)
        if buffers is not None:
            buffers.session = session.id
        if able.terminal:
            made._terminals = Terminals(client, session.id, session.folder / RAW_FOLDER)
        if session.resumed:
            await session.enter_stricter_mode()
        session.agent.listen(made._tell_later)
        made._said = [*session.notices]
        if arguments.unattended and not settings.model.id and not session.resumed:
            made._unusable = NO_MODEL
        made._said += [events.Notice(level="warning", title="Session", text=text) for text in notices]
        if session.agent.profile.provider == OFFLINE and not settings.model.id and not session.resumed:
            message = (
                "There is no key, so the built-in demonstration answers. `tui-agent doctor` says which keys count."
            )
            made._said.append(events.Notice(level="warning", title="No model", text=message))
        return made

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RuntimeError("the session is not open yet")
        return self._session

    @property
    def agent(self) -> Agent:
        return self.session.agent

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def is_running(self) -> bool:
        return self._doing is not None and not self._doing.done()

    async def introduced(self) -> list[SessionConfigOptionSelect]:
        """Send the client the available commands, notices and usage, and get the model's facts from the provider;
        returns what it can choose.

        Call it just before returning the response by which the client learns of the session: the response is sent
        first.
        """
        options = await asyncio.to_thread(self.options)
        if self._introducing is None or self._introducing.done():
            self._introducing = asyncio.create_task(self._introduce())
        return options

    async def _introduce(self) -> None:
        offered = await commands(self.agent)
        await self._send(offered)
        if self.agent.context.todo().items:
            await self._send(plan(self.agent.context.todo()))
        await self.agent.connect()
        stats = self.agent.context_stats()
        if stats.window > 0 and self.session.resumed:
            await self._send(usage(stats.tokens, stats.window, stats.cost_usd, stats))
        # Servers that were not known yet may offer prompts.
        await self.session.offered.servers.learn()
        if (now := await commands(self.agent)) != offered:
            await self._send(now)

    async def replay(self) -> None:
        """Send the client the conversation so far."""
        translator = Translator(self._arguments.folder, replaying=True)
        for event in self.agent.branches.history():
            for update in translator.updates(event):
                await self._send(update)

    # Prompts

    async def prompt(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        """Run a turn or a slash command; if a turn is running, the prompt joins it.

        Raises `RequestError` if the turn failed.
        """
        profile = self.agent.profile
        if self._unusable:
            raise _wrong(f"{self._unusable} Nothing was sent to another one.")
        said = read_prompt(blocks, pictures=profile.images, model=profile.name)
        await self._tell_notices(said.problems)
        if self._doing is not None and self.is_running:
            with suppress(NotRunning):
                await self.agent.queue(said.text, said.images)
                return await asyncio.shield(self._doing)
        self._doing = asyncio.ensure_future(self._answer(said))
        try:
            return await self._doing
        except asyncio.CancelledError:
            # The request was cancelled, or the client is gone: end what runs first.
            self._doing.cancel()
            await asyncio.wait([self._doing])
            raise

    async def _answer(self, said: EditorPrompt) -> PromptResponse:
        text = said.text
        names = self.agent.settings.context.instruction_files
        if asked := errand(text, self._arguments.project, names):
            text = asked
        elif is_command(text) and text.startswith("/"):
            prompt = await own_prompt(self.agent, text)
            if prompt is None:
                return await self._command(text)
            try:
                text = await self.agent.own_commands.expand(prompt, text.strip().partition(" ")[2].strip())
            except ToolFailure as failure:
                raise _wrong(f"/{prompt.name}: {failure}") from failure
        if not self.session.resumed and not self.agent.context.items() and text.strip():
            await self._send(
                SessionInfoUpdate(session_update="session_info_update", title=one_line(said.text, TITLE_CHARS))
            )
        self._mode = self.agent.permissions.mode
        failed: events.TurnFailed | None = None
        finished: events.TurnFinished | None = None
        typed = "" if text == said.text else said.text.strip()
        async with aclosing(self.agent.run(text, said.images, typed=typed)) as stream:
            async for event in stream:
                await self._show(event)
                if isinstance(event, events.TurnFailed):
                    failed = event
                elif isinstance(event, events.TurnFinished):
                    finished = event
        stats = self.agent.context_stats()
        if stats.window > 0:
            await self._send(usage(stats.tokens, stats.window, stats.cost_usd, stats))
        if failed is not None:
            message = f"{clean(failed.message)} {clean(failed.hint)}".strip()
            raise RequestError(-32603, message, {"kind": failed.kind, "retryable": failed.retryable})
        if finished is None:
            return PromptResponse(stop_reason="cancelled")
        reason = _STOP_REASONS.get(finished.stop_reason, "end_turn")
        return PromptResponse(stop_reason=reason, usage=_usage(finished.usage))

    async def _show(self, event: events.AgentEvent) -> None:
        for update in self._translator.updates(event):
            if (shown := await self._in_terminal(event, update)) is not None:
                await self._send(shown)
        match event:
            case events.PermissionAsked():
                self._caught_up.set()
            case events.ToolFinished(name=name, status="ok") if name in (TODO, PLAN):
                await self._send(plan(self.agent.context.todo()))
                await self._tell_mode()
            case events.ModelChanged():
                options = await asyncio.to_thread(self.options)
                await self._send(ConfigOptionUpdate(session_update="config_option_update", config_options=[*options]))

    async def _in_terminal(self, event: events.AgentEvent, update: Update) -> Update | None:
        """The update with the client's terminal in place of a command's output; None: the terminal shows it."""
        terminals = self._terminals
        match event:
            case events.ToolProgress() if terminals is not None and terminals.shows(event.call_id):
                return None
            case events.ToolProgress() if terminals is not None:
                return await terminals.running(event) or update
            case events.ToolFinished() if terminals is not None and terminals.shows(event.call_id):
                return await terminals.ended(event, update) if isinstance(update, ToolCallProgress) else update
            case _:
                return update

    async def _command(self, text: str) -> PromptResponse:
        self._mode = self.agent.permissions.mode
        try:
            reply = await run_command(self.agent, text)
            answer_text = reply.title + (f"\n\n{fenced(reply.text)}" if "\n" in reply.text else f"\n\n{reply.text}")
        except (AgentBusy, StorageError) as error:
            answer_text = str(error)
        await self._send(update_agent_message_text(clean(answer_text).rstrip()))
        await self._tell_notices()
        await self._tell_mode()
        return PromptResponse(stop_reason="end_turn")

    def cancel(self) -> None:
        """Stop what runs; the turn's last events are still sent."""
        if not self.agent.interrupt() and self._doing is not None:
            self._doing.cancel()

    # Questions

    async def _ask(self, question: PermissionQuestion) -> PermissionAnswer:
        """Ask the client's user a question of the gate's. If unanswered, the call is declined and the turn stops.

        Unattended, only calls are asked about; questions and plans get the model's own first choice.
        """
        if self._arguments.unattended and question.kind != "call":
            return await self._answer_unattended(question)
        if not self._translator.is_known(question.call_id):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._caught_up.wait(), KEEPING_UP_S)
        self._caught_up.clear()
        if question.kind == "question" and self._has_forms:
            with suppress(RequestError):  # if it fails, ask as with any other client
                return await self._ask_in_a_form(question)
        asked = await self._client.request_permission(
            session_id=self.id,
            tool_call=ToolCallUpdate(
                tool_call_id=question.call_id or question.tool,
                title=title_of_question(question),
                kind=facts_of(question.tool).kind,
                status="pending",
                content=question_content(question, self._arguments.folder),
                locations=locations_of(question.tool, question.arguments, self._arguments.folder),
                raw_input=object_in(question.arguments),
            ),
            options=_options(question),
        )
        chosen = asked.outcome.option_id if isinstance(asked.outcome, AllowedOutcome) else ""
        if not chosen:
            self.agent.interrupt()
        return _answer_of(question, chosen)

    async def _answer_unattended(self, question: PermissionQuestion) -> PermissionAnswer:
        taken = question.choices[0] if question.choices else ""
        asked = one_line(question.preview.text or question.reason, 300)
        note = f"{asked}\nNobody is here to ask; answered with the first choice: {taken or 'go on without an answer'}."
        self._said.append(events.Notice(level="info", title="Answered unattended", text=note))
        await self._tell_notices()
        if not taken:
            return PermissionAnswer(allowed=False, feedback=ALONE)
        return PermissionAnswer(allowed=True, choice=taken)

    async def _ask_in_a_form(self, question: PermissionQuestion) -> PermissionAnswer:
        """Ask with a form, so that users can also answer in their own words."""
        asked = await self._client.create_elicitation(clean(question.preview.text), form(question, self.id))
        if isinstance(asked, AcceptElicitationResponse):
            return answer_in_form(asked.content)
        if not isinstance(asked, DeclineElicitationResponse):
            self.agent.interrupt()
        return PermissionAnswer(allowed=False, feedback=IN_THE_CHAT)

    # What the user chooses

    async def set_mode(self, name: str) -> None:
        """Change the mode. Raises `RequestError` for an unknown one."""
        mode = next((mode for mode in MODES if mode == name), None)
        if mode is None:
            raise _wrong(f"There is no mode {one_line(name, 60)!r}.")
        self.agent.permissions.mode = mode
        await self._tell_mode(always=True)

    async def set_option(self, option: str, value: str) -> list[SessionConfigOptionSelect]:
        """Choose a mode or a model; returns the options afterwards. Raises `RequestError`."""
        if option == MODE:
            await self.set_mode(value)
        elif option == MODEL:
            await self._set_model(value)
        else:
            raise _wrong(f"There is nothing called {one_line(option, 60)!r} to choose.")
        return await asyncio.to_thread(self.options)

    async def _set_model(self, name: str) -> None:
        try:
            settings = self.agent.settings
            model = await asyncio.to_thread(lambda: configured_model(settings, meant_model(settings, name)))
            missing = catalogue_of(self.agent.settings).missing_key(model.profile.name)
            if missing is not None:
                raise UnknownModel(f"{model.profile.name} needs a key: set {missing}.")  # noqa: TRY301
            await self.agent.swap_model(model)
        except UnknownModel as error:
            self._unusable = f"The model {one_line(name, 100)} that was asked for cannot be used: {error.message}"
            raise _wrong(error.message) from error
        except AgentBusy:
            raise _wrong("A turn is running: choose another model when it is over.") from None
        self._unusable = ""

    def options(self) -> list[SessionConfigOptionSelect]:
        """What the client can choose. May import the price catalogue: call it in a thread."""
        return config_options(self.agent, every=self.every_model)

    # The end

    async def close(self) -> None:
        """End what runs and close the session. Closes everything even if it raises `StorageError`."""
        running = [task for task in (self._doing, self._introducing) if task is not None and not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self.session.close()

    # Telling

    async def _tell_mode(self, *, always: bool = False) -> None:
        """Send the mode if it has changed, and keep it: a client may be a new process for each prompt."""
        if always or self.agent.permissions.mode != self._mode:
            self._mode = self.agent.permissions.mode
            await self._send(update_current_mode(self.agent.permissions.mode))
            with suppress(StorageError):  # it counts all the same
                await self.session.note_mode()

    def _tell_later(self, event: events.AgentEvent) -> None:
        """Handle an event outside a turn: notices are held back until the next prompt."""
        if isinstance(event, events.Notice):
            self._said.append(event)

    async def _tell_notices(self, problems: Iterable[str] = ()) -> None:
        said, self._said = self._said, []
        for notice in said:
            await self._send(update_agent_thought_text(remark(f"{notice.title}:", notice.text, notice.hint)))
        for problem in problems:
            await self._send(update_agent_thought_text(remark("Not sent:", problem)))

    async def _send(self, update: Update) -> None:
        await self._client.session_update(session_id=self.id, update=update)


@asynccontextmanager
async def explained() -> AsyncIterator[None]:
    """Turn errors of sessions and storage into the protocol's errors."""
    try:
        yield
    except (NoSuchSession, SessionBusy) as error:
        code = -32002 if isinstance(error, NoSuchSession) else -32600
        raise RequestError(code, f"{error.message} {error.hint}".strip()) from error
    except (SessionError, StorageError) as error:
        raise RequestError(-32603, f"{error.message} {error.hint}".strip()) from error


def _options(question: PermissionQuestion) -> list[PermissionOption]:
    if question.kind != "call":
        words = "Approve; mode {}" if question.kind == "plan" else "{}"
        taken = [
            PermissionOption(option_id=f"{CHOICE}{place}", name=one_line(words.format(choice)), kind="allow_once")
            for place, choice in enumerate(question.choices)
        ]
        other = "Send it back" if question.kind == "plan" else "Answer in the chat"
        return [*taken, PermissionOption(option_id=DECLINE, name=other, kind="reject_once")]
    options = [
        PermissionOption(
            option_id=ONCE, name="Allow for this session" if question.lasts else "Allow once", kind="allow_once"
        )
    ]
    if question.rules:
        for option, word in ((SESSION, "For this session"), (ALWAYS, "Always")):
            label = one_line(f"{word} allow: {'; '.join(question.rules)}", 160)
            options.append(PermissionOption(option_id=option, name=label, kind="allow_always"))
    return [*options, PermissionOption(option_id=DECLINE, name="Decline", kind="reject_once")]


def _answer_of(question: PermissionQuestion, chosen: str) -> PermissionAnswer:
    if question.kind == "call":
        return PermissionAnswer(
            allowed=chosen in (ONCE, SESSION, ALWAYS), always=chosen == ALWAYS, for_session=chosen == SESSION
        )
    choices = {f"{CHOICE}{place}": choice for place, choice in enumerate(question.choices)}
    if chosen in choices:
        return PermissionAnswer(allowed=True, choice=choices[chosen])
    return PermissionAnswer(allowed=False, feedback=IN_THE_CHAT)


def _usage(used: Used) -> Usage:
    return Usage(
        total_tokens=used.input_tokens + used.output_tokens,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        thought_tokens=used.reasoning_tokens,
        cached_read_tokens=used.cache_read_tokens,
        cached_write_tokens=used.cache_write_tokens,
    )


def _wrong(text: str) -> RequestError:
    return RequestError(-32602, text)
