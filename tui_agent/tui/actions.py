"""The table of actions, everything a user can do: key, place, slash command and help text.

The bindings of the app and its widgets, the help, the palette, the completion of ``/`` and the tables in the
documentation are all generated from these rows. To add an action, add a row. Slash commands that also work without a
screen are rows of `tui_agent.agent.commands.table`, which this table includes.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from textual.binding import Binding

from tui_agent.agent.commands.command import Command as AgentCommand
from tui_agent.agent.commands.table import COMMANDS, ERRANDS
from tui_agent.settings import POLICIES
from tui_agent.tui.wording import MODES

if TYPE_CHECKING:
    from tui_agent.context.changes import PreviewedStep

Place: TypeAlias = Literal[
    "everywhere", "prompt", "completion", "conversation", "search", "context", "question",
    "picker", "sessions", "preview", "draft", "words", "calls", "files", "reading", "field",
]  # fmt: skip

TITLES: Final[dict[Place, str]] = {
    "everywhere": "Keys everywhere",
    "prompt": "Keys in the prompt",
    "completion": "Keys in the list above the prompt",
    "conversation": "Keys in the conversation",
    "search": "Keys in the search",
    "context": "Keys in the context panel",
    "question": "Keys while a question is open",
    "picker": "Keys in the lists to choose from",
    "sessions": "Keys in the list of sessions",
    "preview": "Keys in the preview of a step",
    "draft": "Keys in the draft of a summary",
    "words": "Keys in the editor of words",
    "calls": "Keys in the calls of the session",
    "files": "Keys in the list of files to put back",
    "reading": "Keys in the texts to read",
    "field": "Keys in the fields for a key or a title",
}

DIALOGS: Final[tuple[Place, ...]] = (
    "picker", "sessions", "preview", "draft", "words", "calls", "files", "reading", "field",
)  # fmt: skip
"""Places that are dialogs: actions of the place "everywhere" do not work there."""

BACKGROUND_SIGN: Final = "&"
SIGNS: Final = (
    ("@", "name a file, a folder or a picture"),
    ("!", "run a shell command; the model sees the output"),
    (BACKGROUND_SIGN, "begin a session in the background with what follows"),
    ("/", "commands; Tab completes"),
)
"""The signs with a meaning at the start of a text in the prompt, and what they do."""


class Action(Struct, frozen=True, kw_only=True):
    """One thing a user can do.

    id: its name in ``ui.keymap``. help: its line in the help.
    place: where its keys work. keys: Textual's names of the keys, separated by commas.
    does: the Textual action; empty: the slash command or, without one, handled by the prompt itself, because the same
    key also moves the cursor.
    name, aliases: of the slash command, without the slash; empty: it has none.
    argument: the name of the command's argument in the help, `<...>` if it is required; empty: it takes none.
    choices: completions of the argument.
    previews: the context step whose effect is shown before the command runs.
    priority: its keys take precedence over those of any widget.
    in_palette: it is in the palette although it has no slash command.
    """

    id: str
    help: str
    place: Place = "everywhere"
    keys: str = ""
    does: str = ""
    name: str = ""
    aliases: tuple[str, ...] = ()
    argument: str = ""
    choices: tuple[str, ...] = ()
    previews: "PreviewedStep | None" = None
    priority: bool = False
    in_palette: bool = False

    @property
    def usage(self) -> str:
        """The slash command with its argument, as in the help; empty: it has none."""
        return f"/{self.name} {self.argument}".rstrip() if self.name else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The slash command's name and its aliases."""
        return (self.name, *self.aliases) if self.name else ()

    @property
    def needs_argument(self) -> bool:
        return "<" in self.argument

    @property
    def textual_action(self) -> str:
        return self.does or f"slash('{self.name}')"


_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "preview": ("compact", "clear", "done"),
    "undo": ("both", "files", "conversation", "diff"),
    "undo-edits": ("diff", "redo"),
    "worktree": ("open", "merge", "apply", "patch"),
}


def _of_agent(command: AgentCommand) -> Action:
    return Action(
        id=command.name,
        help=command.description,
        name=command.name,
        aliases=command.aliases,
        argument=command.argument,
        choices=_CHOICES.get(command.name, ()),
        previews=command.previews or None,
        keys="f2" if command.name == "context" else "",
        does="context" if command.name == "context" else "",
    )


