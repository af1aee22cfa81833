"""A site that was withdrawn: its answers are out of q, the others make up for it, and nobody says that it is as if
it had never been there."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedvi.cli.federation.withdrawal import report, withdraw
from fedvi.errors import InputError, SiteRefused, UnknownClient
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.desk import Desk
from fedvi.federation.envelope import Correspondence
from fedvi.federation.site import Site
from fedvi.federation.site_file import SiteFile
from fedvi.federation.store.contributions import contributions_of, prices_of
from fedvi.federation.store.status import status_of
from fedvi.federation.transports.base import run
from fedvi.fitting.from_federation import fitted_of
from fedvi.privacy import Budget
from fedvi.privacy.events import gaussian
from fedvi.pytree import take
from played import OTHERS, SIZES, Played, federation_of
from small_federation import answer, description, open_coordinator, open_site, poll


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    found = Played(tmp_path, federation_of(), sd=5.0)
    found.run()
    yield found
    found.close()


def distances(folder: Path, *, linear: bool = False) -> tuple[list[float], float]:
    """Return KL(q || q of a federation that never had `big`): with it, without it, after 1 and 2 questions."""
    never = Played(folder / "never", federation_of(OTHERS, linear, reserve=0), linear=linear)
    never.run()
    found, estimate = list[float](), 0.0
    for refresh in range(3):
        played = Played(folder / str(refresh), federation_of(linear=linear), linear=linear)
        played.run()
        if refresh == 0:
            found.append(float(played.coordinator.posterior.kl(never.coordinator.posterior)))
        played.withdraw("big", refresh)
        found.append(float(played.coordinator.posterior.kl(never.coordinator.posterior)))
        if refresh == 1:
            withdrawal = contributions_of(played.coordinator)[0].withdrawal
            assert withdrawal is not None
            assert withdrawal.answered == 1
            estimate = float(withdrawal.remains or 0.0)
        played.close()
    never.close()
    return found, estimate


def test_the_posterior_without_a_site_comes_nearer_to_one_that_never_had_it_as_the_others_answer(
    tmp_path: Path,
) -> None:
    (with_it, left_out, once, twice), estimate = distances(tmp_path)
    assert with_it > 100 * left_out
    assert left_out > 3 * once
    assert left_out > 3 * twice
    assert once / 3 < estimate < 3 * once  # what is said to remain does


def test_a_linear_model_is_not_unlearned_exactly_either(tmp_path: Path) -> None:
    """Residuals are cut around the question, and its noise is learned: answers depend on what was asked."""
    (with_it, left_out, once, _), _ = distances(tmp_path, linear=True)
    assert with_it > 100 * left_out > 0.1
    assert left_out > 3 * once


def told(coordinator: Coordinator, name: str) -> str:
    """Return the code with which a site that asks for its next question is refused; empty if it is not."""
    return answer(coordinator.handle(name, poll(coordinator.description, coordinator.site(name).sequence))).code


def test_the_file_of_a_federation_with_a_withdrawal_is_verified_with_it_only(played: Played) -> None:
    store = played.coordinator
    played.withdraw("big", refresh=2)
    assert store.verify() < 1e-6
    assert len({reading.asked for reading in store.readings()}) == 9 - 2  # two about moments are asked before any
    store.change_site("big", withdrawn=None, withdrawn_after=None)
    with pytest.raises(InputError, match="contradicts itself"):
        store.verify()


def test_what_is_exported_lacks_the_site(played: Played) -> None:
    played.withdraw("big")
    fitted = fitted_of(played.coordinator)
    assert [site.name for site in fitted.sites] == list(OTHERS)
    assert "big" not in fitted.statement
    means = np.asarray(fitted.posterior.mean), np.asarray(played.coordinator.posterior.mean)
    np.testing.assert_allclose(*means, atol=1e-3)


def test_a_withdrawn_site_is_shown_and_is_no_longer_missed(played: Played) -> None:
    played.withdraw("big")
    status = status_of(played.coordinator)
    assert {site.name: site.state for site in status.sites} == {"big": "withdrawn"} | dict.fromkeys(OTHERS, "working")
    assert "big" not in " ".join(status.health)


# The parties


def test_a_withdrawn_site_stops_by_a_signed_refusal_and_the_others_are_told(tmp_path: Path) -> None:
    chosen = description(updates=6, reserve=2)
    keys = {name: Ed25519PrivateKey.generate() for name in (*chosen.sites, "coordinator")}
    with open_coordinator(tmp_path, chosen) as coordinator, Desk(coordinator, keys["coordinator"]) as desk:
        public = keys["coordinator"].public_key().public_bytes_raw()
        letters = {}
        for name in chosen.sites:
            coordinator.change_site(name, key=keys[name].public_key().public_bytes_raw())
            letters[name] = Correspondence(Direct(desk), chosen.identity, name, keys[name], public)
        with open_site(tmp_path, chosen, 0) as north, open_site(tmp_path, chosen, 1) as south:
            sites = {"north": north, "south": south}
            for _, name in itertools.product(range(8), sites):
                worked(sites[name], letters[name])
            assert coordinator.version == 8  # the reserve is kept
            coordinator.withdraw(["north"], 1, 1.0)
            with pytest.raises(SiteRefused, match="north' was withdrawn"):
                run(north, letters["north"].exchange, sleep=lambda _: None)
            assert north.request() is None
            for _ in range(3):
                worked(south, letters["south"])
            assert coordinator.site("south").sequence == 5  # it has answered the question that was asked then
            assert coordinator.version == 9
        with SiteFile.open(tmp_path / "south.db") as file:
            assert file.load().news == "north was withdrawn"
        with SiteFile.open(tmp_path / "north.db") as file:
            assert "withdrawn" in file.load().failed
        assert (told(coordinator, "north"), told(coordinator, "south")) == ("withdrawn", "")
        assert coordinator.verify() < 1e-6


def test_sites_understand_their_coordinator_however_many_were_withdrawn(tmp_path: Path) -> None:
    with open_coordinator(tmp_path, description()) as coordinator:
        names = [f"{'west-' * 11}{number}" for number in range(60)]
        for name in names:
            coordinator.add_site(name)
        coordinator.withdraw(names, 0, 1.0)
        assert told(coordinator, "north") == ""


class Direct:
    """A transport to a desk in this process."""

    wait = 0.0

    def __init__(self, desk: Desk):
        self._desk = desk

    def send(self, data: bytes) -> bytes:
        return self._desk.answer(data)

    def close(self) -> None:
        """There is nothing to close."""


def worked(site: Site, letter: Correspondence) -> None:
    """Let a site send once what it has to say, and take the answer."""
    request = site.request()
    assert request is not None
    site.receive(letter.exchange(request))


# The command


def withdrawn_by(played: Played, capsys: pytest.CaptureFixture[str], site: str, **options: object) -> dict[str, object]:
    """Run the command with --json, and return what it says."""
    withdraw(played.folder, site, **{"yes": True, "as_json": True, "refresh": None, **options})  # type: ignore[arg-type]
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_takes_a_site_out_and_asks_two_questions_more(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    before = np.asarray(played.coordinator.posterior.mean)
    found = withdrawn_by(played, capsys, "big")
    assert (found["withdrawn"], found["refresh"], found["problem"]) == (["big"], 2, "")
    after = np.asarray(played.coordinator.posterior.mean)
    assert np.abs(after - before).max() > 0.1  # it was read again, though no coordinator runs
    played.run()
    assert [played.coordinator.site(name).sequence for name in SIZES] == [6, 8, 8, 8]
    assert played.coordinator.verify() < 1e-6


def test_all_tables_of_a_site_go_and_one_goes_alone_if_it_is_named(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("north.2", "north.3"):
        played.coordinator.add_site(name)
    played.run()
    assert withdrawn_by(played, capsys, "north.3", refresh=0)["withdrawn"] == ["north.3"]
    assert withdrawn_by(played, capsys, "north", refresh=0)["withdrawn"] == ["north", "north.2"]
    assert played.coordinator.withdrawn == ("north", "north.2", "north.3")
    with pytest.raises(InputError, match="withdrawn already"):
        withdraw(played.folder, "north", yes=True)


def test_more_than_the_reserve_has_is_refused_with_why(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"up to 3, got 4: .* all else is spent by then. \[plan\] reserve keeps some"):
        withdraw(played.folder, "big", 4, yes=True)
    with pytest.raises(UnknownClient, match="nobody"):
        withdraw(played.folder, "nobody", yes=True)
    with pytest.raises(InputError, match="--yes with --json"):
        withdraw(played.folder, "big", as_json=True)
    assert played.coordinator.withdrawn == ()
    assert withdrawn_by(played, capsys, "big", refresh=3)["refresh"] == 3
    played.run()
    assert withdrawn_by(played, capsys, "north")["refresh"] == 0  # by then nothing is left
    with pytest.raises(InputError, match="up to 0, got 1"):
        withdraw(played.folder, "south", 1, yes=True)


def test_nobody_is_asked_who_has_left(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    for name in OTHERS:
        played.coordinator.change_site(name, state="finished")
    played.coordinator.end("it was enough")
    with pytest.raises(InputError, match="no site is left that can answer"):
        withdraw(played.folder, "big", 1, yes=True)
    assert withdrawn_by(played, capsys, "big")["refresh"] == 0
    assert (played.coordinator.withdrawn, played.coordinator.stop) == (("big",), "it was enough")
    assert played.coordinator.over


def test_the_price_is_shown_before_anybody_is_asked_and_who_says_no_changes_nothing(
    played: Played, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def no(question: str) -> bool:
        shown.extend((capsys.readouterr().out, question))
        return False

    monkeypatch.setattr("typer.confirm", no)
    with pytest.raises(typer.Exit):
        withdraw(played.folder, "big")
    text, question = shown
    assert question == "Withdraw big?"
    after = Budget(1.0, 1e-5).spent({gaussian(30.0, 1, 10): 8})
    assert f"{-(-after * 1e4 // 1) / 1e4:.4f}" in text
    assert "2 of the 3 questions that are left of [plan] reserve" in text
    assert "after question 8" in text
    assert played.coordinator.withdrawn == ()
    prices = prices_of(played.coordinator, ["big"], 2)
    assert [(each.site, each.able, each.epsilon) for each in prices] == [(name, True, 0.25) for name in OTHERS]
    assert all(each.epsilon_after == pytest.approx(after) for each in prices)


def test_what_a_site_declares_without_sense_has_no_price(played: Played) -> None:
    store = played.coordinator
    said = store.site("north").declared
    assert said is not None
    nonsense = [
        (),
        ({"kind": "gaussian", "noise_multiplier": -1.0, "count": 3},),
        ({"kind": "magic"},),
        said.events * 2,
    ]
    for events in nonsense:
        text = json.dumps({**{name: getattr(said, name) for name in said.__struct_fields__}, "events": events})
        store.change_site("north", declared=text)
        assert prices_of(store, ["big"], 1)[0].epsilon_after is None


def test_no_word_says_that_it_is_as_if_the_site_had_never_been_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for linear in (False, True):
        played = Played(tmp_path / str(linear), federation_of(linear=linear), linear=linear)
        played.run()
        withdraw(played.folder, "big", yes=True)
        played.run()
        report(played.folder)
        text = capsys.readouterr().out
        assert "Not exact: " in text
        assert "Estimate of what remains: " in text
        assert "exactly" not in text.lower()
        assert "unlearn" not in text.lower()
        played.close()


def test_what_remains_is_not_guessed(tmp_path: Path) -> None:
    """Not before somebody has answered a question that was asked since, and not where old answers count for long."""
    played = Played(tmp_path / "full", federation_of())
    played.run()
    played.coordinator.withdraw(["big"], 0, 1.0)
    assert contributions_of(played.coordinator)[0].words == "Its answers leave q with the next reading."
    played.run()
    found = contributions_of(played.coordinator)[0].withdrawal
    assert found is not None
    assert (found.answered, found.remains) == (0, None)
    assert "cannot be estimated before" in found.words
    diagonal = Played(tmp_path / "diagonal", federation_of(covariance="diagonal"))
    diagonal.run()
    diagonal.withdraw("big", refresh=2)
    found = contributions_of(diagonal.coordinator)[0].withdrawal
    assert found is not None
    assert (found.answered, found.remains) == (2, None)
    assert "cannot be estimated where" in found.words
    played.close()
    diagonal.close()


def test_a_site_whose_going_would_leave_nothing_to_be_read_stays(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    store = played.coordinator
    factors = store.factors()
    sums = np.full_like(np.asarray(factors.sums)[0], 3e38)
    for place, name in enumerate(SIZES):
        if name != "big":
            store.change_site(name, factor=wire.pack(dataclasses.replace(take(factors, place), sums=sums)))
    with pytest.raises(InputError, match="Nothing was withdrawn: q cannot be read without it"):
        withdraw(played.folder, "big", yes=True)
    assert store.withdrawn == ()
    assert capsys.readouterr().out == ""
