"""Paths in a prompt: found while they are written, dragged in, and pictures sent with the text."""

import asyncio
import base64
from pathlib import Path
from typing import Final

import pytest

from tui_agent.agent.turn.pictures import MAX_PICTURES
from tui_agent.tools.files.reading import MAX_IMAGE_BYTES
from tui_agent.tui.prompt import file_index
from tui_agent.tui.prompt.file_index import FRESH_S, MAX_FOUND, FileIndex
from tui_agent.tui.prompt.mentions import (
    ProjectFiles,
    as_mention,
    mentioned,
    read_pictures,
)

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_what_is_written_is_read_back() -> None:
    paths = ["a.py", "my dir/b c.md", "x,y.txt"]
    assert mentioned(" and ".join(map(as_mention, paths))) == paths
    assert mentioned("look at @a.py, (@b.py) and me@home.org.") == ["a.py", "b.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("src/main.py", "src/deep/domain.py", "docs/the main page.md", "build/main.o", ".github/main.yml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "src" / "Über uns.md").write_text("x")
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "main").write_text("x")
    (tmp_path / "bad\nname main").write_text("x")
    return tmp_path


async def test_the_best_comes_first_and_what_git_ignores_never(project: Path) -> None:
    index = FileIndex(project)
    found = await index.search("main")
    assert found[:2] == ["src/main.py", ".github/main.yml"]
    assert "docs/the main page.md" in found
    assert "src/deep/domain.py" in found
    assert not any(path.startswith(("build", ".git/", "bad")) for path in found)
    assert (await index.search("srdm"))[0] == "src/deep/domain.py"
    assert (await index.search("SRC"))[0] == "src/"
    assert await index.search("uber") == ["src/Über uns.md"]
    assert await index.search("zzz") == []
    await index.close()


async def test_narrowing_finds_what_a_fresh_search_finds(project: Path) -> None:
    typed, fresh = FileIndex(project), FileIndex(project)
    for end in range(len("main.p") + 1):
        narrowed = await typed.search("main.p"[:end])
    assert narrowed == await fresh.search("main.p")
    assert await typed.search("do") == await fresh.search("do")


async def test_a_new_file_is_found_once_the_listing_is_old(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = FileIndex(project)
    await index.search("")
    (project / "later.txt").write_text("x")
    monkeypatch.setattr("tui_agent.tui.prompt.file_index.FRESH_S", -FRESH_S)
    for _ in range(1_000):
        if "later.txt" in await index.search("later"):
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("the new file was never found")
    await index.close()


async def test_closing_stops_a_listing(project: Path) -> None:
    index = FileIndex(project)
    searching = asyncio.ensure_future(index.search("main"))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await index.close()
        await asyncio.wait([searching])


async def test_a_folder_that_is_gone_offers_nothing(tmp_path: Path) -> None:
    assert await FileIndex(tmp_path / "nowhere").search("a") == []


async def test_many_files_never_hold_up_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_index, "_SLICE", 100)
    for folder in range(10):
        (tmp_path / f"f{folder}").mkdir()
        for file in range(100):
            (tmp_path / f"f{folder}" / f"file_{file}.py").touch()
    index = FileIndex(tmp_path)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    await index.search("")
    other = asyncio.ensure_future(others())
    found = await index.search("f9file_99")
    other.cancel()
    assert found[0] == "f9/file_99.py"
    assert turns >= 1_000 // 100
    assert len(await index.search("py")) == MAX_FOUND


async def test_a_file_is_followed_by_a_blank_and_a_folder_by_its_files(project: Path) -> None:
    files = ProjectFiles(project)
    completion = await files.complete("see @the")
    assert completion is not None
    assert (completion.start, completion.choices[0].insert) == (4, '@"docs/the main page.md" ')
    completion = await files.complete("@doc")
    assert completion is not None
    assert completion.choices[0].insert == "@docs/"
    completion = await files.complete("@docs/")
    assert completion is not None
    assert completion.choices[0].insert == '@"docs/the main page.md" '
    await files.close()


@pytest.mark.parametrize("form", ["{}", "'{}'", "file://{}", " {} "])
def test_a_dragged_picture_becomes_a_mention(form: str, tmp_path: Path) -> None:
    picture = tmp_path / "shot.png"
    files = ProjectFiles(tmp_path)
    assert files.dropped(form.format(picture)) == ""
    picture.write_bytes(PNG)
    assert files.dropped(form.format(picture)) == "@shot.png"
    elsewhere = ProjectFiles(tmp_path / "elsewhere")
    assert elsewhere.dropped(form.format(picture)) == ""
    assert elsewhere.holds_pictures(form.format(picture))


def test_dragged_paths_with_blanks_and_several_of_them(tmp_path: Path) -> None:
    (tmp_path / "my shot.png").write_bytes(PNG)
    (tmp_path / "b.png").write_bytes(PNG)
    escaped = str(tmp_path / "my shot.png").replace(" ", "\\ ")
    files = ProjectFiles(tmp_path)
    for text in (escaped, f"file://{tmp_path}/my%20shot.png", str(tmp_path / "my shot.png")):
        assert files.dropped(text) == '@"my shot.png"'
    for between in (" ", "\n"):
        assert files.dropped(f"{escaped}{between}'{tmp_path}/b.png'") == '@"my shot.png" @b.png'
    for text in ("just words", f"{tmp_path}/b.png and words", "", "'", "file://[.png", "/" * 5_000 + ".png"):
        assert files.dropped(text) == ""
        assert not files.holds_pictures(text)


def test_pictures_are_read_and_what_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "huge.jpg").write_bytes(b"\xff\xd8\xff" + bytes(MAX_IMAGE_BYTES))
    found = read_pictures("@a.png @a.png @text.png @huge.jpg @gone.gif @notes.txt", tmp_path)
    assert [image.media_type for image in found.images] == ["image/png"]
    assert base64.b64decode(found.images[0].data) == PNG
    assert [problem.split(":")[0] for problem in found.problems] == ["text.png", "huge.jpg", "gone.gif"]


def test_not_more_pictures_than_a_message_takes(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(MAX_PICTURES + 2)]
    for name in names:
        (tmp_path / name).write_bytes(PNG)
    found = read_pictures(" ".join(map(as_mention, names)), tmp_path)
    assert len(found.images) == MAX_PICTURES
    assert "only the first" in found.problems[0]
