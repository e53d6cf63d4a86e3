//! Flow records and time series open in the tools that people use.

use crate::common::{folder, json, python};
use std::process::Command;

const SCRIPT: &str = r#"
import json, sys, duckdb, pandas, polars
for name in ("flows", "series"):
    path = f"{sys.argv[1]}/{name}.parquet"
    a = pandas.read_parquet(path)
    b = polars.read_parquet(path)
    c = duckdb.sql(f"select * from '{path}'").fetchall()
    assert len(a) == b.height == len(c) > 0, (name, len(a), b.height, len(c))
    assert list(a.columns) == b.columns, (list(a.columns), b.columns)
    assert set(a["set_cc"]) == {"reno", "lia"}, set(a["set_cc"])
    assert set(a["seed"]) == {7, 8} and set(a["case_index"]) == {0, 1}
    # No column needs quotes, and each is described.
    duckdb.sql(f"select {', '.join(a.columns)} from '{path}'").fetchall()
    described = dict(duckdb.sql(f"select decode(key), decode(value) from parquet_kv_metadata('{path}')").fetchall())
    assert set(described) == {f"column.{column}" for column in a.columns}, described
    assert json.loads(described["column.seed"])["meaning"] == "seed of the run"
flows = pandas.read_parquet(f"{sys.argv[1]}/flows.parquet")
assert flows["fct_us"].isna().all() and (flows["goodput_bps"] > 0).all()
series = duckdb.sql(f"select metric, avg(value) from '{sys.argv[1]}/series.parquet' group by metric").fetchall()
assert dict(series)["goodput_bps"] > 0, series
print("ok")
"#;

#[test]
fn pandas_polars_and_duckdb_read_the_same_rows() {
    let dir = folder();
    json(dir.path(), &["run", "two.toml", "--engine", "sim", "--out", "out"]);
    let run = Command::new(python()).args(["-c", SCRIPT, "out"]).current_dir(dir.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stdout), "ok\n", "{}", String::from_utf8_lossy(&run.stderr));
}
