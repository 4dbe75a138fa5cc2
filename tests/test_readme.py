"""The README's reference say what the program does; `python -m tests.test_readme` writes them anew."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.talking import talking
from tui_agent.arguments import ExitCode, parse
from tui_agent.settings import POLICIES, Settings, environment_name, json_text, schema, settings_by_key
from tui_agent.tui.actions import ACTIONS, SIGNS, SLASH_COMMANDS, TITLES
from tui_agent.tui.keys import key_text

README = Path(__file__).parent.parent / "README.md"


def meanings() -> dict[tuple[str, str], str]:
    """The docstring under each field of each settings section."""
    module = ast.parse(Path(schema.__file__).read_text(encoding="utf-8"))
    found: dict[tuple[str, str], str] = {}
    for section in (node for node in module.body if isinstance(node, ast.ClassDef)):
        for setting, below in zip(section.body, section.body[1:], strict=False):
            if isinstance(setting, ast.AnnAssign) and isinstance(setting.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str() as text)):
                        found[section.name, setting.target.id] = text
    return found


def section_name(key: str) -> str:
    """The class that declares the last part of `key`."""
    section: object = Settings()
    for part in key.split(".")[:-1]:
        section = getattr(section, part)
    return type(section).__name__


def settings_table() -> str:
    said = meanings()
    rows = []
    for key, setting in settings_by_key().items():
        meaning = said[section_name(key), key.rsplit(".", 1)[-1]].replace("|", "\\|")
        default = json_text(setting.default).replace("|", "\\|")
        rows.append(f"| `{key}` | `{default}` | {meaning} |")
    return "\n".join(["| Key | Default | Meaning |", "|---|---|---|", *rows])


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
        rows.append(f"| `{action.usage}` | {action.help}{f' (also {also})' if also else ''} |")
    return "\n".join(["| Command | Does |", "|---|---|", *rows])


def policies_table() -> str:
    keys = list(dict.fromkeys(key for policy in POLICIES.values() for key in policy.values))
    head = " | ".join(f"`{key}`" for key in keys)
    rows = [
        f"| `{name}` | {' | '.join(f'{policy.values[key]:,}' for key in keys)} | {policy.meaning} |"
        for name, policy in POLICIES.items()
    ]
    return "\n".join([f"| Policy | {head} | Is |", "|---|---|---|---|---|", *rows])


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "policies": policies_table,
    "keys": keys_table,
    "commands": commands_table,
}


def place_of(table: str) -> re.Pattern[str]:
    """Where a table stands in the README, between two marks."""
    return re.compile(rf"(<!-- {table}: [^\n]* -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_current(table: str) -> None:
    found = place_of(table).search(README.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2].strip() == TABLES[table](), "run `python -m tests.test_readme`"


@pytest.mark.parametrize("command", [(), ("sessions",), ("trace",), ("replay",), ("config",), ("doctor",)])
def test_every_option_is_listed(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*command, "--help"])
    options = set(re.findall(r"(?<!\w)--[a-z-]+\b", capsys.readouterr().out))
    readme = README.read_text(encoding="utf-8")
    assert options
    assert [option for option in sorted(options) if not re.search(rf"{option}(?![a-z-])", readme)] == []


def test_every_exit_code_is_listed() -> None:
    table = README.read_text(encoding="utf-8").partition("| Exit code |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == [str(int(code)) for code in ExitCode]


def test_every_setting_has_a_meaning_that_ends_as_a_sentence() -> None:
    said = meanings()
    for key in settings_by_key():
        assert said[section_name(key), key.rsplit(".", 1)[-1]].endswith("."), key


def test_example_of_an_environment_variable_is_real() -> None:
    assert f"`{environment_name('compaction.threshold')}=0.8`" in README.read_text(encoding="utf-8")


def test_sections_that_the_code_names_are_there() -> None:
    readme = README.read_text(encoding="utf-8")
    sections = {line.removeprefix("### ").lower() for line in readme.splitlines() if line.startswith("### ")}
    sections |= {"exit codes"} if "| Exit code |" in readme else set()
    named = {
        section.strip()
        for path in (README.parent / "tui_agent").rglob("*.py")
        for found in re.findall(r"README, reference: ([a-z ,\n]+)", path.read_text(encoding="utf-8"))
        for section in found.split(",")
    }
    assert named
    assert named - sections == set()


async def test_every_tool_is_listed_as_it_is_called(tmp_path: Path) -> None:
    readme = README.read_text(encoding="utf-8")
    async with talking(tmp_path) as session:
        for tool in session.agent.tools():
            arguments = re.search(rf"`{tool.name}\((.*?)\)`", readme)
            assert arguments is not None, tool.name
            listed = [argument.split("=")[0].strip() for argument in arguments[1].split(",")]
            assert listed == list(json.loads(tool.schema)["properties"]), tool.name


if __name__ == "__main__":
    readme = README.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        parts = place_of(name).split(readme)
        readme = "".join((parts[0], parts[1], f"\n{table()}\n\n", *parts[3:]))
    README.write_text(readme, encoding="utf-8")
