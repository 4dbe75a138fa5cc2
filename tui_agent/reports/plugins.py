"""`tui-agent plugin`: takes Claude Code's plugins from git repositories and folders; what each does is shown before it
is on.

A repository or folder is copied into the user's folder without its history and without links, so that nothing in it
leads out and git has nothing to run there. Nothing of it counts before its folder is in `session.plugins`.
"""

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import ndiff
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from tui_agent.agent.extensions.agents import own_agents
from tui_agent.agent.extensions.files import AGENTS, COMMANDS, STYLES, ExtensionFolder, markdown_files, skill_folders
from tui_agent.agent.extensions.hook_files import read_hooks
from tui_agent.context.counting import Counter
from tui_agent.settings import Settings
from tui_agent.settings.brought import plugin_name, plugin_starts
from tui_agent.settings.writing import keep_setting
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.programs import find_program, with_search_path
from tui_agent.text import counted, error_text, expanded, one_line
from tui_agent.tools.notes.skills import find_skills

FOLDER: Final = "plugins"
"""Where the copies are, in the user's folder; beside each a file of the same name that says where it is from."""
COPY_S: Final = 300
"""How long copying a repository may take."""
MOST_LISTED: Final = 300
"""The most plugins that are told of one repository."""
_SHORT: Final = re.compile(r"[\w.-]+/[\w.-]+")
_BY_SSH: Final = re.compile(r"[\w.-]+@[\w.-]+:[^:].*")
_PROTOCOLS: Final = ("https", "ssh", "file")
_FOREIGN: Final = ".claude-plugin"
_PICKED: Final = f"{_FOREIGN}/picked"
"""In a copy: the plugins that its marketplace file puts together from parts of a folder that others share."""
_NO_PLUGIN: Final = "there is no plugin: neither .claude-plugin nor commands, agents, skills or hooks"
_NAME: Final = re.compile(r"\w[\w.-]*")
_STARTING: Final = ("hooks", "mcpServers")
"""What runs something and counts only where the plugin itself has it."""
_SUBFOLDERS: Final = (COMMANDS, AGENTS, "skills", "hooks", "output-styles")


class PluginError(Exception):
    """It cannot be done; the text says why, and what to do."""


class PluginOrigin(msgspec.Struct, frozen=True):
    """Where a copy is from."""

    url: str
    ref: str
    commit: str


class Plugin(msgspec.Struct, frozen=True):
    """A plugin in a copy. `elsewhere`: the repository it is in instead, so that it is not in this one. `unused`: what a
    marketplace file says of it and nothing here uses.
    """

    name: str
    folder: Path
    description: str = ""
    elsewhere: str = ""
    unused: tuple[str, ...] = ()


