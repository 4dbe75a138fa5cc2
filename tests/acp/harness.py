"""Harbor's own agent for ACP (the package `harbor`), in an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.e2e.program import Program

PACKAGES = ("harbor", "agent-client-protocol")
ROOT = Path(__file__).parents[2]


def interpreter(folder: Path) -> Path | None:
    """The Python of an environment below `folder` with Harbor; None if no Python is new enough, or it cannot be had."""
    names = ("python3.14", "python3.13", "python3.12", sys.executable)
    candidates: list[str | Path] = [
        *Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"),
        *filter(None, map(shutil.which, names)),
    ]
    for candidate in candidates:
        newer = subprocess.run([candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"], check=False)
        if newer.returncode == 0:
            python = folder / "bin" / "python"
            subprocess.run([candidate, "-m", "venv", folder], check=True)
            had = subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=False, capture_output=True)
            return python if had.returncode == 0 else None
    return None


def run_task(python: Path, program: Program, instruction: str, model: str, entry_file: str, **more: str) -> Any:
    """Have Harbor's agent run the program, as its registry entry says, in its project with one prompt; what its runner
    and the trajectory say.
    """
    entry = json.loads((ROOT / entry_file).read_text())
    arguments = ["-m", "tui_agent", *entry["distribution"]["uvx"]["args"]]
    entry["distribution"] = {"local": {"cmd": sys.executable, "args": arguments}}
    given = {"entry": entry, "instruction": instruction, "model": model, "project": str(program.project)}
    environment = {**os.environ, **program.environment, **more, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command: list[str | Path] = [python, ROOT / "tests/acp/harbor_agent.py", mkdtemp(dir=program.project.parent)]
    done = subprocess.run(
        command, input=json.dumps(given), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)
