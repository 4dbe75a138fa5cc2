"""Permission rules of Claude Code and Gemini CLI in our form; of a project's `.claude/` those that refuse or ask."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.agent.extensions.claude_forms import OURS
from tui_agent.regular import read_bytes
from tui_agent.settings.servers import plain_json
from tui_agent.settings.trust import CLAUDE_FOLDER
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


def project_rules(project: Path) -> ClaudeRules:
    """The rules of a project's `.claude/` that refuse or ask. Those that allow something are not read.

    Reads files, and raises nothing.
    """
    found: dict[str, list[str]] = {"ask": [], "deny": []}
    problems: list[str] = []
    for path in (project / CLAUDE_FOLDER / name for name in _FILES):
        for kind, text in _rules_in(path):
            # A path from the root of the project begins with one slash.
            text = re.sub(r"\(/(?!/)", "(", text)
            try:
                found[kind] += [rule.text for rule in rules_of(text, kind)]
            except NoSuchToolError:
                continue
            except (RuleError, ValueError) as error:
                problems.append(f"{path}: permissions.{kind}: {text[:200]}: {error}")
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
        return [Rule(each, _path(pattern)) for each in ("edit_file", "write_file")]
    if (ours := OURS.get(tool.lower(), tool)) in ("read_file", "fetch_url", "web_search", "glob", "grep", "list_dir"):
        domain = pattern.removeprefix("domain:")
        return [Rule(ours, f"https://{domain}/*" if domain and ours == "fetch_url" else _path(pattern))]
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


def _path(pattern: str) -> str:
    """A pattern for paths in our form, in which ``*`` matches any text. Raises ValueError."""
    if pattern.startswith("/") and not pattern.startswith("//"):
        raise ValueError("it is relative to the folder of those settings")
    pattern = pattern.removeprefix("./").removeprefix("/")
    return re.sub(r"\*\*(?:/\*)?", "*", pattern.removeprefix("**/"))
