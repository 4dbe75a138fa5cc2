"""Loading settings from their sources, each overriding the one before: built-in, user file, project file, environment,
flags.

The user file is `<TUI_AGENT_HOME>/config.json`, a project's is `.agents/config.json` in its root. In the environment,
the parts of a key are separated by two underscores: `TUI_AGENT__COMPACTION__THRESHOLD=0.8`. A project's file applies in
full only once the user trusts that folder; before, it can only tighten settings (`trust.tightens`).
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import msgspec

from tui_agent.settings.keys import (
    ADDED_UP,
    SERVERS,
    BadValueError,
    Table,
    Value,
    checked_value,
    nearest,
    section_keys,
    settings_by_key,
    value_from_text,
)
from tui_agent.settings.policies import with_policy
from tui_agent.settings.schema import Settings
from tui_agent.settings.trust import readable, tightens
from tui_agent.system.regular import read_bytes

GivenValue: TypeAlias = bool | int | float | str | Sequence[str] | Mapping[str, object] | None
"""A setting's value as given by a program; a string is parsed by the setting's type, as from the environment."""

USER_FILE = "config.json"
PROJECT_FILE = Path(".agents") / "config.json"
ENVIRONMENT_PREFIX = "TUI_AGENT__"
MAX_FILE_BYTES = 1_000_000
UNREAD_FILES = (
    *("config.toml", "config.yaml", "config.yml", "config.jsonc", "config.json5"),
    *("settings.json", "settings.toml", "settings.yaml", "settings.yml"),
)
"""Names under which other programs have their settings, which are not read here."""
_LIMITING = frozenset({"permissions", "limits", "agent", "safety"})
"""Sections of settings that limit what the agent may do or spend."""
_OF_OTHERS = frozenset(
    {"mcpServers", "mcp_servers", "servers", "context_servers", "hooks", "PreToolUse", "PostToolUse"}
)
"""Keys of which one is in what the pages of other agents and of servers print."""
_ELSEWHERE = {"hooks": "hooks are read from hooks.json in the same folder"}
"""Where something belongs that is no setting."""
_SILENT = frozenset({"$schema"})
"""Keys that are for editors."""


class SettingsError(Exception):
    """The settings cannot be used; `problems` has a line for each error."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _MalformedError(SettingsError):
    """A file is no JSON.

    foreign: it is what another agent's page prints, since its text has keys of theirs, and of ours none but those on
    servers. Any other may have limits, and one that does not count must not go unnoticed.
    """

    def __init__(self, problems: Sequence[str], text: str) -> None:
        super().__init__(problems)
        keys = set(re.findall(r'"([\w$.-]+)"\s*:', text))
        ours = {key.partition(".")[0] for key in section_keys()} - {"mcp"}
        self.foreign = bool(keys & _OF_OTHERS) and not keys & ours


class Override(msgspec.Struct, frozen=True):
    """A setting given for this start only, and its origin."""

    origin: str
    """Where it comes from, for messages and `tui-agent config`: a flag such as `--ask`, or any other name."""
    key: str
    value: GivenValue


Overrides: TypeAlias = Mapping[str, GivenValue] | Iterable[Override | str] | Override | str
"""Settings given for this start only, in any of three forms: a mapping of keys to values, `KEY=VALUE` strings, and
`Override` records (strings and records may be mixed in one list).
"""

PROGRAM = "overrides"
"""The origin of an override without one."""


class Assignment(NamedTuple):
    """A key set by one source."""

    key: str
    value: Value
    origin: str


def home_folder(environ: Mapping[str, str]) -> Path:
    """The folder of all the program's state: TUI_AGENT_HOME, else the platform's folder for user data."""
    named = environ.get("TUI_AGENT_HOME")
    if named:
        return Path(os.path.expanduser(named)).absolute()  # noqa: PTH111 - Path.expanduser raises for an unknown user
    import platformdirs

    return Path(platformdirs.user_data_dir("tui-agent", appauthor=False))


