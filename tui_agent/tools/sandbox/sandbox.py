"""The sandbox that commands run in: which mechanism this machine offers, and what a command may do.

On Linux the program builds its own, with nothing to install: namespaces with a view of the files (`mounts`), and behind
them Landlock and a seccomp filter. If the kernel allows no namespaces, Landlock and the filter remain: then a command
has no network, not even its own localhost, and changes of modes, owners and times are made on its behalf
(`supervisor`). On macOS Seatbelt is used. Elsewhere there is no sandbox.

The package `sandlock` (0.9) was considered: it requires Linux 6.7 with Landlock 6 and works without namespaces, so
commands would have no process namespace and no localhost of their own.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.system.temporary import LockedFolder, remove_left_over
from tui_agent.tools.base import Change, Tool, ToolContext, ToolOutput
from tui_agent.tools.built_in import Wrapping
from tui_agent.tools.gate.rules import CHANGE, READ, Rule, about, catching_path
from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.guard import Guard
from tui_agent.tools.sandbox.guarded import MAX_LIMITED, Finder, Limit, common_git_folder, is_git_folder
from tui_agent.tools.sandbox.held_by_git import GitState, Held, state_of
from tui_agent.tools.sandbox.home import cache_variables, fill
from tui_agent.tools.sandbox.interrupted import Journal
from tui_agent.tools.sandbox.landlock import deepest
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import AVAILABLE, SEATBELT, close_launchers, in_seatbelt, launcher_of
from tui_agent.tools.sandbox.proxy import EVERYTHING, VARIABLES, Ask, Proxy
from tui_agent.tools.sandbox.readable import SYSTEM, hidden_in, readable, with_keys
from tui_agent.tools.sandbox.system_calls import is_known

Choice: TypeAlias = Literal["auto", "required", "off"]
Kind: TypeAlias = Literal["namespaces", "landlock", "seatbelt", "none"]

WITHHELD: Final = "withheld"
"""The folder, in the session's own, for what commands wrote to guarded paths."""
JOURNALS: Final = "journals"
"""The folder, in the program's own, for the journals of running commands."""
HELD: Final = "held"
"""The folder, in the program's own, for what commands left to git, by project."""
HOME: Final = "home"
"""The folder, among the temporary files, that is the home of commands."""
_TRIAL_S: Final = 20.0
_OUT_OF_TIME: Final = "it took too long"


class SandboxMechanism(msgspec.Struct, frozen=True):
    """What confines commands on this machine. `detail` says what it consists of, or why there is none."""

    kind: Kind
    detail: str


