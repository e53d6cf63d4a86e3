//! Loading what `vmcc up` asks for, and guarding it.

use crate::args::{PolicyOptions, UpOptions};
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::interrupt;
use crate::ui::Ui;
use serde_json::json;
use std::collections::BTreeMap;
use vmcc_agent::{Action, CHI, Guard, GuardEvent, GuardState, OMEGA, Policy, Request};
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_bpf::{parameter_table, probe};
use vmcc_cc::Params;
use vmcc_units::Nanos;

pub(crate) fn load(wanted: &[Params], options: &UpOptions, ui: &Ui) -> Result<Exit, Failure> {
    let request = Request { algorithms: wanted, restricted: options.restricted, guarded: options.guard };
    wanted.iter().filter_map(Params::unheeded).for_each(|why| ui.warn(&why));
    let policy = policy(&options.policy)?;
    let requests = vmcc_agent::up(request).map_err(|e| agent_failure(&e))?;
    let names: Vec<&str> = wanted.iter().map(kernel_name).collect();
    let listed: Vec<String> = wanted.iter().map(with_changes).collect();
    if options.guard {
        // Before anything says that Ctrl-C ends it.
        interrupt::listen()?;
        ui.note(&format!("up: {}; closing paths that share a bottleneck until Ctrl-C", listed.join(", ")));
        advise(ui);
        return Ok(watch(Guard::new(requests, policy, GuardState::default()), ui));
    }
    let parameters: BTreeMap<_, _> = wanted.iter().map(|p| (kernel_name(p), parameter_table(p))).collect();
    ui.answer(&json!({ "up": names, "parameters": parameters }), || {
        format!(
            "up: {}\nselect one with, for example, `sysctl -w net.ipv4.tcp_congestion_control={}`; `vmcc down` removes \
             them",
            listed.join(", "),
            names.first().copied().unwrap_or("mp_vmcc"),
        )
    });
    advise(ui);
    Ok(Exit::Done)
}

/// Reports settings of this host that limit the algorithms, with the remedy.
fn advise(ui: &Ui) {
    let unsent = probe::unsent_limit();
    if let (Some(reason), Some(remedy)) = (unsent.reason, unsent.remedy) {
        ui.note(&format!("note: {reason}\n  help: {remedy}"));
    }
}

fn kernel_name(params: &Params) -> &'static str {
    params.algorithm().info().kernel_name
}

/// `mp_vmcc (theta=5)`: the name, and the parameters that are not at their defaults.
fn with_changes(params: &Params) -> String {
    match crate::commands::status::changes(params).as_str() {
        "" => kernel_name(params).to_owned(),
        changes => format!("{} ({changes})", kernel_name(params)),
    }
}

fn watch(guard: Guard, ui: &Ui) -> Exit {
    let (mut closed, mut actions) = (Vec::new(), Vec::new());
    guard.watch(interrupt::flag(), &mut |seen| match seen {
        Ok(GuardEvent::Closed(request)) => {
            ui.note(&line(&request));
            closed.push(request);
        }
        Ok(GuardEvent::Action(path_action)) => {
            ui.note(&path_action.to_string());
            actions.push(path_action);
        }
        Err(error) => ui.warn(&chain(&error)),
    });
    let count =
        closed.len() + actions.iter().filter(|path_action| path_action.action == Action::Closed).count();
    ui.answer(&json!({ "closed": closed, "actions": actions, "deeds": actions }), || {
        format!("closed {count} paths; the algorithms stay up")
    });
    Exit::Interrupted
}

fn policy(options: &PolicyOptions) -> Result<Policy, Failure> {
    let factor = |given: Option<Option<f64>>, default: f64| given.map(|factor| factor.unwrap_or(default));
    let policy = Policy {
        dry_run: options.dry_run,
        drain: options.drain.map_or(Policy::default().drain, Nanos::to_duration),
        min_paths: options.min_paths.unwrap_or(Policy::default().min_paths),
        failed: factor(options.close_failed, CHI),
        useless: factor(options.suppress_useless, OMEGA),
        retry: options.retry.map(Nanos::to_duration),
    };
    policy.checked().map_err(|(name, problem)| Failure::usage(format!("the guard's {name}: {problem}")))
}

fn line(request: &CloseRequest) -> String {
    format!(
        "closed {} -> {} (connection {:08x}): it shares a bottleneck with path {}",
        request.local, request.remote, request.token, request.peer
    )
}
