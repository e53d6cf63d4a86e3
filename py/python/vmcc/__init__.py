"""Multipath congestion control: run scenarios of the packet-level simulator and take their results as data frames.

    import vmcc
    results = vmcc.run("examples/fat-tree-fct", sweep={"cc": ["lia", "vmcc"]}, runs=5, scale="small")
    results.cases[["set_cc", "goodput_bps", "slowdown.p99"]]

Units are in the names: `_bps` bits per second, `_us` microseconds, `_bytes`, `_pkt`; `Results.columns` has them all with
their meaning. Results are the same bytes as those of the command line.
"""

from ._program import InterruptedRun, InvalidInput, Unsupported, VmccError, version
from .results import Results, compare
from .runs import run
from .scenario import Scenario, graph, scenarios

__all__ = [
    "InterruptedRun",
    "InvalidInput",
    "Results",
    "Scenario",
    "Unsupported",
    "VmccError",
    "compare",
    "graph",
    "run",
    "scenarios",
    "version",
]
