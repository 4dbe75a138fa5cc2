"""What the program was called with, and where: the arguments and settings that follow from it."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_agent.arguments import Arguments, UsageError
from tui_agent.command_line import Parsed
from tui_agent.printing import say
from tui_agent.text import expanded

if TYPE_CHECKING:
    from tui_agent.settings import Override, Settings

UNATTENDED: Final = (("permissions.mode", "allow"), ("agent.max_session_cost_usd", "20"))
"""Settings of `acp --unattended`; other flags win."""


class Invocation(NamedTuple):
    """The parsed command line, the working folder, the program's own folder and the environment."""

    parsed: Parsed
    folder: Path
    home: Path
    environ: Mapping[str, str]

    @property
    def options(self) -> Namespace:
        """The options of the command; not every command has all of them."""
        return self.parsed.options

    def flag(self, name: str) -> bool:
        return bool(getattr(self.options, name, False))

    def with_options(self, **options: object) -> "Invocation":
        """The same with other options."""
        return self._replace(parsed=self.parsed._replace(options=Namespace(**{**vars(self.options), **options})))

    def load(self) -> "tuple[Arguments, Settings]":
        """The arguments for a front end and the effective settings. Raises UsageError with every problem found."""
        from tui_agent.arguments import Arguments
        from tui_agent.settings import SettingsError, load_settings
        from tui_agent.settings.brought import brought, running, standing
        from tui_agent.settings.trust import TrustError, project_root, trust

        options, folder, home = self.options, self.folder, self.home
        overrides = self._overrides()
        project = project_root(folder)
        try:
            trusted, refused, new = standing(project, home)
            lines = running(project) if (says_yes := self.flag("trust") and not trusted) else ()
            settings = load_settings(
                home, project, trusted=trusted or says_yes, environ=self.environ, overrides=overrides
            )
            if says_yes:
                trust(project, home, lines)
                trusted, new = True, ()
        except SettingsError as error:
            raise UsageError("\n".join(error.problems)) from None
        except TrustError as error:
            raise UsageError(str(error)) from None
        prompt, data = _prompt(options) if self.parsed.command == "" else (None, "")
        arguments = Arguments(
            prompt=prompt,
            data=data,
            json_schema=folder / options.json_schema if getattr(options, "json_schema", None) else None,
            output_format=getattr(options, "output_format", None) or "text",
            one_shot=getattr(options, "one_shot", None) is not None,
            folder=folder,
            home=home,
            project=project,
            user_home=user_home(),
            trusted=trusted,
            ask_trust=not trusted and not refused and bool(brought(folder, settings.context.instruction_files)),
            new_in_project=new,
            continue_last=self.flag("continue_last"),
            resume=getattr(options, "resume", None),
            fork=self.flag("fork"),
            unattended=self.flag("unattended"),
            demo=self.flag("demo"),
            yolo=self.flag("yolo"),
            overrides=overrides,
        )
        return arguments, settings

    def same_again(self) -> list[str]:
        """The settings and access flags of this start, for another one."""
        words = [word for _, key, text in self.parsed.settings for word in ("--set", f"{key}={text}")]
        words += [word for place in self.options.add_dir for word in ("--add-dir", place)]
        return words + [f"--{name}" for name in ("yolo", "trust") if self.flag(name)]

    def _overrides(self) -> "tuple[Override, ...]":
        from tui_agent.settings import Override

        given = [Override(*assigned) for assigned in self.parsed.settings]
        overrides = [Override("--unattended", *each) for each in UNATTENDED] if self.flag("unattended") else []
        overrides += given
        for name in getattr(self.options, "add_dir", []):
            place = (self.folder / expanded(name)).resolve()
            if not place.is_dir():
                raise UsageError(f"--add-dir: {name}: not a folder")
            overrides.append(Override("--add-dir", "permissions.folders", (str(place),)))
        if self.flag("yolo"):
            overrides += [
                Override("--yolo", "permissions.mode", "allow"),
                Override("--yolo", "safety.small_tier_parent", "allow"),
                Override("--yolo", "safety.notices", False),
            ]
        return tuple(overrides)


def check_combination(parsed: Parsed) -> None:
    """Raises UsageError if options exclude each other."""
    options = parsed.options
    if options.plain and options.one_shot is not None:
        raise UsageError("--plain is a conversation, and -p answers once in plain lines already")
    if options.output_format and options.one_shot is None:
        raise UsageError("--output-format needs -p")
    if options.json_schema and options.one_shot is None:
        raise UsageError("--json-schema needs -p")
    if options.continue_last and options.resume is not None:
        raise UsageError("--continue and --resume exclude each other")
    if options.fork and not options.continue_last and options.resume is None:
        raise UsageError("--fork needs --continue or --resume: it starts another branch of a session")
    if options.resume == "" and options.one_shot is not None:
        raise UsageError("--resume needs a session's ID with -p; `tui-agent sessions` lists them")
    if options.demo and (options.one_shot is not None or options.continue_last or options.resume is not None):
        raise UsageError("--demo opens a session of its own, in the full-screen app")
    if options.yolo and any(flag == "--ask" for flag, _, _ in parsed.settings):
        raise UsageError("--yolo and --ask exclude each other")


def check_model(arguments: Arguments, settings: "Settings") -> None:
    """Raises UsageError if a new session would be led by a small model and the settings refuse that."""
    if settings.safety.small_tier_parent != "refuse" or arguments.continue_last or arguments.resume is not None:
        return
    from tui_agent.models.base import ModelError, UnknownModel
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.models.choice import SmallTierRefused, check_parent, model_name

    try:
        profile = catalogue_of(settings).quick_profile(model_name(settings))
        check_parent(settings, profile, yolo=arguments.yolo)
    except SmallTierRefused as refused:
        raise UsageError(f"{refused.message} {refused.hint}") from None
    except UnknownModel:
        return  # opening the session asks which is meant
    except ModelError as error:
        raise UsageError(error.message) from None


def user_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _prompt(options: Namespace) -> tuple[str | None, str]:
    """The first message and the data after it, from the command line and standard input. Raises UsageError.

    A last word ``-`` means to wait for standard input; alone, that is the prompt.
    """
    words: list[str] = options.words
    if options.one_shot is None:
        return (_valid(" ".join(words), "the prompt") if words else None), ""
    from tui_agent.agent.commands.command import is_command
    from tui_agent.headless.standard_input import read_data, read_prompt

    named = words[-1:] == ["-"]
    given = " ".join(words[:-1] if named else words)
    data = ""
    if not given and (named or not words):
        given = _valid(read_prompt(), "standard input")
    elif not is_command(given):
        data, problem = read_data(wait=named)
        if problem:
            say(problem)
    if not given.strip():
        raise UsageError("the prompt is empty")
    return _valid(given, "the prompt"), _valid(data, "standard input")


def _valid(text: str, what: str) -> str:
    """`text` with invalid UTF-8 replaced; tells the user if there was any."""
    valid = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if valid != text:
        say(f"{what} is not valid UTF-8; the invalid bytes were replaced")
    return valid
