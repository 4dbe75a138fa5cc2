"""The servers of providers that sessions talk to, by the provider's name."""

from typing import Protocol, TypeVar

import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.script import ParsedRequest, ScriptSource
from tests.servers.server import ProtocolServer

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
PROVIDERS = pytest.mark.parametrize("provider", MODELS)
OPUS = {"model.id": MODELS["anthropic"]}

_Server = TypeVar("_Server", bound=ProtocolServer)


class Serve(Protocol):
    """Runs a server to the end of the test, as the one that the provider's SDK asks. No rule may be broken there by
    then, unless `may_break` is given.
    """

    def __call__(self, server: _Server, *, may_break: bool = False) -> _Server: ...


def serving(provider: str, script: ScriptSource, window: int | None = None) -> ProtocolServer:
    """The provider's server, its model with a window of so many tokens."""
    made = AnthropicServer if provider == "anthropic" else GeminiServer
    return made(script, windows={MODELS[provider]: window} if window else None)


def is_subtask(request: ParsedRequest) -> bool:
    return "on behalf of another agent" in request.system
