import asyncio
import json
import resource
import signal
import stat
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from tests.tools.support import Call, call
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.replacing import replaced
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.threads import Cancellation


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


SHORT = st.text(alphabet="ab \n\té", max_size=4)


@given(st.text(alphabet="ab \n\té", max_size=60), SHORT, SHORT, st.booleans())
def test_replacement_is_exact_or_refused(text: str, old: str, new: str, every: bool) -> None:
    matches = sum(text.startswith(old, place) for place in range(len(text)))
    try:
        result, lines, differed = replaced(text, old, new, every)
    except ToolFailure:
        assert not old or old == new or matches == 0 or (matches > 1 and not every)
        return
    assert bool(matches) is not bool(differed)
    if differed:
        assert "".join(result.split()) == "".join(text.split()).replace(
            "".join(old.split()), "".join(new.split()), 1
        ) or ("".join(text.split()).count("".join(old.split())) > 1)
        return
    assert result == text.replace(old, new)
    assert len(lines) == text.count(old)
    assert lines[0] == text[: text.index(old)].count("\n") + 1
    assert every or matches == 1


@given(st.lists(st.text(alphabet="abé", min_size=1, max_size=5), min_size=3, max_size=9, unique=True), st.data())
def test_line_endings_stay_as_they_were(lines: list[str], data: st.DataObject) -> None:
    text = "".join(f"<{line}>\r\n" for line in lines)
    index = data.draw(st.integers(0, len(lines) - 2))
    old = f"<{lines[index]}>\n<{lines[index + 1]}>"
    result, at, _ = replaced(text, old, "one\ntwo\r\nthree", replace_all=False)
    assert at == [index + 1]
    assert result.count("\n") == result.count("\r\n") == len(lines) + 1
    assert "\r\r" not in result


def test_where_line_ends_are_mixed_those_of_the_place_are_meant() -> None:
    text = "a\r\nb\r\n-\na\r\nb\r\n"
    assert replaced(text, "a\nb", "x\ny", replace_all=True)[0] == "x\r\ny\r\n-\nx\r\ny\r\n"
    assert replaced("a\nb\n-\r\n", "a\nb", "x\ny", replace_all=True)[0] == "x\ny\n-\r\n"
    assert replaced("a\nb\n-\r\n", "b", "x\ny")[0] == "a\nx\ny\n-\r\n"


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("a \nb\nx\na \nb\n", "a\nb", "new"),  # two places
        ("  a\n      b\n  c\n", "a\nb\nc", "new"),  # one indentation would stand for two
        ("a\n", "a\n\nb", "new"),
        ("a b\n", "ab", "new"),
        ("a\nb\n", "a \nb\n", "a\nb\n"),  # what is there already
    ],
)
def test_what_fits_nowhere_or_twice_is_refused(text: str, old: str, new: str) -> None:
    with pytest.raises(ToolFailure, match="Nothing was changed"):
        replaced(text, old, new)


async def test_several_edits_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree")
    edits = [{"old": "one", "new": "1"}, {"old": "1\r\ntwo", "new": "1\r\n2"}]
    missing = [*edits, {"old": "four", "new": "4"}]
    with pytest.raises(ToolFailure, match="Edit 3 of 3: `old` is not in the file"):
        await call(EditFile(), tmp_path, path="a.py", edits=missing)
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\nthree"
    with pytest.raises(ToolFailure, match=r"Edit 1 of 1: .* 3 times"):
        await call(EditFile(), tmp_path, path="a.py", edits=[{"old": "e", "new": "E"}])
    with pytest.raises(ToolFailure, match=r"are given\. Nothing was changed\. Give `edits` alone"):
        await call(EditFile(), tmp_path, path="a.py", new="1", edits=edits)
    output = await call(EditFile(), tmp_path, path="a.py", edits=edits)
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\nthree"
    assert "Replaced 2 occurrences in a.py (lines 1, 1)." in output.text
    assert "-one\n-two\n+1\n+2\n" in output.diff


