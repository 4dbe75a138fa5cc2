"""Every setting changes something: what is built under its default and under another value does not do the same."""

import pytest

from tests.settings.effects import choices, context, screen, servers, session
from tests.settings.effects.probe import Probe
from tui_agent.settings import settings_by_key

PROBES: dict[str, Probe] = {**context.PROBES, **choices.PROBES, **session.PROBES, **screen.PROBES, **servers.PROBES}


def test_every_setting_has_a_probe_and_every_probe_a_setting() -> None:
    assert sorted(PROBES) == sorted(settings_by_key())


@pytest.mark.parametrize("key", PROBES)
async def test_a_changed_setting_changes_what_is_done(key: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    probe = PROBES[key]
    before = await probe.seen(tmp_path_factory.mktemp("before"))
    assert await probe.seen(tmp_path_factory.mktemp("after"), **{key: probe.changed}) != before


@pytest.mark.soak
@pytest.mark.parametrize("key", PROBES)
async def test_what_is_observed_depends_on_the_settings_alone(
    key: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seen = [await PROBES[key].seen(tmp_path_factory.mktemp("same")) for _ in range(2)]
    assert seen[0] == seen[1]
