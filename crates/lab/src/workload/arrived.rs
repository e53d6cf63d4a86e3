//! Files that arrived at a server's private mount, compared with what was sent.

use super::private_mount::mounted_path;
use super::{Connection, End, Report, ReportError};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Report of transfers to the server, if as many files arrived whole as ended well: more may have arrived, whose answers were late. Files
/// are numbered from 1.
///
/// # Errors
/// If one differs from what was sent. Both are kept, and the error names the folder.
pub(super) fn report_arrived(server: &End, connections: Vec<Connection>) -> Result<Report, ReportError> {
    let server = server.program().ok_or(ReportError::NoServer)?;
    let completed = connections.iter().filter(|connection| connection.took_s.is_some()).count();
    let (sent, some_cut) = (mounted_path(server, "data"), completed < connections.len());
    let mut whole = 0;
    for number in 1..=connections.len() {
        let arrived = mounted_path(server, &format!("files/{number}"));
        whole += usize::from(is_whole((&arrived, &sent), number, some_cut).map_err(ReportError::Files)?);
    }
    if whole < completed {
        return Err(ReportError::Transfer(format!("{completed} ended well, {whole} files arrived whole")));
    }
    Ok(Report { connections, ..Report::default() })
}

/// False if the file is not there, or is shorter and some transfer was cut off.
fn is_whole((arrived, sent): (&Path, &Path), number: usize, some_cut: bool) -> io::Result<bool> {
    if !arrived.exists() {
        return Ok(false);
    }
    if same(arrived, sent)? {
        return Ok(true);
    }
    if some_cut && fs::metadata(arrived)?.len() < fs::metadata(sent)?.len() {
        return Ok(false);
    }
    let kept = keep(arrived, sent)?;
    let message = format!("file {number} is not what was sent; both are in {}", kept.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

/// Copies both files to a new folder, which outlives the run.
fn keep(arrived: &Path, sent: &Path) -> io::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("vmcc-mismatch-").tempdir()?.keep();
    fs::copy(arrived, folder.join("arrived"))?;
    fs::copy(sent, folder.join("sent"))?;
    Ok(folder)
}

fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut here, mut there) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = one.read(&mut here)?;
        if count == 0 {
            return Ok(other.read(&mut there)? == 0);
        }
        match other.read_exact(&mut there[..count]) {
            Ok(()) if here[..count] == there[..count] => {}
            Ok(()) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_to_the_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let long = vec![7; 100_000];
        let (one, longer) = (file("one", &long), file("longer", &[&long[..], &[1]].concat()));
        let mut other = long.clone();
        other[99_999] = 8;
        assert!(same(&one, &file("equal", &long)).unwrap());
        assert!(!same(&one, &longer).unwrap() && !same(&longer, &one).unwrap());
        assert!(!same(&one, &file("other", &other)).unwrap());
    }

    #[test]
    fn both_files_are_kept_when_they_differ() {
        let dir = tempfile::tempdir().unwrap();
        let (arrived, sent) = (dir.path().join("1"), dir.path().join("data"));
        let whole = |some_cut| is_whole((&arrived, &sent), 1, some_cut);
        fs::write(&sent, "right").unwrap();
        assert!(!whole(false).unwrap(), "it never came");
        fs::write(&arrived, "righ").unwrap();
        assert!(!whole(true).unwrap(), "it was cut off");
        for (some_cut, content) in [(false, "righ"), (true, "wrong"), (true, "longer")] {
            fs::write(&arrived, content).unwrap();
            let error = whole(some_cut).unwrap_err().to_string();
            assert!(error.starts_with("file 1 is not what was sent"), "{error}");
            let folder = Path::new(error.rsplit(' ').next().unwrap()).to_owned();
            assert_eq!(fs::read_to_string(folder.join("arrived")).unwrap(), content);
            assert_eq!(fs::read_to_string(folder.join("sent")).unwrap(), "right");
            fs::remove_dir_all(folder).unwrap();
        }
        fs::write(&arrived, "right").unwrap();
        assert!(whole(false).unwrap());
    }
}
