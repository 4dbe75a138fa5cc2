"""The command line: its flags and commands, and reading them.

What the value of a flag may be is the business of the settings; here it is only taken down.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, get_args

from typing_extensions import override

from tui_agent.arguments import OutputFormat, UsageError
from tui_agent.elsewhere import check_words, unexpected
from tui_agent.version import __version__


class Flag(NamedTuple):
    name: str
    metavar: str | None
    """Name of its value; None: the flag stands alone and means `value`."""
    key: str
    help: str
    value: str = ""
    other_names: tuple[str, ...] = ()


class Parsed(NamedTuple):
    """A command line taken apart; nothing of it is checked against the settings yet."""

    command: str
    """`sessions`, `trace`, `replay`, `exam`, `usage`, `acp`, `doctor`, `config`, or empty: talk to the agent."""
    settings: tuple[tuple[str, str, str], ...]
    """(flag as written, settings key, text) in the order given."""
    options: argparse.Namespace


SETTINGS_FLAGS = (
    Flag(
        "--model",
        "ID",
        "model.id",
        "a name or a part of one (opus, gemini-3.8), offline, or PROVIDER:NAME (openai, ollama, …)",
        other_names=("-m",),
    ),
    Flag("--effort", "LEVEL", "model.effort", "low|medium|high|xhigh|max|default: how much the model thinks"),
    Flag(
        "--wait-for-reset", None, "model.wait_for_reset", "wait for a provider's limit to reset, up to a week", "10080"
    ),
    Flag(
        "--task", "CLASS", "session.task_class", "debug|implement|chat|research|review: defaults for that kind of work"
    ),
    Flag(
        "--small-tier-parent",
        "MODE",
        "safety.small_tier_parent",
        "warn|refuse|allow: what to do if the session's model is a small one",
    ),
    Flag(
        "--context-window",
        "N",
        "context.context_window",
        "the model's window in tokens (0: ask the provider, -1: unknown); stays with the session",
    ),
    Flag("--max-tokens", "N", "context.max_tokens", "output tokens per model call"),
    Flag("--context-preset", "NAME", "context.preset", "layered|digest|summary-only|off"),
    Flag("--no-compact", None, "compaction.auto", "no automatic compaction", "false"),
    Flag("--no-checkpoint", None, "checkpoints.enabled", "no /done and no mark_task_done", "false"),
    Flag("--no-agentic-tools", None, "agentic.enabled", "same as --agentic-tools=false", "false"),
    Flag("--agentic-small-model", "ID", "agentic.small_model", "the model of subtasks"),
    Flag("--max-turns", "N", "agent.max_turns", "stop a turn after this many model calls"),
    Flag("--max-turn-cost-usd", "X", "agent.max_turn_cost_usd", "stop a turn that costs this much"),
    Flag("--max-session-cost-usd", "X", "agent.max_session_cost_usd", "stop a session that costs this much"),
    Flag("--watchdog", "MODE", "watchdog.mode", "warn|off|prompt|auto: what to do if the model is stuck"),
    Flag(
        "--ask",
        "MODE",
        "permissions.mode",
        "plan|ask|auto|allow: what needs your approval",
        other_names=("--mode", "--permission-mode"),
    ),
    Flag("--agentic-tools", "true|false", "agentic.enabled", "offer the agentic_* tools"),
)

LOOPBACK: Final = "127.0.0.1"

OUTPUT_FORMATS: Final[tuple[str, ...]] = get_args(OutputFormat)

_EPILOG = """\
commands: sessions | trace [SESSION] | replay SESSION | exam SESSION | usage | config | doctor
          acp | batch | web | mcp | plugin | import | completion SHELL
          (each has its own --help; `tui-agent -- sessions` sends the word as a prompt)