_EVERYWHERE: Final = (
    Action(id="stop", keys="escape", does="interrupt", help="stop the turn; go back to the prompt; twice: rewind"),
    Action(id="break", keys="ctrl+c", does="break", priority=True, help="copy, clear the prompt or stop; twice: quit"),
    Action(id="cards", keys="ctrl+o", does="toggle_cards", in_palette=True, help="open or close all cards"),
    Action(id="tasks", keys="ctrl+t", does="toggle_tasks", in_palette=True, help="show or hide the whole task list"),
    Action(id="background", keys="ctrl+b", does="send_back", help="let the running command go on in the background"),
    Action(id="palette", keys="ctrl+p", does="palette", help="all commands, searchable"),
    Action(id="history", keys="ctrl+r", does="search_history", in_palette=True, help="search your earlier prompts"),
    Action(id="next-mode", keys="shift+tab", does="next_mode", priority=True, help="switch mode: plan, ask, auto"),
    Action(id="focus", keys="tab", does="focus_next", help="move between prompt, context panel and conversation"),
    Action(id="editor", keys="ctrl+g", does="edit_draft", in_palette=True, help="write in your editor ($EDITOR)"),
    Action(id="suspend", keys="ctrl+z", does="suspend_process", priority=True, help="to the shell; `fg` comes back"),
)


def _at(
    place: Place, *rows: tuple[str, str, str, str], prefix: str = "", priority: tuple[str, ...] = ()
) -> tuple[Action, ...]:
    """Actions of a place, from rows of id without its prefix, keys, Textual action and help.

    `priority`: those of these ids that take precedence over widgets.
    """
    return tuple(
        Action(
            id=f"{prefix or place}.{name}", place=place, keys=keys, does=does, help=meaning, priority=name in priority
        )
        for name, keys, does, meaning in rows
    )


_PROMPT: Final = (
    *_at(
        "prompt",
        ("send", "enter", "send", "send; during a turn, queue for its next step"),
        ("newline", "ctrl+j,shift+enter,alt+enter", "newline", "new line"),
        ("earlier", "up", "", "earlier prompt that begins like this one"),
        ("later", "down", "", "later prompt, and finally what you were typing"),
        ("help", "question_mark", "app.help", "this help, with an empty prompt"),
        ("undo", "ctrl+underscore,ctrl+minus,ctrl+shift+minus,alt+z", "undo", "undo typing"),
        ("redo", "alt+shift+z", "redo", "redo typing"),
        ("yank", "ctrl+y", "yank", "insert what Ctrl+K, U or W deleted; else redo"),
        ("page-up", "pageup", "app.page(-1)", "scroll the conversation by a page"),
        ("page-down", "pagedown", "app.page(1)", "scroll the conversation by a page"),
        ("end", "end", "end_or_latest", "end of the line; if empty, of the conversation"),
        ("leave", "ctrl+d", "delete_or_leave", "quit, with an empty prompt"),
    ),
    Action(
        id="prompt.picture",
        place="prompt",
        keys="ctrl+v,alt+v",
        does="paste_picture",
        in_palette=True,
        help="attach the picture on the clipboard",
    ),
)

_COMPLETION: Final = _at(
    "completion",
    ("take", "tab", "", "insert the selected one"),
    ("choose", "enter", "", "insert it; a complete command is run"),
    ("up", "up", "", "select another one"),
    ("down", "down", "", "select another one"),
    ("close", "escape", "", "close the list"),
)

_CONVERSATION: Final = _at(
    "conversation",
    ("up", "up,k", "cursor(-1)", "select another block"),
    ("down", "down,j", "cursor(1)", "select another block"),
    ("open", "enter", "toggle_card", "open or close it"),
    ("copy", "y", "copy_block", "copy it"),
    ("copy-code", "c", "copy_code", "copy the code in it"),
    ("undo", "u", "undo_step", "undo it, where it is a context step"),
    ("rewind", "r", "rewind", "rewind to before it, where it is yours"),
    ("fork", "f", "fork", "fork after it, where it is yours"),
    ("search", "slash", "search", "search"),
    ("next", "n", "search_next(True)", "the next hit"),
    ("previous", "N", "search_next(False)", "the previous hit"),
    ("prompt-before", "left_square_bracket", "prompt(-1)", "to your message before, or after"),
    ("prompt-after", "right_square_bracket", "prompt(1)", "to your message before, or after"),
    ("page-up", "pageup", "page(-1)", "scroll by a page"),
    ("page-down", "pagedown", "page(1)", "scroll by a page"),
    ("top", "home", "top", "the first line"),
    ("tail", "end", "tail", "the latest line"),
    ("help", "question_mark", "app.help", "this help"),
)

