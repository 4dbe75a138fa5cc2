"""Every state of the screen looks as it did: `make snapshots` renews the pictures in `snapshots/`."""

import os
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.gallery.pages import write_comparison
from tests.gallery.pictures import SNAPSHOTS, difference, screen_text
from tests.gallery.scenes import STATES

NAMES = sorted(name for state in STATES.values() for name in state.names())


def kept(name: str) -> str:
    path = SNAPSHOTS / f"{name}.svg"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def explained(differences: dict[str, str], taken: dict[str, str]) -> str:
    """What differs, and the page that shows each kept picture beside the new one: one for all tests of a run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    page = write_comparison(
        Path(gettempdir()) / f"tui-agent-pictures-{run[:8]}", {name: kept(name) for name in taken}, taken, differences
    )
    parts = [f"{name}:\n{text}" for name, text in differences.items()]
    return "\n\n".join([f"{page} shows the pictures kept and those of now; `make snapshots` keeps the new.", *parts])


@pytest.mark.parametrize("name", STATES)
async def test_state_looks_as_it_did(name: str) -> None:
    taken = {picture.name: picture.svg for picture in await STATES[name].pictures()}
    differences = {picture: text for picture, svg in taken.items() if (text := difference(kept(picture), svg))}
    assert not differences, explained(differences, taken)


def test_each_kept_picture_belongs_to_a_state() -> None:
    assert sorted(path.stem for path in SNAPSHOTS.glob("*.svg")) == NAMES


def test_a_changed_word_and_a_changed_colour_are_differences() -> None:
    svg = kept("conversation-dark-80x24")
    assert difference(svg, svg) == ""
    changed = difference(svg, svg.replace("pytest", "unittest"))
    assert "+● Run unittest" in changed.replace("\xa0", " ").replace("+  ", "+")
    recoloured = svg.replace("fill: #", "fill: #0", 1)
    assert "colours or styles" in difference(svg, recoloured)


def test_what_failed_is_on_one_page_kept_beside_now(tmp_path: Path) -> None:
    for name in ("edit", "search"):
        page = write_comparison(tmp_path, {name: "<svg>old</svg>"}, {name: "<svg>new</svg>"}, {name: "-<old>\n+<new>"})
    text = page.read_text(encoding="utf-8")
    for name in ("edit", "search"):
        assert text.index(f'src="{name}.kept.svg"') < text.index(f'src="{name}.svg"')
        assert text.index("<figcaption>kept") < text.index("<figcaption>now")
        assert (tmp_path / f"{name}.kept.svg").read_text() == "<svg>old</svg>"
    assert "+&lt;new&gt;" in text


def test_the_text_of_a_picture_keeps_its_columns() -> None:
    rows = screen_text(kept("hostile-dark-80x24")).split("\n")
    table = [row for row in rows[:-4] if "│" in row]  # the prompt has a frame
    assert len(table) == 7
    assert len(rows) == 25
    assert {row.index("│") for row in table} == {12}
