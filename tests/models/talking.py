"""What the tests of all providers share: a conversation held through a `Model`, step by step."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.ollama import OllamaServer
from tests.servers.openai_chat import ChatServer, Make
from tests.servers.openai_responses import ENDPOINT, ResponsesServer
from tests.servers.pictures import PNG as ONE_PIXEL
from tests.servers.script import ScriptSource
from tests.servers.server import ProtocolServer
from tests.servers.wire import Handler, HttpServer
from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.models.base import THIS_MACHINE, Completed, LocalModels, Model, StreamEvent
from tui_agent.models.catalogue import CATALOGUE, Catalogue
from tui_agent.models.provider import Provider
from tui_agent.settings.schema import Endpoint

Server = AnthropicServer | GeminiServer | ChatServer | OllamaServer

PNG = Image("image/png", ONE_PIXEL)
SCHEMA = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
NAMES = ("read_file", "grep", "list_dir", "edit_file", "run_command")
TOOLS = tuple(ToolDefinition(name, f"The {name} tool.", SCHEMA) for name in NAMES)


def speaking(make: Make) -> Callable[[ScriptSource], ChatServer]:
    """A server of Chat Completions of one make."""
    return lambda script: ChatServer(script, make=make)


MODELS: dict[str, Callable[[ScriptSource], Server]] = {
    "claude-opus-5-5": AnthropicServer,
    "claude-sonnet-5-5": AnthropicServer,
    "claude-haiku-5-5": AnthropicServer,
    "claude-opus-4-7": AnthropicServer,
    "claude-sonnet-4-6": AnthropicServer,
    "claude-haiku-4-5": AnthropicServer,
    "gemini-3.8-flash": GeminiServer,
    "gemini-3.1-pro-preview": GeminiServer,
    "gemini-2.5-pro": GeminiServer,
    "responses:gpt-6.1-sol": ResponsesServer,
    "responses:gpt-4.1": ResponsesServer,
    "openai:gpt-4.1": speaking("vllm"),
    "deepseek:deepseek-v4-pro": speaking("deepseek"),
    "openrouter:qwen/qwen3-coder": speaking("openrouter"),
    "groq:qwen/qwen3-coder": speaking("groq"),
    "llamacpp:deepseek-v4-pro": speaking("llamacpp"),
    "lmstudio:qwen/qwen3-coder": speaking("lmstudio"),
    "vllm:qwen/qwen3-coder": speaking("vllm"),
    "ollama:qwen3:8b": OllamaServer,
}
HOSTED = ("claude-opus-5-5", "gemini-3.8-flash", "responses:gpt-6.1-sol", "deepseek:deepseek-v4-pro")
ONE_EACH = (*HOSTED, "ollama:qwen3:8b")
"""A model of each protocol; those that are hosted want a key, know limits of use, and have a cache."""


_named: list[Catalogue] = [CATALOGUE]
"""The package's models, and the endpoint that a test named last."""


def name_endpoint(name: str, url: str) -> None:
    """From here on models of an endpoint that speaks the Responses API may be created too."""
    _named[0] = Catalogue({name: Endpoint(url=url, key="OPENAI_API_KEY", api="responses")})


def forget_endpoints() -> None:
    """There is no endpoint any more."""
    _named[0] = CATALOGUE


def create_model(name: str, local: LocalModels = THIS_MACHINE, effort: str = "") -> Model:
    """The model behind a name, an endpoint's too."""
    return _named[0].create_model(name, local=local, effort=effort)


def provider_of(name: str) -> Provider:
    """Who serves the model of this name, an endpoint too."""
    return _named[0].provider_of(name)


def point_at(server: ProtocolServer, set_variable: Callable[[str, str], None]) -> None:
    """Let what is asked next be asked of this server."""
    for variable, value in server.environment.items():
        set_variable(variable, value)
    if isinstance(server, ResponsesServer):
        name_endpoint(ENDPOINT, f"{server.url}/v1")
    elif isinstance(server, ChatServer) and server.make == "vllm":
        set_variable("OPENAI_API_KEY", server.api_key)
        set_variable("OPENAI_BASE_URL", f"{server.url}/v1")


def user(*blocks: Block | str) -> RequestMessage:
    return RequestMessage("user", tuple(Text(block) if isinstance(block, str) else block for block in blocks))


def assistant(*blocks: Block | str) -> RequestMessage:
    return RequestMessage("assistant", tuple(Text(block) if isinstance(block, str) else block for block in blocks))


def request(*messages: RequestMessage, **fields: Any) -> ModelRequest:
    options: dict[str, Any] = {"system": "You help.", "tools": TOOLS, "max_tokens": 16_384, **fields}
    return ModelRequest(messages=messages, **options)


@asynccontextmanager
async def closing(model: Model) -> AsyncIterator[Model]:
    """A model whose connections end with the block."""
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def answered_by(handler: Handler, name: str, set_variable: Callable[[str, str], None]) -> AsyncIterator[Model]:
    """The model of this name, with a key, at a server that this handler answers for. ``mine:…`` is of an endpoint."""
    server = HttpServer(handler)
    address = f"http://127.0.0.1:{await server.listen()}"
    if name.startswith("mine:"):
        name_endpoint("mine", f"{address}/v1")
    provider = provider_of(name)
    for key in provider.keys[:1]:
        set_variable(key, "test-key")
    for variable in provider.addresses[:1]:
        with_root = provider.id not in ("anthropic", "bedrock", "gemini", "ollama")
        set_variable(variable, f"{address}/v1" if with_root else address)
    try:
        async with closing(create_model(name)) as model:
            yield model
    finally:
        await server.close()


async def finish(stream: AsyncIterator[StreamEvent]) -> tuple[list[StreamEvent], Completed]:
    """All events of a stream, and its last one."""
    events = [event async for event in stream]
    last = events[-1]
    assert isinstance(last, Completed)
    assert sum(isinstance(event, Completed) for event in events) == 1
    return events, last


def answer(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, f"done: {call.name}")


@dataclass
class Talk:
    """A conversation that grows; `requests` are the ones sent, `cache_edge` as a caller would set it."""

    model: Model
    messages: list[RequestMessage] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    answers: list[Completed] = field(default_factory=list)

    async def say(self, *blocks: Block | str, reply: Callable[[ToolCall], ToolResult] = answer) -> Completed:
        """Say something and go on until the model calls no more tools."""
        self.messages.append(user(*blocks))
        while True:
            edges = (len(self.requests[-1].messages) - 1,) if self.requests else ()
            asked = request(*self.messages, cache_edges=edges)
            self.requests.append(asked)
            _, completed = await finish(self.model.stream(asked))
            self.answers.append(completed)
            self.messages.append(assistant(*completed.blocks))
            calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
            if not calls:
                return completed
            self.messages.append(user(*map(reply, calls)))
