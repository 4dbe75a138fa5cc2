"""The commands that print a report and end: on sessions, costs, replays, and what is installed."""

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from tui_agent.arguments import ExitCode, UsageError
from tui_agent.invocation import Invocation, user_home
from tui_agent.printing import fitted, is_terminal, print_text, say, write_page
from tui_agent.text import expanded, printable

if TYPE_CHECKING:
    from tui_agent.settings import Settings


def usage(call: Invocation) -> int:
    """What was spent, over days and sessions."""
    from tui_agent.agent.spending import as_json, as_text, spending

    options = call.options
    found = spending(call.home, days=options.days, by=options.by)
    print_text(as_json(found) if options.json else as_text(found))
    return ExitCode.DONE


def servers(call: Invocation) -> int:
    """Add, list and remove MCP servers."""
    from tui_agent.settings.brought import running
    from tui_agent.settings.trust import TrustError, project_root, trust
    from tui_agent.tools.mcp.command_line import BadServer, run_action

    arguments, settings = call.load()
    given, folder, home = call.options, call.folder, call.home
    try:
        print_text(run_action(given.action, given.words, home, project_root(folder), settings, arguments.trusted))
        if arguments.trusted:  # what the user adds themself is no news to them
            trust(folder, home, running(folder))
    except (BadServer, TrustError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    return ExitCode.DONE


def bring(call: Invocation) -> int:
    """Take over what other agents have set up."""
    from tui_agent.reports.bringing import import_report
    from tui_agent.settings import load_settings
    from tui_agent.settings.trust import project_root

    options, home, place = call.options, call.home, user_home()
    if place is None:
        raise UsageError("import: there is no home folder to look in; set HOME")
    settings = load_settings(home, None)  # what the user's own file says, and nothing else
    print_text(import_report(options.agent, place, home, project_root(call.folder), settings, write=options.yes))
    return ExitCode.DONE


def plugins(call: Invocation) -> int:
    """Install, list and remove plugins."""
    from tui_agent.reports.plugins import PluginError, Plugins
    from tui_agent.settings import load_settings

    options, home = call.options, call.home

    def agree(question: str) -> bool:
        if options.yes or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
            return bool(options.yes)
        sys.stdout.write(f"{question} yes or no: ")
        sys.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    settings = load_settings(home, None)  # what the user's own file says, and nothing else
    try:
        Plugins(home, call.folder, settings, print_text, agree).run(options.action, options.words, options.ref)
    except PluginError as error:
        raise UsageError(f"plugin: {error}") from None
    except OSError as error:
        raise UsageError(f"plugin: {error.filename}: {error.strerror}") from None
    return ExitCode.DONE


def sessions(call: Invocation) -> int:
    """List sessions, and take in those of other agents."""
    from tui_agent.reports.sessions import imported, sessions_report

    options, home = call.options, call.home
    if options.action == "import":
        if not options.files:
            raise UsageError("sessions import: name a FILE that another agent recorded")
        for file in options.files:
            print_text(imported(home, call.folder / expanded(file)))
        return ExitCode.DONE
    width = get_terminal_size().columns if is_terminal(sys.stdout) else 0
    print_text(sessions_report(home, as_json=options.json, width=width))
    return ExitCode.DONE


def trace(call: Invocation) -> int:
    """Print the trace of a session, verify it, or send it on."""
    from tui_agent.reports.trace import send_trace, trace_lines, trace_page, verification

    options, home = call.options, call.home
    if options.otlp:
        print_text(send_trace(home, options.session, call.load()[1], call.environ))
        return ExitCode.DONE
    if options.verify:
        text, unchanged = verification(home, options.session)
        print_text(text)
        return ExitCode.DONE if unchanged else ExitCode.FAILED
    if options.html:
        write_page(expanded(options.html), trace_page(home, options.session))
        return ExitCode.DONE
    if options.atif:
        from tui_agent.reports.atif import trajectory

        print_text(trajectory(home, options.session))
        return ExitCode.DONE
    lines = trace_lines(home, options.session, as_json=options.json, kinds=options.kind, follow=options.follow)
    fit = fitted if is_terminal(sys.stdout) and not options.json else printable
    for line in lines:
        sys.stdout.write(f"{fit(line)}\n")
        if options.follow:
            sys.stdout.flush()
    return ExitCode.DONE


def replay(call: Invocation) -> int:
    """What recorded sessions would have cost under other policies."""
    return (_replay_many if _means_many(call.options) else _replay_one)(call.options, call.home, call.load()[1])


def _means_many(options: Namespace) -> bool:
    from tui_agent.storage.log import LOG_NAME

    if not (options.recordings or options.agents):
        raise UsageError("replay: name a SESSION, a folder of sessions, or --from AGENT")
    named = [expanded(each) for each in options.recordings]
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
    print_text(report)
    return ExitCode.DONE


def _replay_many(options: Namespace, home: Path, settings: "Settings") -> int:
    from tui_agent.replay.many import WorkerDied
    from tui_agent.reports import replays

    wanted = replays.ReplayRequest(
        options.recordings, options.agents, options.policy, options.model, options.window, options.shard
    )
    if options.check:
        try:
            report = Path(options.check).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--check: {options.check} cannot be read: {error}") from error
        found = replays.recordings_of(wanted, home)
        leaked = replays.leaks(report, found)
        print_text(
            f"{', '.join(leaked)}: of the sessions" if leaked else f"No word of {len(found):,} sessions is in it."
        )
        return ExitCode.FAILED if leaked else ExitCode.DONE
    results = expanded(options.results) if options.results else home / "replays.jsonl"
    try:
        summary = replays.replay_many(
            wanted, home, settings, results=results, jobs=options.jobs, executor=options.executor
        )
    except (WorkerDied, OSError) as error:
        raise UsageError(str(error)) from error
    if options.html:
        write_page(Path(options.html), replays.as_page(summary))
    if options.plot:
        write_page(Path(options.plot), replays.as_picture(summary))
    print_text(replays.as_json(summary) if options.json else replays.as_text(summary))
    return ExitCode.DONE


def exam(call: Invocation) -> int:
    """Ask a model about a session under each policy."""
    from tui_agent.models.base import UnknownModel
    from tui_agent.replay.command import exam_report
    from tui_agent.replay.exam import ExamStopped

    options, settings = call.options, call.load()[1]

    def agreed(budget: str) -> bool:
        if options.yes:
            say(budget)
            return True
        if not sys.stdin.isatty():
            raise UsageError(f"exam: {budget} Nothing was asked: --yes asks, --dry-run shows the questions.")
        sys.stderr.write(f"{budget} Ask? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().casefold() in ("y", "yes")

    try:
        report = exam_report(
            options.recording,
            call.home,
            settings,
            names=options.policy,
            model=options.model,
            window=options.window,
            most=options.questions,
            agreed=None if options.dry_run else agreed,
            as_json=options.json,
        )
    except UnknownModel as error:
        raise UsageError(str(error)) from error
    except ExamStopped as error:
        say(str(error))
        return ExitCode.FAILED
    print_text(report)
    return ExitCode.DONE


COMMANDS: Final[dict[str, Callable[[Invocation], int]]] = {
    "usage": usage,
    "mcp": servers,
    "import": bring,
    "plugin": plugins,
    "sessions": sessions,
    "trace": trace,
    "replay": replay,
    "exam": exam,
}
"""By the command's name."""
