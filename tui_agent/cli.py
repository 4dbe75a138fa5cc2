"""The entry point: arguments → settings → a front end.

Nothing slow is imported before it is needed, so that `--help` and `--version` answer at once.
"""

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from tui_agent.arguments import ExitCode, UsageError
from tui_agent.command_line import LOOPBACK, Parsed, parse
from tui_agent.invocation import Invocation, check_combination, check_model
from tui_agent.printing import is_terminal, print_text, say

if TYPE_CHECKING:
    from tui_agent.arguments import Arguments
    from tui_agent.settings import Settings

SWITCH_INTERVAL_S = 0.001
"""Python's thread switch interval while the screen is shown: a working thread delays keys by little more than that."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
"""Errors of writing the output; those of a session's files are `StorageError`s."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed on one line on standard error, without traceback."""
    try:
        code = _run(parse(sys.argv[1:] if argv is None else argv), os.environ)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except OSError:
                if code != ExitCode.INTERRUPTED:
                    raise
                _give_up(stream)  # its terminal is gone
        return code
    except UsageError as error:
        say(str(error))
        return ExitCode.BAD_USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _give_up(sys.stdout)
        return ExitCode.NOBODY_READS
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _give_up(sys.stdout)
            say(f"the output could not be written: {error.strerror}")
            return ExitCode.FAILED
        if os.environ.get("TUI_AGENT_DEBUG") == "1":
            raise
        from tui_agent.printing import in_a_line, write_crash_log

        say(f"stopped by an unexpected error ({in_a_line(error)}); {write_crash_log(error, os.environ)}")
        return ExitCode.FAILED


