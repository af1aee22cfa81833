"""What each site contributes, on the live page and in the report: in a real browser, wide and narrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsers import chromium
from fedvi.federation.page.report import report_page
from fedvi.federation.page.server import LivePage
from fedvi.federation.store.contributions import contributions_of
from fedvi.federation.store.status import Contributions, Status, status_of
from played import SIZES, Played, federation_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """A federation of four sites, of which one was withdrawn."""
    found = Played(tmp_path_factory.mktemp("played"), federation_of(), sd=5.0)
    found.run()
    found.withdraw("big", refresh=1)
    yield found
    found.close()


def opened(browser: Browser, width: int) -> tuple[Page, list[str]]:
    """Return a page, and what will go wrong in it: errors, and what its policy forbids."""
    page, wrong = browser.new_page(viewport={"width": width, "height": 900}), list[str]()
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    return page, wrong


@pytest.mark.parametrize("width", [1280, 420])
def test_the_live_page_shows_what_sites_contribute(browser: Browser, played: Played, width: int) -> None:
    store, contributions = played.coordinator, Contributions(played.coordinator)

    def status() -> Status:
        return status_of(store, contributions=contributions)

    page, wrong = opened(browser, width)
    with LivePage(status) as live:
        page.goto(live.address)
        page.wait_for_selector("#contributions tbody tr")
        rows = page.locator("#contributions tbody tr").all_inner_texts()
        fits = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        state = page.locator("#sites tbody tr").first.inner_text()
    page.close()
    assert [text.split()[0] for text in rows] == list(SIZES)
    said = {each.site: each for each in contributions_of(store)}
    assert said["big"].words in rows[0]
    assert all(f"{each.kl:.3g}" in text for each, text in zip(said.values(), rows, strict=True))
    assert "withdrawn" in state
    assert fits
    assert wrong == []


@pytest.mark.parametrize("width", [1280, 420])
def test_the_report_fits_any_screen_and_its_policy_lets_it_look_as_it_should(
    browser: Browser, played: Played, tmp_path: Path, width: int
) -> None:
    store, path = played.coordinator, tmp_path / "report.html"
    path.write_text(report_page(dataclasses.replace(status_of(store), contributions=contributions_of(store))))
    page, wrong = opened(browser, width)
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("rect").first.evaluate("one => getComputedStyle(one).fill") == "rgb(0, 114, 178)"
    assert contributions_of(store)[0].words in page.locator("main").inner_text()
    page.emulate_media(media="print")
    assert page.locator("thead").first.is_visible()
    page.close()
    assert wrong == []
