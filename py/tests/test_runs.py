"""Runs from Python: same bytes as the command line, errors as exceptions."""

import subprocess
from pathlib import Path

import pytest

import vmcc
from vmcc import _program

DUMBBELL = "examples/dumbbell"


def test_results_are_the_bytes_of_the_command_line(tmp_path: Path) -> None:
    python = vmcc.run(DUMBBELL, sweep={"cc": ["lia", "olia"]}, runs=2, scale="quick", out=tmp_path / "python")
    command = [_program.path(), "run", DUMBBELL, "--engine", "sim", "--set", "cc=lia,olia", "--runs", "2", "--scale", "quick"]
    # A claim of the shortened scenario may fail.
    assert subprocess.run([*command, "--out", str(tmp_path / "line")], capture_output=True).returncode in (0, 1)
    for file in ("flows.parquet", "series.parquet", "scenario.toml"):
        assert (tmp_path / "python" / file).read_bytes() == (tmp_path / "line" / file).read_bytes(), file
    line = vmcc.Results(tmp_path / "line")
    assert python.summary["cases"] == line.summary["cases"]


def test_cases_have_a_row_per_run_and_the_swept_key(results: vmcc.Results) -> None:
    assert list(results.cases.set_cc) == ["lia"] * 3 + ["vmcc"] * 3
    assert list(results.cases.seed) == [1, 2, 3] * 2
    assert (results.cases.goodput_bps > 0).all() and (results.cases["rtt_us.p99"] > results.cases["rtt_us.p50"]).all()


def test_tables_have_units_and_both_libraries_read_them(results: vmcc.Results) -> None:
    assert results.columns("flows").loc["fct_us", "unit"] == "µs"
    assert set(results.columns("series").index) == set(results.series.columns)
    assert results.polars("flows").height == len(results.flows) > 0
    with pytest.raises(vmcc.InvalidInput, match="`flows` and `series`"):
        results.columns("cases")


def test_scenario_from_python_runs_with_settings() -> None:
    scenario = vmcc.Scenario(
        title="Two paths",
        duration="2s",
        warmup="500ms",
        host={"cc": "lia"},
        topology={"kind": "parallel-paths", "paths": 2, "rate": "100mbit", "delay": "2ms", "buffer": "100pkt"},
        traffic=[{"kind": "bulk"}],
    )
    scenario.check()
    both = vmcc.run(scenario).cases.goodput_bps[0]
    slower = vmcc.run(scenario, set={"topology.rate": "50mbit"}).cases.goodput_bps[0]
    changed = vmcc.run(scenario.changed({"topology.rate": "50mbit", "traffic.0.kind": "bulk"})).cases.goodput_bps[0]
    assert 150e6 < both < 200e6 and slower == changed < 100e6


def test_graph_comes_from_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    network = networkx.Graph()
    network.add_edge("a", "s", rate="50mbit")
    network.add_edge("s", "b")
    scenario = vmcc.Scenario(
        title="A graph",
        duration="2s",
        warmup="500ms",
        topology=vmcc.graph(network, ["a", "b"], rate="100mbit", delay="1ms"),
        traffic=[{"kind": "bulk", "from": "a", "to": "b", "protocol": "tcp"}],
    )
    assert 40e6 < vmcc.run(scenario).cases.goodput_bps[0] < 50e6
    with pytest.raises(vmcc.InvalidInput, match="no nodes of the graph: c"):
        vmcc.graph(network, ["a", "c"])


def test_builtin_scenario_is_a_template() -> None:
    assert DUMBBELL in vmcc.scenarios()
    template = vmcc.Scenario.builtin(DUMBBELL)
    assert vmcc.Scenario.parse(template.toml()).tables == template.tables
    template.check()


def test_algorithm_of_ones_own_is_c_source(tmp_path: Path) -> None:
    subprocess.run([_program.path(), "algorithm", "new", "mine", str(tmp_path)], check=True, capture_output=True)
    source = (tmp_path / "mine.c").read_text()
    results = vmcc.run(DUMBBELL, set={"cc": "mine"}, algorithms={"mine": source}, scale="quick")
    assert results.cases.goodput_bps[0] > 0
    with pytest.raises(vmcc.InvalidInput, match="mine.c"):
        vmcc.run(DUMBBELL, set={"cc": "mine"}, algorithms={"mine": "int broken("}, scale="quick")
    with pytest.raises(vmcc.InvalidInput, match="no name of an algorithm"):
        vmcc.run(DUMBBELL, algorithms={"../mine": source})


def test_claims_that_fail_are_no_exception() -> None:
    claim = {"id": "too-much", "check": "mean(goodput_bps) > 1e15"}
    results = vmcc.run(vmcc.Scenario.builtin(DUMBBELL).changed({"claim": [claim]}), scale="quick")
    assert not results.passed and list(results.claims["pass"]) == [False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenario": "examples/dumbell"}, "examples/dumbbell"),
        ({"scenario": DUMBBELL, "set": {"hots.cc": "lia"}}, "host"),
        ({"scenario": DUMBBELL, "scale": "tiny"}, "tiny"),
        ({"scenario": DUMBBELL, "sweep": {"cc": "lia"}}, "a list of values"),
        ({"scenario": DUMBBELL, "sweep": {"topology": ["a,b"]}}, "no plain value"),
        ({"scenario": vmcc.Scenario(title="x")}, "duration"),
    ],
)
def test_errors_name_what_is_wrong(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(vmcc.InvalidInput, match=message):
        vmcc.run(**arguments)  # type: ignore[arg-type]


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMCC", "/nowhere/vmcc")
    with pytest.raises(vmcc.VmccError, match="/nowhere/vmcc"):
        vmcc.version()


def test_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(vmcc.InvalidInput, match="no summary.json"):
        vmcc.Results(tmp_path)


def test_comparison_has_intervals(results: vmcc.Results) -> None:
    other = vmcc.run("examples/fat-tree-fct", sweep={"cc": ["lia", "vmcc"]}, runs=3, seed=9, scale="small")
    difference = vmcc.compare(results, other).query("metric == 'goodput_bps'")
    assert list(difference.set_cc) == ["lia", "vmcc"] and (difference.half_width > 0).all()
