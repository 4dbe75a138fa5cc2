"""The app, as everything below it sees it: what commands, the context's screens and the session behind it may use."""

from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.keys import Keymap
from tui_agent.tui.painting.glyphs import Glyphs

if TYPE_CHECKING:
    from textual.screen import Screen

    from tui_agent.agent.agent import Agent
    from tui_agent.arguments import Arguments
    from tui_agent.conversation.blocks import Image
    from tui_agent.models.base import Model
    from tui_agent.session import Session
    from tui_agent.settings import Settings
    from tui_agent.tui.dialogs.pickers import Option
    from tui_agent.tui.pane.conversation import ConversationPane
    from tui_agent.tui.pane.status_bar import StatusBar
    from tui_agent.tui.prompt.prompt import PromptArea

Answer = TypeVar("Answer")


class Host(Protocol):
    """The one app there is. What it is asked to show, it shows at once; what it asks the user, its callers wait for."""

    arguments: "Arguments"
    settings: "Settings"

    keymap: Keymap
    """The keys in force."""
    glyphs: Glyphs
    session_folder: Path | None
    """Where the session is kept; None: there is none yet."""

    # What is on the screen

    status: "StatusBar"

    @property
    def pane(self) -> "ConversationPane":
        """The conversation."""
        ...

    @property
    def entry(self) -> "PromptArea":
        """The prompt, and what stands over it."""
        ...

    # Telling and asking

    def say(self, level: Level, title: str, text: str = "", hint: str = "") -> None:
        """Show a notice in the pane."""
        ...

    def hint(self, text: str) -> None:
        """Show a few words in the status bar for a moment."""
        ...

    def report(self, error: Exception) -> None:
        """Tell of an error; of one that nobody expected, keep the details."""
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

    async def question(self, screen: "Screen[Answer]") -> Answer | None:
        """Show a dialog and wait for its result."""
        ...

    async def read(self, title: str, text: str, again: "Callable[[], str | None] | None" = None) -> None:
        """Show a text over the screen; `again`: see `TextScreen`."""
        ...

    # The session

    @property
    def session(self) -> "Session | None":
        """The session that is open."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a turn runs or is about to."""
        ...

    def occupied(self) -> str:
        """Why the conversation cannot go on elsewhere now; empty: it can."""
        ...

    async def agent(self) -> "Agent":
        """The agent, once the session is open. Raises SessionUnavailable."""
        ...

    def switch(self, target: "Arguments") -> None:
        """Close this session in order, and go on in another one."""
        ...

    async def may_switch(self, agent: "Agent", model: "Model") -> bool:
        """Whether another model may go on, after a look at what that means."""
        ...

    def refresh_status(self) -> None:
        """Bring what the agent is now to the status bar; a turn may have begun or ended."""
        ...

    # What the user has sent

    def ask_model(self, text: str) -> None:
        """Send a text as if the user had written it."""
        ...

    def give_back(self, text: str) -> None:
        """Put a text that was not sent back where the user can change it."""
        ...

    def show_waiting(self, texts: tuple[str, ...], *, held: bool) -> None:
        """Show the texts that wait; `held`: for a message of the user's, no turn being there to take them."""
        ...

    def forget_waiting(self) -> None:
        """The conversation goes on elsewhere: what waited for a step there goes back to the prompt."""
        ...

    async def pictures(self, text: str) -> "tuple[Image, ...]":
        """The pictures that a text names; what cannot be sent is told."""
        ...

    # Work

    def run_worker(
        self,
        work: "Coroutine[None, None, None]",
        name: str | None = "",
        group: str = "default",
        *,
        exit_on_error: bool = True,
        exclusive: bool = False,
    ) -> object:
        """Do something beside the keys; `exclusive`: in place of what is done in the same group."""
        ...

    def working(self, what: str) -> None:
        """Say in the status bar what is going on beside turns; nothing: it is over."""
        ...

    async def until_stopped(self, work: "Coroutine[None, None, None]") -> bool:
        """Do what Esc may stop; whether it was done."""
        ...

    # For commands

    async def run_command(self, text: str) -> None:
        """Do what `/name argument` says."""
        ...

    def action_help(self) -> None:
        """Show what can be pressed where the keyboard is now, and what can be typed."""
        ...

    async def keep(self, key: str, value: str) -> None:
        """Have a choice count at the next starts too."""
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

    def refuse(self, reason: str) -> None:
        """Leave the program: the settings do not allow what was asked for."""
        ...

    def quit(self) -> None:
        """Leave the program."""
        ...
