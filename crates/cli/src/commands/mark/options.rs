//! The configuration that the options of `vmcc mark` ask for, and errors in their terms.

use super::classes;
use crate::args::{BackendChoice, MarkSettings, NotEctChoice, QueueChoice};
use crate::failure::Failure;
use std::fmt::Display;
use std::str::FromStr;
use vmcc_config::Diagnostic;
use vmcc_port::{Backend, ConfigError, ConfigFile, FileError, NotEct, PortConfig, Trust, VmBudget, VmShare};
use vmcc_scenario::model::{Discipline, LambdaRule, Marking, ThresholdRule};
use vmcc_units::Threshold;

/// Requested configuration, with the source of each setting.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) config: PortConfig,
    file: Option<ConfigFile>,
}

impl Asked {
    /// Reads the file, or else the options.
    pub(super) fn read(settings: &MarkSettings) -> Result<Self, Failure> {
        let asked = match &settings.config {
            Some(path) => {
                let file = ConfigFile::load(path).map_err(|e| unreadable(&e))?;
                Self { config: file.config.clone(), file: Some(file) }
            }
            None => Self { config: from_options(settings)?, file: None },
        };
        asked.config.check().map_err(|e| asked.failure(&e))?;
        Ok(asked)
    }

    /// An error of the configuration, at the line or option that caused it.
    pub(super) fn failure(&self, error: &ConfigError) -> Failure {
        match &self.file {
            Some(file) => diagnostic(file.locate(error)),
            None => {
                let class = error.class.as_ref().map_or_else(String::new, |name| format!(" class `{name}`:"));
                let message = format!("{}:{class} {}", option_of(&error.key), error.message);
                with_help(Failure::usage(message), error.help.clone())
            }
        }
    }
}

fn unreadable(error: &FileError) -> Failure {
    match error {
        FileError::Invalid(found) => diagnostic((**found).clone()),
        other => Failure::usage(format!("--config: {other}")).help(
            "give a TOML file as docs/reference/port.md describes it; `vmcc mark --schema` prints its schema",
        ),
    }
}

fn diagnostic(mut found: Diagnostic) -> Failure {
    let help = found.help.take();
    with_help(Failure::usage(found), help)
}

fn with_help(failure: Failure, help: Option<String>) -> Failure {
    failure.help(help.unwrap_or_else(|| {
        "docs/reference/port.md has every setting with its unit and range; `vmcc mark --schema` prints them".to_owned()
    }))
}

/// The option that sets a key.
fn option_of(key: &str) -> &'static str {
    let words: Vec<&str> = key.split(['.', '[']).collect();
    match words[0] {
        "rate" => "--rate",
        "vm" => "--vm",
        "queue" => "--queue",
        "buffer" => "--buffer",
        "phantom" => "--phantom",
        "trust" => "--trust",
        "rtt_min" => "--rtt-min",
        "rtt_max" => "--rtt-max",
        "overload" => "--overload",
        "sparse" => "--sparse",
        "backend" => "--backend",
        "marking" if words.last() == Some(&"rtt") => "--rtt",
        "marking" if words.last() == Some(&"lambda") => "--lambda",
        "marking" if words.last() == Some(&"at") => "--threshold",
        "marking" => "--marking",
        _ => "--classes",
    }
}

fn from_options(settings: &MarkSettings) -> Result<PortConfig, Failure> {
    let mut config = PortConfig { rate: option("--rate", &settings.rate)?, ..PortConfig::default() };
    if let Some(text) = &settings.classes {
        config.classes = classes::parse(text)?;
    }
    config.queue = settings.queue.map(|choice| match choice {
        QueueChoice::Fifo => Discipline::Fifo,
        QueueChoice::Drr => Discipline::Drr,
        QueueChoice::Priority => Discipline::Priority,
    });
    if let Some(limit) = option("--buffer", &settings.buffer)? {
        config.buffer = limit;
    }
    config.rtt_min = option("--rtt-min", &settings.rtt_min)?;
    config.rtt_max = option("--rtt-max", &settings.rtt_max)?;
    config.not_ect = match settings.not_ect {
        NotEctChoice::Drop => NotEct::Drop,
        NotEctChoice::Queue => NotEct::Queue,
    };
    config.overload = settings.overload.unwrap_or(config.overload);
    config.sparse = settings.sparse;
    config.phantom = settings.phantom;
    if let Some(text) = &settings.trust {
        config.trust = trust(text)?;
    }
    config.backend = match settings.backend {
        BackendChoice::Auto => Backend::Auto,
        BackendChoice::Bpf => Backend::Bpf,
        BackendChoice::Htb => Backend::Htb,
    };
    config.vm = settings.vm.as_deref().map(budget).transpose()?;
    config.marking = marking(settings, &config)?;
    let in_time =
        matches!(config.marking, Some(Marking::Threshold(ThresholdRule { at: Threshold::Time(_) })));
    if in_time && config.rate.is_none() && config.vm.is_none() {
        return Err(Failure::usage("--threshold: a time needs the rate at which the port drains")
            .help("add --rate, such as --rate 600mbit, or give the threshold in bytes"));
    }
    Ok(config)
}

/// A list, or `none`.
fn trust(text: &str) -> Result<Vec<Trust>, Failure> {
    let one = |word: &str| match word.trim() {
        "dscp" => Ok(Trust::Dscp),
        "priority" => Ok(Trust::Priority),
        "tunnel" => Ok(Trust::Tunnel),
        other => Err(Failure::usage(format!("--trust: `{other}` is none of dscp, priority and tunnel"))
            .help("such as --trust dscp,tunnel, or --trust none")),
    };
    if text == "none" { Ok(Vec::new()) } else { text.split(',').map(one).collect() }
}

