//! Vector files: cases that are worked by hand from a paper, run on one connection under the driver of `host.h`.
//!
//! A file is CSV with the columns `case,do,with,expect,within`. Rows of the same case run one after the
//! other on one connection; `algorithms/vectors/README.md` says what each `do` means.

mod connection;
mod file;

use crate::Algorithm;
use connection::Connection;
use file::Row;

/// Runs all cases of a file; returns the number of values that were checked.
///
/// # Errors
/// The line that cannot be read or does not hold, or a case that checks nothing.
pub fn run(algorithm: Algorithm, text: &str) -> Result<usize, String> {
    let rows = file::parse(text)?;
    let mut checks = 0;
    for case in rows.chunk_by(|a, b| a.case == b.case) {
        let found = run_case(algorithm, case)?;
        if found == 0 {
            return Err(format!("line {}: {}: checks nothing", case[0].line, case[0].case));
        }
        checks += found;
    }
    if checks == 0 { Err("no rows".to_owned()) } else { Ok(checks) }
}

/// Runs the rows of one case; the error names the row.
fn run_case(algorithm: Algorithm, rows: &[Row]) -> Result<usize, String> {
    let mut connection = Connection::new(algorithm);
    let mut checks = 0;
    for row in rows {
        let at = |e: String| format!("line {}: {}: {e}", row.line, row.case);
        checks += connection.run(row).map_err(at)?;
    }
    Ok(checks)
}
