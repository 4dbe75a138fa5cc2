"""The library: what `import tui_agent` offers, and that it costs nothing until it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import tui_agent


@pytest.mark.parametrize("name", tui_agent.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tui_agent, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tui_agent.no_such_name  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, tui_agent; print([m for m in ('textual', 'anthropic', 'msgspec', 'asyncio') if m in sys.modules])"
    )
    root = Path(tui_agent.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


VERBS = (
    "run",
    "queue",
    "interrupt",
    "compact",
    "compact_if_needed",
    "checkpoint",
    "context_stats",
    "run_subtask",
    "swap_model",
    "escalate",
    "reset_cost_ceiling",
)


async def test_a_session_is_steered_by_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    (tmp_path / "notes.txt").write_text("A line of notes.\n" * 400)
    arguments = tui_agent.Arguments(folder=tmp_path, home=tmp_path / "home", project=tmp_path)
    settings = tui_agent.load_settings(
        arguments.home, tmp_path, trusted=False, environ={"TUI_AGENT__COMPACTION__THRESHOLD": "0.1"}, overrides=[]
    )

    async def never(question: tui_agent.PermissionQuestion) -> tui_agent.PermissionAnswer:
        raise AssertionError(question)

    session = await tui_agent.open_session(settings, arguments, never)
    try:
        agent = session.agent
        assert [verb for verb in VERBS if not callable(getattr(agent, verb))] == []
        assert agent.has_compactor
        assert agent.has_checkpointer
        assert (await agent.compact_if_needed()).error == "nothing is due"
        async with agent.turns.held():
            pass
        told = [event async for event in agent.run("read notes.txt")]
        assert isinstance(told[-1], tui_agent.events.TurnFinished)
        assert agent.context_stats().tokens > 0
        for _ in range(3):
            async for _ in agent.run("read notes.txt"):
                pass
        done = await agent.compact()
        assert done.error == ""
        assert done.after < done.before
        assert not isinstance(await agent.context.undo(), tui_agent.Refusal)
    finally:
        await session.close()


def test_reasoning_of_a_list_read_from_another_program_goes_back_with_it() -> None:
    from tui_agent import ContextEngine, ModelProfile, forms

    thought = {"type": "thinking", "thinking": "hm", "signature": "signed"}
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "hi"}]},
        {"role": "user", "content": "and now?"},
    ]
    engine = ContextEngine(model=ModelProfile("anthropic", "claude-opus-5-5", window=200_000, bound_reasoning=True))
    engine.extend(forms.read("anthropic", messages))
    assert forms.write("anthropic", engine.request().request.messages) == messages
