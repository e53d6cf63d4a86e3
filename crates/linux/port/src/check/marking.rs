//! Rules that cannot mark, or that mark nothing.

use crate::config::PortConfig;
use crate::error::{Check, ConfigError, require};
use crate::plan::{ClassPlan, Lambda, Plan, Rule};
use vmcc_config::{Discipline, LambdaRule, Marking};
use vmcc_units::{BitsPerSec, Bytes, Nanos, Threshold};

/// The longest RTT that a threshold is computed from.
const MAX_RTT: Nanos = Nanos::from_secs(10);

/// A rule by itself.
pub(super) fn rule(marking: &Marking, config: &PortConfig, key: &str) -> Check {
    match marking {
        Marking::None => Ok(()),
        Marking::Red(_) => Err(red(key)),
        Marking::Threshold(rule) => {
            let zero = match rule.at {
                Threshold::Bytes(bytes) => bytes.is_zero(),
                Threshold::Packets(packets) => packets.is_zero(),
                Threshold::Time(time) => time.is_zero(),
            };
            require(!zero, &format!("{key}.at"), || "a threshold of zero marks every packet".to_owned())
        }
        Marking::Tcn(rule) => lambda(rule, key),
        Marking::MqEcn(rule) => {
            if config.discipline() == Discipline::Priority {
                let message = "`mq-ecn` shares the threshold by the round of `drr`; `priority` has no round";
                return Err(ConfigError::at(format!("{key}.rule"), message).help("use `tcn` or `threshold`"));
            }
            lambda(rule, key)
        }
    }
}

fn lambda(rule: &LambdaRule, key: &str) -> Check {
    let fits = rule.lambda > 0.0 && rule.lambda <= 1000.0;
    require(fits, &format!("{key}.lambda"), || "lambda is above 0 and at most 1000".to_owned())?;
    let fits = rule.rtt.is_none_or(|rtt| !rtt.is_zero() && rtt <= MAX_RTT);
    require(fits, &format!("{key}.rtt"), || format!("an RTT is above 0s and at most {MAX_RTT}"))
}

/// The bounds of a measured RTT.
pub(super) fn measured(config: &PortConfig) -> Check {
    for (key, bound) in [("rtt_min", config.rtt_min), ("rtt_max", config.rtt_max)] {
        let fits = bound.is_none_or(|rtt| !rtt.is_zero() && rtt <= MAX_RTT);
        require(fits, key, || format!("an RTT is above 0s and at most {MAX_RTT}"))?;
    }
    let (Some(least), Some(most)) = (config.rtt_min, config.rtt_max) else { return Ok(()) };
    require(least <= most, "rtt_max", || format!("{most} is below the least RTT of {least}"))
}

/// `red` is for the simulator's switches.
pub(crate) fn red(key: &str) -> ConfigError {
    let message = "`red` marks by an average queue length, which ports do not keep";
    ConfigError::at(format!("{key}.rule"), message).help("use `mq-ecn`, `tcn` or `threshold`")
}

/// A threshold in bytes; a time needs the rate at which the queue drains.
pub(crate) fn threshold_bytes(
    at: Threshold,
    key: &str,
    drain: Option<BitsPerSec>,
    packet: Bytes,
) -> Result<u64, ConfigError> {
    let key = format!("{key}.at");
    if let (Threshold::Time(time), None) = (at, drain) {
        let message = format!("{time} is no queue length: neither the port nor its link has a rate");
        return Err(ConfigError::at(key, message).help("give the port a `rate`, or the threshold in bytes"));
    }
    let drain = drain.unwrap_or_default();
    let bytes = at.bytes(drain, packet).map_or(u64::MAX, Bytes::get);
    require(bytes > 0, &key, || format!("{at} at {drain} is less than a byte: it marks every packet"))?;
    Ok(bytes)
}

/// Every rule has the numbers it needs, and marks before the buffer is full.
pub(crate) fn thresholds(config: &PortConfig, plan: &Plan) -> Check {
    for (index, class) in plan.classes.iter().enumerate() {
        let own = config.classes.get(index).is_some_and(|c| c.marking.is_some());
        let key = super::inherited(own, index, "marking");
        if matches!(class.rule, Rule::MqEcn(_)) && plan.capacity.is_none() {
            let message = "`mq-ecn` computes thresholds from the port's rate, and there is none";
            return Err(
                ConfigError::at(key, message).help("give the port a `rate`, or use `threshold` or `tcn`")
            );
        }
        below_buffer(plan, class, &key).map_err(|e| e.of_class(&class.name))?;
    }
    Ok(())
}

/// A queue drops what goes beyond its buffer, so it never gets longer than that.
fn below_buffer(plan: &Plan, class: &ClassPlan, key: &str) -> Check {
    let (detail, longest, part) = match class.rule {
        Rule::None => return Ok(()),
        Rule::Threshold(bytes) => (String::new(), bytes, "at"),
        // The class alone on its port: the longest that its threshold gets.
        Rule::MqEcn(rule) | Rule::Tcn(rule) => {
            let Some((rate, bytes)) = alone(plan, class, rule) else { return Ok(()) };
            let rtt = Nanos::new(rule.rtt_ns.unwrap_or_default());
            let lambda = f64::from(rule.lambda_q16) / 65536.0;
            (format!(" ({rate} x {rtt} x lambda {lambda})"), bytes, "rtt")
        }
    };
    if longest < class.buffer_bytes {
        return Ok(());
    }
    let (at, buffer) = (Bytes::new(longest), Bytes::new(class.buffer_bytes));
    let message = format!(
        "a threshold of {at}{detail} never marks: the queue's buffer is {buffer}, so packets are dropped before it is that long"
    );
    Err(ConfigError::at(format!("{key}.{part}"), message).help("lower the threshold, or raise `buffer`"))
}

/// The rate that a class has when it is alone, and its threshold in bytes then; `None` while RTT or rate is unknown.
fn alone(plan: &Plan, class: &ClassPlan, rule: Lambda) -> Option<(BitsPerSec, u64)> {
    let capacity = plan.capacity?;
    let rate = if matches!(class.rule, Rule::MqEcn(_)) { capacity } else { class.ceiling };
    Some((rate, rule.bytes_at(rate.bytes_per_sec())?))
}
