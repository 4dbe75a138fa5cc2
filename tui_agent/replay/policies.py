"""The policies by name: none, our presets, and those of other systems."""

from difflib import get_close_matches

import msgspec

from tui_agent.replay.compared import COMPARED
from tui_agent.replay.layers import Layers
from tui_agent.replay.policy import Keeping, MakePolicy
from tui_agent.replay.recording import UnreadableRecording
from tui_agent.settings import Preset, Settings

PRESETS: tuple[Preset, ...] = ("layered", "digest", "summary-only", "off")
NAMES: tuple[str, ...] = (*PRESETS, "none", *COMPARED)
"""Every policy, ours first."""


class UnknownPolicy(UnreadableRecording):
    """A policy's name that is none."""


def preset_policy(preset: Preset, settings: Settings) -> MakePolicy:
    """A preset of ours under these settings."""
    context = msgspec.structs.replace(settings.context, preset=preset)
    chosen = msgspec.structs.replace(settings, context=context)
    return lambda setup: Layers(setup, chosen)


def policies(names: list[str], settings: Settings) -> dict[str, MakePolicy]:
    """The policies with these names, all for none given. Raises `UnknownPolicy`."""
    found: dict[str, MakePolicy] = {}
    for name in names or NAMES:
        preset = next((each for each in PRESETS if each == name), None)
        if preset is not None:
            found[name] = preset_policy(preset, settings)
        elif name == "none":
            found[name] = Keeping
        elif name in COMPARED:
            found[name] = COMPARED[name]
        else:
            close = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
            raise UnknownPolicy(f"--policy: there is no policy {name!r}; {hint}")
    return found
