"""Random walks through a session: turns, context steps, branches, kills; no rule is broken and nothing is lost."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.agent.walks import MODELS, WINDOW, Walk, answering, go, material, musing
from tests.reports.test_atif import valid_trajectories
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.openai_chat import ChatServer
from tests.servers.openai_responses import ResponsesServer
from tests.servers.running import in_thread
from tests.servers.sdk_types import unknown_to_the_sdk
from tests.servers.server import ProtocolServer

SERVERS: dict[str, Callable[..., ProtocolServer]] = {
    "anthropic": AnthropicServer,
    "gemini": GeminiServer,
    "responses": ResponsesServer,
    "vllm": partial(ChatServer, make="vllm"),
}
PARTS, WALKS, STEPS = 1, 3, 4
"""Walks of a part, and parts of each provider: 12 walks in all."""
SOAK_PARTS, SOAK_WALKS, SOAK_STEPS = 10, 30, 25


def walks(provider: str, seeds: range, steps: int, folder: Path, *, signed: bool = False) -> None:
    """Walk. `signed`: the provider writes and signs summaries, and there is thinking that these keep."""
    windows = {name.partition(":")[2] or name: WINDOW for name in MODELS[provider]}
    with in_thread(SERVERS[provider](musing if signed else answering, windows=windows)) as server:
        if isinstance(server, AnthropicServer):
            server.compacts = signed
        for seed in seeds:
            walk = Walk(folder / str(seed), provider, seed, steps)
            material(walk.folder / "project")
            go(walk, server.environment)
            assert server.violations == [], f"seed {seed}"
            valid_trajectories(walk.folder / "home")
            assert server.dropped_thinking == [], f"seed {seed}"
            # Each holds most of the one before it, and checking takes a while.
            assert [found for each in server.requests[-1::-20] for found in unknown_to_the_sdk(each)] == [], seed


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("provider", MODELS)
def test_short_walks(provider: str, part: int, tmp_path: Path) -> None:
    walks(provider, range(part * WALKS, (part + 1) * WALKS), STEPS, tmp_path)


def test_short_walks_with_signed_summaries(tmp_path: Path) -> None:
    walks("anthropic", range(WALKS), 2 * STEPS, tmp_path, signed=True)


@pytest.mark.parametrize(("provider", "seed"), [("anthropic", 1225), ("responses", 1144)])
def test_walks_that_failed_once(provider: str, seed: int, tmp_path: Path) -> None:
    walks(provider, range(seed, seed + 1), SOAK_STEPS, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
@pytest.mark.parametrize("provider", MODELS)
def test_long_walks(provider: str, part: int, tmp_path: Path) -> None:
    first = 1_000 + part * SOAK_WALKS
    walks(provider, range(first, first + SOAK_WALKS), SOAK_STEPS, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_long_walks_with_signed_summaries(part: int, tmp_path: Path) -> None:
    first = 2_000 + part * SOAK_WALKS
    walks("anthropic", range(first, first + SOAK_WALKS), SOAK_STEPS, tmp_path, signed=True)
