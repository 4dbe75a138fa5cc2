"""Where Ollama listens, and which models it has."""

import os
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tui_agent.models.address import is_local
from tui_agent.models.base import OnHand
from tui_agent.models.ollama.facts import OllamaFacts, read_facts

if TYPE_CHECKING:
    import httpx

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
    size: int = 0
    capabilities: list[str] | None = None

    @property
    def id(self) -> str:
        return self.model or self.name

    def can(self, capability: str) -> bool | None:
        """Whether it has a capability; None where an older server does not tell."""
        return None if self.capabilities is None else capability in self.capabilities


class _Process(msgspec.Struct):
    name: str = ""
    context_length: int = 0


class _Processes(msgspec.Struct):
    models: list[_Process] = []


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
    return [each.id for each in models_on_hand(configured)]


def models_on_hand(configured: str = "", budget: int = 0) -> list[OnHand]:
    """The models Ollama has and a conversation can be held with; as `pulled_models`, and two seconds more.

    With a `budget`, in tokens, each with its window: what is loaded, else its longest context within the budget.
    """
    try:
        address = address_of(configured)
        socket.create_connection((address.host, address.port), PROBE_TIMEOUT_S).close()
    except (OSError, ValueError):
        return []
    import httpx

    try:
        with httpx.Client(base_url=address.url, timeout=LIST_TIMEOUT_S, trust_env=not address.local) as client:
            listed = msgspec.convert(client.get("/api/tags").raise_for_status().json(), _Models).models
            talking = [each for each in listed if each.id and each.can("completion") is not False]
            if not budget:
                return [OnHand(each.id) for each in talking]
            loaded = {
                each.name: each.context_length
                for each in msgspec.convert(client.get("/api/ps").raise_for_status().json(), _Processes).models
            }
            until = monotonic() + LIST_TIMEOUT_S
            return [_described(client, each, loaded.get(each.id), budget, until) for each in talking]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return []


def _described(client: "httpx.Client", listed: _Listed, loaded: int | None, budget: int, until: float) -> OnHand:
    """A model with all Ollama tells; after `until`, on the monotonic clock, without asking for more."""
    facts = OllamaFacts()
    if monotonic() < until:
        shown = client.post("/api/show", json={"model": listed.id})
        facts = read_facts(shown.json(), listed.id) if shown.is_success else facts
    longest = facts.longest if facts.remote else min(facts.longest, budget)
    return OnHand(
        listed.id,
        size=listed.size,
        window=loaded or longest,
        loaded=loaded is not None,
        tools=listed.can("tools"),
        images=listed.can("vision"),
    )


def names_in(listing: object, capability: str = "completion") -> list[str]:
    """The models that have a capability in what ``/api/tags`` told; older servers do not tell them, so all.

    Raises `msgspec.ValidationError`, a ValueError, where it is no such listing.
    """
    listed = msgspec.convert(listing, _Models).models
    return [each.id for each in listed if each.id and each.can(capability) is not False]
