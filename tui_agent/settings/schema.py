"""Every setting, its default, its unit and its meaning, as one frozen object.

A setting's key is its path through the sections, `compaction.threshold_by_tier.small`. `settings.sources` loads the
values and reports wrong ones. Sizes in characters count Unicode code points; shares are fractions of 1 (0.85 = 85%).
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Threshold = Annotated[float, Meta(gt=0, le=1)]
Dollars = Annotated[float, Meta(gt=0)]
Factor = Annotated[float, Meta(gt=0)]

PolicyName = Literal["thrifty", "balanced", "careful"]
Preset = Literal["layered", "digest", "summary-only", "off"]
PermissionMode = Literal["plan", "ask", "auto", "allow"]
TaskClassName = Literal["debug", "implement", "chat", "research", "review"]
Tier = Literal["frontier", "mid", "small"]


class ModelSettings(Struct, frozen=True, kw_only=True):
    """The model."""

    id: str = ""
    """Model: a name, a part of one, PROVIDER:NAME or offline; empty: chosen by the keys you have and the task class."""
    effort: Literal["default", "low", "medium", "high", "xhigh", "max"] = "default"
    """How much the model thinks and writes: low, medium, high, xhigh, max, or default: as its provider has it."""
    wait_for_reset: Count = 60
    """Most minutes in all that a turn waits for a provider's limit to reset or for capacity; 0: none; 5 with `-p`."""
    fallbacks: tuple[str, ...] = ()
    """Models that go on instead of waiting, in this order, if the model's limit is reached or it stays overloaded."""


class ContextSettings(Struct, frozen=True, kw_only=True):
    """The token budget, and what is part of every request."""

    context_window: Annotated[int, Meta(ge=-1)] = 0
    """Input capacity in tokens; 0: ask the provider, else the catalogue, else `default_window`; -1: unknown."""
    default_window: Positive = 131_072
    """Tokens assumed when neither the provider nor the catalogue knows the window."""
    max_tokens: Positive = 16_384
    """Output tokens per model call."""
    max_tokens_share: Share = 0.25
    """Largest share of what system prompt and tools leave of the window that `max_tokens` may reserve."""
    max_context_tokens: Count = 8_000
    """Limit in tokens if the window is unknown (-1); 0: `max_messages` is the limit."""
    max_messages: Positive = 50
    """Limit in messages if the window is unknown and `max_context_tokens` is 0."""
    memory_budget_tokens: Positive = 65_536
    """Largest window, in tokens, that a local model is loaded with, unless `context_window` is set."""
    preset: Preset = "layered"
    """Which layers are on: layered, digest (adds digests), summary-only (no clearing), off (see docs/context.md)."""
    policy: PolicyName = "balanced"
    """How much to spend to keep more verbatim: thrifty, balanced or careful (`/policy`)."""
    image_tokens: Positive = 1_200
    """Tokens that a picture counts as."""
    cold_notice_usd: Annotated[float, Meta(ge=0)] = 0.25
    """US dollars a call must cost for a notice that its cache is gone, with what a compaction would save."""
    cache_life: Literal["auto", "5m", "1h"] = "auto"
    """How long Claude's cache is to live: five minutes, an hour (dearer to write), or as your own pauses suggest."""
    pins_share: Share = 0.25
    """Largest share of the history budget that all pinned items together may take."""
    skills_index_tokens: Count = 2_000
    """Largest size of the skills index in tokens."""
    memory_index_tokens: Count = 2_000
    """Largest size of the memory index in tokens."""
    instruction_files: tuple[str, ...] = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md")
    """Names of project instruction files; in each folder, the first that exists is read."""


class OutputSettings(Struct, frozen=True, kw_only=True):
    """How much of a tool result enters the conversation."""

    max_lines: Positive = 2_000
    """Lines kept of a result; the first limit applied."""
    max_chars: Positive = 204_800
    """Characters kept of a result; the second limit applied."""
    max_bytes: Positive = 51_200
    """UTF-8 bytes kept of a result; the last limit applied."""
    truncate_mode: Literal["head_tail", "head"] = "head_tail"
    """Which part of a result is kept: both ends, or only the beginning."""
    large_output_threshold: Positive = 204_800
    """Characters above which a result goes to a file and only a preview stays."""
    evict_tokens: Positive = 20_000
    """Tokens above which a result goes to a file and only a preview stays."""
    evict_share: Share = 0.33
    """Largest share of the history budget `evict_tokens` may be."""
    preview_chars: Count = 2_000
    """Characters of an evicted result shown from its head, and as many from its tail."""
    stream_bytes: Positive = 262_144
    """Bytes kept from the end of a command's output."""
    error_bytes: Positive = 65_536
    """Bytes kept, from both ends, of an error that is not a command's output (a large result goes to a file)."""
    raw_stream_bytes: Positive = 100_000_000
    """Bytes of a command's raw output stored in a file."""


