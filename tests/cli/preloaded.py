"""Imported once by the fork server of ``runner``: the modules of every command.

No thread may be running when the server forks, so nothing here is more than an import.
"""

import importlib
import pkgutil

import dualplan

for module in pkgutil.walk_packages(dualplan.__path__, "dualplan."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for heavy in ("duckdb", "numba", "rich.table", "scipy.optimize", "scipy.stats", "sympy"):
    importlib.import_module(heavy)
