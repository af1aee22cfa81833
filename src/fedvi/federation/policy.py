"""What a site allows, whatever a coordinator asks for: limits in a TOML file of the site's own people, `policy.toml`.

    federations = ["readmission"]             names or identities. A coordinator chooses both: this stops mistakes;
                                              who the coordinator is says the key in the invitation
    models = ["logistic", "student_t:StudentT"]
    kinds = ["student_t:StudentT"]            own classes that may be built: building runs their code
    columns = ["age", "sex", "readmitted"]    of the table, that features and target may be read from
    largest_epsilon = 1.0
    largest_delta = 1e-5
    smallest_public_rows = 500
    ask_before_first_release = true           also where `--yes` is given

A key that is missing, or an empty list, limits nothing; only `kinds` allows nothing then. Own classes must be
installed, or in a file beside the policy. Questions and their covariance have no key: the ledger's promise holds for
every question.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from fedvi.checks import in_range, positive, unknown, whole
from fedvi.config import PLACE, fill, kind_of, known, read_toml, search
from fedvi.errors import InputError
from fedvi.federation.description import MODELS, Description

FILE = "policy.toml"


@dataclasses.dataclass(frozen=True)
class Policy:
    """A site's policy, as the module describes it. file: None where there is none."""

    federations: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    largest_epsilon: float | None = None
    largest_delta: float | None = None
    smallest_public_rows: int | None = None
    ask_before_first_release: bool = False
    file: Path | None = None

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if not PLACE.fullmatch(kind):
                raise InputError(f'Expected kinds to be like "module:Class", got {kind!r}.')
        for model in self.models:
            if not PLACE.fullmatch(_place(model)):
                raise unknown("models", model, (*MODELS, *known("model"), "module:Class"))
        for key in ("federations", "columns"):
            if not all(getattr(self, key)):
                raise InputError(f"Expected {key} without an empty name, got {list(getattr(self, key))}.")
        if self.largest_epsilon is not None:
            positive("largest_epsilon", self.largest_epsilon)
        if self.largest_delta is not None:
            in_range("largest_delta", self.largest_delta, 0, 1, open_low=True)
        if self.smallest_public_rows is not None:
            whole("smallest_public_rows", self.smallest_public_rows, 1)

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Return the policy in a file. Its folder is searched for the modules that it names."""
        try:
            policy = fill(cls, read_toml(path, "the policy of a site"), file=path)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if policy.kinds:
            search(path.parent)
        return policy

    @classmethod
    def find(cls, given: Path | None, ledger: Path, folder: Path) -> Policy:
        """Return the policy in the file that the site's people named, else in `policy.toml` beside the ledger, if any.

        folder: of the site. What a coordinator sends is written there, so that a policy in it is refused.
        """
        path = given or ledger.parent / FILE
        if given is None and not os.path.lexists(path):
            return cls()
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"Expected the policy outside of {folder}, where the coordinator's files are, got {path}.")
        return cls.load(path.resolve())

    def check(
        self, description: Description, epsilon: float, delta: float | None = None, public_rows: int | None = None
    ) -> None:
        """Raise `InputError` unless a site may take part like this. None: not known yet; call again when it is."""
        own = description.model
        model = kind_of(type(description.schema.target.model())) if own is None else str(own["kind"])
        if self.federations and not {description.name, description.identity} & set(self.federations):
            named = f"the federation {description.name!r} with the identity {description.identity!r}"
            raise self._refusal("federations", named, "Decline the invitation")
        if self.models and _place(model) not in map(_place, self.models):
            raise self._refusal("models", f"the model {model!r}", "Decline the invitation")
        if self.columns and (others := sorted(set(description.schema.reads()) - set(self.columns))):
            more = f"the schema: it reads {', '.join(map(repr, others))}"
            raise self._refusal("columns", more, "Agree on a schema without them")
        if self.largest_epsilon is not None and not epsilon <= self.largest_epsilon:
            raise self._refusal("largest_epsilon", f"epsilon {epsilon:g}", "Promise less: --eps")
        if self.largest_delta is not None and delta is not None and not delta <= self.largest_delta:
            raise self._refusal("largest_delta", f"delta {delta:g}", "Promise less: --delta")
        if public_rows is not None and public_rows < (self.smallest_public_rows or 0):
            raise self._refusal("smallest_public_rows", f"{public_rows} public rows", "Take part with a larger table")

    def _refusal(self, key: str, what: str, remedy: str) -> InputError:
        limit = getattr(self, key)
        allowed = ", ".join(limit) if isinstance(limit, tuple) else f"{limit}"
        return InputError(f"The policy {self.file} refuses {what}; {key}: {allowed}. {remedy}, or change the policy.")

    @property
    def lines(self) -> list[str]:
        """What it allows, for people who are about to promise: a line for each limit."""
        if self.file is None:
            return ["No policy file limits what this site takes part in."]
        limits = {key: value for key, value in dataclasses.asdict(self).items() if key != "file" and value}
        shown = {key: ", ".join(value) if isinstance(value, tuple) else value for key, value in limits.items()}
        shown = {key: "yes" if value is True else value for key, value in shown.items()}
        head = f"The policy {self.file} allows this" if limits else f"The policy {self.file} limits nothing"
        return [f"{head}{':' if limits else '.'}", *(f"  {key}: {value}" for key, value in shown.items())]


def _place(model: str) -> str:
    """Return where a kind of model is, whichever of its names was given."""
    return known("model").get(kind := MODELS.get(model, model), kind)
