"""Layering, reading and refusing settings."""

import json
import os
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tui_agent.settings import Settings
from tui_agent.settings_schema import ADDED_UP, Leaf, Value, leaves, shown, values
from tui_agent.settings_sources import (
    MAX_FILE_BYTES,
    Override,
    SettingsError,
    environment_name,
    home_folder,
    load_settings,
)
from tui_agent.settings_untrusted import TIGHTENING

Tree: TypeAlias = dict[str, object]


def nested(flat: dict[str, Value]) -> Tree:
    tree: Tree = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        place = tree
        for section in sections:
            inner = place.setdefault(section, {})
            assert isinstance(inner, dict)
            place = inner
        place[name] = value
    return tree


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")


def user_file(tmp_path: Path, document: object) -> Path:
    write(tmp_path / "config.json", document)
    return tmp_path


def problems_of(
    home: Path, *, environ: dict[str, str] | None = None, overrides: tuple[Override, ...] = ()
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(home, None, environ=environ, overrides=overrides)
    return caught.value.problems


def accepted(leaf: Leaf) -> st.SearchStrategy[Value]:
    """Any value the setting accepts."""
    allowed = leaf.allowed
    found: st.SearchStrategy[Value]
    if allowed.choices:
        found = st.sampled_from(allowed.choices)
    elif allowed.kind is bool:
        found = st.booleans()
    elif allowed.kind is int:
        found = st.integers(min_value=int(allowed.bounds.ge or 0), max_value=10**9)
    elif allowed.kind is float:
        found = st.floats(min_value=allowed.bounds.ge or 0.001, max_value=allowed.bounds.le or 1e9)
    elif allowed.kind is tuple:
        found = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3).map(tuple)
    else:
        found = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
    return st.one_of(st.none(), found) if allowed.nullable else found


assignments = st.sampled_from(list(leaves().values())).flatmap(
    lambda leaf: st.tuples(st.just(leaf), accepted(leaf), accepted(leaf))
)


def text_of(value: Value) -> str:
    """The value as a flag or a variable holds it."""
    return value if isinstance(value, str) else shown(value)


def test_nothing_set_is_the_built_in_settings(tmp_path: Path) -> None:
    assert load_settings(tmp_path, tmp_path) == Settings()


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("context.context_window", 0),
        ("context.max_tokens", 16_384),
        ("context.max_context_tokens", 8_000),
        ("context.max_messages", 50),
        ("context.preset", "layered"),
        ("output.max_lines", 2_000),
        ("output.max_chars", 200 * 1024),
        ("output.max_bytes", 50 * 1024),
        ("output.evict_tokens", 20_000),
        ("clearing.threshold", 0.6),
        ("digests.cutoff", 10),
        ("compaction.threshold", 0.85),
        ("compaction.threshold_by_tier.small", 0.35),
        ("compaction.keep_recent_tokens", 20_000),
        ("compaction.thrift", 2.0),
        ("agent.max_turn_cost_usd", None),
        ("safety.small_tier_parent", "warn"),
        ("permissions.mode", "auto"),
        ("watchdog.repeated_calls", 5),
        ("session.task_class", None),
        ("ui.gauge_yellow", 0.7),
        ("tasks.research.mode", "allow"),
    ],
)
def test_documented_defaults(key: str, default: Value) -> None:
    assert leaves()[key].default == default


def test_every_default_is_a_value_its_setting_accepts(tmp_path: Path) -> None:
    home = user_file(tmp_path, nested({key: leaf.default for key, leaf in leaves().items()}))
    assert values(load_settings(home, None)) == values(Settings())


@examples(deadline=None)
@given(assignment=assignments)
def test_a_later_layer_wins(tmp_path_factory: pytest.TempPathFactory, assignment: tuple[Leaf, Value, Value]) -> None:
    leaf, first, second = assignment
    home = tmp_path_factory.mktemp("home")
    project = tmp_path_factory.mktemp("project")
    write(home / "config.json", nested({leaf.key: first}))
    variable = environment_name(leaf.key)
    write(project / ".agents" / "config.json", nested({leaf.key: second}))
    over_file = load_settings(home, project, trusted=True)
    (project / ".agents" / "config.json").unlink()
    over_environment = load_settings(
        home,
        project,
        environ={variable: text_of(first)},
        overrides=[Override("--set", leaf.key, text_of(second))],
    )
    for settings, before in ((over_file, first), (over_environment, first)):
        expected = second
        if leaf.key in ADDED_UP and isinstance(before, tuple) and isinstance(second, tuple):
            default = leaf.default if isinstance(leaf.default, tuple) else ()
            expected = tuple(dict.fromkeys(default + before + second))
        assert values(settings)[leaf.key] == expected
        assert settings.is_set(leaf.key)
    assert "--set" in over_environment.source(leaf.key)
    assert str(project) in over_file.source(leaf.key)