async def test_an_edit_keeps_encoding_mark_and_mode(tmp_path: Path) -> None:
    for name, data in {
        "bom": b"\xef\xbb\xbfgr\xc3\xbcn\r\n",
        "wide": "grün\r\n".encode("utf-16"),
        "old": "grün\r\n".encode("latin-1"),
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        path.chmod(0o751)
        output = await call(EditFile(), tmp_path, path=name, old="grün", new="blau\nrot")
        assert path.read_bytes() == data.replace(data, _recoded(data, "blau\r\nrot\r\n"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o751
        assert output.text == f"Replaced 1 occurrence in {name} (line 1)."
        assert output.diff.split("\n")[3:] == ["-grün", "+blau", "+rot"]
    assert names(tmp_path) == ["bom", "old", "wide"]


def _recoded(like: bytes, text: str) -> bytes:
    if like.startswith(b"\xef"):
        return b"\xef\xbb\xbf" + text.encode()
    return text.encode("utf-16" if like.startswith(b"\xff\xfe") else "latin-1")


async def test_a_character_the_encoding_lacks_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"gr\xfcn")
    with pytest.raises(ToolFailure, match="latin-1, which has no"):
        await call(EditFile(), tmp_path, path="f", old="gr", new="漢")
    assert (tmp_path / "f").read_bytes() == b"gr\xfcn"


async def test_write_makes_folders_and_says_what_it_did(tmp_path: Path) -> None:
    output = await call(WriteFile(), tmp_path, path="new/deep/f.txt", content="é\nb")
    (tmp_path / "like any other").touch()
    assert (tmp_path / "new/deep/f.txt").stat().st_mode == (tmp_path / "like any other").stat().st_mode
    assert (tmp_path / "new/deep/f.txt").read_text() == "é\nb"
    assert output.text == "Created new/deep/f.txt: 2 lines, 4 bytes."
    output = await call(WriteFile(), tmp_path, path="new/deep/f.txt", content="é\nc\n")
    assert output.text == "Replaced new/deep/f.txt: 2 lines, 5 bytes."
    assert output.diff.split("\n")[2:] == ["@@ -1,2 +1,2 @@", " é", "-b", "\\ No newline at end of file", "+c"]
    rmtree(tmp_path)
    with pytest.raises(ToolFailure, match="There is no folder"):
        await call(WriteFile(), tmp_path, path="new/deep/f.txt", content="")
    assert not await asyncio.to_thread(tmp_path.exists)


async def test_write_goes_through_a_link_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    await call(WriteFile(), tmp_path, path="link", content="new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


async def test_a_write_that_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(ToolFailure, match="f: "):
            await call(WriteFile(), tmp_path, path="f", content="x" * 2_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / "f").read_text() == "old"
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("swapped", ["folder", "file"])
async def test_a_place_swapped_for_a_link_after_the_check_is_not_written(tmp_path: Path, swapped: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "f").write_text("secret")
    workspace = Workspace(root)
    for tool, values in (
        (WriteFile(), {"path": "sub/f", "content": "x"}),
        (EditFile(), {"path": "sub/f", "old": "secret", "new": "x"}),
    ):
        text = json.dumps(values)
        running = Call(workspace, tool.access(text, workspace), tmp_path)
        place = root / "sub" if swapped == "folder" else root / "sub" / "f"
        place.rename(root / "away")
        place.symlink_to(outside if swapped == "folder" else outside / "f")
        with pytest.raises(ToolFailure, match="another place"):
            await tool.run(text, running)
        assert (outside / "f").read_text() == "secret"
        place.unlink()
        (root / "away").rename(place)


async def test_a_cancelled_write_is_whole_or_absent(tmp_path: Path) -> None:
    content = "x" * 3_000_000
    for delay in range(6):
        path = tmp_path / f"f{delay}"
        task = asyncio.ensure_future(call(WriteFile(), tmp_path, path=path.name, content=content))
        for _ in range(delay):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = names(tmp_path)
        await asyncio.sleep(0)
        assert names(tmp_path) == left
        assert not any(name.startswith(".tui-agent") for name in left)
        assert not path.exists() or path.stat().st_size == 3_000_000


async def test_an_edit_never_undoes_what_someone_else_wrote_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one two")
    workspace = Workspace(tmp_path)
    tool, text = EditFile(), '{"path":"f","old":"one","new":"1"}'

    class Meddling(Cancellation):
        """Where a real edit looks whether it was cancelled, someone else writes to the file."""

        @override
        def check(self) -> None:
            (tmp_path / "f").write_text("by someone else")

    with pytest.raises(ToolFailure, match="changed by someone else"):
        tool._do(
            Call(workspace, tool.access(text, workspace), tmp_path), Meddling(), None, path="f", old="one", new="1"
        )
    assert (tmp_path / "f").read_text() == "by someone else"


def test_previews_show_the_diff_and_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    (tmp_path / "bin").write_bytes(b"\0\1")
    workspace = Workspace(tmp_path)
    edit = EditFile().preview('{"path":"f","old":"b","new":"c"}', workspace)
    assert (edit.title, edit.diff) == ("Edit f", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c")
    assert "will not work" in EditFile().preview('{"path":"f","old":"z","new":"c"}', workspace).text
    assert WriteFile().preview('{"path":"g","content":"c"}', workspace).title == "Create g"
    assert "-a\n-b\n+c" in WriteFile().preview('{"path":"f","content":"c\\n"}', workspace).diff
    assert "binary" in WriteFile().preview('{"path":"bin","content":"c"}', workspace).text
    assert "a folder" in WriteFile().preview('{"path":".","content":"c"}', workspace).text
    assert (tmp_path / "f").read_text() == "a\nb\n"


class OpenFile:
    """An editor that has unsaved text of the file `f`."""

    def __init__(self) -> None:
        self.text = "a\nunsaved\n"

    async def unsaved(self, path: Path) -> str | None:
        return self.text if path.name == "f" else None

    async def save(self, path: Path, text: str) -> None:
        assert path.name == "f"
        self.text = text


async def test_what_an_editor_has_not_saved_is_what_is_edited(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("on the disk\n")
    open_file = OpenFile()
    edited = await call(EditFile(open_file), tmp_path, path="f", old="unsaved", new="edited")
    assert (open_file.text, edited.text) == ("a\nedited\n", "Replaced 1 occurrence in f (line 2).")
    written = await call(WriteFile(open_file), tmp_path, path="f", content="b")
    assert (open_file.text, written.text) == ("b", "Replaced f: 1 line, 1 byte.")
    assert "-a\n-edited\n+b" in written.diff
    assert (tmp_path / "f").read_text() == "on the disk\n"
    assert (await call(WriteFile(open_file), tmp_path, path="g", content="")).text == "Created g: 0 lines, 0 bytes."
    # The editor is not asked before the call is allowed, so what would not work on the disk is shown as it is.
    workspace = Workspace(tmp_path)
    for asked, changes in (
        ('{"path":"f","old":"b","new":"c"}', ["-b", "+c"]),
        ('{"path":"f","edits":[{"old":"b","new":"c"},{"old":"d","new":"e"}]}', ["-b", "-d", "+c", "+e"]),
    ):
        preview = EditFile(open_file).preview(asked, workspace)
        assert (preview.title, preview.text) == ("Edit f", "")
        assert [line for line in preview.diff.splitlines()[3:] if line[0] in "+-"] == changes
