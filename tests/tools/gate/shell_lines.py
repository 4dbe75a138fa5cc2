"""Command lines that want more than they were allowed, and such as do not: data, for whoever judges or runs them.

Each line runs in a tree as `hostile_tree` makes it: the project is the working folder, ``../outside`` holds a secret,
and ``payload`` and ``evil.sh`` leave the file PWNED. What needs no Python stands in `shell_lines.txt`.
"""

from itertools import product
from pathlib import Path
from typing import Final

_TEXT: Final = Path(__file__).with_suffix(".txt").read_text("utf-8")
_MARKS: Final = str.maketrans({"⏎": "\n", "⇥": "\t", "␍": "\r", "∅": ""})


def _rows(name: str) -> list[str]:
    return _TEXT.partition(f"\n[{name}]")[2].partition("\n\n")[0].splitlines()[1:]


def _entries(row: str) -> tuple[str, ...]:
    return tuple(entry.translate(_MARKS) for entry in row.split(" ¦ "))


def table(name: str) -> tuple[str, ...]:
    """The entries of a table."""
    return tuple(entry for row in _rows(name) for entry in _entries(row))


def by_command(name: str) -> dict[str, tuple[str, ...]]:
    """A table of what may follow commands: the entries of each command."""
    found: dict[str, tuple[str, ...]] = {}
    for commands, _, row in (row.partition(": ") for row in _rows(name)):
        for command in commands.split(", "):
            found[command] = (*found.get(command, ()), *_entries(row))
    return found


READERS: Final = ("ls", "cat", "echo", "grep x")
PAYLOADS: Final = ("touch PWNED", "sh payload")
RULES: Final = table("rules")
"""The words of rules for commands; ``mypy *`` and the like hold outside a sandbox only for what they were given for."""
FORMS: Final = table("forms")
WRAPPERS: Final = table("wrappers")
HARMLESS: Final = table("harmless")
HARMFUL: Final = table("harmful")

_LOOKALIKES: Final = (
    *("ls\u00a0; touch PWNED", "ls \uff1b touch PWNED", "\u1680ls", "ls\u2028touch PWNED", "ls \u202e ; touch PWNED"),
    *("c\u0430t a.txt", "l\u0455", "ls \x1b[8m; touch PWNED", "ls \x08\x08sh payload", "ls \x7f", "ls\rtouch PWNED"),
    *("ls \x0btouch PWNED", "ls\x0ctouch PWNED", "ls \u200b-la", "g\u0456t status", "ls \x00; touch PWNED", "\ufeffls"),
    *("echo \ud800", "ls \u3000x", "ls\u2003x", "echo '\u00e9\\' ; touch PWNED '", 'echo "\u00e9\\" ; touch PWNED #"'),
)
_LARGE: Final = (
    *("ls;" * 10_000, "ls " + "*/../" * 9 + "zzz", "cat src/" + "a*" * 900 + " ../outside/secret.txt"),
    *("ls " + "./*" * 900, "cat " + "a/" * 1_900, "cat " + " ".join(["link-dir/x"] * 199), "x|" * 1_900),
    *("ls '" + "x" * 5_000 + "'", "echo " + "$(" * 900, "${a" * 1_200, "ls {a" + "x" * 2_100 + ",b}"),
)

LINES: Final = tuple(
    dict.fromkeys(
        (
            *(form.format(h=reader, p=payload) for form, reader, payload in product(FORMS, READERS, PAYLOADS)),
            *(form.format(p=payload) for form, payload in product(WRAPPERS, PAYLOADS)),
            *(f"{command} {rest}".rstrip(" ") for command, more in by_command("options").items() for rest in more),
            *table("more"),
            *(form.format(o=outside) for form, outside in product(table("read with"), table("outside"))),
            *map(" ".join, product(("echo x", "ls", "git diff", "cat a.txt"), table("writes"))),
            *_LOOKALIKES,
            *table("braces"),
            *_LARGE,
            *table("caught"),
        )
    )
)
