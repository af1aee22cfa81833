"""Make the tables of the first steps: simulated patients of three hospitals, and new patients without an outcome.

    python scripts/make_patients.py

Nobody in them exists. The same files come out on every machine.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"
HOSPITALS = {"north": 1400, "south": 1000, "east": 600}
NEW = 12


def patients(rng: np.random.Generator, hospital: str, rows: int) -> list[dict[str, object]]:
    """Return rows of one hospital; hospitals differ in how old and how ill their patients are."""
    older = {"north": 0.0, "south": 6.0, "east": -5.0}[hospital]
    age = np.clip(rng.normal(61 + older, 15, rows), 18, 98).round()
    sex = rng.choice(["female", "male"], rows)
    smoker = rng.choice(["never", "former", "current"], rows, p=[0.55, 0.25, 0.2])
    pressure = np.clip(rng.normal(132 + 0.2 * (age - 61), 16, rows), 85, 210).round()
    creatinine = np.clip(rng.lognormal(0.05, 0.35, rows), 0.4, 6).round(2)
    stays = rng.poisson(0.8 + (older > 0) * 0.4, rows)
    log_odds = (
        -1.1
        + 0.035 * (age - 61)
        + 0.02 * (pressure - 132)
        + 1.1 * np.log(creatinine)
        + 0.55 * np.minimum(stays, 4)
        + np.select([smoker == "current", smoker == "former"], [0.7, 0.25], 0.0)
        + 0.2 * (sex == "male")
    )
    outcome = np.where(rng.random(rows) < 1 / (1 + np.exp(-log_odds)), "yes", "no")
    measured = rng.random(rows) > 0.06
    return [
        {
            "hospital": hospital,
            "age": int(age[i]),
            "sex": sex[i],
            "smoker": smoker[i],
            "blood_pressure": int(pressure[i]) if measured[i] else "",
            "creatinine": creatinine[i],
            "earlier_stays": int(stays[i]),
            "readmitted": outcome[i],
        }
        for i in range(rows)
    ]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """Write rows as CSV."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Write both tables."""
    rng = np.random.default_rng(20)
    rows = [row for name, size in HOSPITALS.items() for row in patients(rng, name, size)]
    write(EXAMPLES / "patients.csv", [rows[i] for i in rng.permutation(len(rows))])
    hidden = ("hospital", "readmitted")
    new = [{key: value for key, value in row.items() if key not in hidden} for row in patients(rng, "north", NEW)]
    write(EXAMPLES / "new_patients.csv", [{"patient": f"P{i + 1:02}", **row} for i, row in enumerate(new)])


if __name__ == "__main__":
    main()
