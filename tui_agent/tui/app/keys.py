"""Which key does what, by the place where it does it: for the help and the command palette."""

from typing import Final, Literal, TypeAlias

Place: TypeAlias = Literal["prompt", "conversation", "question", "context"]
Keys: TypeAlias = tuple[tuple[str, str], ...]

EVERYWHERE: Final[Keys] = (
    ("Esc", "stop the turn, go back to the prompt"),
    ("Ctrl+C", "copy, empty the prompt or stop the turn; twice: quit"),
    ("Ctrl+O", "open or close all cards"),
    ("Ctrl+P", "all commands, searchable"),
    ("Tab", "between prompt and conversation"),
    ("F2", "the context: what fills the window, what comes next"),
    ("Ctrl+Z", "to the shell; `fg` comes back"),
    ("F1", "this help"),
)

PLACES: Final[dict[Place, tuple[str, Keys]]] = {
    "prompt": (
        "Keys in the prompt",
        (
            ("Enter", "send; while a turn runs, the text waits for its next step"),
            ("Ctrl+J", "a new line (Shift+Enter too, in most terminals)"),
            ("Up, Down", "earlier texts that begin like what is written"),
            ("Up", "in an empty prompt: take back the text that waits"),
            ("@", "name a file, a folder or a picture"),
            ("!", "run a shell command; the model sees what it prints"),
            ("/", "commands; Tab completes"),
            ("Ctrl+G", "write in your editor ($EDITOR)"),
            ("Ctrl+V", "the picture on the clipboard (Alt+V too)"),
            ("Ctrl+_", "undo what was written (Alt+Z too); Ctrl+Y: redo"),
            ("PgUp, PgDn", "turn the pages of the conversation"),
            ("Ctrl+D", "quit, when the prompt is empty"),
        ),
    ),
    "conversation": (
        "Keys in the conversation",
        (
            ("Up, Down", "mark another block (k, j too)"),
            ("Enter", "open or close it"),
            ("y, c", "copy it; copy the code in it"),
            ("u", "undo it, where it is a context step"),
            ("r, f", "rewind to before it, fork after it, where it is yours"),
            ("/, n, N", "search; the next and the previous hit"),
            ("[ ]", "to the prompt before, or after"),
            ("PgUp, PgDn", "turn pages"),
            ("Home, End", "the first line, the latest"),
            ("Tab", "back to the prompt"),
        ),
    ),
    "context": (
        "Keys in the context panel",
        (
            ("Up, Down", "mark another step or item (k, j too)"),
            ("i, w", "to the items; to what is kept of your own words"),
            ("Enter", "read it as it was"),
            ("p", "pin an item or a message of yours, or take its pin off"),
            ("e, d", "edit what is kept of your words, or drop it"),
            ("r", "show an item whole again"),
            ("c", "clear a tool result"),
            ("u", "undo a step"),
            ("Esc", "close the panel"),
            ("Tab", "to the prompt, the conversation, and back"),
        ),
    ),
    "question": (
        "Keys while you are asked",
        (
            ("1 2 3 4", "answer at once"),
            ("Up, Down", "mark an answer"),
            ("Enter", "give the marked answer"),
            ("PgUp, PgDn", "more of what is asked about"),
            ("Esc", "stop the turn"),
            ("Tab", "between prompt and question"),
        ),
    ),
}


def keys_text(place: Place = "prompt") -> str:
    """The keys of a place, then those that work everywhere, each on a line."""
    own = PLACES[place][1]
    named = {key for key, _ in own}
    return _lines((*own, *(row for row in EVERYWHERE if row[0] not in named)))


def _lines(keys: Keys) -> str:
    width = max(len(key) for key, _ in keys) + 2
    return "\n".join(f"{key:<{width}}{meaning}" for key, meaning in keys)