exit: 0 success, 1 the turn failed, 2 wrong usage or configuration, 3 needs an approval that nobody can give,
      130 interrupted, 141 nobody reads the output"""


_HELP: Final = ("-h", "--help")


def parse(argv: Sequence[str]) -> Parsed:
    """Take apart a command line without the program's name. Raises UsageError; `--help` and `--version` SystemExit.

    A command is one as the first word only; whatever stands after ``--`` is part of the prompt.
    """
    command = argv[0] if argv and argv[0] in PARSERS else ""
    actions = {"mcp": MCP_ACTIONS, "plugin": PLUGIN_ACTIONS}.get(command)
    if actions and len(argv) > 1 and argv[1] not in (*actions, *_HELP):
        command = ""  # a sentence that begins with the word, or a command of other agents
    elif command == "mcp" and argv[2:3] and argv[2] in _HELP:
        argv = [command, argv[2]]  # else it would be what a server is started with
    if command == "import" and len(argv) > 1 and not argv[1].startswith("-"):
        command = ""  # a sentence that begins with the word
    if command:
        options, rest = PARSERS[command]().parse_known_args(argv[1:])
        if rest:
            raise unexpected(rest[0], argv, PARSERS[command]().options)
    else:
        end = argv.index("--") if "--" in argv else len(argv)
        parser = _agent_parser()
        options, rest = parser.parse_known_intermixed_args(argv[:end])
        if rest:
            raise unexpected(rest[0], argv, parser.options)
        first = [options.one_shot] if options.one_shot else []
        options.words = [*first, *options.words, *argv[end + 1 :]]
        if end == len(argv) and options.one_shot is None and options.words:
            check_words(options.words, COMMANDS)
    return Parsed(command, tuple(getattr(options, "settings", ())), options)


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is raised rather than printed below a usage text."""

    @property
    def options(self) -> list[str]:
        """Every option as it is written."""
        return list(self._option_string_actions)

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def _agent_parser() -> _Parser:
    parser = _new_parser("tui-agent", "[PROMPT] | -p PROMPT | COMMAND")
    parser.description = "A coding agent for the terminal that shows what its model sees and can undo every step."
    parser.epilog = _EPILOG
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="sent as soon as the app opens")
    parser.add_argument("--version", action="version", version=f"tui-agent {__version__}")
    _switch(parser, "--demo", "open a recorded session in a temporary folder, to try things; needs no key")
    _switch(parser, "--plain", "a conversation in plain lines, as for screen readers")
    parser.add_argument(
        "--worktree",
        nargs="?",
        const="",
        metavar="NAME",
        help="work in a git worktree and branch of its own, kept at the end if anything changed",
    )
    talk = parser.add_argument_group("one answer on standard output")
    talk.add_argument(
        "-p",
        "--print",
        nargs="?",
        const="",
        dest="one_shot",
        metavar="PROMPT",
        help="run one turn and exit; standard input is added after PROMPT, or is the prompt itself",
    )
    talk.add_argument("--output-format", type=_output_format, metavar="FORMAT", help="|".join(OUTPUT_FORMATS))
    talk.add_argument("--json-schema", metavar="FILE", help="the result must be JSON that matches this schema")
    resume = parser.add_argument_group("an earlier session")
    resume.add_argument(
        "-c", "--continue", action="store_true", dest="continue_last", help="continue the newest session of this folder"
    )
    which = "continue this session, or choose one from a list; ID can be its title, or a session file of another agent"
    resume.add_argument("-r", "--resume", nargs="?", const="", metavar="ID", help=which)
    _switch(resume, "--fork", "continue on a new branch; the existing one stays as it is")
    _add_session_flags(parser)
    return parser


def _add_session_flags(parser: _Parser) -> None:
    _add_settings_flags(parser)
    access = parser.add_argument_group("access")
    _several(access, "--add-dir", "DIR", "treat this folder as part of the project")
    _switch(access, "--yolo", "never ask (--ask allow) and show no guard notices")
    _switch(access, "--trust", "trust this project's own settings and instructions")


def _sessions_parser() -> _Parser:
    parser = _new_parser("tui-agent sessions", "[--json] | import FILE...")
    parser.description = "List the sessions, newest first, or make sessions of what other agents recorded."
    parser.add_argument("action", nargs="?", default="list", choices=("list", "import"), help="default: list")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="import: session files of other agents")
    _switch(parser, "--json", "one JSON object per line")
    return parser


