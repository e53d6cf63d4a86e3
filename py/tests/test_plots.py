"""Figures show every case, and refuse what is not there."""

from pathlib import Path

import numpy
import pandas
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


def changed(results: vmcc.Results, **tables: pandas.DataFrame) -> vmcc.Results:
    """The same results with other tables."""
    other = vmcc.Results(results.folder)
    other.__dict__.update(tables)
    return other


def at_two_loads(results: vmcc.Results) -> vmcc.Results:
    """The results as of a sweep over the load, too; at 0.4 all slowdowns and goodputs are ten times as large."""

    def table(frame: pandas.DataFrame) -> pandas.DataFrame:
        high = frame.assign(set_load=0.4, **{name: 10 * frame[name] for name in ("slowdown", "goodput_bps") if name in frame})
        return pandas.concat([frame.assign(set_load=0.2), high], ignore_index=True)

    return changed(results, cases=table(results.cases), flows=table(results.flows), series=table(results.series))


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


def test_further_swept_keys_are_refused_until_one_value_is_chosen(results: vmcc.Results) -> None:
    both = at_two_loads(results)
    draws = (
        plots.cdf,
        plots.slowdown_by_size,
        lambda *args, **options: plots.over_time(*args, "utilization", entity="tier.edge-agg", **options),
        lambda *args, **options: plots.bars(*args, "goodput_bps", **options),
    )
    for draw in draws:
        with pytest.raises(vmcc.InvalidInput, match="besides set_cc: set_load has 0.2, 0.4; .*where="):
            draw(both)
        draw(both, where={"set_load": 0.4}, ax=pyplot.figure().gca())
    single = plots.slowdown_by_size(results, ax=pyplot.figure().gca()).get_lines()[0].get_ydata()
    chosen = plots.slowdown_by_size(both, where={"set_load": 0.4}, ax=pyplot.figure().gca()).get_lines()[0].get_ydata()
    assert chosen == pytest.approx(10 * single)
    bars = plots.bars(both, "goodput_bps", by="set_load", where={"set_cc": "lia"}, ax=pyplot.figure().gca()).patches
    assert bars[1].get_height() == pytest.approx(10 * bars[0].get_height())


def test_whole_numbers_choose_floats(results: vmcc.Results) -> None:
    numbered = changed(results, cases=results.cases.assign(set_fan=numpy.tile([10.0, 20.0, 30.0], 2)))
    assert len(plots.bars(numbered, "goodput_bps", where={"set_fan": 20}).patches) == 2


def test_transfers_above_the_last_edge_are_a_range(results: vmcc.Results) -> None:
    flows = results.flows.copy()
    flows.loc[flows.index[flows.measured & flows.completed & flows.slowdown.notna()][0], "size_bytes"] = 10**9
    x = [line.get_xdata()[-1] for line in plots.slowdown_by_size(changed(results, flows=flows)).get_lines()]
    assert max(x) == 1e9


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
    with pytest.raises(vmcc.InvalidInput, match="'set_rate' is not swept; there are: set_cc"):
        plots.bars(results, "goodput_bps", where={"set_rate": "1gbit"})
    with pytest.raises(vmcc.InvalidInput, match="no case has set_cc 'olia'; there are: lia, vmcc"):
        plots.bars(results, "goodput_bps", where={"set_cc": "olia"})
    with pytest.raises(vmcc.InvalidInput, match="goodput_bps"):
        plots.bars(results, "goodput")