_CONTEXT: Final = (
    *_at(
        "context",
        ("up", "up,k", "cursor(-1)", "select another step or item"),
        ("down", "down,j", "cursor(1)", "select another step or item"),
        ("page-up", "pageup", "page(-1)", "scroll by a page"),
        ("page-down", "pagedown", "page(1)", "scroll by a page"),
        ("first", "home", "edge(-1)", "the first line, the last"),
        ("last", "end", "edge(1)", "the first line, the last"),
        prefix="list",
    ),
    *_at(
        "context",
        ("items", "i", "jump_to_items", "to the items"),
        ("words", "w", "jump_to_words", "to what is kept of your own words"),
        ("calls", "a", "show_calls", "what the model saw at any call"),
        ("explain", "x", "explain", "what the panel's words mean"),
        ("open", "enter", "open", "read the original"),
        ("pin", "p", "pin", "pin an item or a message of yours, or unpin it"),
        ("edit", "e", "edit", "edit what is kept of your words"),
        ("drop", "d", "drop", "keep none of them"),
        ("restore", "r", "restore", "show an item whole again"),
        ("clear", "c", "clear", "clear a tool result"),
        ("undo", "u", "undo", "undo a step"),
        ("help", "question_mark", "app.help", "this help"),
        ("close", "escape", "close", "close the panel"),
    ),
)

_QUESTION: Final = _at(
    "question",
    ("first", "1", "choose(0)", "answer at once"),
    ("second", "2", "choose(1)", "answer at once"),
    ("third", "3", "choose(2)", "answer at once"),
    ("fourth", "4", "choose(3)", "answer at once"),
    ("fifth", "5", "choose(4)", "answer at once"),
    ("up", "up", "mark(-1)", "select an answer"),
    ("down", "down", "mark(1)", "select an answer"),
    ("answer", "enter", "choose_marked", "give the selected answer"),
    ("back", "escape", "", "back from the reason to the answers"),
    ("page-up", "pageup", "scroll_preview(-1)", "more of what is asked about, or of the conversation"),
    ("page-down", "pagedown", "scroll_preview(1)", "more of what is asked about, or of the conversation"),
)

_SEARCH: Final = _at(
    "search",
    ("keep", "enter", "", "keep the hits and go on in the conversation"),
    ("close", "escape", "", "end the search"),
)

_DIALOGS: Final = (
    *_at(
        "picker",
        ("choose", "enter", "choose", "choose the selected one"),
        ("up", "up", "mark(-1)", "select another one"),
        ("down", "down", "mark(1)", "select another one"),
        ("page-up", "pageup", "page(-1)", "scroll by a page"),
        ("page-down", "pagedown", "page(1)", "scroll by a page"),
        ("first", "ctrl+home", "edge(-1)", "the first one, the last"),
        ("last", "ctrl+end", "edge(1)", "the first one, the last"),
        ("cancel", "escape,ctrl+c", "leave", "cancel"),
        priority=("cancel",),
    ),
    *_at(
        "sessions",
        ("rename", "ctrl+r", "end_with('rename')", "rename the session"),
        ("fork", "ctrl+f", "end_with('fork')", "go on in a copy of it"),
        ("delete", "ctrl+x", "end_with('delete')", "delete it, after a question"),
        priority=("rename", "fork", "delete"),
    ),
    *_at(
        "preview",
        ("accept", "enter,y", "accept", "do it"),
        ("edit", "e", "edit", "say what a summary should keep, or add a note"),
        ("pin", "p", "pin", "keep an item whole"),
        ("cancel", "escape,ctrl+c", "leave", "leave everything as it is"),
    ),
    *_at(
        "draft",
        ("accept", "enter,y", "accept", "use it"),
        ("accept-edited", "ctrl+s", "accept", "use it, from the editing too"),
        ("edit", "e", "edit", "edit it here"),
        ("editor", "ctrl+g", "edit_outside", "edit it in your editor"),
        ("cancel", "escape,ctrl+c", "leave", "stop editing, then drop it"),
    ),
    *_at(
        "words",
        ("keep", "ctrl+s", "keep", "keep what is written"),
        ("editor", "ctrl+g", "edit_outside", "write in your editor"),
        ("cancel", "escape,ctrl+c", "leave", "leave it as it was"),
    ),
    *_at(
        "calls",
        ("before", "left", "move(-1)", "the call before, or after"),
        ("after", "right", "move(1)", "the call before, or after"),
        ("first", "home", "edge(-1)", "the first call, the last"),
        ("last", "end", "edge(1)", "the first call, the last"),
        ("read", "enter", "read", "read the request as it was sent"),
        ("compare", "d", "compare", "compare it with the call before"),
        ("fork", "f", "fork", "start another branch after its answer"),
        ("close", "escape,ctrl+c,q", "leave", "close"),
        priority=("before", "after", "first", "last"),
    ),
    *_at(
        "files",
        ("both", "enter,y", "take('')", "put them back, with the conversation where that is asked"),
        ("files", "f", "take('files')", "put back only the files"),
        ("conversation", "c", "take('conversation')", "take back only the conversation"),
        ("theirs", "o", "overwrite", "also overwrite what somebody else changed, or not"),
        ("cancel", "escape,ctrl+c", "leave", "leave everything as it is"),
    ),
    *_at("reading", ("close", "escape,ctrl+c,f1,q,enter", "leave", "close it; typing does too")),
    *_at("field", ("cancel", "escape,ctrl+c", "leave", "cancel"), priority=("cancel",)),
)