fn option<T: FromStr<Err: Display>>(name: &str, text: &Option<String>) -> Result<Option<T>, Failure> {
    text.as_ref().map(|text| value(name, text)).transpose()
}

fn value<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|e| {
        Failure::usage(format!("{name}: {e}")).help("`vmcc mark --help` shows a value of every option")
    })
}

/// `NAME=RATE`, `NAME=RATE:shared` or `NAME=RATE:WEIGHT/WEIGHTS`
fn budget(text: &str) -> Result<VmBudget, Failure> {
    let form = || {
        Failure::usage(format!("--vm: `{text}` is not NAME=RATE:shared or NAME=RATE:WEIGHT/WEIGHTS"))
            .help("such as db1=1gbit:shared, or db1=1gbit:1/2 for one half")
    };
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    let (rate, how) = rest.split_once(':').unwrap_or((rest, "1/1"));
    let (share, weight, weights) = match how.split_once('/') {
        None if how == "shared" => (VmShare::Shared, 1, 1),
        None => return Err(form()),
        Some((weight, weights)) => {
            let number = |text: &str| text.parse().map_err(|_| form());
            (VmShare::Split, number(weight)?, number(weights)?)
        }
    };
    Ok(VmBudget { name: name.to_owned(), rate: value("--vm", rate)?, share, weight, weights })
}

/// The requested rule; `None` leaves it to the port.
fn marking(settings: &MarkSettings, config: &PortConfig) -> Result<Option<Marking>, Failure> {
    let threshold = |name: &str, text: &str| Ok(Marking::Threshold(ThresholdRule { at: value(name, text)? }));
    let rule = LambdaRule { lambda: settings.lambda.unwrap_or(1.0), rtt: option("--rtt", &settings.rtt)? };
    let chosen = match (&settings.threshold, settings.marking.as_deref()) {
        (Some(text), _) => threshold("--threshold", text)?,
        (None, None) if settings.lambda.is_none() && settings.rtt.is_none() => return Ok(None),
        (None, None) => config.computed_marking(rule),
        (None, Some("mq-ecn")) => Marking::MqEcn(rule),
        (None, Some("tcn")) => Marking::Tcn(rule),
        (None, Some("none")) => Marking::None,
        (None, Some(other)) => match other.split_once('=') {
            Some(("threshold", text)) => threshold("--marking", text)?,
            _ => return Err(unknown_rule(other)),
        },
    };
    let needs_rtt = matches!(chosen, Marking::MqEcn(_) | Marking::Tcn(_));
    if !needs_rtt && (settings.rtt.is_some() || settings.lambda.is_some()) {
        let name = if settings.rtt.is_some() { "--rtt" } else { "--lambda" };
        return Err(Failure::usage(format!("{name}: only `mq-ecn` and `tcn` compute with it")));
    }
    Ok(Some(chosen))
}

fn unknown_rule(name: &str) -> Failure {
    let message = match name {
        "red" => "--marking: `red` marks by an average queue length, which ports do not keep".to_owned(),
        "threshold" => "--marking: `threshold` needs a queue length".to_owned(),
        other => format!("--marking: there is no rule `{other}`"),
    };
    Failure::usage(message).help("the rules are mq-ecn, tcn, threshold=30kB and none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use vmcc_port::LinkFacts;
    use vmcc_units::{BitsPerSec, Bytes};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        settings: MarkSettings,
    }

    #[test]
    fn options_and_file_keys_give_the_same_plan() {
        let classes = "[[class]]\nname = 'gold'\nweight = 4\ndscp = [46]\n[[class]]\nname = 'rest'";
        let pairs = [
            ("--rate 600mbit", "rate = '600mbit'".to_owned()),
            ("--rate 600mbit --classes gold:4:dscp=46,rest:1", format!("rate = '600mbit'\n{classes}")),
            ("--classes gold:4:dscp=46,rest:1", classes.to_owned()),
            (
                "--rate 600mbit --queue priority --classes gold:4:dscp=46,rest:1",
                format!("rate = '600mbit'\nqueue = 'priority'\n{classes}"),
            ),
            (
                "--vm db1=1gbit:1/2",
                "vm = { name = 'db1', rate = '1gbit', weight = 1, weights = 2 }".to_owned(),
            ),
            ("--rate 600mbit --phantom 0.95", "rate = '600mbit'\nphantom = 0.95".to_owned()),
            ("--phantom 0.95", "phantom = 0.95".to_owned()),
            ("--rate 600mbit --sparse false", "rate = '600mbit'\nsparse = false".to_owned()),
            ("--rate 600mbit --marking none", "rate = '600mbit'\nmarking = { rule = 'none' }".to_owned()),
            (
                "--rate 600mbit --rtt 1ms",
                "rate = '600mbit'\nmarking = { rule = 'mq-ecn', rtt = '1ms' }".to_owned(),
            ),
        ];
        for speed in [None, Some(BitsPerSec::new(10_000_000_000))] {
            let link = LinkFacts { mtu: Bytes::new(1500), speed };
            for (options, file) in &pairs {
                let command = Command::parse_from(["mark"].into_iter().chain(options.split(' ')));
                let by_options = from_options(&command.settings).unwrap().plan(&link);
                let by_file = ConfigFile::parse("test", file).unwrap().config.plan(&link);
                assert_eq!(by_options, by_file, "{options}, {speed:?}");
            }
        }
    }
}
