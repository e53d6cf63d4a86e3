//! Status socket of a running program.

use super::{Program, Registry, client, dir};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Time limit for a client to read the answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Until an error of `accept` may have passed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Answers clients, one at a time, until it is dropped.
pub(crate) struct StatusServer {
    task: JoinHandle<()>,
    socket: PathBuf,
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.socket);
    }
}

impl StatusServer {
    /// As a task of the current tokio runtime; none where no folder for it can be had, which is nothing that a program should fail for.
    pub(crate) fn open(registry: &Arc<Registry>, name: &'static str) -> Option<StatusServer> {
        let folder = dir::create()?;
        client::remove_stale(&folder);
        let socket = folder.join(format!("{}.sock", std::process::id()));
        let listener = listen(&folder, &socket).ok()?;
        let registry = registry.clone();
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    // Who goes away, or does not listen, is nobody's concern but its own.
                    Ok((asker, _)) => {
                        drop(timeout(REPLY_TIMEOUT, reply(asker, Program::now(name, &registry))).await)
                    }
                    Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
                }
            }
        });
        Some(StatusServer { task, socket })
    }
}

/// It has its name only once it is listened at: until then connections are refused, as those of a program that is gone are.
fn listen(folder: &Path, socket: &Path) -> io::Result<UnixListener> {
    let early = folder.join(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&early);
    let listener = UnixListener::bind(&early)?;
    fs::set_permissions(&early, fs::Permissions::from_mode(0o600))?;
    fs::rename(&early, socket)?;
    Ok(listener)
}

async fn reply(mut asker: UnixStream, program: Program) -> io::Result<()> {
    let text = serde_json::to_vec(&program)?;
    asker.write_all(&text).await?;
    asker.shutdown().await
}