@examples(deadline=None)
@given(assignment=assignments)
def test_a_value_shown_and_read_again_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, assignment: tuple[Leaf, Value, Value]
) -> None:
    leaf, value, _ = assignment
    home = tmp_path_factory.mktemp("home")
    write(home / "config.json", nested({leaf.key: value}))
    once = values(load_settings(home, None))
    write(home / "config.json", nested(dict(once)))
    assert values(load_settings(home, None)) == once


@examples(deadline=None)
@given(key=st.from_regex(r"[a-z_]{1,12}(\.[a-z_]{1,12}){0,2}", fullmatch=True).filter(lambda key: key not in leaves()))
def test_an_unknown_key_is_always_named(tmp_path_factory: pytest.TempPathFactory, key: str) -> None:
    home = tmp_path_factory.mktemp("home")
    write(home / "config.json", nested({key: 1}))
    (problem,) = problems_of(home)
    assert str(home / "config.json") in problem
    assert key.split(".", maxsplit=1)[0] in problem
    (problem,) = problems_of(home / "absent", overrides=(Override("--set", key, "1"),))
    assert problem.startswith("--set: ")
    assert key in problem


def test_the_nearest_valid_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    home = user_file(tmp_path, {"compaction": {"treshold": 0.8}, "treshold_by_tier": {}, "small_tier_parent": "warn"})
    assert problems_of(home) == (
        f"{path}: unknown key 'compaction.treshold'; did you mean compaction.threshold?",
        f"{path}: unknown key 'treshold_by_tier'; did you mean compaction.threshold_by_tier?",
        f"{path}: unknown key 'small_tier_parent'; did you mean safety.small_tier_parent?",
    )


def test_all_problems_of_all_layers_are_reported_at_once(tmp_path: Path) -> None:
    home = user_file(tmp_path, {"permissions": {"mode": "alow"}, "compaction": 3})
    problems = problems_of(
        home,
        environ={"TUI_AGENT__UI__MOUSE": "perhaps", "TUI_AGENT__UI__MOUSSE": "true", "TUI_AGENT_HOME": str(home)},
        overrides=(Override("--max-tokens", "context.max_tokens", "many"), Override("--set", "compaction", "1")),
    )
    assert problems == (
        f"{home / 'config.json'}: permissions.mode: expected plan|ask|auto|allow, got 'alow'; did you mean allow?",
        f"{home / 'config.json'}: compaction: expected a section {{…}}, got 3",
        "TUI_AGENT__UI__MOUSE: ui.mouse: expected true or false, got 'perhaps'",
        "TUI_AGENT__UI__MOUSSE: unknown key 'ui.mousse'; did you mean ui.mouse?",
        "--max-tokens: context.max_tokens: expected a whole number of at least 1, got 'many'",
        "--set: compaction is a section, name one of its keys",
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("compaction.threshold", 1.5, "expected a number above 0, up to 1, got 1.5"),
        ("compaction.threshold", 0, "expected a number above 0, up to 1, got 0"),
        ("compaction.threshold", True, "expected a number above 0, up to 1, got true"),
        ("compaction.threshold", "0.8", "expected a number above 0, up to 1, got '0.8'"),
        ("compaction.thrift", 10**400, f"expected a number of at least 0, got 1{'0' * 76}…"),
        ("context.max_tokens", 1.0, "expected a whole number of at least 1, got 1.0"),
        ("context.context_window", -2, "expected a whole number of at least -1, got -2"),
        ("permissions.deny", "run_command", "expected a list of texts, got 'run_command'"),
        ("permissions.deny", [1], "expected a list of texts, got [1]"),
        ("model.id", "\ud800", "expected a text, got '\\ud800'"),
        ("model.id", None, "expected a text, got null"),
        ("agent.max_turn_cost_usd", 0, "expected a number above 0 or null, got 0"),
        ("ui.glyphs", {"ascii": 1}, "expected unicode|ascii, got a section"),
    ],
)
def test_a_bad_value_says_what_is_allowed(tmp_path: Path, key: str, value: object, expected: str) -> None:
    section, name = key.split(".")
    home = user_file(tmp_path, {section: {name: value}})
    assert problems_of(home) == (f"{home / 'config.json'}: {key}: {expected}",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{\n  "ui": {,}\n}', "malformed JSON at line 2, column 10"),
        ("", "malformed JSON at line 1, column 1"),
        ("[]", "expected an object {…} at the top"),
        ('{"ui": {"mouse": true, "mouse": false}}', "the key 'mouse' is there twice"),
        ('{"compaction": {"thrift": NaN}}', "NaN is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
        (" " * (MAX_FILE_BYTES + 1), "larger than 1,000,000 bytes"),
    ],
)
def test_a_malformed_file_is_named_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    home = user_file(tmp_path, text)
    (said,) = problems_of(home)
    assert said.startswith(f"{home / 'config.json'}: ")
    assert problem in said


