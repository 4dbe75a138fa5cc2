"""`python -m tests.bench` measures what has a target and prints both; `--all` adds the policies, which take minutes.

Names choose: `python -m tests.bench pane flood`.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence

from tests.bench.report import Figure, show


def _start() -> list[Figure]:
    from tests.bench.start import figures

    return figures()


def _log() -> list[Figure]:
    from tests.bench.log import figures

    return figures()


def _esc() -> list[Figure]:
    from tests.bench.esc import figures

    return figures()


def _prepare() -> list[Figure]:
    from tests.bench.prepare import figures

    return figures()


def _held() -> list[Figure]:
    from tests.bench.held import figures

    return figures()


def _context_panel() -> list[Figure]:
    from tests.bench.context_panel import figures

    return figures()


def _pane() -> list[Figure]:
    from tests.bench.pane import figures

    return figures()


def _branches() -> list[Figure]:
    from tests.bench.branches import figures

    return figures()


def _flood() -> list[Figure]:
    from tests.bench.flood import figures

    return figures()


def _stream() -> list[Figure]:
    from tests.bench.stream import figures

    return figures()


def _gate() -> list[Figure]:
    from tests.bench.gate import figures

    return figures()


def _sandbox() -> list[Figure]:
    from tests.bench.sandbox import figures

    return figures()


# Each is imported when it is measured: what one of them needs is no weight on another's memory.
PARTS: dict[str, tuple[str, Callable[[], list[Figure]]]] = {
    "start": ("Start, in a pseudo-terminal", _start),
    "esc": ("Esc, and Ctrl+C twice, at every moment", _esc),
    "log": ("A long log", _log),
    "prepare": ("The context engine before a model call", _prepare),
    "pane": ("The conversation pane, CPU per operation", _pane),
    "context_panel": ("The context panel, CPU per operation", _context_panel),
    "held": ("What a key waits for while the context changes", _held),
    "branches": ("Going to another place of the conversation", _branches),
    "gate": ("The permission gate, a command line at a time", _gate),
    "sandbox": ("A command in the sandbox", _sandbox),
    "stream": ("Stream: 20,000 tokens at 500 a second", _stream),
    "flood": ("Flood: 20,000 tokens at 500 a second, beside three commands of 1 MB each", _flood),
}


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
        title, measure = PARTS[name]
        figures = measure()
        show(title, figures)
        missed += [f"{name}: {figure.name}" for figure in figures if figure.target is not None and not figure.met]
    if options.all:
        from tests.bench.policies import show as show_policies

        show_policies()
    print("\nall targets met" if not missed else "\nabove their targets:\n  " + "\n  ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
