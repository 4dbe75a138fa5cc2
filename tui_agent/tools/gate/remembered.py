"""What the user allowed for good, project by project, in a private file outside every workspace."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tui_agent.tools.gate.rules import Rule, RuleError


class RememberedError(Exception):
    """The file cannot be read or written. The text says why, and what to do."""


class RememberedRules:
    """The allow rules of `project` (its root) in the file `path`. Raises RememberedError where the file is damaged."""

    def __init__(self, path: Path, project: Path) -> None:
        self._path = path
        self._project = str(project)
        self.rules: tuple[Rule, ...] = self._of_project(self._read())

    def add(self, rules: Iterable[Rule]) -> None:
        """Remember more rules. They hold from now on, also where the file cannot be written (RememberedError)."""
        added = tuple(rules)
        self.rules = tuple(dict.fromkeys((*self.rules, *added)))
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                projects = self._read()
                known = self._of_project(projects)
                projects[self._project] = [rule.text for rule in dict.fromkeys((*known, *added))]
                self._write(projects)
        except OSError as error:
            raise RememberedError(f"{self._path}: cannot be written: {error.strerror}") from error

    def _read(self) -> dict[str, list[str]]:
        try:
            document = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RememberedError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError):
            document = None
        projects = document.get("projects") if isinstance(document, dict) else None
        if not isinstance(projects, dict) or not all(
            isinstance(rules, list) and all(isinstance(rule, str) for rule in rules) for rules in projects.values()
        ):
            raise RememberedError(f"{self._path}: damaged; move it away to start with nothing remembered")
        return projects

    def _of_project(self, projects: dict[str, list[str]]) -> tuple[Rule, ...]:
        try:
            return tuple(Rule.read(rule) for rule in projects.get(self._project, ()))
        except RuleError as error:
            raise RememberedError(f"{self._path}: damaged: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, projects: dict[str, list[str]]) -> None:
        file, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with os.fdopen(file, "w") as stream:
                stream.write(json.dumps({"projects": projects}, indent=2) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
