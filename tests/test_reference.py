"""The tables in `docs/` say what the program does; `python -m tests.test_reference` writes them anew."""

import argparse
import json
import re
from collections.abc import Callable, Collection, Iterable
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
import pytest

from tests.agent.talking import talking
from tui_agent.agent import events
from tui_agent.agent.extensions.hook_files import EVENTS
from tui_agent.arguments import ExitCode
from tui_agent.command_line import PARSERS
from tui_agent.context.stats import ContextStats
from tui_agent.conversation import blocks, entries
from tui_agent.headless.report import RunReport
from tui_agent.models.provider import Provider
from tui_agent.models.records import PROVIDERS
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import POLICIES, Settings, json_text, schema, settings_by_key
from tui_agent.settings.keys import meanings, section_name
from tui_agent.tools.base import PermissionQuestion, Preview
from tui_agent.tui.actions import ACTIONS, SIGNS, SLASH_COMMANDS, TITLES
from tui_agent.tui.keys import key_text

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def in_table(text: str) -> str:
    return text.replace("|", "\\|")


def linked(text: str) -> str:
    """Text of the code in a page: another page that it names is a link there."""
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", text)


def settings_table() -> str:
    """A heading, a sentence and a table for each section of the settings."""
    said = meanings()
    lines: list[str] = []
    for name, settings in groupby(settings_by_key().items(), lambda item: item[0].partition(".")[0]):
        about = said[type(getattr(Settings(), name)).__name__, ""]
        lines += ["", f"### {name}", "", about, "", "| Key | Default | Meaning |", "|---|---|---|"]
        for key, setting in settings:
            meaning = said[section_name(key), key.rsplit(".", 1)[-1]]
            default = json_text(setting.default).replace('","', '", "')
            lines.append(f"| `{key}` | `{in_table(default)}` | {linked(in_table(meaning))} |")
    return "\n".join(lines[1:])


def as_typed(argument: argparse.Action) -> str:
    """An argument as it is typed, with its value."""
    value = "" if argument.nargs == 0 else str(argument.metavar or argument.dest)
    value = f"[{value}]" if argument.nargs == "?" else value
    names = ", ".join(argument.option_strings)
    return f"{names} {value}".strip()


def options_table() -> str:
    """A heading, a sentence and a table for each command; a flag that sets a setting is told of once."""
    lines: list[str] = []
    told: set[str] = set()
    for name, parser in ((name, make()) for name, make in PARSERS.items()):
        lines += [
            "",
            f"### tui-agent {name}".rstrip(),
            "",
            "```text",
            parser.format_usage().split(" ", 1)[1].strip(),
            "```",
        ]
        lines += ["", linked(" ".join(str(parser.description).split()))]
        rows = [
            f"| `{in_table(as_typed(argument))}` | {in_table(argument.help or '')} |"
            for argument in parser._actions
            if argument.dest != "help" and not (argument.dest == "settings" and as_typed(argument) in told)
        ]
        told |= {as_typed(argument) for argument in parser._actions}
        lines += ["", "| Argument | Does |", "|---|---|", *rows] if rows else []
    return "\n".join(lines[1:])


def keys_table() -> str:
    where = {place: title.removeprefix("Keys ").removeprefix("in the ") for place, title in TITLES.items()}
    rows = [
        f"| {where[place]} | {', '.join(map(key_text, action.keys.split(',')))} | {action.help} | `{action.id}` |"
        for place in TITLES
        for action in ACTIONS
        if action.place == place and action.keys
    ]
    rows += [f"| {where['prompt']} | {sign} | {meaning} | |" for sign, meaning in SIGNS]
    return "\n".join(["| Where | Keys | Does | Id |", "|---|---|---|---|", *rows])


def commands_table() -> str:
    rows = []
    for action in SLASH_COMMANDS:
        also = ", ".join(f"`/{alias}`" for alias in action.aliases)
        told = f"{action.help}{f' (also {also})' if also else ''}"
        rows.append(f"| `{in_table(action.usage)}` | {in_table(told)} |")
    return "\n".join(["| Command | Does |", "|---|---|", *rows])


def policies_table() -> str:
    keys = list(dict.fromkeys(key for policy in POLICIES.values() for key in policy.values))
    head = " | ".join(f"`{key}`" for key in keys)
    rows = [
        f"| `{name}` | {' | '.join(f'{policy.values[key]:,}' for key in keys)} | {policy.meaning} |"
        for name, policy in POLICIES.items()
    ]
    return "\n".join([f"| Policy | {head} | Is |", "|---" * (len(keys) + 2) + "|", *rows])


def named_as(provider: Provider) -> str:
    """How `--model` names its models."""
    if provider.families:
        return ", ".join(f"`{family}-…`" for family in provider.families)
    return f"`{provider.id}`" if provider.id in provider.suggested else f"`{provider.id}:NAME`"


def providers_table() -> str:
    lines = ["| Provider | `--model` | Key | Another address |", "|---|---|---|---|"]
    for provider in PROVIDERS:
        keys = ", ".join(f"`{key}`" for key in provider.keys) or "none"
        asked = keys if provider.needs_key or not provider.keys else f"none, or {keys}"
        address = ", ".join(f"`{variable}`" for variable in provider.addresses)
        lines.append(f"| {provider.label} | {named_as(provider)} | {asked} | {address} |")
    return "\n".join(lines)


