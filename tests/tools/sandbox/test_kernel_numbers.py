"""The numbers that the sandbox knows of the kernel, against its headers, and what its filter decides, interpreted."""

import errno
import os
import re
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tui_agent.tools.sandbox import kernel, landlock, system_calls
from tui_agent.tools.sandbox.landlock import paths_around
from tui_agent.tools.sandbox.sandbox import mechanism
from tui_agent.tools.sandbox.system_calls import LandlockOnly, command_filter

HEADERS = Path("/usr/include")
INCLUDED = (
    "linux/sched.h linux/mount.h linux/prctl.h linux/landlock.h linux/seccomp.h linux/fcntl.h linux/audit.h linux/fs.h "
    "linux/capability.h linux/bpf_common.h linux/openat2.h linux/net.h linux/inotify.h linux/elf-em.h "
    "asm-generic/fcntl.h asm-generic/ioctls.h asm-generic/unistd.h linux/ioctl.h linux/fiemap.h"
)
needs_headers = pytest.mark.skipif(
    not (HEADERS / "linux/landlock.h").exists(), reason="the kernel's headers are not here"
)
on_this_machine = pytest.mark.skipif(kernel.machine() != "x86_64", reason="the numbers of x86-64 are asked for")


@cache
def defined() -> dict[str, int]:
    """What the headers define as a number, or as an expression of others."""
    texts: dict[str, str] = {}
    for name in INCLUDED.split():
        if (path := HEADERS / name).exists():
            for line in re.sub(r"/\*.*?\*/|\\\n", "", path.read_text(), flags=re.DOTALL).split("\n"):
                if found := re.match(r"\s*#\s*define\s+(\w+)\s+(\S.*)", line):
                    texts.setdefault(found[1], found[2])
    values: dict[str, int] = {}
    for _ in range(4):
        for name, text in texts.items():
            plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
            plain = re.sub(r"(?<![\w.])0(\d+)\b", r"0o\1", plain)
            named = re.sub(r"\b[A-Za-z_]\w*\b", lambda found: str(values.get(found[0], found[0])), plain)
            if re.fullmatch(r"[\d\sxXoa-fA-F()|<+-]+", named):
                try:
                    values[name] = int(eval(named, {"__builtins__": {}}))  # noqa: S307 - digits and operators alone
                except (SyntaxError, TypeError):
                    continue
    return values


KERNEL = {
    "_LANDLOCK_VERSION": "LANDLOCK_CREATE_RULESET_VERSION",
    "_LANDLOCK_CREATE": "__NR_landlock_create_ruleset",
    "_LANDLOCK_ADD": "__NR_landlock_add_rule",
    "_LANDLOCK_RESTRICT": "__NR_landlock_restrict_self",
    "_OPEN_TREE": "__NR_open_tree",
    "_MOVE_MOUNT": "__NR_move_mount",
    "_MOUNT_SETATTR": "__NR_mount_setattr",
    "_PIDFD_GETFD": "__NR_pidfd_getfd",
    "_OPENAT2": "__NR_openat2",
    "_OPEN_TREE_CLONE": "OPEN_TREE_CLONE",
    "_RESOLVE_NO_SYMLINKS": "RESOLVE_NO_SYMLINKS",
    "_CAPABILITY_VERSION_3": "_LINUX_CAPABILITY_VERSION_3",
    "_SECCOMP_SET_MODE_FILTER": "SECCOMP_SET_MODE_FILTER",
    "_SECCOMP_NEW_LISTENER": "SECCOMP_FILTER_FLAG_NEW_LISTENER",
    "ATTR_RDONLY": "MOUNT_ATTR_RDONLY",
    "ATTR_NOSUID": "MOUNT_ATTR_NOSUID",
    "ATTR_NODEV": "MOUNT_ATTR_NODEV",
}
PREFIXES = ("CLONE_", "MS_", "PR_", "_AT_")
"""What begins so is named as in the headers."""
LANDLOCK = {
    "_EXECUTE": "FS_EXECUTE",
    "_WRITE_FILE": "FS_WRITE_FILE",
    "_READ_FILE": "FS_READ_FILE",
    "_READ_DIR": "FS_READ_DIR",
    "_REFER": "FS_REFER",
    "_TRUNCATE": "FS_TRUNCATE",
    "_IOCTL_DEV": "FS_IOCTL_DEV",
    "_BIND_TCP": "NET_BIND_TCP",
    "_CONNECT_TCP": "NET_CONNECT_TCP",
}