class Plugins:
    """The copies in one user's folder. `agree`: asks the user, after what was shown; `say`: prints lines."""

    def __init__(
        self, home: Path, folder: Path, settings: Settings, say: Callable[[str], None], agree: Callable[[str], bool]
    ) -> None:
        self._home = home
        self._working = folder
        self._copies = home / FOLDER
        self._settings = settings
        self._say = say
        self._agree = agree

    def run(self, action: str, words: Sequence[str], ref: str) -> None:
        """Carry out ``plugin ACTION WORDS``. Raises `PluginError`, `SettingsError`, `OSError`."""
        match action, list(words):
            case "add", [source, *names]:
                self._add(source, names, ref)
            case "update", names:
                self._update(names)
            case "remove", [_, *_]:
                self._remove(words)
            case "list", []:
                self._list()
            case _:
                raise PluginError("expected `plugin add SOURCE [NAME …]`, `list`, `update [NAME …]` or `remove NAME …`")

    # Actions

    def _add(self, source: str, names: Sequence[str], ref: str) -> None:
        url = address(source, self._working)
        make_private_folder(self._copies)
        place = next((copy for copy in self._all_copies() if _origin(copy).url == url), None)
        if place is not None and not ref:
            self._offer(place, place, names, source)
            return
        with TemporaryDirectory(prefix=".new-", dir=self._copies) as temporary:
            copy = Path(temporary) / "copy"
            origin = _copied(url, ref, copy)
            place = place or self._free(url)
            if self._offer(copy, place, names, source, lambda: self._replace(copy, place, origin)):
                self._say(f"Copied from {origin.url} at {origin.commit[:12]} to {place}.")

    def _offer(
        self, copy: Path, place: Path, names: Sequence[str], source: str, accepted: Callable[[], None] = lambda: None
    ) -> bool:
        """Show the plugins of a copy that will be at `place`, and turn those on that are named if the user agrees."""
        found = plugins_in(copy)
        by_name = {each.name: each for each in found}
        if unknown := [name for name in names if name not in by_name]:
            raise PluginError(f"there is no plugin {', '.join(unknown)} in {source}: it has {', '.join(by_name)}")
        chosen = [by_name[name] for name in names] if names or len(found) != 1 else found
        for each in chosen or found:
            self._say("\n".join(listing(each)))
        if not chosen:
            self._say(f"{counted(len(found), 'plugin')}. To turn some on: tui-agent plugin add {source} NAME …")
            return False
        if absent := [each for each in chosen if each.elsewhere]:
            raise PluginError(f"{absent[0].name} is in another repository: add {absent[0].elsewhere}")
        if not self._agree(f"Turn {'it' if len(chosen) == 1 else 'them'} on?"):
            self._say("Nothing was turned on; with --yes it is, without a question.")
            return False
        accepted()
        paths = [str(place / each.folder.relative_to(copy)) for each in chosen]
        self._keep((*self._settings.session.plugins, *paths))
        self._say(f"On from the next session: {', '.join(each.name for each in chosen)}.")
        return True

    def _update(self, names: Sequence[str]) -> None:
        plugins = [*map(self._resolved, self._settings.session.plugins)]
        inside = {copy: [each for each in plugins if each.is_relative_to(copy)] for copy in self._all_copies()}
        on = {copy: each for copy, each in inside.items() if each}
        wanted = {copy for copy, paths in on.items() if not names or {copy.name, *_all_names(paths)} & set(names)}
        if not wanted:
            raise PluginError("no plugin of a copied repository is on by that name; `tui-agent plugin list` lists them")
        for copy in sorted(wanted):
            self._renew(copy, on[copy])

    def _renew(self, copy: Path, on: Sequence[Path]) -> None:
        before = _origin(copy)
        with TemporaryDirectory(prefix=".new-", dir=self._copies) as temporary:
            new = Path(temporary) / "copy"
            origin = _copied(before.url, before.ref, new)
            with suppress(PluginError):
                plugins_in(new)  # puts those together that are selections
            if origin.commit == before.commit:
                self._say(f"{copy.name} is up to date: {origin.url} at {origin.commit[:12]}.")
                return
            self._say(f"{copy.name}: {origin.url} from {before.commit[:12]} to {origin.commit[:12]}.")
            gone = [path for path in on if not (new / path.relative_to(copy)).is_dir()]
            for path in on:
                called, there = plugin_name(path), new / path.relative_to(copy)
                old_lines = listing(Plugin(called, path))
                new_lines = listing(Plugin(called, there)) if path not in gone else [f"{called}: is no longer there"]
                self._say("\n".join(line for line in ndiff(old_lines, new_lines) if line[0] in "+-"))
                changed = [] if path in gone else _changed(path, there)
                self._say(f"{called}: {counted(len(changed), 'file')} changed: {', '.join(changed[:MOST_LISTED])}")
            if self._agree("Take this?"):
                self._replace(new, copy, origin)
                self._keep(each for each in self._settings.session.plugins if self._resolved(each) not in gone)
                self._say("Updated from the next session on.")
            else:
                self._say("Nothing was changed; with --yes it is, without a question.")

    def _remove(self, names: Sequence[str]) -> None:
        kept: list[str] = []
        removed: list[str] = []
        for each in self._settings.session.plugins:
            (removed if {each, *_all_names([self._resolved(each)])} & set(names) else kept).append(each)
        if not removed:
            raise PluginError(f"no plugin {', '.join(names)} is on; `tui-agent plugin list` lists them")
        self._keep(kept)
        left, called = {self._resolved(each) for each in kept}, [plugin_name(self._resolved(each)) for each in removed]
        for copy in self._all_copies():
            if not any(path.is_relative_to(copy) for path in left):
                shutil.rmtree(copy)
                _origin_file(copy).unlink(missing_ok=True)
        self._say(f"Off from the next session: {', '.join(called)}.")

    def _list(self) -> None:
        paths = [self._resolved(each) for each in self._settings.session.plugins]
        for path in paths:
            copy = next((each for each in self._all_copies() if path.is_relative_to(each)), None)
            origin = _origin(copy) if copy is not None else None
            self._say("\n".join(listing(Plugin(plugin_name(path), path))))
            self._say(f"  from {origin.url} at {origin.commit[:12]}" if origin is not None else f"  from {path}")
        if not paths:
            self._say("No plugins. `tui-agent plugin add SOURCE` shows those of a git repository.")

    # Copies

    def _keep(self, paths: Iterable[str]) -> None:
        keep_setting(self._home, "session.plugins", tuple(dict.fromkeys(paths)))

    def _resolved(self, named: str) -> Path:
        return self._working / expanded(named)

    def _all_copies(self) -> list[Path]:
        return sorted(path for path in self._copies.glob("*") if _origin_file(path).is_file() and path.is_dir())

    def _free(self, url: str) -> Path:
        """A place for a copy, called as the repository is, and as the names of what a plugin brings begin."""
        last = unquote(re.split(r"[/:]", url.rstrip("/"))[-1])
        name = re.sub(r"[^\w.-]", "-", last.removesuffix(".git").lower()).strip(".-")
        names = (name or "plugin", *(f"{name or 'plugin'}-{number}" for number in range(2, 1_000)))
        return next(self._copies / each for each in names if not (self._copies / each).exists())

    def _replace(self, new: Path, place: Path, origin: PluginOrigin) -> None:
        """Put a new copy in its place; the old one, if any, goes with the temporary folder."""
        if place.exists():
            place.rename(new.parent / "old")
        new.rename(place)
        write_file(_origin_file(place), msgspec.json.encode(origin))


