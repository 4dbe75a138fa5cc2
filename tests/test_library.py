"""The library: what `import tui_agent` offers, and that it costs nothing until it is used."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import tui_agent

HANDED_OUT = {
    tui_agent.AgentContext,
    tui_agent.Branches,
    tui_agent.CallHistory,
    tui_agent.ChangedFiles,
    tui_agent.DiskPersistence,
    tui_agent.Draft,
    tui_agent.Items,
    tui_agent.LogStore,
    tui_agent.Session,
    tui_agent.Turns,
}
"""Classes that a program is given, and does not make by calling them."""

PASSED_ON = {tui_agent.Group, tui_agent.Prompts, tui_agent.Rule}
"""Classes that a program passes on as they are."""

NOT_OFFERED = {"SessionParts", "Goal"}
"""What only `open_session` gives an agent, and only `/goal` a turn."""


def test_every_type_in_a_public_signature_is_public() -> None:
    modules = [getattr(tui_agent, name) for name in tui_agent.__all__]
    modules = [tui_agent, tui_agent.settings, *(each for each in modules if inspect.ismodule(each))]
    hidden = {
        f"{kind.__module__}.{kind.__qualname__} in {where}"
        for name in tui_agent.__all__
        for where, function in _functions(getattr(tui_agent, name))
        for hint in get_type_hints(function).values()
        for kind in _types_in(hint)
        if kind.__module__.startswith("tui_agent.") and kind.__name__ not in NOT_OFFERED
        if not any(getattr(module, kind.__name__, None) is kind for module in modules)
    }
    assert sorted(hidden) == []


def _functions(public: object) -> Iterator[tuple[str, Callable[..., object]]]:
    if inspect.isfunction(public):
        yield public.__name__, public
    elif inspect.isclass(public) and public not in PASSED_ON:
        for name, member in vars(public).items():
            found = member.fget if isinstance(member, property) else inspect.unwrap(getattr(member, "__func__", member))
            made = name == "__init__" and public not in HANDED_OUT
            if inspect.isfunction(found) and (made or not name.startswith("_")):
                yield f"{public.__name__}.{name}", found


def _types_in(hint: object) -> Iterator[type]:
    """The classes that a type hint is made of."""
    inner = get_args(hint)
    if isinstance(hint, type) and not inner:
        yield hint
    for each in inner:
        for part in each if isinstance(each, list) else [each]:
            yield from _types_in(part)


def test_all_public_names_are_listed_and_there() -> None:
    assert set(tui_agent.__all__) <= set(dir(tui_agent))
    assert [name for name in tui_agent.__all__ if getattr(tui_agent, name, None) is None] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tui_agent.no_such_name  # type: ignore[attr-defined]  # noqa: B018 (mypy knows it, too)


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


def test_nothing_of_a_closed_agent_is_kept() -> None:
    """The first one of a process, too."""
    script = """
import asyncio, gc, weakref
from tui_agent import Agent

async def main():
    async with Agent("offline") as agent:
        await agent.ask("hello")
    return weakref.ref(agent)

kept = asyncio.run(main())
gc.collect()
assert kept() is None
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


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
