//! Objects that `memcached` or Apache's web server holds; a client fetches them, each on a connection of its own (see `http_client`) or on
//! connections that it keeps (see `persistent_client`). What Apache serves and says lies in a file system in memory of its own, gone with the process.

use super::http_client::{Plan, fetch_all};
use super::in_process::InProcess;
use super::object_store::ObjectStore;
use super::persistent_client::{self, fetch_persistent};
use super::private_mount::{SETTINGS, mounted_command, mounted_path};
use super::{
    ClientSetup, Connection, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::{Flow, Transport};
use crate::{Error, Netns};
use std::net::SocketAddr;
use std::sync::Arc;
use vmcc_scenario::model::ObjectProgram;
use vmcc_units::{Bytes, Nanos};

const INSTALL: &str = "apt-get install -y memcached";
/// Without the package `apache2`, whose service is not needed.
const INSTALL_APACHE: &str = "apt-get install -y --no-install-recommends apache2-bin";
/// Directory of Apache's modules in Debian; `APACHES` lists those that are needed.
const MODULES: &str = "/usr/lib/apache2/modules";
const APACHES: [(&str, &str); 2] =
    [("mpm_event_module", "mod_mpm_event.so"), ("authz_core_module", "mod_authz_core.so")];
/// Of Apache; each is busy as long as one answer takes.
const THREADS: u32 = 256;
/// Connections at a time that are more than any run has, and megabytes for the largest objects.
const MAX_CONNECTIONS: &str = "16384";
const MEMORY: &str = "1024";

/// Apache's, as its modules leave it: nothing of the host's own set-up is read. Its accept filter is `TCP_DEFER_ACCEPT`, with which Linux waits
/// for data on subflows that join as well, and none ever comes: the connection keeps one.
fn settings(port: u16) -> String {
    let modules = APACHES.map(|(name, file)| format!("LoadModule {name} {MODULES}/{file}\n")).concat();
    format!(
        "{modules}ServerName vmcc\nListen 0.0.0.0:{port}\nListenBacklog 4096\nPidFile /run/pid\nErrorLog /dev/stderr\nLogLevel crit\n\
         User #65534\nGroup #65534\nServerLimit 1\nThreadLimit {THREADS}\nThreadsPerChild {THREADS}\nMaxRequestWorkers {THREADS}\n\
         AcceptFilter http none\nKeepAliveTimeout 3600\nMaxKeepAliveRequests 0\nDocumentRoot /run/files\n<Directory /run/files>\nRequire all granted\n</Directory>\n"
    )
}

/// A flow's cache and client.
pub(super) struct Objects<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) holder: ObjectProgram,
    pub(super) kept: bool,
    pub(super) sizes: &'a [Bytes],
    pub(super) per_second: f64,
    pub(super) seed: u64,
    pub(super) linger: Nanos,
}

impl Workload for Objects<'_> {
    fn check(&self) -> Result<(), Error> {
        match self.holder {
            ObjectProgram::Memcached => check_installed(&self.programs.memcached, INSTALL)?,
            ObjectProgram::Apache => {
                check_installed(&self.programs.apache, INSTALL_APACHE)?;
                check_installed(&format!("{MODULES}/{}", APACHES[0].1), INSTALL_APACHE)?;
            }
        }
        check_wrapper(self.flow, self.programs)
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let (remedy, words) = match self.holder {
            ObjectProgram::Memcached => (INSTALL, self.cache(port)),
            ObjectProgram::Apache => (INSTALL_APACHE, self.web_server(port)),
        };
        let server = Program::start(at, record, &words, remedy)?;
        let server = await_listening(server, (at, port), START_TIMEOUT, |ended| ended.stderr)?;
        let store = ObjectStore::of(self.sizes);
        let filled = match self.holder {
            ObjectProgram::Memcached => at.run(move || store.fill(port)),
            ObjectProgram::Apache => store.write(&mounted_path(&server, "files")),
        };
        filled.map_err(|e| Error::kernel("filling", format!("a server in namespace {}", at.name()), e))?;
        Ok(End::Program(server))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, .. } = setup;
        let plan = Plan {
            to: SocketAddr::from((to, port)),
            multipath: matches!(self.flow.transport, Transport::Mptcp { .. }),
            per_second: self.per_second,
            seed: self.seed ^ u64::from(port),
            lasts,
            linger: self.linger.to_duration(),
            holder: self.holder,
            store: Arc::new(ObjectStore::of(self.sizes)),
        };
        let (kept, count) = (self.kept, self.flow.connections);
        let fetch =
            move |end: &_| if kept { fetch_persistent(plan, count, end) } else { fetch_all(plan, end) };
        InProcess::spawn(at, "client that fetches objects", fetch)
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        let said = String::from_utf8_lossy(&client.stdout);
        let connections = match self.kept {
            true => persistent_client::connections(&said, self.flow.connections, self.sizes)?,
            false => said.lines().map(|line| self.connection(line)).collect::<Result<Vec<_>, _>>()?,
        };
        if !client.stderr.is_empty() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        Ok(Report { connections, ..Report::default() })
    }
}

impl Objects<'_> {
    fn cache(&self, port: u16) -> Vec<String> {
        let number = port.to_string();
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*self.programs.memcached, "-u", "root", "-l", "0.0.0.0", "-p", &number, "-U", "0"]);
        words.extend(["-t", "1", "-c", MAX_CONNECTIONS, "-b", "4096", "-m", MEMORY]);
        words.into_iter().map(str::to_owned).collect()
    }

    /// One process, which stays in the foreground.
    fn web_server(&self, port: u16) -> Vec<String> {
        let settings = settings(port);
        let mut words = mounted_command(&settings, 0, &wrapper(self.flow, self.programs));
        let own = [&*self.programs.apache, "-X", "-d", "/run", "-f", SETTINGS];
        words.extend(own.map(str::to_owned));
        words
    }

    /// Parses the line about one fetch: port, object, start time, duration or `-`.
    fn connection(&self, line: &str) -> Result<Connection, ReportError> {
        let wrong = || ReportError::Line(line.to_owned());
        let [port, object, began, took] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let object: usize = object.parse().map_err(|_| wrong())?;
        let size = self.sizes.get(object).ok_or_else(wrong)?.get();
        let took_s = if took == "-" { None } else { Some(took.parse().map_err(|_| wrong())?) };
        let (port, began_s) = (port.parse().map_err(|_| wrong())?, began.parse().map_err(|_| wrong())?);
        Ok(Connection { size: Some(size), ..Connection::transfer(port, began_s, took_s, size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_their_sizes_and_distinct_contents() {
        let store = ObjectStore::of(&[10, 1_000, 1_000].map(Bytes::new));
        assert_eq!([0, 1, 2].map(|number| store.object(number).len()), [10, 1_000, 1_000]);
        assert_ne!(store.object(1), store.object(2));
    }
}
