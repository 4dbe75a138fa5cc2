"""The command as a user starts it: real processes with a home of their own."""

import asyncio
import json
import os
import pty
import re
import shlex
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.starter import STARTER
from tests.storage.entries import stamped
from tests.storage.recordings.test_taking_over import claude
from tui_agent.arguments import UsageError
from tui_agent.command_line import SETTINGS_FLAGS, parse
from tui_agent.conversation.entries import Recorded, user_message
from tui_agent.settings import settings_by_key
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import create_session
from tui_agent.version import __version__

ROOT = Path(__file__).parent.parent
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def environment(home: Path) -> dict[str, str]:
    """The caller's environment without its settings, and with the program on the path wherever it runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TUI_AGENT", "ANTHROPIC_"))}
    return {**kept, "TUI_AGENT_HOME": str(home), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def run(home: Path, folder: Path) -> Run:
    """Runs the command in `folder`: forked where nothing but its arguments counts, else as a user starts it."""

    def run(
        *arguments: str, stdin: bytes | None = b"", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        if stdin == b"" and not environ and arguments not in {("--version",), ("--help",)}:
            return STARTER.run(arguments, folder=folder, environ=environment(home), stdin="", timeout=60)
        done = subprocess.run(
            [sys.executable, "-m", "tui_agent", *arguments],
            input=stdin,
            capture_output=True,
            cwd=folder,
            env={**environment(home), **(environ or {})},
            timeout=60,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on standard error of a command that refused."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line.removeprefix("tui-agent: ")


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"tui-agent {__version__}\n"
    done = run("--help")
    assert done.returncode == 0
    assert "--max-session-cost-usd" in done.stdout


NOT_IMPORTED = {
    "import tui_agent": "textual anthropic msgspec asyncio",
    "from tui_agent.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass": (
        "textual rich anthropic google asyncio msgspec sqlite3 httpx tiktoken platformdirs acp pydantic"
    ),
    "import tui_agent.headless": (
        "textual rich anthropic openai httpx2 tiktoken configparser email html importlib.metadata statistics tomllib"
        " zoneinfo"
    ),
    "import tui_agent.headless.plain": "textual",
    "import tui_agent.reports.installation": "aiosqlite tui_agent.session_parts tui_agent.agent.agent",
    "import tui_agent.settings, tui_agent.settings.trust": "textual asyncio sqlite3 platformdirs",
    # The first picture of the app.
    "import tui_agent.cli, tui_agent.tui.app.start, tui_agent.tui.app.app\n"
    "from tui_agent.tui.terminal.textual_internals import is_known\nis_known()": (
        "ctypes importlib.metadata json markdown_it pygments sqlite3 textual.widgets._text_area tui_agent.session"
        " tui_agent.tui.commands.table tui_agent.tui.session.conductor tui_agent.tui.cards.blocks"
        " tui_agent.tui.dialogs.dialog tui_agent.tui.dialogs.permission tui_agent.tui.pane.conversation"
        " tui_agent.tui.prompt.prompt"
    ),
}


@pytest.mark.parametrize("code", NOT_IMPORTED)
def test_each_start_imports_only_what_it_needs(code: str) -> None:
    code_and_modules = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code_and_modules], capture_output=True, text=True, check=True)
    assert set(NOT_IMPORTED[code].split()) & set(done.stderr.split()) == set()


TO_SEND = " To send it as a prompt: tui-agent -- "
NO_TERMINAL = "the full-screen app needs a terminal; `tui-agent -p PROMPT` answers once without one"
MISTAKES = {
    # One that goes on ends with an ellipsis here.
    "--modle x": "unknown option --modle; did you mean --mode or --model?",
    "--modle=x": "unknown option --modle; did you mean --mode or --model?",
    "--zzz": "unknown option --zzz; see --help",
    "doctor --fast": "unknown option --fast; see --help",
    "--last": "there is no option --last here: -c continues the newest session of this folder",
    "--allowedTools=x": (
        "there is no option --allowedTools here: --set permissions.allow=RULES says what needs no approval"
    ),
    "--full-auto": "there is no option --full-auto here: that is the mode auto, the default",
    "exec 'x y'": f"`exec` is no command here: `tui-agent -p PROMPT` runs one turn.{TO_SEND}exec x y",
    "resume 20261128-133611-065f": (
        "`resume` is no command here: `tui-agent -r [ID]` continues a session, `-c` the newest of this folder."
        f"{TO_SEND}resume 20261128-133611-065f"
    ),
    "stats": (
        "`stats` is no command here: `tui-agent usage` adds up all sessions; `/stats` in the app shows those of one."
        f"{TO_SEND}stats"
    ),
    "agents list": (
        "`agents list` is no command here: `/extensions` in the app lists your agents, and those of the project."
        f"{TO_SEND}agents list"
    ),
    "mcp login x": f"`mcp login` is no command here: `/mcp` in the app does that.{TO_SEND}mcp login x",
    "plugin install x": (
        f"`plugin install` is no command here: `tui-agent plugin add SOURCE` installs plugins.{TO_SEND}plugin install x"
    ),
    "config set a b": (
        "unexpected argument 'set'; `/config` in the app changes settings, --set KEY=VALUE one of a run; "
        "to send it all as a prompt: tui-agent -- config set a b"
    ),
    "mcp add x": "expected `mcp add NAME COMMAND [ARGUMENT …]` or `mcp add --transport http NAME URL`",
    "help": (
        "`help` is no command here: `tui-agent --help` lists options and commands, F1 in the app its keys."
        f"{TO_SEND}help"
    ),
    "--model": "--model/-m: expected one argument",
    """trace the "bug's" cause""": (
        """unexpected argument "bug's"; to send it all as a prompt: tui-agent -- trace the 'bug'"'"'s' cause"""
    ),
    "doctor who": "unexpected argument 'who'; to send it all as a prompt: tui-agent -- doctor who",
    "session": "'session' is close to the command `sessions`; to send it as a prompt: tui-agent -- session",
    "--model offline config": (
        "'config' is a command when it is the first word; to send it as a prompt: tui-agent -- config"
    ),
    "-p x --output-format xml": "--output-format: expected text|json|stream-json, got 'xml'",
    "x --output-format json": "--output-format needs -p",
    "-p x --set a": "--set: expected KEY=VALUE, got 'a'",
    "-p x --set ui.moose=1": "--set: unknown key 'ui.moose'; did you mean ui.mouse?",
    "-p x --watchdog wran": "--watchdog: watchdog.mode: expected warn|off|prompt|auto, got 'wran'; did you mean warn?",
    "-p x --agentic-tools=perhaps": "--agentic-tools: agentic.enabled: expected true or false, got 'perhaps'",
    "-p x --context-window -2": (
        "--context-window: context.context_window: expected a whole number of at least -1, got -2"
    ),
    "-p x --add-dir absent": "--add-dir: absent: not a folder",
    "-p x -c -r id": "--continue and --resume exclude each other",
    "-p x -r": "--resume needs a session's ID with -p; `tui-agent sessions` lists them",
    "-p x --yolo --ask plan": "--yolo and --ask exclude each other",
    "-p": "the prompt is empty",
    "-p ' '": "the prompt is empty",
    "": NO_TERMINAL,
    "-- doctor": NO_TERMINAL,
    "-p x --model claud-opus": 'There is no model "claud-opus": did you mean claude-opus-…',
    "-p x --model gemini-3": '"gemini-3" is a part of the names of several models: gemini-3.8-flash, gemini-3…',
    "-p x --model claude-opus-5-5": "anthropic:claude-opus-5-5 needs a key: set ANTHROPIC_API_KEY, or choose …",
    "-p x -r absent": "There is no session 'absent'. List them with: tui-agent sessions",
    "-p x -c": "There is no session to continue in {folder}. List all with: tui-agent sessions",
    "--fork -p x": "--fork needs --continue or --resume: it starts another branch of a session",
    "trace absent": "There is no session 'absent'. List them with: tui-agent sessions",
    "-p x --json-schema absent.json": "--json-schema: {folder}/absent.json cannot be read: No such file or directory",
    "-p x --json-schema kept.txt": "--json-schema: {folder}/kept.txt is not JSON: Expecting value: …",
    "-p /stats --model offline --json-schema schema.json": "--json-schema is for a prompt, not for a command",
    "x --json-schema schema.json": "--json-schema needs -p",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(run: Run, folder: Path, home: Path, arguments: str) -> None:
    (folder / "kept.txt").write_text("no JSON")
    (folder / "schema.json").write_text("{}")
    line, told = MISTAKES[arguments].replace("{folder}", str(folder)), refused(run(*shlex.split(arguments)))
    assert told.startswith(line[:-1]) if line.endswith("…") else told == line
    assert not list(home.glob("sessions/*"))


def test_only_a_first_word_is_a_command() -> None:
    assert parse(["config"]).command == "config"
    assert parse(["--", "config"]).options.words == ["config"]
    assert parse(["-p", "config"]).options.words == ["config"]
    assert parse(["config the linter"]).options.words == ["config the linter"]
    assert parse(["run", "the", "tests"]).options.words == ["run", "the", "tests"]
    assert parse(["--print", "config", "-m", "x"]).options.words == ["config"]


def test_help_on_adding_a_server_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["mcp", "add", "--help"])
    assert "tui-agent mcp add git uvx" in capsys.readouterr().out
    assert parse(["mcp", "add", "tool", "tool", "--help"]).options.words == ["tool", "tool", "--help"]


def test_several_words_are_one_prompt() -> None:
    for line in (
        "what is this",
        "-p what is this",
        "what --model offline is this",
        "what is this -p",
        "--yolo -p 'what is' --model offline this",
        "-p -- what 'is this'",
        "what is -- this",
    ):
        parsed = parse(shlex.split(line))
        assert (parsed.command, " ".join(parsed.options.words)) == ("", "what is this")
        assert bool(parsed.settings) == ("--model" in line)
    assert parse(["--", "-p", "--yolo"]).options.words == ["-p", "--yolo"]


def test_every_settings_flag_sets_a_setting_that_exists() -> None:
    for flag in SETTINGS_FLAGS:
        assert flag.key in settings_by_key(), flag.name
        allowed = settings_by_key()[flag.key].allowed
        assert all(choice in flag.help for choice in allowed.choices), flag.name
    arguments = [
        part for flag in SETTINGS_FLAGS for part in ([flag.name] if flag.metavar is None else [flag.name, "v"])
    ]
    assert len(parse(arguments).settings) == len(SETTINGS_FLAGS)


def test_flags_keep_their_order() -> None:
    parsed = parse(["--ask", "plan", "--set", "permissions.mode=ask", "--no-compact"])
    assert parsed.settings == (
        ("--ask", "permissions.mode", "plan"),
        ("--set", "permissions.mode", "ask"),
        ("--no-compact", "compaction.auto", "false"),
    )


def test_parsing_leaves_nothing_behind_for_the_next_call() -> None:
    parse(["--ask", "plan"])
    assert parse([]).settings == ()
    with pytest.raises(UsageError):
        parse(["--modle"])


def test_what_is_wrong_in_the_settings_is_named_with_file_and_place(run: Run, home: Path) -> None:
    home.mkdir()
    file = home / "config.json"
    file.write_text("{\n  oops\n}")
    assert refused(run("-p", "x")).startswith(f"{file}: malformed JSON at line 2, column 3: ")
    file.write_text('{"permissions": {"allow": ["run_command(ls"]}}')
    place = f"permissions.allow ({file}): 'run_command(ls' is no rule"
    assert refused(run("-p", "x", "--model", "offline")).startswith(place)
    assert f"BAD  settings                    {place}" in run("doctor").stdout


def test_several_problems_are_a_line_each(run: Run) -> None:
    done = run("-p", "x", "--ask", "maybe", environ={"TUI_AGENT__UI__GLYPHS": "runes"})
    assert done.returncode == 2
    assert [line.split(":")[1].strip() for line in done.stderr.splitlines()] == ["TUI_AGENT__UI__GLYPHS", "--ask"]


def test_what_is_said_cannot_steer_the_terminal(run: Run) -> None:
    done = run("-p", "x", "--add-dir", "\x1b]0;gotcha\x07")
    assert "\x1b" not in done.stderr
    assert "\\u001b]0;gotcha" in done.stderr


def test_input_that_is_too_long_is_refused(run: Run) -> None:
    done = run("-p", stdin=b"a" * (16 * 1024 * 1024 + 1))
    assert refused(done) == "standard input is longer than 16,777,216 bytes; put it in a file and name the file"


def test_config_names_the_origin_of_each_value(run: Run, home: Path, folder: Path) -> None:
    home.mkdir()
    (home / "config.json").write_text('{"ui": {"theme": "light"}}')
    (folder / ".agents").mkdir()
    (folder / ".agents" / "config.json").write_text('{"permissions": {"mode": "plan"}, "ui": {"mouse": false}}')
    shown = json.loads(run("config", "--json", "--max-tokens", "99", environ={"TUI_AGENT__UI__GLYPHS": "ascii"}).stdout)
    assert list(shown) == list(settings_by_key())
    assert shown["ui.theme"] == {"value": "light", "source": str(home / "config.json")}
    assert shown["ui.glyphs"] == {"value": "ascii", "source": "TUI_AGENT__UI__GLYPHS"}
    assert shown["context.max_tokens"] == {"value": 99, "source": "--max-tokens"}
    assert shown["permissions.mode"]["value"] == "plan"
    assert shown["ui.mouse"] == {"value": True, "source": "built-in"}
    text = run("config").stdout
    assert re.search(r'^ui\.theme +"light" +\S+config\.json$', text, re.MULTILINE)
    assert "ignored until you trust the folder: ui.mouse" in text


def test_doctor_reports_and_shows_no_key(run: Run, home: Path, folder: Path) -> None:
    keys = {"ANTHROPIC_API_KEY": "sk-very-secret", "ANTHROPIC_BASE_URL": "http://u:pw@host"}
    done = run("doctor", environ={**keys, "TIKTOKEN_CACHE_DIR": str(folder)})
    assert done.returncode == 0, done.stdout
    assert "write-ahead log works" in done.stdout
    assert re.search(r"^ok +ANTHROPIC_API_KEY +set$", done.stdout, re.MULTILINE)
    assert "secret" not in done.stdout
    assert "pw" not in done.stdout
    assert list(home.iterdir()) == []
    (line,) = re.findall(r"^(\S+) +tiktoken +(.*)$", done.stdout, re.MULTILINE)
    assert line[0] == "-"
    assert line[1].startswith("its vocabulary files are not on this machine, so token counts are estimated")
    assert "set TIKTOKEN_CACHE_DIR to a folder that has them" in line[1]


def test_doctor_names_what_is_wrong_and_survives_settings_that_do_not_load(run: Run, home: Path) -> None:
    home.write_text("a file is in the way")
    done = run("doctor")
    assert done.returncode == 2
    assert re.search(r"^BAD +sqlite ", done.stdout, re.MULTILINE)
    home.unlink()
    home.mkdir()
    (home / "config.json").write_text("{")
    (home / "trusted.json").write_text("{")
    done = run("doctor")
    assert done.returncode == 2
    assert "malformed JSON" in done.stdout
    assert "trusted.json: damaged" in done.stdout


async def recorded_session(home: Path, *bodies: object) -> Path:
    """A session with these events in its record."""
    folder = create_session(home)
    store = await LogStore.open(folder)
    await store.append(stamped([Recorded(kind="message", body=json.dumps(body)) for body in bodies]))
    await store.close()
    return folder


async def test_trace_prints_the_record_and_verifies_it(run: Run, home: Path) -> None:
    folder = await recorded_session(home, {"text": "said"}, {"text": "\u009b2Jß"})
    done = await asyncio.to_thread(run, "trace", folder.name)
    assert done.returncode == 0, done.stderr
    assert [line.split("  ")[-1].strip() for line in done.stdout.splitlines()] == ["message: said", "message: ß"]
    elsewhere = refused(await asyncio.to_thread(run, "trace"))
    assert elsewhere.startswith("There is no session to continue in ")
    done = await asyncio.to_thread(run, "trace", folder.name, "--json")
    assert done.returncode == 0, done.stderr
    assert "\u009b" not in done.stdout
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["body"] for event in events][-2:] == [{"text": "said"}, {"text": "\u009b2Jß"}]
    assert events[-1]["kind"] == "message"
    done = await asyncio.to_thread(run, "trace", folder.name[:-2], "--verify")
    assert (done.returncode, done.stdout) == (0, "2 events of 2 log entries, unchanged\n")
    with closing(sqlite3.connect(folder / "trace.sqlite")) as database, database:
        database.execute("DROP TRIGGER events_no_update")
        database.execute("UPDATE events SET body = '{}' WHERE seq = 2")
    done = await asyncio.to_thread(run, "trace", folder.name, "--verify")
    assert done.returncode == 1
    assert "event 2" in done.stdout
    page = home / "page.html"
    done = await asyncio.to_thread(run, "trace", folder.name, "--html", str(page))
    assert (done.returncode, done.stdout) == (0, "")
    assert page.read_text().startswith("<!doctype html>")
    assert "cannot be written" in refused(await asyncio.to_thread(run, "trace", folder.name, "--html", "/absent/x"))


async def test_sessions_are_listed_damaged_ones_too_but_no_empty_ones(run: Run, home: Path) -> None:
    assert run("sessions").stdout == "No sessions yet.\n"
    await recorded_session(home)
    good = await recorded_session(home)
    store = await LogStore.open(good)
    await store.append(stamped([user_message("hello")]))
    await store.close()
    bad = create_session(home)
    (bad / "checkpoints.sqlite").write_bytes(b"not a database, but long enough to look at" * 10)
    done = await asyncio.to_thread(run, "sessions")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert lines.keys() == {good.name, bad.name}
    assert "1 message " in lines[good.name]
    assert "cannot be read: " in lines[bad.name]
    listed = [json.loads(line) for line in (await asyncio.to_thread(run, "sessions", "--json")).stdout.splitlines()]
    assert {session["id"]: bool(session["problem"]) for session in listed} == {good.name: False, bad.name: True}


def test_what_other_agents_recorded_becomes_sessions(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "theirs.jsonl"
    said = (claude("user", "Why does it fail?"), claude("assistant", [{"type": "text", "text": "A minus."}], "m1"))
    file.write_text("".join(json.dumps(line) + "\n" for line in said))
    made = run("sessions", "import", str(file), str(file))
    assert made.returncode == 0, made.stderr
    names = [line.split("  ")[0] for line in made.stdout.splitlines()]
    assert len(set(names)) == 2
    assert made.stdout.count("recorded by Claude Code: 2 messages") == 2
    assert all(name in run("sessions").stdout for name in names)
    assert "theirs.jsonl" not in refused(run("sessions", "import"))
    assert "absent.jsonl cannot be read" in refused(run("sessions", "import", "absent.jsonl"))


def test_a_reader_that_leaves_early_is_not_an_error_message(home: Path) -> None:
    command = f"{sys.executable} -m tui_agent config | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=environment(home), check=True)
    assert done.stdout.startswith(b"model.id")
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("config",), ("-p", "hello", "--model", "offline")])
def test_output_that_cannot_be_written_is_one_line(home: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "tui_agent", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(home), check=False)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["tui-agent: the output could not be written: No space left on device"]
    assert not (home / "logs").exists()


def test_an_unexpected_error_is_one_line_and_a_private_log(home: Path) -> None:
    code = (
        "import sys, tui_agent.cli as cli\n"
        "sys.stdout = None  # what a broken launcher leaves behind\n"
        "sys.exit(cli.main(['config']))"
    )
    environ = environment(home)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    (log,) = (home / "logs").iterdir()
    assert line.startswith("tui-agent: stopped by an unexpected error (AttributeError: ")
    assert line.endswith(str(log))
    assert "Traceback" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    environ["TUI_AGENT_DEBUG"] = "1"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert "Traceback" in done.stderr


def test_an_interrupt_while_reading_the_prompt(home: Path) -> None:
    code = (
        "import signal, sys, tui_agent.cli as cli\n"
        # What was started in the background ignores it from the start, and so does this.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Stdin:\n"
        "    buffer = property(lambda self: signal.raise_signal(signal.SIGINT))\n"
        "    def isatty(self): return False\n"
        "sys.stdin = Stdin()\n"
        "sys.exit(cli.main(['-p']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(home), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_terminal_for_input_alone_is_not_enough(run: Run, home: Path, folder: Path) -> None:
    parent, child = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tui_agent"],
            stdin=child,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment(home),
            check=False,
        )
    finally:
        os.close(parent)
        os.close(child)
    assert "needs a terminal" in refused(done)


def test_what_an_untrusted_project_brings_is_ignored_and_what_it_runs_later_waits_for_another_yes(
    run: Run, folder: Path
) -> None:
    mark = folder / "mark"
    (folder / "AGENTS.md").write_text("Speak of the sea.")
    asked = ("-p", "hello", "--model", "offline")
    done = run(*asked)
    assert done.returncode == 0
    assert done.stderr.count("AGENTS.md") == 1
    assert "Not trusted, so ignored: AGENTS.md; --trust uses it" in done.stderr
    assert "ignored" not in run(*asked, "--trust").stderr
    (folder / ".claude").mkdir()
    hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}
    (folder / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    done = run(*asked)
    assert done.returncode == 0
    assert "Changed since you trusted it" in done.stderr
    assert f".claude/settings.json: UserPromptSubmit runs: touch {mark}" in done.stderr
    assert not mark.exists()
    assert "Changed" not in run(*asked, "--trust").stderr
    assert mark.exists()
    mark.unlink()
    assert "ignored" not in run(*asked).stderr
    assert mark.exists()
    # A server that the user adds is no news.
    assert run("mcp", "add", "files", "--scope", "project", "--", "npx", "files").returncode == 0
    assert "ignored" not in run(*asked).stderr
    (folder / ".mcp.json").write_text('{"mcpServers": {"files": {"command": "npx", "args": ["other"]}}}')
    assert ".mcp.json: files runs: npx other" in run(*asked).stderr


def test_import_shows_first_and_writes_with_yes(run: Run, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "user" / ".gemini"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text('{"model": "gemini-2.5-pro"}')
    asked = ("import", "--from", "gemini")
    environ = {"HOME": str(folder.parent)}
    assert "Nothing was written" in run(*asked, environ=environ).stdout
    assert not (home / "config.json").exists()
    assert run(*asked, "--yes", environ=environ).returncode == 0
    assert "gemini-2.5-pro" in (home / "config.json").read_text()
    assert "--from" in refused(run("import"))
    assert parse(["import", "the", "module"]).command == ""


def test_native_windows_is_told_where_it_runs_before_anything_else_is_imported() -> None:
    listed = "sorted(name for name in sys.modules if name.startswith('tui_agent.'))"
    code = (
        f"import sys; sys.platform = 'win32'; import tui_agent.__main__ as it; print(it.main(['-p', 'hi']), {listed})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 ['tui_agent.__main__', 'tui_agent.version']\n"
    (sentence,) = done.stderr.splitlines()
    assert "WSL" in sentence