class ClearingSettings(Struct, frozen=True, kw_only=True):
    """Clearing of old tool results."""

    threshold: Threshold = 0.6
    """Share of the window above which old results are cleared."""
    compaction_share: Share = 0.7
    """Clearing starts at this share of the compaction trigger, if that is lower than `threshold`."""
    by_price: bool = True
    """Clear earlier when the freed tokens pay for the cache they invalidate."""
    keep: Count = 3
    """Number of newest results that always stay."""
    protect_tokens: Count = 40_000
    """Tokens at the end of the conversation that are never cleared."""
    protect_share: Share = 0.25
    """Largest share of the window `protect_tokens` may be."""
    min_batch_share: Share = 0.05
    """Smallest share of the compaction trigger that a batch must free, at least 200 tokens; 0: any batch will do."""
    never_clear: tuple[str, ...] = ("mark_task_done", "find_tool", "episode")
    """Tools whose results stay, besides reads of memory and skills; the lists of all sources are combined."""


class DigestSettings(Struct, frozen=True, kw_only=True):
    """Digests of old tool results; only with the preset `digest`."""

    cutoff: Count = 10
    """Number of visible results above which the oldest are merged into a digest."""
    strategy: Literal["llm", "heuristic", "off"] = "llm"
    """How a digest is written: by a model, by rule, or not at all."""
    input_chars: Positive = 12_000
    """Characters that the model gets to digest."""
    output_chars: Positive = 1_200
    """Characters kept of the digest a model writes."""
    heuristic_chars: Positive = 800
    """Characters kept of a digest written by rule, from both ends."""


class ThresholdByTier(Struct, frozen=True, kw_only=True):
    """Compaction trigger per model tier; a value set here wins over the task class."""

    frontier: Threshold = 0.85
    """Share of the window for frontier models."""
    mid: Threshold = 0.65
    """Share of the window for mid models; by default at least 64,000 tokens of conversation, if there is room."""
    small: Threshold = 0.35
    """Share of the window for small models; by default at least 64,000 tokens of conversation, if there is room."""


class CompactionSettings(Struct, frozen=True, kw_only=True):
    """Summaries of older turns."""

    auto: bool = True
    """Compact automatically (clearing, recovery and /compact work either way)."""
    background: bool = True
    """Write summaries in the background; a turn waits only if its request would not fit without the summary."""
    before_expiry: bool = True
    """Write one shortly before a large cache expires while you are away, if that costs less than reading it again."""
    by_provider: bool = True
    """Let the provider write and sign summaries where it offers that and thinking would be lost otherwise."""
    opaque_items: bool = False
    """Have OpenAI compact the older turns too; its model reads the opaque item, you and other models our summary."""
    threshold: Threshold = 0.85
    """Share of the window that triggers a compaction for a model of unknown tier."""
    threshold_by_tier: ThresholdByTier = ThresholdByTier()
    keep_recent_tokens: Count = 20_000
    """Number of newest tokens kept verbatim."""
    keep_recent_share: Share = 0.05
    """Largest share of the history budget that `keep_recent_tokens` may be."""
    keep_recent: Count = 5
    """Number of newest messages kept verbatim if the window is unknown."""
    thrift: Annotated[float, Meta(ge=0)] = 4.0
    """Compact before the threshold if that saves money; a larger value waits longer, 0 turns it off."""
    thrift_between_turns: Factor = 0.8
    """Factor on `thrift` between turns."""
    thrift_in_loop: Factor = 1.3
    """Factor on `thrift` inside a tool loop."""
    thrift_cold: Factor = 0.5
    """Factor on `thrift` while the provider's cache is cold."""
    handover: Literal["five", "outline"] = "five"
    """Form of a summary: five sections, or an outline (intent, decisions, artifacts, next steps)."""
    facts_tokens: Count = 3_000
    """Largest size, in tokens, of the facts appended to a summary that left them out."""
    user_words_tokens: Count = 8_000
    """Tokens of your messages kept with the summaries; at most 1/10 of the window, 1/3 of the history."""
    summaries_tokens: Positive = 12_000
    """Tokens of all summaries above which the oldest are merged; at most 1/8 of the window, 1/4 of the history."""
    summary_result_chars: Positive = 1_800
    """Characters of each tool result that a separate summarising model sees."""
    max_compaction_recoveries: Count = 1
    """How often a turn is retried after the provider reports an overflow."""
    max_backoff_turns: Positive = 32
    """Longest pause, in turns, after failed compactions (2, 4, … up to this)."""


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """Completion records of finished tasks."""

    enabled: bool = True
    """Offer /done and the tool mark_task_done."""
    episodes: bool = False
    """Offer the tool episode: the model names a piece of work, whose calls leave the view once it is finished."""


