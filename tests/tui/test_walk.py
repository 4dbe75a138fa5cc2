"""A walk of random keys, pastes, sizes and drags over the real program in a real terminal, questions among them."""

import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

from tests.tui.app.test_terminal_app import Terminal
from tests.tui.terminal.test_terminal_life import gave_back, settings_of, settings_of_a_new_one

KEYS: Final = (
    *"abz/@!?[]jkync:N1234 ", "\r", "\r", "\x1b", "\t", "\x1b[Z", "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H",
    "\x1b[F", "\x1b[5~", "\x1b[6~", "\x7f", "\x1b[3~", "\n", "\x0f", "\x01", "\x05", "\x0b", "\x15", "\x17", "\x10",
    "\x12", "\x1bOP", "\x1bOQ", "\x1f",
)  # fmt: skip
TEXTS: Final = (
    "read hello.txt\r", "run echo out; sleep 0.05; echo more\r", "write made.txt: some text\r", "/help\r", "/context\r",
    "/theme \r", "/compact\r", "/mode ask\r", "/new \r", "/resume\r", "/trust\r", "@hel", "日本語 \u202egnp.exe",
)  # fmt: skip
PATIENCE_S: Final = 300
"""Seconds for which it may still be busy with what was sent before."""
KEPT_BYTES: Final = 500_000
"""Of what was printed, from its beginning and before its end."""
SIZES: Final = ((24, 80), (40, 120), (5, 20), (2, 8), (12, 40), (60, 200))


def walk(terminal: Terminal, chance: random.Random) -> str:
    """One random thing; what it was."""
    match kind := chance.choices(("key", "text", "size", "drag", "paste"), (80, 8, 4, 5, 3))[0]:
        case "key" | "text":
            sent = chance.choice(KEYS if kind == "key" else TEXTS)
            terminal.process.send(sent)
            return repr(sent)
        case "size":
            size = chance.choice(SIZES)
            terminal.process.setwinsize(*size)
            return str(size)
        case "drag":
            (x, y), (to_x, to_y) = ((chance.randrange(1, 80), chance.randrange(1, 24)) for _ in range(2))
            terminal.process.send(f"\x1b[<0;{x};{y}M\x1b[<32;{to_x};{to_y}M\x1b[<0;{to_x};{to_y}m")
            return f"drag {x},{y} to {to_x},{to_y}"
        case _:
            lines = chance.choice((1, 3, 300))
            pasted = "pasted line\n" * lines
            terminal.process.send(f"\x1b[200~{pasted}\x1b[201~")
            return f"paste {lines}"


def go(folder: Path, home: Path, seed: int, steps: int) -> None:
    """So many random things, in another program whenever they have chosen to quit."""
    chance = random.Random(seed)
    done = 0
    while done < steps:
        print(f"seed {seed}, {done} of {steps} steps", flush=True)
        done += _in_one_program(folder, home, chance, steps - done)


def _in_one_program(folder: Path, home: Path, chance: random.Random, steps: int) -> int:
    """How many of the steps were done before it was left, by a choice among them or at their end."""
    own = {"SHELL": "/bin/sh", "EDITOR": "true", "VISUAL": "true"}
    terminal = Terminal(folder, home, "--model", "offline", "--ask", "ask", environment=own)
    done: list[str] = []
    try:
        # The question of trust is answered once.
        terminal.until(lambda: "Trust this project?" in terminal.text or "ready" in terminal.text)
        # What it prints has to go somewhere, or it waits.
        while len(done) < steps and (len(done) % 5 or terminal.read(looks=False)):
            done.append(walk(terminal, chance))
            if len(terminal.raw) > 2 * KEPT_BYTES:
                terminal.raw = terminal.raw[:KEPT_BYTES] + terminal.raw[-KEPT_BYTES:]
        if len(done) == steps:
            terminal.process.send("\x1b[I")
            _leave(terminal)
        assert done
        assert terminal.ends() == 0
        assert gave_back(terminal)
        assert settings_of(terminal)[:4] == settings_of_a_new_one()[:4]
        assert b"stopped by an unexpected error" not in terminal.raw
        assert not (home / "logs").exists()
        return len(done)
    except BaseException:
        print(f"after {len(done)} steps: {' '.join(done[-40:])}\n{terminal.raw[-20_000:]!r}")
        for log in home.glob("logs/*"):
            print(log.read_text())
        raise
    finally:
        terminal.close()


def _leave(terminal: Terminal) -> None:
    """Ctrl+C until it ends: twice, or once more where the first one copied what was marked; and on and on."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        terminal.process.send("\x03")
        if not terminal.read(looks=False):
            return
    raise AssertionError("it does not answer Ctrl+C")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello from the file\n" * 30)
    (folder / "AGENTS.md").write_text("Be brief.\n")
    return folder


def test_random_things_leave_a_live_program_and_a_whole_terminal(folder: Path, tmp_path: Path) -> None:
    go(folder, tmp_path / "home", 7, 120)


@pytest.mark.soak
def test_twenty_thousand_of_them(folder: Path, tmp_path: Path) -> None:
    go(folder, tmp_path / "home", int(os.environ.get("WALK_SEED") or random.SystemRandom().randrange(10**6)), 20_000)
