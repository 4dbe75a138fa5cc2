"""How a command is started through Seatbelt: what it is told."""

from pathlib import Path

from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import in_seatbelt


def request(folder: Path) -> Request:
    for name in ("project/.git/hooks", "home/.ssh", "temporary"):
        (folder / name).mkdir(parents=True)
    return Request(
        ["/bin/sh", "-c", "true"],
        str(folder / "project"),
        {},
        confined=True,
        writable=[str(folder / "project")],
        readonly=[str(folder / "project/.git/hooks")],
        hidden=[str(folder / "home/.ssh"), str(folder / "missing")],
        temporary=str(folder / "temporary"),
    )


def test_seatbelt_denies_after_it_allows(tmp_path: Path) -> None:
    program, option, profile, *command = in_seatbelt(request(tmp_path / 'a "quoted" place'))
    assert (program, option, command) == ("/usr/bin/sandbox-exec", "-p", ["/bin/sh", "-c", "true"])
    rules = profile.splitlines()
    place = str(tmp_path).replace('"', '\\"') + '/a \\"quoted\\" place'
    allowed = next(n for n, rule in enumerate(rules) if rule.startswith("(allow file-write*"))
    denied = next(n for n, rule in enumerate(rules) if f'(subpath "{place}/project/.git/hooks")' in rule)
    assert f'(subpath "{place}/project")' in rules[allowed]
    assert allowed < denied
    assert any(rule.startswith("(deny file-read* file-write*") and "home/.ssh" in rule for rule in rules)
    assert "(deny network*)" in rules
    assert "(deny network*)" not in in_seatbelt(request(tmp_path / "b")._replace(network=True))[2]