def replace_missing_home() -> Path | None:
    """Give a user without a home folder, as in some containers, one in the temporary folder, for this process and all
    that it starts; returns it, None if they have one.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises if there is none
    nearest = next(each for each in (home.absolute(), *home.absolute().parents) if each.exists())
    if home.is_absolute() and (home.is_dir() or os.access(nearest, os.W_OK)):
        return None
    import tempfile

    made = Path(tempfile.gettempdir()) / f"tui-agent-{os.getuid()}"
    with suppress(OSError):
        made.mkdir(mode=0o700)
    state = made.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        made = Path(tempfile.mkdtemp(prefix="tui-agent-"))  # that one is somebody else's
    os.environ["HOME"] = str(made)
    return made


def load_settings(
    home: Path,
    project: Path | None,
    *,
    trusted: bool = False,
    environ: Mapping[str, str] | None = None,
    overrides: Overrides = (),
) -> Settings:
    """The effective settings of a session.

    `home` is the folder of `home_folder`, `project` the root whose `.agents/config.json` is read, `environ` the
    environment (None: it is ignored). `overrides` take precedence over all of them, later ones over earlier ones::

        load_settings(home, project, overrides={"compaction.threshold": 0.7, "permissions.deny": ["fetch_url"]})
        load_settings(home, project, overrides=["compaction.threshold=0.7", "permissions.deny=fetch_url"])
        load_settings(home, project, overrides=[Override("my tool", "compaction.threshold", 0.7)])

    Raises SettingsError with all problems of all sources; for an unknown key it suggests the most similar one. Problems
    in an untrusted project's file become notices, since it must not be able to keep the program from starting.
    """
    load = _Load()
    load.apply(_from_file(home / USER_FILE, load.problems, load.notices))
    load.notices += _unread(home / USER_FILE)
    if project is not None:
        if trusted:
            load.notices += _unread(project / PROJECT_FILE)
            load.apply_trusted(project / PROJECT_FILE)
        else:
            load.apply_untrusted(project / PROJECT_FILE)
    load.apply(_from_environment(environ or {}, load.problems))
    load.override(overrides)
    if load.problems:
        raise SettingsError(load.problems)
    return load.settings()


class _Load:
    """Collects the values for one call of `load_settings`."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {key: setting.default for key, setting in settings_by_key().items()}
        self.sources: dict[str, str] = {}
        self.overridden: list[str] = []
        self.problems: list[str] = []
        self.notices: list[str] = []

    def apply(self, assignments: Iterable[Assignment]) -> None:
        for key, value, origin in assignments:
            before = self.values[key]
            if key in ADDED_UP and isinstance(before, tuple) and isinstance(value, tuple):
                value = tuple(dict.fromkeys(before + value))
                origin = f"{self.sources[key]}, {origin}" if key in self.sources else origin
            elif key in ADDED_UP and isinstance(before, Mapping) and isinstance(value, Mapping):
                value = cast("Table", {**before, **value})
            self.values[key] = value
            self.sources[key] = origin

    def override(self, overrides: Overrides) -> None:
        for origin, key, value in _records(overrides, self.problems):
            assigned = list(_from_program(origin, key, value, self.problems))
            self.apply(assigned)
            self.overridden += [assignment.key for assignment in assigned]

    def apply_trusted(self, path: Path) -> None:
        """Apply a trusted project's file. It cannot contain servers: those have a file of their own."""
        for assignment in _from_file(path, self.problems, self.notices):
            if assignment.key == SERVERS:
                self.problems.append(f"{path}: {assignment.key}: a project's servers belong into its .mcp.json")
            else:
                self.apply([assignment])

    def apply_untrusted(self, path: Path) -> None:
        problems: list[str] = []
        ignored: list[str] = []
        for assignment in _from_file(path, problems, problems):
            value, unreadable = readable(assignment.key, assignment.value)
            if unreadable:
                assignment = assignment._replace(value=value)
                problems.append(f"{path}: {assignment.key}: {unreadable}")
            if tightens(assignment.key, self.values[assignment.key], assignment.value):
                self.apply([assignment])
            else:
                ignored.append(assignment.key)
        self.notices += [f"{problem} (ignored: the folder is not trusted)" for problem in problems]
        if ignored:
            self.notices.append(f"{path}: ignored until you trust the folder: {', '.join(ignored)}")

    def settings(self) -> Settings:
        """The settings object; every value was checked when it was assigned."""
        tree: dict[str, object] = {"sources": self.sources, "overridden": self.overridden, "notices": self.notices}
        for key, value in self.values.items():
            *sections, name = key.split(".")
            place = tree
            for section in sections:
                inner = place.setdefault(section, {})
                if not isinstance(inner, dict):
                    raise TypeError(f"{section} is both a section and a value")
                place = inner
            place[name] = value
        settings = msgspec.convert(tree, Settings)
        return with_policy(settings, settings.context.policy)


def _from_file(path: Path, problems: list[str], notices: list[str]) -> Iterator[Assignment]:
    try:
        document = read_document(path)
    except _MalformedError as error:
        if error.foreign:
            notices += [f"{problem}; nothing in this file is used" for problem in error.problems]
        else:
            problems.extend(error.problems)
        return
    except SettingsError as error:
        problems.extend(error.problems)
        return
    if document is None:
        return
    from tui_agent.settings.servers import servers_of_settings

    settings = servers_of_settings(document, str(path), notices)
    if isinstance(name := settings.get("model"), str):  # as other agents write it
        settings = {**settings, "model": {"id": name}}
    # With keys that are none of ours it is another agent's file: what does not fit in it is left alone as well, but for
    # what limits the agent, since a limit that does not count must not go unnoticed.
    foreign = settings.keys() - section_keys()
    for name, value in settings.items():
        wrong = notices if foreign and name not in _LIMITING else problems
        yield from _from_section("", {name: value}, str(path), wrong, notices)


