"""Suggestions for slash commands that only other agents have, and for mistyped ones."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

CLOSE_ENOUGH: Final = 0.7
"""The least similarity, from 0 to 1, of a mistyped name and a command; `/settings` must not suggest `/stats`."""

_INSTEAD: Final = {
    "usage billing spend": "/cost says what was spent, /stats by which model",
    "status info about": "/config lists what is set, /context what fills the window",
    "tokens ctx": "/context says what fills the window",
    "settings preferences prefs set options setup": "/config lists every setting",
    "login auth connect signin apikey api-key": "/key enters a key",
    "logout signout": "/key forgets a kept key",
    "doctor": "tui-agent doctor, in your shell, looks for what is missing",
    "diff changes": "!git diff shows what changed; /undo-edits diff what could be put back",
    "copy yank": "a key in the conversation copies: /help names it",
    "plan architect code chat-mode": "/mode plan only reads; /mode lists the others",
    "approvals approve allow deny allowed-tools sandbox": "/permissions lists what may happen unasked, /mode the modes",
    "yolo bypass": "/mode allow asks nothing",
    "search find grep history": "/recall WORD finds whatever was said, in your prompts too",
    "agents agent hooks plugins plugin commands": "/extensions lists what you and the project bring",
    "title": "/rename gives the session another title",
    "session chat chats load continue": "/resume opens another session",
    "reset restart": "/new begins a new session",
    "compress condense": "/compact summarises older turns",
    "branch btw side": "/fork tries another way from here, /tree leads back",
    "redo": "/undo-edits redo changes the files again; /tree leads back to what was said",
    "edit editor vim multiline": "a key writes in your editor, another begins a line: /help names them",
    "save share dump transcript": "/export writes it to a file; the session itself is always kept",
    "add attach image file read-only": "@ names a file, a folder or a picture",
    "drop forget": "/context lists what fills the window; a key there clears a result",
    "add-dir dir": "start with --add-dir DIR",
    "run test lint git commit shell bash exec": "! runs a command: !git status",
    "output-style personality": "/style says how answers are written",
    "bashes tasks ps background bg kill stop": "/jobs lists the commands in the background",
    "remember note notes": "/memory lists the notes; ask for one to be kept",
    "verbose details thinking": "a key opens all cards: /help names it",
}
_BY_NAME: Final = {name: instead for names, instead in _INSTEAD.items() for name in names.split()}


def instead_of(name: str, known: Iterable[str]) -> str:
    """What to type in place of the unknown command `name`: a clause without a full stop. `known`: all commands."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    close = get_close_matches(name, known, n=1, cutoff=CLOSE_ENOUGH)
    return f"did you mean /{close[0]}?" if close else "/help lists the commands"
