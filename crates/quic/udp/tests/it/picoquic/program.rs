//! picoquic's program as a process, in a folder of its own.

use crate::pem;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;

/// Between looks at a process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The program that `VMCC_PICOQUIC` names, and a folder for what it reads and writes: `www` of a server, `out` of a client.
pub(crate) struct Picoquic {
    program: PathBuf,
    folder: TempDir,
}

/// Killed if it still runs when it is dropped.
pub(crate) struct Running {
    child: Child,
    output: PathBuf,
}

impl Picoquic {
    pub(crate) fn found() -> Option<Picoquic> {
        let program = PathBuf::from(std::env::var_os("VMCC_PICOQUIC")?);
        assert!(program.is_file(), "VMCC_PICOQUIC: there is no file {}", program.display());
        let folder = tempfile::tempdir().unwrap();
        for name in ["www", "out"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        pem::write_identity(folder.path());
        Some(Picoquic { program, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stores a server's file.
    pub(crate) fn serve(&self, name: &str, data: &[u8]) {
        std::fs::write(self.folder().join("www").join(name), data).unwrap();
    }

    /// Data that a client has fetched.
    pub(crate) fn fetched(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder().join("out").join(name)).unwrap()
    }

    /// A server at every address, and its port.
    pub(crate) async fn server(&self, options: &[&str]) -> (Running, u16) {
        let port = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let text = port.to_string();
        let own = ["-c", "certificate.pem", "-k", "key.pem", "-w", "www", "-p", &text];
        let mut running = self.start(&[&own, options].concat());
        while UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            assert!(running.child.try_wait().unwrap().is_none(), "{}", running.said());
            sleep(POLL_INTERVAL).await;
        }
        (running, port)
    }

    /// A client that fetches what `scenario` says.
    pub(crate) fn client(&self, remote: SocketAddr, options: &[&str], scenario: &str) -> Running {
        let (ip, port) = (remote.ip().to_string(), remote.port().to_string());
        let own = ["-a", "hq-interop", "-n", "localhost", "-t", "certificate.pem", "-o", "out"];
        self.start(&[&own, options, &[&ip, &port, scenario]].concat())
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let output = self.folder().join("output");
        let file = std::fs::File::create(&output).unwrap();
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.folder()).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Running { child: command.spawn().unwrap(), output }
    }
}

impl Running {
    /// Its output, once it has ended well.
    pub(crate) async fn ended(&mut self) -> String {
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => sleep(POLL_INTERVAL).await,
            }
        };
        let said = self.said();
        // It exits with 0 whatever happened.
        assert!(status.success() && said.contains("exit with code = 0"), "{status}\n{said}");
        said
    }

    /// Its output so far, as its C library has written it.
    fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