class AgenticSettings(Struct, frozen=True, kw_only=True):
    """Subtasks that read on the model's behalf."""

    enabled: bool = True
    """Offer the agentic_* tools."""
    small_model: str = ""
    """Model for subtasks; empty: the small model of the session's provider."""


class AgentSettings(Struct, frozen=True, kw_only=True):
    """Limits of a turn and of a session; costs include subtasks."""

    max_calls: Positive = 100
    """Tool calls of one answer that are carried out; the others get an error as their result."""
    max_turns: Positive | None = None
    """Model calls that one turn may make, without those of subtasks; null: no limit."""
    max_turn_cost_usd: Dollars | None = None
    """US dollars that one turn may cost; null: no ceiling."""
    max_session_cost_usd: Dollars | None = None
    """US dollars that a session may cost; null: no ceiling."""


class LimitSettings(Struct, frozen=True, kw_only=True):
    """Limits of all sessions together."""

    day_usd: Dollars | None = None
    """US dollars that all sessions of this user may cost on one day (local time); null: no ceiling."""


class TierModels(Struct, frozen=True, kw_only=True):
    """The models of one provider."""

    frontier: str
    """The provider's frontier model; empty: keep the session's model."""
    mid: str
    """The provider's mid model; empty: keep the session's model."""
    small: str
    """The provider's small model; empty: keep the session's model."""


class EndpointModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a model at your own endpoint; what is left out is asked for, or assumed."""

    window: Count = 0
    """Input capacity in tokens."""
    max_output: Count = 0
    """Longest answer in tokens."""
    tier: Literal["frontier", "mid", "small", "unknown"] = "unknown"
    """The model's tier."""
    input: Annotated[float, Meta(ge=0)] | None = None
    """US dollars per million input tokens."""
    output: Annotated[float, Meta(ge=0)] | None = None
    """US dollars per million output tokens."""
    cache_read: Annotated[float, Meta(ge=0)] | None = None
    """US dollars per million tokens read from the cache."""
    images: bool | None = None
    """Whether the model supports pictures."""
    tools: bool | None = None
    """Whether the model can call tools; one that cannot is used as a chat model."""
    search_usd: Annotated[float, Meta(ge=0)] | None = None
    """US dollars per web search of the server's own, as the Responses API has it; null: it has none."""


class Endpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of your own that speaks one of OpenAI's APIs."""

    url: str
    """Its address up to and including ``/v1``."""
    key: str = ""
    """The environment variable with its key; empty: no key is needed."""
    api: Literal["chat", "responses"] = "chat"
    """Its API: Chat Completions or Responses."""
    reasoning: bool = False
    """Whether the reasoning of earlier answers is sent back, as ``reasoning_content``."""
    models: dict[str, EndpointModel] = {}
    """Its models by id; you can also use others."""


class ModelsSettings(Struct, frozen=True, kw_only=True):
    """Which model of a provider is used for each tier, and your own endpoints."""

    anthropic: TierModels = TierModels(frontier="claude-opus-5-5", mid="claude-sonnet-5-5", small="claude-haiku-5-5")
    gemini: TierModels = TierModels(frontier="gemini-3.1-pro-preview", mid="gemini-2.5-pro", small="gemini-3.8-flash")
    openai: TierModels = TierModels(frontier="gpt-6.1-sol", mid="gpt-6.1-terra", small="gpt-6-luna")
    ollama: TierModels = TierModels(frontier="", mid="", small="")
    endpoints: dict[str, Endpoint] = {}
    """Your own servers, by the name before the colon: `url`, `key` (a variable), `api`, `models`."""


