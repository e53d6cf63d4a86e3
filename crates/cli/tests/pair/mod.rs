//! Two namespaces, joined twice, for an agent in the first and connections between them.
#![allow(unreachable_pub, reason = "a part of one program")]

use crate::agent::Down;
use crate::common::folder;
use crate::kept::{Agent, within};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use vmcc_testkit::netns::{Namespace, Server, join, run};

pub const FILE: &str =
    "[algorithm.vmcc]\n[host]\ncongestion_control = 'mp_vmcc'\nmptcp = { subflows = 2, accept = 2 }\n";

/// The first one has the agent.
pub struct Pair {
    pub here: Namespace,
    pub there: Namespace,
    pub dir: tempfile::TempDir,
    _down: Down,
}

impl Pair {
    pub fn new() -> Self {
        let (here, there) = (Namespace::new("a"), Namespace::new("b"));
        join(&here, &there, "p0", "10.9.0");
        join(&here, &there, "p1", "10.9.1");
        Self { here, there, dir: folder(), _down: Down }
    }

    pub fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("vmcc.toml");
        fs::write(&path, text).unwrap();
        path
    }

    pub fn status(&self) -> Value {
        let output = within(&self.here, &["status", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// A server that offers both of its addresses, under the same algorithm.
    pub fn server(&self) -> Server {
        self.there.sysctl("ipv4/tcp_congestion_control", "mp_vmcc");
        run(&format!("ip -n {} mptcp endpoint add 10.9.1.2 dev p1 signal", self.there));
        Server::start_multipath(&self.there, 5201)
    }

    pub fn client(&self, seconds: u32) -> Agent {
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &self.here.0, "mptcpize", "run", "iperf3", "-c", "10.9.0.2", "-t"]);
        command.arg(seconds.to_string());
        Agent::spawn(command)
    }
}
