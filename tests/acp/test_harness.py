"""A session that nobody attends: Harbor's real runner, and what it relies on with the official client."""

import asyncio
import json
from functools import partial
from pathlib import Path

import jsonschema
import pytest
from acp.exceptions import RequestError
from acp.helpers import text_block
from acp.schema import AgentThoughtChunk, EnvVarAuthMethod, TerminalAuthMethod

from tests.acp.client import Editor, editing
from tests.acp.harness import interpreter, run_task
from tests.e2e.program import MODELS, Program, asked
from tests.servers.anthropic import AnthropicServer
from tests.servers.coding_task import FIXED_CALC
from tests.servers.running import in_thread
from tests.servers.script import Call, Script, Step, Turn
from tui_agent.version import __version__

EDIT = Call("edit_file", {"path": "calc.py", "old": "return a - b", "new": "return a + b"})
ASK = Call("ask_user", {"question": "Which one?", "choices": ["add", "double"]})
PLAN = Call("submit_plan", {"plan": "Mend *add*.", "steps": ["mend", "run"]})
MENDING = (Step(calls=(ASK,)), Step(calls=(EDIT,)), Step(text="Mended."))
SCRIPT = Script((Turn(MENDING, "mend"), Turn((Step(calls=(PLAN,)), Step(text="I begin.")), "plan")))
MODEL = MODELS["anthropic"]
UNATTENDED = "agent.unattended.json"


async def test_nobody_is_asked_and_the_model_is_the_one_named(tmp_path: Path) -> None:
    with in_thread(AnthropicServer(SCRIPT)) as server:
        program, editor = Program.in_folder(tmp_path, server.environment), Editor()
        broken = (program.project / "calc.py").read_text()
        async with editing(program, editor, "--unattended") as (connection, _):
            for name in (f"anthropic/{MODEL}", f"anthropic:{MODEL}", MODEL):
                (program.project / "calc.py").write_text(broken)
                session = await connection.new_session(cwd=str(program.project), mcp_servers=[])
                with pytest.raises(RequestError, match="No model was chosen"):
                    await connection.prompt(session_id=session.session_id, prompt=[text_block("mend it")])
                options = {each.id: each for each in session.config_options or ()}
                assert f"anthropic/{MODEL}" in [each.value for each in options["model"].options]
                chosen = await connection.set_config_option(
                    config_id="model", session_id=session.session_id, value=name
                )
                assert {each.id: each for each in chosen.config_options}["model"].current_value == f"anthropic/{MODEL}"
                done = await connection.prompt(session_id=session.session_id, prompt=[text_block("mend it")])
                assert done.stop_reason == "end_turn"
                thoughts = "".join(each.content.text for each in editor.of(AgentThoughtChunk, session.session_id))
                assert "answered with the first choice: add" in thoughts
                assert (program.project / "calc.py").read_text() == FIXED_CALC
        assert not editor.asked
        models = [each.json["model"] for each in server.requests if each.json and each.path.endswith("/messages")]
        assert models == [MODEL] * 9


@pytest.mark.parametrize("unattended", [True, False])
async def test_a_model_that_cannot_be_asked_is_refused_and_not_replaced(tmp_path: Path, unattended: bool) -> None:
    with in_thread(AnthropicServer(SCRIPT)) as server:
        program, editor = Program.in_folder(tmp_path, server.environment), Editor()
        flags = ("--unattended", "--ask", "plan") if unattended else ("--ask", "allow")
        async with editing(program, editor, *flags, "--model", MODEL) as (connection, _):
            for name in ("no such model", "openai/gpt-6-luna", ""):
                session = await connection.new_session(cwd=str(program.project), mcp_servers=[])
                chosen = partial(connection.set_config_option, config_id="model", session_id=session.session_id)
                prompt = partial(connection.prompt, session_id=session.session_id, prompt=[text_block("plan it")])
                with pytest.raises(RequestError):
                    await chosen(value=name)
                with pytest.raises(
                    RequestError, match="Nothing was sent to another one" if unattended else name or "model"
                ):
                    await prompt()
            assert not asked(server.requests)
            await chosen(value=MODEL)
            await prompt()
            assert asked(server.requests)
        if unattended:
            assert not editor.asked, "a plan is approved by its first choice"
            assert "I begin." in editor.text(session.session_id)


async def test_there_is_a_way_to_sign_in_for_every_provider_with_a_key(tmp_path: Path) -> None:
    program, editor = Program.in_folder(tmp_path, {"ANTHROPIC_API_KEY": "k"}), Editor()
    async with editing(program, editor) as (connection, _):
        told = await connection.initialize(protocol_version=1)
        methods = {each.id: each for each in told.auth_methods or ()}
        assert isinstance(methods["terminal"], TerminalAuthMethod)
        anthropic = methods["anthropic"]
        assert isinstance(anthropic, EnvVarAuthMethod)
        assert [each.name for each in anthropic.vars] == ["ANTHROPIC_API_KEY"]
        await connection.authenticate(method_id="anthropic")
        with pytest.raises(RequestError, match="OPENAI_API_KEY"):
            await connection.authenticate(method_id="openai")
        with pytest.raises(RequestError, match="no way to sign in"):
            await connection.authenticate(method_id="nothing")


def test_the_registry_entries_name_this_version() -> None:
    texts = {name: {"type": "string", "minLength": 1} for name in ("id", "name", "version", "description", "license")}
    package = {
        "type": "object",
        "required": ["package"],
        "properties": {"package": {"const": f"tui-agent=={__version__}"}},
    }
    uvx = {"type": "object", "properties": {"uvx": package}, "required": ["uvx"], "additionalProperties": False}
    shape = {"type": "object", "properties": {**texts, "distribution": uvx}, "additionalProperties": False}
    for name in ("agent.json", UNATTENDED):
        entry = json.loads((Path(__file__).parents[2] / name).read_text())
        jsonschema.validate(entry, {**shape, "required": [*texts, "distribution"]})
        assert entry["version"] == __version__


@pytest.mark.soak
async def test_harbor_runs_it(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    python = interpreter(tmp_path_factory.mktemp("harbor"))
    if python is None:
        pytest.skip("Harbor needs Python 3.12 and a package index")
    with in_thread(AnthropicServer(SCRIPT)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        summary = await asyncio.to_thread(run_task, python, program, "mend it", f"anthropic/{MODEL}", UNATTENDED)
        assert "error" not in summary
        assert summary["selected_authenticate_method_id"] == "anthropic"
        assert summary["resolved_session_model_id"] == f"anthropic/{MODEL}"
        assert summary["prompt_response"]["stopReason"] == "end_turn"
        assert summary["latest_usage_update"]["cost"]["amount"] > 0
        assert (program.project / "calc.py").read_text() == FIXED_CALC
        before = len(asked(server.requests))
        refused = await asyncio.to_thread(run_task, python, program, "mend it", "anthropic/nothing here", UNATTENDED)
        assert "Nothing was sent to another one" in refused["error"]["message"]
        assert len(asked(server.requests)) == before
        for name in ("anthropic/claude-opus-4-6", "claude-opus-4-6"):  # none that an editor's user would be offered
            attended = await asyncio.to_thread(run_task, python, program, "mend it", name, "agent.json")
            assert attended["resolved_session_model_id"] == "anthropic/claude-opus-4-6"
