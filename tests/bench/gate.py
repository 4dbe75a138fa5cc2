"""What the permission gate takes to judge a command line: milliseconds of the slowest, ordinary and hostile."""

import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.report import Figure
from tests.tools.gate.shell_lines import HARMLESS, LINES, RULES
from tests.tools.gate.test_hostile_lines import hostile_tree
from tui_agent.tools.gate.judging import judge
from tui_agent.tools.gate.patterns import matches
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.gate.shell_line import read_line
from tui_agent.tools.gate.workspace import Workspace

TARGET_MS = 20
ROUNDS = 3


def figures() -> list[Figure]:
    """Judging with a folder of 5,000 links among the project's, under sixty rules; each time the line is read anew."""
    with tempfile.TemporaryDirectory() as folder:
        root = hostile_tree(Path(folder).resolve())
        many = root / "many"
        many.mkdir()
        for number in range(5_000):
            (many / f"f{number}").symlink_to("../a.txt")
        workspace = Workspace(root)
        granted = tuple(Rule("run_command", pattern) for pattern in RULES)
        worst = ("cat many/*", "cat " + "many/f*1*2*/x " * 90, "cat " + " ".join(["src/deep/up/x"] * 190))
        judge("git status", granted, workspace)
        plain = [_milliseconds(line, granted, workspace) for line in HARMLESS]
        hostile = [_milliseconds(line, granted, workspace) for line in (*LINES, *worst)]
        began = time.perf_counter()
        matches("*a" * 14 + "b", "a" * 4_000)
        pattern = (time.perf_counter() - began) * 1e3
    return [
        Figure("judging a line that only reads, median", statistics.median(plain), "ms", TARGET_MS),
        Figure("judging a line that only reads, slowest", max(plain), "ms", TARGET_MS),
        Figure(f"judging {len(hostile):,} hostile lines, median", statistics.median(hostile), "ms", TARGET_MS),
        Figure(f"judging {len(hostile):,} hostile lines, slowest", max(hostile), "ms", TARGET_MS),
        Figure("a pattern with 14 stars that does not fit", pattern, "ms", TARGET_MS),
    ]


def _milliseconds(line: str, granted: tuple[Rule, ...], workspace: Workspace) -> float:
    """The best of a few rounds: what the machine does besides is not the gate's."""
    found = []
    for _ in range(ROUNDS):
        read_line.cache_clear()
        began = time.perf_counter()
        judge(line, granted, workspace)
        found.append((time.perf_counter() - began) * 1e3)
    return min(found)
