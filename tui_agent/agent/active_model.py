"""The active model of a conversation: connecting to it, recording it in the log, and switching to another one."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.events import ModelChanged, Notice
from tui_agent.agent.record import Record
from tui_agent.conversation.entries import ModelSwitched, Prefix, Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import Model, Timings
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.choice import configured_model, model_of_tier
from tui_agent.models.prices import look_up
from tui_agent.models.tokens import load_tokenizer
from tui_agent.models.usage import Speed, Speedometer
from tui_agent.settings.schema import Settings
from tui_agent.system.durable import in_thread, to_completion
from tui_agent.text import counted

SmallModel = Callable[[str], Model | None]
"""Maps a provider to its cheaper model for summaries; None if there is none that can be asked."""


WITHOUT_TOOLS = (
    "You have no tools in this conversation. Answer from what it holds; where more is needed, ask the user to attach a "
    "file or to run a command, and say which."
)
"""The end of the system prompt for a model that is given no tools."""


class ActiveModel:
    """Owns the active model, and passes what is known of it to the context engine."""

    def __init__(self, model: Model, record: Record, briefing: Briefing, small: SmallModel) -> None:
        self.model = model
        self._record = record
        self._briefing = briefing
        self._small = small
        self._connecting: asyncio.Future[None] | None = None
        self._announced_chat_only: set[str] = set()
        self._announced_effort: set[tuple[str, str]] = set()
        self._agents_announced = False
        self._announced_left_out: tuple[str, ...] = ()
        self._speeds = Speedometer()
        record.engine.use(self._facts())
        record.engine.renewed_prefix = self._prefix()

    @property
    def profile(self) -> ModelProfile:
        return self.model.profile

    @property
    def changed(self) -> ModelChanged:
        return ModelChanged(model=self.profile.name, window=self.profile.window, tier=self.profile.tier)

    @property
    def small(self) -> Model | None:
        """The provider's cheaper model, for summaries and digests if that costs less; None if there is none."""
        return self._small(self.profile.provider)

    async def connect(self) -> ModelProfile:
        """Ask the provider for the model's facts, once. Slow: it imports an SDK. Never raises."""
        self._connecting = self._connecting or asyncio.ensure_future(self._learn())
        await asyncio.shield(self._connecting)
        return self.profile

    async def look_up(self) -> None:
        """Until the provider has been asked, decide by the window and the prices of the catalogue on disk."""
        if self._record.engine.model.prices is None and not self._connected():
            known = await asyncio.to_thread(look_up, self._facts())
            small = await asyncio.to_thread(look_up, known.small) if known.small is not None else None
            if known.prices is not None and not self._connected() and known.name == self.profile.name:
                await self._record.use_model(msgspec.structs.replace(known, small=small))

    def _connected(self) -> bool:
        return self._connecting is not None and self._connecting.done()

    async def introduce(self) -> None:
        """Prepare the log for a call of this model: record the model, its system prompt and its tools if the log lacks
        them; otherwise append notices of what has changed since. Raises `StorageError`.
        """
        await self.connect()
        await self._briefing.refresh(self._record.engine.window.tokens)
        view, name, prefix = self._record.view, self.profile.name, self._prefix()
        begun = view.prefix
        self._record.engine.renewed_prefix = prefix
        if view.model != name:
            await self._record.append(ModelSwitched(model=name), prefix)
        elif begun is None or bool(begun.tools) > self.profile.tools or self._renews(begun, prefix):
            await self._record.append(prefix)
        elif news := await in_thread(self._briefing.news, view.log, begun):
            await self._record.append(*news)

    def _prefix(self) -> Prefix:
        """The system prompt and the tools that this model is given at the start of a conversation."""
        prefix = self._briefing.prefix
        if prefix.tools and not self.profile.tools:
            return Prefix(system=f"{prefix.system}\n\n{WITHOUT_TOOLS}")
        return prefix

    def _renews(self, before: Prefix, now: Prefix) -> bool:
        """Whether to add the tool for the user's first agents now rather than at the next summary.

        Only if that invalidates neither a cache nor reasoning that is bound to the prefix.
        """
        profile = self.profile
        bound = profile.bound_reasoning and self._record.view.last_call is not None
        keeps_none = profile.cache == "none" and not profile.local
        waits = self._briefing.awaits_agents(before) and before.tools != now.tools
        return waits and (keeps_none or self._record.engine.cache.state.cold) and not bound

    def take_news(self) -> Notice | None:
        """What to tell the user, once: that the model is given no tools, or not all of them, not the effort that is
        set, or not yet the tool for their first agents.
        """
        prefix, profile = self._record.view.prefix, self.profile
        if not profile.tools and profile.name not in self._announced_chat_only:
            self._announced_chat_only.add(profile.name)
            return Notice(
                level="warning",
                title=f"{profile.id} calls no tools",
                text="It is asked without them: it answers from what is in the conversation, and changes nothing.",
                hint="Attach files with @, run commands with !, or choose a model that calls tools with /model.",
            )
        left_out, before = self._briefing.left_out if profile.tools else (), self._announced_left_out
        self._announced_left_out = left_out
        if left_out and left_out != before:
            return Notice(
                level="info",
                title=f"A small window: {counted(len(left_out), 'tool')} left out",
                text=f"{profile.id} is not told of {', '.join(left_out)}, so that there is room to talk.",
                hint="If the window is larger, --context-window says so.",
            )
        wanted = self._record.engine.settings.model.effort
        if wanted not in ("default", profile.effort) and (profile.name, profile.effort) not in self._announced_effort:
            self._announced_effort.add((profile.name, profile.effort))
            instead = f"It is asked for {profile.effort} instead." if profile.effort else "It is asked without it."
            return Notice(level="info", title=f"{profile.id} does not take the effort {wanted}", text=instead)
        waits = prefix is not None and self._briefing.awaits_agents(prefix)
        announced, self._agents_announced = self._agents_announced, waits
        if not waits or announced:
            return None
        return Notice(
            level="info",
            title="Your first agents wait",
            text="A new tool in front of the conversation would cost its cache, so the model is told of them with the "
            "next summary, or sooner where that costs nothing.",
            hint="/compact writes a summary now; a new session has them at once.",
        )

    @property
    def speed(self) -> Speed:
        return self._speeds.of(self.profile.name)

    async def took(self, timings: Timings, usage: Usage, kept: int) -> None:
        """Take in the timings of the newest call. `kept`: tokens of its prompt that the server probably had cached."""
        self._speeds.measure(self.profile.name, timings, usage, kept)
        await self._record.use_model(self._facts())

    async def take_over(self, model: Model | str) -> None:
        """Switch to another model, by name or as a `Model`, from the next call on; if cancelled, to none.

        Raises `UnknownModel`, `StorageError`.
        """
        if isinstance(model, str):
            model = await asyncio.to_thread(configured_model, self._record.engine.settings, model)
        before = self.model
        try:
            await self._use(model)
        except BaseException:
            await to_completion(self._use(before))
            await model.close()
            raise
        await before.close()

    async def _use(self, model: Model) -> None:
        self.model, self._connecting = model, None
        await self._record.use_model(self._facts())
        await self.introduce()

    @asynccontextmanager
    async def borrowed(self, name: str) -> AsyncIterator[None]:
        """A context in which the model named ``provider:id`` is active; afterwards the present one is again.

        Raises `UnknownModel`, `StorageError`.
        """
        own = self.model
        model = await asyncio.to_thread(configured_model, self._record.engine.settings, name)
        try:
            await self._use(model)
            yield
        finally:
            # The turn may have switched to yet another model.
            last = self.model
            await to_completion(self._use(own))
            await last.close()

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        await self.model.close()

    async def _learn(self) -> None:
        small, model = self.small, self.model
        loading = asyncio.ensure_future(asyncio.to_thread(load_tokenizer))
        await self.look_up()
        asked = (model.describe(), *((small.describe(),) if small is not None else ()))
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                # What is known of the model has to do; the next turn asks again.
                self._connecting = None
                fields = {"kind": "describe", "traceback": "".join(traceback.format_exception(answer))}
                self._record.note("error", fields)
        tokenizer = await loading
        if tokenizer is not None:
            self._record.engine.meter.counter.use(tokenizer)
        await self._record.use_model(self._facts())
        if self._record.view.prefix is None:
            # What the first request will carry, for those who look before it.
            await self._briefing.refresh(self._record.engine.window.tokens)
            self._record.engine.renewed_prefix = self._prefix()

    def _facts(self) -> ModelProfile:
        small, speed = self.small, self.speed
        return msgspec.structs.replace(
            self.profile,
            small=small.profile if small is not None else None,
            reading=speed.reading,
            writing=speed.writing,
        )


class SmallModels:
    """The cheaper models by provider, created on first use; None if there is none that can be asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.models: dict[str, Model] = {}

    def __call__(self, provider: str) -> Model | None:
        name = self._settings.agentic.small_model or model_of_tier(self._settings, provider, "small")
        if name and name not in self.models and catalogue_of(self._settings).missing_key(name) is None:
            self.models[name] = configured_model(self._settings, name, small=True)
        return self.models.get(name)

    async def close(self) -> None:
        for model in self.models.values():
            await model.close()
