"""Programs that run other programs: what is inside ``sudo``, ``xargs``, ``timeout``, ``bash -c`` and their like."""

import msgspec

from tui_agent.tools.gate.shell_words import Word


class Unwrapped(msgspec.Struct, frozen=True):
    """`commands` and `lines`: what the wrapper runs, as words and as shell text. `transparent`: the wrapper itself adds
    nothing that a rule would have to allow. `opaque`: why what it runs is not known.
    """

    commands: tuple[tuple[Word, ...], ...] = ()
    lines: tuple[str, ...] = ()
    transparent: bool = False
    opaque: str = ""


_UNKNOWN = Word("…", "…", dynamic=True)

# Options that take a value of their own in the next word.
_TRANSPARENT = {
    "time": ("-f", "-o", "--format", "--output"),
    "nohup": (),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "-n", "--class", "--classdata"),
    "timeout": ("-k", "-s", "--kill-after", "--signal"),
    "stdbuf": ("-i", "-o", "-e", "--input", "--output", "--error"),
    "setsid": (),
    "command": (),
    "builtin": (),
    "exec": ("-a",),
    "env": ("-u", "--unset", "-C", "--chdir"),
}
_OTHERS = {
    "sudo": (
        *("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U"),
        *("--user", "--group", "--host", "--prompt", "--chdir"),
    ),
    "doas": ("-u", "-C"),
    "xargs": ("-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s", "--arg-file", "--delimiter", "--max-args", "--max-procs"),
    "busybox": (),
    "chronic": (),
    "catchsegv": (),
    "unbuffer": (),
    "strace": ("-o", "-e", "-p", "-s"),
    "ltrace": ("-o", "-e", "-p", "-s"),
    "flock": ("-w", "-E", "--timeout"),
    "chroot": (),
}
_POSITIONAL = {"timeout": 1, "flock": 1, "chroot": 1}
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash"})
_RUNS_TEXT = frozenset(
    {
        *(".", "source", "trap", "alias", "enable", "hash", "complete", "mapfile", "readarray", "fc"),
        *("ssh", "su", "parallel", "watch", "script", "at", "batch", "crontab", "unshare", "nsenter", "systemd-run"),
        *("tmux", "screen", "expect"),
    }
)
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def unwrap(words: tuple[Word, ...]) -> Unwrapped:
    """What the command made of `words` runs besides its own program."""
    name = words[0].text.rsplit("/", 1)[-1]
    if name in _SHELLS:
        return _shell(words)
    if name == "eval":
        if any(word.dynamic for word in words[1:]):
            return Unwrapped(opaque="`eval` runs text that is only known when it runs")
        return Unwrapped(lines=(" ".join(word.text for word in words[1:]),), transparent=True)
    if name == "find":
        return _find(words)
    if name in _RUNS_TEXT:
        return Unwrapped(opaque=f"`{name}` runs commands that are not seen here")
    if name in _TRANSPARENT or name in _OTHERS:
        return _wrapper(name, words)
    return Unwrapped()


def _wrapper(name: str, words: tuple[Word, ...]) -> Unwrapped:
    with_value = _TRANSPARENT.get(name, _OTHERS.get(name, ()))
    positional = _POSITIONAL.get(name, 0)
    strange = ""
    index = 1
    while index < len(words):
        text = words[index].text
        if text == "--":
            index += 1
            break
        if not text.startswith("-") or text == "-":
            break
        if name == "env" and text.startswith(("-S", "--split", "-v")):
            strange = "`env -S` splits text"
        if name == "env" and text.startswith(("-C", "--chdir")):
            strange = "`env -C` changes the folder"
        if name == "command" and text in {"-v", "-V"}:
            return Unwrapped()
        if name == "time" and text.startswith(("-o", "--output")):
            strange = "`time -o` writes a file"
        if name in {"sudo", "doas"} and text in {"-s", "-i", "-e", "--shell", "--login", "--edit"}:
            strange = f"`{name} {text}` opens a shell or an editor"
        if name == "xargs" and text.startswith(("-I", "-i", "--replace")):
            strange = "`xargs -I` puts its input anywhere"
        if name == "flock" and text in {"-c", "--command"}:
            strange = "`flock -c` runs text"
        index += 2 if text in with_value else 1
    index += positional
    inner = words[index:]
    if not inner:
        return Unwrapped(opaque=strange)
    if name == "xargs":
        inner = (*inner, _UNKNOWN)
    return Unwrapped(commands=(inner,), transparent=name in _TRANSPARENT and not strange, opaque=strange)


def _shell(words: tuple[Word, ...]) -> Unwrapped:
    for index, word in enumerate(words[1:], 1):
        text = word.text
        if text.startswith("-") and not text.startswith("--") and "c" in text:
            if index + 1 >= len(words) or words[index + 1].dynamic:
                return Unwrapped(opaque="a shell runs text that is only known when it runs")
            if text not in {"-c", "-ec", "-lc", "-euc", "-xc", "-exc", "-ce"}:
                return Unwrapped(lines=(words[index + 1].text,), opaque="a shell is started with options of its own")
            plain = index == 1 and text != "-lc" and words[0].text in {"bash", "sh"}
            return Unwrapped(lines=(words[index + 1].text,), transparent=plain)
        if text in {"--version", "--help"}:
            return Unwrapped()
        if text.startswith("--") or text[1:2] in {"o", "O"}:
            return Unwrapped(opaque="a shell is started with options of its own")
        if not text.startswith(("-", "+")):
            return Unwrapped()
    return Unwrapped(opaque="a shell reads its commands from elsewhere")


def _find(words: tuple[Word, ...]) -> Unwrapped:
    commands: list[tuple[Word, ...]] = []
    index = 1
    while index < len(words):
        if words[index].text in _FIND_RUNS:
            end = index + 1
            while end < len(words) and words[end].text not in {";", "+"}:
                end += 1
            inner = words[index + 1 : end]
            if inner and "{}" in inner[0].text:
                return Unwrapped(opaque="`find` runs the files it finds")
            if inner:
                commands.append(tuple(_UNKNOWN if "{}" in word.text else word for word in inner))
            index = end
        index += 1
    return Unwrapped(commands=tuple(commands))
