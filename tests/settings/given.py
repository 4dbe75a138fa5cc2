"""Settings files, and values that a setting accepts."""

import json
from pathlib import Path
from typing import TypeAlias

import msgspec
from hypothesis import strategies as st

from tui_agent.settings import ToolServer
from tui_agent.settings.keys import Setting, Value
from tui_agent.settings.schema import Endpoint

Tree: TypeAlias = dict[str, object]


def nested(flat: dict[str, Value]) -> Tree:
    tree: Tree = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        place = tree
        for section in sections:
            inner = place.setdefault(section, {})
            assert isinstance(inner, dict)
            place = inner
        place[name] = value
    return tree


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = document if isinstance(document, str) else json.dumps(msgspec.to_builtins(document))
    path.write_text(text, encoding="utf-8")


def user_file(tmp_path: Path, document: object) -> Path:
    write(tmp_path / "config.json", document)
    return tmp_path


def accepted(setting: Setting) -> st.SearchStrategy[Value]:
    """Any value the setting accepts."""
    allowed = setting.allowed
    found: st.SearchStrategy[Value]
    if allowed.choices:
        found = st.sampled_from(allowed.choices)
    elif allowed.kind is bool:
        found = st.booleans()
    elif allowed.kind is int:
        found = st.integers(min_value=int(allowed.bounds.ge or 0), max_value=10**9)
    elif allowed.kind is float:
        found = st.floats(min_value=allowed.bounds.ge or 0.001, max_value=allowed.bounds.le or 1e9)
    elif allowed.kind is tuple:
        found = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3).map(tuple)
    elif allowed.kind is dict:
        urls = st.sampled_from(("http://10.0.0.7/v1", "https://models.example.org/v1"))
        endpoint = st.builds(Endpoint, url=urls, models=st.just({}))
        server = st.builds(ToolServer, command=st.sampled_from(("run", "two words")))
        names = st.sampled_from(("mine", "work"))
        found = st.dictionaries(names, server) if allowed.record is ToolServer else st.dictionaries(names, endpoint)
    else:
        found = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
    return st.one_of(st.none(), found) if allowed.nullable else found
