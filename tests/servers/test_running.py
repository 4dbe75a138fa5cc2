"""Servers in a thread and in a process of their own; scripts and records as files; the cache's clock."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anthropic
import pytest
from google import genai
from google.genai import types

from tests.servers.anthropic import AnthropicServer
from tests.servers.cache import PromptCache, Segment
from tests.servers.coding_task import coding_task_script, make_coding_workspace
from tests.servers.recording import read_record
from tests.servers.running import in_process, in_thread
from tests.servers.script import Call, Fault, Script, Step, Turn

HELLO = Script.of(Step(text="Hello."))


def test_script_survives_a_file(tmp_path: Path) -> None:
    script = Script((Turn((Step(text="é", calls=(Call("a", {"b": [1]}),), fault=Fault(kind="stall")),), when="x"),))
    assert Script.load(script.save(tmp_path / "script.json")) == script
    assert Script.load(coding_task_script().save(tmp_path / "task.json")) == coding_task_script()


def test_turns_are_chosen_by_the_prompt() -> None:
    script = Script((Turn((Step(text="summary"),), when="Summarise"), Turn((Step(text="one"), Step(text="two")))))
    with in_thread(AnthropicServer(script)) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key=server.api_key, max_retries=0)

        def ask(*contents: str) -> str:
            roles = ["user", "assistant"] * len(contents)
            messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
            request = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": messages}
            answer = client.post("/v1/messages", cast_to=anthropic.types.Message, body=request)
            assert answer.content[0].type == "text"
            return answer.content[0].text

        assert ask("hi") == "one"
        assert ask("hi", "x", "Summarise this") == "summary"
        assert ask("Summarise", "x", "go on") == "one"
        assert server.violations == []


def test_process_records_for_a_client_that_dies(tmp_path: Path) -> None:
    with in_process("anthropic", tmp_path, Script.of(Step(text="word " * 400, delay=1.0))) as server:
        code = (
            "import anthropic\n"
            "with anthropic.Anthropic(max_retries=0).messages.stream(model='claude-opus-5-5', max_tokens=9000,"
            " messages=[{'role': 'user', 'content': 'hi'}]) as stream:\n"
            "    for event in stream: print(event.type, flush=True)\n"
        )
        client = subprocess.Popen(
            [sys.executable, "-c", code], env=server.environment, stdout=subprocess.PIPE, text=True
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "message_start\n"
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
        again = anthropic.Anthropic(base_url=server.url, api_key=server.api_key, max_retries=0)
        assert again.models.retrieve("claude-opus-5-5").max_tokens == 128_000
        assert [request.path for request in server.requests] == ["/v1/messages", "/v1/models/claude-opus-5-5"]
        assert server.violations == server.dropped_thinking == []
    assert server.record().requests[0].body.startswith(b"{")


def test_gemini_process_with_its_own_window(tmp_path: Path) -> None:
    with in_process("gemini", tmp_path, HELLO, windows={"gemini-2.5-pro": 50}) as server:
        options = types.HttpOptions(base_url=server.url, retry_options=types.HttpRetryOptions(attempts=1))
        client = genai.Client(api_key=server.api_key, http_options=options)
        with pytest.raises(genai.errors.ClientError, match=r"allowed \(50\)"):
            client.models.generate_content(model="gemini-2.5-pro", contents="a" * 300)
        chunks = list(client.models.generate_content_stream(model="gemini-2.5-pro", contents="hi"))
        assert chunks[0].text == "Hello."
        assert len(server.violations) == 1
        (answer,) = [answer for answer in server.record().answers if answer.outcome == "completed"]
        assert answer.usage["promptTokenCount"] > 0


def test_unfinished_line_of_a_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text('{"type": "violation", "text": "one"}\n{"type": "viol')
    assert read_record(path).violations == ["one"]
    assert read_record(tmp_path / "none").requests == []


def test_coding_workspace_has_the_bug(tmp_path: Path) -> None:
    workspace = make_coding_workspace(tmp_path / "work")
    # Compiled files are told apart by the second they were made and their size: the mended module has the same.
    command = [sys.executable, "-B", "test_calc.py"]
    assert subprocess.run(command, cwd=workspace, capture_output=True, check=False).returncode == 1
    edit = next(call for step in coding_task_script().turns[0].steps for call in step.calls if call.name == "edit_file")
    source = (workspace / "calc.py").read_text()
    assert source.count(edit.args["old"]) == 1
    (workspace / "calc.py").write_text(source.replace(edit.args["old"], edit.args["new"]))
    assert subprocess.run(command, cwd=workspace, capture_output=True, check=False).returncode == 0


def block(name: str, mark: str | None = None) -> Segment:
    return Segment(name.encode(), 1000, mark)


def test_cache_entries_end_and_are_renewed() -> None:
    now = 0.0
    cache = PromptCache(lambda: now)
    prompt = [block("a", "1h"), block("b", "5m"), block("c")]
    first = cache.use_marked("m", prompt, 512)
    assert (first.uncached, first.read, first.written_5m, first.written_1h) == (1000, 0, 1000, 1000)
    now = 200.0
    assert cache.use_marked("m", prompt, 512).read == 2000
    now = 499.0
    assert cache.use_marked("m", prompt, 512).read == 2000
    now = 799.5
    later = cache.use_marked("m", prompt, 512)
    assert (later.read, later.written_5m) == (1000, 1000)


def test_cache_looks_back_twenty_blocks() -> None:
    cache = PromptCache()
    start = [block(str(i)) for i in range(5)]
    cache.use_marked("m", [*start, block("end", "5m")], 512)
    near = [*start, block("end"), *(block(f"n{i}") for i in range(18)), block("last", "5m")]
    far = [*start, block("end"), *(block(f"f{i}") for i in range(20)), block("last", "5m")]
    assert cache.use_marked("m", near, 512).read == 6000
    assert cache.use_marked("m", far, 512).read == 0
    assert cache.use_marked("other", near, 512).read == 0