def address(source: str, folder: Path) -> str:
    """The address of a repository named by URL, as OWNER/NAME on GitHub, or by its folder. Raises `PluginError`."""
    scheme, marks, _ = source.partition("://")
    if (scheme in _PROTOCOLS and marks) or _BY_SSH.fullmatch(source):
        return source
    path = folder / expanded(source)
    if path.is_dir():
        return path.resolve().as_uri()
    if _SHORT.fullmatch(source):
        return f"https://github.com/{source.removesuffix('.git')}.git"
    raise PluginError(f"{source} is no https, ssh or file address, no OWNER/NAME on GitHub and no folder")


def plugins_in(copy: Path) -> list[Plugin]:
    """The plugins of a repository: those its marketplace file lists, or itself. Raises `PluginError`."""
    listed = _document(copy / _FOREIGN / "marketplace.json")
    entries = listed.get("plugins")
    if isinstance(entries, list):
        metadata = listed.get("metadata")
        root = metadata.get("pluginRoot", "") if isinstance(metadata, dict) else ""
        found = [each for entry in entries[:MOST_LISTED] if (each := _entry(entry, copy, str(root))) is not None]
        if found:
            return found
    if (copy / _FOREIGN / "plugin.json").is_file() or any((copy / name).is_dir() for name in _SUBFOLDERS):
        about = _document(copy / _FOREIGN / "plugin.json")
        return [Plugin(_word(about.get("name")) or "plugin", copy, _word(about.get("description")))]
    raise PluginError(_NO_PLUGIN)


def _entry(entry: object, copy: Path, root: str) -> Plugin | None:
    """A plugin as a marketplace file lists it; None: it is no plugin, or its folder is not there."""
    if not isinstance(entry, dict) or not (name := _word(entry.get("name"))):
        return None
    source, description = entry.get("source", "."), _word(entry.get("description"))
    if isinstance(source, dict):
        where = next((str(source[key]) for key in ("url", "repo", "package") if source.get(key)), "an unknown place")
        return Plugin(name, copy, description, where)
    top = copy.resolve()
    found = [place.resolve() for place in (copy / str(source), copy / root / str(source))]
    folder = next((each for each in found if each.is_dir() and each.is_relative_to(top)), None)
    if folder is None:
        return None
    folder = copy / folder.relative_to(top)
    parts = {kind: entry[kind] for kind in _SUBFOLDERS if isinstance(entry.get(kind), list)}
    if parts and _NAME.fullmatch(name) and not (folder / _FOREIGN / "plugin.json").is_file():
        folder = _picked(parts, folder, copy, Plugin(name, copy / _PICKED / name, description))
    unused = (f"{key}, which the marketplace file names" for key in _STARTING if entry.get(key) and key not in parts)
    return Plugin(name, folder, description, unused=(*unused, *_unused(entry)))