@needs_headers
def test_numbers_are_those_of_the_kernels_headers() -> None:
    known = defined()
    same = {name: name.removeprefix("_") for name in vars(kernel) if name.startswith(PREFIXES)}
    ours = {name: (getattr(kernel, name), header) for name, header in {**KERNEL, **same}.items()}
    ours |= {name: (getattr(landlock, name), f"LANDLOCK_ACCESS_{header}") for name, header in LANDLOCK.items()}
    # The table of asm-generic is that of ARM64.
    for calls in (kernel._BY_MACHINE["aarch64"], *system_calls._NUMBERS["aarch64"].values()):
        for name, given in calls.items():
            number = given[0] if isinstance(given, list) else given
            ours[name] = (number, f"__NR_{name}" if f"__NR_{name}" in known else f"__NR3264_{name}")
    found = {name: (value, known.get(header, value)) for name, (value, header) in ours.items()}
    assert {name: values for name, values in found.items() if values[0] != values[1]} == {}
    assert sum(header in known for _, header in ours.values()) > 110
    made = known["LANDLOCK_ACCESS_FS_MAKE_SYM"]
    assert 2 * made - 1 == landlock._ALL_OF_FIRST


def decide(program: bytes, number: int, *arguments: int, architecture: int = 0xC000_003E) -> int:
    """Run a filter as the kernel does: 0 if it allows the call, the error that it gives, or -1 to ask a supervisor."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            loaded &= value
        elif code in (0x15, 0x25, 0x35, 0x45):
            tests = {0x15: loaded == value, 0x25: loaded > value, 0x35: loaded >= value, 0x45: bool(loaded & value)}
            at += if_true if tests[code] else if_false
        else:
            assert code == 0x06
            kinds: dict[int, int] = {0x7FFF_0000: 0, 0x0005_0000: value & 0xFFFF, 0x7FC0_0000: -1}
            return kinds[value & 0xFFFF_0000]


NAMESPACES = (0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000)
CHMOD, OPEN, OPENAT, CREAT, IOCTL, FCNTL, SOCKET, SOCKETPAIR, CLONE, UNSHARE = 90, 2, 257, 85, 16, 72, 41, 53, 56, 272
READ, GETPID, IO_URING_SETUP, MOUNT, CHROOT, CLONE3, OPENAT2, X32, FCHMODAT = (
    0,
    39,
    425,
    165,
    161,
    435,
    437,
    1 << 30,
    268,
)
CHOWN, TRUNCATE, SETXATTRAT, SHMGET, SETPRIORITY, IOPRIO_SET, SCHED_SETAFFINITY = 92, 76, 463, 29, 141, 251, 203
KILL, PIDFD_OPEN, PIDFD_SEND_SIGNAL = 62, 434, 424
P, T, N = errno.EPERM, errno.ENOTTY, errno.ENOSYS
CALLS: dict[tuple[int, int, int], list[tuple[int, ...]]] = {
    # What is decided with all layers, with Landlock 2 alone, and with Landlock 7 alone: calls with their arguments
    (0, 0, 0): [
        *((READ,), (GETPID,), (CLONE, 0x11), (UNSHARE, 0x400), (SOCKET, 2), (SOCKET, 10), (SOCKET, 16)),
        *((SOCKETPAIR, 1, 1), (SOCKETPAIR, 1, 5), (FCNTL, 0, 3), (CREAT, 0, 0o755), (OPENAT, 0, 0, 0o100, 0o755)),
        (OPEN, 0, 0, 0o4755),  # opens what is there: the mode means nothing
        *((OPENAT, 0, 0, 0o1001), (OPEN, 0, 0o1002), (KILL, 0), (SCHED_SETAFFINITY, 0)),
        # Among them the clone of a file
        *((IOCTL, 0, request) for request in (0x5401, 0x4004_9409, 0x4020_940D, 0xC018_9436)),
        *((IOCTL, 0, request) for request in (0x8008_6601, 0x801C_581F, 0xC020_660B)),
    ],
    (P, P, P): [
        *((IO_URING_SETUP,), (MOUNT,), (CHROOT,), (SOCKET, 1), (SOCKET, 40), (SOCKETPAIR, 1, 2), (CREAT, 0, 0o4755)),
        *((call, flag) for call in (CLONE, UNSHARE) for flag in NAMESPACES),
        *((UNSHARE, 0x80), (SOCKETPAIR, 1, 3 | 0o4000), (FCNTL, 0, 1024), (FCNTL, 0, 1026), (CHMOD, 0, 0o4755)),
        *((IOCTL, 0, 0x5412), (IOCTL, 0, 0x541C)),  # typing into the terminal
        *((FCHMODAT, 0, 0, 0o4755), (OPEN, 0, 0o100, 0o4755), (OPENAT, 0, 0, 0o100, 0o4755)),
    ],
    (N, N, N): [(CLONE3,), (OPENAT2,), (X32,)],
    (0, N, N): [(SETXATTRAT,)],
    # A file's flags, and whatever else a file system may understand
    (0, T, T): [
        (IOCTL, 0, 0x4008_6602),
        *((IOCTL, 0, 0x5000_00FF | kind << 8) for kind in (0x58, 0x66, 0x6E, 0x72, 0x76, 0x94, 0x97, 0xBC, 0xF5)),
    ],
    (0, P, P): [(SHMGET,)],
    # The last truncates without being open for writing.
    (0, P, 0): [(PIDFD_SEND_SIGNAL, 7), *((FCNTL, 0, owner) for owner in (8, 10, 15)), (OPENAT, 0, 0, 0o1000)],
    (0, -1, -1): [(CHMOD, 0, 0o644), (CHOWN, 0), (SETPRIORITY, 0, 0), (IOPRIO_SET, 0, 0), (SCHED_SETAFFINITY, 7)],
    (0, -1, 0): [(TRUNCATE,), (KILL, 7), (PIDFD_OPEN, 7)],
}


@on_this_machine
def test_the_filter_decides() -> None:
    families = (2, 10, 16)
    programs = [command_filter(families), *(command_filter(families, LandlockOnly(version)) for version in (2, 7))]
    for decided, calls in CALLS.items():
        for call in calls:
            assert tuple(decide(program, *call) for program in programs) == decided, call
            assert decide(programs[0], *call, architecture=0x4000_0003) == errno.ENOSYS  # a program of 32 bits


@on_this_machine
def test_without_a_supervisor_what_it_would_answer_is_refused() -> None:
    asked = command_filter((), LandlockOnly(2, supervised=False))
    assert {decide(asked, *call) for decided, calls in CALLS.items() if decided[1] == -1 for call in calls} == {
        errno.EPERM
    }
    assert decide(asked, SOCKET, 2) == errno.EPERM
    for version, truncates, kills in ((2, -1, -1), (3, 0, -1), (5, 0, -1), (6, 0, 0)):
        alone = command_filter((), LandlockOnly(version))
        assert (decide(alone, 76), decide(alone, 62, 7)) == (truncates, kills)


def test_what_each_version_of_landlock_restricts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    allowed: dict[str, int] = {}

    def allow(rules: int, place: int, rights: int) -> None:
        allowed[os.readlink(f"/proc/self/fd/{place}").removeprefix(here)] = rights  # noqa: PTH115 - as text

    def made(*given: int) -> int:
        asked.append(given)
        return 99

    monkeypatch.setattr(kernel, "landlock_ruleset", made)
    monkeypatch.setattr(kernel, "landlock_allow", allow)
    (tmp_path / "file").touch()
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    here = str(tmp_path)
    readable, writable = [f"{here}/in", f"{here}/missing"], [f"{here}/out", f"{here}/file"]
    for version, network, files, ports, scopes in (
        (1, False, 0x1FFF, 0, 0),
        (2, False, 0x3FFF, 0, 0),
        (3, False, 0x7FFF, 0, 0),
        (4, False, 0x7FFF, 3, 0),
        (4, True, 0x7FFF, 0, 0),
        (5, False, 0xFFFF, 3, 0),
        (6, False, 0xFFFF, 3, 3),
        (7, True, 0xFFFF, 0, 3),
    ):
        allowed.clear()
        assert landlock.ruleset(readable, writable, version, listed=[here], network=network) == 99
        assert asked.pop() == (files, ports, scopes, version)
        of_files = files & 0xC007
        ours = {name: allowed[name] for name in ("", "/in", "/out", "/file", "/dev/null")}
        assert ours == {"": 0x8, "/in": 0xD, "/out": files, "/file": of_files, "/dev/null": of_files & ~1}
        assert "/missing" not in allowed


def test_what_is_beside_a_hidden_path_is_named(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/b/d", "a/e", "f"):
        (tmp_path / name).mkdir(parents=True)
    here = str(tmp_path)
    assert sorted(paths_around(here, [f"{here}/a/b/c"])) == [f"{here}/a/b/d", f"{here}/a/e", f"{here}/f"]
    assert paths_around(here, ["/elsewhere", f"{here}x/a"]) == [here]
    assert sorted(paths_around(here, [f"{here}/a", f"{here}/f"])) == []
    assert system_calls.is_known() == (kernel.machine() in ("x86_64", "aarch64"))


def test_there_is_a_sandbox_wherever_the_kernel_gives_a_process_its_own_namespaces() -> None:
    # All other tests of the sandbox are left out where there is none: one that never starts would pass them.
    given = ["unshare", "-Urmpnif", "--mount-proc", "true"]
    if not shutil.which(given[0]) or subprocess.run(given, capture_output=True, check=False).returncode:
        pytest.skip("not for this user, or not in this kernel")
    assert mechanism().kind == "namespaces"


@pytest.mark.skipif(mechanism().kind != "namespaces", reason="it mounts something")
def test_what_is_mounted_below_a_folder_that_is_only_read_is_only_read_too(tmp_path: Path) -> None:
    within = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none /usr/local/share && exec "$@"', "sh"]
    if not shutil.which(within[0]) or subprocess.run([*within, "true"], capture_output=True, check=False).returncode:
        pytest.skip("not for this user, or there is no such folder")
    program = [sys.executable, "-m", "tui_agent", "-p", "run touch /usr/local/share/x", "--model", "offline"]
    places = {**os.environ, "HOME": str(tmp_path), "TUI_AGENT_HOME": str(tmp_path / "home")}
    done = subprocess.run([*within, *program], cwd=tmp_path, env=places, capture_output=True, text=True, check=False)
    # Landlock alone would say that permission is denied.
    assert "touch: cannot touch '/usr/local/share/x': Read-only file system" in done.stdout


KEEPING = """
import os, sys
from tui_agent.tools.sandbox import kernel

if os.geteuid():
    kernel.unshare(kernel.CLONE_NEWUSER)
kernel.keep_capabilities((5,))
with open("/proc/self/status") as stream:
    print(*(int(line.split()[1], 16) for line in stream if line.startswith(("CapInh", "CapPrm", "CapEff"))))
"""


@pytest.mark.skipif(mechanism().kind != "namespaces", reason="it needs capabilities to give up")
def test_capabilities_are_given_up_before_another_program_is_started() -> None:
    """Even those that a program would inherit, whatever its limits: as root in a container has."""
    inherited = (
        ["setpriv", "--inh-caps", "+chown,+net_raw,+kill"] if shutil.which("setpriv") and not os.geteuid() else []
    )
    command = [*inherited, sys.executable, "-c", KEEPING]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["0", "32", "32"]
