"""The example that the reference gives of a tool is one; and an error is bounded, everything else stays whole."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.support import call
from tui_agent.tools import base
from tui_agent.tools.base import Tool, ToolOutput, bounded_error
from tui_agent.tools.registry import ToolRegistry

IMPORTS = """
from tui_agent.tools.base import *
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.gate.workspace import access_to, granted_path
from tui_agent.tools.schema import Signature
"""


async def test_the_tool_of_the_docstring_works(tmp_path: Path) -> None:
    names: dict[str, type[Tool]] = {}
    example = textwrap.dedent((base.__doc__ or "").partition("::\n")[2])
    exec(IMPORTS + example, names)  # noqa: S102
    count_lines = ToolRegistry([names["CountLines"]()]).get("count_lines")
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    assert (await call(count_lines, tmp_path, path="a.txt")).text == "3 lines"
    assert count_lines.definition.description == "Count the lines of a file."


@given(text=st.text(st.characters(exclude_characters="["), max_size=400), limit=st.integers(1, 300))
def test_an_error_keeps_both_ends_within_its_limit(text: str, limit: int) -> None:
    output = bounded_error(ToolOutput(text, is_error=True), limit)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    if len(whole) <= limit:
        assert output.text == text
        return
    before, _, rest = output.text.rpartition("\n[... ")
    count, _, after = rest.partition(" bytes of this error are left out ...]\n")
    assert whole.startswith(before.encode())
    assert whole.endswith(after.encode())
    assert int(count.replace(",", "")) == len(whole) - limit
    assert len(before.encode()) + len(after.encode()) <= limit


@pytest.mark.parametrize(
    "output",
    [ToolOutput("x" * 1_000), ToolOutput("x" * 1_000, is_error=True, stream=True), ToolOutput("", is_error=True)],
)
def test_values_and_what_a_command_printed_stay_whole(output: ToolOutput) -> None:
    assert bounded_error(output, 100) is output
