"""Runs on real clusters of several nodes on this machine, of which one is killed: the bytes are those of a local run.

Needs `scripts/setup.sh clusters`, and root for Slurm.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import vmcc

CASES: dict[str, Any] = {"sweep": {"cc": ["lia", "olia", "balia"]}, "runs": 8, "scale": "quick"}
SCENARIO = "examples/dumbbell"
#: Much longer than any test waits.
HANGS_S = 300


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> vmcc.Results:
    return vmcc.run(SCENARIO, **CASES, out=tmp_path_factory.mktemp("local") / "results")


def same(results: vmcc.Results, local: vmcc.Results) -> None:
    for file in ("flows.parquet", "series.parquet", "scenario.toml"):
        assert (results.folder / file).read_bytes() == (local.folder / file).read_bytes(), file
    assert results.summary["cases"] == local.summary["cases"]


def until(condition: Callable[[], Any], what: str) -> None:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < HANGS_S, what
        time.sleep(0.05)


def kill_after_some_runs(out: Path, kill: Callable[[], Any]) -> threading.Thread:
    def work() -> None:
        until(lambda: len(list(out.with_name(out.name + ".partial").glob("parts/*.json"))) > 2, "no run finished")
        kill()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.cluster
def test_ray_with_a_killed_node(local: vmcc.Results, tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        killer = kill_after_some_runs(tmp_path / "out", lambda: cluster.remove_node(node, allow_graceful=False))
        results = vmcc.run(SCENARIO, **CASES, on="ray", shards=8, out=tmp_path / "out")
        killer.join()
        same(results, local)
        own = vmcc.Scenario.builtin(SCENARIO)
        assert vmcc.run(own, **CASES, on="ray", shards=3).summary["cases"] == local.summary["cases"]
        with pytest.raises(vmcc.InvalidInput, match="dumbbell"):
            vmcc.run("examples/dumbell", on="ray", shards=2)
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A controller and two nodes; the processes of the nodes."""
    programs = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("munged", "slurmctld", "slurmd")}
    key, munge = tmp_path / "key", tmp_path / "munge.socket"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    ports = free_ports(4)
    config = tmp_path / "slurm.conf"
    config.write_text(f"""
ClusterName=test
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={tmp_path}/state
SlurmdSpoolDir={tmp_path}/spool-%n
SlurmdPidFile={tmp_path}/%n.pid
SlurmctldPidFile={tmp_path}/slurmctld.pid
SlurmdLogFile={tmp_path}/%n.log
SlurmctldLogFile={tmp_path}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=5
NodeName=n1 NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
""")
    for folder in ("state", "spool-n1", "spool-n2"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("SLURM_CONF", str(config))
    start = lambda name, *arguments: subprocess.Popen([str(programs[name]), *arguments])
    daemons = [
        start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}", f"--pid-file={tmp_path}/munged.pid",
              f"--seed-file={tmp_path}/munged.seed", f"--log-file={tmp_path}/munged.log"),
        start("slurmctld", "-D", "-f", str(config)),
    ]
    nodes = [start("slurmd", "-D", "-N", name, "-f", str(config)) for name in ("n1", "n2")]
    idle = lambda: subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True).stdout.strip()
    try:
        until(lambda: idle() == "2", "nodes are not idle")
        yield nodes
    finally:
        for process in [*nodes, *reversed(daemons)]:
            process.terminate()
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.mark.cluster
def test_slurm_with_a_killed_node(slurm: list[subprocess.Popen[bytes]], local: vmcc.Results, tmp_path: Path) -> None:
    killer = kill_after_some_runs(tmp_path / "out", lambda: slurm[1].send_signal(signal.SIGKILL))
    results = vmcc.run(SCENARIO, **CASES, on="slurm", shards=6, out=tmp_path / "out")
    killer.join()
    same(results, local)
    with pytest.raises(vmcc.Unsupported, match="sbatch failed"):
        vmcc.run(SCENARIO, on="slurm:--partition=none", out=tmp_path / "other")


def test_places_that_do_not_exist_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(vmcc.InvalidInput, match="`local`, `slurm`"):
        vmcc.run(SCENARIO, on="sturm", out=tmp_path / "out")
    with pytest.raises(vmcc.InvalidInput, match="need `out`"):
        vmcc.run(SCENARIO, on="slurm")
    monkeypatch.setenv("VMCC", shutil.which("true") or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(vmcc.Unsupported, match="sbatch is missing"):
        vmcc.run(SCENARIO, on="slurm", out=tmp_path / "out")
