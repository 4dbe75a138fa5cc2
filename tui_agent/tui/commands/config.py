"""`/config`: every setting with its value and where it comes from, to search, change and set back."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.settings import Settings, SettingsError, json_text, settings_by_key, values_by_key
from tui_agent.settings.keys import BadValueError, Setting, Value, value_from_text
from tui_agent.settings.sources import USER_FILE
from tui_agent.settings.writing import forget_setting, keep_setting, with_setting
from tui_agent.text import one_line, short_path
from tui_agent.tui.cards.notice import Level
from tui_agent.tui.host import Host

DEFAULT: Final = "default"
UNDO: Final = "undo"
UNSET: Final = "unset"
RULES: Final = ("permissions.allow", "permissions.ask", "permissions.deny")
MODELS: Final = ("model.id", "model.fallbacks", "agentic.small_model")


class _Change(NamedTuple):
    """A setting before it was changed: its value, and where that came from; empty: it was the default."""

    key: str
    value: Value
    source: str


class Config:
    """The editor of the settings. It changes the user's own file; undoing goes back through its changes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._changes: list[_Change] = []

    async def edit(self, argument: str = "") -> None:
        """Let the user choose settings and values until they close the list. `argument`: a key to begin with."""
        if argument and argument not in settings_by_key():
            from tui_agent.settings.keys import nearest

            near = nearest(argument, settings_by_key())
            hint = f"did you mean {near}?" if near else ""
            self._host.say(Level.WARNING, f"There is no setting {argument}", hint=hint)
            return
        chosen = argument or await self._picked("")
        while chosen:
            if chosen == UNDO:
                key, value, source = self._changes.pop()
                own = str(self._host.arguments.home / USER_FILE)
                await self._keep(key, value, unset=source != own)
            else:
                await self._change(settings_by_key()[chosen])
            chosen = await self._picked(chosen if chosen != UNDO else "")

    @property
    def _file(self) -> str:
        return short_path(self._host.arguments.home / USER_FILE)

    async def _picked(self, marked: str) -> str | None:
        from tui_agent.tui.dialogs.pickers import Option, PickerScreen

        settings = self._host.settings
        values = values_by_key(settings)
        ordered = sorted(values, key=lambda key: not settings.is_set(key))
        options = [Option(key, key, f"{_shown(values[key])}  ({_source(settings, key)})") for key in ordered]
        if self._changes:
            last = self._changes[-1]
            options.insert(0, Option(UNDO, f"Set back {last.key}", _shown(last.value)))
        title = f"Settings: value, and where it comes from. Changes go to {self._file}"
        return await self._host.question(PickerScreen(title, options, marked=marked, search=True))

    async def _change(self, setting: Setting) -> None:
        from tui_agent.settings.keys import meaning_of
        from tui_agent.tui.dialogs.fields import Field, LineScreen
        from tui_agent.tui.dialogs.pickers import Option

        host, key = self._host, setting.key
        if setting.allowed.kind is dict:
            host.say(Level.INFO, f"{key} is {setting.allowed.described()}", hint=f"edit it in {self._file}")
            return
        value_now = values_by_key(host.settings)[key]
        now = value_now if isinstance(value_now, str) else json_text(value_now)
        words = setting.allowed.choices or (("true", "false") if setting.allowed.kind is bool else ())
        if key == "ui.theme":
            words, now = host.theme_names(), host.theme
        if setting.allowed.nullable and words:
            words = (*words, "null")
        default = f"{json_text(setting.default)}, the default"
        meaning = await asyncio.to_thread(meaning_of, key)
        if words:
            options = [*(Option(word, word) for word in words), Option(UNSET, "Unset", default)]
            text = await host.pick(f"{key}: {meaning}", options, now)
        else:
            about = f"{meaning}\n\n{setting.allowed.described()}. Empty: unset, {default}"
            text = await host.question(
                LineScreen(key, Field(now), partial(_problem, host.settings, setting), text=about)
            )
        if text is None:
            return
        value = None if text in ("", UNSET) else value_from_text(setting, text)
        before = _Change(key, value_now, host.settings.sources.get(key, ""))
        if await self._keep(key, value, unset=text in ("", UNSET)):
            self._changes.append(before)

    async def _keep(self, key: str, value: Value, *, unset: bool) -> bool:
        """Write a value into the user's file, or take it out of it; False if that failed."""
        host = self._host
        home, others = host.arguments.home, host.settings.sources.get(key, "")
        try:
            if unset:
                path = await asyncio.to_thread(forget_setting, home, key)
                value = settings_by_key()[key].default
            else:
                path = await asyncio.to_thread(keep_setting, home, key, value)
        except SettingsError as error:
            host.say(Level.WARNING, f"{key} stays as it was", str(error))
            return False
        if others not in ("", str(path)):
            host.say(Level.WARNING, f"{key} is kept, but {others} sets it too", "and counts more than your own file")
            return True
        host.settings = with_setting(host.settings, key, value, "" if unset else str(path))
        if key == "ui.theme" and isinstance(value, str):
            host.use_theme("" if unset else value)
        elif key == "permissions.mode" and not unset:
            await host.run_command(f"/mode {value}")
        else:
            host.hint(f"{key} is kept; it counts for sessions opened from now on")
        return True


def _shown(value: Value) -> str:
    return one_line(json_text(value), 60)


def _source(settings: Settings, key: str) -> str:
    return short_path(Path(settings.source(key))) if settings.is_set(key) else DEFAULT


def _problem(settings: Settings, setting: Setting, text: str) -> str:
    """Why a text cannot be the value, or no session could be opened with it; empty if it can."""
    from tui_agent.models.base import UnknownModel
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.tools.gate.rules import Rule, RuleError

    try:
        value = value_from_text(setting, text) if text else ""
        for each in map(str, value if isinstance(value, list | tuple) else filter(None, [value])):
            if setting.key in MODELS:
                catalogue_of(settings).resolve(each)
            elif setting.key in RULES:
                Rule.read(each)
    except (BadValueError, RuleError, UnknownModel) as error:
        return str(error)
    return ""
