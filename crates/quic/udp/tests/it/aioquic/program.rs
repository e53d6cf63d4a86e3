//! aioquic as a process: `peer.py` in a folder with a certificate.

use crate::pem;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;

const PEER: &str = include_str!("peer.py");

/// Interval between looks at a process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Python with aioquic.
fn python() -> PathBuf {
    let path = std::env::var_os("VMCC_TEST_PYTHON").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let path = path.unwrap_or_else(|| root.join("target/python/bin/python"));
    assert!(path.exists(), "{}: not there; run `make setup-test`", path.display());
    path
}

/// A running peer, killed when it is dropped.
pub(crate) struct Aioquic {
    child: Child,
    folder: TempDir,
    /// Port of a server.
    pub(crate) port: u16,
}

impl Aioquic {
    /// A server on the loopback.
    pub(crate) fn serve(options: &[&str]) -> Aioquic {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut peer = Aioquic::start("serve", port, options);
        let mut line = String::new();
        BufReader::new(peer.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{}", peer.errors());
        peer
    }

    /// A client of a server at a port of the loopback.
    pub(crate) fn fetch(port: u16, options: &[&str]) -> Aioquic {
        Aioquic::start("fetch", port, options)
    }

    fn start(role: &str, port: u16, options: &[&str]) -> Aioquic {
        let folder = tempfile::tempdir().unwrap();
        pem::write_identity(folder.path());
        let errors = std::fs::File::create(folder.path().join("errors")).unwrap();
        let mut command = Command::new(python());
        command.args(["-c", PEER, role, &port.to_string()]).args(options).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        Aioquic { child: command.spawn().unwrap(), folder, port }
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("errors")).unwrap()
    }

    /// Waits for a client, which fails unless it has got everything.
    pub(crate) async fn ended(&mut self) {
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => sleep(POLL_INTERVAL).await,
            }
        };
        assert!(status.success(), "{status}\n{}", self.errors());
    }
}

impl Drop for Aioquic {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
