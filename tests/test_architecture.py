"""ARCHITECTURE.md speaks of the code as it is, and its recipes can be followed."""

import re
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import cast

import grimp
import pytest
from typing_extensions import override

from tui_agent import ContextEngine, MemoryHost
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.table import available_commands, help_text, run_command
from tui_agent.context.economics import Situation
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyContextEntry, Shortened, user_message
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.tool_facts import TOOL_FACTS, ToolFacts, facts_of
from tui_agent.conversation.view import View
from tui_agent.models import catalogue
from tui_agent.models.offline.adapter import OfflineModel
from tui_agent.models.provider import Provider
from tui_agent.models.records import PROVIDERS
from tui_agent.settings.schema import TierModels
from tui_agent.tools.base import ToolContext, ToolOutput
from tui_agent.tools.built_in import BuiltIn

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
PATHS = [name for name in NAMED if "/" in name and " " not in name]
CODE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tui_agent").rglob("*.py"))


def is_there(name: str) -> bool:
    models = ROOT / "tui_agent/models"
    places = (ROOT / name, ROOT / "tui_agent" / name, models / name, *models.glob(f"*/{name}"))
    return any(place.exists() for place in places)


def test_each_path_it_names_is_there() -> None:
    assert [name for name in PATHS if not is_there(name)] == []


def test_each_class_it_names_is_there() -> None:
    classes = [name for name in NAMED if re.fullmatch(r"[A-Z][A-Za-z]+", name)]
    assert len(classes) > 20
    assert set(classes) <= set(re.findall(r"^(?:class )?(\w+)", CODE, re.MULTILINE))


@pytest.mark.parametrize(
    "name", sorted({name for name in NAMED if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+\.[A-Z]\w+", name)})
)
def test_each_owner_it_names_is_where_it_says(name: str) -> None:
    module, _, owner = name.rpartition(".")
    assert hasattr(import_module(f"tui_agent.{module}"), owner)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for their types."""
    graph = grimp.build_graph("tui_agent", cache_dir=None)
    # Raises CycleError.
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


def test_the_built_in_layers_are_of_the_shape_it_tells() -> None:
    engine = ContextEngine()
    situation = engine.situation(between_turns=True)
    for layer in engine.layers:
        assert layer.plan(engine.view, situation) is None


def test_a_layer_made_as_it_says_is_asked_before_each_call() -> None:
    class Forgetful:
        name = "forgetful"

        def plan(self, view: View, situation: Situation) -> AnyContextEntry | None:
            item = view.item(1)
            if item is None or item.state != "verbatim":
                return None
            before = situation.tokens
            return Shortened(items=(1,), blocks=((Text("…"),),), reason="forgotten", before=before, after=before)

    engine = ContextEngine(more=[Forgetful()])
    engine.extend([user_message("hello")])
    host = MemoryHost(engine)
    host.run(engine.prepare())
    assert [(step.step, step.reason) for step in host.done] == [("shortened", "forgotten")]
    assert engine.request().request.messages[0].blocks == (Text("…"),)
    host.run(engine.prepare())
    assert len(host.done) == 1


async def test_a_command_is_one_row_that_help_and_one_shot_mode_read() -> None:
    async with Agent("offline") as agent:
        rows = available_commands(agent)
        assert len({name for row in rows for name in row.names}) == sum(len(row.names) for row in rows)
        told = help_text(rows)
        for row in rows:
            assert f"/{row.name}" in told
        assert not (await run_command(agent, "/help")).failed


async def test_a_tool_is_one_class_and_one_row_of_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    class CountWords(BuiltIn):
        name = "count_words"

        @override
        async def _do(self, _context: ToolContext, /, text: str) -> ToolOutput:
            """Count words.

            Args:
                text: What they are counted in.
            """
            return ToolOutput(f"{len(text.split())} words")

    facts = ToolFacts("Count", "counting words", "think")
    monkeypatch.setitem(cast("dict[str, ToolFacts]", TOOL_FACTS), "count_words", facts)
    async with Agent("offline", tools=[CountWords()]) as agent:
        seen = [event async for event in agent.run('call count_words text="one two three"')]
    done = next(event for event in seen if isinstance(event, events.ToolFinished))
    assert (done.name, done.text, done.status) == ("count_words", "3 words", "ok")
    assert facts_of("count_words").title == "Count"


def test_a_provider_is_one_record_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Provider(
        id="toy",
        title="Toy",
        label="Toys (Toy)",
        create=lambda _provider, profile, _local: OfflineModel(priced=profile.id == "big"),
        profile=lambda model: ModelProfile(provider="toy", id=model),
        keys=("TOY_API_KEY",),
        models=TierModels(frontier="toy:big", mid="toy:mid", small="toy:small"),
        families=("toybox",),
        tiers={"small": ("small",)},
    )
    monkeypatch.setattr(catalogue, "PROVIDERS", (*PROVIDERS, toy))
    monkeypatch.delenv("TOY_API_KEY", raising=False)
    known = catalogue.Catalogue()
    assert str(known.resolve("toybox-1")) == "toy:toybox-1"
    assert str(known.resolve("big")) == "toy:big"
    assert known.tier_of("toy:small") == "small"
    assert known.missing_key("toy:big") == "TOY_API_KEY"
    assert toy in known.with_keys()
    assert isinstance(known.create_model("toy:big"), OfflineModel)
