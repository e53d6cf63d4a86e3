"""Results of runs as data frames."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any, Mapping

import pandas
import pyarrow.parquet

from . import _program


class Results:
    """A folder of results: `summary.json`, `flows.parquet`, `series.parquet`, `report.html`."""

    def __init__(self, folder: str | Path, owner: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self.folder = Path(folder)
        # A temporary folder is removed with its owner.
        self._owner = owner
        try:
            #: The document of `summary.json`.
            self.summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise _program.InvalidInput(
                f"{self.folder} has no summary.json: it is no result folder, or its run was interrupted"
            ) from error

    @functools.cached_property
    def cases(self) -> pandas.DataFrame:
        """A row per case and run: `case_index`, `set_...` of each swept key, `seed`, and every metric. Distributions are
        divided into `.mean`, `.p50`, `.p99`, `.p999`, `.min`, `.max` and `.samples`."""
        rows = [
            {"case_index": index, **_set(case), "seed": run["seed"], **_flat(run["metrics"])}
            for index, case in enumerate(self.summary["cases"])
            for run in case["runs"]
        ]
        return pandas.DataFrame(rows)

    @functools.cached_property
    def claims(self) -> pandas.DataFrame:
        """A row per claim of the scenario: what it says, whether it holds."""
        return pandas.DataFrame(self.summary["claims"])

    @functools.cached_property
    def flows(self) -> pandas.DataFrame:
        """A row per connection, transfer and request."""
        return pandas.read_parquet(self._file("flows"))

    @functools.cached_property
    def series(self) -> pandas.DataFrame:
        """A row per sample over time: `t_us`, `entity`, `metric`, `value`."""
        return pandas.read_parquet(self._file("series"))

    def polars(self, table: str) -> Any:
        """`flows` or `series` as a data frame of Polars."""
        import polars

        return polars.read_parquet(self._file(table))

    def columns(self, table: str) -> pandas.DataFrame:
        """Unit and meaning of each column of `flows` or `series`."""
        metadata = pyarrow.parquet.read_schema(self._file(table)).metadata or {}
        prefix = b"column."
        described = {key.removeprefix(prefix).decode(): json.loads(text) for key, text in metadata.items() if key.startswith(prefix)}
        return pandas.DataFrame.from_dict(described, orient="index")

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.folder / "report.html"

    @property
    def passed(self) -> bool:
        """False if a claim of the scenario failed."""
        return all(claim["pass"] for claim in self.summary["claims"])

    def _file(self, table: str) -> Path:
        if table not in ("flows", "series"):
            raise _program.InvalidInput(f"{table!r} is no table of results: `flows` and `series` are")
        return self.folder / f"{table}.parquet"

    def __repr__(self) -> str:
        cases = self.summary["cases"]
        return f"Results({self.summary['scenario']}: {len(cases)} cases, {sum(len(case['runs']) for case in cases)} runs)"


def compare(before: Results | str | Path, after: Results | str | Path) -> pandas.DataFrame:
    """Difference of each metric in each case, with its 95 % confidence interval over the seeds (Welch).

    """
    folders = [str(one.folder if isinstance(one, Results) else one) for one in (before, after)]
    document = json.loads(_program.call(["--json", "compare", *folders]))
    rows = [
        {**_set(case), "metric": metric, **_flat(difference)}
        for case in document["cases"]
        for metric, difference in case["metrics"].items()
    ]
    return pandas.DataFrame(rows)


def _set(case: Mapping[str, Any]) -> dict[str, Any]:
    return {"set_" + key.replace(".", "_"): value for key, value in case.get("set", {}).items()}


def _flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    flat = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{statistic}": number for statistic, number in value.items()})
        else:
            flat[name] = value
    return flat
