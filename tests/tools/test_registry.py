import pytest

from tui_agent.tools.base import Tool, ToolFailure
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.search.finding import Glob, Grep


def test_tools_are_found_by_name_in_one_order_however_they_were_given() -> None:
    tools: list[Tool] = [ReadFile(), Grep(), Glob(), WriteFile(), EditFile(), ListDir()]
    registry = ToolRegistry(tools)
    names = [definition.name for definition in registry.definitions]
    assert names == ["edit_file", "glob", "grep", "list_dir", "read_file", "write_file"]
    assert registry.definitions == ToolRegistry(tools[::-1]).definitions
    assert registry.get("grep") is tools[1]
    assert "grep" in registry
    assert len(registry) == 6


def test_an_unknown_tool_names_the_nearest() -> None:
    registry = ToolRegistry([ReadFile(), Grep()])
    with pytest.raises(ToolFailure, match=r"no tool Read_Files\. Did you mean read_file\?"):
        registry.get("Read_Files")
    with pytest.raises(ToolFailure, match=r"There are: grep, read_file\."):
        registry.get("zzz\x1b")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="grep"):
        ToolRegistry([Grep(), Grep()])
