"""What a command may read besides the project: the system's programs, the user's toolchain, and what was added.

Nothing else is shown, so a secret needs no name here to stay unread: the home, other users' homes, mounted disks and
services' folders are simply not there. A command has a home of its own (`home`) instead.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from tui_agent.regular import read_text
from tui_agent.tools.gate.patterns import words

_MAC: Final = ("/System", "/Library", "/Applications", "/private/etc", "/private/var/select", "/private/var/db", "/dev")
SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap", "/sys"),
    *("/home/linuxbrew/.linuxbrew", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/var/lib/flatpak"),
    *(_MAC if sys.platform == "darwin" else ()),
)
"""Folders of programs and their configuration."""
_OUTSIDE_THEM: Final = ("/etc/resolv.conf", "/etc/localtime", "/etc/mtab")
"""Links of the system to files that are not in `SYSTEM`."""

TOOLCHAIN: Final = words(
    """
    .cargo/bin .cargo/env .cargo/registry .cargo/git .rustup .elan go/bin go/pkg/mod sdk .pyenv .local/pipx
    .local/share/pipx .local/share/uv/python .local/share/uv/tools .local/share/virtualenvs .conda/envs miniconda3
    anaconda3 miniforge3 mambaforge micromamba .local/bin .local/lib .nvm .nodenv .volta .fnm .local/share/fnm .bun
    .deno .local/share/pnpm .npm-global .yarn/bin .config/yarn/global .rbenv .rvm .gem/ruby .local/share/gem/ruby
    .goenv .jenv .sdkman .m2/repository .m2/wrapper .gradle/caches .gradle/wrapper .nuget/packages .dotnet/dotnet
    .dotnet/host .dotnet/sdk .dotnet/shared .dotnet/packs .dotnet/templates .dotnet/tools .asdf .local/share/mise
    .local/share/rtx .ghcup .cabal/bin .cabal/packages .stack/programs .opam .juliaup .julia/packages
    .julia/artifacts .mix .hex/packages .pub-cache/hosted .composer/vendor .config/composer/vendor Android/Sdk
    .platformio/packages .foundry/bin .linuxbrew .nix-profile .local/state/nix/profiles .cache/ms-playwright
    .cache/puppeteer .cache/pre-commit .cache/node Library/Python Library/Android/sdk Library/pnpm bin
    """
)
"""Folders in a home that hold compilers, interpreters and packages, but no keys."""
_NAMED_BY: Final = words(
    """
    VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT RUSTUP_HOME NVM_DIR NVM_BIN VOLTA_HOME JAVA_HOME GOROOT ANDROID_HOME
    ANDROID_SDK_ROOT DOTNET_ROOT GEM_HOME RBENV_ROOT BUN_INSTALL PNPM_HOME SSL_CERT_FILE SSL_CERT_DIR
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS PIP_CERT GIT_SSL_CAINFO CARGO_HTTP_CAINFO PIP_FIND_LINKS
    UV_FIND_LINKS PIP_CONSTRAINT
    """
)
"""Variables whose value is a place that a toolchain needs."""
_PROGRAMS: Final = frozenset({"bin", "sbin", "shims", ".bin", "Scripts"})
_OF_INSTALLATIONS: Final = ("pyvenv.cfg", "lib", "lib64", "libexec", "conda-meta")
_WORKED_IN: Final = frozenset(
    {".git", ".github", ".gitignore", ".gitattributes", ".gitmodules", ".editorconfig", ".venv"}
)
"""Hidden entries of a home that belong to a project in it."""
_DEPTH: Final = 3
_SETTINGS: Final = tuple(
    f"{installed}{name}"
    for installed, names in {
        "": "pip.conf .npmrc npmrc rc etc/npmrc local/etc/npmrc .condarc condarc .netrc .env credentials",
        "versions/*/": "pip.conf .condarc",
        "versions/node/*/": "etc/npmrc",
        "tools/image/node/*/": "etc/npmrc",
        "installs/*/*/": "etc/npmrc pip.conf .condarc",
        "envs/*/": "pip.conf .condarc",
        "venvs/*/": "pip.conf",
        "*/": "pip.conf .npmrc .netrc .git/config",
    }.items()
    for name in names.split()
)
"""Where package managers look for settings in an installation."""
_KEY: Final = re.compile(r"_auth|token|passw|secret|credential|login|://[^/\s]*@|/t/[\w-]{8,}", re.IGNORECASE)
_MOST_SETTINGS, _MOST_BYTES = 1_000, 200_000


def readable(environment: Mapping[str, str], home: Path, added: Iterable[Path] = ()) -> list[str]:
    """The existing places that a command may read, resolved. Reads folders.

    `environment` is the user's: its PATH and variables such as JAVA_HOME name parts of the toolchain. `added` are
    places that the user added.
    """
    found = [*SYSTEM, *map(os.path.realpath, _OUTSIDE_THEM), sys.prefix, sys.base_prefix]
    found += (str(home / name) for name in TOOLCHAIN)
    found += (value for name in _NAMED_BY if (value := environment.get(name, "")).startswith("/"))
    found += (place for entry in environment.get("PATH", "").split(os.pathsep) for place in _installation(entry))
    above = {str(place) for place in (home, *home.parents)}
    # Each is resolved, so that a link in the home can show nothing but what it leads to.
    resolved = [place for name in found if name not in above and (place := os.path.realpath(name)) not in above]
    resolved += (os.path.realpath(place) for place in added)
    places = [place for place in dict.fromkeys(resolved) if place != "/" and Path(place).exists()]
    return [place for place in places if not any(place.startswith(f"{other}/") for other in places)]


def _installation(entry: str) -> Iterator[str]:
    """A folder of the PATH; if it is the ``bin`` of an installation, all of that, for its libraries."""
    if not entry.startswith("/"):
        return
    folder = Path(os.path.realpath(entry))
    yield str(folder)
    above = folder.parent
    alone = folder.name not in _PROGRAMS or above.name in {".local", ".cargo"} or len(above.parts) <= 2
    if not alone and (folder.name == ".bin" or any((above / name).exists() for name in _OF_INSTALLATIONS)):
        yield str(above)


def hidden_in(place: str, home: Path) -> list[str]:
    """What may not be read in a place that is shown: see `of_root_alone`; in the home itself, all hidden entries."""
    found = list(of_root_alone(place)) if place == "/etc" else []
    if f"{home}/".startswith(f"{place}/"):
        with suppress(OSError):
            names = [entry.name for entry in home.iterdir() if entry.name.startswith((".", "snap", "Library"))]
            found += (f"{home}/{name}" for name in names if name not in _WORKED_IN)
    return found


@cache
def with_keys(place: str) -> tuple[str, ...]:
    """The settings of package managers in a folder of programs that hold keys or passwords. Reads files, once."""
    found = (path for pattern in _SETTINGS for path in islice(Path(place).glob(pattern), _MOST_SETTINGS))
    return tuple(str(path) for path in found if _has_keys(path))


def _has_keys(path: Path) -> bool:
    with suppress(OSError):
        return _KEY.search(read_text(path, _MOST_BYTES)) is not None
    return False


@cache
def of_root_alone(folder: str, depth: int = _DEPTH) -> tuple[str, ...]:
    """Files and folders that not everybody may read, such as passwords and private keys. Reads folders, once."""
    found: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                mode = entry.stat(follow_symlinks=False).st_mode
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found += of_root_alone(entry.path, depth - 1) if mode & 0o005 == 0o005 and depth else ()
                    found += [] if mode & 0o005 == 0o005 else [entry.path]
                elif not mode & 0o004:
                    found.append(entry.path)
    return tuple(found)
