"""Running one turn without a screen, and printing its result."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tui_agent.agent import events
from tui_agent.agent.agent import nobody
from tui_agent.agent.commands.command import CommandReply, is_command
from tui_agent.agent.commands.table import errand, own_prompt, run_command
from tui_agent.agent.own_commands import OwnPrompt
from tui_agent.agent.turn.hints import IN_TEXT, unanswered
from tui_agent.agent.turn.pictures import mentioned_pictures, read_pictures, smaller_text
from tui_agent.arguments import Arguments, ExitCode, UsageError
from tui_agent.conversation.blocks import Image
from tui_agent.headless.report import CUT_OFF, RunReport, text_of
from tui_agent.headless.standard_input import with_data
from tui_agent.headless.structured import ResultSchema
from tui_agent.models.catalogue import OFFLINE, catalogue_of
from tui_agent.models.choice import default_model
from tui_agent.models.ollama.server import pulled_models
from tui_agent.session import Session, SessionError, open_session
from tui_agent.settings import Settings
from tui_agent.settings.writing import with_setting
from tui_agent.storage.errors import StorageError
from tui_agent.text import clean, printable, sentence
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.permissions import NobodyToAsk

WAIT, WAIT_MINUTES = "model.wait_for_reset", 5
"""How long a script waits for a limit to reset, unless the setting is set: a longer wait looks like a hang."""

REPAIRS = 1
"""How often the model may correct a result that is not valid under the schema."""


def run(arguments: Arguments, settings: Settings, ready: Callable[[], None] = lambda: None) -> int:
    """Run one turn and print its result; returns the exit code (docs/headless.md, "Exit codes"). Raises UsageError.

    `ready` is called once all modules are loaded, the model's among them.
    """
    schema = ResultSchema.read(arguments.json_schema) if arguments.json_schema is not None else None
    if asked := errand(arguments.prompt or "", arguments.project, settings.context.instruction_files):
        arguments = arguments._replace(prompt=asked, typed=(arguments.prompt or "").strip())
    if schema is not None and is_command(arguments.prompt or ""):
        raise UsageError("--json-schema is for a prompt, not for a command")
    if WAIT not in settings.sources:
        settings = with_setting(settings, WAIT, WAIT_MINUTES, "-p")
    return asyncio.run(_run(arguments, settings, schema, ready))


async def _run(arguments: Arguments, settings: Settings, schema: ResultSchema | None, ready: Callable[[], None]) -> int:
    began = time.monotonic()
    try:
        session = await open_session(settings, arguments, nobody)
    except SessionError as error:
        _say(f"{error.message} {error.hint}".strip())
        return ExitCode.BAD_USAGE
    try:
        if why := await why_nobody_answers(session, arguments, settings):
            _say(why)
            return ExitCode.BAD_USAGE
        for notice in session.notices:
            _say(in_a_line(notice))
        await _learn_of_servers(session)
        return await _answered(session, arguments, schema, began, ready)
    finally:
        try:
            await session.close()
        except StorageError as error:
            _say(f"{error.message} {error.hint}".strip())


async def why_nobody_answers(session: Session, arguments: Arguments, settings: Settings) -> str:
    """Why the prompt cannot be answered, and what to set; empty if it can.

    The offline model answers only if it was chosen, or has answered in this conversation before.
    """
    profile = session.agent.profile
    catalogue = catalogue_of(settings)
    missing = catalogue.missing_key(profile.name)
    if missing is not None:
        return f"{profile.name} needs a key: set {missing}, or choose another model with --model."
    unchosen = not settings.model.id and profile.provider == OFFLINE
    if not unchosen or (_is_command(arguments) and await own_prompt(session.agent, arguments.prompt or "") is None):
        return ""
    if session.resumed:
        _say("The offline model continues this conversation; --model chooses another.")
        return ""
    return f"No API key is set. {await ways_to_a_model(settings)} or the built-in demonstration (offline) with --model."


async def ways_to_a_model(settings: Settings) -> str:
    """What to set, save or choose so that a real model answers: the beginning of a sentence."""
    pulled = await asyncio.to_thread(pulled_models, settings.ollama.host)
    local = f"ollama:{pulled[0]}, which is on this machine," if pulled else "a model of Ollama (ollama:NAME)"
    keys = [each.key for each in catalogue_of(settings).with_keys() if default_model(settings, each.id)]
    return f"Set {' or '.join(keys)}, save one in the system's keyring with /key in the app, or choose {local}"


async def _learn_of_servers(session: Session) -> None:
    """Wait until the tools of all MCP servers are known: there is no later turn in which they could be used."""
    servers = session.offered.servers
    await servers.learn()
    for status in servers.statuses():
        if status.standing == "failed":
            _say(status.error)


async def _answered(
    session: Session, arguments: Arguments, schema: ResultSchema | None, began: float, ready: Callable[[], None]
) -> int:
    """Run the prompt or command, print the result, and return the exit code."""
    outcome = RunReport(session.agent.tracker)
    as_command = _is_command(arguments)
    if as_command and (prompt := await own_prompt(session.agent, arguments.prompt or "")) is not None:
        as_command = False
        arguments = await _expanded(session, arguments, prompt, outcome)
    if as_command:
        ready()
        await _command(session, arguments, outcome)
    elif outcome.failure is None:
        loading = asyncio.ensure_future(session.agent.connect())
        loading.add_done_callback(lambda _: ready())
        await _turns(session, arguments, schema, outcome)
    if outcome.failure is None and outcome.finished is not None and (cut := CUT_OFF.get(outcome.finished.stop_reason)):
        outcome.fail(outcome.finished.stop_reason, cut)
    if arguments.output_format != "text":
        duration_ms = int(1000 * (time.monotonic() - began))
        _print_json(outcome.as_json(session.id, session.agent.context_stats(), duration_ms))
    elif text := printable(outcome.structured) if schema is not None else clean(outcome.text):
        _print(text)
    _say_what_is_missing(outcome)
    return outcome.exit_code


def _is_command(arguments: Arguments) -> bool:
    prompt = arguments.prompt or ""
    return is_command(prompt) and not prompt[:1].isspace()


async def _expanded(session: Session, arguments: Arguments, prompt: OwnPrompt, outcome: RunReport) -> Arguments:
    """The arguments with the expanded command as the prompt; a failure is recorded in `outcome`."""
    typed = (arguments.prompt or "").strip()
    try:
        text = await session.agent.own_commands.expand(prompt, typed.partition(" ")[2].strip())
        return arguments._replace(prompt=text, typed=typed)
    except NobodyToAsk as refusal:
        outcome.failure = unanswered(refusal)
    except ToolFailure as failure:
        outcome.fail("command", f"/{prompt.name}: {failure}")
    return arguments


async def _turns(session: Session, arguments: Arguments, schema: ResultSchema | None, outcome: RunReport) -> None:
    """Run the turn, and another one to correct the result if it is not valid under the schema."""
    _on_signals(session.agent.interrupt)
    if arguments.output_format == "stream-json":
        begun = {"type": "session", "session_id": session.id, "model": session.agent.profile.name}
        _print_json(_stamped(msgspec.json.encode(begun)))
    prompt = arguments.prompt or ""
    images = await mentioned_images(session, prompt, arguments.folder)
    words, typed = with_data(prompt, arguments.data), arguments.typed or prompt
    if arguments.data:
        typed += " [with standard input]"
    if schema is None:
        await _turn(session, arguments, outcome, words, images, typed)
        return
    outgoing = f"{words}\n\n{schema.instruction()}"
    problems: tuple[str, ...] = ()
    for _ in range(1 + REPAIRS):
        await _turn(session, arguments, outcome, outgoing, images, typed)
        if not outcome.ended_well:
            return
        outcome.structured, problems = schema.find(outcome.text)
        if not problems:
            return
        await session.agent.turns.tell_model(schema.repair(problems))
        outgoing, images, typed = "", (), ""
    outcome.fail(
        "invalid_result",
        f"The result is not valid under {arguments.json_schema}: {'; '.join(problems)}.",
        retryable=True,
        hint="The model was told once. Say in the prompt what it gets wrong, or choose a larger model.",
    )


async def _turn(
    session: Session, arguments: Arguments, outcome: RunReport, words: str, images: tuple[Image, ...], typed: str
) -> None:
    streaming = arguments.output_format == "stream-json"
    async with aclosing(session.agent.run(words, images, typed=typed)) as stream:
        async for event in stream:
            match event:
                case events.TurnFailed():
                    outcome.failure = event
                case events.TurnFinished():
                    outcome.add(event)
                case events.Notice() if not streaming:
                    _say(in_a_line(event))
                case events.Retrying() if not streaming:
                    _say(f"{event.sentence}.")
                case events.Alert() if not streaming:
                    _say(f"watchdog: {event.text}")
            if streaming:
                _print_json(_stamped(events.encode(event)))


async def mentioned_images(session: Session, prompt: str, folder: Path) -> tuple[Image, ...]:
    """The pictures that the prompt mentions, by paths in `folder`; says which cannot be sent."""
    named = {name: read for _, name, read in mentioned_pictures(prompt, folder)}
    if not named:
        return ()
    if not session.agent.profile.images:
        _say(f"{session.agent.profile.name} cannot see pictures: only the words are sent.")
        return ()
    found = await asyncio.to_thread(read_pictures, named, session.folder)
    for problem in found.problems:
        _say(f"Not sent as a picture: {problem}")
    if found.smaller:
        _say(f"Sent smaller: {smaller_text(found.smaller)}")
    return found.images


async def _command(session: Session, arguments: Arguments, outcome: RunReport) -> None:
    """Run a slash command instead of a turn."""
    tracker = session.agent.tracker
    tracker.start_turn()
    # The report's figures on the context window need the provider's facts about the model.
    learn = arguments.output_format != "text"
    doing = asyncio.ensure_future(run_command(session.agent, arguments.prompt or "", learn=learn))
    _on_signals(doing.cancel)
    try:
        reply = await doing
    except StorageError as error:
        reply = CommandReply(error.message, error.hint, failed=True)
    except asyncio.CancelledError:
        reply = CommandReply("")
    text = "\n".join(part for part in (reply.title, reply.text) if part)
    if reply.failed:
        outcome.fail("command", text)
    outcome.finished = events.TurnFinished(
        stop_reason="interrupted" if doing.cancelled() else "command",
        text="" if reply.failed else text,
        steps=0,
        usage=tracker.turn.usage,
        cost_usd=tracker.turn.known_cost_usd,
        duration_ms=0,
    )


def _say_what_is_missing(outcome: RunReport) -> None:
    """Say which questions wait for an answer, and what failed."""
    for asked in outcome.questions:
        offered = [f"  {place}. {choice}" for place, choice in enumerate(asked.choices, 1) if asked.kind == "question"]
        if asked.kind != "call":
            _say("\n".join((text_of(asked), *offered)))
    if outcome.failure is not None:
        message, hint = outcome.failure.message, IN_TEXT.get(outcome.failure.kind, outcome.failure.hint)
        _say(f"{sentence(message)} {hint}" if hint and message[-1:].isalnum() else f"{message} {hint}".strip())


def _on_signals(stop: Callable[[], object]) -> None:
    """Stop cleanly, closing the session, on an interrupt or a request to end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)


def _print_json(line: bytes) -> None:
    """Print JSON with control characters escaped, so that it is harmless on a terminal."""
    _print(printable(line.decode()))


def _stamped(encoded: bytes) -> bytes:
    """An event's JSON object with the time at which it is printed."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return encoded[:-1] + f',"timestamp":"{now}"}}'.encode()


def _print(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def in_a_line(notice: events.Notice) -> str:
    """A notice as one sentence or two; what to do stands on a line of its own behind a list."""
    line = ": ".join(filter(None, (notice.title, notice.text or notice.hint)))
    if not notice.text or not notice.hint:
        return line
    if "\n" in notice.text:
        return f"{line}\n{notice.hint}"
    return f"{line}{';' if line[-1].isalnum() else ''} {notice.hint}"


def _say(text: str) -> None:
    sys.stderr.write(f"tui-agent: {clean(text)}\n")
    sys.stderr.flush()
