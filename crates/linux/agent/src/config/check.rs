//! Checks of the configuration that types cannot express.

use super::{Config, EndpointFlag, EndpointRule, Family, Guard, Mptcp, Settings, SysctlName, Text, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vmcc_cc::{Algorithm, ParamError, Params};
use vmcc_config::Diagnostic;
use vmcc_config::Source;
use vmcc_guard::{CHI, OMEGA, Policy};
use vmcc_netlink::LIMIT_CEILING;
use vmcc_port::PortConfig;
use vmcc_units::Nanos;
use wildmatch::WildMatch;

/// Our names in the kernel begin so.
const ALGORITHM_PREFIX: &str = "mp_";
/// More often costs more than it finds; more seldom is no keeping.
const INTERVAL_RANGE: std::ops::RangeInclusive<Nanos> =
    Nanos::new(1_000_000_000)..=Nanos::new(3_600_000_000_000);

/// Error in a key or in its value.
pub(super) struct InvalidConfig {
    key: String,
    of_key: bool,
    message: String,
    help: Option<String>,
}

impl InvalidConfig {
    fn value(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), of_key: false, message: message.into(), help: None }
    }

    fn key(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { of_key: true, ..Self::value(key, message) }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(super) fn locate(self, source: &Source) -> Diagnostic {
        source.diagnostic(&self.key, self.of_key, self.message, self.help)
    }
}

pub(super) fn text(text: &Text) -> Result<Config, InvalidConfig> {
    let interval = text.agent.interval;
    if !INTERVAL_RANGE.contains(&interval) {
        let (least, most) = (INTERVAL_RANGE.start(), INTERVAL_RANGE.end());
        return Err(InvalidConfig::value(
            "agent.interval",
            format!("{interval} is not from {least} to {most}"),
        ));
    }
    let algorithms = text.algorithm.iter().map(params).collect::<Result<Vec<_>, _>>()?;
    settings("host", &text.host, &algorithms)?;
    for (index, rule) in text.namespace.iter().enumerate() {
        let at = format!("namespace[{index}]");
        if rule.name.is_empty() || rule.name.contains('/') {
            return Err(InvalidConfig::value(
                format!("{at}.name"),
                "a name of a file below /run/netns, or a pattern",
            ));
        }
        settings(&at, &rule.settings(), &algorithms)?;
    }
    let cgroups = text.cgroup.iter().enumerate();
    cgroups.map(|(at, rule)| (format!("cgroup[{at}]"), rule)).try_for_each(|(at, rule)| {
        path(&format!("{at}.path"), &rule.path)?;
        if rule.congestion_control.is_none() && !rule.upgrade {
            return Err(InvalidConfig::value(at, "it says nothing about these cgroups")
                .help("give it a `congestion_control`, or `upgrade = true`"));
        }
        let mut name = rule.congestion_control.iter();
        let key = format!("{at}.congestion_control");
        name.try_for_each(|name| congestion_control(&key, name, &algorithms))
    })?;
    text.port.iter().try_for_each(|(name, config)| port(name, config))?;
    if text.guard.enabled && algorithms.is_empty() {
        return Err(InvalidConfig::value("guard.enabled", "there is no algorithm to guard")
            .help("add one, for example a line `[algorithm.vmcc]`"));
    }
    Ok(Config {
        interval: Duration::from_nanos(interval.get()),
        host: text.host.clone(),
        namespaces: text.namespace.clone(),
        cgroups: text.cgroup.clone(),
        ports: text.port.clone(),
        guard: guard(&text.guard)?,
        unheeded: unheeded(&text.guard, &algorithms),
        metrics: text.metrics.as_ref().map(|metrics| metrics.listen),
        algorithms,
    })
}

fn path(key: &str, path: &str) -> Result<(), InvalidConfig> {
    let mut parts = path.trim_matches('/').split('/');
    if parts.any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(InvalidConfig::value(
            key,
            "the path of a cgroup below where cgroup2 is mounted, or a pattern",
        )
        .help(
            "for example `system.slice/web.service` or `machine.slice/*.scope`; all of the host is `[host]`",
        ));
    }
    Ok(())
}

