"""The real command in real terminals: xterm, GNU Screen, kitty and foot, on a virtual display. What they show is judged
by its pixels, and each picture is kept in `gallery/terminals/` for somebody to look at.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from PIL import Image

from tests.e2e.program import ROOT, Program

COLUMNS, ROWS = 100, 36
PICTURES: Final = ROOT / "gallery" / "terminals"
NEEDED: Final = ("Xvfb", "xdotool", "import")
SIZE: Final = f"{COLUMNS}x{ROWS}"
SIXTEEN: Final = ("env", "TERM=xterm", "COLORTERM=", "xterm", "-tn", "xterm", "-b", "0", "+sb", "-g", SIZE)
GREEN_ON_WHITE: Final = 2.1
"""The contrast of xterm's green on white, in which the marks of success are; what is darker can be read."""
PAUSE_S: Final = 0.5

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(any(shutil.which(each) is None for each in NEEDED), reason=f"needs {', '.join(NEEDED)}"),
]


class Display:
    """A screen of its own, with one terminal on it."""

    def __init__(self, folder: Path) -> None:
        self._program = Program.in_folder(folder, {"LIBGL_ALWAYS_SOFTWARE": "1", "XDG_RUNTIME_DIR": str(folder)})
        folder.chmod(0o700)
        reading, writing = os.pipe()
        command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1200x900x24"]
        self._started = [subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)]
        os.close(writing)
        with os.fdopen(reading) as told:
            self._environ = {**self._program.environment, "DISPLAY": f":{told.readline().strip()}"}

    def start(self, *terminal: str, shows: bool = True) -> None:
        """Start a terminal; `shows`: with the program in it."""
        command = [
            *terminal,
            *(self._program.command if shows else ()),
            *(("--model", "offline", "--ask", "ask") if shows else ()),
        ]
        self._started.append(
            subprocess.Popen(
                command,
                cwd=self._program.project,
                env=self._environ,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def typed(self, text: str) -> None:
        self._run("xdotool", "type", "--delay", "30", text)
        self.pressed("Return")

    def pressed(self, key: str) -> None:
        self._run("xdotool", "key", key)

    def picture(self, name: str, *, settles: bool = True) -> Image.Image:
        """What is shown; `settles`: once it does not change any more, which it does while a turn runs."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        before = b""
        for _ in range(40):
            self._run("import", "-window", "root", str(path))
            with Image.open(path) as opened:
                shown = opened.convert("RGB")
            if (shown.tobytes() == before or not settles) and len(shown.getcolors(1 << 20) or ()) > 3:
                break
            before = shown.tobytes()
            time.sleep(PAUSE_S)
        return shown

    def until(self, is_there: Callable[[], bool]) -> None:
        for _ in range(120):
            if is_there():
                return
            time.sleep(0.25)
        raise AssertionError("It did not come.")

    def kept(self, text: str) -> bool:
        """Whether a session has it."""
        return text in self._program.run("sessions").stdout

    def close(self) -> None:
        for process in reversed(self._started):
            with suppress(ProcessLookupError):
                process.terminate()
            process.wait(20)

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=self._environ, check=True, timeout=30, stderr=subprocess.DEVNULL)


@pytest.fixture
def display(tmp_path: Path) -> Iterator[Display]:
    found = Display(tmp_path)
    try:
        yield found
    finally:
        found.close()


def asked(display: Display, name: str) -> tuple[Image.Image, Image.Image]:
    """Pictures of a question about a command, and of the context panel."""
    display.picture(f"{name}-start")
    display.typed("read calc.py")
    display.until(lambda: display.kept("read calc.py"))
    display.pressed("F2")
    panel = display.picture(f"{name}-panel")
    display.pressed("F2")
    display.typed("run git status")
    time.sleep(3)
    return display.picture(f"{name}-question", settles=False), panel


def contrasts(picture: Image.Image) -> dict[tuple[int, int], float]:
    """The cells of an xterm in which something is drawn, each with its contrast."""
    width, height = picture.size
    cell = (6, 13)
    found = {}
    for column, row in product(range(min(COLUMNS, width // cell[0])), range(min(ROWS, height // cell[1]))):
        left, top = column * cell[0] + 1, row * cell[1] + 1
        colors = picture.crop((left, top, left + cell[0], top + cell[1])).getcolors() or []
        if len(colors) > 1:
            shades = sorted(_luminance(color) for _, color in colors if isinstance(color, tuple))
            found[column, row] = (shades[-1] + 0.05) / (shades[0] + 0.05)
    return found


def _luminance(color: Sequence[int]) -> float:
    """By WCAG 2.2."""
    parts = [value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in color]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize(("ground", "ink"), [("white", "black"), ("black", "white")])
def test_all_can_be_read_in_sixteen_colours(ground: str, ink: str, display: Display) -> None:
    display.start(*SIXTEEN, "-bg", ground, "-fg", ink, "-e")
    for picture in asked(display, f"xterm-{ground}"):
        cells = contrasts(picture)
        assert len(cells) > 300
        assert min(cells.values()) > GREEN_ON_WHITE
        # A bar of one colour is text in the colour of its ground.
        for row in range(ROWS):
            line = picture.crop((1, row * 13 + 1, COLUMNS * 6 + 1, row * 13 + 14))
            part = line.crop((20, 0, line.width - 20, 13)).getcolors() or []
            assert len(part) > 1 or part[0][1] == picture.getpixel((COLUMNS * 3, 13 * 12)), row


@pytest.mark.parametrize("terminal", ["screen", "kitty", "foot"])
def test_it_works_in(terminal: str, display: Display) -> None:
    if shutil.which(terminal) is None or (terminal == "foot" and shutil.which("weston") is None):
        pytest.skip(f"{terminal} is not installed")
    if terminal == "screen":
        display.start("xterm", "-g", SIZE, "-e", "screen", "-c", os.devnull)
    elif terminal == "kitty":
        display.start("kitty", "--config", "NONE", "-o", "initial_window_width=1100", "-o", "initial_window_height=800")
    else:
        display.start(
            *("weston", "--backend=x11-backend.so", "--shell=kiosk-shell.so", "--socket=wayland-of-the-test"),
            *("--width=1100", "--height=800"),
            shows=False,
        )
        time.sleep(3)
        display.start("env", "WAYLAND_DISPLAY=wayland-of-the-test", "foot")
        display.picture("foot-start")
        display.pressed("Escape")  # the first key only gives it the focus
    question, panel = asked(display, terminal)
    for picture in (question, panel):
        shades = [_luminance(color) for _, color in picture.getcolors(1 << 20) or () if isinstance(color, tuple)]
        assert (max(shades) + 0.05) / (min(shades) + 0.05) > 7
    assert question.tobytes() != panel.tobytes()
