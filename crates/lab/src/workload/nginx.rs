//! `nginx` as a server in a private mount: one process, which stays in the foreground and keeps everything below `/run`.

use super::private_mount::{SETTINGS, mounted_command};
use super::{Programs, wrapper};
use crate::process::Program;
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};

pub(super) const INSTALL: &str = "apt-get install -y nginx-light";

/// Starts it with these settings and `bytes` of random data in a file.
pub(super) fn start(
    (flow, programs): (&Flow, &Programs),
    at: &Netns,
    record: &mut Record,
    settings: &str,
    bytes: u64,
) -> Result<Program, Error> {
    let mut words = mounted_command(settings, bytes, &wrapper(flow, programs));
    words.extend([&*programs.nginx, "-p", "/run", "-e", "stderr", "-c", SETTINGS].map(str::to_owned));
    Program::start(at, record, &words, INSTALL)
}

/// Settings of a server at `port` with limits of open files and connections; `http` and `server` are directives of its own.
pub(super) fn settings(port: u16, (files, connections): (u32, u32), http: &str, server: &str) -> String {
    format!(
        "daemon off; master_process off; user root; pid /run/pid; worker_rlimit_nofile {files};\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n  access_log off; {http} client_body_temp_path /run/partial;\n  \
         proxy_temp_path /run/t; fastcgi_temp_path /run/t; uwsgi_temp_path /run/t; scgi_temp_path /run/t;\n  \
         server {{ listen 0.0.0.0:{port} backlog=2048; {server} }}\n}}\n"
    )
}
