"""The rules that the user answered with "always", by project, in a private file outside every workspace."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from tui_agent.durable import make_private_folder, write_file
from tui_agent.tools.gate.rules import Rule, RuleError

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
    """The remembered allow rules of `project` (its root) in the file `path`.

    Raises RememberedError if the file is damaged.
    """

    def __init__(self, path: Path, project: Path) -> None:
        self._path = path
        self._project = str(project)
        entries = self._read().get(self._project, [])[:MAX_RULES]
        try:
            rules = [msgspec.structs.replace(Rule.read(entry.rule), folder=entry.folder) for entry in entries]
        except RuleError as error:
            raise RememberedError(f"{path}: {error}") from None
        self.rules = tuple(dict.fromkeys(rules))

    def add(self, rules: Iterable[Rule]) -> None:
        """Add rules. They apply from now on, even if the file cannot be written (RememberedError)."""
        added = tuple(rules)
        self.rules = tuple(dict.fromkeys((*self.rules, *added)))
        known = [_Kept(rule.text, rule.folder) for rule in added]
        self._change(lambda kept: [*kept, *(entry for entry in known if entry not in kept)])

    def remove(self, rule: str) -> None:
        """Remove a rule, for every folder. It is gone even if the file cannot be written (RememberedError)."""
        self.rules = tuple(each for each in self.rules if each.text != rule)
        self._change(lambda kept: [entry for entry in kept if entry.rule != rule])

    def _change(self, change: Callable[[list[_Kept]], list[_Kept]]) -> None:
        try:
            make_private_folder(self._path.parent)
            with self._locked():
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
            return msgspec.convert(document["projects"], _Projects)
        except (msgspec.ValidationError, TypeError, KeyError):
            problem = f"{self._path}: damaged; move it away to start with nothing remembered"
            raise RememberedError(problem) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
