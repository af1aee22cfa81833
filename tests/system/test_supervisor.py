"""The supervisor's decisions, step by step, with an engine that does what the real one does when processes die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines import make_folder, new_project
from fedvi.federation import wire
from fedvi.federation.transports.flare import supervisor
from fedvi.federation.transports.flare.supervisor import Supervisor
from small_federation import poll


class Engine:
    """Stands for FLARE's session: jobs and which of them have a process. Deleting one that it starts is fatal."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.running: set[str] = set()
        self.deleted: list[str] = []
        self.aborted: list[str] = []
        self.starts = 0

    def list_jobs(self, **_: Any) -> list[dict[str, Any]]:
        return list(self.jobs.values())

    def get_system_info(self) -> Any:
        clients = [SimpleNamespace(name=name) for name in ("north", "south")]
        return SimpleNamespace(client_info=clients, job_info=[SimpleNamespace(job_id=job) for job in self.running])

    def submit_job(self, folder: str) -> str:
        number = f"job {len(self.jobs) + len(self.deleted) + 1}"
        self.jobs[number] = {"job_id": number, "name": Path(folder).name, "status": "SUBMITTED"}
        return number

    def abort_job(self, number: str) -> None:
        self.aborted.append(number)

    def delete_job(self, number: str) -> None:
        del self.jobs[number]
        self.deleted.append(number)

    def of(self, site: str) -> list[str]:
        return [number for number, job in self.jobs.items() if job["name"] == f"site-{site}"]

    def start(self) -> None:
        """Be started anew: jobs are forgotten."""
        self.jobs.clear()
        self.running.clear()
        self.starts += 1

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("fedvi.federation.transports.flare.supervisor.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def watched(tmp_path: Path, clock: list[float]) -> Iterator[tuple[Supervisor, Engine]]:  # noqa: ARG001
    engine, watching = Engine(), Supervisor(make_folder(tmp_path, new_project()))
    watching.parent = SimpleNamespace(ensure=lambda: None, alive=lambda: True, stop=lambda: None, start=engine.start)  # type: ignore[assignment]
    watching._connect = lambda: engine  # type: ignore[method-assign]
    watching._listens = lambda: True  # type: ignore[method-assign]
    yield watching, engine
    watching.stop()


Watched = tuple[Supervisor, Engine]


def run(engine: Engine, number: str) -> None:
    engine.jobs[number]["status"] = "RUNNING"
    engine.running.add(number)


def test_every_connected_site_gets_one_job(watched: Watched, clock: list[float]) -> None:
    watching, engine = watched
    for _ in range(5):
        watching.step()
        clock[0] += 1
    assert [len(engine.of(site)) for site in ("north", "south")] == [1, 1]


def test_job_that_died_is_made_again_and_deleted_only_when_nobody_can_be_starting_it(
    watched: Watched, clock: list[float]
) -> None:
    watching, engine = watched
    watching.step()
    first = engine.of("north")[0]
    run(engine, first)
    run(engine, engine.of("south")[0])
    clock[0] += 60
    watching.step()
    engine.running.discard(first)  # its process was killed; the engine says for ever that it runs
    watching.step()
    assert engine.aborted == [first]
    assert len(engine.of("north")) == 2
    second = engine.of("north")[1]
    run(engine, second)
    for _ in range(int(supervisor.KEPT) - 1):
        clock[0] += 1
        watching.step()
    assert engine.deleted == []
    clock[0] += 5
    watching.step()
    assert engine.deleted == [first]
    assert engine.of("north") == [second]
    assert engine.aborted == [first]


def test_job_that_dies_at_once_is_made_again_less_and_less_often(watched: Watched, clock: list[float]) -> None:
    watching, engine = watched
    made = []
    for _ in range(100):
        watching.step()
        made.append(len(engine.of("north")) + len(engine.deleted))
        for job in engine.jobs.values():
            job["status"] = "FINISHED:EXECUTION_EXCEPTION"
        clock[0] += 1
    assert 4 <= made[-1] <= 12
    assert made[20] > made[-1] / 3


def wait(watched: Watched, clock: list[float], seconds: float) -> None:
    for _ in range(int(seconds)):
        clock[0] += 1
        watched[0].step()


def test_server_that_starts_no_jobs_any_more_is_started_anew(watched: Watched, clock: list[float]) -> None:
    watching, engine = watched
    watching.step()
    wait(watched, clock, supervisor.STARTING)
    assert engine.starts == 0  # it may be waiting for a site
    wait(watched, clock, 2)
    assert engine.starts == 1
    assert [len(engine.of(site)) for site in ("north", "south")] == [1, 1]
    for site in ("north", "south"):
        run(engine, engine.of(site)[0])
    wait(watched, clock, 2 * supervisor.STARTING)
    assert engine.starts == 1


def test_one_site_whose_job_does_not_start_is_no_reason_to_disturb_the_others(
    watched: Watched, clock: list[float]
) -> None:
    watching, engine = watched
    watching.step()
    first = engine.of("north")[0]
    run(engine, engine.of("south")[0])
    wait(watched, clock, supervisor.STARTING + 2)
    assert engine.aborted == [first]
    wait(watched, clock, 10 * supervisor.STARTING)
    assert engine.starts == 0
    assert 2 <= len(engine.of("north")) + len(engine.deleted) <= 10
    assert watching.turns["south"].job in engine.running


def test_site_that_has_left_gets_a_job_when_it_comes_back_and_one_that_has_finished_none(
    watched: Watched,
) -> None:
    watching, engine = watched
    for site, state in (("north", wire.LEFT), ("south", wire.FINISHED)):
        watching.server.handle(site, poll(watching.server.description, 0, state))
    watching.step()
    assert (len(engine.of("north")), engine.of("south")) == (1, [])
