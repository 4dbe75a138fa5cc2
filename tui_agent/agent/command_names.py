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

IN_TEXT: Final = (
    CommandName("help", "what can be typed"),
    CommandName("tools", "what the model can use"),
    CommandName("model", "who answers, or let another model answer", "[name]"),
    CommandName("escalate", "go on with the provider's frontier model"),
)
"""Commands that the full-screen app has in a form of its own."""

CHECKPOINTS: Final = frozenset(("done",))
"""Commands that a session without checkpoints does not have."""


def is_command(text: str) -> bool:
    """Whether a text asks for a command: ``/name``, and not a path."""
    name = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return name.startswith("/") and "/" not in name[1:] and "\n" not in text.strip()
