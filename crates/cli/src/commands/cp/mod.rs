//! `vmcc cp`, and `vmcc serve --once`, its far end.

mod progress;
mod remote;

use crate::args::{CpOptions, ServeOptions};
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::ui::Ui;
use progress::Shown;
use remote::{Remote, remote};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use vmcc_apps::copy::{
    self, CopyError, Job, Options, Outcome, Progress, Reason, Refusal, RemoteCommand, Snapshot,
};
use vmcc_apps::session::{Carrier, ConnectError};

/// Failures that are said one by one.
const MAX_LISTED: usize = 20;

pub(crate) fn cp(options: &CpOptions, ui: &Ui) -> Result<Exit, Failure> {
    let mut job = job_of(options)?;
    job.qlog = super::qlog::open(options.qlog.as_deref(), ui)?;
    let stop = interrupt::listen()?;
    let progress = Arc::new(Progress::default());
    let shown = Shown::start(ui, progress.clone());
    let began = Instant::now();
    let done = copy::copy(&job, &progress, stop);
    shown.end();
    super::qlog::finish(job.qlog, ui);
    let outcome = done.map_err(|error| failure(&error))?;
    let (snapshot, seconds) = (progress.snapshot(), began.elapsed().as_secs_f64());
    say(ui, &snapshot, &outcome, seconds);
    Ok(exit_of(&outcome))
}

pub(crate) fn serve(options: &ServeOptions, ui: &Ui) -> Result<Exit, Failure> {
    let qlog = super::qlog::open(options.qlog.as_deref(), ui)?;
    let stop = interrupt::listen()?;
    let (input, output) = (io::BufReader::new(io::stdin()), io::stdout());
    let served = copy::serve_once(&options.addresses, options.port, input, output, qlog.clone(), stop);
    super::qlog::finish(qlog, ui);
    served.map_err(|error| failure(&error))?;
    Ok(Exit::Done)
}

fn job_of(options: &CpOptions) -> Result<Job, Failure> {
    let (target, sources) =
        options.paths.split_last().ok_or_else(|| Failure::usage("nothing is to be copied"))?;
    let from = sources.iter().map(|source| remote(source)).collect::<Result<Vec<_>, _>>()?;
    let (far_host, sending, sources, target) = match (remote(target)?, from.iter().flatten().count()) {
        (Some(Remote { host, path }), 0) => (host, true, sources.to_vec(), path),
        (None, count) if count == sources.len() => {
            let from: Vec<_> = from.into_iter().flatten().collect();
            let host = from[0].host.clone();
            if from.iter().any(|other| other.host != host) {
                return Err(
                    Failure::usage("the sources are on several hosts").help("copy from one host at a time")
                );
            }
            (host, false, from.into_iter().map(|remote| remote.path).collect(), target.clone())
        }
        (None, 0) => {
            return Err(Failure::usage("source and target are both on this host")
                .help("name the other one as HOST:PATH; within a host use cp"));
        }
        _ => {
            return Err(Failure::usage("one side must be on this host, and the other one on another")
                .help("copy between two other hosts by running `vmcc cp` on one of them"));
        }
    };
    let command = RemoteCommand {
        ssh: options.ssh.clone().unwrap_or_else(copy::default_ssh),
        ssh_port: far_host.port,
        program: options.remote_vmcc.clone(),
        addresses: options.remotes.clone(),
        port: options.port,
    };
    if options.carrier != Carrier::Udp && !options.relays.relays.is_empty() {
        return Err(Failure::usage("--relay needs --carrier udp: relays pass on UDP alone"));
    }
    let chosen = Options { recursive: options.recursive, force: options.force, preserve: options.preserve };
    Ok(Job {
        sources,
        target,
        host: far_host.name,
        sending,
        remote: command,
        locals: options.locals.clone(),
        relays: super::relays::find(&options.relays)?,
        most: options.most,
        carrier: options.carrier,
        options: chosen,
        qlog: None,
    })
}

fn say(ui: &Ui, snapshot: &Snapshot, outcome: &Outcome, seconds: f64) {
    if outcome.single {
        ui.warn("the far end speaks no multipath QUIC: everything went over one path");
    }
    for attempt in &outcome.unused {
        let text = format!("no path from {attempt}");
        // Somebody has asked for a relay; addresses are tried without a word.
        if attempt.relay.is_some() { ui.warn(&text) } else { ui.note(&text) }
    }
    for refusal in outcome.refusals.iter().take(MAX_LISTED) {
        ui.warn(&format!("not copied: {refusal}"));
    }
    let unsaid = outcome.not_copied().saturating_sub(outcome.refusals.len().min(MAX_LISTED) as u64);
    if unsaid > 0 {
        ui.warn(&format!("not copied: {unsaid} more"));
    }
    ui.answer(&document(snapshot, outcome, seconds), || text(snapshot, outcome, seconds));
}

fn text(snapshot: &Snapshot, outcome: &Outcome, seconds: f64) -> String {
    // The warnings say all that there is to say.
    if snapshot.bytes_done == 0 && snapshot.files_done == 0 && outcome.not_copied() > 0 {
        return String::new();
    }
    let files = if snapshot.files_done == 1 { "file" } else { "files" };
    let rate = snapshot.bytes_done.saturating_sub(snapshot.bytes_found) as f64 * 8e-6 / seconds.max(1e-9);
    let mut text = format!(
        "{} {files}, {} bytes in {seconds:.1} s ({rate:.0} Mbit/s){}",
        snapshot.files_done,
        snapshot.bytes_done,
        if snapshot.files_done > 0 { ", SHA-256 checked" } else { "" }
    );
    if snapshot.bytes_found > 0 {
        text += &format!("; {} bytes were there before", snapshot.bytes_found);
    }
    for path in &outcome.paths {
        let silent = if path.failed { ", silent at the end" } else { "" };
        let relay = path.relay.as_ref().map_or(String::new(), |relay| format!(" ({relay})"));
        text += &format!(
            "\n  {}{relay} to {}: sent {}, received {} bytes{silent}",
            path.local, path.remote, path.sent, path.received
        );
    }
    text
}

