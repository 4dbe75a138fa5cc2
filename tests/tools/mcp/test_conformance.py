"""The protocol's own conformance suite, run against the program's client: every scenario that a revision requires of a
client, and the extension for programs that sign in by themselves.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node@22"
"""The suite needs Node.js 22 or later; npm has it, whatever is installed."""
EXTENSION = ("auth/client-credentials-jwt", "auth/client-credentials-basic")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the suite."""
    npm, place = shutil.which("npm"), tmp_path_factory.mktemp("suite")
    if npm is None:
        pytest.skip("npm is not installed")
    done = subprocess.run(
        [npm, "install", "--prefix", str(place), SUITE, NODE], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"npm cannot install the suite: {done.stderr[-500:]}")
    modules = place / "node_modules"
    return [str(modules / "node/bin/node"), str(modules / "@modelcontextprotocol/conformance/dist/index.js"), "client"]


@pytest.mark.soak
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_of_a_revision_passes(revision: str, suite: list[str], tmp_path: Path) -> None:
    package = Path(suite[1]).parents[1]
    text = (package / "requirements" / f"{revision}.yaml").read_text()
    required = text.split("\nclient:\n")[1].split("\n\n")[0]
    scenarios = [line.removeprefix("  - ") for line in required.splitlines() if line.startswith("  - ")]
    assert len(scenarios) > 10
    failed = {each: told for each in scenarios if (told := _run(suite, tmp_path, each, "--spec-version", revision))}
    assert not failed


@pytest.mark.soak
@pytest.mark.parametrize("scenario", EXTENSION)
def test_a_program_signs_in_by_itself(scenario: str, suite: list[str], tmp_path: Path) -> None:
    assert _run(suite, tmp_path, scenario) == ""


def _run(suite: list[str], folder: Path, scenario: str, *more: str) -> str:
    """What the suite says of a scenario that fails; empty if it passes."""
    client = f"{sys.executable} -m tests.tools.mcp.conformance_client"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*suite, "--command", client, "--scenario", scenario, "--timeout", "120000", *more]
    done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout[-3_000:] if done.returncode or "OVERALL: PASSED" not in done.stdout else ""
