"""The lexer of a shell line: words and the commands they form, redirections, and lines nested inside.

What it does not know for certain it calls opaque (function definitions, `case`, arithmetic commands, brace expansion):
a program that reads rules must not guess.
"""

import re

import msgspec

_BLANK = " \t"
_META = "|&;()<>\n \t"
_OPERATOR = re.compile(r"&&|\|\||;;&?|;&|\|&|[|&;\n]")
_REDIRECT = re.compile(r"(?P<fd>[0-9]*|\{[A-Za-z_]\w*\})(?P<operator>&>>|&>|<<<|<<-|<<|>>|>\||>&|<&|<>|>|<)")
_SKIPPED = frozenset({"then", "elif", "else", "fi", "do", "done", "if", "while", "until", "!", "time", "{", "}"})
_REFUSED = frozenset({"case", "esac", "select", "function", "coproc", "[[", "in"})
_VARIABLE = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!_-]", re.ASCII)
_ARITHMETIC = re.compile(r"[\w\s+\-*/%()<>=!&|^~?:,$]*", re.ASCII)


class Opaque(Exception):
    """The line is not fully understood; the message says what of it."""


class Word(msgspec.Struct, frozen=True):
    """A word with its quotes removed (`text`) and as it was written (`raw`). `dynamic`: holds an expansion;
    `globs`: holds an unquoted ``*``, ``?`` or ``[``.
    """

    text: str
    raw: str
    dynamic: bool = False
    globs: bool = False


class Pipeline(msgspec.Struct):
    """All commands of a line, whatever joins them; lines nested in substitutions; files that redirections open."""

    commands: list[tuple[Word, ...]]
    inner: list[str]
    writes: list[Word]
    reads: list[Word]
    opaque: str = ""


def parse(line: str) -> Pipeline:
    """Read a line (or several). Raises Opaque only where nothing is known of it."""
    return _Parser(line).parse()


