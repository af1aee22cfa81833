"""Hostile parties and a real coordinator over TLS: each is refused, counted and logged, nothing changes, and an honest
site is served meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedvi.errors import NotReached
from fedvi.federation import wire
from fedvi.federation.desk import LOGGED, Desk
from fedvi.federation.envelope import ENROL, Correspondence
from fedvi.federation.making import CERTIFICATE, TLS_KEY, pin_of
from fedvi.federation.settings import load_address
from fedvi.federation.store.file import FILE, CoordinatorFile
from fedvi.federation.transports import serving
from fedvi.federation.transports.https import Https
from served import LONG, Caller, Imposter, Served, until, unverified
from small_federation import answer, release

pytestmark = pytest.mark.slow
SITES = ("north", "south")
IDLE, BODY = 6, 3
"""Seconds after which the coordinator of these tests closes connections."""

HEAD = b"POST /v1/message HTTP/1.1\r\nHost: here\r\n"
MOST_SENT = 4 << 20
"""Bytes that fit into buffers on the way, and a little more."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A coordinator at work; north is honest; south has a key; what south has sent before, and was answered."""

    served: Served
    process: int
    north: Caller
    south: Caller
    sent: tuple[bytes, bytes]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with contextlib.closing(Served(tmp_path, *SITES)) as made:
        yield made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("hostile")
    made = Served(folder, *SITES)
    with contextlib.closing(made) as served, served.process(IDLE=IDLE, BODY=BODY) as process:
        north, south = (Caller(served, name, folder / name) for name in SITES)
        south.release()
        sent = south.sealed(south.poll(wire.WORKING)), south.sealed(south.poll(wire.PAUSED))
        for data in sent:
            assert served.post(data)[0] == HTTPStatus.OK
        north.release()
        north.until_asked()
        yield Place(served, process.pid, north, south, sent)


def test_each_hostile_message_gets_a_signed_refusal_is_counted_and_changes_nothing(place: Place) -> None:
    served, south, stranger = place.served, place.south, Ed25519PrivateKey.generate()
    with Desk.open(served.folder) as desk:
        largest = desk.largest
    left = south.poll(wire.LEFT)
    genuine, used = south.sealed(left), {"key": south.invitation.key, "kind": ENROL}
    messages = {
        "signed by a stranger": (south.sealed(left, key=stranger), 401),
        "signed for another federation": (south.sealed(left, federation="0" * 32), 401),
        "in another site's name": (south.sealed(left, name="north"), 401),
        "in the name of nobody": (south.sealed(left, name="west"), 401),
        "altered at its end": (genuine[:-1] + bytes([genuine[-1] ^ 1]), 401),
        "altered at its wait": (genuine[:8] + b"\xff" + genuine[9:], 401),
        "a copy of a poll": (place.sent[0], 409),
        "a copy of the last poll": (place.sent[1], 409),
        "an invitation that was used": (south.sealed(stranger.public_key().public_bytes_raw(), **used), 403),
        "an invitation of another site": (south.sealed(bytes(32), **used, name="north"), 403),
        "no envelope": (b"give me the rows", 400),
        "a byte too long": (bytes(largest + 1), 413),
    }
    codes = Counter("copy" if code == 409 else HTTPStatus(code).phrase.lower() for _, code in messages.values())
    counted = {word: served.refusals(word) for word in codes}
    before = served.content("north")
    with place.north.at_work():
        for what, (data, code) in messages.items():
            status, reply = served.post(data)
            assert (status, served.signed(data, reply)[0]) == (code, code), what
        assert served.content("north") == before
    until(lambda: all(served.refusals(word) == counted[word] + number for word, number in codes.items()))
    logged = Counter(each["code"] for each in served.log if each["event"] == "refused" and "code" in each)
    assert logged >= Counter(code for _, code in messages.values())


def connect(served: Served) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", served.port), LONG)
    return unverified().wrap_socket(plain)


def closed(connection: socket.socket) -> bytes:
    """Return what comes until a connection is closed by the other end."""
    found = b""
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            found += part
    return found