class OllamaSettings(Struct, frozen=True, kw_only=True):
    """Local models."""

    host: str = ""
    """Ollama's address if `OLLAMA_HOST` is not set; empty: http://127.0.0.1:11434."""


class TierSettings(Struct, frozen=True, kw_only=True):
    """Tiers of models whose provider does not report one, by a part of the id (`*` stands for anything)."""

    frontier: tuple[str, ...] = ("opus", "fable", "mythos", "gemini-3*-pro")
    """Parts of the ids of frontier models."""
    mid: tuple[str, ...] = ("sonnet", "gemini-2.5-pro")
    """Parts of the ids of mid models."""
    small: tuple[str, ...] = ("haiku", "flash")
    """Parts of the ids of small models."""


class TaskClass(Struct, frozen=True, kw_only=True):
    """A bundle of defaults for one kind of work."""

    tier: Tier
    """The model's tier."""
    threshold: Threshold
    """Share of the window that triggers a compaction."""
    mode: PermissionMode = "auto"
    """Permission mode if none is set."""


class TaskSettings(Struct, frozen=True, kw_only=True):
    """Defaults for each kind of work (`--task`)."""

    debug: TaskClass = TaskClass(tier="frontier", threshold=0.65)
    implement: TaskClass = TaskClass(tier="frontier", threshold=0.70)
    chat: TaskClass = TaskClass(tier="mid", threshold=0.85)
    research: TaskClass = TaskClass(tier="mid", threshold=0.65, mode="allow")
    review: TaskClass = TaskClass(tier="frontier", threshold=0.75)


class SafetySettings(Struct, frozen=True, kw_only=True):
    """Guards at the start of a session."""

    small_tier_parent: Literal["warn", "refuse", "allow"] = "warn"
    """If the session's own model is a small one: warn, refuse to start, or allow it silently."""
    notices: bool = True
    """Show the notices of the guards."""


class PermissionSettings(Struct, frozen=True, kw_only=True):
    """What may happen without asking. A rule is a tool name or TOOL(PATTERN)."""

    mode: PermissionMode = "auto"
    """plan: read only; ask: ask before every side effect; auto: ask about the risky ones; allow: never ask."""
    allow: tuple[str, ...] = ()
    """Rules for what is allowed; the lists of all sources are combined."""
    ask: tuple[str, ...] = ()
    """Rules for what is asked about; they win over `allow`. The lists of all sources are combined."""
    deny: tuple[str, ...] = ()
    """Rules for what is refused; they win over `ask` and `allow`. The lists of all sources are combined."""
    folders: tuple[str, ...] = ()
    """Folders outside the project that count as inside; the lists of all sources are combined."""
    sandbox: Literal["auto", "required", "off"] = "auto"
    """Commands run in a sandbox if the system has one (auto), only in a sandbox (required), or without one (off)."""
    read: tuple[str, ...] = ()
    """Paths outside the project that commands in the sandbox may read; the lists of all sources are combined."""
    variables: tuple[str, ...] = ()
    """Environment variables that commands get although they are unknown, or look like a secret; all lists combined."""
    network: tuple[str, ...] = ()
    """Domains that commands in the sandbox may reach, such as pypi.org and *.example.org; ["*"]: the whole network."""
    unasked: Literal["sandboxed", "known"] = "sandboxed"
    """What runs unasked in mode auto: commands that a full sandbox confines (sandboxed), or only known ones (known)."""


class FileHistorySettings(Struct, frozen=True, kw_only=True):
    """Copies of files, made before tools change them, so that they can be restored."""

    enabled: bool = True
    """Copy files before tools change them; /undo, /rewind and /undo-edits can restore them."""
    max_file_bytes: Positive = 5_000_000
    """Largest file that is copied, in bytes."""
    max_bytes: Positive = 200_000_000
    """Bytes of all copies in a session."""
    max_files: Positive = 20_000
    """Number of files in the project above which changes made by commands are not tracked."""
    max_seconds: Annotated[float, Meta(gt=0)] = 2.0
    """Seconds that comparing the project's files may take, before a command and after it."""


