"""Figures show every case, and refuse what is not there."""

from pathlib import Path

import numpy
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

import vmcc
from vmcc import plots


@pytest.fixture(autouse=True)
def figure() -> None:
    pyplot.close("all")


def labels(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_case_is_drawn(results: vmcc.Results, tmp_path: Path) -> None:
    for draw in (plots.cdf, plots.slowdown_by_size):
        assert labels(draw(results, ax=pyplot.figure().gca())) == ["lia", "vmcc"]
    ax = plots.over_time(results, "utilization", entity="tier.edge-agg", ax=pyplot.figure().gca())
    assert labels(ax) == ["lia", "vmcc"]
    ax.figure.savefig(tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_tail_is_the_complement(results: vmcc.Results) -> None:
    ax = plots.cdf(results, "slowdown", tail=True)
    share = ax.get_lines()[0].get_ydata()
    assert share[0] == 1 and share[-1] > 0 and (numpy.diff(share) < 0).all()


def test_bars_have_the_mean_of_the_seeds(results: vmcc.Results) -> None:
    ax = plots.bars(results, "goodput_bps")
    means = results.cases.groupby("set_cc").goodput_bps.mean()
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([means["lia"], means["vmcc"]])


def test_interval_is_students() -> None:
    mean, half = plots.mean_interval([1.0, 2.0, 3.0, float("nan")])
    assert mean == 2 and half == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert plots.mean_interval([5.0]) == (5, 0)
    for freedom, quantile in ((1, 12.706), (9, 2.262), (10, 2.228), (20, 2.086), (120, 1.980)):
        assert plots.t_975(freedom) == pytest.approx(quantile, rel=0.002)


def test_what_is_not_there_is_named(results: vmcc.Results) -> None:
    with pytest.raises(vmcc.InvalidInput, match="there are: .*utilization"):
        plots.over_time(results, "utilisation")
    with pytest.raises(vmcc.InvalidInput, match="choose one: .*tier.edge-agg"):
        plots.over_time(results, "utilization")
    with pytest.raises(vmcc.InvalidInput, match="is not swept; there are: set_cc"):
        plots.bars(results, "goodput_bps", by="set_rate")
    with pytest.raises(vmcc.InvalidInput, match="goodput_bps"):
        plots.bars(results, "goodput")
