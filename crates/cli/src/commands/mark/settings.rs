//! Settings of a port, on one line.

use vmcc_port::{ClassConfig, NotEct, PortConfig, PortStats, VmShare};
use vmcc_scenario::model::{Discipline, LambdaRule, Marking};
use vmcc_units::BitsPerSec;

/// The rate, the queues in their order, when they mark, what they hold, and which classes are gone.
pub(super) fn one_line(config: &PortConfig, stats: &PortStats, removed: &[String]) -> String {
    let rate = stats.rate_bps.map_or_else(|| "no rate".to_owned(), |bps| BitsPerSec::new(bps).to_string());
    let mut parts = vec![rate + &budget(config), queues(config), marks(config, stats.rate_bps.is_some())];
    parts.extend(measured(config));
    parts.extend(drops(config));
    parts.push(format!("buffer {}", config.buffer));
    if !removed.is_empty() {
        parts.push(format!("removed: {}", removed.join(", ")));
    }
    parts.join("; ")
}

fn budget(config: &PortConfig) -> String {
    match &config.vm {
        None => String::new(),
        Some(vm) => match vm.share {
            VmShare::Shared => format!(" shared by the ports of VM {}", vm.name),
            VmShare::Split => {
                format!(" ({}/{} of {} for VM {})", vm.weight, vm.weights, vm.rate, vm.name)
            }
        },
    }
}

fn queues(config: &PortConfig) -> String {
    let list =
        |class: fn(&ClassConfig) -> String| config.classes.iter().map(class).collect::<Vec<_>>().join(", ");
    match (config.classes.as_slice(), config.discipline()) {
        ([] | [_], _) => "one queue".to_owned(),
        (_, Discipline::Priority) => format!("classes in this order: {}", list(|class| class.name.clone())),
        (_, Discipline::Drr | Discipline::Fifo) => {
            format!("classes by weight: {}", list(|class| format!("{} {}", class.name, class.weight)))
        }
    }
}

/// The bounds of a measured RTT, if there are any.
fn measured(config: &PortConfig) -> Option<String> {
    match (config.rtt_min, config.rtt_max) {
        (None, None) => None,
        (Some(least), None) => Some(format!("a measured RTT is at least {least}")),
        (None, Some(most)) => Some(format!("a measured RTT is at most {most}")),
        (Some(least), Some(most)) => Some(format!("a measured RTT is {least} to {most}")),
    }
}

/// Settings of drops and priority that differ from the defaults.
fn drops(config: &PortConfig) -> Vec<String> {
    let not_ect = (config.not_ect == NotEct::Queue).then(|| "packets without ECN wait".to_owned());
    let usual = PortConfig::default().overload;
    let overload = match config.overload {
        1.0.. => Some("never overloaded".to_owned()),
        share => (share != usual).then(|| format!("overloaded above {share} of the buffer")),
    };
    let sparse = (!config.sparse).then(|| "sparse flows wait like others".to_owned());
    not_ect.into_iter().chain(overload).chain(sparse).collect()
}

fn marks(config: &PortConfig, rated: bool) -> String {
    let mut text = rule(config.marking.as_ref().unwrap_or(&Marking::None));
    if let Some(share) = config.phantom {
        let whole = if rated { "the rate" } else { "the link's speed (100gbit where it says none)" };
        text.push_str(&format!(", by a virtual queue at {share} of {whole}"));
    }
    for class in &config.classes {
        if let Some(own) = &class.marking {
            text.push_str(&format!(", {} {}", class.name, rule(own)));
        }
    }
    text
}

fn rule(marking: &Marking) -> String {
    let lambda = |name: &str, rule: &LambdaRule| {
        let rtt = rule.rtt.map_or_else(|| "measured".to_owned(), |rtt| rtt.to_string());
        format!("marks by {name}: RTT {rtt}, lambda {}", rule.lambda)
    };
    match marking {
        Marking::None => "marks nothing".to_owned(),
        Marking::Threshold(rule) => format!("marks above {}", rule.at),
        Marking::MqEcn(rule) => lambda("mq-ecn", rule),
        Marking::Tcn(rule) => lambda("tcn", rule),
        Marking::Red(_) => "marks by red".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_port::{Backend, ConfigFile};

    fn said(text: &str, rate_bps: Option<u64>, removed: &[String]) -> String {
        let stats = PortStats {
            port: "p0".into(),
            backend: Backend::Htb,
            rate_bps,
            rtt_ns: None,
            rtt_samples: 0,
            unclassified: 0,
            classes: Vec::new(),
            ..PortStats::default()
        };
        one_line(&ConfigFile::parse("test", text).unwrap().config, &stats, removed)
    }

    #[test]
    fn settings_are_rendered_on_one_line() {
        let three = "queue = 'drr'\nmarking = { rule = 'mq-ecn' }\n[[class]]\nname = 'gold'\nweight = 4\n[[class]]\n\
                     name = 'rest'\nmarking = { rule = 'none' }";
        assert_eq!(
            said(three, Some(600_000_000), &["old".to_owned()]),
            "600mbit; classes by weight: gold 4, rest 1; marks by mq-ecn: RTT measured, lambda 1, rest marks nothing; \
             buffer 1000pkt; removed: old"
        );
        let order = "queue = 'priority'\nmarking = { rule = 'tcn', rtt = '1ms', lambda = 0.17 }\nvm = { name = 'db1', \
                     rate = '1gbit', weight = 1, weights = 2 }\n[[class]]\nname = 'a'\n[[class]]\nname = 'b'";
        assert_eq!(
            said(order, Some(500_000_000), &[]),
            "500mbit (1/2 of 1gbit for VM db1); classes in this order: a, b; marks by tcn: RTT 1ms, lambda 0.17; \
             buffer 1000pkt"
        );
        let open =
            "sparse = false\nbuffer = '150kB'\nphantom = 0.95\nmarking = { rule = 'threshold', at = '30kB' }";
        assert_eq!(
            said(open, None, &[]),
            "no rate; one queue; marks above 30kB, by a virtual queue at 0.95 of the link's speed (100gbit where it \
             says none); sparse flows wait like others; buffer 150kB"
        );
        let shared = "vm = { name = 'db1', rate = '1gbit', share = 'shared' }";
        assert!(
            said(shared, Some(1_000_000_000), &[])
                .starts_with("1gbit shared by the ports of VM db1; one queue")
        );
    }
}