fn document(snapshot: &Snapshot, outcome: &Outcome, seconds: f64) -> Value {
    let paths = outcome.paths.iter().map(|path| {
        json!({
            "local": path.local, "relay": path.relay, "remote": path.remote, "sent_bytes": path.sent, "received_bytes": path.received,
            "silent": path.failed,
        })
    });
    let unused = outcome
        .unused
        .iter()
        .map(|attempt| json!({ "local": attempt.local, "relay": attempt.relay, "remote": attempt.remote, "reason": attempt.reason }));
    let refused = outcome.refusals.iter().map(|refusal| refusal.message.clone());
    json!({
        "files": snapshot.files_done, "bytes": snapshot.bytes_done, "found_bytes": snapshot.bytes_found, "seconds": seconds,
        "paths": paths.collect::<Vec<_>>(), "unused": unused.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(), "refused_more": outcome.more,
    })
}

fn exit_of(outcome: &Outcome) -> Exit {
    let codes = outcome.refusals.iter().map(|refusal| exit_of_reason(refusal.reason));
    // The other end may count refusals and say the reason of none.
    let unsaid = (outcome.more > 0).then_some(Exit::HostCannot);
    codes.max_by_key(|exit| *exit as u8).or(unsaid).unwrap_or(Exit::Done)
}

fn exit_of_reason(reason: Reason) -> Exit {
    match reason {
        Reason::NoSource | Reason::Exists | Reason::BadTarget => Exit::WrongUse,
        Reason::Changed => Exit::CheckFailed,
        _ => Exit::HostCannot,
    }
}

fn refused(refusal: &Refusal) -> Failure {
    match exit_of_reason(refusal.reason) {
        Exit::WrongUse => Failure::usage(refusal),
        _ => Failure::host(refusal),
    }
}

/// Failure for the user: the error, with a remedy if its text has none.
fn failure(error: &CopyError) -> Failure {
    let text = chain(error);
    match error {
        CopyError::Interrupted => Failure::interrupted(text),
        CopyError::Usage(_) | CopyError::NoHello => Failure::usage(text),
        CopyError::Ssh { .. } => Failure::usage(text).help("install it, or name another one with --ssh"),
        CopyError::NoRemoteEnd { host, program, code } => Failure::usage(text).help(match code {
            // ssh's own code, and the shell's for what it does not find.
            Some(255) => format!("ssh did not get there, and says why above; `ssh {host} true` has to work first"),
            Some(127) => "install vmcc there, or name where it lies with --remote-vmcc".to_owned(),
            _ => format!("try `ssh {host} {program} --version`; where vmcc lies elsewhere name it with --remote-vmcc"),
        }),
        CopyError::Version { .. } => Failure::host(text).help("install the same version of vmcc on both hosts"),
        CopyError::Reach(error) if error.is_refusal() => Failure::host(text).help(
            "something else answers at that address, or between both hosts: compare the fingerprints, and choose the way with --remote and --port",
        ),
        CopyError::NoCarrier(_) => Failure::host(text).help("install the same version of vmcc on both hosts"),
        CopyError::Reach(ConnectError::Tcp(_)) => Failure::host(text)
            .help("let TCP through between both hosts; --port chooses the port there, --remote and --local the addresses"),
        CopyError::Reach(_) => Failure::host(text)
            .help("let UDP through between both hosts; --port chooses the port there, --remote and --local the addresses; where UDP is blocked --carrier tcp uses TCP"),
        CopyError::Relay(_) => super::paths::unknown(text),
        CopyError::Lost(_) => Failure::host(text).help("run the same command again: it goes on where this stopped"),
        CopyError::Refused(refusal) => refused(refusal),
        _ => Failure::host(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexplained_refusals_fail_the_copy() {
        let refusal = |reason| Refusal { reason, message: "x".to_owned() };
        let of = |refusals, more| exit_of(&Outcome { refusals, more, ..Outcome::default() });
        assert_eq!(of(vec![], 0), Exit::Done);
        assert_eq!(of(vec![], 1), Exit::HostCannot);
        assert_eq!(of(vec![refusal(Reason::NoSource)], 1), Exit::WrongUse);
        assert_eq!(of(vec![refusal(Reason::NoSource), refusal(Reason::Full)], 0), Exit::HostCannot);
    }

    #[test]
    fn empty_copy_prints_warnings_only() {
        let refusals = vec![Refusal { reason: Reason::NoSource, message: "x".to_owned() }];
        let refused = Outcome { refusals, ..Outcome::default() };
        assert_eq!(text(&Snapshot::default(), &refused, 1.0), "");
        assert!(text(&Snapshot::default(), &Outcome::default(), 1.0).starts_with("0 files, 0 bytes"));
        let some = Snapshot { files_done: 1, bytes_done: 9, ..Snapshot::default() };
        assert!(text(&some, &refused, 1.0).starts_with("1 file, 9 bytes"));
    }
}
