"""What each site contributes: as much as would go if it were withdrawn, no more and no less."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi.federation.page.page import json_of
from fedvi.federation.page.report import report_page
from fedvi.federation.store.contributions import Snapshot, contributions_of, public_rows
from fedvi.federation.store.status import SHOWN_CHANGES, Contributions, Scores, status_of
from fedvi.fitting.from_federation import fitted_of
from fedvi.web.pages import source
from played import OTHERS, SIZES, Played, federation_of, rows_of

HOSTILE = "</style><script>alert(1)</script>{{css}}"


@pytest.fixture(params=[False, True], ids=["logistic", "linear"])
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Played]:
    found = Played(tmp_path, federation_of(linear=request.param), sd=5.0, linear=request.param)
    found.run()
    yield found
    found.close()


@pytest.fixture
def table(played: Played, tmp_path: Path) -> Path:
    """A public table of 200 rows."""
    x, y = rows_of("north", played.linear)
    outcome = y if played.linear else np.where(y > 0, "yes", "no")
    lines = [f"{a},{b},{c}" for (_, a, b), c in zip(x[:200], outcome, strict=False)]
    (tmp_path / "public.csv").write_text("\n".join(["a,b,y", *lines]), encoding="utf-8")
    return tmp_path / "public.csv"


def test_a_contribution_is_what_goes_when_the_site_is_withdrawn(played: Played, table: Path) -> None:
    store, x = played.coordinator, table
    said = {each.site: each for each in contributions_of(store, table)}
    assert list(said) == list(SIZES)
    before, fitted = store.posterior, fitted_of(store)
    played.coordinator.withdraw(["big"], 0, 1.0)
    assert store.read_if_due()
    after, left, own = store.posterior, fitted_of(store), said["big"]
    assert own.kl == pytest.approx(float(before.kl(after)), rel=1e-2)
    for part in ("mean", "std"):
        moved = np.asarray(getattr(before, part)) - np.asarray(getattr(after, part))
        changes = [each.mean_change if part == "mean" else each.sd_change for each in own.changes]
        np.testing.assert_allclose(changes, moved, rtol=1e-2, atol=1e-3 * np.asarray(before.std).max())
    assert [each.feature for each in own.changes] == list(played.chosen.schema.features)
    rows, _ = public_rows(played.chosen.schema, x)
    moved = np.abs(fitted.predict_rows(rows).mean - left.predict_rows(rows).mean)
    assert own.mean_prediction == pytest.approx(moved.mean(), rel=1e-2)
    assert own.largest_prediction == pytest.approx(moved.max(), rel=1e-2)
    assert own.evidence_kept == pytest.approx(np.mean(left.answered.evidence_kept), abs=1e-3)


def test_the_site_that_is_unlike_the_others_contributes_most(played: Played) -> None:
    said = {each.site: each.kl or 0.0 for each in contributions_of(played.coordinator)}
    assert all(said["big"] > 2 * said[name] > 0 for name in OTHERS)


def test_who_has_answered_nothing_has_nothing_in_q(tmp_path: Path) -> None:
    played = Played(tmp_path, federation_of())
    assert {each.problem for each in contributions_of(played.coordinator)} == {"None of its answers has been read."}
    played.run("big")
    big, *others = contributions_of(played.coordinator)
    prior = played.coordinator.first.posterior
    assert big.kl == pytest.approx(float(played.coordinator.posterior.kl(prior)), rel=1e-3)
    assert [(each.answers, each.kl) for each in others] == [(0, None)] * len(OTHERS)
    played.close()


def test_tables_of_a_site_count_together(tmp_path: Path) -> None:
    played = Played(tmp_path, federation_of(("north", "south")), sd=5.0)
    played.coordinator.add_site("north.2")
    played.run()
    north, south = contributions_of(played.coordinator)
    assert (north.tables, south.tables) == (("north", "north.2"), ("south",))
    assert north.answers == 2 * south.answers
    (second,) = Snapshot.of(played.coordinator).contributions(only="north.2")
    assert second.tables == ("north.2",)
    assert second.kl < north.kl  # type: ignore[operator]
    played.close()


def test_what_a_withdrawn_site_had_contributed_stays_known(played: Played) -> None:
    before = contributions_of(played.coordinator)[0]
    played.withdraw("big", refresh=2)
    after = contributions_of(played.coordinator)[0]
    assert (before.withdrawn, after.withdrawn) == (None, 1.0)
    assert after.withdrawal is not None
    assert dataclasses.replace(after, withdrawn=None, withdrawal=None) == before


def test_answers_that_no_reading_can_take_are_named(played: Played) -> None:
    """Without `big`, what is left is beyond all numbers; nothing of it is shown as if it were one."""
    store = played.coordinator
    snapshot = Snapshot.of(store)
    sums: Any = np.array(snapshot.factors.sums)
    sums[1:] = 3e38
    broken = dataclasses.replace(snapshot, factors=dataclasses.replace(snapshot.factors, sums=sums))
    big = broken.contributions()[0]
    assert big.kl is None
    assert big.problem.startswith("q cannot be read without it")


def test_the_page_gets_plain_values_of_the_last_reading_and_waits_for_nothing(played: Played, table: Path) -> None:
    store = played.coordinator
    contributions = Contributions(store, Scores(store, table))
    while not (found := contributions.latest()):
        time.sleep(0.01)  # it is computed in another thread
    wanted = {each.site: each for each in contributions_of(store, table)}
    for each in found:
        assert each == dataclasses.replace(wanted[each.site], changes=tuple(each.changes))
        assert list(each.changes) == wanted[each.site].largest_changes[:SHOWN_CHANGES]
    shown = json.loads(json_of(status_of(store, contributions=contributions)))["contributions"]
    assert shown[0]["kl"] == wanted["big"].kl
    assert shown[0]["changes"][0]["feature"] in played.chosen.schema.features
    assert contributions.latest() is found  # q is as it was


def test_nothing_is_computed_before_anything_is_read(tmp_path: Path) -> None:
    played = Played(tmp_path, federation_of())
    assert Contributions(played.coordinator).latest() == ()
    assert status_of(played.coordinator).contributions == ()
    played.close()


def test_the_report_has_no_script_and_a_policy_for_its_own_style_alone(played: Played, table: Path) -> None:
    played.withdraw("big", refresh=1)
    found = contributions_of(played.coordinator, table)
    status = dataclasses.replace(status_of(played.coordinator), contributions=found, name=HOSTILE, stop=HOSTILE)
    page = report_page(status)
    assert "<script" not in page
    css = page.partition("<style>")[2].partition("</style>")[0]
    assert f"default-src 'none'; style-src {source(css)};" in page
    assert "style=" not in page
    for each in found:
        assert f"<bdi>{each.site}</bdi>" in page
    assert found[0].words in page.replace("&#x27;", "'")
    assert f"{found[0].mean_prediction:.3g}" in page