@pytest.mark.parametrize(
    ("how", "part"),
    [
        (b"Content-Length: 100000000", bytes(10000)),
        (b"Transfer-Encoding: chunked", b"2710\r\n" + bytes(10000) + b"\r\n"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        (b"Content-Length: 5\r\nContent-Length: 6", b"x"),
        (b"Content-Length: -1", b"x"),
    ],
)
def test_of_bodies_without_measure_next_to_nothing_is_taken(how: bytes, part: bytes, place: Place) -> None:
    served, sent = place.served, 0
    before, counted = served.content("north"), served.refusals("no http")
    with place.north.at_work(), contextlib.closing(connect(served)) as connection:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            connection.sendall(HEAD + how + b"\r\n\r\n")
            while sent < 100_000_000:
                connection.sendall(part)
                sent += len(part)
        assert sent < MOST_SENT
        assert closed(connection)[:12] in (b"HTTP/1.1 400", b"")
        assert served.content("north") == before
    until(lambda: served.refusals("no http") == counted + 1)


def test_a_message_is_taken_as_bytes_whatever_a_proxy_calls_it(place: Place) -> None:
    """As a form, it would have too many fields, and as parts none: the site could not get it through for ever."""
    data = b"&" * 5000
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=&", "application/octet-stream"):
        code, answer = place.served.post(data, **{"Content-Type": kind})
        assert code == HTTPStatus.BAD_REQUEST
        assert place.served.signed(data, answer)[0] == HTTPStatus.BAD_REQUEST  # the coordinator's own word


def test_what_is_no_message_at_all_is_sent_away(place: Place) -> None:
    served = place.served
    before, counted = served.content("north"), served.refusals("no http")
    with place.north.at_work():
        assert served.post(b"", "GET", "/v1/health") == (HTTPStatus.OK, b"ok\n")
        assert served.post(b"", "GET")[0] == HTTPStatus.METHOD_NOT_ALLOWED
        assert served.post(b"", path="/../coordinator.key")[0] == HTTPStatus.NOT_FOUND
        assert closed(socket.create_connection(("127.0.0.1", served.port))) == b""  # after IDLE
        for words in (b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + bytes(10000)):
            connection = connect(served)
            connection.sendall(words)
            assert closed(connection)[:12] in (b"HTTP/1.1 400", b"")
        plain = socket.create_connection(("127.0.0.1", served.port), LONG)
        plain.sendall(b"POST /v1/message HTTP/1.1\r\n\r\n")
        assert b"fedvi" not in closed(plain)
        assert served.content("north") == before
    until(lambda: served.refusals("no http") == counted + 3)
    assert served.refusals("not found") >= 1
    assert served.refusals("method not allowed") >= 1


def trickle(connection: socket.socket, data: bytes) -> float:
    """Send a byte now and then until the other end has had enough; return after how many seconds."""
    began = time.monotonic()
    with contextlib.closing(connection), contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.settimeout(0.2)
        for byte in data:
            connection.sendall(bytes([byte]))
            with contextlib.suppress(TimeoutError):
                if not connection.recv(1000):
                    break
    return time.monotonic() - began


def test_five_hundred_idle_and_some_slow_connections_are_closed_and_hold_up_nobody(place: Place) -> None:
    served = place.served
    files = Path(f"/proc/{place.process}/fd")
    before, opened = served.content("north"), len(os.listdir(files))
    hello, ours = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        unverified().wrap_bio(ours, hello).do_handshake()
    with place.north.at_work(), ThreadPoolExecutor(20) as threads:
        body = connect(served)
        body.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        slow = {
            "handshake": (socket.create_connection(("127.0.0.1", served.port), LONG), hello.read()),
            "headers": (connect(served), HEAD + b"X: " + b"x" * 1000),
            "body": (body, b"x" * 1000),
        }
        slow_ones = {what: threads.submit(trickle, *each) for what, each in slow.items()}
        idle = list(threads.map(connect, [served] * 500))
        assert served.metric("process_resident_memory_bytes") < 200e6
        for what, one in slow_ones.items():
            assert one.result(LONG) < 10 * IDLE, what
        for connection in idle:
            assert closed(connection) == b""
        assert served.content("north") == before
    until(lambda: len(os.listdir(files)) < opened + 20)


def test_a_flood_of_garbage_fills_neither_memory_nor_log(served: Served, tmp_path: Path) -> None:
    with served.process(), Desk.open(served.folder) as desk:
        north = Caller(served, "north", tmp_path / "north")
        garbage = b"", b"x" * desk.largest, bytes(1000), north.sealed(north.poll(), federation="other")

        def flood(times: int) -> None:
            there = http.client.HTTPSConnection("127.0.0.1", served.port, timeout=LONG, context=unverified())
            with contextlib.closing(there):
                for number in range(times):
                    there.request("POST", "/v1/message", garbage[number % len(garbage)])
                    reply = there.getresponse()
                    assert reply.status in (400, 401)
                    reply.read()

        flood(200)
        north.until_asked()
        before, memory = served.content("north"), served.metric("process_resident_memory_bytes")
        with north.at_work(), ThreadPoolExecutor(4) as threads:
            list(threads.map(flood, [400] * 4))
            assert served.content("north") == before
        until(lambda: served.refusals("bad request") == 0.75 * 1800)
        assert served.refusals("unauthorized") == 0.25 * 1800
        assert served.metric("process_resident_memory_bytes") < memory + 20e6
        assert len(served.log) < 2 * LOGGED + 20


def test_who_takes_no_answers_is_closed_and_sites_do_not_notice_that_connections_end(
    served: Served, tmp_path: Path
) -> None:
    with served.process(LONGEST=1.0):
        north = Caller(served, "north", tmp_path / "north")
        connected, gone = contextlib.closing(connect(served)), contextlib.suppress(ConnectionError, ssl.SSLError)
        with north.at_work(), connected as greedy, gone:
            while True:
                greedy.sendall(b"GET /v1/health HTTP/1.1\r\nHost: here\r\n\r\n" * 100)
        assert north.ask().applied == 1


# Two of one name


def test_of_two_connections_that_wait_for_one_site_the_newest_is_kept_and_one_that_vanishes_is_forgotten(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LONGEST_WAIT", 1000.0)
    with served.in_thread() as service, ThreadPoolExecutor(2) as threads:
        south = Caller(served, "south", tmp_path / "south")
        south.until_asked()
        first, second = (Caller(served, "north", tmp_path / "north") for _ in range(2))
        first.release()  # south has still to answer: who asks now waits
        second.made = first.made
        waits = threads.submit(first.ask, wait=True)
        until(lambda: "north" in service._held)
        held = service._held["north"]
        newer = threads.submit(second.ask, wait=True)
        assert waits.result(LONG).kind == wire.WAIT
        until(lambda: service._held.get("north") not in (None, held))
        south.release()
        assert newer.result(LONG).kind == wire.QUESTION
        assert not service._held

        first.release()
        data = first.sealed(first.poll(), wait=255)
        with contextlib.closing(connect(served)) as vanishing:
            vanishing.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data)
            until(lambda: "north" in service._held)
        until(lambda: not service._held)


def test_nobody_waits_longer_than_the_coordinator_wants(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LONGEST_WAIT", 0.2)
    with served.in_thread() as service:
        north, south = (Caller(served, name, tmp_path / name) for name in SITES)
        south.ask()
        north.release()  # south has still to answer: who asks now waits
        data = north.sealed(north.poll(), wait=255)
        code, body = served.signed(data, served.post(data)[1])
        assert (code, answer(body).kind) == (HTTPStatus.OK, wire.WAIT)
        assert not service._held


def test_two_processes_with_one_key_lose_nothing_and_only_one_of_them_goes_on(served: Served, tmp_path: Path) -> None:
    with served.process():
        one, other = (Caller(served, "north", tmp_path / "north") for _ in range(2))
        with ThreadPoolExecutor(2) as threads:  # counters of both grow past each other
            answered = list(threads.map(lambda caller: [asks(caller) for _ in range(30)], (one, other)))
        assert all(any(each) for each in answered)
        one.release(seed=1)
        one.until_asked()
        before = served.content("north")
        for refused in (other.ask(), other.answered(seed=2)):
            assert (refused.kind, refused.code, refused.applied) == (wire.REFUSED, "out of sequence", 1)
        assert served.content("north") == before
        assert one.release(seed=1).applied == 2


def asks(caller: Caller) -> bool:
    """Tell whether a question is answered."""
    with contextlib.suppress(NotReached):
        return caller.ask().kind == wire.QUESTION
    return False


# A coordinator that is none


@pytest.mark.parametrize("certificates", [1, 2])
@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.0 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]
)
def test_a_site_that_finds_another_certificate_says_nothing_about_itself(
    answer: bytes, certificates: int, place: Place, tmp_path: Path
) -> None:
    north, taken = place.north, list[str]()
    with contextlib.closing(Imposter(tmp_path, answer, certificates)) as imposter:
        address = msgspec.structs.replace(north.address, url=imposter.url)
        with contextlib.closing(Https(address, taken.append)) as transport:
            letters = Correspondence(transport, address.federation, "north", north.key, address.coordinator)
            for _ in range(3):
                with pytest.raises(NotReached, match="not the one in the invitation"):
                    letters.exchange(north.poll())
        assert imposter.visits >= 3
    assert not taken
    for own in (b"north", address.federation.encode(), north.poll()[:50]):
        assert own not in imposter.heard