def endpoint_table() -> str:
    """The fields of an endpoint, and of a model of one."""
    said = meanings()
    lines = ["| Field | Default | Meaning |", "|---|---|---|"]
    for before, kind in (("", schema.Endpoint), ("models.ID.", schema.EndpointModel)):
        for field in msgspec.structs.fields(kind):
            default = "" if field.default is msgspec.NODEFAULT else f"`{json_text(field.default)}`"
            meaning = in_table(said[kind.__name__, field.name]).replace("``", "`")
            lines.append(f"| `{before}{field.name}` | {default} | {meaning} |")
    return "\n".join(lines)


def kinds_table(kinds: Iterable[type[msgspec.Struct]], common: Collection[str] = ()) -> str:
    """Structs that are told apart by a tag: their fields, but for the `common` ones, and their docstrings."""
    lines = ["| Kind | Fields | Is |", "|---|---|---|"]
    for kind in kinds:
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__ if name not in common)
        meaning = " ".join(str(kind.__doc__).split()).replace("``", "`")
        lines.append(f"| `{kind.__struct_config__.tag}` | {fields} | {in_table(meaning)} |")
    return "\n".join(lines)


def hooks_table() -> str:
    rows = [f"| `{name}` | {does} |" for name, does in EVENTS.items()]
    return "\n".join(["| Event | When, and what it may do |", "|---|---|", *rows])


class Table(NamedTuple):
    """A table that is written from the code."""

    page: str
    rows: Callable[[], str]

    def place(self, name: str) -> re.Pattern[str]:
        """Where it stands on its page, between two marks."""
        return re.compile(rf"(<!-- {name}: [^\n]* -->\n)(.*?)(<!-- end -->)", re.DOTALL)


TABLES: dict[str, Table] = {
    "settings": Table("settings", settings_table),
    "policies": Table("policies", policies_table),
    "providers": Table("providers", providers_table),
    "options": Table("commands", options_table),
    "endpoint": Table("providers", endpoint_table),
    "keys": Table("commands", keys_table),
    "events": Table("headless", lambda: kinds_table(get_args(events.AgentEvent))),
    "entries": Table("formats", lambda: kinds_table(get_args(entries.AnyEntry), ("seq", "parent", "time"))),
    "blocks": Table("formats", lambda: kinds_table(get_args(blocks.Block))),
    "commands": Table("commands", commands_table),
    "hooks": Table("extending", hooks_table),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_current(name: str) -> None:
    table = TABLES[name]
    found = table.place(name).search(page(table.page))
    assert found is not None
    assert found[2].strip() == table.rows().strip(), "run `python -m tests.test_reference`"


def test_every_exit_code_is_listed() -> None:
    table = page("headless").partition("| Exit code |")[2].partition("\n\n")[0]
    listed = dict.fromkeys(re.findall(r"^\| (\d+) \|", table, re.MULTILINE))
    assert list(listed) == [str(int(code)) for code in ExitCode]


def test_every_field_of_the_result_is_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", page("headless").partition("| Field |")[2].partition("\n## ")[0]))
    outcome = RunReport(UsageTracker())
    asked = PermissionQuestion("", "run_command", "{}", (), Preview(""), "")
    outcome.failure = events.TurnFailed(kind="needs_approval", message="", retryable=False, questions=(asked,))
    stats = ContextStats(model="", tokens=0, window=0, reserve=0, measured=True, categories={})
    told = json.loads(outcome.as_json("", stats, 0))
    parts = (told, told["error"], told["question"], told["usage"], told["context"])
    assert {field for part in parts for field in part} - listed == set()


def test_every_setting_has_a_meaning_that_ends_as_a_sentence() -> None:
    said = meanings()
    for key in settings_by_key():
        assert said[section_name(key), key.rsplit(".", 1)[-1]].endswith("."), key


def test_pages_and_sections_that_the_code_names_are_there() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tui_agent").rglob("*.py"))
    pages = set(re.findall(r"docs/(\w+)\.md", code))
    named = re.findall(r'docs/(\w+)\.md,\s+("[^"]+"(?:\s+and\s+"[^"]+")*)', code)
    sections = [(name, section) for name, both in named for section in re.findall(r'"([^"]+)"', both)]
    assert sections
    assert [name for name in sorted(pages) if not (DOCS / f"{name}.md").is_file()] == []
    assert [(name, section) for name, section in sections if f"\n## {section}\n" not in page(name)] == []


async def test_every_tool_is_listed_as_it_is_called(tmp_path: Path) -> None:
    said = page("tools")
    async with talking(tmp_path) as session:
        for tool in session.agent.tools():
            arguments = re.search(rf"`{tool.name}\((.*?)\)`", said)
            assert arguments is not None, tool.name
            listed = [argument.split("=")[0].strip() for argument in arguments[1].split(",")]
            assert listed == list(json.loads(tool.schema)["properties"]), tool.name


def test_the_manual_page_is_current() -> None:
    pytest.importorskip("argparse_manpage")
    from tests.man import man_page

    assert (DOCS / "tui-agent.1").read_text(encoding="utf-8") == man_page(), "run `python -m tests.test_reference`"


if __name__ == "__main__":
    if find_spec("argparse_manpage") is not None:
        from tests.man import man_page

        (DOCS / "tui-agent.1").write_text(man_page(), encoding="utf-8")
    for name, table in TABLES.items():
        before, mark, _, end, after = table.place(name).split(page(table.page))
        text = f"{before}{mark}\n{table.rows()}\n\n{end}{after}"
        (DOCS / f"{table.page}.md").write_text(text, encoding="utf-8")
