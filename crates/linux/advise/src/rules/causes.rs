//! Causes of a connection's single path, each with its remedy.

use super::candidates::{Candidates, address, paths};
use crate::facts::{Connections, Endpoint, Facts, Limits, MptcpState, Nic, Path, Peer, Probe, Route};
use serde::Serialize;
use std::net::IpAddr;

/// First of the routing tables that remedies name.
const FIRST_TABLE: usize = 101;
const LOOPBACK: &str = "lo";

/// Name of a cause, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseCode {
    /// The kernel has no MPTCP.
    NoMptcp,
    /// `net.mptcp.enabled` is 0.
    MptcpOff,
    /// The peer is this host.
    PeerIsThisHost,
    /// Nothing leads to the peer.
    NoRouteToPeer,
    /// No connection to the given port.
    PeerUnreachable,
    /// The peer answers with TCP.
    PeerWithoutMptcp,
    /// SYNs with MPTCP's option are dropped on the way.
    OptionDropped,
    /// A rule of this host's firewall names MPTCP.
    Firewall,
    /// User space manages paths.
    UserspacePathManager,
    /// The limit of additional subflows is 0.
    SubflowLimit,
    /// One interface has an address that can reach the peer.
    OneAddress,
    /// An interface with an address is down.
    InterfaceDown,
    /// Neither an endpoint nor an announced address begins a second subflow.
    NoEndpoint,
    /// Every endpoint is a backup.
    BackupOnly,
    /// Packets from an address leave by another interface, or not at all.
    NoRouteFromAddress,
    /// The peer announces no address, and no endpoint here begins a subflow.
    NothingAnnounced,
    /// Joins are not answered.
    JoinUnanswered,
    /// Joins are refused.
    JoinRefused,
    /// The program opens TCP connections.
    ProgramUsesTcp,
}

impl CauseCode {
    /// True if no setting of this end mends it.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::NoMptcp | Self::PeerIsThisHost | Self::OneAddress)
    }
}

/// Cause of a single path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Its name.
    pub code: CauseCode,
    /// The cause, with the object that it is about.
    pub text: String,
    /// The remedy.
    pub remedy: String,
}

fn cause(code: CauseCode, text: impl Into<String>, remedy: impl Into<String>) -> Cause {
    Cause { code, text: text.into(), remedy: remedy.into() }
}

/// True if a connection with several subflows was seen.
pub(super) fn works(facts: &Facts) -> bool {
    facts.peer.as_ref().is_some_and(|peer| {
        let joined = matches!(peer.probe, Some(Probe::Mptcp { joined: 1.., .. }));
        joined || peer.connections.multipath > 0
    })
}

/// The most basic first. Where several paths work (`works`), a program may still ask for TCP.
pub(super) fn of(facts: &Facts, candidates: &Candidates<'_>, works: bool) -> Vec<Cause> {
    if works {
        return program(facts).into_iter().collect();
    }
    if let Some(basic) = kernel(facts).or_else(|| place(facts)) {
        return vec![basic];
    }
    let mut causes = Vec::new();
    causes.extend(probed(facts));
    causes.extend(firewall(facts));
    causes.extend(path_manager(facts));
    causes.extend(interfaces(facts, candidates));
    if candidates.several_running() {
        causes.extend(endpoints(facts, candidates));
        causes.extend(routes(facts, candidates));
        // What was tried tells more than what is set, and only where nothing set explains it.
        if causes.is_empty() {
            causes.extend(joins(facts, candidates));
        }
    }
    causes.extend(program(facts));
    causes
}

fn kernel(facts: &Facts) -> Option<Cause> {
    match facts.mptcp.state {
        MptcpState::Absent => Some(cause(
            CauseCode::NoMptcp,
            format!("the kernel ({}) has no MPTCP", facts.host.kernel),
            "boot a kernel with CONFIG_MPTCP (Debian's and Ubuntu's have it), or use `vmcc proxy` (docs/how-to/transport.md)",
        )),
        MptcpState::Off => Some(cause(
            CauseCode::MptcpOff,
            "MPTCP is switched off in this network namespace (`net.mptcp.enabled` is 0)",
            "sysctl -w net.mptcp.enabled=1",
        )),
        MptcpState::On => None,
    }
}

/// Peers that no setting of paths reaches.
fn place(facts: &Facts) -> Option<Cause> {
    let peer = facts.peer.as_ref()?;
    match facts.first_nic.as_deref() {
        Some(LOOPBACK) => Some(cause(
            CauseCode::PeerIsThisHost,
            format!("{} is an address of this host: its packets take no interface", peer.name),
            "give an address of another host",
        )),
        None => Some(cause(
            CauseCode::NoRouteToPeer,
            format!("there is no route to {}", peer.name),
            "ip route add default via GATEWAY dev NIC",
        )),
        Some(_) => None,
    }
}

