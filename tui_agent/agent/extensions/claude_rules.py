"""Permission rules of Claude Code and Gemini CLI in our form; of `.claude/` in a project and in the user's home, those
that refuse or ask.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.agent.extensions.claude_forms import OURS
from tui_agent.settings.servers import plain_json
from tui_agent.settings.trust import CLAUDE_FOLDER
from tui_agent.system.regular import read_bytes
from tui_agent.tools.gate.rules import SHELL, Rule, RuleError

_FILES: Final = ("settings.json", "settings.local.json")
_MOST_BYTES: Final = 1_000_000


class NoSuchToolError(ValueError):
    """A rule is for a tool that there is not here."""


class ClaudeRules(NamedTuple):
    """What is asked about and what is refused, in our form; and sentences about rules that cannot be used."""

    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def tightening_rules(project: Path, user: Path | None) -> ClaudeRules:
    """The rules that refuse or ask in the `.claude/` of a project and of the user, if their home is given. Those that
    allow something are not read.

    Reads files, and raises nothing.
    """
    found: dict[str, list[str]] = {"ask": [], "deny": []}
    problems: list[str] = []
    # A path that begins with one slash is from the root of the project, or from the folder of the user's settings.
    places = [(project / CLAUDE_FOLDER / name, "(./") for name in _FILES]
    places += [(user / CLAUDE_FOLDER / _FILES[0], f"(~/{CLAUDE_FOLDER}/")] if user is not None else []
    for path, root in places:
        for kind, given in _rules_in(path):
            text = re.sub(r"\(/(?!/)", root, given)
            try:
                found[kind] += [rule.text for rule in rules_of(text, kind)]
            except NoSuchToolError:
                continue
            except (RuleError, ValueError) as error:
                problems.append(f"{path}: permissions.{kind}: {given[:200]}: {error}")
    return ClaudeRules(
        tuple(dict.fromkeys(found["ask"])), tuple(dict.fromkeys(found["deny"])), tuple(dict.fromkeys(problems))
    )


def _rules_in(path: Path) -> Iterator[tuple[str, str]]:
    try:
        document = json.loads(plain_json(read_bytes(path, _MOST_BYTES).decode("utf-8-sig")))
    except (OSError, ValueError, RecursionError):
        return  # a file of hooks that cannot be read is named where these are
    section = document.get("permissions") if isinstance(document, dict) else None
    for kind in ("ask", "deny"):
        listed = section.get(kind) if isinstance(section, dict) else None
        yield from ((kind, each) for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str))


def rules_of(text: str, kind: str) -> list[Rule]:
    """A rule of another agent in our form. Raises ValueError or RuleError with the reason why there is none."""
    return [Rule.read(rule.text) for rule in _rules(text, kind)]


def _rules(text: str, kind: str) -> list[Rule]:
    parts = re.fullmatch(r"(?P<tool>[\w*-]+)(?:\((?P<pattern>.*)\))?", text.strip(), re.DOTALL)
    if parts is None:
        raise ValueError("it is not a rule")
    tool, pattern = parts["tool"], parts["pattern"] or ""
    if tool.startswith("mcp__") and not pattern:
        return [Rule.read(tool if tool.count("__") > 1 else f"{tool}__*")]
    if tool in ("Edit", "Write", "MultiEdit", "write_file", "replace"):
        return [Rule(each, path) for path in _paths(pattern, kind) for each in ("edit_file", "write_file")]
    if (ours := OURS.get(tool.lower(), tool)) in ("read_file", "fetch_url", "web_search", "glob", "grep", "list_dir"):
        if ours == "fetch_url":
            domain = pattern.removeprefix("domain:")
            return [Rule(ours, f"https://{domain}/*" if domain else "")]
        return [Rule(ours, path) for path in _paths(pattern, kind)]
    if tool not in ("Bash", "run_shell_command", "ShellTool"):
        raise NoSuchToolError("there is no such tool here, or it never asks")
    if not pattern and kind == "allow":
        raise ValueError("it would let every command run; choose a mode instead")
    if pattern and tool != "Bash":
        pattern = f"{pattern} *"  # Gemini CLI's name the beginning of a command
    pattern = f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern
    rule = Rule.read(f"{SHELL}({pattern})" if pattern else SHELL)
    if kind == "allow" and rule.is_idle:
        raise ValueError(
            "a rule with * is accepted for commands that are known to change nothing; others need all words"
        )
    return [rule]


def _paths(pattern: str, kind: str) -> list[str]:
    """A pattern for paths, as git ignores them, in our form, in which ``*`` matches any text. Raises ValueError."""
    if pattern.startswith("/") and not pattern.startswith("//"):
        raise ValueError("it is relative to the folder of those settings")
    # Without a slash before its end, a pattern counts in every folder.
    floats = pattern.startswith("**/") or "/" not in pattern.removesuffix("/")
    body = pattern.removeprefix("**/").removeprefix("./").removeprefix("/")
    body = f"{body}*" if body.endswith("/") else body
    found = [body] if "/**/" not in body else [body.replace("/**/", "/"), body.replace("/**/", "/*/")]
    found = [re.sub(r"\*\*(?:/\*)?", "*", each) for each in found]
    if kind != "allow" and (last := found[0].rpartition("/")[2]) and not re.search(r"[.*]", last):
        found += [f"{each}/*" for each in found]  # it may be a folder
    if floats and body and not body.startswith("*"):
        found += [f"*/{each}" for each in found]
    return list(dict.fromkeys(found))
