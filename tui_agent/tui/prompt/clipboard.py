"""Reads a picture from the desktop's clipboard, and writes text to it, through whichever program can."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from tui_agent.system.programs import find_program, with_search_path
from tui_agent.tools.environment import child_environment

TIMEOUT_S: Final = 5.0
"""Seconds until a clipboard program is killed: it asks the program that copied, which may never answer."""

MEDIA: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Media types asked for, in order of preference."""

_MAC: Final = "the clipboard as «class PNGf»"
_MAC_ANSWER: Final = re.compile(rb"\xc2\xabdata PNGf([0-9A-F]+)\xc2\xbb")


class ClipboardProblem(Exception):
    """The clipboard has no picture or cannot be read; the message says why."""


async def clipboard_picture(environ: Mapping[str, str], most: int) -> bytes:
    """The bytes of the picture on the clipboard, cut to `most` + 1 bytes. Raises ClipboardProblem."""
    if environ.get("WAYLAND_DISPLAY") and find_program("wl-paste"):
        return await _offered(("wl-paste", "--list-types"), ("wl-paste", "--no-newline", "--type"), environ, most)
    if environ.get("DISPLAY") and find_program("xclip"):
        read = ("xclip", "-selection", "clipboard", "-o", "-t")
        return await _offered((*read, "TARGETS"), read, environ, most)
    if sys.platform == "darwin":
        return await _on_a_mac(environ, most)
    raise ClipboardProblem(_why_not(environ))


def copied_by_program(text: str, environ: Mapping[str, str]) -> bool:
    """Put a text on the desktop's clipboard; False if no program here can. Takes a moment: call it in a thread."""
    if environ.get("WAYLAND_DISPLAY") and find_program("wl-copy"):
        command: tuple[str, ...] = ("wl-copy",)
    elif environ.get("DISPLAY") and find_program("xclip"):
        command = ("xclip", "-selection", "clipboard", "-i")
    elif sys.platform == "darwin":
        command = ("pbcopy",)
    elif find_spec("pyperclip") is not None:
        # It knows further systems. In a process of its own: it would start programs with this one's whole environment.
        command = (sys.executable, "-I", "-c", "import pyperclip, sys; pyperclip.copy(sys.stdin.read())")
    else:
        return False
    whole, quiet = (find_program(command[0]) or command[0], *command[1:]), subprocess.DEVNULL
    try:
        # These programs stay in the background with the text, so nothing they hold open may be waited for.
        done = subprocess.run(
            whole,
            input=text.encode(),
            stdout=quiet,
            stderr=quiet,
            env=with_search_path(child_environment(environ)),
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


async def _offered(types: tuple[str, ...], read: tuple[str, ...], environ: Mapping[str, str], most: int) -> bytes:
    offered = (await _output(types, environ, most)).decode(errors="replace").split()
    media = next((media for media in MEDIA if media in offered), None)
    data = await _output((*read, media), environ, most) if media is not None else b""
    if not data:
        raise ClipboardProblem("There is no picture on the clipboard")
    return data


async def _on_a_mac(environ: Mapping[str, str], most: int) -> bytes:
    if find_program("pngpaste"):
        data = await _output(("pngpaste", "-"), environ, most)
    else:
        found = _MAC_ANSWER.search(await _output(("osascript", "-e", _MAC), environ, 2 * most + 100))
        data = bytes.fromhex(found[1].decode()) if found else b""
    if not data:
        raise ClipboardProblem("There is no picture on the clipboard")
    return data


async def _output(command: tuple[str, ...], environ: Mapping[str, str], most: int) -> bytes:
    """A program's standard output, cut to `most` + 1 bytes; empty if it fails."""
    try:
        found = find_program(command[0])
        whole = (found or command[0], *command[1:])
        return await asyncio.to_thread(_run, whole, with_search_path(child_environment(environ)), most)
    except OSError as error:
        raise ClipboardProblem(f"{command[0]} cannot be started: {error.strerror}") from error


def _run(command: tuple[str, ...], environ: Mapping[str, str], most: int) -> bytes:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, env=environ) as process:
        overdue = threading.Timer(TIMEOUT_S, process.kill)
        overdue.start()
        try:
            data = process.stdout.read(most + 1) if process.stdout is not None else b""
            if len(data) > most:
                process.kill()
                return data
            if process.wait() == 0:
                return data
        finally:
            overdue.cancel()
    if process.returncode == -signal.SIGKILL:
        raise ClipboardProblem(f"{command[0]} did not answer")
    return b""


def _why_not(environ: Mapping[str, str]) -> str:
    if not environ.get("WAYLAND_DISPLAY") and not environ.get("DISPLAY"):
        return "There is no desktop here whose clipboard could be read: drag the picture here, or paste its path"
    program = "wl-clipboard" if environ.get("WAYLAND_DISPLAY") else "xclip"
    return f"The clipboard cannot be read without {program}: install it, or paste the picture's path"
