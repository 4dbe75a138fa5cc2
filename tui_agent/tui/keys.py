"""The active key bindings: those of the table of actions, as changed by the user's ``ui.keymap``."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Final

from textual.binding import Binding
from textual.keys import Keys as KnownKeys

from tui_agent.text import one_line
from tui_agent.tui.actions import ACTIONS, BY_ID, DIALOGS, SIGNS, SLASH_COMMANDS, Action, Place, help_rows

_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})
_NAMED: Final = frozenset(key.value for key in KnownKeys)
_TEXT_PLACES: Final = ("everywhere", "prompt", "completion")
"""Places with a text field: a printable key types a character there and cannot be bound."""
_SHORT: Final = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "space": "Space"}
_INDISTINGUISHABLE: Final = {
    "ctrl+i": "Tab",
    "ctrl+m": "Enter",
    "ctrl+h": "Backspace",
    "ctrl+left_square_bracket": "Esc",
}
"""Keys that most terminals cannot tell from another key, with that other key."""
_SHOWN_KEYS: Final = 2
"""How many keys of an action the help shows."""


@cache
def _punctuation() -> dict[str, str]:
    """Punctuation keys: the characters, by Textual's names of their keys."""
    signs = "!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~"
    return {binding.key: sign for sign in signs for binding in Binding.make_bindings([Binding(sign, "")])}


@cache
def _editing_keys() -> dict[str, str]:
    """Keys that a text field takes before any action of the place "everywhere" could, with their descriptions."""
    from textual.widgets import TextArea

    return {
        binding.key: binding.description.lower()
        for binding in Binding.make_bindings(TextArea.BINDINGS)
        if not any(binding.key in action.keys.split(",") for action in ACTIONS)
    }


class Keymap:
    """Which keys do what. `changes`: remapped keys by action id, for Textual. `problems`: a line for each bad entry."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        """`entries`: ``ID=KEYS`` each, keys separated by blanks or commas."""
        self.problems: tuple[str, ...] = ()
        self.changes: dict[str, str] = {}
        if entries:
            self._change(entries)

    def keys(self, identity: str) -> tuple[str, ...]:
        """The keys of an action, by Textual's names."""
        return tuple(key for key in self.changes.get(identity, BY_ID[identity].keys).split(",") if key)

    def action_of(self, key: str, place: Place) -> str:
        """The id of the action bound to a key at a place; empty if there is none."""
        return next((each.id for each in ACTIONS if each.place == place and key in self.keys(each.id)), "")

    def text(self, identity: str) -> str:
        """The first key of an action as shown to the user; empty if it has none."""
        return key_text(self.keys(identity)[0]) if self.keys(identity) else ""

    def rows(self, place: Place) -> Iterator[tuple[str, str]]:
        """The help rows of one place: keys, and what they do. Actions with the same help text share a row."""
        by_meaning: dict[str, list[str]] = {}
        for action in ACTIONS:
            if action.place == place and (keys := self.keys(action.id)):
                by_meaning.setdefault(action.help, []).extend(map(key_text, keys[:_SHOWN_KEYS]))
        yield from ((", ".join(keys), meaning) for meaning, keys in by_meaning.items())
        if place == "prompt":
            yield from SIGNS

    def help_text(self, place: Place) -> str:
        """The help for a place: its own keys, then those that work everywhere and are not taken there."""
        if place in DIALOGS:
            return columns(self.rows(place))
        taken = {key for key, _ in self.rows(place)}
        return columns([*self.rows(place), *(row for row in self.rows("everywhere") if row[0] not in taken)])

    @property
    def with_alt(self) -> frozenset[str]:
        """All bound keys with the Alt modifier."""
        return frozenset(key for identity in BY_ID for key in self.keys(identity) if key.startswith("alt+"))

    def _change(self, entries: Sequence[str]) -> None:
        problems: list[str] = []
        wanted: dict[str, str] = {}
        for entry in entries:
            identity, equals, keys = (part.strip() for part in entry.partition("="))
            action = BY_ID.get(identity)
            normal = [_named(word) for word in keys.replace(",", " ").split()]
            unknown = next((key for key in normal if not _is_key(key)), None)
            if not equals or not keys:
                problems.append(f"{one_line(entry, 80)}: an action and its keys are wanted, as in cards=ctrl+l")
            elif action is None:
                close = get_close_matches(identity, BY_ID, n=1)
                hint = f"did you mean {close[0]}?" if close else "the documentation lists the actions"
                problems.append(f"there is no action {one_line(identity, 80)}; {hint}")
            elif unknown is not None:
                problems.append(f"{identity}: there is no key {one_line(unknown, 80)}")
            elif other := next((key for key in normal if key in _INDISTINGUISHABLE), None):
                problems.append(f"{identity}: {key_text(other)} is {_INDISTINGUISHABLE[other]} for most terminals")
            elif action.place in _TEXT_PLACES and (sign := _sign_in(normal)) and identity != "prompt.help":
                problems.append(f"{identity}: {sign} is for writing in the prompt")
            elif action.place == "everywhere" and (
                own := next((key for key in normal if key in _editing_keys()), None)
            ):
                problems.append(f"{identity}: {key_text(own)} is for writing in the prompt ({_editing_keys()[own]})")
            else:
                wanted[identity] = ",".join(normal)
        self.changes = wanted
        while clash := self._clash():
            identity, other, key = clash
            has_it = f"{key_text(key)} is the key of {other} ({BY_ID[other].help})"
            problems.append(f"{identity}: {has_it}; give that one another key too")
            del wanted[identity]
        self.problems = tuple(problems)

    def _clash(self) -> tuple[str, str, str] | None:
        """The first conflict: a remapped action, another action with the same key at the same place, and the key."""
        for identity in reversed(list(self.changes)):
            mine = BY_ID[identity]
            for action in ACTIONS:
                if action is not mine and _can_conflict(mine, action):
                    shared = set(self.keys(identity)) & set(self.keys(action.id))
                    if shared and not shared <= _defaults(mine) & _defaults(action):
                        return identity, action.id, min(shared)
        return None


