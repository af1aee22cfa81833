"""What is shipped to run coordinators and sites as services, and behind a proxy."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer

from fedvi.errors import FedviError, InputError, SiteRefused
from fedvi.federation.transports.link import LARGEST
from fedvi.federation.transports.serving import BEHIND_PROXY, MOST_CONNECTIONS, OTHER_FILES, PER_ADDRESS

command = importlib.import_module("fedvi.cli.main")  # `fedvi.cli` has a function of this name
ROOT = Path(__file__).parents[2]
NGINX = (ROOT / "deploy" / "nginx.conf").read_text()
KINDS = "coordinator", "site"
ANALYZE = shutil.which("systemd-analyze") or ""


def unit(kind: str) -> Path:
    return ROOT / "deploy" / f"fedvi-{kind}@.service"


def service(kind: str) -> dict[str, str]:
    """Return the keys of a unit that are there once."""
    found = re.findall(r"^(\w+)=(.*)$", unit(kind).read_text(), re.MULTILINE)
    keys = [key for key, _ in found]
    return {key: value for key, value in found if keys.count(key) == 1}


def exists(line: str) -> bool:
    """Tell whether fedvi has a command with these options."""
    words = line.split()
    place: click.Command = typer.main.get_command(command.app)
    while isinstance(place, click.Group):
        place = place.commands[words.pop(0)]
    known = {name for option in place.params for name in option.opts}
    return {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("kind", KINDS)
def test_systemd_finds_nothing_wrong_with_a_unit_and_next_to_nothing_exposed(kind: str) -> None:
    if not ANALYZE:
        pytest.skip("needs systemd-analyze")
    exposed = "security", "--offline=true", "--no-pager", "--threshold=15"
    for check in (("verify",), exposed):
        done = subprocess.run([ANALYZE, *check, unit(kind)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_runs_a_command_that_exists_in_the_folder_that_is_its_own(kind: str) -> None:
    found, name = service(kind), f"fedvi-{kind}"
    program, line = re.fullmatch(r"(/usr/bin/env fedvi) (.*)", found["ExecStart"]).groups()  # type: ignore[union-attr]
    assert (program, exists(line)) == ("/usr/bin/env fedvi", True)
    assert found["User"] == found["StateDirectory"] == name
    assert found["WorkingDirectory"] == f"%S/{name}"
    guide = (ROOT / "docs" / "operations.md").read_text()
    for place in (f"--home-dir /var/lib/{name} ", "venv /opt/fedvi ", f"cp deploy/{unit(kind).name} "):
        assert place in guide
    assert "Environment=PATH=/opt/fedvi/bin:" in unit(kind).read_text()


def test_a_coordinator_may_open_as_many_files_as_it_wants() -> None:
    assert int(service("coordinator")["LimitNOFILE"]) >= 2 * MOST_CONNECTIONS + OTHER_FILES


@pytest.mark.parametrize(
    ("error", "again"),
    [(InputError, False), (SiteRefused, False), (KeyboardInterrupt, False), (FedviError, True), (OSError, True)],
)
def test_services_start_again_after_whatever_needs_no_people(
    error: type[BaseException], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise error(2, "no such file", sys.executable)

    monkeypatch.setattr(command, "app", fails)
    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    with pytest.raises(SystemExit) as ended:
        command.main()
    for kind in KINDS:
        found = service(kind)
        done = {0, *map(int, found["SuccessExitStatus"].split()), *map(int, found["RestartPreventExitStatus"].split())}
        assert found["Restart"] == "on-failure"
        assert (ended.value.code not in done) is again


def test_the_proxys_commands_exist_and_its_limits_are_the_coordinators() -> None:
    lines = re.findall(r"^#   fedvi (.*?)   ", NGINX, re.MULTILINE)
    assert len(lines) == 3
    assert all(map(exists, lines))
    assert f"server 127.0.0.1:{BEHIND_PROXY};" in NGINX
    assert f"limit_conn fedvi {PER_ADDRESS};" in NGINX
    assert f"client_max_body_size {LARGEST >> 20}m;" in NGINX
