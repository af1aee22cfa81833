"""How fast fedvi is: one private step beside bare matrix products and other libraries, and how cost grows.

Light to import: `run_bench` loads what it measures only after the process was held to one thread.
"""

from benchmarks.run import run_bench

__all__ = ["run_bench"]
