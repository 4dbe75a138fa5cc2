"""What fits: the window, what is fixed in it, the room kept for the answer, and what remains for the conversation."""

from typing import Literal, NamedTuple, TypeAlias

from tui_agent.settings import Context

WindowSource: TypeAlias = Literal["setting", "provider", "catalogue", "default", "unknown"]


class Window(NamedTuple):
    """A model's input capacity in tokens (0: unknown) and who told it."""

    tokens: int
    source: WindowSource


class Budget(NamedTuple):
    """All in tokens. `window` is the model's input capacity (0: unknown), `fixed` the system prompt and tool
    definitions, `reserve` the room kept for one answer.

    Where the window is unknown, `max_context` limits the request in tokens or, being 0 too, `max_messages` in messages.
    """

    window: int
    fixed: int
    reserve: int
    max_context: int = 0
    max_messages: int = 0

    @property
    def known(self) -> bool:
        """Whether the window is known."""
        return self.window > 0

    @property
    def limit(self) -> int:
        """The largest request that may be sent; where the window is unknown, the largest one wanted (0: any)."""
        return self.window - self.reserve if self.known else self.max_context

    @property
    def history(self) -> int:
        """What remains for the conversation."""
        return max(0, self.limit - self.fixed)

    def fits(self, tokens: int) -> bool:
        """Whether a request of this size may be sent; of an unknown window it always may be tried."""
        return not self.known or tokens <= self.limit


def resolve_window(settings: Context, *, provider: int = 0, catalogue: int = 0) -> Window:
    """The window in force: the setting, else what the provider says, else the catalogue, else the default.

    `provider` and `catalogue` are in tokens, 0 where they do not know. A setting of -1 means: unknown.
    """
    if settings.context_window < 0:
        return Window(0, "unknown")
    told: tuple[tuple[int, WindowSource], ...] = (
        (settings.context_window, "setting"),
        (provider, "provider"),
        (catalogue, "catalogue"),
    )
    for tokens, source in told:
        if tokens > 0:
            return Window(tokens, source)
    return Window(settings.default_window, "default")


def budget(window: int, fixed: int, max_tokens: int, *, max_share: float = 0.25) -> Budget:
    """The budget of a known window; the reserve is `max_tokens`, at most `max_share` of the window."""
    return Budget(window, fixed, min(max_tokens, int(window * max_share)))


def budget_of(settings: Context, window: Window, fixed: int, *, max_output: int = 0) -> Budget:
    """The budget under these settings; `max_output` is the longest answer the model can give (0: unknown)."""
    most = min(settings.max_tokens, max_output) if max_output > 0 else settings.max_tokens
    if window.tokens > 0:
        return budget(window.tokens, fixed, most, max_share=settings.max_tokens_share)
    return Budget(0, fixed, most, settings.max_context_tokens, settings.max_messages)
