"""JSON of any shape that an SDK's own types allow."""

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typing_extensions
from hypothesis import strategies as st

Json = dict[str, object]
words = st.text("ab é{}", min_size=1, max_size=20).filter(str.strip)
DEEPEST = 4
"""Below this depth, optional fields are left out."""


def of_type(kind: object, depth: int = 0) -> st.SearchStrategy[object]:
    """Values of a type as TypedDicts describe JSON."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
        return of_type(inner[0], depth)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([of_type(each, depth) for each in inner if _is_json(each)])
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin in (Mapping, dict):
        return st.dictionaries(words, words, max_size=2)
    if origin in (Iterable, Sequence, list):
        return st.lists(of_type(inner[0], depth + 1), max_size=2)
    if typing_extensions.is_typeddict(kind):
        return st.deferred(lambda: _typed_dict(kind, depth))
    simple: dict[object, st.SearchStrategy[object]] = {
        int: st.integers(0, 99),
        float: st.floats(0, 1),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return simple.get(kind, words)


def _typed_dict(kind: Any, depth: int) -> st.SearchStrategy[object]:
    hints: dict[str, Any] = typing_extensions.get_type_hints(kind, include_extras=True)
    needed = {name for name, hint in hints.items() if typing.get_origin(hint) is typing_extensions.Required}
    made = {name: of_type(hint, depth + 1) for name, hint in hints.items() if name in needed or depth < DEEPEST}
    return st.fixed_dictionaries(
        {name: each for name, each in made.items() if name in needed},
        optional={name: each for name, each in made.items() if name not in needed},
    )


def _is_json(kind: object) -> bool:
    return (
        not isinstance(kind, type)
        or typing_extensions.is_typeddict(kind)
        or kind in (str, int, float, bool, type(None))
    )
