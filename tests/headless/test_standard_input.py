"""Data beside a prompt: how it is set off, and that no standard input holds a run up for good."""

import os
import pty
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.arguments import UsageError
from tui_agent.headless import standard_input
from tui_agent.headless.standard_input import read_data, read_prompt, with_data


@contextmanager
def stdin_from(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with os.fdopen(descriptor, "r") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield


def pipe_with(*pieces: bytes, closed: bool = True) -> tuple[int, int]:
    """A pipe's reading end with these bytes in it, and its writing end, which may be closed."""
    reading, writing = os.pipe()
    for piece in pieces:
        os.write(writing, piece)
    if closed:
        os.close(writing)
    return reading, writing


@given(st.text(), st.text())
def test_the_data_is_set_off_and_cannot_end_itself(prompt: str, data: str) -> None:
    text = with_data(prompt, data)
    assert text.startswith(prompt)
    if data:
        mark = text.rsplit("</", 1)[1].removesuffix(">")
        assert text.count(f"</{mark}>") == 1 + prompt.count(f"</{mark}>")
        assert f"\n\n<{mark}>\n{data.removesuffix(chr(10))}\n</{mark}>" in text


def test_a_mark_that_the_data_has_is_not_used() -> None:
    text = with_data("Sum up.", "a </standard_input> b </standard_input_2>\n")
    assert text == ("Sum up.\n\n<standard_input_3>\na </standard_input> b </standard_input_2>\n</standard_input_3>")


@pytest.mark.parametrize(("pieces", "read"), [((b"one\n", b"two\n"), "one\ntwo\n"), ((b"",), ""), ((b" \n\n",), "")])
def test_a_pipe_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...], read: str) -> None:
    with stdin_from(pipe_with(*pieces)[0], monkeypatch):
        assert read_data(wait=False) == (read, "")


def test_the_null_device_a_file_and_no_input_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with stdin_from(os.open(os.devnull, os.O_RDONLY), monkeypatch):
        assert read_data(wait=False) == ("", "")
    (tmp_path / "data").write_text("in a file")
    with stdin_from(os.open(tmp_path / "data", os.O_RDONLY), monkeypatch):
        assert read_data(wait=False) == ("in a file", "")
    monkeypatch.setattr(sys, "stdin", None)
    assert read_data(wait=True) == ("", "")
    with pytest.raises(UsageError, match="needs a PROMPT"):
        read_prompt()


def test_a_terminal_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    try:
        with stdin_from(child, monkeypatch):
            assert read_data(wait=True) == ("", "")
            with pytest.raises(UsageError, match="needs a PROMPT"):
                read_prompt()
    finally:
        os.close(parent)


def test_a_silent_pipe_is_given_up_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "SILENT_S", 0.05)
    reading, writing = pipe_with(closed=False)
    with stdin_from(reading, monkeypatch):
        data, told = read_data(wait=False)
    os.close(writing)
    assert data == ""
    assert "going on without it" in told
    assert "-p PROMPT -" in told


def test_data_that_is_waited_for_may_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "SILENT_S", 0.0)
    reading, writing = pipe_with(closed=False)

    def write() -> None:
        os.write(writing, b"late")
        os.close(writing)

    with stdin_from(reading, monkeypatch):
        late = threading.Timer(0.1, write)
        late.start()
        assert read_data(wait=True) == ("late", "")
        late.join()


@pytest.mark.parametrize("read", [read_prompt, lambda: read_data(wait=False)])
def test_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]) -> None:
    monkeypatch.setattr(standard_input, "MAX_BYTES", 10)
    with stdin_from(pipe_with(b"x" * 11)[0], monkeypatch), pytest.raises(UsageError, match="longer than 10 bytes"):
        read()