def _give_up(stream: TextIO) -> None:
    """Discard further output, because its reader is gone: otherwise the interpreter would print an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(parsed: Parsed, environ: Mapping[str, str]) -> int:
    from tui_agent.settings.sources import home_folder, replace_missing_home
    from tui_agent.system.programs import keep_out_of_project

    if (made := replace_missing_home()) is not None and not environ.get("TUI_AGENT_HOME"):
        say(f"you have no home folder: {made} takes its place; TUI_AGENT_HOME names another place for sessions")
    home = home_folder(environ)
    folder = _working_folder()
    keep_out_of_project(folder)
    call, options = Invocation(parsed, folder, home, environ), parsed.options
    match parsed.command:
        case "":
            ended = _talk(call)
            if isinstance(ended, tuple):
                again = [] if "--demo" in ended else call.same_again()
                _start_again(*again, *ended)
            return ended
        case "config":
            from tui_agent.reports.installation import config_report

            print_text(config_report(call.load()[1], as_json=options.json))
            return ExitCode.DONE
        case "doctor":
            from tui_agent.reports.installation import doctor_report

            text, healthy = doctor_report(home, folder, environ)
            print_text(text)
            return ExitCode.DONE if healthy else ExitCode.BAD_USAGE
        case "batch":
            return _batch(call)
        case "completion":
            from tui_agent.completion import SHELLS

            print_text(SHELLS[options.shell]())
            return ExitCode.DONE
        case "acp":
            return _serve(call)
        case "web":
            return _serve_browser(call)
        case _:
            from tui_agent.report_commands import COMMANDS
            from tui_agent.settings.sources import SettingsError
            from tui_agent.storage.errors import StorageError

            try:
                return COMMANDS[parsed.command](call)
            except StorageError as error:
                raise UsageError(f"{error.message} {error.hint}".strip()) from error
            except SettingsError as error:
                raise UsageError(str(error)) from None


def _batch(call: Invocation) -> int:
    from tui_agent.headless import batch

    options, folder = call.options, call.folder
    call.load()  # report unusable settings at once
    tasks = folder / options.tasks
    batch_options = batch.BatchOptions(
        tasks,
        folder / options.out if options.out else tasks.with_name(f"{tasks.stem}.results.jsonl"),
        options.jobs or 1,
        options.max_usd,
        form=options.form,
        words=call.same_again(),
    )
    _keep_private(call.environ)
    return batch.run(batch_options)


def _serve(call: Invocation) -> int:
    def load(place: Path, folders: Sequence[str]) -> "tuple[Arguments, Settings]":
        return call.with_options(add_dir=[*call.options.add_dir, *folders])._replace(folder=place).load()

    load(call.folder, ())  # report unusable settings at once
    _keep_private(call.environ)
    from tui_agent.acp import run

    return run(load)


def _serve_browser(call: Invocation) -> int:
    options = call.options
    call.load()  # report unusable settings at once
    try:
        from tui_agent.web import serve
    except ImportError as error:
        raise UsageError(f"web: {error.name} is missing; install it with: pip install 'tui-agent[web]'") from None

    def tell(address: str) -> None:
        print_text(f"{address}\nOpen it in a browser; each tab is a session of its own. Ctrl+C ends them all.")
        if options.host != LOOPBACK:
            say("whoever can read the network reads the address and all you type: this is not encrypted")

    try:
        serve(call.same_again(), f"tui-agent {call.folder.name}", options.host, options.port, tell)
    except OSError as error:
        raise UsageError(f"web: {options.host}:{options.port} cannot be used: {error.strerror or error}") from error
    return ExitCode.DONE


def _start_again(*arguments: str) -> NoReturn:
    """Become the program with these arguments."""
    # -P: a module of this name in the folder at hand is not ours. Of the variables Python's copy is passed on: in the
    # process's own, keys are wiped by now.
    os.execve(sys.executable, [sys.executable, "-P", "-m", "tui_agent", *arguments], os.environ)  # noqa: S606 (this program)


def _keep_private(environ: Mapping[str, str]) -> None:
    if environ.get("TUI_AGENT_DEBUG") != "1":  # a debugger must be able to attach
        from tui_agent.system.process import keep_private
        from tui_agent.tools.environment import is_secret

        keep_private(is_secret)


def _talk(call: Invocation) -> int | tuple[str, ...]:
    """Talk in the form asked for; returns the exit code, or the arguments to start the program with next."""
    options, environ = call.options, call.environ
    check_combination(call.parsed)
    if options.worktree is not None:
        return _talk_in_worktree(call)
    one_shot, kind = options.one_shot is not None, environ.get("TERM")
    if not one_shot and not (is_terminal(sys.stdin) and (options.plain or is_terminal(sys.stdout))):
        what = "--plain" if options.plain else "the full-screen app"
        raise UsageError(f"{what} needs a terminal; `tui-agent -p PROMPT` answers once without one")
    if not one_shot and (options.plain or kind in ("dumb", "unknown")):
        if not options.plain:
            say(f"a terminal of the type {kind} cannot show the full screen, so this is --plain; TERM sets the type")
        return _talk_plainly(call)
    with ExitStack() as stack:
        ready = stack.enter_context(_collecting_later())
        if one_shot:
            arguments, settings = call.load()
            _keep_private(environ)
            from tui_agent.headless import run as run_once
            from tui_agent.headless.batch import die_with_parent

            arguments = arguments._replace(ledger=die_with_parent(environ))
            return run_once(arguments, settings, ready)
        stack.enter_context(_prompt_keys())
        if options.demo:
            call = _demonstration(call, stack)
        arguments, settings = call.load()
        check_model(arguments, settings)
        from tui_agent.tui.app.start import run as run_app

        return run_app(arguments, settings, before_opening=lambda: _keep_private(environ), ready=ready)


def _talk_in_worktree(call: Invocation) -> int | tuple[str, ...]:
    from tui_agent.session_parts import worktree_hooks
    from tui_agent.worktrees import WorktreeError, session_worktree

    arguments, settings = call.load()
    try:
        hooks = worktree_hooks(settings, arguments, say)
        with session_worktree(call.folder, call.options.worktree, settings.worktree.setup, say, hooks) as place:
            return _talk(call.with_options(worktree=None)._replace(folder=place))
    except WorktreeError as error:
        raise UsageError(f"worktree: {error}") from None


def _talk_plainly(call: Invocation) -> int:
    if call.options.resume == "" or call.options.demo:
        raise UsageError("--demo and -r without an ID need the full screen; `tui-agent sessions` lists the sessions")
    from tui_agent.headless import plain
    from tui_agent.settings.trust import TrustError

    arguments, settings = call.load()
    try:
        if (arguments.ask_trust or arguments.new_in_project) and plain.ask_trust(arguments, settings):
            arguments, settings = call.load()
    except TrustError as error:
        raise UsageError(str(error)) from None
    check_model(arguments, settings)
    _keep_private(call.environ)
    return plain.run(arguments, settings)


def _demonstration(call: Invocation, stack: ExitStack) -> Invocation:
    """Lay the demonstration out in a temporary folder, which goes with `stack`; what is opened then."""
    import asyncio

    from tui_agent.demo import make_demo
    from tui_agent.storage.errors import StorageError
    from tui_agent.system.temporary import LockedFolder

    try:
        demo = asyncio.run(make_demo(stack.enter_context(LockedFolder("demo-")).files))
    except (OSError, StorageError) as error:
        raise UsageError(f"--demo: its temporary folder cannot be made: {error}") from error
    return call.with_options(resume=demo.session)._replace(folder=demo.project, home=demo.home)


@contextmanager
def _collecting_later() -> Iterator[Callable[[], None]]:
    """Leave garbage alone until what this yields is called, once all modules are loaded; then memory is shared, too.

    While they are loaded there is hardly any garbage, and looking for it would take a tenth of the time to the first
    picture. What is loaded by then stays, so later collections need not scan it.
    """

    def ready() -> None:
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
            from tui_agent.system.process import share_heap

            share_heap()

    gc.disable()
    try:
        yield ready
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def _prompt_keys() -> Iterator[None]:
    """Set up this process so that threads do not make keys wait."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(f"the current folder cannot be used: {error.strerror}") from None
