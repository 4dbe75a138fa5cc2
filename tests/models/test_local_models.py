"""What local servers have, and having one download more."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from tests.models.talking import provider_of
from tests.servers.catalogue import COMPATIBLE
from tests.servers.ollama import OllamaServer
from tests.servers.openai_chat import ChatServer
from tests.servers.running import in_thread
from tests.servers.script import Script
from tests.tui.app_of_parts import OFFLINE, project_of_parts, send, until
from tui_agent.models.base import InstalledModel, LocalModels, ModelError, PullProgress, UnknownModel
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.ollama.adapter import pulling
from tui_agent.models.records import OLLAMA
from tui_agent.settings import Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.commands.models import model_options, pull_text
from tui_agent.tui.dialogs.pickers import PickerScreen

LOCAL = LocalModels(window=32_768)


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> OllamaServer:
    server = OllamaServer(Script())
    server.loads.append(("gemma4:12b", 9_000))
    return server


def test_ollama_tells_what_its_models_are_and_which_is_loaded(
    ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(ollama) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        found = {each.id: each for each in provider_of("ollama:x").installed(LOCAL)}
        assert found["qwen3:8b"] == InstalledModel("qwen3:8b", 4_700_000_000, 32_768, False, True, False)
        assert found["gemma4:12b"] == InstalledModel("gemma4:12b", 4_700_000_000, 9_000, True, True, True)
        assert found["tinyllama:latest"].tools is False
        told = {option.value: option.description for option in model_options("offline", Settings())}
    assert told["ollama:gemma4:12b"].split() == ["4.7", "GB", "9.0k", "loaded,", "tools,", "vision"]
    assert told["ollama:tinyllama:latest"].endswith("no tools")


def test_llama_cpp_tells_the_window_it_was_loaded_with(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(ChatServer(Script(), make="llamacpp")) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        (found, *_) = [each for each in CATALOGUE.known_models(local=LOCAL) if each.provider == "llamacpp"]
    assert found.loaded
    assert found.window > 0
    assert found.source == "provider"


def test_what_runs_here_is_offered_first_and_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = dataclasses.replace(COMPATIBLE[0], id="/home/x/.cache/models/SmolLM2-135M.gguf")
    serving = ChatServer(Script(), make="vllm")
    serving.models = {file.id: file}
    with in_thread(serving) as server:
        monkeypatch.setenv("VLLM_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("VLLM_API_KEY", server.api_key)
        told = model_options("offline:offline", Settings())
    assert told[2].label == "Local models (vLLM)"
    assert (told[3].label, told[3].value) == ("vllm:SmolLM2-135M.gguf", f"vllm:{file.id}")


async def test_a_download_tells_how_far_it_is(ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(ollama) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        told = [each async for each in pulling(OLLAMA, "qwen3:4b")]
        assert [each.done for each in told if each.total] == [*range(0, 2_000_000_001, 500_000_000), *[2 * 10**9] * 2]
        assert "qwen3:4b" in [each.id for each in provider_of("ollama:x").installed(LOCAL)]
        with pytest.raises(UnknownModel, match="cannot get no-such-model: pull model manifest"):
            _ = [each async for each in pulling(OLLAMA, "no-such-model")]
    with pytest.raises(ModelError, match="ollama serve"):
        _ = [each async for each in pulling(OLLAMA, "qwen3:4b")]


def test_a_download_is_shown_as_a_bar_of_fixed_width() -> None:
    texts = [pull_text("qwen3:4b", PullProgress("pulling", part * 500_000_000, 2_000_000_000)) for part in range(5)]
    assert len({len(text) for text in texts}) == 1
    assert texts[2] == "qwen3:4b ████░░░░  50% of 2.0 GB"
    assert pull_text("qwen3:4b", PullProgress("pulling manifest")) == "qwen3:4b: pulling manifest"


async def test_esc_stops_a_download_and_says_what_is_here(
    ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 0)
    ollama.slow_pull = True
    with in_thread(ollama) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        app = TuiAgent(arguments, OFFLINE)
        async with app.run_test() as pilot:
            await until(pilot, lambda: app.status.status.model)
            await send(app, pilot, "/model ollama:qwen3:4b")
            await until(pilot, lambda: isinstance(app.screen, PickerScreen))
            await pilot.press("enter")
            await until(pilot, lambda: "25%" in app.status.status.activity)
            await pilot.press("escape")
            await until(pilot, lambda: not app.status.status.activity)
            told = app.pane.transcript.blocks[-1].plain_text
            assert await asyncio.to_thread(server.pull_left.wait, 60)
    assert "The download of qwen3:4b is stopped" in told
    assert "0.5 of 2.0 GB are here" in told
    assert "/model ollama:qwen3:4b resumes it" in told
