//! The classes of `--classes`: `gold:4:dscp=46,silver:2,rest:1`.

use crate::failure::Failure;
use std::fmt::Display;
use std::str::FromStr;
use vmcc_port::{ClassConfig, EcnKind};

const FORM: &str = "a class is NAME[:WEIGHT][:KEY=VALUE]..., such as gold:4:dscp=46+10 or db:2:guarantee=100mbit; keys: \
                    dscp, priority, cgroup, ecn, guarantee, ceiling, buffer; --config can say more";

/// Reads the list.
pub(super) fn parse(text: &str) -> Result<Vec<ClassConfig>, Failure> {
    text.split(',').map(class).collect()
}

fn class(text: &str) -> Result<ClassConfig, Failure> {
    let mut parts = text.split(':');
    let mut class = ClassConfig::named(parts.next().unwrap_or_default().trim());
    for (index, part) in parts.enumerate() {
        match part.split_once('=') {
            Some((key, value)) => set(&mut class, key.trim(), value.trim(), text)?,
            None if index == 0 => class.weight = value(part, text)?,
            None => return Err(wrong(text, format!("`{part}` is no KEY=VALUE"))),
        }
    }
    Ok(class)
}

fn set(class: &mut ClassConfig, key: &str, text: &str, whole: &str) -> Result<(), Failure> {
    match key {
        "dscp" => class.dscp = list(text, whole)?,
        "priority" => class.priority = list(text, whole)?,
        "cgroup" => class.cgroup = Some(text.into()),
        "ecn" => {
            class.ecn = Some(match text {
                "ect" => EcnKind::Ect,
                "not-ect" => EcnKind::NotEct,
                other => return Err(wrong(whole, format!("`{other}` is neither `ect` nor `not-ect`"))),
            });
        }
        "guarantee" => class.guarantee = Some(value(text, whole)?),
        "ceiling" => class.ceiling = Some(value(text, whole)?),
        "buffer" => class.buffer = Some(value(text, whole)?),
        other => return Err(wrong(whole, format!("a class has no `{other}`"))),
    }
    Ok(())
}

/// Numbers joined by `+`, as commas separate classes.
fn list<T: FromStr<Err: Display>>(text: &str, whole: &str) -> Result<Vec<T>, Failure> {
    text.split('+').map(|item| value(item, whole)).collect()
}

fn value<T: FromStr<Err: Display>>(text: &str, whole: &str) -> Result<T, Failure> {
    text.trim().parse().map_err(|e| wrong(whole, format!("`{text}`: {e}")))
}

fn wrong(class: &str, why: String) -> Failure {
    Failure::usage(format!("--classes: `{class}`: {why}")).help(FORM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_units::BitsPerSec;

    #[test]
    fn class_is_parsed_with_weight_and_settings() {
        let classes =
            parse("gold:4:dscp=46+10:priority=7, silver:guarantee=10mbit:ceiling=20mbit,rest").unwrap();
        assert_eq!(classes.len(), 3);
        assert_eq!(
            (classes[0].weight, &classes[0].dscp[..], &classes[0].priority[..]),
            (4, &[46, 10][..], &[7][..])
        );
        assert_eq!((&*classes[1].name, classes[1].weight), ("silver", 1));
        assert_eq!(classes[1].ceiling, Some(BitsPerSec::new(20_000_000)));
        assert_eq!(classes[2], ClassConfig::named("rest"));
    }

    #[test]
    fn invalid_class_is_quoted_in_the_error() {
        for (text, part) in [
            ("a:b", "`b`"),
            ("a:-1", "`-1`"),
            ("a:1:2", "`2` is no KEY=VALUE"),
            ("a:dscp=x", "`x`"),
            ("a:dscp=", "``"),
            ("a:rate=1mbit", "no `rate`"),
            ("a:1,b:guarantee=1Mb", "`b:guarantee=1Mb`"),
        ] {
            let failure = parse(text).unwrap_err();
            assert!(failure.message.contains(part), "{text}: {}", failure.message);
        }
    }
}
