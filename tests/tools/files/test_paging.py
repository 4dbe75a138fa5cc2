import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tools.support import call
from tui_agent.tools.files.encodings import FileKind, decode, encode, sniff
from tui_agent.tools.files.paging import PageLimits, PastTheEnd, count_lines, read_page
from tui_agent.tools.files.reading import ReadFile
from tui_agent.tools.threads import Cancellation

LINES = st.lists(
    st.one_of(st.text(max_size=12), st.text(alphabet="aé漢😀\r\u2028\x0b\x85", max_size=80), st.just("x" * 900)),
    max_size=12,
)
TEXTS = st.builds(
    lambda lines, endings: "".join(line + ending for line, ending in zip(lines, endings, strict=False)),
    LINES,
    st.lists(st.sampled_from(["\n", "\r\n", "\r", ""]), min_size=12, max_size=12),
)
LIMITS = st.builds(PageLimits, lines=st.integers(1, 20), bytes=st.integers(1, 700), characters=st.integers(1, 700))
KINDS = st.sampled_from([FileKind("utf-8"), FileKind("utf-8-sig", b"\xef\xbb\xbf"), FileKind("utf-16-le", b"\xff\xfe")])


@contextmanager
def stored(data: bytes) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as stream:
        stream.write(data)
        stream.flush()
        yield stream


@settings(deadline=None)
@given(TEXTS.filter(bool), KINDS, LIMITS)
@example("a\r\nb", FileKind("utf-8"), PageLimits(1, 1, 1))
@example("ab\r\n\r\n", FileKind("utf-16-le", b"\xff\xfe"), PageLimits(2, 3, 3))
def test_pages_together_are_the_file(text: str, kind: FileKind, limits: PageLimits) -> None:
    place: tuple[int, int] | None = (1, 0)
    joined = ""
    with stored(encode(text, kind)) as stream:
        while place is not None:
            page = read_page(stream, kind, *place, limits, Cancellation())
            assert page.parts
            assert (page.parts[0].line, page.parts[0].start) == place
            joined += "".join(part.text + part.ending for part in page.parts)
            assert len(page.parts) <= limits.lines
            if len(page.parts) > 1 or len(page.parts[0].text) > 1:
                assert len(page.text) <= limits.characters
                assert len(page.text.encode()) <= limits.bytes
            for part in page.parts:
                assert "\n" not in part.text
            place = page.following
        assert joined == text
        assert count_lines(stream, kind, Cancellation()) == text.count("\n") + (not text.endswith("\n"))


@given(TEXTS, st.integers(1, 40), st.integers(0, 1_000))
@example("x\r", 1, 2)
def test_any_start_is_that_place_or_refused(text: str, line: int, character: int) -> None:
    lines = text.split("\n")
    with stored(text.encode()) as stream:
        try:
            page = read_page(stream, FileKind("utf-8"), line, character, PageLimits(), Cancellation())
        except PastTheEnd as past:
            body = lines[line - 1] if line <= len(lines) else None
            if body is not None and line < len(lines):
                body = body.removesuffix("\r")
            told, in_line = past.last, past.in_line
            assert told == (len(body or "") if in_line else len(lines) - (not lines[-1]))
            assert body is None or character > len(body) - (line == len(lines))
            return
    rest = "\n".join(lines[line - 1 :])[character:]
    assert "".join(part.text + part.ending for part in page.parts) == rest


@given(st.binary(max_size=400))
def test_any_bytes_are_sniffed_and_text_goes_back_to_the_same_bytes(data: bytes) -> None:
    assert sniff(data, whole=True) is not None
    try:
        text, kind = decode(data)
    except ValueError:
        return
    assert encode(text, kind) == data


async def test_a_page_with_its_notice_stays_within_the_limits(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("漢字" * 90_000 + "\n" + "short\n" * 9_000)
    limits = PageLimits()
    arguments: dict[str, int] = {}
    for _ in range(30):
        output = await call(ReadFile(), tmp_path, path="f", **arguments)
        assert len(output.text.encode()) <= limits.bytes
        assert len(output.text.split("\n")) <= limits.lines + 1
        notice = output.text.rpartition("\n")[2]
        if "Continue with " not in notice:
            break
        place = notice.partition("Continue with ")[2].partition(".")[0]
        arguments = {key: int(value) for key, value in (part.split("=") for part in place.split(", "))}
    assert "This is the end of the file" in notice
    assert "9001" in notice


@pytest.mark.parametrize(("line", "part"), [(1, "é" * 100), (2, "short"), (9, "")])
def test_the_lines_of_a_wide_encoding_are_found_behind_one_that_is_longer_than_a_chunk(line: int, part: str) -> None:
    kind = FileKind("utf-16-le", b"\xff\xfe")
    with stored(kind.mark + ("é" * 200_000 + "\nshort").encode("utf-16-le")) as stream:
        if part:
            page = read_page(stream, kind, line, 0, PageLimits(characters=110), Cancellation())
            assert page.parts[0].text.startswith(part)
            return
        with pytest.raises(PastTheEnd) as past:
            read_page(stream, kind, line, 0, PageLimits(), Cancellation())
        assert past.value.last == 2
