"""The pictures as pages for people to look at: SVG files, a PNG page for each state, and an index."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from html import escape
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.gallery.states import Picture

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_RENDER_S: Final = 60
_GAP: Final = 20
_HEADING: Final = 40
_VIEW_BOX: Final = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ margin: 20px; background: #7d7f86; color: #fff; font: 20px sans-serif; }}
h1, h2 {{ margin: 0; height: 40px; }}
div {{ display: flex; gap: 20px; align-items: start; margin-bottom: 20px; }}
img {{ display: block; }}
figure {{ flex: 1; min-width: 0; margin: 0; }}
figure img {{ width: 100%; }}
pre {{ font: 14px monospace; background: #222; padding: 12px; overflow-x: auto; }}
</style>
{body}
</html>
"""


def write_pages(folder: Path, states: dict[str, list[Picture]]) -> str:
    """Write everything below `folder`; what there is to look at now, in one line."""
    folder.mkdir(parents=True, exist_ok=True)
    for pictures in states.values():
        for picture in pictures:
            (folder / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
    (folder / "index.html").write_text(_index(states), encoding="utf-8")
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        return f"{folder / 'index.html'} shows every state; no PNG pages, since there is no Chromium here"
    try:
        for name, pictures in states.items():
            page = _PAGE.format(title=name, body=_state(name, pictures))
            _render(browser, page, folder / f"{name}.png", _size(pictures))
    except (OSError, subprocess.SubprocessError) as error:
        return f"{folder / 'index.html'} shows every state; the PNG pages are not complete: {error}"
    return f"{folder / 'index.html'} shows every state, and there is a PNG page for each"


def write_comparison(folder: Path, kept: dict[str, str], taken: dict[str, str], words: dict[str, str]) -> Path:
    """Add what differs to the page in `folder` that shows each kept picture beside the one taken now; the page.

    `kept`, `taken`, `words` are SVG texts and differences for people, by picture; a picture never kept is empty. Tests
    that run beside each other write to the same folder, and the page shows all that is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, difference in words.items():
        (folder / f"{name}.kept.svg").write_text(kept[name], encoding="utf-8")
        (folder / f"{name}.svg").write_text(taken[name], encoding="utf-8")
        _put(folder / f"{name}.diff", difference)
    page = folder / "index.html"
    body = "".join(_compared(path) for path in sorted(folder.glob("*.diff")))
    _put(page, _PAGE.format(title="Pictures that differ: kept, now", body=body))
    return page


def _compared(diff: Path) -> str:
    pair = "".join(
        f'<figure><figcaption>{word}</figcaption><img src="{diff.stem}{kind}.svg" alt="{word}"></figure>'
        for kind, word in ((".kept", "kept"), ("", "now"))
    )
    return f"<h2>{escape(diff.stem)}</h2><div>{pair}</div><pre>{escape(diff.read_text(encoding='utf-8'))}</pre>"


def _put(path: Path, text: str) -> None:
    """Write a file that another process may be reading."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _index(states: dict[str, list[Picture]]) -> str:
    return _PAGE.format(title="tui-agent", body="".join(_state(name, states[name]) for name in states))


def _state(name: str, pictures: Sequence[Picture]) -> str:
    rows = "".join(f"<div>{''.join(map(_image, row))}</div>" for row in _rows(pictures))
    return f"<h2>{escape(name)}</h2>{rows}"


def _image(picture: Picture) -> str:
    width, height = _measure(picture)
    file = f"{picture.name}.svg"
    return f'<a href="{file}"><img src="{file}" alt="{picture.name}" width="{width}" height="{height}"></a>'


def _rows(pictures: Sequence[Picture]) -> list[list[Picture]]:
    """The sizes side by side, a row for each shade."""
    shades = sorted({picture.name.rsplit("-", 2)[1] for picture in pictures})
    return [[picture for picture in pictures if picture.name.rsplit("-", 2)[1] == shade] for shade in shades]


def _size(pictures: Sequence[Picture]) -> tuple[int, int]:
    """Width and height of a state's page."""
    rows = [[_measure(picture) for picture in row] for row in _rows(pictures)]
    width = max(sum(width + _GAP for width, _ in row) for row in rows)
    return width + _GAP, sum(max(height for _, height in row) + _GAP for row in rows) + _HEADING + 2 * _GAP


def _measure(picture: Picture) -> tuple[int, int]:
    found = _VIEW_BOX.search(picture.svg)
    return (ceil(float(found[1])), ceil(float(found[2]))) if found else (0, 0)


def _render(browser: str, page: str, picture: Path, size: tuple[int, int]) -> None:
    source = picture.with_suffix(".page.html")
    source.write_text(page, encoding="utf-8")
    with TemporaryDirectory(prefix="tui-agent-browser-") as profile:
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={picture.resolve()}",
            source.resolve().as_uri(),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_RENDER_S)
        finally:
            source.unlink()
