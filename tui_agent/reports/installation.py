"""The reports of `tui-agent config` and `tui-agent doctor`."""

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import structs

from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import CATALOGUE, Catalogue, catalogue_of
from tui_agent.models.provider import Provider
from tui_agent.models.tokens import cache_folder, load_tokenizer
from tui_agent.settings import Settings, SettingsError, json_text, load_settings, settings_by_key, values_by_key
from tui_agent.settings.brought import standing
from tui_agent.settings.sources import PROJECT_FILE, USER_FILE
from tui_agent.settings.trust import TrustError, project_root
from tui_agent.tools.gate.rules import RuleError
from tui_agent.tools.sandbox.sandbox import mechanism
from tui_agent.version import __version__

PACKAGES = ("textual", "msgspec", "aiosqlite", "genai-prices")


def config_report(settings: Settings, *, as_json: bool) -> str:
    """All settings with their effective values and sources; then the notices from loading them."""
    effective = values_by_key(settings)
    if as_json:
        document = {key: {"value": effective[key], "source": settings.source(key)} for key in settings_by_key()}
        return json.dumps(document, indent=2, ensure_ascii=False)
    rows = [(key, json_text(effective[key]), settings.source(key)) for key in settings_by_key()]
    key_width = max(len(key) for key, _, _ in rows)
    value_width = min(40, max(len(value) for _, value, _ in rows))
    lines = [f"{key:<{key_width}}  {value:<{value_width}}  {source}" for key, value, source in rows]
    return "\n".join([*lines, *settings.notices])


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor's report."""

    ok: bool
    subject: str
    detail: str
    needed: bool = True
    """Whether a failure makes the whole report fail."""


def doctor_report(home: Path, folder: Path, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The report on what the program needs, and whether everything needed is present. Shows no API key."""
    findings = list(_findings(home, folder, environ))
    width = max(len(finding.subject) for finding in findings)
    lines = [f"{_mark(finding)}  {finding.subject:<{width}}  {finding.detail}" for finding in findings]
    return "\n".join(lines), all(finding.ok or not finding.needed for finding in findings)


def _mark(finding: Finding) -> str:
    if finding.ok:
        return "ok "
    return "BAD" if finding.needed else "-  "


def _findings(home: Path, folder: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    yield Finding(True, "tui-agent", f"{__version__} on Python {sys.version.split()[0]} ({sys.platform})")
    catalogue = _catalogue(home, folder, environ)
    for package in (*PACKAGES, *dict.fromkeys(each.package for each in catalogue.providers if each.package)):
        yield _package(package)
    yield _tokenizer()
    yield _database(home)
    ripgrep = shutil.which("rg", path=os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")]))
    yield Finding(ripgrep is not None, "ripgrep", ripgrep or "rg not found; reinstall the package ripgrep")
    yield from _settings(home, folder, environ)
    yield _sandbox()
    for provider in catalogue.with_keys():
        yield _key(provider, environ)
    for variable in dict.fromkeys(variable for each in catalogue.providers for variable in each.addresses):
        yield Finding(True, variable, "set" if environ.get(variable) else "not set")
    terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size()
    detail = f"{environ.get('TERM', 'TERM not set')}, {size.columns}x{size.lines}" if terminal else "not a terminal"
    yield Finding(terminal, "terminal", detail, needed=False)


def _catalogue(home: Path, folder: Path, environ: Mapping[str, str]) -> Catalogue:
    """The model catalogue by the settings; the built-in one if those are not valid."""
    project = project_root(folder)
    try:
        return catalogue_of(load_settings(home, project, trusted=standing(project, home).trusted, environ=environ))
    except (SettingsError, TrustError, UnknownModel):
        return CATALOGUE


def _package(name: str) -> Finding:
    try:
        return Finding(True, name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(False, name, "not installed")


def _key(provider: Provider, environ: Mapping[str, str]) -> Finding:
    """Which of a provider's environment variables has a key."""
    held = next((variable for variable in provider.keys if environ.get(variable)), "")
    detail = "not set" if not held else "set" if held == provider.key else f"{held} is set"
    return Finding(bool(held), provider.key, detail, needed=False)


def _tokenizer() -> Finding:
    """Whether tokens are counted by a tokenizer: its package and its ranks must be on this machine."""
    package = _package("tiktoken")
    if not package.ok:
        return package
    tokenizer = load_tokenizer()
    if tokenizer is not None:
        return structs.replace(package, detail=f"{package.detail}, {tokenizer.name} from {cache_folder()}")
    return Finding(
        False,
        "tiktoken",
        "its vocabulary files are not on this machine, so token counts are estimated and corrected by what the "
        "provider reports; nothing to do, or set TIKTOKEN_CACHE_DIR to a folder that has them",
        needed=False,
    )


def _database(home: Path) -> Finding:
    """Whether sessions can be stored: SQLite's write-ahead log must work on the file system of `home`."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=".doctor-") as place:
            connection = sqlite3.connect(Path(place) / "probe.sqlite")
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                connection.execute("CREATE TABLE probe (value)")
            finally:
                connection.close()
    except (OSError, sqlite3.Error) as error:
        return Finding(False, "sqlite", f"{home}: {error}")
    if mode != "wal":
        return Finding(False, "sqlite", f"{home}: this file system cannot keep a write-ahead log")
    return Finding(True, "sqlite", f"{sqlite3.sqlite_version}, write-ahead log works in {home}")


def _sandbox() -> Finding:
    """What confines commands; the settings may still turn it off."""
    found = mechanism()
    if found.kind == "none":
        return Finding(False, "sandbox", f"none: commands run as you ({found.detail})", needed=False)
    return Finding(True, "sandbox", found.detail)


def _settings(home: Path, folder: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    from tui_agent.session_parts import check_rules

    project = project_root(folder)
    try:
        trusted, _, new = standing(project, home)
        state = "trusted" if trusted else "changed what it runs or sets since you trusted it" if new else "not trusted"
        yield Finding(True, "project", f"{project} ({state})")
    except TrustError as error:
        trusted = False
        yield Finding(False, "project", str(error))
    for path in (home / USER_FILE, project / PROJECT_FILE):
        yield Finding(True, "settings file", f"{path} ({'present' if path.exists() else 'absent'})")
    try:
        settings = load_settings(home, project, trusted=trusted, environ=environ)
        check_rules(settings)
        yield Finding(True, "settings", f"valid; {len(settings.sources)} of them set, all others built in")
        for notice in settings.notices:
            yield Finding(False, "settings", notice, needed=False)
    except SettingsError as error:
        for problem in error.problems:
            yield Finding(False, "settings", problem)
    except RuleError as error:
        yield Finding(False, "settings", str(error))