def test_a_site_follows_its_coordinator_to_a_new_certificate_and_remembers_it(served: Served, tmp_path: Path) -> None:
    with served.in_thread():
        north = Caller(served, "north", tmp_path / "north")
        north.ask()
    for name in (CERTIFICATE, TLS_KEY):
        (served.folder / name).unlink()
    with served.in_thread():
        assert north.ask().kind == wire.QUESTION
        assert load_address(tmp_path / "north").tls == pin_of(served.folder) != north.address.tls


def test_an_old_answer_to_a_new_question_is_none(place: Place) -> None:
    class Old:
        wait, answers = 0.0, list[bytes]()

        def send(self, data: bytes) -> bytes:
            self.answers.append(place.served.post(data)[1])
            return self.answers[0]

        def close(self) -> None:
            pass

    south = place.south
    letters = Correspondence(Old(), place.served.identity, "south", south.key, place.served.public)
    letters.exchange(south.poll(wire.PAUSED))
    with pytest.raises(NotReached, match="not signed for this request"):
        letters.exchange(south.poll(wire.PAUSED))


# A coordinator in need


def test_on_a_full_disk_all_is_a_signed_503_and_with_room_it_goes_on(served: Served, tmp_path: Path) -> None:
    with served.process() as running, CoordinatorFile.open(served.folder / FILE) as file:
        north, south = (Caller(served, name, tmp_path / name) for name in SITES)
        south.release()
        south.ask(state=wire.LEFT)
        north.release()
        north.until_asked()
        soft, hard = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (1, hard))
        update = release(served.description, 2)
        before = served.content("north")
        for body in (update, north.poll(wire.PAUSED), update):
            data = north.sealed(body)
            code, reply = served.post(data)
            assert (code, served.signed(data, reply)[0]) == (503, 503)
            with pytest.raises(NotReached, match="503"):
                north.letters.exchange(body)
        assert served.content("north") == before
        file.withdraw(["south"], 0, time.time())  # all answers have to be read anew, and cannot be
        time.sleep(3 * serving.LOOK)
        assert running.poll() is None
        readings = len(file.readings())
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (soft, hard))
        until(lambda: len(file.readings()) > readings)
        assert north.release().applied == 2
        until(lambda: served.refusals("service unavailable") == 6)


