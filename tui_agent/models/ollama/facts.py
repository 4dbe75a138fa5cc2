"""Reads Ollama's information on a model: its longest context, its capabilities, and the context it is loaded with."""

import msgspec


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
