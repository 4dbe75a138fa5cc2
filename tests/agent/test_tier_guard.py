"""The guard against a small model as a session's own."""

from pathlib import Path
from typing import Any

import pytest

from tests.agent.talking import talking
from tests.e2e.program import Program
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Script, Step
from tests.tui.app.test_terminal_app import Terminal
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.choice import SmallTierRefused, check_parent
from tui_agent.session import SessionError
from tui_agent.settings import Settings
from tui_agent.settings.schema import SafetySettings

SMALL = ("gemini-3.8-flash", "gemini-2.5-flash", "claude-haiku-4-5", "claude-haiku-5-5")
LARGER = ("claude-opus-5-5", "claude-sonnet-4-6", "gemini-3.1-pro-preview", "gemini-2.5-pro")


def guarded(mode: Any) -> Settings:
    return Settings(safety=SafetySettings(small_tier_parent=mode))


@pytest.mark.parametrize("model", SMALL)
def test_it_warns_or_refuses_and_names_a_better_model_and_the_small_one(model: str) -> None:
    profile = CATALOGUE.quick_profile(model)
    notice = check_parent(guarded("warn"), profile)
    assert notice is not None
    assert model in notice.text
    better = "gemini-3.1-pro-preview" if model.startswith("gemini") else "claude-opus-5-5"
    small = "gemini-3.8-flash" if model.startswith("gemini") else "claude-haiku-5-5"
    assert f"--model {better} --agentic-small-model {small}" in notice.hint
    assert "--small-tier-parent=allow" in notice.hint
    with pytest.raises(SmallTierRefused) as refused:
        check_parent(guarded("refuse"), profile)
    assert model in refused.value.message
    assert "--model" in refused.value.hint


@pytest.mark.parametrize("mode", ["warn", "refuse", "allow"])
def test_it_says_nothing_of_others_and_is_skipped_for_one_shot_and_for_yolo(mode: str) -> None:
    for model in (*LARGER, "claude-next-9", "offline"):
        assert check_parent(guarded(mode), CATALOGUE.quick_profile(model)) is None
    small = CATALOGUE.quick_profile(SMALL[0])
    assert check_parent(guarded(mode), small, one_shot=True) is None
    assert check_parent(guarded(mode), small, yolo=True) is None
    assert check_parent(guarded("allow"), small) is None


async def test_a_session_shows_it(tmp_path: Path) -> None:
    async with talking(tmp_path, {"model.id": "gemini-3.8-flash"}) as session:
        assert [notice.title for notice in session.notices] == ["Small-tier parent"]
    async with talking(tmp_path, {"model.id": "gemini-3.8-flash"}, one_shot=True) as session:
        assert session.notices == ()
    async with talking(tmp_path, {"model.id": "gemini-2.5-pro"}) as session:
        assert session.notices == ()


async def test_a_session_it_refuses_is_not_opened_and_leaves_nothing(tmp_path: Path) -> None:
    given = {"model.id": "claude-haiku-4-5", "safety.small_tier_parent": "refuse"}
    with pytest.raises(SessionError, match="small-tier parent: claude-haiku-4-5"):
        async with talking(tmp_path, given):
            pass
    assert list((tmp_path / "home" / "sessions").iterdir()) == []


@pytest.mark.parametrize("again", [None, "-c", "-r"])
def test_the_app_it_refuses_ends_with_the_code_of_a_wrong_configuration(again: str | None, tmp_path: Path) -> None:
    small = "claude-haiku-4-5"
    with in_thread(AnthropicServer(Script.of(Step(text="Hello.")))) as server:
        program = Program.in_folder(tmp_path, server.environment)
        arguments = ["--small-tier-parent", "refuse"]
        if again is None:
            arguments += ["--model", small]
        else:
            # A script may use a small model; the app that goes on with its conversation may not.
            begun = program.ask("-p", "hello", "--model", small)
            assert begun["exit"] == 0
            arguments += [again] if again == "-c" else [again, begun["session_id"]]
        refused = Terminal(program.project, program.home, *arguments, environment=program.environment)
        assert refused.ends() == 2
        printed = refused.raw.decode()
        refused.close()
        assert f"{small} is a small-tier model" in " ".join(printed.split())
        assert "Consider --model" in printed
        if again is not None:
            arguments.append("--yolo")
            goes_on = Terminal(program.project, program.home, *arguments, environment=program.environment)
            goes_on.shows("Hello")
            goes_on.close()


def test_a_script_may_use_a_small_model(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    done = program.run("-p", "read calc.py", "--model", "claude-haiku-4-5", "--small-tier-parent", "refuse")
    assert done.returncode == 2
    assert "needs a key" in done.stderr
    assert "small-tier" not in done.stderr
