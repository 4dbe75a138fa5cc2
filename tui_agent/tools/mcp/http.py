"""A server that listens at an address: streamable HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tui_agent.settings import ToolServer
from tui_agent.tools.mcp.process import MOST_MESSAGE

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


@asynccontextmanager
async def listening(server: ToolServer) -> AsyncGenerator["TransportStreams", None]:
    """The streams of its messages, as the SDK's client takes them."""
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with (
        create_mcp_http_client(headers=server.headers or None) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MOST_MESSAGE) as streams,
    ):
        yield streams