/// Causes that a connection of our own shows.
fn probed(facts: &Facts) -> Option<Cause> {
    let peer = facts.peer.as_ref()?;
    let place = place_of(peer);
    match peer.probe.as_ref()? {
        Probe::Failed { error } => Some(cause(
            CauseCode::PeerUnreachable,
            format!("no connection to {place}: {error}"),
            "give the port of a service that listens there; a firewall may drop it",
        )),
        Probe::Tcp { option_dropped: true } => Some(cause(
            CauseCode::OptionDropped,
            format!("SYNs with TCP option 30 (MPTCP) to {place} are not answered, and those without it are"),
            "let the firewall on the way pass the option, or strip it; after its change \
             `sysctl -w net.mptcp.blackhole_timeout=0` ends the kernel's pause (docs/how-to/hosts.md)",
        )),
        Probe::Tcp { option_dropped: false } => Some(without_mptcp(format!("{place} answers with TCP"))),
        Probe::Mptcp { .. } => None,
    }
}

fn without_mptcp(text: String) -> Cause {
    cause(
        CauseCode::PeerWithoutMptcp,
        format!("{text}: the peer's kernel or program has no MPTCP, or a middlebox strips TCP option 30"),
        "at the peer: `sysctl -w net.mptcp.enabled=1`, and start the server with `mptcpize run`, or its cgroup with \
         `upgrade = true` in the agent's file",
    )
}

fn place_of(peer: &Peer) -> String {
    peer.port.map_or_else(|| peer.name.clone(), |port| format!("{}, port {port}", peer.name))
}

fn firewall(facts: &Facts) -> Option<Cause> {
    let rules = facts.host.firewall_rules.as_deref().unwrap_or_default();
    let rule = rules.first()?;
    let others = if rules.len() > 1 { format!(", and {} more", rules.len() - 1) } else { String::new() };
    Some(cause(
        CauseCode::Firewall,
        format!("a rule of this host's firewall names MPTCP's option: `{rule}`{others}"),
        "remove the rule, or let it pass TCP option 30 (`nft -a list ruleset`)",
    ))
}

fn path_manager(facts: &Facts) -> Option<Cause> {
    if !facts.mptcp.kernel_path_manager {
        return Some(cause(
            CauseCode::UserspacePathManager,
            "user space manages paths (`net.mptcp.pm_type` is 1): limits and endpoints do not count",
            "run a path manager such as mptcpd, or `sysctl -w net.mptcp.pm_type=0`",
        ));
    }
    let Limits { subflows, accept } = facts.mptcp.limits?;
    (subflows == 0).then(|| {
        cause(
            CauseCode::SubflowLimit,
            "the limit of additional subflows is 0",
            format!(
                "ip mptcp limits set subflows 2 add_addr_accepted {accept} (`mptcp.subflows` in the agent's file)"
            ),
        )
    })
}

fn interfaces(facts: &Facts, candidates: &Candidates<'_>) -> Vec<Cause> {
    let down = facts.nics.iter().filter(|nic| !nic.running && address(facts, nic).is_some());
    let mut causes: Vec<Cause> = down
        .map(|nic| {
            cause(
                CauseCode::InterfaceDown,
                format!("{} has an address and is down, or has no carrier", nic.name),
                format!("ip link set {} up, or check its cable or virtual switch", nic.name),
            )
        })
        .collect();
    if !candidates.several() && causes.is_empty() {
        let has = candidates.first().map_or("no interface".to_owned(), |nic| format!("only {}", nic.name));
        causes.push(cause(
            CauseCode::OneAddress,
            format!("{has} has an address that can reach the peer"),
            "attach another interface with an address and an uplink of its own (docs/how-to/hosts.md)",
        ));
    }
    causes
}

/// Endpoints that begin a second subflow, for kernels that manage paths.
fn endpoints(facts: &Facts, candidates: &Candidates<'_>) -> Option<Cause> {
    let mptcp = &facts.mptcp;
    if !mptcp.kernel_path_manager {
        return None;
    }
    let further: Vec<IpAddr> = candidates.further().iter().flat_map(|nic| nic.addresses.clone()).collect();
    let begins = |endpoint: &&Endpoint| {
        let server = facts.peer.is_none() && endpoint.signal;
        (endpoint.subflow || server) && further.contains(&endpoint.address)
    };
    let beginning: Vec<_> = mptcp.endpoints.as_ref()?.iter().filter(begins).collect();
    let accept = mptcp.limits.is_none_or(|limits| limits.accept > 0);
    if beginning.is_empty() && !accept {
        let (nic, at) = first_further(facts, candidates)?;
        let flag = if facts.peer.is_some() { "subflow" } else { "signal" };
        return Some(cause(
            CauseCode::NoEndpoint,
            format!(
                "no endpoint begins a second path: {at} ({nic}) has none, and announced addresses are not accepted"
            ),
            format!(
                "ip mptcp endpoint add {at} dev {nic} {flag}; before traffic starts on Linux 6.18 (`vmcc doctor`: mptcp-joins)"
            ),
        ));
    }
    if !beginning.is_empty() && beginning.iter().all(|endpoint| endpoint.backup) && !accept {
        let at = beginning.first()?.address;
        return Some(cause(
            CauseCode::BackupOnly,
            format!("the endpoint {at} is a backup: it carries data only when no other path is left"),
            format!("ip mptcp endpoint change {at} nobackup"),
        ));
    }
    None
}

