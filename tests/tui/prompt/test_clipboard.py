"""The clipboard's picture, through programs that stand in for the desktop's."""

import sys
from pathlib import Path

import pytest

from tui_agent.tui.prompt.clipboard import ClipboardProblem, clipboard_picture, copied_by_program

PNG = b"\x89PNG\r\n\x1a\n and more"


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "picture").write_bytes(PNG)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "script", "found"),
    [
        ("wl-paste", "--list-types) echo text/plain; echo image/png;; *image/png) cat picture;;", PNG),
        ("xclip", "*TARGETS) echo TARGETS; echo image/jpeg;; *image/jpeg) cat picture;; *) exit 1;;", PNG),
        ("xclip", "*) echo UTF8_STRING;;", None),
    ],
)
async def test_the_desktops_program_is_asked(desk: Path, name: str, script: str, found: bytes | None) -> None:
    program(desk, name, f'cd {desk}; case "$*" in {script} esac')
    display = {"WAYLAND_DISPLAY": "wayland-0"} if name == "wl-paste" else {"DISPLAY": ":0"}
    asked = clipboard_picture({**display, "PATH": f"{desk}:/usr/bin:/bin"}, 1_000)
    if found:
        assert await asked == found
    else:
        with pytest.raises(ClipboardProblem, match="no picture"):
            await asked


async def test_more_than_can_be_sent_is_not_read_to_its_end(desk: Path) -> None:
    program(desk, "xclip", 'case "$*" in *TARGETS) echo image/png;; *) cat /dev/zero;; esac')
    environ = {"DISPLAY": ":0", "PATH": f"{desk}:/usr/bin:/bin"}
    assert len(await clipboard_picture(environ, 1_000)) == 1_001
    program(desk, "xclip", f'case "$*" in *TARGETS) echo image/png;; *) cat {desk}/picture; exit 1;; esac')
    with pytest.raises(ClipboardProblem, match="no picture"):
        await clipboard_picture(environ, len(PNG))


async def test_a_program_that_never_answers(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_agent.tui.prompt.clipboard.TIMEOUT_S", 0.05)
    program(desk, "xclip", "exec sleep 60")
    with pytest.raises(ClipboardProblem, match="did not answer"):
        await clipboard_picture({"DISPLAY": ":0", "PATH": f"{desk}:/usr/bin:/bin"}, 1_000)


@pytest.mark.parametrize(("words", "found"), [("", PNG), ("no picture here", b"")])
async def test_on_a_mac(words: str, found: bytes, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    answer = words or f"«data PNGf{PNG.hex().upper()}»"
    program(desk, "osascript", f"""test "$2" = 'the clipboard as «class PNGf»' && printf '{answer}'""")
    environ = {"PATH": f"{desk}:/usr/bin:/bin"}
    if found:
        assert await clipboard_picture(environ, 1_000) == found
        assert copied_by_program("words", environ) is False
        program(desk, "pbcopy", "cat >/dev/null")
        assert copied_by_program("words", environ)
    else:
        with pytest.raises(ClipboardProblem, match="no picture"):
            await clipboard_picture(environ, 1_000)
    program(desk, "pngpaste", f'test "$1" = - && cat {desk}/picture')
    assert await clipboard_picture(environ, 1_000) == PNG
    program(desk, "pngpaste", "exit 1")
    with pytest.raises(ClipboardProblem, match="no picture"):
        await clipboard_picture(environ, 1_000)


@pytest.mark.skipif("sys.platform == 'darwin'")
@pytest.mark.parametrize(
    ("environ", "says"), [({}, "no desktop"), ({"DISPLAY": ":0"}, "xclip"), ({"WAYLAND_DISPLAY": "w"}, "wl-clipboard")]
)
async def test_why_there_is_none(
    environ: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClipboardProblem, match=says):
        await clipboard_picture(environ, 1_000)


@pytest.mark.parametrize(
    ("name", "environ"), [("wl-copy", {"WAYLAND_DISPLAY": "wayland-0"}), ("xclip", {"DISPLAY": ":0"})]
)
def test_a_text_is_put_on_the_desktops_clipboard(desk: Path, name: str, environ: dict[str, str]) -> None:
    assert not copied_by_program("words", environ)
    program(desk, name, f"cat >{desk}/copied")
    assert copied_by_program("words 漢字", environ)
    assert (desk / "copied").read_text() == "words 漢字"
    program(desk, name, "exit 1")
    assert not copied_by_program("words", environ)
    assert not copied_by_program("words", {})


def test_further_systems_are_left_to_pyperclip_where_it_is_installed(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "other")
    assert not copied_by_program("words", {})
    (desk / "pyperclip.py").touch()
    monkeypatch.syspath_prepend(desk)
    # Stands for Python with that package, which it is asked to use without what lies in this folder.
    program(desk, "python", f'test "$1" = -I && case "$3" in *pyperclip.copy*) cat >{desk}/copied;; *) exit 1;; esac')
    monkeypatch.setattr(sys, "executable", str(desk / "python"))
    assert copied_by_program("words", {"PATH": "/usr/bin:/bin"})
    assert (desk / "copied").read_text() == "words"
