"""The entry point: arguments → settings → a front end.

Nothing slow is imported before it is needed, so that `--help` and `--version` answer at once.
"""

import errno
import gc
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final, TextIO

from tui_agent.arguments import LOOPBACK, Arguments, ExitCode, Parsed, UsageError, parse
from tui_agent.text import printable

if TYPE_CHECKING:
    from tui_agent.arguments import Arguments
    from tui_agent.settings import Override, Settings

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
        _say(str(error))
        return ExitCode.BAD_USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _give_up(sys.stdout)
        return ExitCode.NOBODY_READS
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _give_up(sys.stdout)
            _say(f"the output could not be written: {error.strerror}")
            return ExitCode.FAILED
        if os.environ.get("TUI_AGENT_DEBUG") == "1":
            raise
        from tui_agent.crash_log import in_a_line, write_crash_log

        _say(f"stopped by an unexpected error ({in_a_line(error)}); {write_crash_log(error, os.environ)}")
        return ExitCode.FAILED


def _give_up(stream: TextIO) -> None:
    """Discard further output, because its reader is gone: otherwise the interpreter would print an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(parsed: Parsed, environ: Mapping[str, str]) -> int:
    from tui_agent.programs import keep_out_of_project
    from tui_agent.settings.sources import home_folder, replace_missing_home

    if (made := replace_missing_home()) is not None and not environ.get("TUI_AGENT_HOME"):
        _say(f"you have no home folder: {made} takes its place; TUI_AGENT_HOME names another place for sessions")
    home = home_folder(environ)
    folder = _working_folder()
    keep_out_of_project(folder)
    options = parsed.options
    match parsed.command:
        case "":
            ended = _talk(parsed, folder, home, environ)
            if isinstance(ended, tuple):
                again = [] if "--demo" in ended else _same_again(parsed)
                # -P: a module of this name in the folder at hand is not ours.
                os.execv(sys.executable, [sys.executable, "-P", "-m", "tui_agent", *again, *ended])  # noqa: S606 (this program)
            return ended
        case "config":
            from tui_agent.reports.installation import config_report

            settings = _load(parsed, folder, home, environ)[1]
            _print(config_report(settings, as_json=options.json))
            return ExitCode.DONE
        case "doctor":
            from tui_agent.reports.installation import doctor_report

            text, healthy = doctor_report(home, folder, environ)
            _print(text)
            return ExitCode.DONE if healthy else ExitCode.BAD_USAGE
        case "replay":
            return _replay(parsed, folder, home, environ)
        case "exam":
            return _exam(parsed, folder, home, environ)
        case "batch":
            return _batch(parsed, folder, home, environ)
        case "usage":
            return _usage(options, home)
        case "completion":
            from tui_agent.completion import SHELLS

            _print(SHELLS[options.shell]())
            return ExitCode.DONE
        case "import":
            return _import(parsed, folder, home)
        case "mcp":
            return _servers(parsed, folder, home, environ)
        case "plugin":
            return _plugins(options, folder, home)
        case "acp":
            return _serve(parsed, folder, home, environ)
        case "web":
            return _serve_browser(parsed, folder, home, environ)
        case _:
            return _report_session(parsed, folder, home, environ)


def _usage(options: Namespace, home: Path) -> int:
    from tui_agent.agent.spending import as_json, as_text, spending
    from tui_agent.storage.errors import StorageError

    try:
        found = spending(home, days=options.days, by=options.by)
    except StorageError as error:
        raise UsageError(error.message) from error
    _print(as_json(found) if options.json else as_text(found))
    return ExitCode.DONE


def _servers(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    from tui_agent.settings import SettingsError
    from tui_agent.settings.brought import running
    from tui_agent.settings.trust import TrustError, project_root, trust
    from tui_agent.tools.mcp.command_line import BadServer, run_action

    arguments, settings = _load(parsed, folder, home, environ)
    given = parsed.options
    try:
        _print(run_action(given.action, given.words, home, project_root(folder), settings, arguments.trusted))
        if arguments.trusted:  # what the user adds themself is no news to them
            trust(folder, home, running(folder))
    except (BadServer, SettingsError, TrustError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    return ExitCode.DONE


def _import(parsed: Parsed, folder: Path, home: Path) -> int:
    from tui_agent.reports.bringing import import_report
    from tui_agent.settings import SettingsError, load_settings
    from tui_agent.settings.trust import project_root

    options, user_home = parsed.options, _user_home()
    if user_home is None:
        raise UsageError("import: there is no home folder to look in; set HOME")
    try:
        settings = load_settings(home, None)  # what the user's own file says, and nothing else
        _print(import_report(options.agent, user_home, home, project_root(folder), settings, write=options.yes))
    except SettingsError as error:
        raise UsageError("\n".join(error.problems)) from None
    return ExitCode.DONE


def _plugins(options: Namespace, folder: Path, home: Path) -> int:
    from tui_agent.reports.plugins import PluginError, Plugins
    from tui_agent.settings import SettingsError, load_settings

    def agree(question: str) -> bool:
        if options.yes or not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
            return bool(options.yes)
        sys.stdout.write(f"{question} yes or no: ")
        sys.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    try:
        settings = load_settings(home, None)  # what the user's own file says, and nothing else
        Plugins(home, folder, settings, _print, agree).run(options.action, options.words, options.ref)
    except SettingsError as error:
        raise UsageError("\n".join(error.problems)) from None
    except PluginError as error:
        raise UsageError(f"plugin: {error}") from None
    except OSError as error:
        raise UsageError(f"plugin: {error.filename}: {error.strerror}") from None
    return ExitCode.DONE


def _report_session(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    from tui_agent.reports.sessions import ReportError, imported, sessions_report

    try:
        if parsed.command == "sessions" and parsed.options.action == "import":
            if not parsed.options.files:
                raise UsageError("sessions import: name a FILE that another agent recorded")
            for file in parsed.options.files:
                _print(imported(home, folder / file.expanduser()))
            return ExitCode.DONE
        if parsed.command == "trace":
            if parsed.options.otlp:
                from tui_agent.reports.trace import send_trace

                _print(send_trace(home, parsed.options.session, _load(parsed, folder, home, environ)[1], environ))
                return ExitCode.DONE
            return _trace(parsed.options, home)
        width = get_terminal_size().columns if _is_terminal(sys.stdout) else 0
        _print(sessions_report(home, as_json=parsed.options.json, width=width))
        return ExitCode.DONE
    except ReportError as error:
        raise UsageError(str(error)) from error


def _trace(options: Namespace, home: Path) -> int:
    from tui_agent.reports.trace import trace_lines, trace_page, verification

    if options.verify:
        text, unchanged = verification(home, options.session)
        _print(text)
        return ExitCode.DONE if unchanged else ExitCode.FAILED
    if options.html:
        _write(Path(options.html).expanduser(), trace_page(home, options.session))
        return ExitCode.DONE
    if options.atif:
        from tui_agent.reports.atif import trajectory

        _print(trajectory(home, options.session))
        return ExitCode.DONE
    lines = trace_lines(home, options.session, as_json=options.json, kinds=options.kind, follow=options.follow)
    fit = _fitted if _is_terminal(sys.stdout) and not options.json else printable
    for line in lines:
        sys.stdout.write(f"{fit(line)}\n")
        if options.follow:
            sys.stdout.flush()
    return ExitCode.DONE


def _fitted(line: str) -> str:
    """A line cut to the width of the terminal."""
    from rich.cells import cell_len, set_cell_size

    line, width = printable(line), get_terminal_size().columns
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _write(path: Path, pieces: Iterable[str]) -> None:
    """Write a page atomically. Raises UsageError if the file cannot be written."""
    from tui_agent.durable import write_file

    page = "".join(pieces).encode()
    try:
        write_file(path, page)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    _say(f"written: {path} ({len(page):,} bytes)")


def _replay(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    from tui_agent.storage.recordings.recording import UnreadableRecording

    settings = _load(parsed, folder, home, environ)[1]
    try:
        return (_replay_many if _means_many(parsed.options) else _replay_one)(parsed.options, home, settings)
    except UnreadableRecording as error:
        raise UsageError(str(error)) from error


def _means_many(options: Namespace) -> bool:
    from tui_agent.storage.log import LOG_NAME

    if not (options.recordings or options.agents):
        raise UsageError("replay: name a SESSION, a folder of sessions, or --from AGENT")
    named = [Path(each).expanduser() for each in options.recordings]
    folder = any(path.is_dir() and not (path / LOG_NAME).is_file() for path in named)
    given = (options.agents, options.html, options.results, options.executor, options.check, options.jobs)
    return len(named) != 1 or folder or "*" in options.recordings[0] or any(given) or options.shard != (0, 1)


def _replay_one(options: Namespace, home: Path, settings: "Settings") -> int:
    from tui_agent.replay.command import replay_report

    report = replay_report(
        options.recordings[0],
        home,
        settings,
        names=options.policy,
        models=options.model,
        windows=options.window,
        as_json=options.json,
        picture=options.plot,
    )
    _print(report)
    return ExitCode.DONE


def _replay_many(options: Namespace, home: Path, settings: "Settings") -> int:
    from tui_agent.replay.many import Stopped
    from tui_agent.reports import replays

    wanted = replays.Wanted(
        options.recordings, options.agents, options.policy, options.model, options.window, options.shard
    )
    if options.check:
        try:
            report = Path(options.check).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--check: {options.check} cannot be read: {error}") from error
        found = replays.recordings_of(wanted, home)
        leaked = replays.leaks(report, found)
        _print(f"{', '.join(leaked)}: of the sessions" if leaked else f"No word of {len(found):,} sessions is in it.")
        return ExitCode.FAILED if leaked else ExitCode.DONE
    results = Path(options.results).expanduser() if options.results else home / "replays.jsonl"
    try:
        summary = replays.replay_many(
            wanted, home, settings, results=results, jobs=options.jobs, executor=options.executor
        )
    except (Stopped, OSError) as error:
        raise UsageError(str(error)) from error
    if options.html:
        _write(Path(options.html), replays.as_page(summary))
    if options.plot:
        _write(Path(options.plot), replays.as_picture(summary))
    _print(replays.as_json(summary) if options.json else replays.as_text(summary))
    return ExitCode.DONE


def _exam(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    from tui_agent.models.base import UnknownModel
    from tui_agent.replay.command import exam_report
    from tui_agent.replay.exam import ExamStopped
    from tui_agent.storage.recordings.recording import UnreadableRecording

    options, settings = parsed.options, _load(parsed, folder, home, environ)[1]

    def agreed(budget: str) -> bool:
        if options.yes:
            _say(budget)
            return True
        if not sys.stdin.isatty():
            raise UsageError(f"exam: {budget} Nothing was asked: --yes asks, --dry-run shows the questions.")
        sys.stderr.write(f"{budget} Ask? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().casefold() in ("y", "yes")

    try:
        report = exam_report(
            options.recording,
            home,
            settings,
            names=options.policy,
            model=options.model,
            window=options.window,
            most=options.questions,
            agreed=None if options.dry_run else agreed,
            as_json=options.json,
        )
    except (UnreadableRecording, UnknownModel) as error:
        raise UsageError(str(error)) from error
    except ExamStopped as error:
        _say(str(error))
        return ExitCode.FAILED
    _print(report)
    return ExitCode.DONE


def _batch(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    from tui_agent.headless import batch

    options = parsed.options
    _load(parsed, folder, home, environ)  # report unusable settings at once
    tasks = folder / options.tasks
    batch_options = batch.Options(
        tasks,
        folder / options.out if options.out else tasks.with_name(f"{tasks.stem}.results.jsonl"),
        options.jobs or 1,
        options.max_usd,
        form=options.form,
        words=_same_again(parsed),
    )
    _keep_private(environ)
    return batch.run(batch_options)


def _same_again(parsed: Parsed) -> list[str]:
    """The settings and access flags of this start, for another one."""
    options = parsed.options
    words = [word for _, key, text in parsed.settings for word in ("--set", f"{key}={text}")]
    words += [word for place in options.add_dir for word in ("--add-dir", place)]
    return words + [f"--{name}" for name in ("yolo", "trust") if _flag(options, name)]


def _serve(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    def load(place: Path, folders: Sequence[str]) -> "tuple[Arguments, Settings]":
        given = parsed.options
        options = Namespace(**{**vars(given), "add_dir": [*given.add_dir, *folders]})
        return _load(parsed._replace(options=options), place, home, environ)

    load(folder, ())  # report unusable settings at once
    _keep_private(environ)
    from tui_agent.acp import run

    return run(load)


def _serve_browser(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    options = parsed.options
    _load(parsed, folder, home, environ)  # report unusable settings at once
    try:
        from tui_agent.web import serve
    except ImportError as error:
        raise UsageError(f"web: {error.name} is missing; install it with: pip install 'tui-agent[web]'") from None

    def say(address: str) -> None:
        _print(f"{address}\nOpen it in a browser; each tab is a session of its own. Ctrl+C ends them all.")
        if options.host != LOOPBACK:
            _say("whoever can read the network reads the address and all you type: this is not encrypted")

    try:
        serve(_same_again(parsed), f"tui-agent {folder.name}", options.host, options.port, say)
    except OSError as error:
        raise UsageError(f"web: {options.host}:{options.port} cannot be used: {error.strerror or error}") from error
    return ExitCode.DONE


def _keep_private(environ: Mapping[str, str]) -> None:
    if environ.get("TUI_AGENT_DEBUG") != "1":  # a debugger must be able to attach
        from tui_agent.private_process import keep_private

        keep_private()


def _talk(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int | tuple[str, ...]:
    """Talk in the form asked for; returns the exit code, or the arguments to start the program with next."""
    options = parsed.options
    _check_combination(parsed)
    if options.worktree is not None:
        return _talk_in_worktree(parsed, folder, home, environ)
    one_shot, kind = options.one_shot is not None, environ.get("TERM")
    if not one_shot and not (_is_terminal(sys.stdin) and (options.plain or _is_terminal(sys.stdout))):
        what = "--plain" if options.plain else "the full-screen app"
        raise UsageError(f"{what} needs a terminal; `tui-agent -p PROMPT` answers once without one")
    if not one_shot and (options.plain or kind in ("dumb", "unknown")):
        if not options.plain:
            _say(f"a terminal of the type {kind} cannot show the full screen, so this is --plain; TERM sets the type")
        return _talk_plainly(parsed, folder, home, environ)
    with ExitStack() as stack:
        ready = stack.enter_context(_collecting_later())
        if one_shot:
            arguments, settings = _load(parsed, folder, home, environ)
            _keep_private(environ)
            from tui_agent.headless import run as run_once
            from tui_agent.headless.batch import die_with_parent

            arguments = arguments._replace(ledger=die_with_parent(environ))
            return run_once(arguments, settings, ready)
        stack.enter_context(_prompt_keys())
        if options.demo:
            parsed, folder, home = _demonstration(parsed, stack)
        arguments, settings = _load(parsed, folder, home, environ)
        _check_model(arguments, settings)
        from tui_agent.tui.app.start import run as run_app

        return run_app(arguments, settings, before_opening=lambda: _keep_private(environ), ready=ready)


def _talk_in_worktree(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int | tuple[str, ...]:
    from tui_agent.session import worktree_hooks
    from tui_agent.worktrees import WorktreeError, session_worktree

    arguments, settings = _load(parsed, folder, home, environ)
    options = Namespace(**{**vars(parsed.options), "worktree": None})
    try:
        hooks = worktree_hooks(settings, arguments, _say)
        with session_worktree(folder, parsed.options.worktree, settings.worktree.setup, _say, hooks) as place:
            return _talk(parsed._replace(options=options), place, home, environ)
    except WorktreeError as error:
        raise UsageError(f"worktree: {error}") from None


def _talk_plainly(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> int:
    if parsed.options.resume == "" or parsed.options.demo:
        raise UsageError("--demo and -r without an ID need the full screen; `tui-agent sessions` lists the sessions")
    from tui_agent.headless import plain
    from tui_agent.settings.trust import TrustError

    arguments, settings = _load(parsed, folder, home, environ)
    try:
        if (arguments.ask_trust or arguments.new_in_project) and plain.ask_trust(arguments, settings):
            arguments, settings = _load(parsed, folder, home, environ)
    except TrustError as error:
        raise UsageError(str(error)) from None
    _check_model(arguments, settings)
    _keep_private(environ)
    return plain.run(arguments, settings)


def _demonstration(parsed: Parsed, stack: ExitStack) -> tuple[Parsed, Path, Path]:
    """Lay the demonstration out in a temporary folder, which goes with `stack`; what is opened then."""
    import asyncio

    from tui_agent.demo import make_demo
    from tui_agent.storage.errors import StorageError
    from tui_agent.temporary import LockedFolder

    try:
        demo = asyncio.run(make_demo(stack.enter_context(LockedFolder("demo-")).files))
    except (OSError, StorageError) as error:
        raise UsageError(f"--demo: its temporary folder cannot be made: {error}") from error
    options = Namespace(**{**vars(parsed.options), "resume": demo.session})
    return parsed._replace(options=options), demo.project, demo.home


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
            from tui_agent.heap import share_heap

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


def _check_model(arguments: Arguments, settings: "Settings") -> None:
    """Raises UsageError if a new session would be led by a small model and the settings refuse that."""
    if settings.safety.small_tier_parent != "refuse" or arguments.continue_last or arguments.resume is not None:
        return
    from tui_agent.models.base import ModelError
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.models.choice import SmallTierRefused, check_parent, model_name, tier_table

    try:
        profile = catalogue_of(settings).quick_profile(model_name(settings), tier_table(settings))
        check_parent(settings, profile, yolo=arguments.yolo)
    except SmallTierRefused as refused:
        raise UsageError(f"{refused.message} {refused.hint}") from None
    except ModelError as error:
        raise UsageError(error.message) from None


def _check_combination(parsed: Parsed) -> None:
    options = parsed.options
    if options.plain and options.one_shot is not None:
        raise UsageError("--plain is a conversation, and -p answers once in plain lines already")
    if options.output_format and options.one_shot is None:
        raise UsageError("--output-format needs -p")
    if options.json_schema and options.one_shot is None:
        raise UsageError("--json-schema needs -p")
    if options.continue_last and options.resume is not None:
        raise UsageError("--continue and --resume exclude each other")
    if options.fork and not options.continue_last and options.resume is None:
        raise UsageError("--fork needs --continue or --resume: it starts another branch of a session")
    if options.resume == "" and options.one_shot is not None:
        raise UsageError("--resume needs a session's ID with -p; `tui-agent sessions` lists them")
    if options.demo and (options.one_shot is not None or options.continue_last or options.resume is not None):
        raise UsageError("--demo opens a session of its own, in the full-screen app")
    if options.yolo and any(flag == "--ask" for flag, _, _ in parsed.settings):
        raise UsageError("--yolo and --ask exclude each other")


def _load(parsed: Parsed, folder: Path, home: Path, environ: Mapping[str, str]) -> "tuple[Arguments, Settings]":
    """The arguments for a front end and the effective settings. Raises UsageError with every problem found."""
    from tui_agent.arguments import Arguments
    from tui_agent.settings import SettingsError, load_settings
    from tui_agent.settings.brought import brought, running, standing
    from tui_agent.settings.trust import TrustError, project_root, trust

    options = parsed.options
    overrides = _overrides(parsed, folder)
    project = project_root(folder)
    try:
        trusted, refused, new = standing(project, home)
        lines = running(project) if (says_yes := _flag(options, "trust") and not trusted) else ()
        settings = load_settings(home, project, trusted=trusted or says_yes, environ=environ, overrides=overrides)
        if says_yes:
            trust(project, home, lines)
            trusted, new = True, ()
    except SettingsError as error:
        raise UsageError("\n".join(error.problems)) from None
    except TrustError as error:
        raise UsageError(str(error)) from None
    prompt, data = _prompt(options) if parsed.command == "" else (None, "")
    arguments = Arguments(
        prompt=prompt,
        data=data,
        json_schema=folder / options.json_schema if getattr(options, "json_schema", None) else None,
        output_format=getattr(options, "output_format", None) or "text",
        one_shot=getattr(options, "one_shot", None) is not None,
        folder=folder,
        home=home,
        project=project,
        user_home=_user_home(),
        trusted=trusted,
        ask_trust=not trusted and not refused and bool(brought(folder, settings.context.instruction_files)),
        new_in_project=new,
        continue_last=_flag(options, "continue_last"),
        resume=getattr(options, "resume", None),
        fork=_flag(options, "fork"),
        unattended=_flag(options, "unattended"),
        demo=_flag(options, "demo"),
        yolo=_flag(options, "yolo"),
        overrides=overrides,
    )
    return arguments, settings


def _user_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


UNATTENDED: Final = (("permissions.mode", "allow"), ("agent.max_session_cost_usd", "20"))
"""Settings of `acp --unattended`; other flags win."""


def _overrides(parsed: Parsed, folder: Path) -> "tuple[Override, ...]":
    from tui_agent.settings import Override

    given = [Override(*assigned) for assigned in parsed.settings]
    overrides = [Override("--unattended", *each) for each in UNATTENDED] if _flag(parsed.options, "unattended") else []
    overrides += given
    for name in getattr(parsed.options, "add_dir", []):
        place = (folder / Path(name).expanduser()).resolve()
        if not place.is_dir():
            raise UsageError(f"--add-dir: {name}: not a folder")
        overrides.append(Override("--add-dir", "permissions.folders", (str(place),)))
    if _flag(parsed.options, "yolo"):
        overrides += [
            Override("--yolo", "permissions.mode", "allow"),
            Override("--yolo", "safety.small_tier_parent", "allow"),
            Override("--yolo", "safety.notices", False),
        ]
    return tuple(overrides)


def _prompt(options: Namespace) -> tuple[str | None, str]:
    """The first message and the data after it, from the command line and standard input. Raises UsageError.

    A last word ``-`` means to wait for standard input; alone, that is the prompt.
    """
    words: list[str] = options.words
    if options.one_shot is None:
        return (_valid(" ".join(words), "the prompt") if words else None), ""
    from tui_agent.agent.commands.command import is_command
    from tui_agent.headless.standard_input import read_data, read_prompt

    named = words[-1:] == ["-"]
    given = " ".join(words[:-1] if named else words)
    data = ""
    if not given and (named or not words):
        given = _valid(read_prompt(), "standard input")
    elif not is_command(given):
        data, problem = read_data(wait=named)
        if problem:
            _say(problem)
    if not given.strip():
        raise UsageError("the prompt is empty")
    return _valid(given, "the prompt"), _valid(data, "standard input")


def _valid(text: str, what: str) -> str:
    """`text` with invalid UTF-8 replaced; tells the user if there was any."""
    valid = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if valid != text:
        _say(f"{what} is not valid UTF-8; the invalid bytes were replaced")
    return valid


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(f"the current folder cannot be used: {error.strerror}") from None


def _flag(options: Namespace, name: str) -> bool:
    return bool(getattr(options, name, False))


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())


def _print(text: str) -> None:
    for line in text.split("\n"):
        sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    """Print a line on standard error, with untrusted characters escaped."""
    if sys.stderr is None:
        return
    for line in text.split("\n"):
        sys.stderr.write(f"tui-agent: {printable(line)}\n")
    sys.stderr.flush()
