import matplotlib
import pytest

import vmcc

matplotlib.use("Agg")


@pytest.fixture(scope="session")
def results() -> vmcc.Results:
    """Two algorithms, three seeds each."""
    return vmcc.run("examples/fat-tree-fct", sweep={"cc": ["lia", "vmcc"]}, runs=3, scale="small")
