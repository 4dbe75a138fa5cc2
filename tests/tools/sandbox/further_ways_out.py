"""More ways out, as `ways_out` has them: attributes of files, what processes share by name, devices, rights, races."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.tools.sandbox.ways_out import FACTS, HOME, LIBC, OUTSIDE, PROJECT, X86, call, others, syscall, way
else:
    from ways_out import FACTS, HOME, LIBC, OUTSIDE, PROJECT, X86, call, others, syscall, way

FILE = OUTSIDE / "file.txt"
RACE_S = 0.1
AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_FDCWD = 0x1000, 0x400, -100


def opened() -> int:
    return os.open(FILE, os.O_RDONLY)


def told_apart(before: os.stat_result) -> bool:
    """Whether mode, owner or time of the file outside are not as before."""
    now = FILE.stat()
    return (now.st_mode, now.st_uid, now.st_gid, now.st_mtime_ns) != (
        before.st_mode,
        before.st_uid,
        before.st_gid,
        before.st_mtime_ns,
    )


# What a file is besides its content


@way
def change_owner_outside() -> object:
    os.chown(FILE, os.getuid(), os.getgid())
    return True


@way
def change_owner_by_descriptor() -> object:
    os.fchown(opened(), os.getuid(), os.getgid())
    return True


@way
def change_owner_by_an_empty_path() -> object:
    return syscall(260 if X86 else 54, opened(), b"", os.getuid(), os.getgid(), AT_EMPTY_PATH) == 0


@way
def change_time_by_descriptor() -> object:
    os.utime(opened(), (1, 1))
    return True


@way
def change_time_to_now() -> object:
    os.utime(FILE)
    return True


@way
def change_time_in_the_old_way() -> object:
    return X86 and syscall(132, str(FILE).encode(), struct.pack("qq", 1, 1)) == 0


@way
def change_mode_by_the_name_of_a_descriptor() -> object:
    Path(f"/proc/self/fd/{opened()}").chmod(0o777)
    return True


@way
def change_mode_by_the_newest_call() -> object:
    return syscall(452, opened(), b"", 0o777, AT_EMPTY_PATH) == 0


@way
def change_mode_of_a_folder() -> object:
    OUTSIDE.chmod(0o777)
    return True


@way
def change_mode_by_a_folders_descriptor() -> object:
    os.chmod("file.txt", 0o777, dir_fd=os.open(OUTSIDE, os.O_RDONLY))  # noqa: S103
    return True


@way
def change_mode_through_a_link() -> object:
    (PROJECT / "to-mode").symlink_to(FILE)
    (PROJECT / "to-mode").chmod(0o777)
    return True


def raced(swap: Callable[[], object], change: Callable[[int], object]) -> bool:
    """Whether `change` reached the file outside while another thread does `swap` over and over."""
    before, over = FILE.stat(), False

    def swapping() -> None:
        while not over:
            swap()

    other = threading.Thread(target=swapping)
    other.start()
    began, number = time.monotonic(), 0
    while time.monotonic() < began + RACE_S:
        number += 1
        with suppress(OSError):
            change(0o700 | number % 64)
    over = True
    other.join()
    return told_apart(before)


@way
def change_mode_while_the_folder_is_swapped() -> object:
    """Another thread makes the same name now a folder of the project, now a link to the outside."""
    one, other = PROJECT / "real", PROJECT / "linked"
    one.mkdir()
    (one / "file.txt").write_text("x")
    other.symlink_to(OUTSIDE)
    return raced(lambda: LIBC.renameat2(AT_FDCWD, bytes(one), AT_FDCWD, bytes(other), 2), (one / "file.txt").chmod)


@way
def change_mode_while_the_descriptor_is_swapped() -> object:
    (PROJECT / "own").write_text("x")
    place, own, foreign = opened(), os.open(PROJECT / "own", os.O_RDONLY), opened()
    return raced(lambda: (os.dup2(own, place), os.dup2(foreign, place)), lambda mode: os.fchmod(place, mode))


@way
def change_mode_while_the_path_is_rewritten() -> object:
    """The path lies in memory that another thread changes."""
    (PROJECT / "inner").write_text("x")
    inside, outside = bytes(PROJECT / "inner") + b"\0", bytes(FILE) + b"\0"
    path = ctypes.create_string_buffer(max(len(inside), len(outside)))
    return raced(
        lambda: (ctypes.memmove(path, inside, len(inside)), ctypes.memmove(path, outside, len(outside))),
        lambda mode: LIBC.chmod(path, mode),
    )


@way
def attribute_by_descriptor() -> object:
    os.setxattr(opened(), "user.y", b"1")
    return True


@way
def attribute_by_the_newest_call() -> object:
    value = ctypes.create_string_buffer(b"1", 1)
    arguments = struct.pack("QII", ctypes.addressof(value), 1, 0)
    return syscall(463, AT_FDCWD, bytes(FILE), 0, b"user.z", arguments, 16) == 0


@way
def attribute_that_grants() -> object:
    everybody = struct.pack("<IHHiHHiHHiHHi", 2, 1, 7, -1, 4, 7, -1, 0x10, 7, -1, 0x20, 7, -1)
    os.setxattr(FILE, "system.posix_acl_access", everybody)
    return True


@way
def flags_of_a_file() -> object:
    descriptor, flags = opened(), bytearray(8)
    fcntl.ioctl(descriptor, 0x8008_6601, flags)
    fcntl.ioctl(descriptor, 0x4008_6602, struct.pack("q", struct.unpack("q", flags)[0] | 0x40))
    return True


@way
def flags_by_the_newest_call() -> object:
    return syscall(469, AT_FDCWD, bytes(FILE), struct.pack("QIIII", 0x80, 0, 0, 0, 0), 24, 0) == 0


# Names and contents


@way
def hard_link_by_descriptor() -> object:
    return syscall(265 if X86 else 37, opened(), b"", AT_FDCWD, bytes(PROJECT / "by-fd"), AT_EMPTY_PATH) == 0


@way
def hard_link_by_the_name_of_a_descriptor() -> object:
    name = f"/proc/self/fd/{opened()}".encode()
    return syscall(265 if X86 else 37, AT_FDCWD, name, AT_FDCWD, bytes(PROJECT / "by-name"), AT_SYMLINK_FOLLOW) == 0


@way
def unnamed_file_outside() -> object:
    return os.write(os.open(OUTSIDE, os.O_TMPFILE | os.O_WRONLY), b"x")


@way
def unnamed_file_named_outside() -> object:
    descriptor = os.open(PROJECT, os.O_TMPFILE | os.O_WRONLY)
    name = f"/proc/self/fd/{descriptor}".encode()
    return syscall(265 if X86 else 37, AT_FDCWD, name, AT_FDCWD, bytes(OUTSIDE / "named"), AT_SYMLINK_FOLLOW) == 0


@way
def exchange_with_a_file_outside() -> object:
    (PROJECT / "mine").write_text("x")
    return call("renameat2", AT_FDCWD, bytes(PROJECT / "mine"), AT_FDCWD, bytes(FILE), 2) == 0


@way
def truncate_by_opening() -> object:
    os.open(FILE, os.O_RDONLY | os.O_TRUNC)
    return True


@way
def pipe_made_outside() -> object:
    os.mkfifo(OUTSIDE / "another-pipe")
    return True


@way
def open_by_handle() -> object:
    if not X86:
        return None
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.c_int()
    syscall(303, AT_FDCWD, bytes(FILE), handle, ctypes.byref(mount), 0)
    return syscall(304, os.open(OUTSIDE, os.O_RDONLY), handle, os.O_RDONLY)


@way
def program_without_a_file() -> object:
    descriptor = os.memfd_create("program", 0)
    os.write(descriptor, f"#!/bin/sh\necho x > '{OUTSIDE}/by-memory'\n".encode())
    subprocess.run([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor], stderr=-3, check=False)
    return (OUTSIDE / "by-memory").exists()


@way
def settings_of_git_for_the_user() -> object:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(HOME / ".gitconfig")}
    line = ["git", "config", "--global", "core.pager", "touch PWNED"]
    return subprocess.run(line, env=environment, stderr=-3, check=False).returncode == 0


@way
def guarded_config_by_git() -> object:
    line = ["git", "config", "core.fsmonitor", "touch PWNED"]
    return subprocess.run(line, cwd=PROJECT, stderr=-3, check=False).returncode == 0


@way
def guarded_by_exchanging_the_folder() -> object:
    (PROJECT / "my-hooks").mkdir()
    (PROJECT / "my-hooks" / "pre-commit").write_text("#!/bin/sh\ntouch PWNED\n")
    return call("renameat2", AT_FDCWD, bytes(PROJECT / "my-hooks"), AT_FDCWD, bytes(PROJECT / ".git/hooks"), 2) == 0


@way
def guarded_by_a_hard_link() -> object:
    os.link(PROJECT / ".git/config", PROJECT / "config-by-link")
    return (PROJECT / "config-by-link").write_text("x")


@way
def guarded_mode() -> object:
    (PROJECT / ".git/config").chmod(0o777)
    return True


@way
def lease_that_others_wait_for() -> object:
    return fcntl.fcntl(opened(), fcntl.F_SETLEASE, fcntl.F_RDLCK) == 0


@way
def passwords_of_the_system() -> object:
    return Path("/etc/shadow").read_text()[:20]


@way
def disk_to_read() -> object:
    disks = [path for path in Path("/dev").iterdir() if path.is_block_device()]
    return [os.open(disk, os.O_RDONLY | os.O_NONBLOCK) for disk in disks]


@way
def memory_of_the_kernel() -> object:
    for name in ("/proc/kcore", "/proc/kmsg", "/dev/mem", "/sys/kernel/debug/gpio"):
        with suppress(OSError):
            return name, os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    return None


# What processes share by name


@way
def shared_memory_file() -> object:
    return os.write(os.open(FACTS["shared_file"], os.O_WRONLY), b"x")


@way
def shared_memory_of_the_user() -> object:
    return call("shmget", FACTS["shared_key"], 0, 0) + 1


@way
def messages_of_the_user() -> object:
    return call("msgget", FACTS["shared_key"], 0) + 1


@way
def semaphores_of_the_user() -> object:
    return call("semget", FACTS["shared_key"], 0, 0) + 1


@way
def message_queue_of_the_user() -> object:
    return X86 and syscall(240, FACTS["queue"].encode(), os.O_RDWR, 0, 0) + 1


@way
def unix_datagram_of_a_raw_pair() -> object:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    return one.sendto(b"got out", FACTS["unix_datagram"])


@way
def unix_socket_of_a_connected_pair() -> object:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect(FACTS["unix"])
    return True


@way
def sockets_named_by_the_environment() -> object:
    for name in ("SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS"):
        path = os.environ.get(name, "").removeprefix("unix:").removeprefix("path=").removeprefix("//")
        if path:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(path)
                return name
    return None


@way
def sockets_of_every_family() -> object:
    found = []
    for family in range(50):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            if family not in {socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK} or kind == socket.SOCK_RAW:
                found.append((family, int(kind)))
    return [one for one in found if one[0] != socket.AF_NETLINK]


@way
def address_of_the_machine() -> object:
    if FACTS["address"].startswith("127."):
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((FACTS["address"], 0))
        return True


# Other processes


@way
def signal_everybody() -> object:
    os.kill(-1, signal.SIGURG)
    return None


@way
def slow_down_the_program() -> object:
    """Whether it was slowed down is seen there."""
    attempts: list[Callable[[], object]] = [
        lambda: os.setpriority(os.PRIO_PROCESS, FACTS["program"], 19),
        lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
        lambda: os.sched_setaffinity(FACTS["program"], {max(os.sched_getaffinity(0))}),
        lambda: os.sched_setscheduler(FACTS["program"], os.SCHED_IDLE, os.sched_param(0)),
        lambda: resource.prlimit(FACTS["program"], resource.RLIMIT_NOFILE, (999, 999)),
        lambda: syscall(251 if X86 else 30, 1, FACTS["program"], 3 << 13),
    ]
    for attempt in attempts:
        try:
            attempt()
        except OSError:
            continue
    return None


@way
def settings_of_the_program() -> object:
    for name in ("oom_score_adj", "coredump_filter", "timerslack_ns", "comm"):
        try:
            os.write(os.open(f"/proc/{FACTS['program']}/{name}", os.O_WRONLY), b"1")
        except OSError:
            continue
        return name
    return None


@way
def write_memory_of_the_program() -> object:
    here = ctypes.create_string_buffer(b"x", 8)
    local, remote = struct.pack("QQ", ctypes.addressof(here), 1), struct.pack("QQ", FACTS["memory"], 1)
    return syscall(311 if X86 else 271, FACTS["program"], local, 1, remote, 1, 0)


@way
def where_another_process_has_its_memory() -> object:
    for process in others():
        for name in ("maps", "auxv", "syscall", "io", "stack"):
            try:
                if found := Path(f"/proc/{process}/{name}").read_bytes():
                    return name, found[:50]
            except OSError:
                continue
    return None


@way
def seize_another_process() -> object:
    for process in others():
        try:
            return call("ptrace", 0x4206, process, None, None) + 1
        except OSError:
            continue
    return None


@way
def descriptors_left_open() -> object:
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = str(Path(f"/proc/self/fd/{name}").readlink())
        except OSError:
            continue
        if int(name) > 2 and not target.startswith((str(PROJECT), str(OUTSIDE), "/memfd:", "/dev/pts", "/proc")):
            found[name] = target
    return [target for target in found.values() if target != "anon_inode:[pidfd]" and "/dev/" not in target]


# The kernel


@way
def a_file_system_of_its_own() -> object:
    return syscall(430, b"tmpfs", 0)


@way
def move_a_mount() -> object:
    return syscall(429, AT_FDCWD, b"/dev", AT_FDCWD, bytes(PROJECT), 0) + 1


@way
def pick_a_file_system() -> object:
    return syscall(433, AT_FDCWD, b"/", 0)


@way
def change_a_mounts_attributes() -> object:
    return syscall(442, AT_FDCWD, b"/", 0x8000, struct.pack("QQQQ", 0, 1, 0, 0), 32) + 1


@way
def watch_all_files() -> object:
    return X86 and syscall(300, 0x200, 0)


@way
def watch_the_keys() -> object:
    """What is watched must be the folder itself, and none that stands in its place."""
    watch = call("inotify_init")
    number = call("inotify_add_watch", watch, bytes(HOME / ".ssh"), 0xFFF)
    return (HOME / ".ssh").stat().st_ino == FACTS["keys"] and number


@way
def page_faults() -> object:
    try:
        return syscall(323 if X86 else 282, 1)
    except OSError:
        return os.open("/dev/userfaultfd", os.O_RDWR)


@way
def performance_counters() -> object:
    return syscall(298 if X86 else 241, struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0)


@way
def keys_of_the_kernel() -> object:
    return syscall(250 if X86 else 219, 0, -3, 1)


@way
def rights_back() -> object:
    """Every right of root, in every way to ask for one."""
    header, data = struct.pack("Ii", 0x2008_0522, 0), struct.pack("IIIIII", *[0xFFFF_FFFF] * 6)
    attempts: list[Callable[[], object]] = [
        lambda: syscall(126 if X86 else 91, header, data),
        lambda: call("prctl", 47, 2, 21, 0, 0),
        lambda: call("prctl", 28, 1, 0, 0, 0),
        lambda: call("prctl", 38, 0, 0, 0, 0),
    ]
    for number, attempt in enumerate(attempts):
        try:
            attempt()
        except OSError:
            continue
        return number
    return None


@way
def memory_dump() -> object:
    child = os.fork()
    if child == 0:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))
        os.abort()
    return os.WCOREDUMP(os.waitpid(child, 0)[1])


@way
def devices() -> object:
    found = []
    for name in ("mem", "kmsg", "port", "fuse", "kvm", "net/tun", "uinput", "vhost-net", "loop-control", "console"):
        try:
            found.append(name) if os.open(f"/dev/{name}", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK) else None
        except OSError:
            continue
    return found


@way
def levers_of_the_kernel() -> object:
    for path in ("/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/sys/fs/cgroup/cgroup.procs", "/sys/power/state"):
        try:
            return os.open(path, os.O_WRONLY)
        except OSError:
            continue
    return None


@way
def type_on_the_users_terminal() -> object:
    # In another instance of these terminals the same name is another one.
    if os.stat(FACTS["terminal"]).st_dev != FACTS["terminals"]:  # noqa: PTH116
        return None
    descriptor = os.open(FACTS["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    for request, argument in ((0x5412, b"A"), (0x541C, b"\2"), (0x540E, b"\0"), (0x541D, b"\0")):
        try:
            fcntl.ioctl(descriptor, request, argument)
        except OSError:
            continue
        return request
    return None
