"""Patterns that are compiled when they are first used."""

import copy
import re
from importlib import import_module
from pkgutil import walk_packages

import pytest

import tui_agent
from tui_agent.regex import _Pattern, regex


def test_it_does_what_the_compiled_one_does() -> None:
    text = "a1 B2"
    for made in (regex(r"([a-z])(\d)", re.IGNORECASE), copy.copy(regex(r"([a-z])(\d)", re.IGNORECASE))):
        compiled = re.compile(r"([a-z])(\d)", re.IGNORECASE)
        assert made.findall(text) == compiled.findall(text) == [("a", "1"), ("B", "2")]
        assert made.sub(r"\2", text) == "1 2"
        assert (made.pattern, made.flags, made.groups) == (compiled.pattern, compiled.flags, compiled.groups)
    assert regex(rb"\d").findall(b"a1") == [b"1"]


def test_a_wrong_one_is_told_at_its_first_use() -> None:
    wrong = regex("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_all_of_the_program_compile() -> None:
    names = [each.name for each in walk_packages(tui_agent.__path__, "tui_agent.") if "__main__" not in each.name]
    found = [value for name in names for value in vars(import_module(name)).values() if isinstance(value, _Pattern)]
    assert len(found) > 150
    for pattern in found:
        assert re.compile(pattern.pattern, pattern.flags).groups == pattern.groups
