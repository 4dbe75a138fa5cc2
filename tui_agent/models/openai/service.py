"""The servers that speak one of OpenAI's APIs: where they are, and in what they differ."""

import os
from typing import Literal, NamedTuple, TypeAlias

from tui_agent.models.address import host_of, is_local
from tui_agent.settings.schema import Endpoint

Api: TypeAlias = Literal["chat", "responses"]
Thoughts: TypeAlias = Literal["dropped", "content", "details"]

OPENAI_HOSTS = (".openai.com", ".azure.com")


class Service(NamedTuple):
    """A server. `address` is the variable that names another one; `root` is where it stands without ``/v1``.

    `thoughts`: earlier reasoning is left out of a request, goes back as ``reasoning_content`` (DeepSeek, llama.cpp),
    or as the ``reasoning_details`` that came (OpenRouter). `local`: it runs on a machine of one's own, with the window
    it was loaded with. `limit`: what a request calls the most tokens of the answer.
    """

    id: str
    title: str
    label: str
    url: str
    key: str = ""
    address: str = ""
    keys_at: str = ""
    catalogue: str = ""
    api: Api = "chat"
    thoughts: Thoughts = "dropped"
    local: bool = False
    limit: str = "max_tokens"
    setting: str = ""


OPENAI = Service(
    id="openai",
    title="OpenAI",
    label="GPT (OpenAI)",
    url="https://api.openai.com/v1",
    key="OPENAI_API_KEY",
    address="OPENAI_BASE_URL",
    keys_at="https://platform.openai.com/api-keys",
    catalogue="openai",
    api="responses",
    limit="max_completion_tokens",
)

OTHERS = (
    Service(
        id="openrouter",
        title="OpenRouter",
        label="OpenRouter",
        url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        address="OPENROUTER_BASE_URL",
        keys_at="https://openrouter.ai/settings/keys",
        catalogue="openrouter",
        thoughts="details",
    ),
    Service(
        id="groq",
        title="Groq",
        label="Groq",
        url="https://api.groq.com/openai/v1",
        key="GROQ_API_KEY",
        address="GROQ_BASE_URL",
        keys_at="https://console.groq.com/keys",
        catalogue="groq",
    ),
    Service(
        id="deepseek",
        title="DeepSeek",
        label="DeepSeek",
        url="https://api.deepseek.com/v1",
        key="DEEPSEEK_API_KEY",
        address="DEEPSEEK_BASE_URL",
        keys_at="https://platform.deepseek.com/api_keys",
        catalogue="deepseek",
        thoughts="content",
    ),
    Service(
        id="llamacpp",
        title="llama.cpp",
        label="Local models (llama.cpp's llama-server)",
        url="http://127.0.0.1:8080/v1",
        key="LLAMA_API_KEY",
        address="LLAMACPP_BASE_URL",
        thoughts="content",
        local=True,
    ),
    Service(
        id="lmstudio",
        title="LM Studio",
        label="Local models (LM Studio)",
        url="http://127.0.0.1:1234/v1",
        key="LMSTUDIO_API_KEY",
        address="LMSTUDIO_BASE_URL",
        local=True,
    ),
    Service(
        id="vllm",
        title="vLLM",
        label="Local models (vLLM)",
        url="http://127.0.0.1:8000/v1",
        key="VLLM_API_KEY",
        address="VLLM_BASE_URL",
        local=True,
    ),
)


def of_endpoint(name: str, endpoint: Endpoint) -> Service:
    """The server of an endpoint that the settings name."""
    return Service(
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


def addressed(service: Service) -> Service:
    """The server as the variables have it now.

    Another address in OpenAI's place is a server of another make: that speaks Chat Completions, and has its own prices.
    """
    url = os.environ.get(service.address, "").strip() if service.address else ""
    if not url:
        return service
    host = host_of(url)
    if service.api == "responses" and not f".{host}".endswith(OPENAI_HOSTS):
        return service._replace(url=url, api="chat", catalogue="", local=is_local(host), limit="max_tokens")
    return service._replace(url=url)


def root(service: Service) -> str:
    """Where the server stands: some answer for themselves beside the API."""
    return service.url.rstrip("/").removesuffix("/v1")
