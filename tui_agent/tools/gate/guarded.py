"""The guarded files: they control how shells, tools, git and agents behave, even after the session that changes them.

One table serves the tools that write, the rules for commands, and the sandbox.
"""

import os
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tui_agent.tools.base import WorkspaceView

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files that agents take their instructions from."""

GUARDED_NAMES: Final = frozenset(
    {
        # Version control: its configuration names programs.
        *(".git", ".gitmodules", ".gitconfig", ".lfsconfig", ".hg", ".hgrc", ".jj", ".sl", ".bzr", ".pijul"),
        # Agents: instructions, servers and hooks.
        *(name.casefold() for name in INSTRUCTION_FILES),
        *("agent.md", "claude.local.md", "agents.override.md", "agents.local.md", "qwen.md", "crush.md", "warp.md"),
        *(".agents", ".claude", ".claude.json", ".gemini", ".codex", ".cursor", ".cursorrules", ".windsurf", ".rules"),
        *(".windsurfrules", ".clinerules", ".cline", ".roo", ".roomodes", ".roorules", ".continue", ".continuerules"),
        *(".kilocode", ".kilocodemodes", ".augment", ".augment-guidelines", ".aider.conf.yml", ".goose", ".goosehints"),
        *(".amp", ".opencode", "opencode.json", "opencode.jsonc", ".crush", "crush.json", ".crush.json", ".qwen"),
        *(".vibe", ".kimi", ".kiro", ".trae", ".junie", ".factory", ".copilot", ".warp", ".tabnine", ".cody", ".pi"),
        *(".mcp.json", "mcp.json", ".mcp", ".deepagents", ".openhands", ".openhands_instructions", ".amazonq"),
        # Read by a shell, a terminal or a desktop when it starts, or enters the folder.
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login"),
        *(".envrc", ".autoenv", ".autoenv.zsh", ".autoenv.fish", ".tmux.conf", ".tmuxinator.yml", ".screenrc"),
        *(".xprofile", ".xinitrc", ".xsession", ".xresources", ".mailcap", ".lessfilter", ".lesskey"),
        *("mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".mise", ".rtx.toml"),
        *(".tool-versions", "devbox.json", "devenv.nix", "devenv.yaml", "devenv.local.nix", ".flox"),
        # Keys, and configuration that names programs or servers to tools.
        *(".ssh", ".gnupg", ".netrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", ".pypirc"),
        *("bunfig.toml", ".bunfig.toml", ".aws", ".kube", ".docker", ".curlrc", ".wgetrc", ".gemrc", ".condarc"),
        *(".terraformrc", "terraform.rc", ".bazelrc", ".bazeliskrc", ".mvn", "init.gradle", "init.gradle.kts"),
        *(".sbtopts", ".jvmopts", ".my.cnf", ".psqlrc", ".sqliterc", ".pgpass", ".arcconfig", ".arclint", ".justfile"),
        # Run by an editor or a debugger that opens the folder.
        *(
            ".vscode",
            ".idea",
            ".zed",
            ".fleet",
            ".nova",
            ".vs",
            ".settings",
            ".project",
            ".externaltoolbuilders",
            ".run",
        ),
        *(".helix", ".kakrc", ".vim", ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".nvim.lua", ".nvim", ".lvimrc"),
        *(".local.vimrc", ".lazy.lua", ".neoconf.json", ".nlsp-settings", ".ycm_extra_conf.py", ".dir-locals.el"),
        *(".dir-locals-2.el", ".emacs", ".emacs.d", ".kateproject", ".lapce", ".theia", ".c9"),
        *(".gdbinit", ".lldbinit", ".gdbearlyinit", ".pdbrc", ".pdbrc.py", ".rdbgrc", ".byebugrc", ".radare2rc"),
        *(".devcontainer", ".devcontainer.json", ".devfile.yaml", "devfile.yaml", ".gitpod.yml", ".gitpod", ".ona"),
        *(".gitpod.dockerfile", ".replit", ".idx", ".codesandbox", ".stackblitzrc", ".xcode.env", ".xcode.env.local"),
        # Run by an interpreter that starts in the folder.
        *(".irbrc", ".pryrc", ".rprofile", ".renviron", ".rdata", ".ghci", ".ocamlinit", ".utoprc", ".iex.exs"),
        *(".erlang", ".sbclrc", ".octaverc", ".user.ini", ".htaccess", ".pythonrc", ".pythonrc.py", ".pylintrc"),
        *("pylintrc", ".proverc", ".ipython", ".jupyter", ".guile", ".scalarc", ".clojure"),
        # Hooks and continuous integration.
        *(".husky", ".githooks", ".git-hooks", ".hooks", ".pre-commit-config.yaml", ".pre-commit-config.yml"),
        *("lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json", ".lefthook.yml", ".lefthook.yaml"),
        *(".lefthook.toml", ".lefthook.json", "lefthook-local.yml", "lefthook-local.yaml", "lefthook-local.toml"),
        *(".lefthook-local.yml", ".lefthook-local.yaml", ".lefthook", ".lefthook-local", ".overcommit.yml"),
        *(".simple-git-hooks.json", ".simple-git-hooks.js", ".simple-git-hooks.cjs", "simple-git-hooks.json"),
        *(".lintstagedrc", ".lintstagedrc.json", ".lintstagedrc.js", ".lintstagedrc.cjs", ".lintstagedrc.mjs"),
        *(".lintstagedrc.yaml", ".lintstagedrc.yml", ".nano-staged.json", ".ghooks.js", ".captainhook.json"),
        *("captainhook.json", "grumphp.yml", "prek.toml", ".huskyrc", ".huskyrc.json", ".huskyrc.js", ".talismanrc"),
        *(".gitlab-ci.yml", ".circleci", ".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml", ".buildkite"),
        *("azure-pipelines.yml", "jenkinsfile", "bitbucket-pipelines.yml", "appveyor.yml", ".appveyor.yml"),
        *(".cirrus.yml", ".cirrus.star", ".gitea", ".forgejo", ".builds", ".build.yml", ".semaphore", ".teamcity"),
        *("cloudbuild.yaml", "buildspec.yml", ".gitlab", ".tekton", ".dagger", ".harness", ".azuredevops"),
    }
)
"""Names of files and folders that are guarded in any folder, in lower case: configuration that makes a tool run
something by itself, or that grants access. The project's own code, tests and build files are not among them."""

