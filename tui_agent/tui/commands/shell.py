"""The shell commands a user runs with ``!``: which of them need the terminal, and running and stopping them."""

import asyncio
import shlex
from collections.abc import Coroutine
from pathlib import PurePath
from typing import Final

SIGN: Final = "!"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FULL_SCREEN: Final = _names(
    "vi vim nvim view nano pico emacs micro helix hx less more most man info top htop btop atop iotop nvtop watch "
    "mc ranger nnn lf yazi tig lazygit gitui tmux screen ssh telnet ftp sftp gdb lldb pdb ipdb fzf dialog whiptail "
    "ncdu mutt passwd su visudo crontab"
)
"""Programs that always need the terminal."""

INTERPRETERS: Final = _names(
    "python python3 ipython bpython node deno bun irb pry lua ghci julia R sqlite3 psql mysql mongosh redis-cli bc "
    "bash sh zsh fish dash ksh"
)
"""Programs that are interactive if they have no arguments, or only options that ask for it."""

INTERACTIVE_OPTIONS: Final = frozenset(("-i", "-q", "-l", "--login", "--interactive"))
GIT_EDITS: Final = frozenset(("-i", "--interactive", "-p", "--patch", "-e", "--edit"))
"""Options with which git asks questions or opens an editor."""
GIT_PATCHES: Final = frozenset(("add", "checkout", "commit", "rebase", "reset", "restore", "stash", "clean"))
"""The git commands for which `GIT_EDITS` apply; `git log -p`, for one, only prints."""


def shell_command(written: str) -> str:
    """The command line in a text that starts with ``!``; empty if there is none."""
    text = written.strip()
    return text[1:].strip() if text.startswith(SIGN) else ""


def needs_terminal(command: str) -> bool:
    """Whether a command line is a single program that needs the terminal."""
    words = _words(command)
    while words and "=" in words[0]:
        words = words[1:]
    if not words:
        return False
    program, rest = PurePath(words[0]).name, words[1:]
    if program == "git":
        return _git_needs_terminal(rest)
    return program in FULL_SCREEN or (program in INTERPRETERS and set(rest) <= INTERACTIVE_OPTIONS)


def only_changes_folder(command: str) -> bool:
    """Whether a command line only changes the folder, which has no effect on later commands."""
    return _words(command)[:1] in (["cd"], ["pushd"], ["popd"])


def _git_needs_terminal(words: list[str]) -> bool:
    if not words or words[0] not in GIT_PATCHES:
        return False
    has_message = any(word.startswith(("-m", "-am", "-F", "-C", "--message", "--file", "--no-edit")) for word in words)
    return (words[0] == "commit" and not has_message) or bool(GIT_EDITS & set(words[1:]))


def _words(command: str) -> list[str]:
    """The words of a plain command; empty if it uses shell syntax such as pipes."""
    try:
        words = shlex.split(command)
        parts = list(shlex.shlex(command, punctuation_chars=True))
    except ValueError:
        return []
    has_more = any(set(part) <= set("();<>|&") for part in parts) or "`" in command or "\n" in command
    return [] if has_more else words


class UserCommands:
    """The user's commands that are running."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run a command's coroutine. It must not raise anything except on cancellation."""
        task = asyncio.create_task(work, name="own command")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Cancel all, and wait until their output is saved."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