def _trace_parser() -> _Parser:
    parser = _new_parser(
        "tui-agent trace",
        "[SESSION] [--kind KIND]... [--follow] [--json] | [SESSION] --html FILE | [SESSION] --atif | --verify\n"
        "         | [SESSION] --otlp",
    )
    parser.description = "Print the trace of a session, one event per line."
    which = "the session's id, or the beginning of it (default: the newest session of this folder)"
    parser.add_argument("session", nargs="?", default="", metavar="SESSION", help=which)
    _several(parser, "--kind", "KIND", "only events of this kind (default: all)")
    _switch(parser, "--follow", "print new events as they come, until Ctrl+C")
    form = parser.add_mutually_exclusive_group()
    _switch(form, "--json", "complete events, as one JSON object per line")
    _text(form, "--html", "FILE", "write the session as one self-contained page")
    _switch(form, "--atif", "the session as one ATIF trajectory (JSON)")
    _switch(form, "--otlp", "send the session to OpenTelemetry, with its own times (docs/telemetry.md)")
    _switch(form, "--verify", "check that nothing in the trace was changed or removed")
    return parser


def _batch_parser() -> _Parser:
    parser = _new_parser("tui-agent batch", "TASKS.jsonl [--jobs N] [--max-usd USD] [--out FILE] [OPTION]...")
    parser.description = (
        "Do many tasks, each in a git worktree and a session of its own. A line of TASKS is a JSON object with a\n"
        "prompt, and id, folder, ref, model, max_usd, schema. A batch that was stopped goes on where it was."
    )
    parser.add_argument("tasks", metavar="TASKS.jsonl", help="the tasks, one JSON object a line")
    _number(parser, "--jobs", 2, "tasks at a time (default: 2)")
    parser.add_argument("--max-usd", type=float, metavar="USD", help="what all tasks together may cost")
    parser.add_argument("--out", metavar="FILE", help="the results (default: TASKS.results.jsonl)")
    parser.add_argument(
        "--format",
        dest="form",
        default="results",
        choices=("results", "swebench"),
        help="results with answer, patch and cost (default), or predictions for SWE-bench",
    )
    _add_session_flags(parser)
    return parser


def _usage_parser() -> _Parser:
    parser = _new_parser("tui-agent usage", "[--days N] [--by model|tool|server|project|day|command] [--json]")
    parser.description = "Say where the money went in all sessions, with missed caches and what compaction saved."
    _number(parser, "--days", 30, "of the last N days (0: all; default: 30)")
    parser.add_argument(
        "--by",
        default="model",
        choices=("model", "tool", "server", "project", "day", "command"),
        help="what a line is: model (default), tool, server, project, day or command",
    )
    _switch(parser, "--json", "one JSON object")
    return parser


def _replay_parser() -> _Parser:
    parser = _new_parser(
        "tui-agent replay",
        "SESSION... [--from AGENT]... [--policy NAME]... [--model ID]... [--window N]... [--set KEY=VALUE]...\n"
        "         [--json] [--plot FILE.svg] [--html FILE] [--results FILE] [--shard I/N] [--jobs N]\n"
        "         [--executor ADDRESS] [--check FILE]",
    )
    parser.description = (
        "Replay recorded sessions offline under other context policies, and compare what they cost and what stays\n"
        "in view. SESSION: the id or folder of a session, a session file of another agent, JSON Lines\n"
        "(role, text, tool_calls, tool_call_id), or for many a folder or a glob."
    )
    parser.add_argument("recordings", nargs="*", metavar="SESSION", help="the recorded sessions")
    parser.add_argument(
        "--from",
        dest="agents",
        action="append",
        default=[],
        choices=("claude-code", "codex", "gemini-cli", "pi", "tui-agent"),
        metavar="AGENT",
        help="all sessions of claude-code, codex, gemini-cli, pi or tui-agent on this machine",
    )
    _several(parser, "--policy", "NAME", "replay under this policy (default: all)")
    _several(parser, "--model", "ID", "at this model's prices (default: its own)")
    _several(parser, "--window", "N", "input tokens of the model (default: as in the session)", _tokens)
    _add_set(parser, "any setting")
    _switch(parser, "--json", "one JSON object")
    _text(parser, "--plot", "FILE.svg", "plot dollars against what stays verbatim")
    many = parser.add_argument_group("many sessions")
    _text(many, "--html", "FILE", "write the report as a page; it has figures only")
    _text(many, "--results", "FILE", "where results are kept, as JSON Lines")
    many.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N", help="only the Ith of N parts")
    _number(many, "--jobs", 0, "processes (default: one per core)")
    _text(many, "--executor", "ADDRESS", "a cluster instead: dask://HOST:PORT")
    _text(many, "--check", "FILE", "check that no word of the sessions is in this report")
    return parser


