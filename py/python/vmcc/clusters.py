"""Runs of one scenario on several machines: shards of `vmcc run --shard`, which a last run completes and assembles.

A shard that fails or whose machine dies is no loss: what it has not finished is run again, by the scheduler or at the end.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Sequence

from . import _program

#: Time between two looks at a cluster's queue.
POLL_S = 1.0
#: Times that Ray starts a shard again whose machine died.
RETRIES = 5


def run_shards(
    on: str, command: Sequence[str], files: Sequence[str], shards: int, out: Path, progress: bool
) -> None:
    """Runs the shards of `command` on `slurm`, `slurm:OPTIONS OF SBATCH`, `ray` or a Ray address. `files`: those that it
    reads, for machines without shared folders.

    Raises:
        InvalidInput: `on` is none of these.
        Unsupported: the cluster's client is missing, or refuses.
    """
    kind, _, rest = on.partition(":")
    if kind == "slurm":
        _slurm(shlex.split(rest), command, shards, out, progress)
    elif kind == "ray":
        _ray(on if rest.startswith("//") else rest or "auto", command, files, shards, out, progress)
    else:
        raise _program.InvalidInput(f"on={on!r}: `local`, `slurm`, `slurm:OPTIONS`, `ray` or `ray://HOST:PORT` is expected")


def partial_folder(out: Path) -> Path:
    """Folder of finished runs before the results have their name."""
    return out.with_name(out.name + ".partial")


def _slurm(options: list[str], command: Sequence[str], shards: int, out: Path, progress: bool) -> None:
    """An array job; needs `out` on a file system that the nodes share."""
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-slurm-", dir=out.parent) as logs:
        script = f"exec {shlex.join(command)} --shard $SLURM_ARRAY_TASK_ID/{shards}"
        submit = ["sbatch", "--parsable", f"--array=1-{shards}", "--job-name=vmcc", f"--output={logs}/%a.log", "--requeue"]
        job = _client([*submit, *options, f"--wrap={script}"]).strip().split(";")[0]
        try:
            while _client(["squeue", "--noheader", f"--jobs={job}"], may_fail=True).strip():
                _report(out, progress)
                time.sleep(POLL_S)
        except BaseException:
            subprocess.run(["scancel", job], check=False)
            raise
        _report_failure(Path(logs))


def _client(command: list[str], may_fail: bool = False) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise _program.Unsupported(f"{command[0]} is missing: run this where Slurm's client programs are") from error
    # squeue does not know a job that ended some minutes ago.
    if done.returncode != 0 and not may_fail:
        raise _program.Unsupported(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _report_failure(logs: Path) -> None:
    """What the first shard that failed says: bad input is that of all, and what else is missing is made up for at the end."""
    for log in sorted(logs.glob("*.log")):
        text = log.read_text(encoding="utf-8", errors="replace")
        if re.search(r"^error: ", text, re.MULTILINE):
            sys.stderr.write(f"shard {log.stem}: {text}")
            return


def _ray(address: str, command: Sequence[str], files: Sequence[str], shards: int, out: Path, progress: bool) -> None:
    """Tasks whose finished runs come back as bytes: no shared file system is needed."""
    try:
        import ray
    except ImportError as error:
        raise _program.Unsupported("the library ray is missing: pip install ray") from error
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    inputs = {file: Path(file).read_bytes() for file in files}
    remote: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(run_shard)
    waiting = [remote.remote(list(command), inputs, f"{number}/{shards}") for number in range(1, shards + 1)]
    try:
        while waiting:
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            for part in done:
                _merge(ray.get(part), partial_folder(out))
            _report(out, progress)
    except BaseException:
        for task in waiting:
            ray.cancel(task, force=True)
        raise


def run_shard(command: list[str], inputs: dict[str, bytes], shard: str) -> dict[str, bytes]:
    """Runs a shard here and returns the files of its folder. `inputs`: files of the command, by their names in it."""
    with tempfile.TemporaryDirectory(prefix="vmcc-shard-") as scratch:
        names = {name: str(Path(scratch, Path(name).name)) for name in inputs}
        for name, content in inputs.items():
            Path(names[name]).write_bytes(content)
        own = [names.get(word, word) for word in command]
        out = Path(scratch, "out")
        own[own.index("--out") + 1] = str(out)
        _program.call([*own[1:], "--shard", shard])
        folder = partial_folder(out)
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _merge(files: dict[str, bytes], folder: Path) -> None:
    """Adds a shard's files; the JSON of a run is last, as it says that the run is finished."""
    folder.joinpath("parts").mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name.endswith(".json")):
        target = folder / name
        if not target.exists():
            staged = target.with_name(f".{target.name}")
            staged.write_bytes(files[name])
            staged.rename(target)


def _report(out: Path, progress: bool) -> None:
    if progress:
        finished = len(list(partial_folder(out).glob("parts/*.json")))
        sys.stderr.write(f"\r{finished} runs finished")
        sys.stderr.flush()