/// Settings that have no effect but are no error: the guard may be switched off for a while.
fn unheeded(guard: &Guard, algorithms: &[Params]) -> Vec<String> {
    let policies = [
        ("dry_run", guard.dry_run),
        ("drain", guard.drain.is_some()),
        ("min_paths", guard.min_paths.is_some()),
        ("close_failed", guard.close_failed),
        ("suppress_useless", guard.suppress_useless),
        ("retry", guard.retry.is_some()),
    ];
    let given: Vec<&str> = policies.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
    let idle = || format!("[guard] {}: no effect without `enabled = true`", given.join(", "));
    let of_guard = (!guard.enabled && !given.is_empty()).then(idle);
    algorithms.iter().filter_map(Params::unheeded).chain(of_guard).collect()
}

fn guard(guard: &Guard) -> Result<Option<Policy>, InvalidConfig> {
    let factor = |key: &str, given: Option<f64>, switch: &str, is_on: bool, default: f64| match given {
        Some(_) if !is_on => Err(InvalidConfig::key(format!("guard.{key}"), "it has no effect")
            .help(format!("add a line `{switch} = true`"))),
        given => Ok(is_on.then(|| given.unwrap_or(default))),
    };
    let policy = Policy {
        dry_run: guard.dry_run,
        drain: guard.drain.map_or(Policy::default().drain, |time| Duration::from_nanos(time.get())),
        min_paths: guard.min_paths.unwrap_or(Policy::default().min_paths),
        failed: factor("chi", guard.chi, "close_failed", guard.close_failed, CHI)?,
        useless: factor("omega", guard.omega, "suppress_useless", guard.suppress_useless, OMEGA)?,
        retry: guard.retry.map(|time| Duration::from_nanos(time.get())),
    };
    let policy =
        policy.checked().map_err(|(key, problem)| InvalidConfig::value(format!("guard.{key}"), problem))?;
    Ok(guard.enabled.then_some(policy))
}

fn params((name, set): (&String, &BTreeMap<String, Value>)) -> Result<Params, InvalidConfig> {
    let at = format!("algorithm.{name}");
    let algorithm = Algorithm::by_name(name).map_err(|e| InvalidConfig::key(&at, e.to_string()))?;
    // `vmcc` and `mp_vmcc` are one; two tables of it would be one too many.
    if algorithm.name() != name {
        return Err(InvalidConfig::key(&at, format!("write `{}`", algorithm.name())));
    }
    let mut params = Params::defaults(algorithm);
    for (name, value) in set {
        let done = match value {
            Value::Whole(number) => params.set(name, *number as f64),
            Value::Number(number) => params.set(name, *number),
            Value::Text(text) => params.set(name, text.as_str()),
        };
        let key = format!("{at}.{name}");
        done.map_err(|e| match e {
            ParamError::Unknown { .. } => InvalidConfig::key(key, e.to_string()),
            _ => InvalidConfig::value(key, e.to_string()),
        })?;
    }
    Ok(params)
}

fn settings(at: &str, settings: &Settings, algorithms: &[Params]) -> Result<(), InvalidConfig> {
    if let Some(name) = &settings.congestion_control {
        congestion_control(&format!("{at}.congestion_control"), name, algorithms)?;
    }
    if settings.live && settings.congestion_control.is_none() {
        return Err(InvalidConfig::key(format!("{at}.live"), "it has no effect")
            .help("add `congestion_control`, which running connections are to have"));
    }
    if settings.notsent_lowat.is_some_and(|bytes| bytes.get() > u64::from(u32::MAX)) {
        return Err(InvalidConfig::value(
            format!("{at}.notsent_lowat"),
            format!("the most is {}B", u32::MAX),
        ));
    }
    let mut names = BTreeSet::new();
    for (name, value) in &settings.sysctl {
        let key = format!("{at}.sysctl.{name}");
        let parsed = SysctlName::parse(name).map_err(|e| InvalidConfig::key(&key, e))?;
        if parsed.changes_others() {
            return Err(InvalidConfig::key(key, "what this changes besides itself would not come back")
                .help("set it without the agent, for example in a file in /etc/sysctl.d"));
        }
        if !names.insert(parsed.clone()) {
            return Err(InvalidConfig::key(
                key,
                "it is here twice, with dots and with slashes; give it once",
            ));
        }
        let typed = [
            (SysctlName::congestion_control(), "congestion_control"),
            (SysctlName::notsent_lowat(), "notsent_lowat"),
        ];
        if let Some((_, own)) = typed.iter().find(|(name, _)| *name == parsed) {
            return Err(InvalidConfig::key(key, format!("this has a key of its own: `{own}`")));
        }
        if matches!(value, Value::Number(_)) {
            return Err(InvalidConfig::value(key, "a sysctl is a whole number or a text"));
        }
    }
    mptcp(&format!("{at}.mptcp"), &settings.mptcp)
}

