"""A language server for tests: a name is defined where a line begins with `NAME =`, and wrong where nothing does."""

import re

from lsprotocol import types
from pygls.lsp.server import LanguageServer

server = LanguageServer("words", "1")


def places(name: str, beginning: str = "") -> list[types.Location]:
    """Where a name stands in all open files, behind this."""
    found = []
    for uri, document in server.workspace.text_documents.items():
        for number, line in enumerate(document.lines):
            for match in re.finditer(rf"{beginning}\b{name}\b", line):
                start = types.Position(number, match.start())
                found.append(types.Location(uri, types.Range(start, types.Position(number, match.end()))))
    return found


def name_at(params: types.DefinitionParams | types.ReferenceParams) -> str:
    return server.workspace.get_text_document(params.text_document.uri).word_at_position(params.position)


@server.feature(types.TEXT_DOCUMENT_DEFINITION)
def definition(params: types.DefinitionParams) -> list[types.Location]:
    return places(name_at(params), "^")


@server.feature(types.TEXT_DOCUMENT_REFERENCES)
def references(params: types.ReferenceParams) -> list[types.Location]:
    return places(name_at(params))


@server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    found = []
    for number, line in enumerate(server.workspace.get_text_document(params.text_document.uri).lines):
        if match := re.match(r"\w+(?= =)", line):
            place = types.Range(types.Position(number, 0), types.Position(number, len(line)))
            found.append(types.DocumentSymbol(match[0], types.SymbolKind.Variable, place, place))
    return found


@server.feature(types.TEXT_DOCUMENT_DIAGNOSTIC)
def diagnostic(params: types.DocumentDiagnosticParams) -> types.RelatedFullDocumentDiagnosticReport:
    items = []
    for number, line in enumerate(server.workspace.get_text_document(params.text_document.uri).lines):
        for match in re.finditer(r"(?<=[=+] )[^\W\d]+", line):
            if not places(match[0], "^"):
                place = types.Range(types.Position(number, match.start()), types.Position(number, match.end()))
                items.append(types.Diagnostic(place, f"{match[0]} is not defined", code="undefined"))
    return types.RelatedFullDocumentDiagnosticReport(items)


if __name__ == "__main__":
    server.start_io()
