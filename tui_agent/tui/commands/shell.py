"""The shell commands a user runs with ``!``: which kind one is of, and how they are begun, stopped and ended."""

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
"""Programs that draw on the terminal or ask there, whatever follows them."""

TALKING: Final = _names(
    "python python3 ipython bpython node deno bun irb pry lua ghci julia R sqlite3 psql mysql mongosh redis-cli bc "
    "bash sh zsh fish dash ksh"
)
"""Programs that talk with the user where nothing follows them but options to do so."""

TO_TALK: Final = frozenset(("-i", "-q", "-l", "--login", "--interactive"))
GIT_EDITS: Final = frozenset(("-i", "--interactive", "-p", "--patch", "-e", "--edit"))
"""With one of these git asks or opens an editor."""
GIT_PATCHES: Final = frozenset(("add", "checkout", "commit", "rebase", "reset", "restore", "stash", "clean"))
"""Where they mean that; `git log -p` only shows."""


def shell_command(written: str) -> str:
    """The command line of a text that begins with ``!``; empty where it asks for none."""
    text = written.strip()
    return text[1:].strip() if text.startswith(SIGN) else ""


def needs_terminal(command: str) -> bool:
    """Whether a command line is one program that needs the terminal for itself."""
    words = _words(command)
    while words and "=" in words[0]:
        words = words[1:]
    if not words:
        return False
    program, rest = PurePath(words[0]).name, words[1:]
    if program == "git":
        return _git_needs_terminal(rest)
    return program in FULL_SCREEN or (program in TALKING and set(rest) <= TO_TALK)


def only_changes_folder(command: str) -> bool:
    """Whether a command line does nothing but change its own folder, which no later command has."""
    return _words(command)[:1] in (["cd"], ["pushd"], ["popd"])


def _git_needs_terminal(words: list[str]) -> bool:
    if not words or words[0] not in GIT_PATCHES:
        return False
    has_message = any(word.startswith(("-m", "-am", "-F", "-C", "--message", "--file", "--no-edit")) for word in words)
    return (words[0] == "commit" and not has_message) or bool(GIT_EDITS & set(words[1:]))


def _words(command: str) -> list[str]:
    """The words of one plain command; none where the shell has more to do with it than to start that."""
    try:
        words = shlex.split(command)
        parts = list(shlex.shlex(command, punctuation_chars=True))
    except ValueError:
        return []
    has_more = any(set(part) <= set("();<>|&") for part in parts) or "`" in command or "\n" in command
    return [] if has_more else words


class OwnCommands:
    """The commands that run now."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Let this run. It must not raise anything but a cancellation."""
        task = asyncio.create_task(work, name="own command")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Stop all, and wait until what they printed is kept."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
