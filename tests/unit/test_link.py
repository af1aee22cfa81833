"""A site's link and its visitors, and what is delivered to a coordinator: the right bytes, or `NotReached`."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from fedvi.errors import InputError, NotReached
from fedvi.federation.transports import link as module
from fedvi.federation.transports.link import LARGEST, VISITORS, Link, Visitor, deliver

SOON = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "link.sock"


@pytest.fixture
def link(path: Path) -> Iterator[Link]:
    """A link whose answers begin with their request's first five bytes."""
    made = Link(path, SOON, fits=lambda request, answer: answer.startswith(request[:5]))
    yield made
    made.close()


@pytest.fixture
def sender() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * VISITORS) as executor:
        yield executor


@contextlib.contextmanager
def visiting(path: Path) -> Iterator[Visitor]:
    visitor = Visitor(path)
    try:
        yield visitor
    finally:
        visitor.close()


def hand_in(visitor: Visitor, answer: bytes) -> None:
    """Bring an answer, and take no next request."""
    visitor._connection.send_bytes(answer)


def test_a_request_goes_out_and_its_answer_comes_back_unchanged_up_to_the_limit(
    path: Path, sender: ThreadPoolExecutor, link: Link
) -> None:
    requests = [b"first\0\xff", os.urandom(LARGEST), b"third"]
    sent = sender.submit(lambda: [link.send(each) for each in requests])
    with visiting(path) as visitor:
        answer, found = b"", []
        for request in requests:
            found.append(visitor.exchange(answer))
            answer = request[:5] + bytes(LARGEST - 5)
        hand_in(visitor, answer)
        assert found == requests
        assert sent.result() == [request[:5] + bytes(LARGEST - 5) for request in requests]


def test_a_byte_more_than_the_limit_is_refused_and_so_is_nothing(
    path: Path, sender: ThreadPoolExecutor, link: Link
) -> None:
    for wrong in (b"", bytes(LARGEST + 1)):
        with pytest.raises(InputError, match=f"1 to {LARGEST} bytes, got {len(wrong)}"):
            link.send(wrong)
        with pytest.raises(InputError, match=f"1 to {LARGEST} bytes, got {len(wrong)}"):
            deliver(path, wrong, SOON)
    sent = sender.submit(link.send, b"hello")
    with visiting(path) as visitor:
        visitor.exchange(b"")
        with pytest.raises(NotReached):
            visitor.exchange(b"hello" + bytes(LARGEST))
    with visiting(path) as visitor:
        assert visitor.exchange(b"") == b"hello"
        hand_in(visitor, b"hello!")
        assert sent.result() == b"hello!"


def test_what_a_relay_took_when_it_died_the_next_one_takes_again(
    path: Path, sender: ThreadPoolExecutor, link: Link
) -> None:
    sent = sender.submit(link.send, b"hello")
    for _ in range(3):
        with visiting(path) as visitor:
            assert visitor.exchange(b"") == b"hello"
    with visiting(path) as visitor:  # another process may have got the answer to what was taken before
        hand_in(visitor, b"hello back")
        assert sent.result() == b"hello back"


def test_answers_that_do_not_fit_are_dropped_and_the_request_stays(
    path: Path, sender: ThreadPoolExecutor, link: Link
) -> None:
    sent = sender.submit(link.send, b"hello")
    with visiting(path) as one, visiting(path) as other:
        assert one.exchange(b"an error of somebody") == b"hello"
        assert other.exchange(b"") == b"hello"
        assert one.exchange(b"an older answer") == b"hello"
        assert not sent.done()
        held = sender.submit(one.exchange, b"hello back")
        assert sent.result() == b"hello back"
        again = sender.submit(link.send, b"hello again")
        assert held.result() == b"hello again"
        assert other.exchange(b"hello back") == b"hello again"  # late: the answer to what it took is there
        assert not again.done()
        hand_in(other, b"hello you")
        assert again.result() == b"hello you"


def test_relays_that_carry_everything_twice_mix_nothing_up(path: Path, sender: ThreadPoolExecutor, link: Link) -> None:
    over = threading.Event()

    def relay() -> None:
        with visiting(path) as visitor, contextlib.suppress(NotReached):
            answer = b""
            while not over.is_set():
                answer = visitor.exchange(answer)

    relays = [sender.submit(relay) for _ in range(3)]
    requests = [b"%05d" % number for number in range(200)]
    assert [link.send(each) for each in requests] == requests
    over.set()
    link.close()
    for each in relays:
        each.result()


