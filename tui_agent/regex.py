"""Regular expressions that are compiled when they are first used: compiling all at the start would take 20 ms."""

import re
from typing import Any, AnyStr, Generic, cast


class _Pattern(Generic[AnyStr]):
    """Stands for a compiled pattern; each method becomes the compiled one's own once it is asked for."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copying asks for before the text is there
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A pattern, as `re.compile` returns it; the functions of `re` itself do not take it."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))