def _exam_parser() -> _Parser:
    parser = _new_parser(
        "tui-agent exam",
        "SESSION [--model ID] [--policy NAME]... [--window N] [--questions N] [--dry-run | --yes] [--json]\n"
        "         [--set KEY=VALUE]...",
    )
    parser.description = (
        "Ask a model about a recorded session whose beginning has left the window, under each context policy, and\n"
        "score its answers by rule. What that costs is shown and asked first. SESSION: as for `tui-agent replay`."
    )
    parser.add_argument("recording", metavar="SESSION", help="the recorded session")
    _text(parser, "--model", "ID", "the model that is asked (default: the session's)")
    _several(parser, "--policy", "NAME", "only this policy (default: ours and others')")
    _number(parser, "--window", 0, "input tokens of the model (default: as in the session)")
    _number(parser, "--questions", 20, "questions at most (default: 20)")
    _switch(parser, "--dry-run", "print questions, answers and budget; ask nothing")
    _switch(parser, "--yes", "ask without confirmation")
    _switch(parser, "--json", "one JSON object, with every answer")
    _add_set(parser, "any setting")
    return parser


def _acp_parser() -> _Parser:
    parser = _new_parser("tui-agent acp", "[settings flags]")
    parser.description = "Connect to an editor over standard input and output (Agent Client Protocol; docs/editors.md)."
    _add_session_flags(parser)
    _switch(
        parser,
        "--unattended",
        "for harnesses: ask no person, let calls pass (--ask to change that), stop at $20, run only a named model",
    )
    return parser


def _web_parser() -> _Parser:
    parser = _new_parser("tui-agent web", "[--port N] [--host ADDRESS] [settings flags]")
    parser.description = "Serve the app to a browser on this machine; the address it prints has a token (docs/web.md)."
    _number(parser, "--port", 0, "default: one that is free")
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"what to listen on (default: {LOOPBACK}, this machine alone)",
    )
    _add_session_flags(parser)
    return parser


def _doctor_parser() -> _Parser:
    parser = _new_parser("tui-agent doctor", "")
    parser.description = "Check that everything the program needs is there, and list what is missing."
    return parser


def _config_parser() -> _Parser:
    parser = _new_parser("tui-agent config", "[--json] [settings flags]")
    parser.description = "Print every setting with its effective value and where that comes from."
    _switch(parser, "--json", "one JSON object that maps keys to value and source")
    _add_settings_flags(parser)
    return parser


MCP_ACTIONS: Final = ("add", "add-json", "list", "get", "remove")


def _mcp_parser() -> _Parser:
    parser = _new_parser("tui-agent mcp", "[add|add-json|list|get|remove] [OPTIONS] [NAME] [COMMAND …]")
    parser.description = "Add, list, show and remove MCP servers (docs/mcp.md)."
    parser.epilog = """\
options of add: -s user|project  -t stdio|http  -e NAME=VALUE  -H "NAME: VALUE"
  tui-agent mcp add git uvx mcp-server-git
  tui-agent mcp add -e TOKEN=x tracker -- npx -y tracker-server --verbose
  tui-agent mcp add --transport http docs https://example.org/mcp -H "Authorization: Bearer x\""""
    parser.add_argument("action", nargs="?", default="list", choices=MCP_ACTIONS, help="default: list")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="its options, the server's name and what it runs")
    return parser


def _import_parser() -> _Parser:
    parser = _new_parser("tui-agent import", "--from AGENT [--yes]")
    parser.description = "Take another agent's model, MCP servers and permission rules over (docs/settings.md)."
    parser.add_argument(
        "--from", dest="agent", required=True, choices=("claude-code", "codex", "gemini"), help="whose settings to read"
    )
    _switch(parser, "--yes", "write them to your settings; without it, only show them")
    return parser


PLUGIN_ACTIONS: Final = ("add", "list", "update", "remove")


