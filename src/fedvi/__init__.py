"""fedvi: federated, differentially private Bayesian learning by partitioned variational inference.

    server:  q = prior * t_1 * ... * t_M
    client:  cavity = q / t_m;  q' = argmin KL(q' || cavity * likelihood_m);  t_m' = t_m * (q' / q)^damping
    server:  q <- q * t_m' / t_m

Start with `fit` for tables, with `simulate` for everything else. The other public names are in `fedvi.families`,
`fedvi.models`, `fedvi.privacy`, `fedvi.inference`, `fedvi.tables`, `fedvi.datasets`, `fedvi.simulation` and
`fedvi.errors`.
"""

from __future__ import annotations

from fedvi.compiling import compile_loops_whole
from fedvi.lazy import lazily

__version__ = "0.2.0.dev0"

compile_loops_whole()
__getattr__, __dir__, __all__ = lazily(__name__)
