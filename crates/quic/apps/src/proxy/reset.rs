//! The key of a server's stateless resets.
//!
//! Two servers with one key would be an oracle (RFC 9000 section 21.11): what one has no state for, it answers with the token that ends the
//! other's connection. Folders of keys are copied and shared, so the key also depends on the host, the network namespace and the address: a
//! server that is started again in the same place has the same one, and no other server has it.

use crate::keys::Identity;
use crate::status;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Random bytes of this host and user, in a folder that does not outlive a boot.
const INSTANCE: &str = "reset-instance";
const INSTANCE_BYTES: usize = 32;

/// The key of a server at this address. Without a folder of its user alone, each start has another one.
pub(super) fn key(identity: &Identity, listen: SocketAddr) -> io::Result<[u8; 32]> {
    let instance = match status::private_dir() {
        Some(folder) => load_or_create(&folder).or_else(|_| random())?,
        None => random()?,
    };
    Ok(derived(identity, &instance, namespace(), listen))
}

fn derived(identity: &Identity, instance: &[u8], namespace: (u64, u64), listen: SocketAddr) -> [u8; 32] {
    let purpose = format!("vmcc stateless reset {} {} {listen} ", namespace.0, namespace.1);
    identity.derived(&[purpose.as_bytes(), instance].concat())
}

/// Device and inode of this network namespace.
fn namespace() -> (u64, u64) {
    fs::metadata("/proc/self/ns/net").map_or((0, 0), |found| (found.dev(), found.ino()))
}

fn random() -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; INSTANCE_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a folder, which the first server makes. A name is given to whole files only.
fn load_or_create(folder: &Path) -> io::Result<Vec<u8>> {
    let path = folder.join(INSTANCE);
    if !path.exists() {
        let bytes = random()?;
        let own = folder.join(format!("{INSTANCE}.{}", hex(&random()?[..8])));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
        file.write_all(&bytes)?;
        // Another server may have been first.
        let linked = fs::hard_link(&own, &path);
        fs::remove_file(&own)?;
        linked.or_else(|error| if path.exists() { Ok(()) } else { Err(error) })?;
    }
    let mut bytes = Vec::new();
    File::open(&path)?.take(INSTANCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() == INSTANCE_BYTES;
    whole.then_some(bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_depends_on_address_and_survives_restart() {
        let identity = Identity::generate().unwrap();
        let [a, b]: [SocketAddr; 2] = ["0.0.0.0:4433", "0.0.0.0:4434"].map(|text| text.parse().unwrap());
        let hosts = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let of = |host: usize, namespace, listen| {
            derived(&identity, &load_or_create(hosts[host].path()).unwrap(), (4, namespace), listen)
        };
        let first = of(0, 1, a);
        assert_eq!(first, of(0, 1, a), "started again");
        assert_ne!(first, of(0, 1, b), "another port");
        assert_ne!(first, of(0, 2, a), "another namespace");
        assert_ne!(first, of(1, 1, a), "another host");
        assert_ne!(
            first,
            derived(&Identity::generate().unwrap(), &load_or_create(hosts[0].path()).unwrap(), (4, 1), a)
        );
    }

    #[test]
    fn instance_is_created_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let begin = || scope.spawn(|| load_or_create(folder.path()));
            let threads: Vec<_> = (0..8).map(|_| begin()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert!(all.iter().all(|bytes| *bytes == all[0]));
        let path = folder.path().join(INSTANCE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        assert!(load_or_create(folder.path()).is_err());
    }
}
