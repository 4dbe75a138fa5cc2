"""`python -m tests.gallery` shows every state of the screen; with `--update` it renews `snapshots/` instead."""

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from tests.gallery.pages import write_pages
from tests.gallery.pictures import SNAPSHOTS
from tests.gallery.scenes import STATES
from tests.gallery.states import Picture
from tests.settled import wait_for_what_is_due


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures of all states, or of those named."""
    parser = ArgumentParser(prog="python -m tests.gallery", description=__doc__)
    parser.add_argument("states", nargs="*", metavar="STATE", help=f"one of {', '.join(STATES)}; all without one")
    parser.add_argument("--update", action="store_true", help="renew the pictures in snapshots/")
    parser.add_argument("--folder", type=Path, default=Path("gallery"), help="where the pages go")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.states if name not in STATES]
    if unknown:
        parser.error(f"there is no state {unknown[0]}")
    wait_for_what_is_due()
    pictures = asyncio.run(_taken(options.states or list(STATES)))
    if options.update:
        changed = _renew(pictures, everything=not options.states)
        print(f"snapshots/: {changed} pictures changed")
    else:
        print(write_pages(options.folder, pictures))
    return 0


async def _taken(names: Sequence[str]) -> dict[str, list[Picture]]:
    return {name: await STATES[name].pictures() for name in names}


def _renew(states: dict[str, list[Picture]], *, everything: bool) -> int:
    """Write what differs, and remove what no state makes any more; how many files that were."""
    SNAPSHOTS.mkdir(exist_ok=True)
    wanted = {f"{picture.name}.svg": picture.svg for pictures in states.values() for picture in pictures}
    kept = {path.name: path.read_text(encoding="utf-8") for path in SNAPSHOTS.glob("*.svg")}
    changed = {name: svg for name, svg in wanted.items() if kept.get(name) != svg}
    for name, svg in changed.items():
        (SNAPSHOTS / name).write_text(svg, encoding="utf-8")
    gone = set(kept) - set(wanted) if everything else set()
    for name in gone:
        (SNAPSHOTS / name).unlink()
    return len(changed) + len(gone)


if __name__ == "__main__":
    sys.exit(main())