def _picked(parts: Mapping[str, list[object]], source: Path, copy: Path, plugin: Plugin) -> Path:
    """The folder of a plugin that is a selection of what is in `source`, made of copies of that if it is not there."""
    if plugin.folder.is_dir():
        return plugin.folder
    top = copy.resolve()
    for kind, places in parts.items():
        for place in (source / str(each) for each in places):
            if not place.resolve().is_relative_to(top):
                continue
            plugin.folder.joinpath(kind).mkdir(parents=True, exist_ok=True)
            if place.is_file():
                shutil.copy2(place, plugin.folder / kind / place.name)
            elif place.is_dir():
                own = plugin.folder / kind / ("" if place.name == kind else place.name)
                shutil.copytree(place, own, symlinks=True, dirs_exist_ok=True)
    about = {"name": plugin.name, "description": plugin.description}
    plugin.folder.joinpath(_FOREIGN).mkdir(parents=True, exist_ok=True)
    plugin.folder.joinpath(_FOREIGN, "plugin.json").write_text(json.dumps(about))
    return plugin.folder


def listing(plugin: Plugin) -> list[str]:
    """What a plugin adds and runs, and how many tokens it adds to each request."""
    if plugin.elsewhere:
        return [f"{plugin.name}: {plugin.description}", f"  is in another repository: {plugin.elsewhere}"]
    root = ExtensionFolder(plugin.folder, "yours", within=plugin.folder, kind="plugin")
    about = _document(plugin.folder / _FOREIGN / "plugin.json")
    agents = [each for each in own_agents((root,)) if not each.problem]
    skills = find_skills(skill_folders(root))
    counter = Counter()
    tokens = sum(counter.text(f"- {each.name}: {each.description}\n") for each in agents)
    tokens += sum(
        counter.text(f"- {each.name}: {each.description} ({each.file})\n")
        for each in skills
        if each.offered and not each.problem
    )
    lines = [f"{plugin.name}: {plugin.description or _word(about.get('description')) or 'says nothing about itself'}"]
    for what, names in (
        ("commands", [each.name for each in markdown_files((root,), COMMANDS)]),
        ("agents", [each.name for each in agents]),
        ("skills", [each.name for each in skills]),
        ("styles", [each.name for each in markdown_files((root,), STYLES)]),
    ):
        lines += [f"  {what}: {', '.join(names)}"] if names else []
    hooks = read_hooks((root,))
    scoped = ((hook, f" {each.when}") for each in hooks.scoped for hook in each.hooks)
    for hook, when in (*((hook, "") for hook in hooks.hooks), *scoped):
        lines.append(f"  hook on {hook.event}{f' ({hook.matcher})' if hook.matcher else ''}{when} {hook.does}")
    lines += [f"  server {each}" for each in plugin_starts(plugin.folder)]
    lines += [f"  problem: {each}" for each in hooks.problems]
    lines += [f"  not used: {each}" for each in dict.fromkeys((*plugin.unused, *_unused(about)))]
    return [*lines, f"  adds about {tokens:,} tokens to each request" if tokens else "  adds nothing to a request"]


def _unused(about: Mapping[str, object]) -> Iterator[str]:
    """What a manifest has and nothing here uses, in words."""
    if about.get("lspServers"):
        yield "language servers: those that are installed are found by themselves"


