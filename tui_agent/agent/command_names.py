"""The names of the commands that steer a conversation: cheap to import, for help and completion."""

from typing import Final, NamedTuple


class CommandName(NamedTuple):
    """name, aliases: without the slash. `argument`: how what follows is called; empty: nothing may follow."""

    name: str
    description: str
    argument: str = ""
    aliases: tuple[str, ...] = ()


COMMANDS: Final = (
    CommandName("compact", "summarise older turns now", "[focus]", ("summarize",)),
    CommandName("done", "record the finished task", "[note]", ("checkpoint",)),
    CommandName("context", "what fills the window (F2)", "[text]", ("boundaries",)),
    CommandName("stats", "tokens, cost and cache hits, per model"),
    CommandName("preview", "see what compact, clear or done would do", "[step]"),
    CommandName("clear-results", "clear all old tool results"),
    CommandName("items", "all messages and results, by number"),
    CommandName("pin", "keep messages or results whole", "<number ...>"),
    CommandName("unpin", "take pins off", "<number ...>"),
    CommandName("restore", "show them whole again", "<number ...>"),
    CommandName("undo-compact", "undo the newest context step", "[number]", ("undo",)),
    CommandName("recall", "search all that was ever said", "<text>"),
    CommandName("skills", "the skills the model can read"),
    CommandName("memory", "the notes kept about this project"),
    CommandName("resume-after-cost-ceiling", "go on after the ceiling"),
)

CHECKPOINTS: Final = frozenset(("done",))
"""Commands that a session without checkpoints does not have."""
