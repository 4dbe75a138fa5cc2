"""The welcome of a new conversation: the folder, the main settings, and an example of what to ask."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from tui_agent.text import one_line, short_path
from tui_agent.tui.cards.notice import Level, NoticeBlock
from tui_agent.tui.keys import columns
from tui_agent.tui.wording import CONFINED, MODES, model_label
from tui_agent.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from tui_agent.session import Session
    from tui_agent.tui.pane.transcript import Transcript

PROMISE: Final = "See what the model sees and costs. Take any step back."
"""What no other agent does, in one line of 60 columns."""
HINT: Final = "shows keys and commands"
DEMO_HINT: Final = "/demo is for trying it all"
ASK: Final = "Say what you would like done here, in your own words."
MAX_NAMES: Final = 1000
"""The most files of the folder considered for an example."""
MAX_LOCAL: Final = 2
"""The most local models named."""
MAX_PATH: Final = 36
"""The most characters of the folder's path in the title: with them it takes one line of 60 columns."""
_CODE: Final = (".py", ".ts", ".js", ".go", ".rs", ".java", ".rb", ".c", ".cpp", ".cs", ".swift", ".kt", ".sh")
_TEXT: Final = (*_CODE, ".md", ".rst", ".txt", ".toml", ".json", ".yaml", ".yml", ".xml", ".mod", ".html")
_TESTS: Final = ("tests", "test", "spec", "__tests__")
_PROJECTS: Final = {
    "Cargo.toml": "Run cargo test and explain the first thing that fails.",
    "package.json": "What can be run here with npm, and what does each script do?",
    "go.mod": "Run go vet ./... and explain what it finds.",
    "pom.xml": "Build this with Maven and explain the first warning.",
    "build.gradle": "Build this with Gradle and explain the first warning.",
    "build.gradle.kts": "Build this with Gradle and explain the first warning.",
    "CMakeLists.txt": "Build this with CMake and explain the first warning.",
    "pyproject.toml": "What does this package offer, and what is not tested yet?",
    "Makefile": "What can make do here, and what should I call first?",
}
"""Examples by the file that marks a kind of project in its root; the first that exists is used."""


class WelcomeFacts(msgspec.Struct, frozen=True):
    """The settings to show.

    mode, sandbox: a sentence each on what runs without asking, and on what confines commands. key: the source of the
    API key; empty: none is needed. offline: the offline model is active. keyless: because no other model has a key.
    local: local models that could be used instead.
    """

    model: str
    mode: str
    sandbox: str = ""
    key: str = ""
    offline: bool = False
    keyless: bool = False
    local: Sequence[str] = ()


class Welcome:
    """The welcome of one app: at first what to do, and the settings as soon as they are known."""

    def __init__(self, folder: Path, *, resuming: bool = False) -> None:
        """`resuming`: an earlier conversation is resumed, so only the folder is shown."""
        self._folder = folder
        self._resuming = resuming
        self._block: NoticeBlock | None = None

    def greet(self, say: "Callable[[Level, str, str, str, str], NoticeBlock]", help_key: str) -> None:
        """Show the welcome before the settings are known. `help_key`: the key that shows the help, as shown to the
        user.
        """
        title = f"tui-agent {__version__} · {folder_name(self._folder)}"
        if self._resuming:
            self._block = say(Level.WELCOME, title, "", f"{help_key} {HINT}", "")
        else:
            self._block = say(Level.WELCOME, title, f"\n{ASK}", f"{help_key} {HINT} · {DEMO_HINT}", PROMISE)

    async def complete(self, session: "Session", transcript: "Transcript") -> None:
        """Add the settings and an example, in two steps because finding local models may take a while."""
        block = self._block
        if block is None or session.resumed:
            return
        if self._resuming:  # what was to be resumed is not there, or was not chosen
            block.lead, block.hint = PROMISE, f"{block.hint} · {DEMO_HINT}"
        names = await asyncio.to_thread(names_in, self._folder)
        facts = await asyncio.to_thread(known, session)
        transcript.retell(block, words(facts, names))
        facts = await asyncio.to_thread(looked_up, session, facts)
        transcript.retell(block, words(facts, names))


