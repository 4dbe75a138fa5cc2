"""Long coding sessions as they are recorded, made by rule from a seed: the same seed gives the same session.

A project of many files is read, searched, edited and tested. What the model says and edits uses names mostly from what
it has just seen, less often from earlier in its task, and now and then from much earlier. Results have every size, the
user speaks about every twelve calls, and three calls in a hundred come after a pause in which a cache runs out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


VERBS = words("load store parse merge flush open close encode decode resolve render schedule cancel verify index trim")
NOUNS = words(
    "session ledger packet branch cursor window header bucket ticket sensor journal mailbox quota shard token layout "
    "tracker socket bundle profile"
)
AREAS = words("core api storage network render jobs auth search billing export")
FILLERS = words(
    "the a now this that then first next check change keep move look call value test result file case path reads "
    "writes before after because still only both each fails passes returns expects instead again where when there so "
    "and but"
)
START = 1_790_000_000.0


@dataclass
class SourceFile:
    """A file of the project: its path, its lines, and the names defined in it."""

    path: str
    lines: list[str]
    names: list[str]


@dataclass
class Memory:
    """The names the model has seen in results and those it has used, oldest first."""

    seen: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    task_started: int = 0


class Session:
    """Writes one session of `calls` model calls. `size` scales the results."""

    def __init__(self, seed: int, calls: int, *, size: float = 1.0) -> None:
        self.random = Random(seed)
        self.calls = calls
        self.size = size
        self.files = [self._file(number) for number in range(90)]
        self.memory = Memory()
        self.clock = START
        self.focus = self.files[:4]

    def lines(self) -> Iterator[dict[str, object]]:
        """The session in the neutral format."""
        until_user, until_task = 0, 0
        for number in range(1, self.calls + 1):
            if until_task <= 0:
                self.focus = self.random.sample(self.files, 5)
                self.memory.task_started = len(self.memory.seen)
                until_task = self.random.randint(20, 60)
            if until_user <= 0:
                if number > 1:
                    yield {"role": "assistant", "text": self._prose(60, 3), "time": self._tick(15, 60)}
                pause = self.random.uniform(400, 3000) if self.random.random() < 0.36 else self.random.uniform(20, 200)
                self.clock += pause if number > 1 else 0
                yield {"role": "user", "text": self._prose(40, 0), "time": self.clock}
                until_user = self.random.randint(4, 20)
            yield from self._step(number)
            until_user -= 1
            until_task -= 1
        yield {"role": "assistant", "text": self._prose(120, 6), "time": self._tick(15, 60)}

    def _step(self, number: int) -> Iterator[dict[str, object]]:
        name, arguments, result = self._action()
        call = {"id": f"call_{number}", "name": name, "args": arguments}
        text = self._prose(self.random.randint(10, 240), self.random.randint(0, 5))
        yield {"role": "assistant", "text": text, "tool_calls": [call], "time": self._tick(6, 40)}
        self._see(result)
        yield {"role": "tool", "tool_call_id": call["id"], "text": result, "time": self._tick(0.2, 12)}

    def _action(self) -> tuple[str, dict[str, object], str]:
        kind = self.random.random()
        if kind < 0.33:
            return self._read()
        if kind < 0.5:
            return self._grep()
        if kind < 0.74:
            return self._run()
        if kind < 0.97:
            return self._edit()
        paths = [file.path for file in self.random.sample(self.files, 30)]
        return "glob", {"pattern": "**/*.py"}, "\n".join(paths)

    def _read(self) -> tuple[str, dict[str, object], str]:
        file = self.random.choice(self.focus if self.random.random() < 0.75 else self.files)
        start = self.random.randint(0, max(0, len(file.lines) - 40))
        count = round(min(len(file.lines), 10 + self.random.lognormvariate(3.9, 0.9)) * self.size)
        shown = [f"{start + index + 1:>5}\t{line}" for index, line in enumerate(file.lines[start : start + count])]
        return "read_file", {"path": file.path, "offset": start + 1, "limit": count}, "\n".join(shown)

    def _grep(self) -> tuple[str, dict[str, object], str]:
        pattern = self._recall(1)[0]
        hits = round(1 + self.random.lognormvariate(2.2, 1.0) * self.size)
        found = []
        for _ in range(hits):
            file = self.random.choice(self.files)
            line = self.random.randrange(len(file.lines))
            found.append(f"{file.path}:{line + 1}: {file.lines[line].strip()} # {pattern}")
        return "grep", {"pattern": pattern, "path": "src"}, "\n".join(found)

    def _run(self) -> tuple[str, dict[str, object], str]:
        file = self.random.choice(self.focus)
        stem = file.path.rsplit("/", 1)[-1].removesuffix(".py")
        count = round(self.random.lognormvariate(3.0, 1.1) * self.size) + 2
        if self.random.random() < 0.012:
            count = round(900 * self.size)
        shown = []
        for _ in range(count):
            name = self.random.choice(file.names)
            seconds = self.random.uniform(0, 2)
            shown.append(f"tests/test_{stem}.py::test_{name}_{self.random.randrange(9)} PASSED [{seconds:.3f}s]")
        failed = self.random.choice(file.names)
        shown.append(f"E   AssertionError: {failed} returned {self.random.randrange(1000, 99999)}, code ERR-{stem[:3]}")
        return "run_command", {"command": f"pytest -q tests/test_{stem}.py"}, "\n".join(shown)

    def _edit(self) -> tuple[str, dict[str, object], str]:
        file = self.random.choice(self.focus)
        place = self.random.randrange(len(file.lines) - 12)
        old = file.lines[place : place + self.random.randint(2, 16)]
        names = self._recall(3)
        new = [
            *old,
            *(f"    {name}({self.random.randrange(100)})" for name in names),
            self._prose(self.random.randint(20, 400), 0),
        ]
        arguments: dict[str, object] = {"path": file.path, "old": "\n".join(old), "new": "\n".join(new)}
        diff = "\n".join([f"@@ -{place},{len(old)} +{place},{len(new)} @@", *(f"+{line}" for line in new)])
        return "edit_file", arguments, f"edited {file.path}\n{diff}"

    def _prose(self, words: int, names: int) -> str:
        said = [self.random.choice(FILLERS) for _ in range(words)]
        for name in self._recall(names):
            said.insert(self.random.randrange(len(said) + 1), f"`{name}`")
        return " ".join(said)

    def _recall(self, count: int) -> list[str]:
        """Names the model has in mind: mostly new ones, some of its task, a few from long ago."""
        seen = self.memory.seen
        if not seen:
            return [self.random.choice(self.focus[0].names) for _ in range(count)]
        found = []
        for _ in range(count):
            kind = self.random.random()
            used = self.memory.used
            if kind < 0.80:
                name = self.random.choice(seen[-60:])
            elif kind < 0.90:
                name = self.random.choice(used[-150:] or seen)
            elif kind < 0.96:
                name = self.random.choice(seen[self.memory.task_started :] or seen[-200:])
            elif kind < 0.985:
                name = self.random.choice(used or seen)
            else:
                name = self.random.choice(seen)
            used.append(name)
            found.append(name)
        return found

    def _see(self, result: str) -> None:
        names = [word.strip("():,`") for word in result.split() if "_" in word or "/" in word]
        for name in self.random.sample(names, min(len(names), 25)):
            self.memory.seen.append(name.split(":")[0].split("(")[0])

    def _tick(self, least: float, most: float) -> float:
        self.clock += self.random.uniform(least, most)
        return self.clock

    def _file(self, number: int) -> SourceFile:
        area = AREAS[number % len(AREAS)]
        names = [
            f"{self.random.choice(VERBS)}_{self.random.choice(NOUNS)}_{self.random.choice(NOUNS)}" for _ in range(24)
        ]
        lines: list[str] = []
        for name in names:
            kind = self.random.choice(NOUNS).title() + self.random.choice(NOUNS).title()
            lines.append(f"def {name}(value: {kind}, limit: int = {self.random.randrange(100, 9999)}) -> {kind}:")
            for _ in range(self.random.randint(3, 16)):
                used = self.random.choice(names)
                lines.append(f"    {self.random.choice(NOUNS)} = {used}(value, {self.random.randrange(10)})")
            lines += ["    return value", ""]
        return SourceFile(f"src/{area}/{self.random.choice(NOUNS)}_{number}.py", lines, names)


def write_session(path: Path, *, seed: int, calls: int, size: float = 1.0) -> Path:
    """Write a session in the neutral format; `size` 1 adds about 1,500 tokens a call."""
    with path.open("w", encoding="utf-8") as file:
        for line in Session(seed, calls, size=size).lines():
            file.write(json.dumps(line) + "\n")
    return path
