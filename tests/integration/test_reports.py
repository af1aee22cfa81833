"""Reports: the same numbers in every form, figures that show something, a page that needs nothing and harms nobody."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from browsers import chromium
from fedvi.errors import InputError
from fedvi.experiments import MethodResult, Results, RunResult
from fedvi.reports import markdown, merge, render, write_report
from fedvi.reports.build import write_figures
from fedvi.reports.charts import curve, spent, thin
from fedvi.reports.page.page import page
from fedvi.reports.results import Report, split
from fedvi.reports.table import paragraph
from outcomes import make

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "</script><img src=x onerror=alert(1)>{{title}} $x_1 |"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Results:
    made = make(tmp_path_factory.mktemp("run"))
    (made.path / "config.toml").write_text('title = "DP-PVI on Adult" # <b>as typed</b>\n')
    return made


@pytest.fixture(scope="module")
def report(outcome: Results) -> Path:
    return write_report(outcome)


def embedded_data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def only(outcome: Results, methods: set[str]) -> Results:
    """Return the outcome with these methods only, and with nothing published."""
    results = {p: {m: e for m, e in found.items() if m in methods} for p, found in outcome.results.items()}
    return dataclasses.replace(outcome, results={p: found for p, found in results.items() if found}, config={})


def colours(pixels: np.ndarray) -> int:
    """Return how many colours a picture has."""
    numbers = (pixels[..., :3] * 255).astype(int) @ np.array([1, 256, 65536])
    return len(np.unique(numbers))


# The table


def test_rows_hold_means_differences_and_largest_epsilons_of_the_runs(outcome: Results) -> None:
    row = next(row for row in Report(outcome).table if (row.partition, row.method) == ("C", "dp-pvi@0.50"))
    runs = outcome.results["C"]["dp-pvi@0.50"].runs
    accuracy, log_likelihood = row.compared
    assert accuracy.mean is not None
    assert accuracy.mean == pytest.approx(sum(run.acc or 0 for run in runs) / 3)
    assert accuracy.difference == pytest.approx(accuracy.mean - 81.83)
    assert log_likelihood.difference == pytest.approx(np.mean([run.ll or 0 for run in runs]) + 0.4218)
    assert row.spent == pytest.approx((0.53, 0.583))
    assert row.over
    assert row.communications == pytest.approx(np.mean([run.communications for run in runs]))
    assert not any(row.over for row in Report(outcome).table if row.method.startswith(("dp-pvi-strict", "fedvi")))


def test_differences_within_tolerance_agree_and_others_do_not(outcome: Results) -> None:
    near = dataclasses.replace(outcome.results["A"]["pvi"], acc=(85.23 - 0.4, 0.0), ll=(-0.3181 - 0.02, 0.0))
    (row,) = Report(dataclasses.replace(outcome, results={"A": {"pvi": near}})).table
    assert [one.agrees for one in row.compared] == [True, False]


def test_main_table_has_published_epsilons_and_the_second_one_the_others(outcome: Results) -> None:
    assert {row.budget for row in Report(outcome).table} == {None, 0.5, 1.0}
    assert {row.budget for row in Report(outcome).other_budgets} == {0.1}
    assert {row.partition for row in Report(outcome).table} == {"A", "C"}  # no cell of the grid
    unpublished = dataclasses.replace(outcome, config={})
    assert {row.budget for row in Report(unpublished).table} == {None, 0.1, 0.5, 1.0}
    assert Report(unpublished).other_budgets == []


def test_markdown_is_deterministic_and_shows_the_numbers(outcome: Results) -> None:
    text = markdown(outcome)
    assert text == markdown(make(outcome.path))
    lines = text.splitlines()
    assert len({line.count(" |") for line in lines}) == 1
    mean, std = outcome.results["A"]["pvi"].acc or (0, 0)
    expected = f"| A | PVI |  | {mean:.2f} ± {std:.2f} | 85.23 | {mean - 85.23:+.2f} |"
    assert lines[2].startswith(expected)
    assert "paper" not in markdown(dataclasses.replace(outcome, config={}))
    assert markdown(outcome, partitions=["C"]).count("\n") == 2 + 8
    assert [line[:11] for line in markdown(outcome, tradeoff=True).splitlines()[2:]] == ["| A | 0.1 |", "| C | 0.1 |"]


def test_terminal_shows_the_same_numbers_and_says_that_nothing_is_private(outcome: Results) -> None:
    console = Console(width=170, record=True, file=io.StringIO())
    console.print(render(outcome))
    text = console.export_text()
    assert "Simulation: seeded noise, not private." in text
    mean, std = outcome.results["C"]["fedvi@1.00"].acc or (0, 0)
    assert f"{mean:.2f} ± {std:.2f}" in text


# Curves


def test_curve_is_the_mean_over_seeds_and_stays_where_a_seed_ended() -> None:
    group = {
        "seed": np.array([1, 1, 1, 2, 2]),
        "communications": np.array([0, 10, 20, 0, 10]),
        "accuracy": np.array([50.0, 60.0, 80.0, 50.0, 70.0]),
    }
    found = curve(group, "accuracy")
    assert found is not None
    np.testing.assert_allclose(found.x, [0, 10, 20])
    np.testing.assert_allclose(found.mean, [50, 65, 75])
    np.testing.assert_allclose(found.low, [50, 60, 70])
    np.testing.assert_allclose(found.high, [50, 70, 80])
    assert curve(group, "brier") is None
    assert curve(group | {"accuracy": np.full(5, np.nan)}, "accuracy") is None


@pytest.mark.parametrize("length", [1, 2, 199, 200, 201, 10_000])
def test_thinned_moments_keep_both_ends_and_stay_few(length: int) -> None:
    kept = thin(np.arange(float(length)), 200)
    assert len(kept) <= 200
    assert kept[0] == 0
    assert kept[-1] == length - 1


def test_spending_ends_where_the_run_says(outcome: Results) -> None:
    groups = split(outcome.spending)
    entry = outcome.results["C"]["dp-pvi@0.50"]
    for one in spent(groups["C", "dp-pvi@0.50"]):
        assert one.epsilon[-1] == pytest.approx(entry.runs[0].epsilon[one.client])
        assert one.x[-1] == entry.runs[0].last_update[one.client]
    ends = [sorted(run.last_update.values()) for run in entry.runs]
    found = {row.method: row.budget_ends for row in Report(outcome).on("C")}
    assert found["dp-pvi@0.50"] == (float(np.mean([end[0] for end in ends])), float(np.mean([end[-1] for end in ends])))
    assert found["pvi"] is None


# Figures


def test_every_figure_is_written_twice_and_shows_something(report: Path) -> None:
    from matplotlib.image import imread

    names = {"progress_A", "progress_C", "tradeoff", "spending_A", "spending_C", "heatmap"}
    found = {path.name for path in (report.parent / "figures").iterdir()}
    assert found == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    for name in names:
        picture = report.parent / "figures" / f"{name}.png"
        assert 20_000 < picture.stat().st_size < 400_000
        pixels = imread(picture)
        assert pixels.shape[1] >= 900
        assert colours(pixels) > 100
        assert "<dc:date>" not in picture.with_suffix(".svg").read_text()


def test_figures_are_the_same_every_time(outcome: Results, tmp_path: Path) -> None:
    few = only(dataclasses.replace(outcome, results={"C": outcome.results["C"]}), {"fedvi@0.50", "pvi"})
    once, again = (
        write_figures(Report(dataclasses.replace(few, path=tmp_path / name / "run"))) for name in ("once", "again")
    )
    assert len(once) == len(again) == 4
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


# The page


def test_page_needs_no_network_and_is_small(report: Path) -> None:
    text = report.read_text()
    assert len(text) < 2_000_000
    assert not re.search(r"(src|action|data)\s*=\s*[\"']?\w", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert not re.search(r"@import|url\(\s*[\"']?http|<link", text)
    for target in re.findall(r'href="([^"]*)"', text):
        assert (report.parent / target).is_file()
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "Simulation: seeded noise, not private." in text
    assert "&lt;b&gt;as typed&lt;/b&gt;" in text
    assert "fedvi simulate config.toml" in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


def test_page_embeds_the_curves(outcome: Results, report: Path) -> None:
    data = embedded_data(report.read_text())
    assert [partition["name"] for partition in data["partitions"]] == ["A", "C"]
    x, mean, low, high = data["partitions"][1]["progress"]["acc"]["curves"]["pvi"]
    finals = [run.acc or 0 for run in outcome.results["C"]["pvi"].runs]
    assert mean[-1] == pytest.approx(np.mean(finals), abs=0.1)
    assert len(x) == len(mean) == len(low) == len(high) <= 200
    assert data["grid"]["skipped"] == [[0.9, -3.0, "Expected a fraction of at most 1, got 1.2."]]
    cell = {method: result.acc or (0, 0) for method, result in outcome.results["grid[rho=0.5,kappa=-3.0]"].items()}
    value = next(value for x, y, value in data["grid"]["maps"]["acc"] if (x, y) == (0.5, -3.0))
    assert value == pytest.approx(cell["pvi"][0] - cell["global-vi"][0], abs=1e-4)


def test_summary_says_who_kept_to_the_budget(outcome: Results) -> None:
    text = paragraph(Report(outcome))
    assert (
        "“DP-PVI, published rule” exceeded its budgets: with ε = 0.5 a client spent 0.530 by its own rule, 0.583"
        in text
    )
    assert "No client exceeded its budget under “DP-PVI, strict budget” and “fedvi, noise-aware”." in text


def renamed(outcome: Results, path: Path, name: str) -> Results:
    """Return the outcome with a hostile name for a partition, a method, a client and everything else with a name."""
    own = outcome.results["A"]["fedvi@0.50"]
    hostile = dataclasses.replace(own, base=name, label=f"{name} [red]", statement=name)
    results = {name: {name: hostile}, "A": outcome.results["A"]}
    rows = {}
    for table, columns in (("history", outcome.history), ("spending", outcome.spending)):
        taken = (columns["partition"] == "A") & (columns["method"] == "fedvi@0.50")
        copy = {column: values[taken].astype(object) for column, values in columns.items()}
        for column in {"partition", "method", "client"} & set(copy):
            copy[column][:] = name
        kept = {key: np.concatenate([columns[key].astype(object), copy[key]]) for key in columns}
        rows[table] = {key: np.array(values.tolist()) for key, values in kept.items()}
    config = outcome.config | {"title": name, "command": name}
    return dataclasses.replace(outcome, path=path, config=config, results=results, skipped={}, **rows)


def test_hostile_names_are_only_text(outcome: Results, tmp_path: Path) -> None:
    made = renamed(outcome, tmp_path, HOSTILE)
    made = dataclasses.replace(made, results={HOSTILE: made.results[HOSTILE]})
    text = write_report(made).read_text()
    assert "<img" not in text
    assert text.count("</script>") == 4
    assert embedded_data(text)["partitions"][0]["name"] == HOSTILE
    assert all(path.parent == tmp_path / "figures" for path in tmp_path.rglob("*.svg"))
    assert "&lt;img" in markdown(made)
    Console(width=170, quiet=True).print(render(made))


@pytest.mark.parametrize(
    "case", ["empty spending", "one seed", "one method", "regression", "grid only", "nothing", "odd"]
)
def test_reports_of_less_do_not_fail(outcome: Results, tmp_path: Path, case: str) -> None:
    made = dataclasses.replace(outcome, config={}, skipped={})
    results = {"C": outcome.results["C"]}
    if case == "empty spending":
        made = dataclasses.replace(made, results=results, spending={"partition": np.array([]), "method": np.array([])})
    elif case == "one seed":
        made = make(tmp_path, partitions=("A",), seeds=1, grid=False, reference=False, epsilons=(0.5,))
    elif case == "one method":
        made = only(dataclasses.replace(made, results=results), {"pvi"})
    elif case == "regression":
        entry = MethodResult(ll=(-1.5, 0.1), base="pvi", metrics={"rmse": (0.5, 0.01)})
        history = {key: values for key, values in outcome.history.items() if key != "accuracy"}
        made = dataclasses.replace(made, results={"C": {"pvi": entry}}, history=history | {"rmse": history["time"]})
    elif case == "grid only":
        made = dataclasses.replace(made, results={k: v for k, v in outcome.results.items() if "[" in k})
    elif case == "nothing":
        made = dataclasses.replace(made, results={}, history={}, spending={})
    elif case == "odd":
        entry = MethodResult(
            acc=(float("nan"), float("nan")), epsilon=1.0, runs=[RunResult(epsilon={"a": float("inf")})]
        )
        made = dataclasses.replace(made, results={"C": {"_mine@1.0": entry, "pvi": outcome.results["C"]["pvi"]}})
    made = dataclasses.replace(made, path=tmp_path)
    text = write_report(made).read_text()
    embedded_data(text)
    markdown(made)
    Console(quiet=True).print(render(made))
    if case == "regression":
        assert "rmse" in markdown(made)
        assert "accuracy" not in markdown(made)


def test_merged_runs_keep_every_method_under_its_directory(outcome: Results, tmp_path: Path) -> None:
    other = make(tmp_path / "other", partitions=("A",), methods=("pvi",), grid=False, reference=False)
    first = dataclasses.replace(outcome, path=tmp_path / "first")
    both = merge([first, other], tmp_path / "both")
    assert set(both.results["A"]) == {f"first: {m}" for m in outcome.results["A"]} | {"other: pvi"}
    assert len(both.history["seed"]) == len(outcome.history["seed"]) + len(other.history["seed"])
    mean, _ = both.results["A"]["other: pvi"].acc or (0, 0)
    assert f"other: PVI |  | {mean:.2f}" in markdown(both)
    assert "first: DP-PVI, published rule" in page(Report(both))
    with pytest.raises(InputError, match="at least one"):
        merge([], tmp_path)
    with pytest.raises(InputError, match="different"):
        merge([first, first], tmp_path)


# The page in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def open_page(browser: Any, report: Path, complaints: list[str], **settings: Any) -> Page:
    """Open the report without a network; complaints of any kind are collected."""
    context = browser.new_context(offline=True, **settings)
    made: Page = context.new_page()
    made.on("console", lambda message: complaints.append(message.text))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("dialog", lambda dialog: complaints.append(dialog.message))
    made.on("request", lambda sent: None if sent.url == report.as_uri() else complaints.append(sent.url))
    made.goto(report.as_uri())
    return made


def test_page_in_a_browser_shows_what_is_chosen(browser: Any, report: Path, tmp_path: Path) -> None:
    from matplotlib.image import imread

    complaints: list[str] = []
    shown = open_page(browser, report, complaints, viewport={"width": 1280, "height": 900})
    curves = {
        part["name"]: part["progress"]["acc"]["curves"] for part in embedded_data(report.read_text())["partitions"]
    }
    seen = set()
    for name in curves:
        shown.get_by_role("tab", name=name).click()
        rows_shown = shown.locator("#table tbody tr:visible")
        assert rows_shown.count() == 8
        paths = shown.locator("#learning-charts path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
        seen.add((rows_shown.first.inner_text(), "".join(paths)))
        chart = shown.locator("#learning-charts svg.chart").first
        chart.hover(position={"x": 300, "y": 100})
        tooltip = shown.locator("#tooltip").inner_text()
        assert "communications" in tooltip
        value = re.search(r"PVI\s+(\d+\.\d\d)", tooltip)
        assert value
        assert value[1] in {f"{mean:.2f}" for mean in curves[name]["pvi"][1]}
    assert len(seen) == 2
    shown.get_by_role("tab", name="C").press("ArrowLeft")
    assert shown.get_by_role("tab", name="A").get_attribute("aria-selected") == "true"
    drawn = shown.locator('#learning-charts g[data-series="m:pvi"]')
    assert drawn.count() == 2
    shown.locator('#learning-legend button[data-series="m:pvi"]').click()
    assert drawn.count() == 0
    shown.get_by_role("button", name="Show all partitions").click()
    assert shown.locator("#table tbody tr:visible").count() == 2 * (8 + 1)
    for button in shown.get_by_role("button", name=re.compile("Show full range|Zoom")).all():
        button.click()
    assert shown.locator("#spending-charts svg.chart").count() == 3
    assert shown.locator("#grid-charts svg.chart").count() == 2
    shown.screenshot(path=tmp_path / "page.png", full_page=True)
    pixels = imread(tmp_path / "page.png")
    assert colours(pixels) > 100
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_telephone(browser: Any, report: Path, scheme: str) -> None:
    complaints: list[str] = []
    shown = open_page(browser, report, complaints, viewport={"width": 420, "height": 800}, color_scheme=scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 420
    dark = shown.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert complaints == []


def test_hostile_names_do_nothing_in_a_browser(browser: Any, outcome: Results, tmp_path: Path) -> None:
    made = renamed(outcome, tmp_path, HOSTILE)
    report = tmp_path / "report.html"
    report.write_text(page(Report(made)))
    complaints: list[str] = []
    shown = open_page(browser, report, complaints)
    assert shown.locator("img").count() == 0
    assert shown.get_by_role("tab").first.inner_text() == HOSTILE
    shown.locator("#learning-charts svg.chart").first.hover()
    shown.locator("#spending-charts svg.chart").first.hover()
    assert HOSTILE in shown.locator("#tooltip").inner_text()
    assert complaints == []
