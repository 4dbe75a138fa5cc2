"""Under Landlock alone: what a command changes of its own files' modes, owners and times, and on older kernels."""

import os
import subprocess
import sys

import pytest

from tests.tools.sandbox.test_ways_out import ROOT, Outside, kinds, outside
from tui_agent.tools.sandbox.landlock import ReachableFolders
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import launcher_of
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxMechanism

__all__ = ["outside"]

pytestmark = pytest.mark.skipif("landlock" not in kinds(), reason="there is no Landlock here")


def run(place: Outside, line: str, *, version: int = 0) -> str:
    """What a line prints under Landlock alone, of this version of its ABI or the kernel's own."""
    sandbox = Sandbox("auto", place.places, offered=SandboxMechanism("landlock", ""))
    request = sandbox.request(
        ["/bin/bash", "-c", line],
        place.project,
        {"PATH": os.environ["PATH"], "LC_ALL": "C"},
        guard=sandbox.guard(),
    )
    try:
        return output_of(request._replace(landlock=version or request.landlock))
    finally:
        sandbox.close()


def output_of(request: Request) -> str:
    ours, theirs = os.pipe()
    status = launcher_of(request).launch(request, theirs)
    os.close(theirs)
    with status, os.fdopen(ours, "rb") as stream:
        text = stream.read().decode()
        told = b""
        while piece := status.recv(4096):
            told += piece
    assert b'"started"' in told, told
    return text


def test_modes_times_and_links_of_its_own_files_are_changed(outside: Outside) -> None:
    lines = [
        "touch a && chmod 751 a && touch -d 2001-02-03 a && cp -p a b && ln -s a l && touch -h -d 2002-01-01 l",
        "mkdir -m 700 d && cp a d && touch -d 2003-01-01 d/a && tar cpf t.tar d && rm -r d && tar xpf t.tar",
        "python3 -c \"import os; f = os.open('b', 0); os.fchmod(f, 0o640); os.setxattr(f, 'user.x', b'1')\"",
        "(cd d && chmod 600 a && chmod 601 ./../d/a /proc/self/cwd/a && exec 5<a && chmod 602 /dev/fd/5)",
        "chown $(id -u):$(id -g) a && nice -n 1 true && git -c init.defaultBranch=x init -q r && install -m 750 a i",
        "stat -c '%n %a' a b d d/a i; stat -c %y l d/a | cut -c1-10",
    ]
    text = run(outside, "set -e\n" + "\n".join(lines))
    modes = ["a 751", "b 640", "d 700", "d/a 602", "i 750"]
    assert text.splitlines() == [*modes, "2002-01-01", "2003-01-01"]
    assert (outside.project / "a").stat().st_mtime == (outside.project / "b").stat().st_mtime
    assert os.getxattr(outside.project / "b", "user.x") == b"1"


def test_what_is_wrong_is_told_as_the_kernel_tells_it(outside: Outside) -> None:
    script = (
        "import os\n"
        "for call in (lambda: os.chmod('none', 0), lambda: os.chmod('AGENTS.md/x', 0), lambda: os.chmod('x' * 5000, 0),"
        " lambda: os.fchmod(77, 0), lambda: os.setxattr('new', 'trusted.x', b''), lambda: os.removexattr('new',"
        " 'user.none'), lambda: os.chmod('', 0)):\n"
        "    try: call()\n"
        "    except OSError as error: print(os.strerror(error.errno))\n"
    )
    (outside.project / "script.py").write_text(script)
    assert run(outside, f"touch new; {sys.executable} script.py").splitlines() == [
        *("No such file or directory", "Not a directory", "File name too long", "Bad file descriptor"),
        *("Operation not supported", "No data available", "No such file or directory"),
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_what_root_runs_as_another_user_changes_what_is_that_users(outside: Outside) -> None:
    (outside.project / "theirs").write_text("")
    os.chown(outside.project / "theirs", 65534, 65534)
    (outside.project / "roots").write_text("")
    python = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.chmod('theirs', 0o711); "
    (outside.project / "script.py").write_text(f"{python}os.chmod('roots', 0o711)")
    assert "PermissionError: [Errno 1] Operation not permitted: 'roots'" in run(outside, f"{sys.executable} script.py")
    modes = [(outside.project / name).stat().st_mode & 0o777 for name in ("theirs", "roots")]
    assert modes == [0o711, 0o644 & modes[1]]


def test_an_older_kernel_is_made_up_for(outside: Outside) -> None:
    """Landlock refuses to truncate from version 3 on, and to signal others from 6 on."""
    python = "import os, sys\ntry: {}\nexcept OSError: print('no')\nelse: print('yes')"
    (outside.project / "own.txt").write_text("much\n")
    file = outside.outside / "file.txt"
    for action, expected in {
        f"os.truncate('{file}', 0)": "no",
        f"os.open('{file}', os.O_TRUNC)": "no",
        "os.truncate('own.txt', 0)": "yes",
        "os.open('own.txt', os.O_TRUNC | os.O_WRONLY)": "yes",
        f"os.kill({os.getpid()}, 0)": "no",
        "os.kill(-1, 23)": "no",
        f"os.pidfd_open({os.getpid()})": "no",
        "os.kill(os.getpid(), 0)": "yes",
        "os.killpg(os.getpgid(0), 0)": "yes",
    }.items():
        (outside.project / "try.py").write_text(python.format(action))
        assert run(outside, f"{sys.executable} try.py", version=1).strip() == expected, action
    assert "143" in run(outside, "sleep 100 & kill $!; wait $!; echo $?", version=1)
    assert outside.changed() == set()


def test_where_another_supervises_already_it_is_refused(outside: Outside) -> None:
    """As in a container whose engine listens to system calls."""
    script = (
        "import struct, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from tui_agent.tools.sandbox import kernel\n"
        "from tui_agent.tools.sandbox.launcher import Request\n"
        "kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)\n"
        "listener = kernel.seccomp(struct.pack('=HBBI', 6, 0, 0, 0x7FFF0000), listened=True)\n"
        # Only now: the first look at what this machine offers starts a launcher.
        "from tests.tools.sandbox.test_supervisor import output_of\n"
        f"place = {str(outside.project)!r}\n"
        "print(output_of(Request(['/bin/sh', '-c', ': > made; chmod 777 made; ls -l made; cat AGENTS.md'], place,\n"
        "    {'LC_ALL': 'C'}, confined=True, landlock=kernel.landlock_version(), writable=[place],\n"
        "    readonly=['/usr', '/etc'], temporary=place)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "Operation not permitted" in done.stdout
    assert "Be kind." in done.stdout
    assert (outside.project / "made").stat().st_mode & 0o777 != 0o777


def test_the_deeper_place_decides() -> None:
    parts = ReachableFolders(
        ("/home", "/home/x/.ssh/open"), ("/home/p/.git/config",), ("/home/x/.ssh",), "/tmp/x", 7, network=False
    )
    assert parts.may_change("/home/p/.git/index")
    assert not parts.may_change("/home/p/.git/config")
    assert not parts.may_change("/home/x/.ssh/key")
    assert parts.may_change("/home/x/.ssh/open/key")
    assert not parts.may_change("/homely/x")
    assert not parts.may_change("pipe:[5]")
    seen = [parts.may_see(path) for path in ("/home/y", "/home/p/.git/config", "/home/x/.ssh", "/etc/x")]
    assert seen == [True, True, False, False]