def _copied(url: str, ref: str, place: Path) -> PluginOrigin:
    """Copy the files of a repository, or of a folder that is none. Raises `PluginError`."""
    if (folder := _plain_folder(url)) is not None:
        if ref:
            raise PluginError(f"{folder} is no git repository, so there is no {ref} in it")
        return PluginOrigin(url, "", _folder_copied(folder, place))
    environ = {name: value for name, value in with_search_path(os.environ).items() if not name.startswith("GIT_")}
    environ |= {
        "GIT_ALLOW_PROTOCOL": ":".join(_PROTOCOLS),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    }
    safely = ("core.hooksPath=/dev/null", "core.symlinks=false", "core.fsmonitor=false", "transfer.fsckObjects=true")
    options = [word for each in safely for word in ("-c", each)]
    clone = ["--quiet", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--template="]
    clone += [f"--branch={ref}"] if ref else []
    try:
        _git([*options, "clone", *clone, "--", url, str(place)], environ)
        commit = _git([*options, "-C", str(place), "rev-parse", "HEAD"], environ).strip()
    except FileNotFoundError:
        raise PluginError("git is not installed, and plugins are copied with it") from None
    except subprocess.TimeoutExpired:
        raise PluginError(f"{url} was not copied within {COPY_S} s; nothing was changed") from None
    except subprocess.CalledProcessError as error:
        why = one_line(error.stderr, 500)
        raise PluginError(f"{url} cannot be copied: {why or f'git ended with {error.returncode}'}") from None
    shutil.rmtree(place / ".git")
    shutil.rmtree(place / _PICKED, ignore_errors=True)
    return PluginOrigin(url, ref, commit)


def _plain_folder(url: str) -> Path | None:
    """The folder of a file address that is no git repository, bare or not."""
    if not url.startswith("file://"):
        return None
    folder = Path(unquote(urlsplit(url).path))
    is_repository = (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())
    return None if is_repository or not folder.is_dir() else folder


def _folder_copied(folder: Path, place: Path) -> str:
    """Copy the regular files of a folder, without links; returns a digest of their names and contents, which says
    whether a later copy differs. Raises `PluginError`.
    """
    if not any((folder / name).is_dir() for name in (_FOREIGN, *_SUBFOLDERS)):
        raise PluginError(_NO_PLUGIN)  # before a folder of any size is copied for nothing
    digest = sha256()
    try:
        place.mkdir()
        for top, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if name != ".git")
            own = place / Path(top).relative_to(folder)
            for name in folders:
                if not Path(top, name).is_symlink():
                    (own / name).mkdir()
            for name in sorted(names):
                file = Path(top, name)
                if stat.S_ISREG(file.lstat().st_mode):
                    shutil.copy2(file, own / name)
                    digest.update(f"{file.relative_to(folder)}\0".encode(errors="surrogateescape"))
                    digest.update(sha256((own / name).read_bytes()).digest())
    except OSError as error:
        raise PluginError(f"{folder} cannot be copied: {error_text(error)}") from None
    shutil.rmtree(place / _PICKED, ignore_errors=True)
    return digest.hexdigest()


def _changed(old: Path, new: Path) -> list[str]:
    """The files that were added, removed or written, by path."""
    before, after = ({path.relative_to(top): path for path in top.rglob("*") if path.is_file()} for top in (old, new))
    both = before.keys() & after.keys()
    written_anew = {each for each in both if before[each].read_bytes() != after[each].read_bytes()}
    return sorted(map(str, (before.keys() ^ after.keys()) | written_anew))


def _git(words: Sequence[str], environ: dict[str, str]) -> str:
    if (git := find_program("git")) is None:
        raise FileNotFoundError("git")
    done = subprocess.run(
        [git, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=True, timeout=COPY_S,
    )  # fmt: skip
    return done.stdout


def _origin_file(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.json")


def _origin(copy: Path) -> PluginOrigin:
    """Raises `PluginError`."""
    try:
        return msgspec.json.decode(_origin_file(copy).read_bytes(), type=PluginOrigin)
    except (OSError, ValueError) as error:
        raise PluginError(f"{_origin_file(copy)} cannot be read: {error}; remove the plugin and add it again") from None


def _document(path: Path) -> dict[str, object]:
    """The JSON object in a file; empty if there is none. Raises `PluginError` if it is none."""
    try:
        document = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise PluginError(f"{path.name} cannot be read: {error}") from None
    return document if isinstance(document, dict) else {}


def _word(value: object) -> str:
    return one_line(value, 500) if isinstance(value, str) else ""


def _all_names(paths: Iterable[Path]) -> list[str]:
    """The names of plugins, and those of their folders."""
    return [name for path in paths for name in (plugin_name(path), path.name)]
