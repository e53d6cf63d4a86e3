"""Figures of results with matplotlib. Every function draws into `ax`, or the current axes, and returns the axes.

A line or bar is one value of the swept key `by`. `where` chooses one value of each further swept key, as in
`where={"set_load": 0.4}`; a further key with several values is refused, because their runs are no seeds of one case.

Bands and bars are 95 % confidence intervals of the mean over the seeds (Student's t); of ratios, of the geometric mean.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

import numpy
import pandas
from matplotlib import pyplot

from . import _program
from .results import Results

#: 97.5 % quantiles of Student's t for 1 to 9 degrees of freedom.
T_975 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
#: That of the normal distribution.
Z_975 = 1.960
#: Widths in inches of a figure in a two-column paper.
COLUMN_IN, PAGE_IN = 3.33, 7.0
#: A value of a swept key for each of these columns.
Where = Mapping[str, "bool | float | str"]
#: Sizes of transfers, in bytes, that `slowdown_by_size` divides at.
SIZES_BYTES = [1e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 1e8]


def mean_interval(values: Any) -> tuple[float, float]:
    """Mean and half width of its interval; the latter is 0 for one value."""
    known = numpy.asarray(values, dtype=float)
    known = known[~numpy.isnan(known)]
    if len(known) < 2:
        return (float(known[0]) if len(known) else float("nan")), 0.0
    return float(known.mean()), float(t_975(len(known) - 1) * known.std(ddof=1) / numpy.sqrt(len(known)))


def t_975(freedom: int) -> float:
    """97.5 % quantile of Student's t, good to 0.2 % (from ten degrees on Fisher's expansion, to its second term)."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, n = Z_975, freedom
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def cdf(
    results: Results, column: str = "fct_us", *, by: str = "set_cc", where: Where | None = None, tail: bool = False, ax: Any = None
) -> Any:
    """Distribution of a column of `flows` over measured, completed transfers; with `tail` its complement, on log axes."""
    ax = ax or pyplot.gca()
    flows = _select(results.flows, by, where)
    for name, group in _groups(flows[flows.measured & flows.completed], by):
        values = numpy.sort(group[column].dropna().to_numpy(dtype=float))
        share = numpy.arange(1, len(values) + 1) / len(values)
        ax.step(values, 1 - share + 1 / len(values) if tail else share, where="post", label=name)
    if tail:
        ax.set(xscale="log", yscale="log")
    ax.set(xlabel=column, ylabel="share that takes longer" if tail else "share of transfers")
    ax.legend()
    return ax


def slowdown_by_size(
    results: Results,
    *,
    quantile: float = 0.99,
    by: str = "set_cc",
    where: Where | None = None,
    sizes_bytes: list[float] | None = None,
    ax: Any = None,
) -> Any:
    """Slowdown of measured, completed transfers by their size, a point at the upper edge of each range of sizes.

    Transfers above the last of `sizes_bytes` are a range of their own, up to the largest of them.
    """
    ax = ax or pyplot.gca()
    edges = sizes_bytes or SIZES_BYTES
    flows = _select(results.flows, by, where)
    flows = flows[flows.measured & flows.completed & flows.slowdown.notna()]
    largest = float(flows.size_bytes.max())
    if largest > edges[-1]:
        edges = [*edges, largest]
    flows = flows.assign(size=pandas.cut(flows.size_bytes, [0, *edges]))
    for name, group in _groups(flows, by):
        each = group.groupby(["size", "seed"], observed=True).slowdown.quantile(quantile)
        logs = [(size.right, *mean_interval(numpy.log(values))) for size, values in each.groupby(level=0, observed=True)]
        points = [(size, *numpy.exp([mean, mean - half, mean + half])) for size, mean, half in logs]
        _band(ax, points, name)
    ax.set(xscale="log", yscale="log", xlabel="size of the transfer, bytes", ylabel=f"slowdown, {100 * quantile:g} %")
    ax.legend()
    return ax


def over_time(
    results: Results, metric: str, *, entity: str | None = None, by: str = "set_cc", where: Where | None = None, ax: Any = None
) -> Any:
    """A metric of `series` over time; `entity` may be left out if there is but one."""
    ax = ax or pyplot.gca()
    series = results.series[results.series.metric == metric]
    if series.empty:
        raise _program.InvalidInput(f"no series of {metric!r}; there are: {_names(results.series.metric)}")
    if entity is None and series.entity.nunique() > 1:
        raise _program.InvalidInput(f"{metric!r} has several entities, choose one: {_names(series.entity)}")
    series = series if entity is None else series[series.entity == entity]
    for name, group in _groups(_select(series, by, where), by):
        means = [(t_us / 1e6, *mean_interval(values.value)) for t_us, values in group.groupby("t_us")]
        points = [(time_s, mean, mean - half, mean + half) for time_s, mean, half in means]
        _band(ax, points, name)
    ax.set(xlabel="time, s", ylabel=metric)
    ax.legend()
    return ax


def bars(results: Results, metric: str, *, by: str = "set_cc", where: Where | None = None, ax: Any = None) -> Any:
    """A metric of `cases`, a bar each."""
    ax = ax or pyplot.gca()
    if metric not in results.cases:
        raise _program.InvalidInput(f"no metric {metric!r}; there are: {_names(results.cases.columns)}")
    points = [(name, *mean_interval(group[metric])) for name, group in _groups(_select(results.cases, by, where), by)]
    names, means, halves = zip(*points)
    ax.bar(names, means, yerr=halves, capsize=3)
    ax.set(ylabel=metric)
    return ax


def _select(frame: pandas.DataFrame, by: str, where: Where | None) -> pandas.DataFrame:
    """Rows of the cases that `where` chooses; they differ in `by` alone."""
    swept = [name for name in frame.columns if name.startswith("set_")]
    for key, value in (where or {}).items():
        if key not in swept:
            raise _program.InvalidInput(f"{key!r} is not swept; there are: {', '.join(swept)}")
        chosen = frame[frame[key].map(_plain) == _plain(value)]
        if chosen.empty:
            raise _program.InvalidInput(f"no case has {key} {value!r}; there are: {_names(frame[key])}")
        frame = chosen
    several = [name for name in swept if name != by and frame[name].nunique(dropna=False) > 1]
    if by in swept and several:
        values = "; ".join(f"{name} has {_names(frame[name])}" for name in several)
        raise _program.InvalidInput(f"besides {by}: {values}; choose one value of each: where={{{several[0]!r}: ...}}")
    return frame


def _plain(value: Any) -> str:
    """A value of a swept key, the same in `cases` and in the Parquet files: columns of numbers hold floats."""
    if isinstance(value, (bool, numpy.bool_)):
        return str(value).lower()
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        return str(value)


def _groups(frame: pandas.DataFrame, by: str) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Parts of a frame in the order of the cases; all of it if nothing is swept."""
    if by not in frame:
        swept = [name for name in frame.columns if name.startswith("set_")]
        if swept:
            raise _program.InvalidInput(f"{by!r} is not swept; there are: {', '.join(swept)}")
        yield "all", frame
        return
    for value, group in frame.groupby(by, sort=False):
        yield str(value), group


def _band(ax: Any, points: Sequence[tuple[float, ...]], name: str) -> None:
    """A line and its band; points are x, mean, and both ends of the interval."""
    x, mean, low, high = zip(*points) if points else ((),) * 4
    line = ax.plot(x, mean, label=name, marker="." if len(x) < 20 else None)[0]
    ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def _names(values: Any) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
