"""The rules that the user answered with "always", by project, in a private file outside every workspace.

A rule of an older version that is too wide allows nothing any more; it stays in the file until the user takes it back.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from tui_agent.system.durable import make_private_folder, one_at_a_time, write_file
from tui_agent.tools.gate.rules import OUTSIDE, SHELL, Rule, RuleError

MAX_RULES = 2_000
"""The most rules that are read for one project."""


class RememberedError(Exception):
    """The file cannot be read or written. The text says why, and what to do."""


class _Kept(msgspec.Struct, frozen=True):
    """A rule in the file, and the folder it is bound to, if it is bound to one."""

    rule: str
    folder: str = ""


_Projects: TypeAlias = dict[str, list[_Kept]]


class RememberedRules:
    """The remembered allow rules of `project` (its root) in the file `path`; `dropped` are those that are too wide.

    Raises RememberedError if the file is damaged.
    """

    def __init__(self, path: Path, project: Path) -> None:
        self._path = path
        self._project = str(project)
        entries = [(entry.rule, _usable(entry)) for entry in self._read().get(self._project, [])[:MAX_RULES]]
        self.rules = tuple(dict.fromkeys(rule for _, rule in entries if rule is not None))
        self.dropped = tuple(text for text, rule in entries if rule is None)

    @property
    def notice(self) -> str:
        """What to tell the user about rules that are not used; may be empty."""
        if not self.dropped:
            return ""
        names = ", ".join(rule[:80] for rule in self.dropped[:5]) + (", …" if len(self.dropped) > 5 else "")
        return f"{self._path}: not used any more, since they are too wide: {names}. You will be asked."

    def add(self, rules: Iterable[Rule]) -> None:
        """Add rules. They apply from now on, even if the file cannot be written (RememberedError)."""
        added = tuple(rules)
        self.rules = tuple(dict.fromkeys((*self.rules, *added)))
        known = [_Kept(rule.text, rule.folder) for rule in added]
        self._change(lambda kept: [*kept, *(entry for entry in known if entry not in kept)])

    def remove(self, rule: str) -> None:
        """Remove a rule, for every folder. It is gone even if the file cannot be written (RememberedError)."""
        self.rules = tuple(each for each in self.rules if each.text != rule)
        self.dropped = tuple(each for each in self.dropped if each != rule)
        self._change(lambda kept: [entry for entry in kept if entry.rule != rule])

    def _change(self, change: Callable[[list[_Kept]], list[_Kept]]) -> None:
        try:
            make_private_folder(self._path.parent)
            with one_at_a_time(Path(f"{self._path}.lock")):
                projects = self._read()
                projects[self._project] = change(projects.get(self._project, []))
                text = json.dumps({"projects": msgspec.to_builtins(projects)}, indent=2) + "\n"
                write_file(self._path, text.encode())
        except OSError as error:
            raise RememberedError(f"{self._path}: cannot be written: {error.strerror}") from error

    def _read(self) -> _Projects:
        try:
            document = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RememberedError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError):
            document = None
        try:
            found = msgspec.convert(document["projects"], dict[str, list[_Kept | str]])
        except (msgspec.ValidationError, TypeError, KeyError):
            problem = f"{self._path}: damaged; move it away to start with nothing remembered"
            raise RememberedError(problem) from None
        # Older versions wrote the mere rule.
        return {name: [_Kept(each) if isinstance(each, str) else each for each in kept] for name, kept in found.items()}


def _usable(entry: _Kept) -> Rule | None:
    """The rule of an entry, if it can allow something."""
    try:
        rule = msgspec.structs.replace(Rule.read(entry.rule), folder=entry.folder)
    except RuleError:
        return None
    return None if rule.is_idle or (rule.tool in {SHELL, OUTSIDE} and not rule.pattern) else rule