def _from_section(
    prefix: str, section: Mapping[str, object], origin: str, problems: list[str], notices: list[str]
) -> Iterator[Assignment]:
    """The values of a file's section. A key that is none of ours is a notice: it may be another agent's."""
    for name, value in section.items():
        key = prefix + name
        setting = settings_by_key().get(key)
        if setting is not None:
            try:
                yield Assignment(key, checked_value(setting, value), origin)
            except BadValueError as error:
                problems.append(f"{origin}: {key}: {error}")
        elif key in section_keys():
            if isinstance(value, dict):
                yield from _from_section(f"{key}.", value, origin, problems, notices)
            else:
                problems.append(f"{origin}: {key}: expected a section {{…}}, got {value!r:.80}")
        elif key not in _SILENT:
            notices.append(f"{origin}: {_unknown(key)}")


def _unread(path: Path) -> list[str]:
    """A sentence for each file beside that of the settings that looks as if it had some."""
    found = (path.with_name(name) for name in UNREAD_FILES)
    return [f"{each} is not read: settings are in {path.name}, as JSON" for each in found if each.is_file()]


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> Iterator[Assignment]:
    for name in sorted(environ):
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            yield from _from_program(name, key, environ[name], problems)


def _records(overrides: object, problems: list[str]) -> Iterator[tuple[str, str, object]]:
    """(origin, key, value) of each override. A value of another type than `Overrides` is reported as a problem, for
    callers without a type checker.
    """
    match overrides:
        case Override(origin, key, value):
            yield origin, key, value
        case str():
            key, equals, text = overrides.partition("=")
            if equals:
                yield PROGRAM, key.strip(), text
            else:
                problems.append(f"{PROGRAM}: expected KEY=VALUE, got {overrides!r:.80}")
        case Mapping():
            yield from ((PROGRAM, str(key), value) for key, value in overrides.items())
        case Iterable():
            for each in overrides:
                if isinstance(each, Override | str):
                    yield from _records(each, problems)
                else:
                    problems.append(f"{PROGRAM}: expected KEY=VALUE or an Override, got {each!r:.80}")
        case _:
            problems.append(f"{PROGRAM}: expected a mapping of keys to values, or a list, got {overrides!r:.80}")


def _from_program(origin: str, key: str, value: object, problems: list[str]) -> Iterator[Assignment]:
    setting = settings_by_key().get(key)
    if setting is None:
        problem = f"{key} is a section, name one of its keys" if key in section_keys() else _unknown(key)
        problems.append(f"{origin}: {problem}")
        return
    try:
        read = value_from_text(setting, value) if isinstance(value, str) else checked_value(setting, value)
        yield Assignment(key, read, origin)
    except BadValueError as error:
        problems.append(f"{origin}: {key}: {error}")


def _unknown(key: str) -> str:
    if key in _ELSEWHERE:
        return f"{key!r} is no setting; {_ELSEWHERE[key]}"
    close = nearest(key, [*settings_by_key(), *sorted(section_keys())])
    hint = f"did you mean {close}?" if close else "`tui-agent config` lists all keys"
    return f"unknown key {key[:80]!r}; {hint}"


def read_document(path: Path) -> Mapping[str, object] | None:
    """The JSON object in the file; None if there is no file. Raises SettingsError."""
    text = _text_in(path)
    if text is None:
        return None
    import json

    from tui_agent.settings.servers import plain_json

    try:
        document = json.loads(plain_json(text), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _MalformedError([f"{path}: malformed JSON at {where}: {error.msg}"], text) from None
    except RecursionError:
        raise SettingsError([f"{path}: malformed JSON: nested too deeply"]) from None
    except ValueError as error:
        raise SettingsError([f"{path}: malformed JSON: {error}"]) from None
    if not isinstance(document, dict):
        raise SettingsError([f"{path}: expected an object {{…}} at the top"])
    return document


def _text_in(path: Path) -> str | None:
    try:
        return read_bytes(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: not valid UTF-8 at byte {error.start + 1}"]) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    section = dict(pairs)
    if len(section) < len(pairs):
        names = [name for name, _ in pairs]
        ours = {part for key in settings_by_key() for part in key.split(".")}
        if (twice := next((name for name in names if names.count(name) > 1 and name in ours), None)) is None:
            return section  # a field of a server, of which the last counts as everywhere
        raise ValueError(f"the key {twice[:80]!r} is there twice")
    return section


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
