"""Reading what was too large for the conversation, in an agent that has tools but none that reads files."""

from collections.abc import Awaitable, Callable

from typing_extensions import override

from tui_agent.tools.base import ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.built_in import BuiltIn

PAGE = 12_000
"""The most characters of one answer."""


class ReadStored(BuiltIn):
    """Answers the ``read_file`` that stands in the notices of cut results. `read` returns a stored text by its path,
    and None if there is none; it may raise `ToolFailure`.
    """

    name = "read_file"

    def __init__(self, read: Callable[[str], Awaitable[str | None]]) -> None:
        super().__init__()
        self._stored = read

    @override
    async def _do(self, _context: ToolContext, /, path: str, offset: int = 0) -> ToolOutput:
        """Read a result that was too large for the conversation, at most 12,000 characters at a time.

        Args:
            path: The path that stands in the place of the result.
            offset: The character to begin at, counted from 0.
        """
        text = await self._stored(path)
        if text is None:
            raise ToolFailure(f"No result is stored at {path}.", "Use a path that stands in the place of a result.")
        if not 0 <= offset < max(1, len(text)):
            raise ToolFailure(f"The text has {len(text):,} characters.", "Give an offset within it.")
        end = offset + len(text[offset : offset + PAGE])
        more = (
            f"\n[Characters {offset:,} to {end:,} of {len(text):,}; offset={end} goes on.]" if end < len(text) else ""
        )
        return ToolOutput(text[offset:end] + more)