_SLASH: Final = (
    Action(id="help", name="help", aliases=("?",), keys="f1", does="help", help="keys and commands"),
    Action(id="model", name="model", argument="[name]", help="choose the model"),
    Action(id="key", name="key", help="enter a provider's API key, hidden"),
    Action(id="mode", name="mode", argument="[name]", choices=tuple(MODES), help="choose what needs your approval"),
    Action(
        id="policy",
        name="policy",
        argument="[name]",
        choices=tuple(POLICIES),
        help="choose between cost and word-for-word context",
    ),
    Action(id="tools", name="tools", help="list the model's tools"),
    Action(id="escalate", name="escalate", help="switch to the provider's strongest model"),
    *map(_of_agent, COMMANDS),
    Action(id="new", name="new", aliases=("clear",), help="new session; this one is kept"),
    Action(
        id="sessions", name="resume", aliases=("sessions",), argument="[id or file]", help="switch to another session"
    ),
    Action(id="rename", name="rename", argument="[title]", help="give this session another title"),
    Action(id="trust", name="trust", help="trust this project's files, or not"),
    *(Action(id=name, name=name, argument=argument, help=summary) for name, summary, argument in ERRANDS),
    Action(id="loop", name="loop", argument="[10m prompt]", help="send a prompt again and again"),
    Action(id="unseen", name="background", argument="[prompt]", help="let this turn, or a new one, run unseen"),
    Action(id="jobs", name="jobs", help="list background commands; show or stop one"),
    Action(id="export", name="export", argument="[file]", help="write the conversation to .md, .html or .json"),
    Action(
        id="copy-answer", name="copy", argument="[code]", choices=("code",), help="copy the last answer, or its code"
    ),
    Action(id="config", name="config", argument="[setting]", help="search, change and undo settings"),
    Action(id="demo", name="demo", help="leave for a session to try things in"),
    Action(id="theme", name="theme", argument="[name]", help="choose the colours"),
    Action(id="quit", name="quit", aliases=("exit", "q"), keys="ctrl+q", does="leave", help="quit; everything is kept"),
)

ACTIONS: Final[tuple[Action, ...]] = (
    *_EVERYWHERE,
    *_PROMPT,
    *_COMPLETION,
    *_CONVERSATION,
    *_SEARCH,
    *_CONTEXT,
    *_QUESTION,
    *_DIALOGS,
    *_SLASH,
)
"""All actions, in the order of the help."""

SLASH_COMMANDS: Final = tuple(action for action in ACTIONS if action.name)
"""The actions with a slash command."""
BY_ID: Final = {action.id: action for action in ACTIONS}
BY_NAME: Final = {name: action for action in ACTIONS for name in action.names}
"""The actions with a slash command, by its name and its aliases."""


def bindings(place: Place, ids: str = "") -> list[Binding]:
    """The key bindings of a place; `ids`: only those whose ids start with this."""
    return [
        Binding(action.keys, action.textual_action, action.help, show=False, priority=action.priority, id=action.id)
        for action in ACTIONS
        if action.place == place and action.keys and (action.does or action.name) and action.id.startswith(ids)
    ]


def help_rows(commands: Iterable[Action] = SLASH_COMMANDS) -> Iterator[tuple[str, str]]:
    """Each slash command's usage, and what it does."""
    for action in commands:
        also = f" (also {', '.join(f'/{alias}' for alias in action.aliases)})" if action.aliases else ""
        yield action.usage, action.help + also