class SandboxFolders(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that a sandbox needs to know.

    `folders`: where the session works. `project`: the root of its project, which may be above them. `program`: this
    program's home (``TUI_AGENT_HOME``), of which only `shown` may be read. `session`: the session's own folder.
    `added`: what the user lets commands read besides. `guarded`: files that no command may change whatever their names,
    such as the scripts of hooks. `home`: the user's, which commands do not see.
    """

    folders: tuple[Path, ...]
    project: Path
    program: Path
    session: Path
    shown: tuple[Path, ...] = ()
    added: tuple[Path, ...] = ()
    guarded: tuple[Path, ...] = ()
    home: Path = msgspec.field(default_factory=lambda: Path(os.path.realpath(Path.home())))


_looking = threading.Lock()


def mechanism() -> SandboxMechanism:
    """What this machine offers. The first call tests it, which takes about 0.1 s: call it off the event loop."""
    with _looking:
        return _find()


@cache
def _find() -> SandboxMechanism:
    if sys.platform == "darwin":
        if os.access(SEATBELT, os.X_OK):
            return SandboxMechanism("seatbelt", f"Seatbelt ({SEATBELT})")
        return SandboxMechanism("none", f"{SEATBELT} is missing")
    if not AVAILABLE:
        return SandboxMechanism("none", f"there is none for {sys.platform}")
    if not is_known():
        return SandboxMechanism("none", f"its filter of system calls is not made for {kernel.machine()}")
    landlock = kernel.landlock_version()
    behind = f"Landlock {landlock}, seccomp" if landlock else "seccomp"
    # On a very busy machine the first trial may time out, which says nothing about the kernel.
    runs, how = _trial(mounts=True)
    if how == _OUT_OF_TIME:
        runs, how = _trial(mounts=True)
    if runs:
        return SandboxMechanism("namespaces", f"namespaces{how}, {behind}")
    not_so = "not in this kernel"
    if landlock:
        runs, not_so = _trial(mounts=False)
        if runs:
            return SandboxMechanism("landlock", f"{behind}, without network or namespaces ({how})")
    return SandboxMechanism("none", how if how == not_so else f"{how}; Landlock: {not_so}")


class Sandbox:
    """The sandbox for a session's commands, including those of subtasks.

    `network`: the domains that commands may reach; `proxy.EVERYTHING`: all of the network, without the proxy.
    `limits`: the user's rules about files that may not be read, which are hidden, or not changed, which are read-only,
    and about addresses.
    `offered`: the mechanism to use, instead of testing for one.
    """

    def __init__(
        self,
        choice: Choice,
        places: SandboxFolders,
        *,
        network: Iterable[str] = (),
        limits: Iterable[Rule] = (),
        offered: SandboxMechanism | None = None,
    ) -> None:
        self.choice: Choice = choice
        self.places = places
        domains = tuple(network)
        self.network = EVERYTHING in domains
        self.proxy = Proxy(domains, limits := tuple(limits))
        self._offered = offered
        self._temporary: LockedFolder | None = None
        self._making = threading.Lock()
        self._shown: tuple[object, list[str]] | None = None
        self._guarding = threading.Lock()
        self._unread, self._unchanged = about((READ,), limits), about(CHANGE, limits)
        self._finder = Finder(places.home, places.guarded, self._limit if self._unread or self._unchanged else None)
        self._shown_finder = Finder(places.home, (), self._limit)
        self._git: dict[str, GitState] = {}
        name = sha256(os.fsencode(places.project)).hexdigest()
        self._held = Held(places.program / HELD / f"{name}.json")
        self._taken = 0
        self._journal = Journal(places.program / JOURNALS, places.session / WITHHELD / "killed", self._held)
        self._guards = self._hides_all = True

    @property
    def kind(self) -> Kind:
        """What confines commands here. The first use takes about 0.1 s: call it off the event loop."""
        return "none" if self.choice == "off" else (self._offered or mechanism()).kind

    @property
    def confines(self) -> bool:
        """Whether commands are confined, except those that are allowed outside."""
        return self.kind != "none"

    @property
    def isolates(self) -> bool:
        """Whether a command inside can change and reach only what the sandbox grants; False if it has the network, and
        once there were more folders than guarded files can be looked for in, or more files than can be hidden.
        """
        # Landlock cannot hide a file in a folder in which others may be made.
        hides = self._hides_all and (not self._unread or self.kind != "landlock")
        return self.confines and not self.network and self._guards and hides

    @property
    def trouble(self) -> str:
        """Why commands are not confined although they should be; empty if they are, or need not be."""
        return "" if self.choice == "off" or self.confines else (self._offered or mechanism()).detail

    @property
    def rules(self) -> str:
        """A few words on what a command may do in it."""
        folders = ", ".join(map(str, self.places.folders))
        if self.network:
            network = "the network may be used"
        elif self.kind == "namespaces":
            network = "it reaches the network only by HTTP, through the proxy of HTTPS_PROXY, and the user is asked"
        else:
            network = "there is no network"
        hidden = ", but not the files that the user's rules keep from it" if self._unread else ""
        return (
            f"a command may write in {folders} and in its temporary folder, except guarded files; it may read those, "
            f"the system's programs and the toolchain{hidden}, and has an empty home of its own; {network}"
        )

    def temporary(self) -> Path:
        """The commands' folder for temporary files, with their home in it; created on first use. Writes files."""
        with self._making:
            if self._temporary is None:
                made = LockedFolder()
                own = made.files / HOME
                own.mkdir(0o700)
                fill(own, self.places.home, self._readable(os.environ))
                self._temporary = made
                threading.Thread(target=remove_left_over, args=(made.parent,), daemon=True).start()
            return self._temporary.files

    def request(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: dict[str, str],
        *,
        guard: Guard,
        read_only: bool = False,
        added: Iterable[Path] = (),
    ) -> Request:
        """The request that starts a command inside; `added` are paths that the user allowed it to read.

        Reads folders: call it off the event loop.
        """
        kind = self.kind
        temporary = str(self.temporary())
        mounts = kind == "namespaces"
        inside = "/tmp" if mounts else temporary  # noqa: S108 - the view's own
        variables = cache_variables(self.places.home, environment)
        variables |= VARIABLES if mounts and not self.network else {}
        folders = [str(place) for place in guard.folders]
        closed = folders if read_only else [path for path in folders if self._limit(path) == "write"]
        writable = [path for path in folders if path not in closed]
        shown = [*self._readable(environment), *(os.path.realpath(path) for path in (*self.places.shown, *added))]
        hidden = [path for place in (*shown, *folders) for path in hidden_in(place, self.places.home)]
        hidden += [path for place in self._readable(environment) for path in with_keys(place)]
        own = str(self.places.program)
        hidden += [own] if deepest(own, (*shown, *folders)) else []
        hidden = [path for path in hidden if path not in folders and path not in shown]
        allowed = {os.path.realpath(path) for path in added}
        hidden += [path for path in self._secret(guard, shown) if path not in allowed] if kind != "landlock" else []
        # A toolchain in the project, such as its virtual environment, stays writable like all of it.
        shown = [path for path in shown if not deepest(path, folders) or deepest(path, hidden)]
        # The program's own installation, if it is in the project, is run outside.
        program = os.path.realpath(sys.prefix)
        kept = [program] if deepest(program, folders) and program not in folders else []
        shown += closed
        fixed = [path for path in guard.fixed if os.path.realpath(path) == path and not deepest(path, hidden)]
        request = Request(
            list(arguments),
            str(folder),
            {**environment, "HOME": f"{inside}/{HOME}", "TMPDIR": inside, "TMP": inside, "TEMP": inside, **variables},
            confined=True,
            mounts=mounts,
            network=self.network,
            landlock=kernel.landlock_version() if AVAILABLE else 0,
            writable=[*writable, *self._anchors(writable, [*fixed, *kept])],
            readonly=[*fixed, *kept, *shown],
            hidden=hidden,
            temporary=temporary,
        )
        return request._replace(arguments=in_seatbelt(request)) if kind == "seatbelt" else request

    def _limit(self, path: str) -> Limit | None:
        """What the user's rules forbid, or have them asked about, for a path."""
        root = str(self.places.folders[0])
        if catching_path(self._unread, path, root):
            return "read"
        return "write" if catching_path(self._unchanged, path, root) else None

    def _secret(self, guard: Guard, shown: Iterable[str]) -> list[str]:
        """What the user's rules hide, in the writable folders and in those of the user that are `shown` besides."""
        if not self._unread:
            return []
        ours = {os.path.realpath(path) for path in (self.places.project, *self.places.added)}
        places = [path for path in shown if path in ours]
        below = self._shown_finder.look(map(Path, places)).limited
        secret = {path for path, limit in (*guard.limited.items(), *below.items()) if limit == "read"}
        secret.update(path for path in places if self._limit(path) == "read")
        self._hides_all = len(secret) <= MAX_LIMITED
        return sorted(secret)[:MAX_LIMITED]

    async def ready(self, request: Request, ask: Ask | None = None) -> None:
        """Start what starts it, and the proxy; `ask` is asked about domains. Raises OSError."""
        await ready(request)
        if request.mounts and (listener := launcher_of(request).proxy) is not None:
            await self.proxy.serve(listener, ask)

    def guard(self, *, confines: bool = True) -> Guard:
        """Record what is at guarded paths. `confines`: before a command that may write in the sandbox, which keeps some
        of them fixed; `take_back` has to follow. Reads files: call it off the event loop.
        """
        # What a command changes that starts meanwhile must not be taken for what was there before.
        with self._guarding:
            running = self._journal.running
            frozen = confines and self.kind != "landlock"
            guard = Guard(self._finder, self._writable(), frozen=frozen, earlier=running[0] if running else None)
            if confines:
                self._guards = guard.whole
                guard.git = {place: state_of(place, self._git.get(place)) for place in guard.repositories}
                self._git = dict(guard.git)
                self._journal.write(begun=guard)
            return guard

    @property
    def held(self) -> tuple[Change, ...]:
        """The guarded files that commands of any session staged, committed or stashed in this project, and the user has
        not allowed since. Reads a file.
        """
        return self._held.all

    def accept_held(self, accepted: Sequence[Change]) -> None:
        """Forget what a command left to git, once the user has accepted it. Writes a file."""
        self._held.accept(accepted)

    def take_back(self, guard: Guard) -> tuple[list[Path], list[Change]]:
        """Restore the guarded files that a command changed; returns their paths, and what it left to git, which is also
        `held`. Writes files. Raises OSError. Call it off the event loop.
        """
        with self._guarding:
            self._taken += 1
            try:
                changed = guard.take_back(self.places.session / WITHHELD / str(self._taken))
                return changed, self._held.add(guard.left_to_git())
            finally:
                self._guards = guard.whole
                self._journal.write(ended=guard)

    def accept(self, guard: Guard, only: Sequence[str] | None = None) -> list[str]:
        """Accept what changed at guarded paths since `guard` was made, all of it or no more than these files, since the
        user allowed it: it is not taken back after a command that runs now. What such a command had put there before
        is. Returns no notes.
        """
        with self._guarding:
            changed = guard.changed(only) if self._journal.running else {}
            for each in self._journal.running:
                each.accept(changed)
            self._journal.write()
        return []

    def close(self) -> None:
        """End what still runs, and remove the temporary folder."""
        self._journal.close()
        with self._making:
            temporary, self._temporary = self._temporary, None
            if temporary is not None:
                close_launchers(str(temporary.files))
                temporary.remove()

    def _writable(self) -> list[Path]:
        """The writable folders: those of the session, and the git folder of the worktree they belong to."""
        places = self.places
        of_git = (places.project / ".git", common_git_folder(places.project))
        found = [git for git in of_git if git is not None and not git.is_symlink() and is_git_folder(git)]
        return [folder for folder in dict.fromkeys((*places.folders, *found)) if folder != folder.parent]

    def _anchors(self, writable: list[str], fixed: Iterable[str]) -> list[str]:
        """The parents of guarded paths: as mounts of their own they cannot be renamed, with what is guarded in them."""
        above: set[str] = set()
        for folder in writable:
            for path in fixed:
                place = path.rpartition("/")[0]
                while place.startswith(f"{folder}/") and place not in above:
                    above.add(place)
                    place = place.rpartition("/")[0]
        return sorted(above.difference(writable, fixed))

    def _readable(self, environment: Mapping[str, str]) -> list[str]:
        key = tuple(sorted(environment.items()))
        if self._shown is None or self._shown[0] != key:
            self._shown = key, readable(environment, self.places.home, self.places.added)
        return self._shown[1]


async def ready(request: Request) -> None:
    """Start the matching launcher, if this system has launchers. Raises OSError."""
    launcher = launcher_of(request)
    if AVAILABLE and not launcher.runs:
        await asyncio.to_thread(launcher.ready)


def _trial(*, mounts: bool) -> tuple[bool, str]:
    """Run a command that does nothing in such a sandbox; returns whether that works, and how, or why not."""
    with LockedFolder() as folder:
        project = folder.files / "project"
        project.mkdir()
        shell = next(path for path in ("/bin/sh", "/usr/bin/sh", "/bin/bash") if os.access(path, os.X_OK))
        request = Request(
            [shell, "-c", ": > written"],
            str(project),
            {},
            confined=True,
            mounts=mounts,
            landlock=kernel.landlock_version(),
            writable=[str(project)],
            readonly=[os.path.realpath(place) for place in SYSTEM if Path(place).exists()],
            temporary=str(folder.files),
        )
        launcher = launcher_of(request)
        output = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with contextlib.closing(launcher.launch(request, output)) as status:
                status.settimeout(_TRIAL_S)
                printed = b""
                while piece := status.recv(4096):
                    printed += piece
        except TimeoutError:
            return False, _OUT_OF_TIME
        except OSError as error:
            return False, error.strerror or str(error)
        finally:
            os.close(output)
            close_launchers(str(folder.files))
    if b'"exit": 0' in printed:
        return True, launcher.how
    return False, printed.decode(errors="replace").strip().replace("\n", " ") or "it ended at once"


class SandboxAware(Wrapping):
    """Wraps a tool that asks the user, and tells the sandbox to accept the guarded files that the tool changes.

    Otherwise they would be taken back after the next command.
    """

    def __init__(self, tool: Tool, sandbox: Sandbox) -> None:
        super().__init__(tool)
        self._sandbox = sandbox

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        guarded = [access.target for access in context.accesses if access.guarded]
        if not guarded:
            return await self._tool.run(arguments, context)
        guard = await asyncio.to_thread(self._sandbox.guard, confines=False)
        try:
            return await self._tool.run(arguments, context)
        finally:
            await asyncio.to_thread(self._sandbox.accept, guard, guarded)
