"""Words of a command line that belong to other agents, or are mistyped: what to write instead.

Sent as a prompt, they would cost money.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tui_agent.arguments import UsageError

ELSEWHERE: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "help": ("`tui-agent --help` lists options and commands, F1 in the app its keys", ()),
    "version": ("`tui-agent --version` prints it", ()),
    "init": ("`/init` in the app writes the instructions of a project", ()),
    "stats": ("`tui-agent usage` adds up all sessions; `/stats` in the app shows those of one", ()),
    "login": ("keys are set as variables, or entered with `/key` in the app", ()),
    "logout": ("`/key` in the app forgets a key", ()),
    "auth": ("keys are set as variables, or entered with `/key` in the app", ("login", "logout", "list", "status")),
    "update": ("update with what installed it, such as `uv tool upgrade tui-agent`", ()),
    "upgrade": ("update with what installed it, such as `uv tool upgrade tui-agent`", ()),
    "resume": ("`tui-agent -r [ID]` continues a session, `-c` the newest of this folder", ()),
    "export": ("`/export` in the app writes a session, `tui-agent trace SESSION` prints it", ()),
    "models": ("`/model` in the app lists the models, `--model NAME` chooses one", ("list",)),
    "exec": ("`tui-agent -p PROMPT` runs one turn", ()),
    "run": ("`tui-agent -p PROMPT` runs one turn", ()),
    "review": ("`/review` in the app has the model review your changes", ()),
    "fork": ("`tui-agent -c --fork` starts another branch of the newest session", ()),
    "apply": ("the model changes the files themselves; `/undo` in the app takes that back", ()),
    "agent": ("`/extensions` in the app lists your agents, and those of the project", ("list", "create")),
    "agents": ("`/extensions` in the app lists your agents, and those of the project", ("list", "create")),
    "extensions": ("`/extensions` in the app lists them, `tui-agent plugin` installs some", ("list", "install")),
    "hooks": ("`/extensions` in the app lists them", ("list",)),
    "skills": ("`/skills` in the app lists them", ("list",)),
    "providers": ("`/key` in the app lists them", ("list", "login")),
    "setup-token": ("keys are set as variables, or entered with `/key` in the app", ()),
    "install": ("`tui-agent plugin add` installs plugins, `tui-agent mcp add` MCP servers", ()),
    "uninstall": ("remove it with what installed it, such as `uv tool uninstall tui-agent`", ()),
    "serve": ("`tui-agent acp` serves editors, `tui-agent web` a browser", ()),
    "mcp": ("`/mcp` in the app does that", ("import", "login", "serve", "enable", "disable")),
    "plugin": ("`tui-agent plugin add SOURCE` installs plugins", ("install", "i", "marketplace")),
}
"""First words that are commands of other agents: where it is here, and the second words that go with it."""

OPTIONS_ELSEWHERE: Final[Mapping[str, str]] = {
    "--dangerously-skip-permissions": "--yolo never asks",
    "--dangerously-bypass-approvals-and-sandbox": "--yolo never asks",
    "--full-auto": "that is the mode auto, the default",
    "--approval-mode": "--ask MODE says what needs your approval",
    "--ask-for-approval": "--ask MODE says what needs your approval",
    "--sandbox": "commands run in a sandbox if the system has one",
    "--cd": "start it in the folder",
    "-C": "start it in the folder",
    "--image": "name the picture in the prompt, as in @picture.png",
    "-i": "name the picture in the prompt, as in @picture.png",
    "--list-sessions": "`tui-agent sessions` lists them",
    "--mcp-config": "`tui-agent mcp add` adds a server",
    "--last": "-c continues the newest session of this folder",
    "--fork-session": "--fork continues on a new branch",
    "--session-id": "-r ID continues a session; `tui-agent sessions` lists them",
    "--prompt": "the prompt is an argument: tui-agent PROMPT",
    "--allowedTools": "--set permissions.allow=RULES says what needs no approval",
    "--allowed-tools": "--set permissions.allow=RULES says what needs no approval",
    "--disallowedTools": "--set permissions.deny=RULES says what is refused",
    "--disallowed-tools": "--set permissions.deny=RULES says what is refused",
    "--append-system-prompt": "AGENTS.md has what the model is told; --set session.style=NAME chooses a style",
    "--system-prompt": "AGENTS.md has what the model is told; --set session.style=NAME chooses a style",
    "--fallback-model": "--set model.fallbacks=MODELS names models that go on",
    "--max-budget-usd": "--max-session-cost-usd X stops a session that costs this much",
    "--json": "that is -p PROMPT --output-format json",
    "--output-schema": "that is -p PROMPT --json-schema FILE",
    "--cwd": "start it in the folder",
    "--dir": "start it in the folder",
    "--include-directories": "--add-dir DIR adds a folder to the project",
    "--no-color": "the variable NO_COLOR leaves colours out",
    "--theme": "--set ui.theme=NAME sets one",
    "--reasoning": "--effort LEVEL says how much the model thinks",
    "--thinking": "--effort LEVEL says how much the model thinks",
    "--profile": "--task CLASS sets what a kind of work needs, --set KEY=VALUE any setting",
    "--oss": "--model ollama:NAME uses a model on this machine",
    "--verbose": "Ctrl+O in the app opens all cards; `tui-agent trace --follow` prints each event",
    "--debug": "the variable TUI_AGENT_DEBUG=1 prints the traceback of an unexpected error",
    "--settings": "--set KEY=VALUE sets one",
}
"""Options of other agents: what does it here."""

_SESSION_ID: Final = re.compile(r"(ses_\w+|[0-9a-f]+(-[0-9a-f]+)+)")
"""The ids of sessions here and of other agents."""

CLOSE_ENOUGH: Final = 0.75
"""How alike a mistyped option and one that there is are, from 0 to 1."""


def check_words(words: Sequence[str], commands: Collection[str]) -> None:
    """Raises UsageError if the words of a prompt are a command of another agent, or one of `commands`, mistyped."""
    word = words[0]
    elsewhere, following = ELSEWHERE.get(word, ("", ()))
    second = words[1] if len(words) > 1 else ""
    # Quoted by itself, what follows is a command's argument and not the rest of a sentence.
    if elsewhere and (not second or second in following or " " in second or _SESSION_ID.fullmatch(second)):
        sentence = " ".join(words)
        called = f"{word} {second}" if second in following else word
        raise UsageError(f"`{called}` is no command here: {elsewhere}. To send it as a prompt: tui-agent -- {sentence}")
    if len(words) == 1:
        from difflib import get_close_matches

        if close := get_close_matches(word, commands, n=1, cutoff=0.8):
            kind = "a command when it is the first word" if close[0] == word else f"close to the command `{close[0]}`"
            raise UsageError(f"{word!r} is {kind}; to send it as a prompt: tui-agent -- {word}")


def unexpected(word: str, argv: Sequence[str], options: Collection[str]) -> UsageError:
    """The error for a word of `argv` that none of the `options` and no argument takes."""
    if not word.startswith("-"):
        from shlex import join

        sentence = join(argv)
        changes = "`/config` in the app changes settings, --set KEY=VALUE one of a run; " * (argv[0] == "config")
        return UsageError(f"unexpected argument {word!r}; {changes}to send it all as a prompt: tui-agent -- {sentence}")
    name = word.split("=", 1)[0]
    if elsewhere := OPTIONS_ELSEWHERE.get(name):
        return UsageError(f"there is no option {name} here: {elsewhere}")
    from difflib import get_close_matches

    close = get_close_matches(name, options, n=2, cutoff=CLOSE_ENOUGH)
    return UsageError(f"unknown option {name}; " + (f"did you mean {' or '.join(close)}?" if close else "see --help"))
