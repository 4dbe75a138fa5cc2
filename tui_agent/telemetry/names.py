"""The names under which spans and metrics are sent: OpenTelemetry's conventions for generative AI, and our own.

The conventions are still in development (github.com/open-telemetry/semantic-conventions-genai), so all names that may
change are here. What they have no name for begins with ``tui_agent.``.
"""

from typing import Final, NamedTuple

AGENT: Final = "tui-agent"

OPERATION: Final = "gen_ai.operation.name"
CHAT, EXECUTE_TOOL, INVOKE_AGENT, COMPACT = "chat", "execute_tool", "invoke_agent", "compact_context"

AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_VERSION: Final = "gen_ai.agent.version"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR: Final = "error.type"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
MODEL: Final = "gen_ai.request.model"
PROVIDER: Final = "gen_ai.provider.name"
STREAM: Final = "gen_ai.request.stream"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"

USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""The attribute for each field of `Usage`."""

# Sent only if the user wants what was said to be sent.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

COST: Final = "tui_agent.cost.usd"
CALLS: Final = "tui_agent.turn.calls"
PURPOSE: Final = "tui_agent.call.purpose"
STEP: Final = "tui_agent.context.step"
BEFORE, AFTER = "tui_agent.context.tokens.before", "tui_agent.context.tokens.after"
SAVED, WAITED = "tui_agent.context.saved.usd", "tui_agent.context.waited.s"
WAIT: Final = "tui_agent.wait"
WAIT_S: Final = "tui_agent.wait.s"

PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""The conventions' name of a provider, where it is not ours."""

FINISHED: Final = {"end_turn": "stop", "max_tokens": "length", "tool_calls": "tool_call", "refusal": "content_filter"}
"""The conventions' word for why an answer ended."""


class Metric(NamedTuple):
    """A metric: a histogram with these bounds, or a counter."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...] = ()


_SECONDS: Final = tuple(0.01 * 2**n for n in range(14))
_LONG: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

TOKENS: Final = Metric(
    "gen_ai.client.token.usage", "{token}", "Input and output tokens used.", tuple(4.0**n for n in range(14))
)
CALL_DURATION: Final = Metric("gen_ai.client.operation.duration", "s", "Duration of a model call.", _SECONDS)
TURN_DURATION: Final = Metric("gen_ai.invoke_agent.duration", "s", "Duration of a turn.", _LONG)
TOOL_DURATION: Final = Metric("gen_ai.execute_tool.duration", "s", "Duration of a tool call.", _SECONDS)
CACHE_READS: Final = Metric(
    "gen_ai.client.inference.usage.cache_read.input_tokens", "{token}", "Input tokens read from the provider's cache."
)
CACHE_WRITES: Final = Metric(
    "gen_ai.client.inference.usage.cache_write.input_tokens", "{token}", "Input tokens written to the provider's cache."
)
DOLLARS: Final = Metric("tui_agent.cost", "USD", "What model calls cost, as far as prices are known.")
WAITS: Final = Metric("tui_agent.wait.duration", "s", "Waits for a provider's limit or capacity.", _LONG)
METRICS: Final = (TOKENS, CALL_DURATION, TURN_DURATION, TOOL_DURATION, CACHE_READS, CACHE_WRITES, DOLLARS, WAITS)
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105
