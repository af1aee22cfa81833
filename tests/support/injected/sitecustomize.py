"""Python imports this file at its start, if its folder is on PYTHONPATH: it changes fedvi within processes of tests.

FEDVI_INJECTED names the module beside this one that says how. fedvi itself has no switch for such things, on purpose:
whoever can choose a site's noise can take its privacy away.
"""

from __future__ import annotations

import importlib
import os

if "FEDVI_INJECTED" in os.environ:
    importlib.import_module(os.environ["FEDVI_INJECTED"])
