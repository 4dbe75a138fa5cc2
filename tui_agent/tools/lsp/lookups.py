"""Where names are defined and used, by the project's language servers: `definition`, `references`, `symbols`."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from tui_agent.text import clean, one_line
from tui_agent.tools.base import Effect, Tool, ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.built_in import BuiltIn, OfPath
from tui_agent.tools.gate.workspace import display_path, granted_path, shown
from tui_agent.tools.lsp.client import path_of
from tui_agent.tools.lsp.servers import LanguageServers, text_of

MOST: Final = 50
"""Places that one answer has."""
_KINDS: Final = (
    *("", "file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum"),
    *("interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key", "null"),
    *("enum member", "struct", "event", "operator", "type parameter"),
)
"""The protocol's kinds of symbols, by number."""


class _Lookup(OfPath, BuiltIn):
    """Asks the server for the file at `path`."""

    effect: Effect = "read"

    def __init__(self, servers: LanguageServers) -> None:
        super().__init__()
        self._servers = servers

    async def _asked(
        self,
        context: ToolContext,
        path: str,
        method: str,
        name: str = "",
        line: int = 0,
        more: Mapping[str, object] = {},
    ) -> Any:
        """The server's answer on a file, or on the name in this line of it. Raises ToolFailure."""
        real = granted_path(context, path)
        text = await asyncio.to_thread(text_of, real)
        lines = (text or "").splitlines()
        if not text:
            raise ToolFailure(f"{shown(path)} has no text that could be looked at.", "Use grep.")
        parameters: dict[str, object] = {"textDocument": {"uri": real.as_uri()}, **more}
        if name:
            if not 1 <= line <= len(lines) or name not in lines[line - 1]:
                at = [number for number, each in enumerate(lines, 1) if name in each][:10]
                instead = f"It stands in lines {', '.join(map(str, at))}." if at else "grep finds where it stands."
                raise ToolFailure(f"{shown(name, 100)} is not in line {line} of {shown(path)}.", instead)
            before = lines[line - 1][: lines[line - 1].index(name)]
            parameters["position"] = {"line": line - 1, "character": len(before.encode("utf-16-le")) // 2}
        try:
            server = await self._servers.asked(real)
            if server is None:
                raise ToolFailure(f"No language server knows {shown(path)}.", "Use grep.")
            return await server.ask(method, parameters)
        except (OSError, TimeoutError, RuntimeError) as error:
            why = one_line(clean(str(error)), 300) or "it did not answer in time"
            raise ToolFailure(f"The language server cannot say: {why}.", "Use grep.") from error

    async def _places(self, context: ToolContext, answer: object) -> ToolOutput:
        """Locations, each with its line."""
        found = dict.fromkeys(_locations(answer))
        if not found:
            return ToolOutput("[It is found nowhere.]", summary="nothing found")
        texts = await asyncio.to_thread(_lines, {path for path, _ in found if context.workspace.contains(path)})
        lines = [_place(context, path, line, texts.get(path, ())) for path, line in found]
        return _listed(lines)


class Definition(_Lookup):
    """Where a name is defined."""

    name = "definition"

    @override
    async def _do(self, context: ToolContext, /, path: str, line: int, name: str) -> ToolOutput:
        """Find where a name in code is defined, by the project's language server: exact, unlike a search for text.

        Args:
            path: A file in which the name is used.
            line: The number of a line of it with the name.
            name: The name as it stands in that line.
        """
        return await self._places(context, await self._asked(context, path, "textDocument/definition", name, line))


class References(_Lookup):
    """Where a name is used."""

    name = "references"

    @override
    async def _do(self, context: ToolContext, /, path: str, line: int, name: str) -> ToolOutput:
        """Find all uses of a function, class or variable in the project, by its language server: exact, unlike a search
        for text, so good before it is renamed or changed.

        Args:
            path: A file in which the name is defined or used.
            line: The number of a line of it with the name.
            name: The name as it stands in that line.
        """
        method = "textDocument/references"
        answer = await self._asked(context, path, method, name, line, {"context": {"includeDeclaration": True}})
        return await self._places(context, answer)


class Symbols(_Lookup):
    """What a file defines."""

    name = "symbols"

    @override
    async def _do(self, context: ToolContext, /, path: str) -> ToolOutput:
        """List the classes, functions and variables that a file of code defines, with their lines.

        Args:
            path: The file.
        """
        answer = await self._asked(context, path, "textDocument/documentSymbol")
        return _listed(list(_outline(answer, 0))) if answer else ToolOutput("[It defines nothing.]")


def lookup_tools(servers: LanguageServers | None) -> list[Tool]:
    """The tools, if there is a server for a language of the project. Reads folders."""
    return [Definition(servers), References(servers), Symbols(servers)] if servers and servers.lookups() else []


def _locations(answer: object) -> Iterator[tuple[Path, int]]:
    for each in answer if isinstance(answer, list) else [answer]:
        if isinstance(each, dict) and (uri := each.get("uri") or each.get("targetUri")):
            place = each.get("range") or each.get("targetSelectionRange") or {}
            yield path_of(str(uri)), int(place.get("start", {}).get("line", 0))


def _lines(paths: Iterable[Path]) -> Mapping[Path, list[str]]:
    return {path: (text_of(path) or "").splitlines() for path in paths}


def _place(context: ToolContext, path: Path, line: int, lines: "list[str] | tuple[()]") -> str:
    said = one_line(clean(lines[line]), 200) if line < len(lines) else ""
    return f"{display_path(context.workspace, path)}:{line + 1}: {said}".rstrip(": ")


def _outline(symbols: Iterable[Any], depth: int) -> Iterator[str]:
    for each in symbols:
        place = each.get("selectionRange") or each.get("location", {}).get("range") or {}
        kind = int(each.get("kind", 0))
        symbol = f"{_KINDS[kind] if kind < len(_KINDS) else ''} {one_line(clean(str(each.get('name'))), 100)}".strip()
        yield f"{'  ' * depth}{int(place.get('start', {}).get('line', 0)) + 1}: {symbol}"
        yield from _outline(each.get("children") or (), depth + 1)


def _listed(lines: list[str]) -> ToolOutput:
    more = [f"[{len(lines) - MOST:,} more]"] if len(lines) > MOST else []
    return ToolOutput("\n".join([*lines[:MOST], *more]), summary=f"{len(lines):,} found")
