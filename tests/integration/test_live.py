"""The live page: it shows what happens while it happens, says when it cannot, and is there for those who may look."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from email.message import Message
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from browsers import chromium
from fedvi.errors import InputError
from fedvi.federation.page import page, server
from fedvi.federation.page.metrics import Metrics
from fedvi.federation.page.page import STATUS_EVERY, Snapshot
from fedvi.federation.page.server import LivePage

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "</script><img src=x onerror=alert(1)>{{css}} \u202eabc"
TOKEN = "a-token-of-the-tests_0123456789"


def make_status(version: int = 40, /, **changed: Any) -> dict[str, Any]:
    """Return the status of a federation of three sites, of which the last has never come."""
    now = time.time()
    site = {"state": "working", "delta": 1e-5, "repeated": 0, "refused": 0, "epsilon_max": 1.0}
    sites = [
        site | {"name": "north", "last_seen": now, "answered": version - version // 4, "rows": 9768, "epsilon": 0.51},
        site | {"name": "south", "last_seen": now - 200, "answered": version // 4, "rows": 421, "epsilon": 1.0},
        dict.fromkeys(site) | {"name": "west", "state": "absent", "last_seen": None, "answered": 0, "refused": 0},
    ]
    for name in ("rows", "epsilon"):
        sites[2][name] = None
    sites[1] |= {"state": "spent", "refused": 1}
    status = {
        "name": "adult",
        "version": version,
        "time": now,
        "started": now - 100,
        "stop": "",
        "over": False,
        "model": "LogisticRegression",
        "features": 50,
        "schema": "ab12",
        "sites": sites,
        "questions": 30,
        "asked": 12,
        "arrived": None,
        "answers": [[v, now - 100 + 100 * v / version, int(v % 4 == 0)] for v in range(1, version + 1)],
        "readings": [[v, now - 100 + 100 * v / version, 1 / v] for v in range(4, version + 1, 4)],
        "scores": [[v, now - 100 + v, 0.8 + 0.001 * v, -0.4 + 0.001 * v] for v in range(1, 31, 3)],
        "refusals": [{"time": now - 9, "site": "south", "code": "out of sequence", "reason": "Expected 7, got 9."}],
        "health": [],
    }
    return status | changed


def ask(live: LivePage, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, Message, str]:
    """Return status, headers and text of an answer."""
    place = urlsplit(live.address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


# The server


@pytest.fixture(scope="module")
def plain() -> Iterator[LivePage]:
    with LivePage(make_status) as live:
        yield live


@pytest.fixture(scope="module")
def guarded() -> Iterator[LivePage]:
    with LivePage(make_status, token=TOKEN) as live:
        yield live


def test_page_and_status_are_all_there_is(plain: LivePage) -> None:
    assert plain.address.startswith("http://127.0.0.1:")
    code, headers, text = ask(plain)
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert "innerHTML" not in text
    code, headers, text = ask(plain, "/status.json")
    assert (code, headers["Content-Type"], json.loads(text)["version"]) == (200, "application/json", 40)
    for path in ("/favicon.ico", "/../etc/passwd", "/status.json/", "//status.json/x", "http://127.0.0.1/"):
        assert ask(plain, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "NONSENSE"])
def test_page_is_to_look_at_only(plain: LivePage, method: str) -> None:
    code, headers, _ = ask(plain, "/status.json", method)
    assert (code, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost:1@evil", ""])
def test_other_names_that_point_to_loopback_are_refused(plain: LivePage, host: str) -> None:
    code, _, text = ask(plain, "/status.json", Host=host)
    assert code == (400 if "@" in host else 421)
    assert "north" not in text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1:80", "[::1]:99"])
def test_names_of_loopback_are_known_at_any_port(plain: LivePage, host: str) -> None:
    assert ask(plain, "/status.json", Host=host)[0] == 200


def test_without_the_token_there_is_nothing(guarded: LivePage) -> None:
    wrong = f"{TOKEN[:-1]}x"
    for path in ("/", "/status.json", "/nothing", f"/?token={wrong}", "/?token=", f"/?token={TOKEN}&token={TOKEN}"):
        code, headers, text = ask(guarded, path)
        assert (code, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "adult" not in text
        assert "Set-Cookie" not in headers
    for authorization in (wrong, f"Bearer {wrong}", f"Basic {TOKEN}", "Bearer", "Bearer \xff"):
        assert ask(guarded, "/status.json", Authorization=authorization)[0] == 401
    assert ask(guarded, "/status.json", Cookie=f"other={TOKEN}; ;=")[0] == 401


def test_the_token_opens_by_header_and_by_link(guarded: LivePage) -> None:
    assert guarded.address.endswith(f"/?token={TOKEN}")
    assert ask(guarded, "/status.json", Authorization=f"Bearer {TOKEN}")[0] == 200
    code, headers, text = ask(guarded, f"/?token={TOKEN}")
    assert (code, headers["Refresh"], text) == (200, "0; url=./", "Opening the page.\n")
    cookie, *rules = headers["Set-Cookie"].split("; ")
    assert set(rules) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert ask(guarded, "/status.json", Cookie=f"a=b; {cookie}")[0] == 200


def test_addresses_that_others_reach_have_a_token() -> None:
    with LivePage(make_status, host="0.0.0.0") as live:
        token = live.address.partition("?token=")[2]
        assert len(token) >= 40
        port = urlsplit(live.address).port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/status.json")
        assert connection.getresponse().status == 401
        connection.close()
        connection.request("GET", "/status.json", headers={"Authorization": f"Bearer {token}", "Host": "any.example"})
        assert connection.getresponse().status == 200
        connection.close()


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(InputError, match="16 to 256"):
        LivePage(make_status, token="short")
    with pytest.raises(InputError, match="address of this machine"):
        LivePage(make_status, host="nowhere.invalid")
    with LivePage(make_status) as live, pytest.raises(InputError, match="Port 0 takes any"):
        LivePage(make_status, port=urlsplit(live.address).port or 0)


def test_many_who_ask_are_one_who_computes() -> None:
    calls = []

    def compute() -> bytes:
        calls.append(threading.current_thread())
        time.sleep(0.05)
        return str(len(calls)).encode()

    async def ask_again_and_again() -> None:
        snapshot = Snapshot(compute, every=0.3)
        assert set(await asyncio.gather(*(snapshot() for _ in range(64)))) == {(200, b"1")}
        await asyncio.sleep(0.35)
        assert await snapshot() == (200, b"2")

    asyncio.run(ask_again_and_again())
    assert threading.main_thread() not in calls


def test_numbers_that_are_not_finite_are_null() -> None:
    with LivePage(lambda: {"nan": float("nan"), "deep": [(float("inf"), 1)]}) as live:
        assert ask(live, "/status.json")[2] == '{"nan":null,"deep":[[null,1]]}'


def test_an_error_is_an_answer_without_its_details(capfd: pytest.CaptureFixture[str]) -> None:
    broken = True

    def status() -> dict[str, Any]:
        if broken:
            raise KeyError("a secret place")
        return make_status()

    with LivePage(status, metrics=lambda: bytes(status()["version"])) as live:
        for path in ("/status.json", "/metrics"):
            code, headers, text = ask(live, path)
            assert (code, headers["Content-Type"], text) == (503, "application/json", '{"error":"KeyError"}')
        assert ask(live)[0] == 200
        broken = False
        time.sleep(STATUS_EVERY)
        assert [ask(live, path)[0] for path in ("/status.json", "/metrics")] == [200, 200]
    assert capfd.readouterr().err == ""


def test_who_waits_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LONGEST_WAIT", 0.1)
    go_on = threading.Event()
    with LivePage(lambda: go_on.wait(10)) as live:
        code, _, text = ask(live, "/status.json")
        assert (code, text) == (503, '{"error":"Busy"}')
        assert ask(live)[0] == 200  # nobody waits for the status but those who ask for it
        go_on.set()
        time.sleep(0.2)
        assert ask(live, "/status.json")[2] == "true"


def test_metrics_are_there_for_those_who_may_look() -> None:
    with LivePage(make_status) as live:
        assert ask(live, "/metrics")[0] == 404
    metrics = Metrics()
    metrics.handled(0.01, 200)
    with LivePage(make_status, metrics.text) as live:
        code, headers, text = ask(live, "/metrics")
        assert (code, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert headers["Cache-Control"] == "no-store"
        found = {family.name: family for family in text_string_to_metric_families(text)}
        assert [(one.labels, one.value) for one in found["fedvi_messages"].samples] == [({"code": "200"}, 1)]
        assert ask(live, "/metrics", Host="evil.example")[0] == 421
        assert ask(live, "/metrics", "POST")[0] == 405
    with LivePage(make_status, metrics.text, host="0.0.0.0", token=TOKEN) as live:
        assert ask(live, "/metrics")[0] == 401
        assert ask(live, "/metrics", Authorization=f"Bearer {TOKEN[::-1]}")[0] == 401
        assert ask(live, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_the_page_shares_an_event_loop_without_holding_it_up() -> None:
    computing = threading.Event()

    def status() -> dict[str, Any]:
        computing.set()
        time.sleep(0.5)
        return make_status()

    async def serve() -> tuple[int, float]:
        live = LivePage(status)
        live.listen()
        asked = asyncio.create_task(asyncio.to_thread(ask, live, "/status.json"))
        longest, last = 0.0, time.monotonic()
        while not asked.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        live.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(ask, live)
        return asked.result()[0], longest

    code, longest = asyncio.run(serve())
    assert computing.is_set()
    assert code == 200
    assert longest < 0.4


# Clients that are slow, greedy or broken


def drip(connection: socket.socket, end: float) -> None:
    """Send a byte at a time, and never a whole line."""
    while time.monotonic() < end:
        connection.sendall(b"G")
        time.sleep(0.05)


def test_slow_and_greedy_clients_are_let_go(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(server, "LONGEST_CONNECTION", 1.5)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    with LivePage(lambda: "x" * 50_000_000) as live:
        place = urlsplit(live.address)
        greedy = [socket.create_connection((place.hostname, place.port), 5) for _ in range(8)]
        began = time.monotonic()
        assert [one.recv(1) for one in greedy[4:]] == [b""] * 4
        greedy[1].sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and takes nothing
        greedy[2].sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert time.monotonic() < began + 1
        with pytest.raises((ConnectionError, TimeoutError)):
            drip(greedy[0], began + 5)
        assert time.monotonic() < began + 3
        assert sum(map(len, iter(lambda: greedy[1].recv(1 << 20), b""))) < 50_000_000
        assert greedy[2].recv(1) == greedy[3].recv(1) == b""
        for one in greedy:
            one.close()
        assert ask(live)[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /?" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc",
    ],
)
def test_what_is_no_request_of_a_page_is_not_answered(
    guarded: LivePage, sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    place = urlsplit(guarded.address)
    with socket.create_connection((place.hostname, place.port), 10) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert ask(guarded)[0] == 401
    assert capfd.readouterr().err == ""


def test_a_request_without_a_host_is_refused(plain: LivePage) -> None:
    place = urlsplit(plain.address)
    with socket.create_connection((place.hostname, place.port), 10) as connection:
        connection.sendall(b"GET /status.json HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 421 ")


# The page in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def open_page(browser: Any, live: LivePage, complaints: list[str], **settings: Any) -> Page:
    """Open the live page; complaints of any kind are collected, and requests to anywhere else."""
    origin = live.address.partition("?")[0]
    context = browser.new_context(**settings)
    made: Page = context.new_page()
    made.on("console", lambda message: complaints.append(message.text))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("dialog", lambda dialog: complaints.append(dialog.message))
    made.on("request", lambda sent: None if sent.url.startswith((origin, "data:")) else complaints.append(sent.url))
    made.goto(live.address)
    wait(made, "#about", "Model")
    return made


def wait(shown: Page, place: str, text: str | re.Pattern[str], seconds: float = 10) -> None:
    """Wait until a place of the page has a text."""
    from playwright.sync_api import expect

    expect(shown.locator(place)).to_contain_text(text, timeout=1000 * seconds)


def test_page_follows_the_federation_by_itself_and_says_when_it_cannot(browser: Any) -> None:
    now: dict[str, Any] = make_status(40)
    complaints: list[str] = []
    with LivePage(lambda: now) as live:
        shown = open_page(browser, live, complaints, viewport={"width": 1280, "height": 900})
        assert shown.locator("h1").inner_text() == "adult"
        assert shown.locator("#state").inner_text() == "Running"
        assert shown.locator("#health-list").inner_text() == "Nothing wrong that the coordinator can see."
        assert shown.locator("#accuracy").inner_text() == "82.80%"
        assert [shown.locator(place).inner_text() for place in ("#asked", "#version", "#arrived")] == [
            "12 of 30",
            "40",
            "\N{EN DASH}",
        ]
        assert [" ".join(row.split()) for row in shown.locator("#sites tbody tr").all_inner_texts()] == [
            "north working just now 30 9,768 ε 0.510 of 1 at δ = 10⁻⁵ 0 0",
            "south spent 3 min ago 10 421 ε 1.000 of 1 at δ = 10⁻⁵ 0 1",
            "west absent never 0 not declared not declared \N{EN DASH} 0",
        ]
        assert shown.locator("#charts svg.chart").count() == 4
        assert "out of sequence\tExpected 7, got 9." in shown.locator("#refusals tbody").inner_text()
        shown.evaluate("document.querySelector('#charts figure').dataset.kept = 'yes'")
        shown.locator("#charts svg.chart").first.hover(position={"x": 500, "y": 100})
        first_tooltip = shown.locator("#tooltip").inner_text()
        assert "north" in first_tooltip
        now = make_status(48, health=["north sleeps."], sites=[*make_status(48)["sites"], now["sites"][0]])
        wait(shown, "#version", "48")
        assert shown.locator("#health-list li").all_inner_texts() == ["north sleeps."]
        assert shown.locator("#sites tbody tr").count() == 4
        assert shown.locator("#charts figure[data-kept=yes]").count() == 1  # drawn again in its place
        assert shown.locator("#tooltip").is_visible()
        shown.locator('#legend button[data-series="s:0"]').click()
        assert shown.locator('#charts g[data-series="s:0"]').count() == 0
        now = make_status(48, stop="Every budget is spent.", over=True, arrived=True)
        wait(shown, "#state", "Ended: Every budget is spent.")
        assert shown.locator("#arrived").inner_text() == "yes"
        assert complaints == []
    wait(shown, "#silence", re.compile(r"No answer since [3-9] s\. What is shown is from \d\d:"))
    assert "Not reached. Last known: Ended" in shown.locator("#state").inner_text()
    assert set(complaints) == {"Failed to load resource: net::ERR_CONNECTION_REFUSED"}
    with LivePage(lambda: now, port=urlsplit(live.address).port or 0):
        shown.locator("#silence").wait_for(state="hidden")


def test_hostile_names_and_reasons_are_only_text(browser: Any) -> None:
    status = make_status(stop=HOSTILE, health=[HOSTILE], name=HOSTILE, model=HOSTILE, schema=HOSTILE)
    status["refusals"] = [{"time": time.time(), "site": HOSTILE, "error": HOSTILE, "reason": HOSTILE * 40}]
    for site in status["sites"]:
        site |= {"name": HOSTILE, "state": HOSTILE}
    complaints: list[str] = []
    with LivePage(lambda: status) as live:
        shown = open_page(browser, live, complaints, viewport={"width": 420, "height": 800})
        assert shown.locator("img").count() == 0
        for place in ("h1", "#state", "#health-list", "#sites", "#legend", "#refusals", "#about"):
            assert HOSTILE in (shown.locator(place).text_content() or "")
        shown.locator("#charts svg.chart").first.hover()
        assert HOSTILE in (shown.locator("#tooltip").text_content() or "")
        assert shown.evaluate("document.documentElement.scrollWidth") <= 420
        assert complaints == []


def test_curves_are_those_of_answers_and_readings(browser: Any, plain: LivePage) -> None:
    shown = open_page(browser, plain, [])
    status = make_status(1)
    started = status["time"] - 200
    status |= {"started": started, "answers": [[v, started + v / 5, int(v > 600)] for v in range(1, 1001)]}
    north, south, west = shown.evaluate("activity", status)
    assert max(y for x, y in zip(north["x"], north["y"], strict=True) if x < 60.1) == 300
    assert (north["y"][-1], south["y"][-1], west["y"]) == (600, 400, [])
    status["readings"] = [[3, started, 0.0], [6, started, 1.0], [9, started, 0.01]]
    found = shown.evaluate("changes", status)
    assert found["x"] == [6, 9]
    assert found["y"] == pytest.approx([0, -2])
    words = [shown.evaluate("arrival", {"arrived": each}) for each in (None, True, False)]
    assert words == ["\N{EN DASH}", "yes", "not yet"]
    assert [shown.evaluate("power", value) for value in (1e-5, 2.5e-5, 0.01, 1.0)] == ["10⁻⁵", "2.5·10⁻⁵", "0.01", "1"]


def test_policy_of_the_page_lets_nothing_out(browser: Any, plain: LivePage, guarded: LivePage) -> None:
    shown = open_page(browser, plain, [])
    elsewhere = guarded.address.partition("?")[0]
    code = """(place) => new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
        fetch(place).then(() => done("sent"), () => {});
    })"""
    assert shown.evaluate(code, elsewhere) == "connect-src"


def test_a_link_with_the_token_opens_the_page_even_from_another_site(browser: Any, guarded: LivePage) -> None:
    complaints: list[str] = []
    shown = open_page(browser, guarded, complaints)
    assert shown.url == guarded.address.partition("?")[0]
    assert shown.evaluate("document.cookie") == ""
    assert complaints == []
    shown = browser.new_context().new_page()
    shown.set_content(f'<a href="{guarded.address}">a link in a mail</a>')
    shown.get_by_role("link").click()
    wait(shown, "#version", "40")
    assert "token" not in shown.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_before_anything_happened_fits_a_telephone(browser: Any, scheme: str) -> None:
    nothing = make_status(1, version=0, started=None, answers=[], readings=[], scores=[], refusals=[], sites=[])
    complaints: list[str] = []
    with LivePage(lambda: nothing) as live:
        shown = open_page(browser, live, complaints, viewport={"width": 420, "height": 800}, color_scheme=scheme)
        assert shown.locator("#state").inner_text() == "Waiting for the first release"
        assert shown.get_by_text("No site yet.").is_visible()
        assert shown.evaluate("document.documentElement.scrollWidth") <= 420
        dark = shown.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
        assert complaints == []