fn congestion_control(key: &str, name: &str, algorithms: &[Params]) -> Result<(), InvalidConfig> {
    let ours = |params: &Params| params.algorithm().info().kernel_name;
    if algorithms.iter().any(|params| ours(params) == name) {
        return Ok(());
    }
    if let Some(plain) = name.strip_prefix(ALGORITHM_PREFIX) {
        let missing = InvalidConfig::value(key, format!("`{name}` is not among the algorithms that are up"));
        return Err(match Algorithm::by_name(plain) {
            Ok(_) => missing.help(format!("add a line `[algorithm.{plain}]`")),
            Err(unknown) => missing.help(unknown.to_string()),
        });
    }
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !plain {
        return Err(InvalidConfig::value(key, "no congestion control has such a name"));
    }
    // `vmcc` for `mp_vmcc` is easily written, but `cubic` is the kernel's own.
    let kernels = ["reno", "cubic", "dctcp"];
    match algorithms.iter().find(|p| p.algorithm().name() == name && !kernels.contains(&name)) {
        Some(params) => {
            let help = format!("write `{}`, its name in the kernel", ours(params));
            Err(InvalidConfig::value(key, format!("the kernel has no congestion control `{name}`"))
                .help(help))
        }
        None => Ok(()),
    }
}

fn mptcp(at: &str, mptcp: &Mptcp) -> Result<(), InvalidConfig> {
    for (key, limit) in [("subflows", mptcp.subflows), ("accept", mptcp.accept)] {
        if limit.is_some_and(|limit| limit > LIMIT_CEILING) {
            return Err(InvalidConfig::value(
                format!("{at}.{key}"),
                format!("no kernel allows more than {LIMIT_CEILING}"),
            ));
        }
    }
    let rules = &mptcp.endpoints;
    rules.iter().enumerate().try_for_each(|(index, rule)| {
        let at = format!("{at}.endpoint[{index}]");
        endpoint(&at, rule)?;
        match rules[..index].iter().position(|earlier| covers(earlier, rule)) {
            Some(earlier) => Err(InvalidConfig::value(
                format!("{at}.nic"),
                format!("this rule never applies: rule {} has all these addresses", earlier + 1),
            )
            .help("the first rule that fits an address makes its endpoint: put the special one first, or all flags into one")),
            None => Ok(()),
        }
    })
}

/// True if each address that a rule fits is one of an earlier rule.
fn covers(earlier: &EndpointRule, rule: &EndpointRule) -> bool {
    let same = earlier.nic == rule.nic || earlier.nic == "*";
    let named = !rule.nic.contains(['*', '?']) && WildMatch::new(&earlier.nic).matches(&rule.nic);
    (same || named) && (earlier.family == Family::Any || earlier.family == rule.family)
}

fn endpoint(at: &str, rule: &EndpointRule) -> Result<(), InvalidConfig> {
    if rule.nic.is_empty() {
        return Err(InvalidConfig::value(format!("{at}.nic"), "the name of an interface, or a pattern"));
    }
    let has = |flag| rule.flags.contains(&flag);
    let flags = |message: &str| Err(InvalidConfig::value(format!("{at}.flags"), message));
    if rule.flags.is_empty() {
        return flags("say what it is for: `signal`, `subflow`, `laminar`, or several");
    }
    if has(EndpointFlag::Fullmesh) && has(EndpointFlag::Signal) {
        return flags("the kernel takes `fullmesh` and `signal` only apart");
    }
    if rule.port.is_some() && !has(EndpointFlag::Signal) {
        return Err(InvalidConfig::key(format!("{at}.port"), "only an address that is announced has a port")
            .help("add the flag `signal`"));
    }
    if rule.port.is_some() && has(EndpointFlag::Subflow) {
        return flags("Linux takes `subflow` only without a `port`; leave one of them out");
    }
    if rule.id.is_some() && rule.nic.contains(['*', '?']) {
        return Err(InvalidConfig::key(
            format!("{at}.id"),
            "an id is one endpoint's, and this rule may fit several",
        )
        .help("name one interface in `nic`"));
    }
    Ok(())
}

fn port(name: &str, config: &PortConfig) -> Result<(), InvalidConfig> {
    config.check().map_err(|error| {
        let message = match &error.class {
            Some(class) if !class.is_empty() => format!("class `{class}`: {}", error.message),
            _ => error.message.clone(),
        };
        let wrong = InvalidConfig::value(format!("port.{name}.{}", error.key), message);
        InvalidConfig { help: error.help, ..wrong }
    })
}
