import pytest

from tui_agent.tools.base import Tool, ToolFailure
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.search.finding import Glob, Grep
from tui_agent.tools.subtasks import SubtaskSpec, subtask_tools


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


def test_a_subtask_with_a_tool_that_is_not_there_is_refused() -> None:
    spec = SubtaskSpec(system="", prompt="", tools=("grep", "fetch_url", "no_tool"))
    grep = Grep()
    with pytest.raises(ToolFailure, match="cannot have the tool fetch_url, no_tool"):
        subtask_tools(spec, [grep])
    assert subtask_tools(SubtaskSpec(system="", prompt="", tools=("grep",)), [grep, Glob()]) == (grep,)
