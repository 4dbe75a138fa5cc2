"""The pieces requests are made of."""

import os
import subprocess
import sys
from pathlib import Path


def test_another_process_writes_the_same_bytes() -> None:
    code = """
import sys
from tests.models.talking import PNG, assistant, request, user
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.models.anthropic import request as anthropic_request
from tui_agent.models.gemini import request as gemini_request
call = ToolCall("a", "grep", '{"b": 1, "a": 2}')
asked = request(user("go", PNG), assistant("I look", call), user(ToolResult("a", "r")))
options = anthropic_request.AnthropicOptions("claude-opus-5-5", "adaptive", True)
sys.stdout.buffer.write(anthropic_request.AnthropicEncoder().encode(asked, options))
sys.stdout.buffer.write(gemini_request.GeminiEncoder("gemini-3.8-flash").encode(asked))
"""
    root = str(Path(__file__).parents[2])
    written = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert written[0] == written[1]
    assert b"claude-opus-5-5" in written[0]
