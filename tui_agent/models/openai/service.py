"""The servers with one of OpenAI's APIs: their addresses and differences."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.conversation.profile import Tier
from tui_agent.settings.schema import Endpoint
from tui_agent.system.network import host_of, is_local

Api: TypeAlias = Literal["chat", "responses"]
Thoughts: TypeAlias = Literal["dropped", "content", "details"]

CACHE_S = 300
"""Seconds a cached prefix lives after its last use (OpenAI, prompt caching: five to ten minutes)."""

OPENAI_HOSTS = (".openai.com", ".azure.com")


class OpenAiServer(msgspec.Struct, frozen=True):
    """A server. `address` is the environment variable that overrides its URL.

    `thoughts`: earlier reasoning is dropped, sent back as ``reasoning_content`` (DeepSeek, llama.cpp), or as the
    ``reasoning_details`` the server sent (OpenRouter). `local`: it runs on the user's own machines, with the window its
    model was loaded with. `limit`: the request's parameter for the most tokens of the answer. `listed`: a regular
    expression for the ids of the catalogue's models that can chat with tools. `described`: the path where a local
    server has more information on its models than in their list.
    """

    id: str
    title: str
    label: str
    url: str
    key: str = ""
    address: str = ""
    keys_page: str = ""
    catalogue: str = ""
    api: Api = "chat"
    thoughts: Thoughts = "dropped"
    local: bool = False
    limit: str = "max_tokens"
    setting: str = ""
    listed: str = ""
    described: str = ""
    tiers: Mapping[Tier, Sequence[str]] = {}


OPENAI = OpenAiServer(
    id="openai",
    title="OpenAI",
    label="GPT (OpenAI)",
    url="https://api.openai.com/v1",
    key="OPENAI_API_KEY",
    address="OPENAI_BASE_URL",
    keys_page="https://platform.openai.com/api-keys",
    catalogue="openai",
    api="responses",
    limit="max_completion_tokens",
    listed=r"(gpt-(5|[6-9])(?!.*(image|cyber|search|audio|rosalind|chat))|o[34])",
    tiers={
        "frontier": ("-sol", "-astra", "gpt-5*-pro"),
        "mid": ("-terra",),
        "small": ("-luna", "-mini", "-nano"),
    },
)

OTHERS = (
    OpenAiServer(
        id="openrouter",
        title="OpenRouter",
        label="OpenRouter",
        url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        address="OPENROUTER_BASE_URL",
        keys_page="https://openrouter.ai/settings/keys",
        catalogue="openrouter",
        thoughts="details",
    ),
    OpenAiServer(
        id="groq",
        title="Groq",
        label="Groq",
        url="https://api.groq.com/openai/v1",
        key="GROQ_API_KEY",
        address="GROQ_BASE_URL",
        keys_page="https://console.groq.com/keys",
        catalogue="groq",
        listed=r"(openai/gpt-oss|qwen/|moonshotai/|meta-llama/llama-4|llama-3\.[13]-)(?!.*guard)",
    ),
    OpenAiServer(
        id="deepseek",
        title="DeepSeek",
        label="DeepSeek",
        url="https://api.deepseek.com/v1",
        key="DEEPSEEK_API_KEY",
        address="DEEPSEEK_BASE_URL",
        keys_page="https://platform.deepseek.com/api_keys",
        catalogue="deepseek",
        listed=r"deepseek-(?!reasoner$)",
        thoughts="content",
    ),
    OpenAiServer(
        id="llamacpp",
        title="llama.cpp",
        label="Local models (llama.cpp's llama-server)",
        url="http://127.0.0.1:8080/v1",
        key="LLAMA_API_KEY",
        address="LLAMACPP_BASE_URL",
        described="/props",
        thoughts="content",
        local=True,
    ),
    OpenAiServer(
        id="lmstudio",
        title="LM Studio",
        label="Local models (LM Studio)",
        url="http://127.0.0.1:1234/v1",
        key="LMSTUDIO_API_KEY",
        address="LMSTUDIO_BASE_URL",
        described="/api/v0/models",
        local=True,
    ),
    OpenAiServer(
        id="vllm",
        title="vLLM",
        label="Local models (vLLM)",
        url="http://127.0.0.1:8000/v1",
        key="VLLM_API_KEY",
        address="VLLM_BASE_URL",
        local=True,
    ),
)


def of_endpoint(name: str, endpoint: Endpoint) -> OpenAiServer:
    """The server of an endpoint in the settings."""
    return OpenAiServer(
        id=name,
        title=name,
        label=f"{name} ({endpoint.url})",
        url=endpoint.url,
        key=endpoint.key,
        api=endpoint.api,
        thoughts="content" if endpoint.reasoning else "dropped",
        local=is_local(host_of(endpoint.url)),
        setting=f"models.endpoints.{name}.url",
    )


def addressed(service: OpenAiServer) -> OpenAiServer:
    """The server with the address in its environment variable, if that is set.

    At another address than OpenAI's is another kind of server: it gets Chat Completions and has no catalogue prices.
    """
    url = os.environ.get(service.address, "").strip() if service.address else ""
    if not url:
        return service
    host = host_of(url)
    if service.api == "responses" and not f".{host}".endswith(OPENAI_HOSTS):
        return structs.replace(service, url=url, api="chat", catalogue="", local=is_local(host), limit="max_tokens")
    return structs.replace(service, url=url)


def may_be_gateway(service: OpenAiServer) -> bool:
    """Whether the server may pass requests on to paid models: it is an endpoint, or takes a provider's place."""
    return bool(service.setting) or (service.id == OPENAI.id and not service.catalogue)


def root(service: OpenAiServer) -> str:
    """The server's URL without ``/v1``, where some servers have information beside the API."""
    return service.url.rstrip("/").removesuffix("/v1")
