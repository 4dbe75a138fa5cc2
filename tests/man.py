"""The manual page, written from the same parsers as `--help`; `python -m tests.test_reference` writes it anew."""

import re

from argparse_manpage.manpage import Manpage

from tui_agent.command_line import PARSERS


def man_page() -> str:
    """The page in troff: the program's own options, then each command's."""
    parts = [_written(""), ".fi\n.SH THE OPTIONS OF EACH COMMAND\n"]
    for command in filter(None, PARSERS):
        told = _written(command).split(".SH SYNOPSIS\n", 1)[1]
        told = re.sub(r"^\.SH (DESCRIPTION|OPTIONS|COMMENTS)\n", ".PP\n", told, flags=re.MULTILINE)
        parts.append(f".SS tui\\-agent {command}\n{re.sub(r'^[.]SH .*$', '.PP', told, flags=re.MULTILINE)}")
    return "".join(parts).replace(".SH COMMENTS\n", ".SH EXIT STATUS AND COMMANDS\n.nf\n", 1)


def _written(command: str) -> str:
    parser = PARSERS[command]()
    text = str(Manpage(parser)).rstrip() + "\n"
    text = text.replace(".SH NAME\ntui\\-agent\n", f".SH NAME\ntui\\-agent \\- {_phrase(str(parser.description))}\n", 1)
    return re.sub(r"^\.TH .*", '.TH TUI\\\\-AGENT 1 "" tui\\\\-agent "User Commands"', text, count=1)


def _phrase(sentence: str) -> str:
    """What `whatis` and `apropos` show of a page: a sentence as a phrase."""
    return sentence.removeprefix("A ").rstrip(".")