def test_without_room_for_more_files_those_who_are_there_are_served_and_nothing_breaks(
    served: Served, tmp_path: Path
) -> None:
    with served.process("prlimit", "--nofile=160:160") as running:
        north = Caller(served, "north", tmp_path / "north")
        north.ask()
        with north.at_work(), contextlib.ExitStack() as many:
            for _ in range(300):
                many.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            until(lambda: served.refusals("too many connections") >= 200)
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (3, 160))
        with socket.create_connection(("127.0.0.1", served.port)):
            until(lambda: any(each["event"] == "fault" for each in served.log))
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (160, 160))
        with north.at_work():
            pass
        assert Caller(served, "south", tmp_path / "south").ask().kind == wire.QUESTION
        assert len(served.log) < 2 * LOGGED + 20


def test_a_coordinator_that_is_stopped_with_requests_under_way_ends_cleanly_and_goes_on_later(
    served: Served, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as threads:
        with served.process() as running:
            north, south = (Caller(served, name, tmp_path / name) for name in SITES)
            south.ask()
            north.release()
            waits = threads.submit(north.ask, wait=True)
            busy = threads.submit(asking_until_it_fails, south.ask)
            time.sleep(0.5)
        for each in (waits, busy):
            assert isinstance(each.exception(LONG), NotReached)
        assert running.returncode == 130
        assert "Traceback" not in served.output
        assert "fault" not in served.output
        with served.process():
            assert south.release().applied == 1
            assert north.release().applied == 2


def asking_until_it_fails(ask: Callable[[], object]) -> None:
    while True:
        ask()