def _plugin_parser() -> _Parser:
    parser = _new_parser("tui-agent plugin", "[add SOURCE [NAME …] | list | update [NAME …] | remove NAME …] [OPTIONS]")
    parser.description = (
        "Take Claude Code's plugins from a git repository: what each adds, runs and costs is shown before it is on\n"
        "(docs/extending.md). SOURCE: an https, ssh or file address, OWNER/NAME on GitHub, or a folder."
    )
    parser.add_argument("action", nargs="?", default="list", choices=PLUGIN_ACTIONS, help="default: list")
    parser.add_argument("words", nargs="*", metavar="WORD", help="the source, and names of plugins")
    _text(parser, "--ref", "NAME", "add: this branch or tag")
    _switch(parser, "--yes", "do not ask")
    return parser


def _completion_parser() -> _Parser:
    parser = _new_parser("tui-agent completion", "bash|zsh|fish")
    parser.description = "Print the completion for a shell, to be read at its start (docs/commands.md)."
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    return parser


PARSERS = {
    "": _agent_parser,
    "mcp": _mcp_parser,
    "plugin": _plugin_parser,
    "import": _import_parser,
    "sessions": _sessions_parser,
    "trace": _trace_parser,
    "replay": _replay_parser,
    "exam": _exam_parser,
    "batch": _batch_parser,
    "usage": _usage_parser,
    "acp": _acp_parser,
    "web": _web_parser,
    "doctor": _doctor_parser,
    "config": _config_parser,
    "completion": _completion_parser,
}
"""How each command's line is read, by its name; empty: talking to the agent."""
COMMANDS: Final = tuple(filter(None, PARSERS))
"""What is a command as the first word."""


def _new_parser(program: str, usage: str) -> _Parser:
    return _Parser(
        prog=program,
        usage=f"{program} {usage}".rstrip(),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _switch(group: argparse._ActionsContainer, name: str, meaning: str) -> None:
    group.add_argument(name, action="store_true", help=meaning)


def _text(group: argparse._ActionsContainer, name: str, metavar: str, meaning: str) -> None:
    group.add_argument(name, default="", metavar=metavar, help=meaning)


def _number(group: argparse._ActionsContainer, name: str, default: int, meaning: str) -> None:
    group.add_argument(name, type=_tokens, default=default, metavar="N", help=meaning)


def _several(
    group: argparse._ActionsContainer, name: str, metavar: str, meaning: str, kind: Callable[[str], object] = str
) -> None:
    """An option that may be given more than once."""
    group.add_argument(name, action="append", type=kind, default=[], metavar=metavar, help=meaning)


def _add_settings_flags(parser: _Parser) -> None:
    """Flags that set settings; all append to one list, so that of two for one key the later wins."""
    group = parser.add_argument_group("settings")
    for flag in SETTINGS_FLAGS:
        if flag.metavar is None:
            assigned = (flag.name, flag.key, flag.value)
            group.add_argument(flag.name, dest="settings", action="append_const", const=assigned, help=flag.help)
        else:
            group.add_argument(
                flag.name,
                *flag.other_names,
                dest="settings",
                action="append",
                type=partial(_assigned, flag),
                metavar=flag.metavar,
                help=flag.help,
            )
    _add_set(group, "any setting, by its key")


def _add_set(group: argparse._ActionsContainer, meaning: str) -> None:
    group.set_defaults(settings=[])
    group.add_argument(
        "--set", dest="settings", action="append", type=_key_and_value, metavar="KEY=VALUE", help=meaning
    )


def _assigned(flag: Flag, text: str) -> tuple[str, str, str]:
    return flag.name, flag.key, text


def _key_and_value(text: str) -> tuple[str, str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return ("--set", key.strip(), value)


def _shard(text: str) -> tuple[int, int]:
    number, _, shards = text.partition("/")
    if not (number.isdecimal() and shards.isdecimal()) or int(number) > int(shards) or not int(shards):
        raise argparse.ArgumentTypeError(f"expected I/N, such as 2/8, got {text!r}")
    return int(number), int(shards)


def _tokens(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return int(text)


def _output_format(text: str) -> str:
    if text not in OUTPUT_FORMATS:
        raise argparse.ArgumentTypeError(f"expected {'|'.join(OUTPUT_FORMATS)}, got {text!r}")
    return text
