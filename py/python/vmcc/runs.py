"""Runs of scenarios."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Iterable, Mapping, Sequence

from . import _program
from .clusters import partial_folder, run_shards
from .results import Results
from .scenario import Scenario, Value, toml_value

#: Parts of the runs on a cluster, unless the caller says another number.
DEFAULT_SHARDS = 16


def run(
    scenario: str | Path | Scenario,
    *,
    set: Mapping[str, Value] | None = None,
    sweep: Mapping[str, Sequence[bool | int | float | str]] | None = None,
    algorithms: Mapping[str, str] | Iterable[str | Path] = (),
    runs: int | None = None,
    seed: int | None = None,
    scale: str = "full",
    engine: str = "sim",
    jobs: int | None = None,
    threads: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    on: str = "local",
    shards: int | None = None,
) -> Results:
    """Runs a scenario: every case of its sweeps, `runs` times each.

    Args:
        scenario: a `Scenario`, the path of a TOML file, or a built-in name (`scenarios()`).
        set: overrides, such as `{"cc": "vmcc", "topology.delay": "5ms"}`.
        sweep: keys with the values that each case has one of, in addition to the scenario's own sweeps.
        algorithms: algorithms of your own: paths of C files, or a mapping of names to C source texts.
        runs: runs of each case; run r has seed `seed` + r.
        seed: seed of the first run.
        scale: `full`, or `small` or `quick` by the scenario's own tables.
        engine: `sim`, or `kernel` (root), `guest`, `auto`.
        jobs: concurrent runs; by default one per processor. Results do not depend on it.
        threads: threads of each run. Results do not depend on it.
        out: folder of the results, absent or empty; by default a temporary one that lives as long as the results.
        resume: continue an interrupted run of the same call with the same `out`.
        progress: print the program's notes while it runs.
        on: `local`; `slurm`, or `slurm:--partition=short --time=60` with options of sbatch, with `out` on a file system that
            the nodes share; `ray`, or a Ray address, with this package on its nodes. Results are the same bytes.
        shards: parts that the runs are divided into on a cluster.

    Raises:
        InvalidInput: the scenario, a key or a value is not valid.
        Unsupported: this host has not what the engine needs.
    """
    folder = tempfile.TemporaryDirectory(prefix="vmcc-results-") if out is None else None
    target = Path(folder.name, "results") if folder is not None else Path(str(out)).absolute()
    if on.startswith("slurm") and out is None:
        raise _program.InvalidInput("on slurm the results need `out`, a folder that the nodes share")
    # Beside the results, where machines that share them see it too.
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".vmcc-", dir=target.parent) as scratch:
        file, sources = _file(scenario, Path(scratch)), _files(algorithms, Path(scratch))
        arguments = ["--json", "run", file, "--engine", engine, "--scale", scale, "--out", str(target)]
        arguments += _settings(set or {}, sweep or {})
        arguments += [text for source in sources for text in ("--algorithm", source)]
        for option, number in {"runs": runs, "seed": seed, "jobs": jobs, "threads": threads}.items():
            arguments += [] if number is None else [f"--{option}", str(number)]
        if on != "local":
            files = [name for name in (file, *sources) if Path(name).is_file()]
            run_shards(on, [_program.path(), *arguments], files, shards or DEFAULT_SHARDS, target, progress)
            # None of them may have begun.
            resume = partial_folder(target).exists()
        _program.call([*arguments, *(["--resume"] if resume else [])], progress=progress)
    return Results(target, folder)


def _file(scenario: str | Path | Scenario, scratch: Path) -> str:
    if not isinstance(scenario, Scenario):
        return str(scenario)
    file = scratch / "scenario.toml"
    file.write_text(scenario.toml(), encoding="utf-8")
    return str(file)


def _settings(fixed: Mapping[str, Value], swept: Mapping[str, Sequence[bool | int | float | str]]) -> list[str]:
    options = [f"{key}={toml_value(value)}" for key, value in fixed.items()]
    for key, values in swept.items():
        if isinstance(values, str):
            raise _program.InvalidInput(f"sweep of {key}: a list of values is expected, not the text {values!r}")
        options.append(f"{key}={','.join(_plain(key, value) for value in values)}")
    return [text for option in options for text in ("--set", option)]


def _plain(key: str, value: bool | int | float | str) -> str:
    """A value of a comma list, which has no quotes."""
    text = toml_value(value).strip('"')
    if "," in text or text[:1] in ("[", "{"):
        raise _program.InvalidInput(
            f"sweep of {key}: {value!r} is no plain value; put it into the scenario's own `sweep`"
        )
    return text


def _files(algorithms: Mapping[str, str] | Iterable[str | Path], scratch: Path) -> list[str]:
    if isinstance(algorithms, (str, Path)):
        return [str(algorithms)]
    if not isinstance(algorithms, Mapping):
        return [str(file) for file in algorithms]
    files = []
    for name, source in algorithms.items():
        if not name.isidentifier():
            raise _program.InvalidInput(f"{name!r} is no name of an algorithm: letters, digits and _ are")
        file = scratch / f"{name}.c"
        file.write_text(source, encoding="utf-8")
        files.append(str(file))
    return files