fn first_further<'a>(facts: &Facts, candidates: &Candidates<'a>) -> Option<(&'a str, IpAddr)> {
    let nic = candidates.further().iter().find(|nic| nic.running)?;
    Some((&nic.name, address(facts, nic)?))
}

/// Addresses whose packets do not leave by their own interface. One without an endpoint only counts where no address is
/// announced: the peer may announce one that it reaches.
fn routes(facts: &Facts, candidates: &Candidates<'_>) -> Vec<Cause> {
    let accept = facts.mptcp.limits.is_some_and(|limits| limits.accept > 0);
    let of_subflows = || facts.mptcp.endpoints.iter().flatten().filter(|one| one.subflow);
    let begins = |nic: &Nic| of_subflows().any(|one| nic.addresses.contains(&one.address));
    let unbound = |path: &Path| of_subflows().any(|one| !one.bound && one.address == path.local);
    let leads = |path: &Path| match path.route {
        Route::Own { .. } => true,
        Route::Bound { .. } => !unbound(path),
        Route::Other { .. } | Route::None => false,
    };
    let lacking = |nic: &Nic| {
        let mut of_nic = paths(facts, nic).peekable();
        of_nic.peek().is_some() && !of_nic.any(leads)
    };
    let numbered = candidates.further().iter().enumerate();
    numbered
        .filter(|(_, nic)| lacking(nic) && (begins(nic) || !accept))
        .filter_map(|(number, nic)| Some(without_route(paths(facts, nic).next()?, FIRST_TABLE + number)))
        .collect()
}

fn without_route(path: &Path, table: usize) -> Cause {
    let Path { nic, local, remote, .. } = path;
    let leave = match &path.route {
        Route::Other { nic: other, .. } => format!("leave by {other}"),
        Route::Own { .. } | Route::Bound { .. } => {
            "leave by another interface, as its endpoint has no device".to_owned()
        }
        Route::None => "have no route".to_owned(),
    };
    let family = if local.is_ipv4() { "" } else { " -6" };
    cause(
        CauseCode::NoRouteFromAddress,
        format!("packets from {local} ({nic}) to {remote} {leave}: no policy rule sends them by {nic}"),
        format!(
            "ip{family} rule add from {local} table {table}; ip{family} route add default via GATEWAY dev {nic} table {table}, with \
             {nic}'s own gateway"
        ),
    )
}

/// Causes that the joins of our own connection show.
fn joins(facts: &Facts, candidates: &Candidates<'_>) -> Option<Cause> {
    let peer = facts.peer.as_ref()?;
    let Some(Probe::Mptcp { announced, joins_sent, joins_unanswered, .. }) = peer.probe else { return None };
    let place = place_of(peer);
    if joins_unanswered > 0 {
        return Some(cause(
            CauseCode::JoinUnanswered,
            format!("{place} does not answer the second subflow's SYN"),
            "find what drops it on the second path: a firewall that knows the first connection alone, `rp_filter` at a router, or \
             a path that does not lead there (`ping -I ADDRESS`)",
        ));
    }
    if joins_sent.is_some_and(|sent| sent > 0) {
        return Some(cause(
            CauseCode::JoinRefused,
            format!("{place} refuses the second subflow"),
            "at the peer: `ip mptcp limits set subflows 2`; a server that closes its listening socket after `accept` (FTP) refuses \
             every join",
        ));
    }
    let begins = facts.mptcp.endpoints.as_ref()?.iter().any(|endpoint| endpoint.subflow);
    let (nic, at) = first_further(facts, candidates).filter(|_| announced == 0 && !begins)?;
    Some(cause(
        CauseCode::NothingAnnounced,
        format!("{place} announces no further address, and no endpoint here begins a subflow"),
        format!("here: `ip mptcp endpoint add {at} dev {nic} subflow`; or at the peer a `signal` endpoint"),
    ))
}

/// Running connections that are all TCP.
fn program(facts: &Facts) -> Option<Cause> {
    let peer = facts.peer.as_ref()?;
    let Connections { total, mptcp, fell_back, .. } = peer.connections;
    if total == 0 || mptcp != Some(0) {
        return None;
    }
    match (fell_back, &peer.probe) {
        (0, _) => Some(cause(
            CauseCode::ProgramUsesTcp,
            format!("all connections with {} ({total}) are TCP: the program asks for TCP", peer.name),
            "start it with `mptcpize run`, give its cgroup `upgrade = true` in the agent's file, or (Go) set \
             GODEBUG=multipathtcp=1; running connections stay TCP",
        )),
        (count, None) => Some(without_mptcp(format!(
            "{count} of {total} connections with {} began as MPTCP and became TCP",
            peer.name
        ))),
        // The probe has told more.
        (_, Some(_)) => None,
    }
}
