"""What tools are called where people read: on cards, in lists, in exports."""

from typing import Final

_TITLES: Final = {
    "read_file": "Read",
    "write_file": "Write",
    "edit_file": "Edit",
    "list_dir": "List",
    "glob": "Find",
    "grep": "Search",
    "fetch_url": "Fetch",
    "recall": "Recall",
    "remember": "Remember",
    "mark_task_done": "Task done",
    "ask_user": "Ask",
    "submit_plan": "Plan",
    "run_command": "Run",
    "command_output": "Output of",
    "stop_command": "Stop",
    "your shell": "You ran",
    "todo": "Tasks",
    "agentic_read_file": "Study",
    "agentic_fetch_url": "Study",
    "agentic_grep": "Investigate",
    "agentic_research": "Research",
    "run_agent": "Agent",
}


def tool_title(name: str) -> str:
    """The title of a tool; one that has none, such as a tool of an MCP server, goes by its own name."""
    return _TITLES.get(name, name)
