"""Every tool is described in one place, and nothing else keeps a table of what tools are called."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard, get_args

from tui_agent.conversation.entries import USER_SHELL
from tui_agent.conversation.tool_facts import TOOL_FACTS, ActionKind, ToolFacts, facts_of
from tui_agent.conversation.wire import CALL_TOOL
from tui_agent.tools.built_in import BuiltIn

PACKAGE = Path(__file__).parents[2] / "tui_agent"
NOT_WHAT_THEY_ARE_CALLED = {
    "conversation/tool_facts.py",
    "models/offline/answers.py",  # the verbs of commands
    "models/offline/summaries.py",  # the verb that makes the offline model call a tool
    "tools/agentic.py",  # which tools a subtask gets
    "tools/gate/rules.py",  # what a rule allows
}


def names_of_tools() -> Iterator[str]:
    """The names of the package's tools: of `BuiltIn`, and in each ``Signature.of(method, name)``."""
    for file in sorted((PACKAGE / "tools").rglob("*.py")):
        module = importlib.import_module(".".join(("tui_agent", *file.relative_to(PACKAGE).with_suffix("").parts)))
        yield from (each.name for each in vars(module).values() if isinstance(each, type) and is_named(each))
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "Signature.of" in text else ():
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="Signature"), attr="of"), args=[_, name]):
                    named = ast.unparse(name)
                    if "'" in named or named.isupper():
                        yield ast.literal_eval(name) if "'" in named else getattr(module, named)


def is_named(kind: type) -> TypeGuard[type[BuiltIn]]:
    return issubclass(kind, BuiltIn) and hasattr(kind, "name")


def test_every_tool_has_its_row() -> None:
    names = {*names_of_tools(), USER_SHELL, CALL_TOOL}
    assert {"read_file", "run_command", "todo", "find_tool", "agentic_grep"} < names
    assert names <= TOOL_FACTS.keys()
    assert {facts.kind for facts in TOOL_FACTS.values()} <= set(get_args(ActionKind))
    assert all(facts.title for facts in TOOL_FACTS.values())


def test_a_tool_without_a_row_goes_by_its_name() -> None:
    assert facts_of("github__search") == ToolFacts("github__search")


def test_there_is_no_other_table_of_tools() -> None:
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        if sum(name in text for name in TOOL_FACTS) <= 2:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Dict):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                if len(keys & TOOL_FACTS.keys()) > 2:
                    found.add(str(file.relative_to(PACKAGE)))
    assert found <= NOT_WHAT_THEY_ARE_CALLED
