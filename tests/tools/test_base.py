"""The example that the reference gives of a tool is one."""

import textwrap
from pathlib import Path

from tests.tools.support import call
from tui_agent.tools import base
from tui_agent.tools.base import Tool
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
