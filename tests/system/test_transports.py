"""One contract for all transports. One site uses the transport, another one HTTPS, in the same federation.

Bytes arrive as they were sent, or not at all; both ends may be killed; only a signed refusal stops a site.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from carried import Direct, public
from fedvi.errors import InputError, NotReached, SiteRefused
from fedvi.federation.demo.checking import Files, check
from fedvi.federation.demo.engines import Engine
from fedvi.federation.demo.flare_engine import FlareEngine
from fedvi.federation.demo.flower_engine import FlowerEngine
from fedvi.federation.desk import Desk
from fedvi.federation.envelope import ENROL, Correspondence, Transport
from fedvi.federation.invitation import Address, Invitation
from fedvi.federation.making import SOCKET, address_of, invite, revoke
from fedvi.federation.store.file import FILE
from fedvi.federation.store.reader import Reader
from fedvi.federation.transports import base
from fedvi.federation.transports.https import Https
from fedvi.federation.transports.link import LARGEST, Link, Visitor
from fedvi.privacy import Budget
from served import LONG, Imposter, Served, until
from small_federation import rows_of, site_of

pytestmark = pytest.mark.slow
SITES = ("north", "south")
UPDATES = 2


class Killed(BaseException):
    """A site dies before it has taken an answer."""


class Spoilt:
    """A transport with faults, one for each exchange, and with none when there are no more."""

    wait = 5.0

    def __init__(self, transport: Transport, faults: Iterator[str]):
        self._transport, self._faults, self._old = transport, faults, b""

    def send(self, data: bytes) -> bytes:
        fault = next(self._faults, "")
        if fault == "lost":
            raise NotReached(fault)
        answer = self._transport.send(data)
        if fault == "doubled":
            self._transport.send(data)
        if fault == "killed":
            raise Killed
        if fault == "cut":
            raise NotReached(fault)
        self._old, old = answer, self._old
        return old if fault == "old" else answer

    def close(self) -> None:
        self._transport.close()


class Way:
    """How messages of north travel; those of south take HTTPS. coordinator: runs it, again and again."""

    faults: tuple[str, ...] = "cut", "doubled", "killed", "old", "lost"

    def __init__(self, folder: Path):
        self.served = Served(folder, *SITES, updates=UPDATES)

    @contextlib.contextmanager
    def coordinator(self) -> Iterator[None]:
        with self.served.process() as process:
            yield
            process.kill()

    def opened(self, name: str) -> Transport:
        """Return a new transport of a site."""
        return Https(address_of(self.served.folder, self.served.description, name))

    def close(self) -> None:
        pass


class InProcess(Way):
    """Nothing but a function."""

    desk: Desk | None = None

    @contextlib.contextmanager
    def coordinator(self) -> Iterator[None]:
        with Desk.open(self.served.folder) as self.desk:
            yield
            self.desk = None

    def opened(self, name: str) -> Transport:
        return Direct(self._answer)

    def _answer(self, data: bytes) -> bytes:
        if self.desk is None:
            raise NotReached("away")
        return self.desk.answer(data)


class OverEngine(Way):
    kind: type[Engine]

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._engine = self.kind(folder / "e", SITES[:1], self.served.folder / SOCKET)
        self._engine.start()

    def opened(self, name: str) -> Transport:
        return Link(self._engine.link_path(name), fits=self._fits) if name == "north" else super().opened(name)

    def _fits(self, request: bytes, answer: bytes) -> bool:
        with contextlib.suppress(NotReached):
            return bool(self.served.signed(request, answer))
        return False

    def close(self) -> None:
        self._engine.close()


class OverFlare(OverEngine):
    kind = FlareEngine


class OverFlower(OverEngine):
    kind, faults = FlowerEngine, ("cut", "killed")  # each exchange takes seconds


class Worker:
    """A site that joins over a way, works to the end of the federation, and comes back when it was killed."""

    def __init__(self, way: Way, folder: Path, name: str, *faults: str):
        self._way, self._folder, self._name, self._faults = way, folder, name, iter(faults)
        self._key = Ed25519PrivateKey.generate()

    @property
    def files(self) -> Files:
        return Files(self._folder / f"{self._name}.db", self._folder / f"{self._name}.ledger")

    def letters(self, transport: Transport, key: Ed25519PrivateKey | None = None) -> Correspondence:
        served = self._way.served
        return Correspondence(transport, served.identity, self._name, key or self._key, served.public)

    def join(self) -> None:
        invitation = Invitation.parse(invite(self._way.served.folder, self._name))
        with contextlib.closing(self._way.opened(self._name)) as transport:
            self.letters(transport, invitation.key).exchange(public(self._key), ENROL)

    def work(self) -> None:
        chosen, number = self._way.served.description, SITES.index(self._name)
        while True:
            with contextlib.suppress(Killed), contextlib.closing(self._way.opened(self._name)) as transport:
                letters = self.letters(Spoilt(transport, self._faults))
                with site_of(self.files.site, chosen, rows_of(number), Budget(1.0), self.files.ledger) as site:
                    base.run(site, letters.exchange)
                    return


@pytest.mark.parametrize("kind", [InProcess, Way, OverFlare, OverFlower])
def test_a_federation_is_exact_whatever_carries_its_messages_and_whatever_happens_to_them(
    kind: type[Way], tmp_path: Path
) -> None:
    with contextlib.closing(kind(tmp_path)) as way, ThreadPoolExecutor(2) as threads:
        served = way.served
        north = Worker(way, tmp_path, "north", *way.faults)
        south = Worker(way, tmp_path, "south")
        with way.coordinator(), contextlib.closing(way.opened("north")) as transport:
            with Desk.open(served.folder) as desk:
                largest = desk.largest
            for size, code in ((largest, 400), (largest + 1, 413)):
                data = os.urandom(size)
                assert served.signed(data, transport.send(data))[0] == code  # signed for just these bytes
        with Reader.open(served.folder / FILE) as store:
            with way.coordinator():
                for each in (north, south):
                    each.join()
                over = [threads.submit(each.work) for each in (north, south)]
                until(lambda: store.version or any(each.done() for each in over))
            time.sleep(0.2)
            with way.coordinator():
                until(lambda: all(each.done() for each in over))
                revoke(served.folder, "north")
                with contextlib.closing(way.opened("north")) as transport, pytest.raises(SiteRefused, match="revoked"):
                    north.letters(transport).exchange(b"")
            assert [each.exception() for each in over] == [None, None]
            found = check(store, {"north": north.files, "south": south.files})
            assert (found.holds, found.updates, store.over) == (True, 2 * UPDATES, True)


@pytest.mark.parametrize("size", [0, LARGEST + 1])
def test_what_is_too_large_is_refused_before_it_is_sent(size: int, tmp_path: Path) -> None:
    nobody = Address("https://127.0.0.1:1", "0" * 64, "f", "north", bytes(32))
    for transport in (Https(nobody), Link(tmp_path / "link.sock")):
        with contextlib.closing(transport), pytest.raises(InputError, match=f"{LARGEST} bytes, got {size}"):
            transport.send(bytes(size))


FOREIGN = (
    b"",
    b"<h1>The proxy of the house says no</h1>",
    b"fedviA\x01\x01\x91" + bytes(64) + b"The coordinator refuses",  # 401, signed by nobody
    b"fedviA\x01\x00\xc8",
)


@pytest.mark.parametrize("answer", FOREIGN)
@pytest.mark.parametrize("code", [200, 401, 403, 500])
def test_nothing_but_a_signed_refusal_stops_a_site_over_https(answer: bytes, code: int, tmp_path: Path) -> None:
    head = f"HTTP/1.1 {code} Any\r\nContent-Length: {len(answer)}\r\n\r\n".encode()
    with contextlib.closing(Imposter(tmp_path, head + answer)) as imposter:
        address = Address(imposter.url, imposter.pins[0], "f", "north", public(Ed25519PrivateKey.generate()))
        with contextlib.closing(Https(address)) as transport:
            letters = Correspondence(transport, "f", "north", Ed25519PrivateKey.generate(), address.coordinator)
            with pytest.raises(NotReached):
                letters.exchange(b"message")


@pytest.mark.parametrize("answer", FOREIGN[1:])
def test_nothing_but_a_signed_answer_reaches_a_site_from_a_relay(answer: bytes, tmp_path: Path) -> None:
    path, right = tmp_path / "link.sock", b"the coordinator's"
    with ThreadPoolExecutor(2) as threads, contextlib.closing(Link(path, fits=lambda _, found: found == right)) as link:
        sent = threads.submit(link.send, b"message")
        with contextlib.closing(Visitor(path)) as relay:
            assert relay.exchange(b"") == b"message"
            assert relay.exchange(answer) == b"message"  # which is still wanted
            threads.submit(relay.exchange, right)
            assert sent.result(LONG) == right
            link.close()  # the relay waits no longer
