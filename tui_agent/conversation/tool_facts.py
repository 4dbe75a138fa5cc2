"""What is known of each tool by its name alone, wherever its calls are shown, passed on or cleared.

A log names tools that may not exist in this session, and lists are drawn before any tool is loaded; so these facts
stand here, in a module that imports nothing, and not in the tools. `tests/tools/test_tool_facts.py` checks that every
tool has a row.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

ActionKind: TypeAlias = Literal["read", "edit", "search", "execute", "fetch", "think", "switch_mode", "other"]
"""What a call does, in the words of the Agent Client Protocol."""


class ToolFacts(msgspec.Struct, frozen=True):
    """A tool where people read: the `title` of its cards and lists, and what the model is `doing` while it runs.

    `repeatable`: its calls can simply be repeated. `claude`: its names in Claude Code, for extensions written for that;
    `arguments`: Claude Code's names for arguments that are called otherwise here.
    """

    title: str
    doing: str = ""
    kind: ActionKind = "other"
    repeatable: bool = False
    claude: tuple[str, ...] = ()
    arguments: Mapping[str, str] = {}


_FILE: Final = {"path": "file_path"}
_TASK: Final = ("Task", "Agent")
_QUESTION: Final = {"question": "prompt"}

TOOL_FACTS: Final[Mapping[str, ToolFacts]] = {
    "run_command": ToolFacts(
        "Run", "running a command", "execute", claude=("Bash",), arguments={"background": "run_in_background"}
    ),
    "read_file": ToolFacts("Read", "reading", "read", True, ("Read",), _FILE),
    "write_file": ToolFacts("Write", "writing a file", "edit", claude=("Write",), arguments=_FILE),
    "edit_file": ToolFacts(
        "Edit",
        "editing",
        "edit",
        claude=("Edit", "MultiEdit"),
        arguments={**_FILE, "old": "old_string", "new": "new_string"},
    ),
    "glob": ToolFacts("Find", "searching", "search", True, ("Glob",)),
    "grep": ToolFacts("Search", "searching", "search", True, ("Grep",), {"context": "-C"}),
    "list_dir": ToolFacts("List", "looking around", "read", True, ("LS",)),
    "fetch_url": ToolFacts("Fetch", "fetching", "fetch", True, ("WebFetch",)),
    "web_search": ToolFacts("Search the web", "searching the web", "fetch", True, ("WebSearch",)),
    "definition": ToolFacts("Definition", "searching", "search", True),
    "references": ToolFacts("References", "searching", "search", True),
    "symbols": ToolFacts("Symbols", "reading", "read", True),
    "recall": ToolFacts("Recall", "searching", "search"),
    "memory": ToolFacts("memory", "", "think"),
    "remember": ToolFacts("Remember"),  # of earlier versions
    "todo": ToolFacts("Tasks", "", "think", claude=("TodoWrite",), arguments={"items": "todos"}),
    "mark_task_done": ToolFacts("Task done", "", "think"),
    "episode": ToolFacts("Episode", "", "think"),
    "run_agent": ToolFacts(
        "Agent", "running an agent", claude=_TASK, arguments={"agent": "subagent_type", "task": "prompt"}
    ),
    "agentic_fetch_url": ToolFacts("Study", "studying", "fetch", claude=("WebFetch",), arguments=_QUESTION),
    "agentic_grep": ToolFacts("Investigate", "investigating", "search", claude=_TASK, arguments=_QUESTION),
    "agentic_read_file": ToolFacts("Study", "studying", "read", claude=_TASK, arguments=_QUESTION),
    "agentic_research": ToolFacts("Research", "researching", "search", claude=_TASK, arguments=_QUESTION),
    "ask_user": ToolFacts("Ask", claude=("AskUserQuestion",)),
    "submit_plan": ToolFacts("Plan", "", "switch_mode", claude=("ExitPlanMode",)),
    "command_output": ToolFacts("Output of", "", "read", claude=("BashOutput",), arguments={"process": "bash_id"}),
    "stop_command": ToolFacts("Stop", "", "execute", claude=("KillShell",), arguments={"process": "shell_id"}),
    "your shell": ToolFacts("You ran", "", "execute"),
    "find_tool": ToolFacts("find_tool", "", "search"),
    "call_tool": ToolFacts("call_tool"),
}


def facts_of(name: str) -> ToolFacts:
    """The facts on a tool; one that has none, such as a tool of an MCP server, goes by its own name."""
    return TOOL_FACTS.get(name) or ToolFacts(name)
