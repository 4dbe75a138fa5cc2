"""Where Ollama listens, and which models it has."""

import os
import socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tui_agent.models.address import is_local

VARIABLE: Final = "OLLAMA_HOST"
DEFAULT_PORT: Final = 11434
PROBE_TIMEOUT_S = 0.25
LIST_TIMEOUT_S = 1.5


class Address(NamedTuple):
    """A server's address. `local`: it is this machine, so no proxy is asked."""

    url: str
    host: str
    port: int
    local: bool


class _Listed(msgspec.Struct):
    name: str = ""
    model: str = ""
    capabilities: list[str] | None = None


class _Models(msgspec.Struct):
    models: list[_Listed] = []


def address_of(configured: str = "") -> Address:
    """The address in ``OLLAMA_HOST``, else the `configured` one, else this machine's. Raises ValueError for none.

    As Ollama reads it (its FAQ): scheme, port and path may be left out. ``0.0.0.0``, which a server is told to listen
    on, is asked for on this machine.
    """
    given = (os.environ.get(VARIABLE, "").strip() or configured.strip()).rstrip("/")
    scheme, separator, rest = given.partition("://")
    if not separator:
        scheme, rest = "http", given
    if scheme not in ("http", "https"):
        raise ValueError(f"{scheme} is neither http nor https")
    parts = urlsplit(f"{scheme}://{rest}")
    host = parts.hostname or "127.0.0.1"
    port = parts.port or ({"http": 80, "https": 443}[scheme] if separator else DEFAULT_PORT)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (read, not listened on)
    shown = f"[{host}]" if ":" in host else host
    return Address(f"{scheme}://{shown}:{port}{parts.path}", host, port, is_local(host))


def pulled_models(configured: str = "") -> list[str]:
    """The names of the models Ollama has and a conversation can be held with; none where it does not answer at once.

    Blocks for at most two seconds, and hardly at all where nothing listens: call it in a thread.
    """
    try:
        address = address_of(configured)
        socket.create_connection((address.host, address.port), PROBE_TIMEOUT_S).close()
    except (OSError, ValueError):
        return []
    import httpx

    try:
        answer = httpx.get(f"{address.url}/api/tags", timeout=LIST_TIMEOUT_S, trust_env=not address.local)
        return names_in(answer.raise_for_status().json())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return []


def names_in(listing: object, capability: str = "completion") -> list[str]:
    """The models that have a capability in what ``/api/tags`` told; older servers do not tell them, so all.

    Raises `msgspec.ValidationError`, a ValueError, where it is no such listing.
    """
    listed = msgspec.convert(listing, _Models).models
    return [
        name
        for each in listed
        if (name := each.model or each.name) and (each.capabilities is None or capability in each.capabilities)
    ]
