"""Layering, reading and refusing settings."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.examples import examples as some
from tests.settings.given import accepted, nested, user_file, write
from tui_agent.settings import (
    GivenValue,
    Override,
    Settings,
    SettingsError,
    ToolServer,
    json_text,
    load_settings,
    settings_by_key,
    values_by_key,
)
from tui_agent.settings.keys import ADDED_UP, SERVERS, Setting, Table, Value
from tui_agent.settings.schema import OAuth
from tui_agent.settings.sources import ENVIRONMENT_PREFIX, MAX_FILE_BYTES, Overrides, home_folder, replace_missing_home


def problems_of(home: Path, *, environ: dict[str, str] | None = None, overrides: Overrides = ()) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(home, None, environ=environ, overrides=overrides)
    return caught.value.problems


assignments = st.sampled_from(list(settings_by_key().values())).flatmap(
    lambda setting: st.tuples(st.just(setting), accepted(setting), accepted(setting))
)


def variable_of(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.replace(".", "__").upper()


def text_of(value: Value) -> str:
    """The value as a flag or a variable holds it."""
    return value if isinstance(value, str) else json_text(value)


def test_every_default_is_a_value_its_setting_accepts(tmp_path: Path) -> None:
    home = user_file(tmp_path, nested({key: setting.default for key, setting in settings_by_key().items()}))
    assert values_by_key(load_settings(home, None)) == values_by_key(Settings())


@examples(deadline=None)
@given(assignment=assignments)
def test_a_later_layer_wins(tmp_path_factory: pytest.TempPathFactory, assignment: tuple[Setting, Value, Value]) -> None:
    setting, first, second = assignment
    assume(setting.key != SERVERS)  # a project's servers stand in a file of their own
    home = tmp_path_factory.mktemp("home")
    project = tmp_path_factory.mktemp("project")
    write(home / "config.json", nested({setting.key: first}))
    variable = variable_of(setting.key)
    write(project / ".agents" / "config.json", nested({setting.key: second}))
    over_file = load_settings(home, project, trusted=True)
    (project / ".agents" / "config.json").unlink()
    over_environment = load_settings(
        home, project, environ={variable: text_of(first)}, overrides=[Override("--set", setting.key, text_of(second))]
    )
    for settings, before in ((over_file, first), (over_environment, first)):
        expected = second
        if setting.key in ADDED_UP and isinstance(before, tuple) and isinstance(second, tuple):
            default = setting.default if isinstance(setting.default, tuple) else ()
            expected = tuple(dict.fromkeys(default + before + second))
        elif setting.key in ADDED_UP and isinstance(before, Mapping) and isinstance(second, Mapping):
            expected = cast("Table", {**before, **second})
        assert values_by_key(settings)[setting.key] == expected
        assert settings.is_set(setting.key)
    assert "--set" in over_environment.source(setting.key)
    assert str(project) in over_file.source(setting.key)


@examples(deadline=None)
@given(assignment=assignments)
def test_a_value_shown_and_read_again_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, assignment: tuple[Setting, Value, Value]
) -> None:
    setting, value, _ = assignment
    home = tmp_path_factory.mktemp("home")
    write(home / "config.json", nested({setting.key: value}))
    once = values_by_key(load_settings(home, None))
    write(home / "config.json", nested(dict(once)))
    assert values_by_key(load_settings(home, None)) == once


@examples(deadline=None, max_examples=some(8))
@given(
    key=st.from_regex(r"[a-z_]{1,12}(\.[a-z_]{1,12}){0,2}", fullmatch=True).filter(
        lambda key: key not in settings_by_key()
    )
)
def test_an_unknown_key_is_always_named(tmp_path_factory: pytest.TempPathFactory, key: str) -> None:
    assume(key not in settings_by_key())
    home = tmp_path_factory.mktemp("home")
    write(home / "config.json", nested({key: 1}))
    try:
        (problem,) = load_settings(home, None).notices
    except SettingsError as error:  # it is a section, whose place is taken
        (problem,) = error.problems
    assert str(home / "config.json") in problem
    assert key.split(".", maxsplit=1)[0] in problem
    (problem,) = problems_of(home / "absent", overrides=(Override("--set", key, "1"),))
    assert problem.startswith("--set: ")
    assert key in problem


def test_the_nearest_valid_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    home = user_file(tmp_path, {"compaction": {"treshold": 0.8}, "treshold_by_tier": {}, "small_tier_parent": "warn"})
    assert load_settings(home, None, environ={}).notices == (
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
        ("model.effort", "\ud800", "expected default|low|medium|high|xhigh|max, got '\\ud800'"),
        ("model.wait_for_reset", "\ud800", "expected a whole number of at least 0, got '\\ud800'"),
        ("permissions.deny", "\ud800", "expected a list of texts, got '\\ud800'"),
        ("model.id", None, "expected a text, got null"),
        ("agent.max_turn_cost_usd", 0, "expected a number above 0 or null, got 0"),
        ("ui.glyphs", {"ascii": 1}, "expected unicode|ascii, got a section"),
        ("context.pins_share", 2, "expected a number from 0 to 1, got 2"),
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
        (" " * MAX_FILE_BYTES, "malformed JSON"),
        (" " * (MAX_FILE_BYTES + 1), "larger than 1,000,000 bytes"),
        ('{"theirs": 1, "permissions": {"mode": "wild"}}', "permissions.mode: "),
    ],
)
def test_a_malformed_file_is_named_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    home = user_file(tmp_path, text)
    (said,) = problems_of(home)
    assert said.startswith(f"{home / 'config.json'}: ")
    assert problem in said


def test_a_file_of_another_name_is_said_to_be_unread(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project / ".agents"):
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text('[model]\nid = "offline"\n')
    (home / "config.json").write_text('{"hooks": {}}')
    settings = load_settings(home, project, trusted=True, environ={})
    assert settings.model.id == ""
    assert settings.notices == (
        f"{home / 'config.json'}: 'hooks' is no setting; hooks are read from hooks.json in the same folder",
        f"{home / 'config.toml'} is not read: settings are in config.json, as JSON",
        f"{project / '.agents/config.toml'} is not read: settings are in config.json, as JSON",
    )
    assert len(load_settings(home, project, environ={}).notices) == 2


def test_a_file_that_is_not_utf8_and_one_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"ui": "\xff"}')
    assert problems_of(tmp_path) == (f"{tmp_path / 'config.json'}: not valid UTF-8 at byte 9",)
    (tmp_path / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    assert problems_of(tmp_path) == (f"{tmp_path / 'config.json'}: cannot be read: it is not a regular file",)


def test_of_a_name_that_a_server_has_twice_the_last_counts(tmp_path: Path) -> None:
    home = user_file(tmp_path, '{"mcp": {"servers": {"here": {"command": "x", "env": {"A": "1", "A": "2"}}}}}')
    assert load_settings(home, None).mcp.servers["here"].env == {"A": "2"}


def test_who_has_no_home_gets_a_folder_that_is_theirs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert replace_missing_home() is None

    def made() -> Path:
        monkeypatch.setenv("HOME", "nowhere")
        home = replace_missing_home()
        assert home is not None
        assert os.environ["HOME"] == str(home)
        assert home.stat().st_mode & 0o777 == 0o700
        return home

    ours = tmp_path / f"tui-agent-{os.getuid()}"
    assert made() == made() == ours
    ours.chmod(0o701)
    assert made() != ours
    ours.rmdir()
    ours.symlink_to(tmp_path)
    assert made() != ours


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
        ("permissions.network", "TRUE", ("*",)),
        ("mcp.servers", '{"a": {"command": "x"}}', {"a": ToolServer(command="x")}),
    ],
)
def test_text_is_read_by_the_type_of_its_setting(tmp_path: Path, key: str, text: str, value: Value) -> None:
    settings = load_settings(tmp_path, None, environ={variable_of(key): text})
    assert values_by_key(settings)[key] == value
    assert settings.source(key) == variable_of(key)


def test_of_two_flags_for_one_key_the_later_wins(tmp_path: Path) -> None:
    overrides = [Override("--ask", "permissions.mode", "ask"), Override("--set", "permissions.mode", "plan")]
    assert load_settings(tmp_path, None, overrides=overrides).permissions.mode == "plan"


class TestOverrides:
    """Settings given for one start, by a program."""

    @examples(deadline=None)
    @given(assignment=assignments)
    def test_every_form_sets_the_same(
        self, tmp_path_factory: pytest.TempPathFactory, assignment: tuple[Setting, Value, Value]
    ) -> None:
        setting, value, _ = assignment
        home = tmp_path_factory.mktemp("home")
        forms: list[Overrides] = [
            {setting.key: text_of(value)},
            f"{setting.key}={text_of(value)}",
            [f"{setting.key}={text_of(value)}"],
            Override("a program", setting.key, text_of(value)),
            [Override("a program", setting.key, text_of(value))],
        ]
        expected = values_by_key(load_settings(home, None, environ={variable_of(setting.key): text_of(value)}))
        for form in forms:
            loaded = load_settings(home, None, overrides=form)
            assert values_by_key(loaded) == expected
            assert loaded.overridden == {setting.key}
            assert loaded.source(setting.key) in ("overrides", "a program")

    @pytest.mark.parametrize(
        ("key", "given_value", "value"),
        [
            ("compaction.auto", False, False),
            ("compaction.threshold", 1, 1.0),
            ("compaction.threshold", 0.5, 0.5),
            ("context.max_tokens", 3, 3),
            ("context.instruction_files", ["A.md", "B.md"], ("A.md", "B.md")),
            ("context.instruction_files", ("A, B.md",), ("A, B.md",)),
            ("context.instruction_files", "A.md, B.md", ("A.md", "B.md")),
            ("agent.max_turn_cost_usd", None, None),
            ("ui.theme", "a=b", "a=b"),
        ],
    )
    def test_values_are_python_values_or_text(
        self, tmp_path: Path, key: str, given_value: GivenValue, value: Value
    ) -> None:
        home = user_file(tmp_path, {"agent": {"max_turn_cost_usd": 1.0}})
        assert values_by_key(load_settings(home, None, overrides={key: given_value}))[key] == value
        record = Override("a program", key, given_value)
        assert values_by_key(load_settings(home, None, overrides=[record]))[key] == value

    @pytest.mark.parametrize(
        ("overrides", "problem"),
        [
            ({"ui.moose": True}, "overrides: unknown key 'ui.moose'; did you mean ui.mouse?"),
            ("ui.moose=true", "overrides: unknown key 'ui.moose'; did you mean ui.mouse?"),
            (
                ["compaction.treshold=1"],
                "overrides: unknown key 'compaction.treshold'; did you mean compaction.threshold?",
            ),
            ({"ui.mouse": 1}, "overrides: ui.mouse: expected true or false, got 1"),
            ({"ui.mouse": "perhaps"}, "overrides: ui.mouse: expected true or false, got 'perhaps'"),
            (
                {"context.max_tokens": True},
                "overrides: context.max_tokens: expected a whole number of at least 1, got true",
            ),
            ({"permissions.deny": [1]}, "overrides: permissions.deny: expected a list of texts, got [1]"),
            ({"compaction": {"auto": False}}, "overrides: compaction is a section, name one of its keys"),
            ("ui.mouse", "overrides: expected KEY=VALUE, got 'ui.mouse'"),
            (
                [("--set", "ui.mouse", "false")],
                "overrides: expected KEY=VALUE or an Override, got ('--set', 'ui.mouse', 'false')",
            ),
            (7, "overrides: expected a mapping of keys to values, or a list, got 7"),
            ({7: 1}, "overrides: unknown key '7'; `tui-agent config` lists all keys"),
        ],
    )
    def test_a_bad_one_is_named(self, tmp_path: Path, overrides: Overrides, problem: str) -> None:
        assert problems_of(tmp_path, overrides=overrides) == (problem,)


@pytest.mark.parametrize("key", ["mcp.servers", "permissions.deny", "ui.theme"])
@pytest.mark.parametrize("text", ["\udcff", "[\udcff", '{"a": "\udcff"}'])
def test_no_setting_takes_text_that_no_encoding_can_write(tmp_path: Path, key: str, text: str) -> None:
    variable = f"TUI_AGENT__{key.upper().replace('.', '__')}"
    (problem,) = problems_of(tmp_path, environ={variable: text})
    assert problem.startswith(f"{variable}: {key}: expected")


def test_home_folder_is_named_or_the_platforms(tmp_path: Path) -> None:
    assert home_folder({"TUI_AGENT_HOME": str(tmp_path)}) == tmp_path
    assert home_folder({}).name == "tui-agent"
    assert home_folder({"TUI_AGENT_HOME": ""}) == home_folder({})


def test_what_a_server_is_given_as_a_secret_is_not_shown() -> None:
    oauth = OAuth(client_id="me", client_secret="secret-1", private_key="secret-2")
    server = ToolServer(url="https://a.example/mcp", env={"K": "secret-3"}, headers={"A": "secret-4"}, oauth=oauth)
    shown = json_text({"a": server, "b": ToolServer(command="x", oauth=OAuth(client_id="me"))})
    assert "secret-" not in shown
    assert json.loads(shown)["b"] == {"command": "x", "oauth": {"client_id": "me"}}
    assert json.loads(shown)["a"]["oauth"].keys() == {"client_id", "client_secret", "private_key"}


_A_SERVER = "expected an object of servers by name, each with `command` and `args`, or `url`"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("mcp.servers", "{", f"{_A_SERVER}, got '{{'"),
        ("mcp.servers", "[]", f"{_A_SERVER}, got []"),
        ("mcp.servers", '{"a": 5}', f"{_A_SERVER}: Expected `object`, got `int`"),
        ("mcp.servers", '{"a b": {"command": "x"}}', "'a b' is not a valid name for a server: letters"),
        ("permissions.deny", "[1", "expected a list of texts, got '[1'"),
        ("models.endpoints", '{"a": {"url": 5}}', "expected an object of endpoints by name"),
        ("models.endpoints", '{"a b": {"url": "x"}}', "expected an object of endpoints by name"),
    ],
)
def test_sections_and_lists_in_variables_are_json(tmp_path: Path, key: str, text: str, expected: str) -> None:
    name = variable_of(key)
    (said,) = problems_of(tmp_path, environ={name: text})
    assert said.startswith(f"{name}: {key}: {expected}")
