"""What a long answer costs the app: 20,000 tokens at 500 a second, and nothing else.

The share of a core is the app's CPU time over the time the tokens would take at that rate, so that it means the same on
a busy machine. `-p` with the same answer tells the provider's SDK and the agent from the screen.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import psutil

from tests.bench.flood import CHARACTERS_PER_TOKEN, LINE, PIECE, TOKENS, TOKENS_PER_S, Watch, answer, started
from tests.bench.report import Figure, show
from tests.e2e.program import Program
from tests.servers.running import in_process
from tests.servers.script import Script, Step, Turn

OPTIONS: Final = ("--model", "claude-opus-5-5", "--max-tokens", "60000")
LONG: Final = "begin"
"""The prompt that gets the long answer."""
SHARE: Final = 15
"""Percent of a core at most."""


def figures(tokens: int = TOKENS) -> list[Figure]:
    """The app's share of a core while it shows the answer, and that of one shot, its start left out."""
    text = answer(tokens * CHARACTERS_PER_TOKEN // LINE)
    delay = PIECE / CHARACTERS_PER_TOKEN / TOKENS_PER_S
    script = Script((Turn((Step(text=text, chunk=PIECE, delay=delay),), when=LONG),))
    with tempfile.TemporaryDirectory() as place, in_process("anthropic", Path(place), script) as server:
        environment = {**server.environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        program = Program.in_folder(Path(place), environment)
        shown = _shown(program)
        answered = _one_shot(program, LONG) - _one_shot(program, "be short")
    seconds = len(text) / CHARACTERS_PER_TOKEN / TOKENS_PER_S
    return [
        Figure("CPU of the app, of one core", 100 * shown / seconds, "%", SHARE),
        Figure("CPU of `-p` with the same answer, its start left out", 100 * answered / seconds, "%"),
    ]


def _shown(program: Program) -> float:
    """CPU seconds that the app takes from the prompt to the end of the answer."""
    watch = Watch(started(program, *OPTIONS))
    watch.until("claude-opus-5-5")
    while watch.read(1.0):
        pass
    process = psutil.Process(watch.child.pid)
    before = sum(process.cpu_times()[:2])
    watch.child.send(f"{LONG}\r")
    watch.until("That is all.", 240)
    took: float = sum(process.cpu_times()[:2]) - before
    watch.child.close(force=True)
    return took


def _one_shot(program: Program, prompt: str) -> float:
    """CPU seconds of `-p` with a prompt."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*program.command, "-p", prompt, *OPTIONS]
    subprocess.run(command, cwd=program.project, env=program.environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    show("Stream: a long answer at 500 tokens a second", figures(int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS))
