"""Reading: from the sites' answers to a posterior and the next question. All of it is post-processing, in NumPy.

    read(plan, model, prior, questions, messages) -> Reading

is a pure function. `questions` are those asked so far, as they were broadcast, `messages` the sum over all sites.

    plan      Plan(questions=14, moments=3, covariance="full", intercept=True, bound=4.0, exclusive=())
              `moments` first questions ask for moments of the rows: `moments_needed(rows, noise, columns, questions)`;
              0 means that there is no privacy: answers are then sums that are not bounded (`exact`).
    first     read(plan, model, prior, [], nothing).question, with `nothing` all zeros
    reading   posterior (FullGaussian, in units of x, double precision), question (the next one, or None), arrived and
              limit, evidence_kept, noise_variance, trusted and reason

| module     | reads |
|------------|-------|
| `full`     | private answers with all of the curvature: honest intervals up to some 40 columns |
| `diagonal` | private answers with the diagonal only |
| `exact`    | answers without noise: Gaussian variational inference by Newton steps |
| `moments`  | second moments of the rows, and rows that are simulated from them |
| `base`     | `Plan`, `Reading`, units of questions and answers |
| `choice`   | `read` |
"""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
