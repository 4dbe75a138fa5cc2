"""Completion for shells, written from the parsers of the command line."""

import argparse
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tui_agent.command_line import PARSERS, SETTINGS_FLAGS


class Offered(NamedTuple):
    """An option as it is written, what it does, and the words its value may be (empty: any, or it takes none)."""

    option: str
    help_text: str
    values: tuple[str, ...] = ()


def offered(command: str) -> tuple[Offered, ...]:
    """The options of a command; empty: of the program itself."""
    from tui_agent.settings.keys import settings_by_key

    by_key = settings_by_key()
    keys = {name: flag.key for flag in SETTINGS_FLAGS if flag.metavar for name in (flag.name, *flag.other_names)}
    found = []
    for action in PARSERS[command]()._actions:
        for option in action.option_strings:
            key = keys.get(option)
            values = by_key[key].allowed.choices if key is not None else tuple(map(str, action.choices or ()))
            if not values and action.type is not None and re.fullmatch(r"[\w-]+(\|[\w-]+)+", action.help or ""):
                values = tuple((action.help or "").split("|"))
            help_text = "" if action.help is argparse.SUPPRESS else " ".join((action.help or "").split())
            found.append(Offered(option, help_text, values))
    return tuple(found)


def words(command: str) -> tuple[str, ...]:
    """The words that can follow a command, or begin the line."""
    if not command:
        return tuple(filter(None, PARSERS))
    positional = (action for action in PARSERS[command]()._actions if not action.option_strings and action.choices)
    return tuple(str(choice) for action in positional for choice in action.choices or ())


def _bash() -> str:
    every = {command: (*words(command), *(each.option for each in offered(command))) for command in PARSERS}
    order = (*filter(None, PARSERS), "")
    cases = [f"    {command or '*'}) words={_quoted(' '.join(every[command]))} ;;" for command in order]
    values = {each.option: each.values for command in PARSERS for each in offered(command) if each.values}
    asked = [f"    {option}) words={_quoted(' '.join(of))} ;;" for option, of in sorted(values.items())]
    return "\n".join(
        (
            "_tui_agent() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            '  case "$([ "$COMP_CWORD" -gt 1 ] && echo "${COMP_WORDS[1]}")" in',
            *cases,
            "  esac",
            '  case "$before" in',
            *asked,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            '  if [ ${#COMPREPLY[@]} -eq 0 ]; then COMPREPLY=($(compgen -f -- "$current")); fi',
            "}",
            "complete -o filenames -F _tui_agent tui-agent",
        )
    )


def _zsh() -> str:
    return "\n".join(
        (
            "#compdef tui-agent",
            "(( $+functions[compdef] )) || { autoload -U compinit && compinit }",
            "autoload -U +X bashcompinit && bashcompinit",
            _bash(),
            # As a file in a folder of $fpath this runs at the first completion, which it has to answer.
            "if [[ $funcstack[1] == _tui-agent ]]; then _bash_complete -o filenames -F _tui_agent; fi",
        )
    )


def _fish() -> str:
    lines = ["complete -c tui-agent -f -n __fish_use_subcommand -a " + _quoted(" ".join(words("")))]
    for command in PARSERS:
        when = f"__fish_seen_subcommand_from {command}" if command else "__fish_use_subcommand"
        begin = f"complete -c tui-agent -n {_quoted(when)}"
        if command and words(command):
            lines.append(f"{begin} -a {_quoted(' '.join(words(command)))}")
        for each in offered(command):
            kind = "-l" if each.option.startswith("--") else "-s"
            of = f" -x -a {_quoted(' '.join(each.values))}" if each.values else ""
            lines.append(f"{begin} {kind} {each.option.lstrip('-')} -d {_quoted(each.help_text)}{of}")
    return "\n".join(lines)


SHELLS: Final[Mapping[str, Callable[[], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""How the completion for each shell is written."""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