GUARDED_ENDINGS: Final = (".code-workspace", ".sublime-project", ".sublime-workspace")
"""Ends of further such names."""

GUARDED_PLACES: Final = frozenset(
    {
        *((".github", name) for name in ("workflows", "actions", "hooks", "agents", "instructions", "prompts")),
        *((".github", name) for name in ("copilot-instructions.md", "copilot", "dependabot.yml", "mcp.json")),
        *((".config", name) for name in ("git", "fish", "autostart", "systemd", "mise", "mise.toml", "nvim", "gdb")),
        *((".config", name) for name in ("husky", "lefthook.yml", "lefthook.yaml", "jj", "hk.pkl", "direnv", "zed")),
        *((".cargo", name) for name in ("config.toml", "config", "credentials", "credentials.toml")),
        *((".yarn", name) for name in ("releases", "plugins", "sdks")),
        *((".local", name) for name in ("bin", "lib")),
        *((".gradle", name) for name in ("init.gradle", "init.d", "gradle.properties")),
        *((".direnv", name) for name in ("bin", "python")),
        ("library", "launchagents"),
    }
)
"""Guarded pairs of folder and entry."""


def is_guarded(real: Path, workspace: WorkspaceView, written: str = "") -> bool:
    """Whether the user is always asked before the resolved path `real`, given as `written`, is changed."""
    root = workspace.root
    # The project's own folder may be below a guarded one.
    parts = (root.name, *real.relative_to(root).parts) if real.is_relative_to(root) else real.parts
    asked = Path(written)
    if is_guarded_name(parts) or (not asked.is_absolute() and is_guarded_name(asked.parts)):
        return True
    if any(real.is_relative_to(folder) for folder in workspace.guarded):
        return True
    return any(Path(os.path.realpath(workspace.root / name)) == real for name in INSTRUCTION_FILES)


def folded(name: str) -> str:
    """`name` as the most lenient file system compares it: without case, invisible characters and trailing dots."""
    visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().rstrip(". ")


def is_guarded_name(parts: Sequence[str]) -> bool:
    """Whether a path of these parts is guarded wherever it is."""
    names = [folded(part) for part in parts]
    if any(name in GUARDED_NAMES or name.endswith(GUARDED_ENDINGS) for name in names):
        return True
    return any(pair in GUARDED_PLACES for pair in pairwise(names))
