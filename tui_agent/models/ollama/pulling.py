"""Downloads models with Ollama."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2
import msgspec

from tui_agent.models.base import ConnectionLost, ModelError, PullProgress, UnknownModel
from tui_agent.models.errors import ServerRefusedError, WrongServerError, bad_address, plain
from tui_agent.models.http import HttpClient
from tui_agent.models.ollama.address import address_of
from tui_agent.models.ollama.errors import not_running
from tui_agent.models.ollama.reply import parsed_line
from tui_agent.models.provider import Provider

IDLE_TIMEOUT_S = 120.0
"""Seconds without a line from Ollama, which verifies what it has downloaded without reporting progress."""


class _Line(msgspec.Struct):
    status: str = ""
    digest: str = ""
    total: int = 0
    completed: int = 0


async def pulling(provider: Provider, model: str, configured: str = "") -> AsyncGenerator[PullProgress, None]:
    """Download a model, and yield the progress of all its parts after each line from Ollama.

    If stopped, the downloaded parts are kept. Raises `ModelError`.
    """
    try:
        address = address_of(configured)
    except ValueError as error:
        raise bad_address(provider, str(error)) from error
    client = HttpClient(address, os.environ.get("OLLAMA_API_KEY", ""), IDLE_TIMEOUT_S)
    parts: dict[str, _Line] = {}
    broke = ModelError(f"The download of {plain(model)} broke off. Try again: it resumes where it was.")
    finished = False
    try:
        async with aclosing(client.lines("/api/pull", msgspec.json.encode({"model": model, "stream": True}))) as lines:
            async for raw in lines:
                line = msgspec.convert(parsed_line(raw), _Line)
                if line.digest and line.total:
                    parts[line.digest] = line
                finished = line.status == "success"
                done = sum(each.completed for each in parts.values())
                yield PullProgress(plain(line.status), done, sum(each.total for each in parts.values()))
    except ServerRefusedError as error:
        raise UnknownModel(f"Ollama cannot get {plain(model)}: {plain(error.refusal.text)}") from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout, ConnectionError) as error:
        raise ConnectionLost(not_running(address)) from error
    except (httpx2.HTTPError, WrongServerError, ValueError) as error:
        raise broke from error
    finally:
        await client.close()
    if not finished:
        raise broke
