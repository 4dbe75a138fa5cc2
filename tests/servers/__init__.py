"""Loopback servers for the Anthropic Messages API and the Gemini API, for the real SDKs to talk to.

They enforce what the real APIs enforce, answer from a script, and fail on demand::

    async with AnthropicServer(coding_task_script(), windows={"claude-opus-5-5": 20_000}) as server:
        ...  # ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY=server.api_key (or server.environment)
        assert server.violations == []

``running.in_thread(server)`` serves a synchronous test; ``running.in_process("gemini", tmp_path, script)`` serves a
client that is killed and started again while the server lives.
"""