def words(facts: WelcomeFacts, names: Iterable[str]) -> str:
    """The text of the welcome for a folder with these files."""
    set_now = [("Model", facts.model), ("Mode", facts.mode), ("Sandbox", facts.sandbox), ("Key", facts.key)]
    told = [columns((what, value) for what, value in set_now if value)]
    if facts.keyless:
        ways = [(f"/model ollama:{name}", "a model on this machine") for name in facts.local[:MAX_LOCAL]]
        ways += [("/key", "enter an API key, or see where to get one")]
        told += ["", "To use a real model:", columns(ways), f"Until then, try: {command_example(names)}"]
    else:
        told += ["", ASK, f"For example: {command_example(names) if facts.offline else example(names)}"]
    return "\n".join(["", *told])


def folder_name(folder: Path) -> str:
    """The path of a folder; only the end of a long one, so that the title stays on one line."""
    whole = short_path(folder)
    if len(whole) <= MAX_PATH:
        return whole
    ends = (f"/{'/'.join(folder.parts[start:])}" for start in range(1, len(folder.parts)))
    return f"…{next((end for end in ends if len(end) < MAX_PATH), folder.name[1 - MAX_PATH :])}"


def example(names: Iterable[str]) -> str:
    """An example of what to ask in a folder with these files."""
    found = sorted(names)
    if any(name.lower() in _TESTS or name.lower().startswith("test_") for name in found):
        return "Run the tests and explain the first thing that fails."
    for name, asked in _PROJECTS.items():
        if name in found:
            return asked
    code = next((name for name in found if name.endswith(_CODE)), "")
    if code:
        return f"What does {one_line(code, 40)} do, and what could go wrong in it?"
    if any(name.lower().startswith("readme") for name in found):
        return "What is this project for, and where should I start reading?"
    if found:
        return "Look through this folder and tell me what is in it."
    return "Write a script here that renames photos by the day they were taken."


def command_example(names: Iterable[str]) -> str:
    """An example for the offline model, which knows only a few commands."""
    found = sorted(names)
    if not found:
        return 'write "hello" to notes.txt · read notes.txt · run ls -la'
    readable = next((name for name in found if name.lower().startswith("readme")), "")
    readable = readable or next((name for name in found if name.lower().endswith(_TEXT)), "")
    return " · ".join([*([f"summarise {one_line(readable, 40)}"] if readable else []), "find TODO in .", "run ls -la"])


def names_in(folder: Path) -> list[str]:
    """The names in a folder, without hidden ones; empty if it cannot be read."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    names.append(entry.name)
                if len(names) >= MAX_NAMES:
                    break
    except OSError:
        return []
    return names


def known(session: "Session") -> WelcomeFacts:
    """The settings that are known without asking a server. Imports the providers' records."""
    from tui_agent.models.catalogue import OFFLINE, catalogue_of
    from tui_agent.settings.kept_keys import kept_variables

    name, agent = session.agent.profile.name, session.agent
    catalogue = catalogue_of(agent.settings)
    provider = catalogue.provider_of(name)
    offline = provider.id == OFFLINE
    variable = next((each for each in provider.keys if os.environ.get(each)), "")
    kept = variable in kept_variables(session.home)
    return WelcomeFacts(
        model="offline: no language model, but it knows a few commands"
        if offline
        else model_label(catalogue.short_name(name)),
        mode=f"{agent.permissions.mode}: {MODES[agent.permissions.mode]}",
        key=(f"{variable}, {'from the keyring' if kept else 'from the environment'}") if variable else "",
        offline=offline,
        keyless=offline and not agent.settings.model.id,
    )


def looked_up(session: "Session", facts: WelcomeFacts) -> WelcomeFacts:
    """The same with facts that must be looked up: the sandbox and local models. May take two seconds."""
    from tui_agent.models.ollama.server import pulled_models

    sandbox, trouble = session.sandbox, session.sandbox.trouble
    if sandbox.choice == "off":
        confined = "off: commands run with all your rights"
    else:
        confined = trouble or "commands can only write in this folder"
    local = pulled_models(session.agent.settings.ollama.host) if facts.keyless else ()
    if session.agent.permissions.mode == "auto" and session.agent.permissions.runs_confined:
        facts = structs.replace(facts, mode=f"auto: {CONFINED}")
    return structs.replace(facts, sandbox=confined, local=tuple(one_line(name, 60) for name in local))
