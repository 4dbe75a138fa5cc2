"""What Ollama tells of a model: its longest context, what it can do, and how it is loaded."""

from typing import NamedTuple

import msgspec


class OllamaFacts(NamedTuple):
    """`longest`: the largest context the model was made for, in tokens (0: not told). `capabilities`: None where an
    older server tells none. `remote`: it runs in Ollama's cloud, whose context is not ours to size.
    """

    longest: int = 0
    capabilities: frozenset[str] | None = None
    remote: bool = False

    def can(self, capability: str, unknown: bool = True) -> bool:
        """Whether the model has a capability; `unknown` where that is not told."""
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
    """Whether a name is one of a model in Ollama's cloud (``gpt-oss:120b-cloud``)."""
    return model.endswith(("-cloud", ":cloud"))


def read_facts(shown: object, model: str) -> OllamaFacts:
    """The facts in an answer of ``/api/show``. Raises `msgspec.ValidationError` where it is none."""
    told = msgspec.convert(shown, _Shown)
    info = told.model_info or {}
    own = f"{info.get('general.architecture')}.context_length"
    longest = info.get(own) or next((info[key] for key in info if key.endswith(".context_length")), 0)
    return OllamaFacts(
        longest if isinstance(longest, int) and longest > 0 else 0,
        frozenset(told.capabilities) if told.capabilities is not None else None,
        bool(told.remote_host) or is_remote(model),
    )


def loaded_context(processes: object, model: str) -> int:
    """The context, in tokens, a model is loaded with by an answer of ``/api/ps``; 0 where it does not tell.

    Raises `msgspec.ValidationError` where it is none.
    """
    names = {model, model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"}
    running = msgspec.convert(processes, _Processes).models
    return next((each.context_length for each in running if names & {each.name, each.model}), 0)
