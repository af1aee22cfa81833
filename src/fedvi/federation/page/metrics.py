"""What is measured of a coordinator, for Prometheus: counted as it happens, or read from its status when asked for.

Labels are bounded: names of sites come from the coordinator's file, codes and states are words of the program.
"""

from __future__ import annotations

import logging
from collections import Counter as Counts
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily as Counted
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedvi import __version__

if TYPE_CHECKING:
    from fedvi.federation.store.status import Status

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
MESSAGES = (1, 2, 4, 8, 16, 32, 64)
"""Upper ends of the histograms' classes."""

_log = logging.getLogger(__name__)


class Metrics:
    """The metrics of one process, in a registry of their own. All methods may be called in any thread.

    status: what else is told, read at every scrape; None leaves it out.
    """

    def __init__(self, status: Callable[[], Status] | None = None):
        own = self._registry = CollectorRegistry()
        self._messages = Counter("fedvi_messages", "Messages that were answered, by HTTP code", ["code"], registry=own)
        self._refusals = Counter("fedvi_refusals", "Messages that were refused, by reason", ["code"], registry=own)
        self._handling = Histogram("fedvi_handle_seconds", "Time to answer a message", buckets=SECONDS, registry=own)
        self._committing = Histogram("fedvi_commit_seconds", "Time to commit a group", buckets=SECONDS, registry=own)
        self._group = Histogram("fedvi_commit_messages", "Messages in a group", buckets=MESSAGES, registry=own)
        Info("fedvi_build", "Version of fedvi", registry=own).info({"version": __version__})
        ProcessCollector(registry=own)
        if status is not None:
            own.register(_StatusCollector(status))

    def handled(self, seconds: float, code: int, refusal: str = "") -> None:
        """Count a message. code: of HTTP. refusal: the code of a signed refusal, never a text that a site sent."""
        self._messages.labels(str(int(code))).inc()
        self._handling.observe(seconds)
        if refusal:
            self.refused(refusal)

    def refused(self, refusal: str) -> None:
        """Count what was refused, by a word of the program."""
        self._refusals.labels(refusal).inc()

    def committed(self, seconds: float, messages: int) -> None:
        """Count a group of messages that was committed in one transaction."""
        self._committing.observe(seconds)
        self._group.observe(messages)

    def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self._registry)


class _StatusCollector(Collector):
    """What the coordinator's file says. If it cannot be read, only that is told."""

    def __init__(self, status: Callable[[], Status]):
        self._status = status

    def collect(self) -> Iterable[Metric]:
        status, readable = None, "Whether the coordinator's file could be read"
        try:
            status = self._status()
        except Exception:  # of any kind: what was counted in the process is told all the same
            _log.info("The status could not be read for metrics.", exc_info=True)
        yield Gauge("fedvi_status_readable", readable, float(status is not None))
        if status is None:
            return
        yield Gauge("fedvi_over", "Whether the federation has ended", float(status.over))
        yield Gauge("fedvi_questions_planned", "Questions of the plan", status.questions)
        yield Gauge("fedvi_questions_asked", "Questions that were asked so far", status.asked)
        states = Gauge("fedvi_sites", "Sites by state", labels=["state"])
        for state, number in Counts(site.state for site in status.sites).items():
            states.add_metric([state], number)
        yield states
        sites, names = status.sites, [site.name for site in status.sites]
        seen = [None if site.last_seen is None else max(status.time - site.last_seen, 0.0) for site in sites]
        for kind, name, text, values in (
            (Counted, "updates", "Updates that were applied", [site.answered for site in sites]),
            (Counted, "repeats", "Messages that came again", [site.repeated for site in sites]),
            (Counted, "refusals", "Messages that were refused", [site.refused for site in sites]),
            (Gauge, "last_seen_seconds", "Seconds since the last message", seen),
            (Gauge, "epsilon", "Epsilon spent, as the site declares", [site.epsilon for site in sites]),
            (Gauge, "epsilon_max", "Epsilon at most, as the site declares", [site.epsilon_max for site in sites]),
        ):
            family = kind(f"fedvi_site_{name}", text, labels=["site"])
            for site, value in zip(names, values, strict=True):
                if value is not None:  # not known yet
                    family.add_metric([site], value)
            yield family
