"""The home of its own that a command in the sandbox has: an empty one, with what tools need to know of the user's.

It holds the name and address for git's commits, the settings that name package indexes, without their keys, and links
to the toolchain. What commands write there, such as the caches of package managers, lasts as long as the session.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from tui_agent.regex import regex
from tui_agent.system.regular import read_bytes, read_text

_MOST: Final = 200_000
_SETTING: Final = regex(r"\s*(?P<name>[\w./@-]+(?::registry)?)\s*(?:=|:(?!/)).*")
_GIT: Final = regex(
    r"user\.(?:name|email)|init\.defaultbranch|core\.(?:autocrlf|eol|quotepath)|pull\.(?:rebase|ff)"
    r"|push\.(?:default|autosetupremote)|merge\.conflictstyle|commit\.cleanup"
)
_NPM: Final = regex(
    r"\.(?:(?:@[\w.-]+:)?registry|cafile|strict-ssl|save-exact|legacy-peer-deps|engine-strict|fund|audit"
    r"|update-notifier)"
)
PIP: Final = regex(
    r"[\w-]+\.(?:index-url|extra-index-url|find-links|no-index|trusted-host|cert|timeout|retries|constraint"
    r"|disable-pip-version-check|prefer-binary|only-binary|no-binary)"
)
_CARGO: Final = ("source", "registries", "net", "http", "build", "target")
_SECRET: Final = regex(r"token|secret|password|credential|auth|key", re.IGNORECASE)
_CACHES: Final = {".cargo/registry": 3, ".cargo/git": 2}
"""Caches that a command may add to, with the depth at which what is in them is the user's and only read."""
_READ_BY_VARIABLES: Final = ("go/pkg/mod", ".gradle/caches")
"""Caches that tools find by `cache_variables`."""
_MOST_LINKS, _MOST_COPIED = 20_000, 4_096
_IGNORED: Final = ".config/git/ignore"


def fill(own: Path, home: Path, shown: Iterable[str]) -> None:
    """Make `own` the home of a command, from the user's `home`; `shown` are the places in it that it may read.

    Reads and writes files.
    """
    for place in shown:
        name = place[len(f"{home}/") :] if place.startswith(f"{home}/") else ""
        with suppress(OSError):
            if name in _CACHES:
                (own / name).mkdir(parents=True, exist_ok=True)
                _link_below(Path(place), own / name, _CACHES[name])
            elif name and name not in _READ_BY_VARIABLES:
                (own / name).parent.mkdir(parents=True, exist_ok=True)
                (own / name).symlink_to(place)
    known: tuple[tuple[str, str, Callable[[str], Iterable[str]]], ...] = (
        (".gitconfig", ".gitconfig", partial(settings_of, _GIT)),
        (".config/git/config", ".config/git/config", partial(settings_of, _GIT)),
        (_IGNORED, _IGNORED, str.splitlines),
        (".npmrc", ".npmrc", partial(settings_of, _NPM)),
        (".config/pip/pip.conf", ".config/pip/pip.conf", partial(settings_of, PIP)),
        (".pip/pip.conf", ".pip/pip.conf", partial(settings_of, PIP)),
        (".cargo/config.toml", ".cargo/config.toml", cargo_settings),
        (".cargo/config", ".cargo/config.toml", cargo_settings),
    )
    for theirs, ours, settings in known:
        with suppress(OSError, ValueError):
            lines = list(settings(read_text(home / theirs, _MOST)))
            if lines and not os.path.lexists(own / ours):
                (own / ours).parent.mkdir(parents=True, exist_ok=True)
                (own / ours).write_text("\n".join(lines) + "\n")


def cache_variables(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that have tools read the user's caches, and write into those of the command's own home."""
    found = {}
    if (gradle := home / ".gradle" / "caches").is_dir():
        found["GRADLE_RO_DEP_CACHE"] = str(gradle)
    if "GOPROXY" not in environment and (go := home / "go" / "pkg" / "mod" / "cache" / "download").is_dir():
        found["GOPROXY"] = f"file://{go},https://proxy.golang.org,direct"
    return found


def _link_below(theirs: Path, ours: Path, depth: int) -> None:
    """Make the folders of `theirs` in `ours`, so that more can be put there, with links to what is `depth` below."""
    for entry in islice(os.scandir(theirs), _MOST_LINKS):
        with suppress(OSError):
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                (ours / entry.name).mkdir()
                _link_below(Path(entry.path), ours / entry.name, depth - 1)
            elif entry.is_file(follow_symlinks=False) and entry.stat().st_size < _MOST_COPIED:
                (ours / entry.name).write_bytes(read_bytes(entry.path, _MOST_COPIED))
            else:
                (ours / entry.name).symlink_to(entry.path)


def settings_of(wanted: re.Pattern[str], text: str) -> Iterator[str]:
    """The lines of an INI file with `wanted` settings, ``section.name``, but none that names a user in an address."""
    section = head = ""
    keeps = False
    for line in text.splitlines():
        setting = _SETTING.fullmatch(line)
        if line.strip().startswith("["):
            section, keeps = line.strip().strip("[]").strip().lower(), False
            head = f"[{section}]"
        elif setting:
            name = setting["name"].lower()
            keeps = wanted.fullmatch(f"{section}.{name}") is not None and not has_user(line)
            if keeps:
                yield from (head,) if head else ()
                yield line.strip()
                head = ""
        elif keeps and section and line[:1].isspace() and not has_user(line):
            yield f"    {line.strip()}"  # the value goes on


def cargo_settings(text: str) -> Iterator[str]:
    """The settings of cargo's config.toml that name sources and targets, without keys, as dotted TOML."""

    def flat(place: str, value: object) -> Iterator[str]:
        if isinstance(value, Mapping):
            for name, below in value.items():
                if not _SECRET.search(name):
                    yield from flat(f"{place}.{json.dumps(name)}" if place else json.dumps(name), below)
        elif isinstance(value, str | bool | int | list) and not has_user(str(value)):
            with suppress(TypeError):
                yield f"{place} = {json.dumps(value)}"

    import tomllib

    read = tomllib.loads(text)
    yield from flat("", {name: read[name] for name in _CARGO if name in read})


def has_user(value: str) -> bool:
    """Whether a text has an address with a user or a password in it."""
    return re.search(r"://[^/\s]*@", value) is not None
