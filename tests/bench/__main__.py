"""`python -m tests.bench` measures what has a target and prints both; `--all` adds the policies, which take minutes.

Names choose: `python -m tests.bench pane flood`.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module

from tests.bench.report import Figure, show

PARTS: dict[str, str] = {
    "start": "Start, in a pseudo-terminal",
    "esc": "Esc, and Ctrl+C twice, at every moment",
    "log": "A long log",
    "prepare": "The context engine before a model call",
    "pane": "The conversation pane, CPU per operation",
    "context_panel": "The context panel, CPU per operation",
    "held": "What a key waits for while the context changes",
    "branches": "Going to another place of the conversation",
    "gate": "The permission gate, a command line at a time",
    "sandbox": "A command in the sandbox",
    "stream": "Stream: 20,000 tokens at 500 a second",
    "flood": "Flood: 20,000 tokens at 500 a second, beside three commands of 1 MB each",
}
"""The modules that have `figures`. Each is imported when it is measured: what one needs is no weight on another."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts named, or all of them; 1 when a target is missed."""
    parser = ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all without one")
    parser.add_argument("--all", action="store_true", help="the policies too")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}")
    missed: list[str] = []
    for name in options.parts or PARTS:
        figures: list[Figure] = import_module(f"tests.bench.{name}").figures()
        show(PARTS[name], figures)
        missed += [f"{name}: {figure.name}" for figure in figures if figure.target is not None and not figure.met]
    if options.all:
        from tests.bench.frontier import show as show_policies

        print("\nPolicies, over made sessions")
        show_policies(quick=True)
    print("\nall targets met" if not missed else "\nabove their targets:\n  " + "\n  ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