class OAuth(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How to sign in at a server that does not register clients by itself."""

    client_id: str = ""
    """The registered client; beginning with https://, the address of the document that describes it."""
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    """What to ask for; empty: what the server names."""
    callback_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """The port of the redirect address that was registered, http://localhost:PORT/callback; 0: any."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """client_credentials: the program signs in by itself, without a user."""
    private_key: str = ""
    """For client_credentials without a secret: the client's key (PEM), which signs what it sends."""
    algorithm: str = "RS256"
    """How the key signs."""
    issuer: str = ""
    """For client_credentials: the authorization server that may get them; empty: the one the server names."""


class ToolServer(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A server of tools (Model Context Protocol), as `mcp.servers` and the project's `.mcp.json` name it.

    `command` starts one that is talked to over its standard input and output, `url` is where one listens. In texts
    ``${NAME}`` and ``${NAME:-otherwise}`` stand for environment variables.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    type: Literal["", "stdio", "http", "sse"] = ""
    """sse: the older transport; empty: that for an address that ends in ``/sse``, else streamable HTTP."""
    headers: dict[str, str] = field(default_factory=dict)
    oauth: OAuth | None = None
    enabled: bool = True
    call_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Seconds that one call may take; null: `mcp.call_seconds`."""
    always_load: bool | tuple[str, ...] = False
    """The model is told of all its tools (or of these) from the beginning."""
    include_tools: tuple[str, ...] | None = None
    """The names of the only tools that count, with ``*`` for any part of one; null: all."""
    exclude_tools: tuple[str, ...] = ()
    """The names of tools that do not, whatever `include_tools` says."""
    believe_hints: bool = False
    """A tool of which the server says that it only reads is called without asking, several at once."""

    def __post_init__(self) -> None:
        """Raises ValueError, which msgspec names with its place."""
        if bool(self.command) == bool(self.url):
            raise ValueError("expected either `command` or `url`")
        if self.url and not self.url.startswith(("http://", "https://", "${")):
            raise ValueError("its url must begin with http:// or https://")


class SearchSettings(Struct, frozen=True, kw_only=True):
    """Who searches for the tool web_search."""

    service: Literal["", "off", "searxng", "brave", "tavily"] = ""
    """Empty: the provider, if it has a search of its own; keys are read from BRAVE_API_KEY or TAVILY_API_KEY."""
    url: str = ""
    """Its address, such as http://localhost:8080/search for SearXNG; empty: the service's own."""
    results: Positive = 8
    """Pages of an answer."""
    in_plan: bool = True
    """Search in plan mode too, where it is asked about like everywhere."""
    usd: float | None = None
    """The price of a search in USD; null: what the service's page says."""


class MemorySettings(Struct, frozen=True, kw_only=True):
    """What is remembered of a project."""

    by_model: bool = False
    """Have the small model propose notes too, from what you said, once a session was idle for two minutes."""


class WorktreeSettings(Struct, frozen=True, kw_only=True):
    """Sessions in a git worktree of their own (`--worktree`)."""

    setup: str = ""
    """A shell command that is run in each new worktree, such as `npm ci`."""


class DiagnosticsSettings(Struct, frozen=True, kw_only=True):
    """What an edit newly broke, from language servers (with the extra tui-agent[lsp]) and from checks of yours."""

    enabled: bool = True
    """Start the language servers that are there, with the first edit of a file that they know."""
    checks: tuple[str, ...] = ()
    """Commands by file pattern, run before and after an edit, such as `{"*.sh": "shellcheck {file}"}`."""
    wait_s: float = 2.0
    """Seconds that the result of an edit waits; what is known later comes with the next one."""
    warnings: bool = False
    """Tell warnings too, not only errors."""


class McpSettings(Struct, frozen=True, kw_only=True):
    """MCP servers."""

    servers: dict[str, ToolServer] = field(default_factory=dict)
    """Your servers by name, each with `command` and `args`, or `url`; see docs/mcp.md."""
    project: bool = True
    """Offer the servers in the `.mcp.json` of a trusted project; each starts only once you turn it on."""
    whole_share: Share = 0.02
    """Largest share of the window for sending all tool definitions in full; larger sets are searched by `find_tool`."""
    index_tokens: Count = 1_200
    """Largest size, in tokens, of the list of servers that the model gets from the beginning."""
    start_seconds: Annotated[float, Meta(gt=0)] = 60.0
    """Seconds that a server may take to start."""
    call_seconds: Annotated[float, Meta(gt=0)] = 300.0
    """Seconds that one call of a server's tool may take."""


class WatchdogSettings(Struct, frozen=True, kw_only=True):
    """Detects a model that is stuck."""

    mode: Literal["warn", "off", "prompt", "auto"] = "warn"
    """What to do then. warn: tell you; prompt: pause and ask; auto: switch to the frontier model; off: nothing."""
    repeated_calls: Count = 5
    """Identical calls in a row that raise an alert; 0: off."""
    tools_without_text: Count = 60
    """Tool calls without a word to the user that raise an alert; 0: off."""
    files_not_touched: Count = 80
    """Tool calls without a change to a file that raise an alert; 0: off."""
    context_growth_share: Share = 0.5
    """Share of the window that one turn may add before an alert; 0: off."""
    cost_burn_usd_per_minute: Annotated[float, Meta(ge=0)] = 5.0
    """US dollars per minute, over a turn, that raise an alert; 0: off."""


class SessionSettings(Struct, frozen=True, kw_only=True):
    """The kind of work, and how answers are written."""

    task_class: TaskClassName | None = None
    """The task class: debug, implement, chat, research or review; null: none."""
    style: str = ""
    """The output style: the name of one of your styles (`/style` lists them); empty: none."""
    other_folders: bool = True
    """Use what other agents bring too: `.claude/` of a trusted project, `~/.claude` and `~/.agents`."""
    plugins: tuple[str, ...] = ()
    """Folders of Claude Code's plugins: their commands, agents, skills, styles and hooks are used, never changed."""


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """OpenTelemetry (docs/telemetry.md); needs the extra `otel`."""

    enabled: Literal["auto", "on", "off"] = "auto"
    """Send spans and metrics: on, off, or auto: if `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector."""
    content: bool = False
    """Send what was said, too: prompts, answers, arguments and results, without keys."""


class UiSettings(Struct, frozen=True, kw_only=True):
    """The full-screen app."""

    theme: str = "dark"
    """Colours: `dark`, `light` (the default where `COLORFGBG` says so), or the name of one (`/theme` lists them)."""
    glyphs: Literal["unicode", "ascii"] = "unicode"
    """Which symbols are drawn: ascii is for terminals and fonts without the others."""
    panel_columns: Count = 160
    """Columns from which a start opens the context panel, which closes where it would cover the text; 0: never."""
    mouse: bool = True
    """Use the mouse."""
    notifications: bool = True
    """Notify the terminal when a turn ends or a question is waiting."""
    gauge_yellow: Share = 0.70
    """Share of the window at which the gauge turns yellow."""
    gauge_red: Share = 0.90
    """Share of the window at which the gauge turns red."""
    keymap: tuple[str, ...] = ()
    """Your own keys: `ID=KEYS` each, as in `cards=ctrl+l f9`, or an object (docs/commands.md lists the ids)."""


class Settings(Struct, frozen=True, kw_only=True):
    """All effective settings, and where each came from."""

    model: ModelSettings = ModelSettings()
    context: ContextSettings = ContextSettings()
    output: OutputSettings = OutputSettings()
    clearing: ClearingSettings = ClearingSettings()
    digests: DigestSettings = DigestSettings()
    compaction: CompactionSettings = CompactionSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    agentic: AgenticSettings = AgenticSettings()
    agent: AgentSettings = AgentSettings()
    limits: LimitSettings = LimitSettings()
    models: ModelsSettings = ModelsSettings()
    ollama: OllamaSettings = OllamaSettings()
    tiers: TierSettings = TierSettings()
    tasks: TaskSettings = TaskSettings()
    safety: SafetySettings = SafetySettings()
    permissions: PermissionSettings = PermissionSettings()
    file_history: FileHistorySettings = FileHistorySettings()
    mcp: McpSettings = McpSettings()
    search: SearchSettings = SearchSettings()
    diagnostics: DiagnosticsSettings = DiagnosticsSettings()
    memory: MemorySettings = MemorySettings()
    worktree: WorktreeSettings = WorktreeSettings()
    watchdog: WatchdogSettings = WatchdogSettings()
    session: SessionSettings = SessionSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    ui: UiSettings = UiSettings()

    sources: dict[str, str] = field(default_factory=dict)
    """Where a value that is not built in came from: key → file, environment variable or flag."""
    overridden: frozenset[str] = frozenset()
    """The keys set for this start alone: by a flag, or by the `overrides` of `load_settings`."""
    notices: tuple[str, ...] = ()
    """What the user should be told about the load, such as keys of an untrusted project that were ignored."""

    def is_set(self, key: str) -> bool:
        """Whether the user or a project set `key`, even to its default."""
        return key in self.sources

    def source(self, key: str) -> str:
        """Where the value of `key` came from, as text for people."""
        return self.sources.get(key, "built-in")
