"""What the slash commands, and whatever else goes on behind the keys, may use of the app."""

from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.keys import Keymap

if TYPE_CHECKING:
    from textual.screen import Screen

    from tui_agent.agent.agent import Agent
    from tui_agent.arguments import Arguments
    from tui_agent.models.base import Model
    from tui_agent.settings import Settings
    from tui_agent.tools.shell.background import BackgroundCommands
    from tui_agent.tui.app.conductor import Conductor
    from tui_agent.tui.dialogs.pickers import Option


class BranchVerbs(Protocol):
    """What commands do with the branches of the conversation; each takes what was written behind the command."""

    async def rewind(self, number: str = "", /) -> None: ...

    async def undo(self, what: str = "", /) -> None: ...

    async def undo_edits(self, argument: str = "", /) -> None: ...

    async def fork(self, number: str = "", /) -> None: ...

    async def tree(self, number: str = "", /) -> None: ...


class SessionVerbs(Protocol):
    """How commands go to another session; each takes what was written behind the command."""

    async def new(self, argument: str = "", /) -> None: ...

    async def choose(self, argument: str = "", /) -> None: ...

    async def trust(self, argument: str = "", /) -> None: ...


class Host(Protocol):
    """The app, as those who are below it see it."""

    arguments: "Arguments"
    settings: "Settings"

    keymap: Keymap
    """The keys in force."""
    session_folder: Path | None
    """Where the session is kept; None: there is none yet."""

    # Telling and asking

    @property
    def conductor(self) -> "Conductor":
        """The session behind the screen."""
        ...

    def say(self, level: Level, title: str, text: str = "", hint: str = "") -> None:
        """Show a notice in the pane."""
        ...

    async def pick(
        self,
        title: str,
        options: "Iterable[Option]",
        current: str,
        *,
        search: bool = False,
        preview: "Callable[[str], None] | None" = None,
    ) -> str | None:
        """Let the user choose one; None: they did not."""
        ...

    async def question(self, screen: "Screen[str | None]") -> str | None:
        """Show a dialog and wait for its result."""
        ...

    def hint(self, text: str) -> None:
        """Show a few words in the status bar for a moment."""
        ...

    def refuse(self, reason: str) -> None:
        """Leave the program: the settings do not allow what was asked for."""
        ...

    # The session

    async def agent(self) -> "Agent":
        """The agent, once the session is open. Raises SessionUnavailable."""
        ...

    async def may_switch(self, agent: "Agent", model: "Model") -> bool:
        """Whether another model may go on, after a look at what that means."""
        ...

    async def keep(self, key: str, value: str) -> None:
        """Have a choice count at the next starts too."""
        ...

    def working(self, what: str) -> None:
        """Say in the status bar what is going on beside turns; nothing: it is over."""
        ...

    async def until_stopped(self, work: "Coroutine[None, None, None]") -> bool:
        """Do what Esc may stop; whether it was done."""
        ...

    def refresh_status(self) -> None:
        """Bring what the agent is now to the status bar."""
        ...

    async def read(self, title: str, text: str) -> None:
        """Show a text over the screen."""
        ...

    async def run_command(self, text: str) -> None:
        """Do what `/name argument` says."""
        ...

    def ask_model(self, text: str) -> None:
        """Send a text as if the user had written it."""
        ...

    @property
    def background(self) -> "BackgroundCommands | None":
        """The commands that run in the background; None: there is no session yet."""
        ...

    # What commands turn to

    @property
    def sessions(self) -> SessionVerbs:
        """Goes to another session."""
        ...

    @property
    def branches(self) -> BranchVerbs:
        """Goes about the branches of the conversation."""
        ...

    def commands_text(self) -> str:
        """Every slash command on a line."""
        ...

    def theme_names(self) -> tuple[str, ...]:
        """The themes there are."""
        ...

    def theme_name(self) -> str:
        """The theme in use."""
        ...

    def use_theme(self, name: str) -> None:
        """Change the colours."""
        ...

    def quit(self) -> None:
        """Leave the program."""
        ...
