"""Ollama's address, the models it has, and what it says of each."""

import os
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from tui_agent.models.base import InstalledModel

if TYPE_CHECKING:
    import httpx2

OLLAMA_HOST: Final = "OLLAMA_HOST"
DEFAULT_PORT: Final = 11434


class OllamaFacts(msgspec.Struct, frozen=True):
    """`longest`: the largest context the model supports, in tokens (0: unknown). `capabilities`: None if the server is
    too old to say. `remote`: it runs in Ollama's cloud, where we cannot choose the context size.
    """

    longest: int = 0
    capabilities: frozenset[str] | None = None
    remote: bool = False

    def can(self, capability: str, unknown: bool = True) -> bool:
        """Whether the model has a capability; `unknown` if the server does not say."""
        return unknown if self.capabilities is None else capability in self.capabilities


class _Shown(msgspec.Struct):
    model_info: dict[str, object] | None = None
    capabilities: list[str] | None = None
    remote_host: str = ""


class _Running(msgspec.Struct):
    name: str = ""
    model: str = ""
    context_length: int = 0


class _Processes(msgspec.Struct):
    models: list[_Running] = []


class _Listed(msgspec.Struct):
    name: str = ""
    model: str = ""
    size: int = 0
    capabilities: list[str] | None = None

    @property
    def id(self) -> str:
        return self.model or self.name

    def can(self, capability: str) -> bool | None:
        """Whether it has a capability; None if the server is too old to say."""
        return None if self.capabilities is None else capability in self.capabilities


class _Models(msgspec.Struct):
    models: list[_Listed] = []


def address_of(configured: str = "") -> str:
    """The address in ``OLLAMA_HOST``, else the `configured` one, else this machine's. Raises ValueError if invalid.

    Parsed as Ollama does (its FAQ): scheme, port and path are optional. ``0.0.0.0``, which servers use to listen,
    becomes this machine's address.
    """
    given = (os.environ.get(OLLAMA_HOST, "").strip() or configured.strip()).rstrip("/")
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
    return f"{scheme}://{shown}:{port}{parts.path}"


def pulled_models(configured: str = "") -> list[str]:
    """The names of Ollama's chat models; none if it does not answer at once.

    Blocks for up to two seconds, so call it in a thread. Returns at once if nothing listens.
    """
    return [each.id for each in installed_models(configured)]


def installed_models(configured: str = "", budget: int = 0) -> list[InstalledModel]:
    """Ollama's chat models; as `pulled_models`, but may block for two seconds more.

    With a `budget` in tokens, each has its window: the context it is loaded with, else its longest within the budget.
    """
    from tui_agent.models.http import LIST_TIMEOUT_S, local_client

    try:
        with local_client(address_of(configured)) as client:
            listed = msgspec.convert(client.get("/api/tags").raise_for_status().json(), _Models).models
            talking = [each for each in listed if each.id and each.can("completion") is not False]
            if not budget:
                return [InstalledModel(each.id) for each in talking]
            loaded = {
                each.name: each.context_length for each in running(client.get("/api/ps").raise_for_status().json())
            }
            until = monotonic() + LIST_TIMEOUT_S
            return [_described(client, each, loaded.get(each.id), budget, until) for each in talking]
    except (OSError, ValueError):
        return []


def _described(
    client: "httpx2.Client", listed: _Listed, loaded: int | None, budget: int, until: float
) -> InstalledModel:
    """A model with its details; after `until`, on the monotonic clock, only those already known."""
    facts = OllamaFacts()
    if monotonic() < until:
        shown = client.post("/api/show", json={"model": listed.id})
        facts = read_facts(shown.json(), listed.id) if shown.is_success else facts
    longest = facts.longest if facts.remote else min(facts.longest, budget)
    return InstalledModel(
        listed.id,
        size=listed.size,
        window=loaded or longest,
        loaded=loaded is not None,
        tools=listed.can("tools"),
        images=listed.can("vision"),
    )


def names_in(listing: object, capability: str = "completion") -> list[str]:
    """The models with a capability in an answer of ``/api/tags``; all of them if the server is too old to say.

    Raises `msgspec.ValidationError`, a ValueError, if the answer is malformed.
    """
    listed = msgspec.convert(listing, _Models).models
    return [each.id for each in listed if each.id and each.can(capability) is not False]


def is_remote(model: str) -> bool:
    """Whether a name is that of a model in Ollama's cloud (``gpt-oss:120b-cloud``)."""
    return model.endswith(("-cloud", ":cloud"))


def read_facts(shown: object, model: str) -> OllamaFacts:
    """Parse an answer of ``/api/show``. Raises `msgspec.ValidationError`."""
    described = msgspec.convert(shown, _Shown)
    info = described.model_info or {}
    own = f"{info.get('general.architecture')}.context_length"
    longest = info.get(own) or next((info[key] for key in info if key.endswith(".context_length")), 0)
    return OllamaFacts(
        longest if isinstance(longest, int) and longest > 0 else 0,
        frozenset(described.capabilities) if described.capabilities is not None else None,
        bool(described.remote_host) or is_remote(model),
    )


def running(processes: object) -> list[_Running]:
    """The models that are loaded, in an answer of ``/api/ps``. Raises `msgspec.ValidationError`."""
    return msgspec.convert(processes, _Processes).models


def loaded_context(processes: object, model: str) -> int:
    """The context a model is loaded with, in tokens, from an answer of ``/api/ps``; 0 if unknown.

    Raises `msgspec.ValidationError` if the answer is malformed.
    """
    names = {model, model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"}
    return next((each.context_length for each in running(processes) if names & {each.name, each.model}), 0)