def test_a_file_that_is_not_utf8_and_one_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"ui": "\xff"}')
    assert problems_of(tmp_path) == (f"{tmp_path / 'config.json'}: not valid UTF-8 at byte 9",)
    (tmp_path / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    assert problems_of(tmp_path) == (f"{tmp_path / 'config.json'}: not a regular file",)


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"ui": {"theme": "light"}}')
    assert load_settings(tmp_path, None).ui.theme == "light"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("agent.max_turn_cost_usd", "off", None),
        ("agent.max_turn_cost_usd", "0.50", 0.5),
        ("ui.mouse", "No", False),
        ("permissions.deny", "run_command(rm *), fetch_url", ("run_command(rm *)", "fetch_url")),
        ("permissions.deny", '["a, b"]', ("a, b",)),
        ("context.max_tokens", "20_000", 20_000),
        ("session.task_class", "", None),
    ],
)
def test_text_is_read_by_the_type_of_its_setting(tmp_path: Path, key: str, text: str, value: Value) -> None:
    settings = load_settings(tmp_path, None, environ={environment_name(key): text})
    assert values(settings)[key] == value
    assert settings.source(key) == environment_name(key)


def test_of_two_flags_for_one_key_the_later_wins(tmp_path: Path) -> None:
    overrides = [Override("--ask", "permissions.mode", "ask"), Override("--set", "permissions.mode", "plan")]
    assert load_settings(tmp_path, None, overrides=overrides).permissions.mode == "plan"


def test_rules_of_all_layers_add_up(tmp_path: Path) -> None:
    home = user_file(tmp_path / "home", {"permissions": {"deny": ["a", "b"]}})
    write(tmp_path / ".agents" / "config.json", {"permissions": {"deny": ["b", "c"]}})
    settings = load_settings(
        home, tmp_path, trusted=True, overrides=[Override("--set", "permissions.deny", "d")], environ={}
    )
    assert settings.permissions.deny == ("a", "b", "c", "d")
    assert settings.source("permissions.deny").endswith(", --set")


class TestUntrustedProject:
    def load(self, tmp_path: Path, project: Tree, user: Tree | None = None) -> Settings:
        write(tmp_path / ".agents" / "config.json", project)
        return load_settings(user_file(tmp_path / "home", user or {}), tmp_path)

    @pytest.mark.parametrize(
        ("key", "user", "project"),
        [
            ("permissions.mode", "auto", "plan"),
            ("permissions.mode", "allow", "ask"),
            ("permissions.deny", [], ["run_command"]),
            ("agent.max_turn_cost_usd", None, 1.0),
            ("agent.max_session_cost_usd", 5.0, 1.0),
            ("context.max_tokens", 16_384, 1_000),
            ("safety.small_tier_parent", "warn", "refuse"),
            ("watchdog.mode", "off", "prompt"),
        ],
    )
    def test_may_tighten_but_not_widen_again(self, tmp_path: Path, key: str, user: object, project: object) -> None:
        section, name = key.split(".")
        tightened = self.load(tmp_path, {section: {name: project}}, {section: {name: user}})
        assert values(tightened)[key] == (tuple(project) if isinstance(project, list) else project)
        assert tightened.notices == ()
        widened = self.load(tmp_path, {section: {name: user}}, {section: {name: project}})
        assert values(widened)[key] == (tuple(project) if isinstance(project, list) else project)
        assert widened.notices == (
            f"{tmp_path / '.agents' / 'config.json'}: ignored until you trust the folder: {key}",
        )

    @examples(deadline=None)
    @given(data=st.data())
    def test_every_other_key_is_ignored_with_a_notice(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        leaf = data.draw(st.sampled_from([leaf for key, leaf in leaves().items() if key not in TIGHTENING]))
        value = data.draw(accepted(leaf))
        settings = self.load(tmp_path_factory.mktemp("project"), nested({leaf.key: value}))
        assert values(settings) == values(Settings())
        assert leaf.key in settings.notices[0]

    def test_watchdog_cannot_be_made_to_escalate_the_model(self, tmp_path: Path) -> None:
        assert self.load(tmp_path, {"watchdog": {"mode": "auto"}}).watchdog.mode == "warn"

    def test_its_mistakes_do_not_keep_the_user_from_starting(self, tmp_path: Path) -> None:
        settings = self.load(tmp_path, {"nonsense": 1, "permissions": {"mode": 5}})
        assert len(settings.notices) == 2
        assert all(notice.endswith("(ignored: the folder is not trusted)") for notice in settings.notices)

    def test_flags_still_win(self, tmp_path: Path) -> None:
        write(tmp_path / ".agents" / "config.json", {"permissions": {"mode": "plan"}})
        overrides = [Override("--ask", "permissions.mode", "allow")]
        assert load_settings(tmp_path / "home", tmp_path, overrides=overrides).permissions.mode == "allow"


def test_home_folder_is_named_or_the_platforms(tmp_path: Path) -> None:
    assert home_folder({"TUI_AGENT_HOME": str(tmp_path)}) == tmp_path
    assert home_folder({}).name == "tui-agent"
    assert home_folder({"TUI_AGENT_HOME": ""}) == home_folder({})
