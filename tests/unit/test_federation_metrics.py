"""Metrics of a coordinator, read as Prometheus reads them."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fedvi
from fedvi.federation.page.metrics import Metrics

if TYPE_CHECKING:
    from fedvi.federation.store.status import Status


def make_status(**changed: Any) -> Status:
    """Return what metrics read of a status: three sites, of which the last was never heard of."""
    site = {"state": "working", "repeated": 0, "refused": 0, "epsilon_max": 1.0}
    sites = (
        SimpleNamespace(**site, name="north", last_seen=999.0, answered=30, epsilon=0.51),
        SimpleNamespace(
            **site | {"repeated": 2, "refused": 3}, name="north.2", last_seen=800.0, answered=10, epsilon=1.0
        ),
        SimpleNamespace(
            name='we\\st"\n',
            state="absent",
            last_seen=None,
            answered=0,
            repeated=0,
            refused=0,
            epsilon=None,
            epsilon_max=None,
        ),
    )
    status = {"time": 1000.0, "over": False, "questions": 30, "asked": 12, "sites": sites}
    return cast("Status", SimpleNamespace(**status | changed))


def scraped(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Return every sample by its name and its only label's value."""
    samples = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            assert len(sample.labels) <= 1
            samples[sample.name, next(iter(sample.labels.values()), "")] = sample.value
    return samples


def test_what_happens_is_counted() -> None:
    metrics = Metrics()
    for _ in range(5):
        metrics.handled(0.003, 200)
    metrics.handled(0.02, 200, "out of sequence")
    metrics.handled(0.0001, 401)
    metrics.committed(0.004, 16)
    metrics.committed(0.03, 1)
    found = scraped(metrics)
    assert found["fedvi_messages_total", "200"] == 6
    assert found["fedvi_messages_total", "401"] == 1
    assert found["fedvi_refusals_total", "out of sequence"] == 1
    assert found["fedvi_handle_seconds_count", ""] == 7
    assert found["fedvi_handle_seconds_sum", ""] == pytest.approx(0.0351)
    assert [found["fedvi_handle_seconds_bucket", end] for end in ("0.0005", "0.005", "0.02", "+Inf")] == [1, 6, 7, 7]
    assert (found["fedvi_commit_messages_count", ""], found["fedvi_commit_messages_sum", ""]) == (2, 17)
    assert [found["fedvi_commit_messages_bucket", end] for end in ("1.0", "8.0", "16.0")] == [1, 1, 2]
    assert found["fedvi_commit_seconds_sum", ""] == pytest.approx(0.034)
    assert found["fedvi_build_info", fedvi.__version__] == 1


def test_what_the_file_says_is_read_at_every_scrape() -> None:
    status = make_status()
    metrics = Metrics(lambda: status)
    found = scraped(metrics)
    assert (found["fedvi_questions_asked", ""], found["fedvi_questions_planned", ""]) == (12, 30)
    assert (found["fedvi_over", ""], found["fedvi_status_readable", ""]) == (0, 1)
    assert (found["fedvi_sites", "working"], found["fedvi_sites", "absent"]) == (2, 1)
    assert found["fedvi_site_last_seen_seconds", "north"] == 1
    assert found["fedvi_site_last_seen_seconds", "north.2"] == 200
    assert found["fedvi_site_updates_total", "north"] == 30
    assert found["fedvi_site_repeats_total", "north.2"] == 2
    assert found["fedvi_site_refusals_total", "north.2"] == 3
    assert found["fedvi_site_epsilon", "north"] == 0.51
    assert found["fedvi_site_epsilon_max", "north.2"] == 1
    never = 'we\\st"\n'
    assert found["fedvi_site_updates_total", never] == 0
    assert not {("fedvi_site_last_seen_seconds", never), ("fedvi_site_epsilon", never)} & found.keys()
    status = make_status(over=True, asked=30, time=0.0)
    found = scraped(metrics)
    assert (found["fedvi_over", ""], found["fedvi_questions_asked", ""]) == (1, 30)
    assert found["fedvi_site_last_seen_seconds", "north"] == 0  # a clock that went back


def test_counts_outlive_a_status_that_cannot_be_read() -> None:
    def status() -> Status:
        raise OSError("a secret place")

    metrics = Metrics(status)
    metrics.handled(0.01, 503)
    found = scraped(metrics)
    assert (found["fedvi_status_readable", ""], found["fedvi_messages_total", "503"]) == (0, 1)
    assert not any("site" in name for name, _ in found)
    assert b"secret" not in metrics.text()


def test_two_coordinators_in_a_process_do_not_share_counts() -> None:
    one, other = Metrics(), Metrics()
    one.handled(0.01, 200)
    assert ("fedvi_messages_total", "200") not in scraped(other)


def test_threads_lose_no_count() -> None:
    metrics, start = Metrics(), threading.Barrier(8)

    def count(_: int) -> None:
        start.wait()
        for _ in range(500):
            metrics.handled(0.001, 200, "replayed")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    found = scraped(metrics)
    assert found["fedvi_messages_total", "200"] == found["fedvi_refusals_total", "replayed"] == 4000


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_memory_of_the_process_is_told() -> None:
    assert 10_000_000 < scraped(Metrics())["process_resident_memory_bytes", ""] < 100_000_000_000