class _Parser:
    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._result = Pipeline([], [], [], [])
        self._words: list[Word] = []
        self._heredocs: list[tuple[Word, bool]] = []

    def parse(self) -> Pipeline:
        try:
            while self._at < len(self._line):
                self._step()
            self._end_command()
        except Opaque as reason:
            self._end_command()
            self._result.opaque = str(reason)
        if self._heredocs and not self._result.opaque:
            self._result.opaque = "a here-document does not end"
        return self._result

    def _step(self) -> None:
        line, at = self._line, self._at
        character = line[at]
        if character in _BLANK:
            self._at += 1
        elif line.startswith("\\\n", at):
            self._at += 2
        elif character == "#":
            end = line.find("\n", at)
            self._at = len(line) if end < 0 else end
        elif line.startswith(("<(", ">("), at):
            self._word()
        elif redirect := _REDIRECT.match(line, at):
            self._redirect(redirect)
        elif operator := _OPERATOR.match(line, at):
            self._operator(operator[0])
        elif character == "(":
            self._subshell()
        elif character == ")":
            raise Opaque("a parenthesis closes nothing (or a `case` is used)")
        else:
            self._word()

    def _operator(self, operator: str) -> None:
        if operator.startswith(";;") or operator == ";&":
            raise Opaque("it uses `case`")
        self._at += len(operator)
        self._end_command()
        if operator == "\n":
            self._read_heredocs()

    def _subshell(self) -> None:
        if self._words:
            raise Opaque("it defines a function or uses an array")
        if self._line.startswith("((", self._at):
            raise Opaque("it uses an arithmetic command")
        self._result.inner.append(self._parenthesised(self._at))

    def _end_command(self) -> None:
        words, self._words = self._words, []
        while words and words[0].raw in _SKIPPED:
            timed = words[0].raw == "time"
            following = words[1:]
            while timed and following and following[0].raw in {"-p", "--"}:
                following = following[1:]
            if timed and following and following[0].raw.startswith("-"):
                break  # the program of that name, not the keyword
            words = following
        if words and words[0].raw in _REFUSED:
            raise Opaque(f"it uses `{words[0].raw}`")
        if words and words[0].raw == "for":
            # A loop over PATH or IFS would change what the commands in it mean.
            if len(words) < 2 or not words[1].raw.islower() or (len(words) > 2 and words[2].raw != "in"):
                raise Opaque("it uses a `for` that is not understood")
            return
        if words:
            self._result.commands.append(tuple(words))

    def _redirect(self, match: re.Match[str]) -> None:
        self._at = match.end()
        operator = match["operator"]
        while self._at < len(self._line) and self._line[self._at] in _BLANK:
            self._at += 1
        if self._at >= len(self._line) or (
            self._line[self._at] in _META and not self._line.startswith(("<(", ">("), self._at)
        ):
            raise Opaque("a redirection has no target")
        target = self._read_word()
        if operator in {"<<", "<<-"}:
            self._heredocs.append((target, operator == "<<-"))
        elif operator == ">&" and re.fullmatch(r"[0-9]*-?", target.raw):
            return
        elif operator in {">", ">>", ">|", "&>", "&>>", ">&", "<>"}:
            self._result.writes.append(target)
        elif operator == "<" or (operator == "<&" and not re.fullmatch(r"[0-9]*-?", target.raw)):
            self._result.reads.append(target)
        if target.raw.startswith("/dev/tcp/") or target.raw.startswith("/dev/udp/"):
            raise Opaque("it opens a network connection")

    def _read_heredocs(self) -> None:
        waiting, self._heredocs = self._heredocs, []
        for delimiter, strips in waiting:
            body: list[str] = []
            while True:
                if self._at >= len(self._line):
                    raise Opaque("a here-document does not end")
                end = self._line.find("\n", self._at)
                end = len(self._line) if end < 0 else end
                text = self._line[self._at : end]
                self._at = min(end + 1, len(self._line))
                if (text.lstrip("\t") if strips else text) == delimiter.text:
                    break
                body.append(text)
            if delimiter.raw == delimiter.text:
                self._expansions("\n".join(body))

    def _expansions(self, body: str) -> None:
        """The substitutions in text that is expanded like a quoted string."""
        inner = _Parser(body)
        while inner._at < len(body):
            character = body[inner._at]
            if character == "\\":
                inner._at += 2
            elif character in "$`":
                inner._expansion()
            else:
                inner._at += 1
        self._result.inner.extend(inner._result.inner)

    def _word(self) -> None:
        self._words.append(self._read_word())

    def _read_word(self) -> Word:
        start = self._at
        text: list[str] = []
        dynamic = globs = False
        line = self._line
        while self._at < len(line):
            character = line[self._at]
            if line.startswith(("<(", ">("), self._at):
                self._at += 1
                self._result.inner.append(self._parenthesised(self._at))
                dynamic = True
            elif character in _META:
                break
            elif character == "\\":
                text.append(line[self._at + 1 : self._at + 2].replace("\n", ""))
                self._at += 2
            elif character == "'":
                end = self._closing("'", self._at + 1)
                text.append(line[self._at + 1 : end])
                self._at = end + 1
            elif character == '"':
                dynamic |= self._quoted(text)
            elif character == "`" or character == "$":
                before = self._at
                dynamic |= self._expansion()
                text.append(line[before : self._at])
            else:
                globs |= character in "*?["
                if character == "{" and re.match(r"\{[^\s{}]*(,|\.\.)", line[self._at :][:2000]):
                    raise Opaque("it uses a brace expansion")
                text.append(character)
                self._at += 1
        return Word("".join(text), line[start : self._at], dynamic, globs)

    def _quoted(self, text: list[str]) -> bool:
        line = self._line
        self._at += 1
        dynamic = False
        while self._at < len(line) and line[self._at] != '"':
            character = line[self._at]
            if character == "\\":
                following = line[self._at + 1 : self._at + 2]
                if following != "\n":
                    text.append(following if following in {"$", "`", '"', "\\"} else character + following)
                self._at += 2
            elif character in "$`":
                before = self._at
                dynamic |= self._expansion(quoted=True)
                text.append(line[before : self._at])
            else:
                text.append(character)
                self._at += 1
        if self._at >= len(line):
            raise Opaque("a quote does not end")
        self._at += 1
        return dynamic

    def _expansion(self, *, quoted: bool = False) -> bool:
        """Read what starts with ``$`` or a backtick; whether it expands to anything."""
        line, at = self._line, self._at
        if line[at] == "`":
            self._backticks()
        elif line.startswith("$((", at):
            body = self._parenthesised(at + 1)
            if not _ARITHMETIC.fullmatch(body):
                raise Opaque("it uses arithmetic that is not understood")
        elif line.startswith("$(", at):
            self._result.inner.append(self._parenthesised(at + 1))
        elif line.startswith("${", at):
            self._braces()
        elif line.startswith("$\\\n", at):
            raise Opaque("a line is continued inside an expansion")
        elif line.startswith(("$[", "$'", '$"'), at) and not (quoted and line[at + 1] in "'\""):
            raise Opaque("it uses `$[`, `$'` or `$\"`")
        elif name := _VARIABLE.match(line, at + 1):
            self._at = name.end()
        else:
            self._at += 1
            return False
        return True

    def _braces(self) -> None:
        """``${name}`` and ``${name…word}``, the word without anything nested."""
        match = re.compile(r"\$\{[#!]?(?:[A-Za-z_]\w*|[0-9@*#?$!-])([^{}$`'\"\\\[\]()@=]*)\}", re.ASCII).match(
            self._line, self._at
        )
        if not match or self._line.startswith("${!", self._at):
            raise Opaque("it uses a `${…}` that is not understood")
        self._at = match.end()

    def _backticks(self) -> None:
        line = self._line
        end = self._at + 1
        while end < len(line) and line[end] != "`":
            end += 2 if line[end] == "\\" else 1
        if end >= len(line):
            raise Opaque("a backtick does not end")
        self._result.inner.append(re.sub(r"\\([`\\$])", r"\1", line[self._at + 1 : end]))
        self._at = end + 1

    def _parenthesised(self, at: int) -> str:
        """The text between the parenthesis at `at` and the one that closes it; the position moves behind that."""
        depth = 0
        position = at
        line = self._line
        while position < len(line):
            character = line[position]
            if character == "\\":
                position += 1
            elif character == "'":
                position = self._closing("'", position + 1)
            elif character in {'"', "`"}:
                nested = _Parser(line)
                nested._at = position
                if character == '"':
                    nested._quoted([])
                else:
                    nested._backticks()
                position = nested._at - 1
            elif character == "#" and line[position - 1] in _META:
                raise Opaque("it has a comment inside parentheses")
            elif line.startswith("<<", position):
                raise Opaque("it has a here-document inside parentheses")
            elif character == "(":
                depth += 1
            elif character == ")":
                depth -= 1
                if depth == 0:
                    self._at = position + 1
                    return line[at + 1 : position]
            position += 1
        raise Opaque("a parenthesis does not end")

    def _closing(self, quote: str, start: int) -> int:
        end = self._line.find(quote, start)
        if end < 0:
            raise Opaque("a quote does not end")
        return end