def test_who_waits_gives_up_without_an_answer_and_when_the_link_closes(path: Path, sender: ThreadPoolExecutor) -> None:
    short = Link(path, patience=0.05)
    with pytest.raises(NotReached, match=r"No relay brought an answer to .* within 0\.05 s"):
        short.send(b"hello")
    short.close()
    assert not path.exists()
    closed = Link(path, SOON)
    with visiting(path) as visitor:
        held = sender.submit(visitor.exchange, b"")
        sent = sender.submit(closed.send, b"hello")
        assert held.result() == b"hello"
        closed.close()
        with pytest.raises(NotReached):
            sent.result()
    with pytest.raises(NotReached, match="No site listens"):
        Visitor(path)


@pytest.mark.usefixtures("link")
def test_a_visitor_takes_nothing_when_there_is_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD", 0.05)
    with visiting(path) as visitor:
        assert visitor.exchange(b"") == b""
        assert visitor.exchange(b"an answer that nobody waits for") == b""


def test_one_visitor_too_many_is_sent_away(path: Path, sender: ThreadPoolExecutor, link: Link) -> None:
    with contextlib.ExitStack() as visits:
        there = [visits.enter_context(visiting(path)) for _ in range(VISITORS)]
        held = [sender.submit(each.exchange, b"") for each in there]
        with visiting(path) as one_more, pytest.raises(NotReached, match="has closed its link"):
            one_more.exchange(b"")
        sent = sender.submit(link.send, b"hello")
        assert {each.result() for each in held} == {b"hello"}
        hand_in(there[0], b"hello back")
        assert sent.result() == b"hello back"


def test_a_socket_that_a_killed_process_left_behind_is_replaced(path: Path, sender: ThreadPoolExecutor) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert path.is_socket()
    made = Link(path, SOON)
    sent = sender.submit(made.send, b"hello")
    with visiting(path) as visitor:
        assert visitor.exchange(b"") == b"hello"
        hand_in(visitor, b"back")
        assert sent.result() == b"back"
        made.close()


@pytest.mark.usefixtures("link")
def test_a_path_that_is_taken_or_impossible_is_refused_and_stays_what_it_is(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("rows")
    for taken in (path, file, tmp_path):
        with pytest.raises(InputError, match="Expected a path that is free"):
            Link(taken)
    assert file.read_text() == "rows"
    for impossible in (tmp_path / "no" / "folder", tmp_path / ("x" * 120)):
        with pytest.raises(InputError, match="at which a Unix socket can be made"):
            Link(impossible)
    with visiting(path):
        pass


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_socket_lets_in_its_owner_or_the_group_too(path: Path, mode: int) -> None:
    before = os.umask(0)
    try:
        made = Link(path, mode=mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        made.close()
    finally:
        assert os.umask(before) == 0


class Coordinator(ThreadingUnixStreamServer):
    """Answers with `code`, and with the request or, if there is one, `answer`; after `release` is set."""

    daemon_threads = True
    release: threading.Event
    code, answer = 200, b""


class Handler(BaseHTTPRequestHandler):
    server: Coordinator

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.release.wait(SOON)
        answer = self.server.answer or data if self.path == "/v1/message" else b"wrong path"
        self.send_response(self.server.code)
        self.send_header("Content-Length", str(len(answer)))
        with contextlib.suppress(OSError):  # who asked may be gone
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...

    def address_string(self) -> str:
        return "socket"


@pytest.fixture
def coordinator(path: Path) -> Iterator[Coordinator]:
    with Coordinator(str(path), Handler) as server:
        server.release = threading.Event()
        server.release.set()
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.release.set()
        server.shutdown()
        serving.join()


def test_what_is_delivered_comes_back_as_it_was_answered_whatever_the_code_is(
    path: Path, coordinator: Coordinator
) -> None:
    large = os.urandom(LARGEST)
    assert deliver(path, large, SOON) == large
    coordinator.code, coordinator.answer = 409, b"signed"
    assert deliver(path, b"hello", SOON) == b"signed"


def test_no_answer_a_late_one_and_one_that_is_too_large_are_none(path: Path, coordinator: Coordinator) -> None:
    coordinator.answer = bytes(LARGEST + 1)
    with pytest.raises(NotReached, match=f"1 to {LARGEST} bytes"):
        deliver(path, b"hello", SOON)
    coordinator.release.clear()
    with pytest.raises(NotReached, match="No coordinator answers"):
        deliver(path, b"hello", 0.05)
    with pytest.raises(NotReached, match="No coordinator answers"):
        deliver(path.with_name("nobody.sock"), b"hello", SOON)