def key_text(key: str) -> str:
    """A key as shown to the user: ``Ctrl+O``, ``PgUp``, ``[``."""
    *modifiers, last = key.split("+")
    shown = _SHORT.get(last) or _punctuation().get(last) or (last if len(last) == 1 else last.capitalize())
    if modifiers and len(shown) == 1:
        shown = shown.upper()
    return "+".join([*(modifier.capitalize() for modifier in modifiers), shown])


def columns(rows: Iterable[tuple[str, str]]) -> str:
    """Two columns of text."""
    rows = list(rows)
    width = max(len(left) for left, _ in rows) + 2
    return "\n".join(f"{left:<{width}}{right}" for left, right in rows)


_USAGE_WIDTH: Final = 24
"""Columns for the usage of a command in the help; longer ones push their description to the right."""


def commands_text(commands: Iterable[Action] = SLASH_COMMANDS) -> str:
    """The help text of the slash commands, one on each line."""
    return "\n".join(f"{usage:<{_USAGE_WIDTH}} {meaning}" for usage, meaning in help_rows(commands))


def _can_conflict(one: Action, other: Action) -> bool:
    places = {one.place, other.place}
    if places & set(DIALOGS):
        return len(places) == 1 or places == {"picker", "sessions"}
    return len(places) == 1 or "everywhere" in places


def _defaults(action: Action) -> set[str]:
    return {key for key in action.keys.split(",") if key}


def _named(key: str) -> str:
    """Textual's name of a key: ``ctrl+_`` becomes ``ctrl+underscore``."""
    modifiers, plus, last = key.rpartition("+") if len(key) > 1 else ("", "", key)
    return modifiers + plus + next((name for name, sign in _punctuation().items() if sign == last), last)


def _sign_in(keys: Iterable[str]) -> str:
    """The first key that types a character, as shown to the user; empty if there is none."""
    return next((key_text(key) for key in keys if len(key) == 1 or key in _punctuation() or key == "space"), "")


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+")
    return set(modifiers) <= _MODIFIERS and (len(last) == 1 or last in _NAMED or last in _punctuation())
