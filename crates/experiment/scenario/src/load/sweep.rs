//! The axes of a sweep: which values vary, and which overrides each value stands for.

use serde_json::{Map, Value};

use super::keys::Keys;
use super::set_option::SetOption;
use crate::value::plain;
use vmcc_config::did_you_mean;

/// The most cases of one scenario.
pub(crate) const MAX_CASES: usize = 10_000;

/// Place at which an override was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// At this path of the file.
    File(String),
    /// In this `--set` option.
    Set(String),
}

/// One value of an axis.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) label: Value,
    pub(crate) overrides: Vec<(String, Value)>,
    pub(crate) origin: Origin,
}

/// One axis of the sweep.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) key: String,
    /// True if each value is a named set of overrides rather than a value of `key`.
    pub(crate) is_variant: bool,
    pub(crate) settings: Vec<Setting>,
}

impl Axis {
    /// True if a `--set` option of this name refers to this axis.
    pub(crate) fn is_called(&self, name: &str, keys: &Keys) -> bool {
        let full = |key| keys.canonical(key);
        self.key == name || full(&self.key).is_some_and(|own| full(name).as_deref().unwrap_or(name) == own)
    }
}

/// A fault of the sweep, at an origin.
#[derive(Debug)]
pub(crate) struct BadAxis {
    pub(crate) origin: Origin,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Reads `[sweep]`.
pub(crate) fn axes(sweep: &Map<String, Value>, keys: &Keys) -> Result<Vec<Axis>, BadAxis> {
    let mut axes = Vec::new();
    flatten(sweep, "", keys, &mut axes)?;
    Ok(axes)
}

/// `topology.delay = [...]` in a table arrives as a table in a table.
fn flatten(
    table: &Map<String, Value>,
    prefix: &str,
    keys: &Keys,
    axes: &mut Vec<Axis>,
) -> Result<(), BadAxis> {
    for (name, value) in table {
        let key = vmcc_config::join(prefix, name);
        match value {
            Value::Object(inner) => flatten(inner, &key, keys, axes)?,
            Value::Array(values) if !values.is_empty() => axes.push(axis(&key, values, keys)?),
            _ => {
                return Err(bad(&key, "an axis is a list of at least one value".into(), None));
            }
        }
    }
    Ok(())
}

fn bad(key: &str, message: String, help: Option<String>) -> BadAxis {
    BadAxis { origin: Origin::File(format!("sweep.{key}")), message, help }
}

fn axis(key: &str, values: &[Value], keys: &Keys) -> Result<Axis, BadAxis> {
    let origin = |index: usize| Origin::File(format!("sweep.{key}[{index}]"));
    if keys.canonical(key).is_some() {
        let setting = |(index, value): (usize, &Value)| Setting {
            label: value.clone(),
            overrides: vec![(key.to_owned(), value.clone())],
            origin: origin(index),
        };
        let settings = values.iter().enumerate().map(setting).collect();
        return Ok(Axis { key: key.to_owned(), is_variant: false, settings });
    }
    if !values.iter().all(Value::is_object) {
        let all = keys.all();
        let message = format!(
            "the scenario has no value called `{key}`; an axis of a new name lists tables with a `name` and overrides"
        );
        return Err(bad(key, message, did_you_mean(key, all.iter().map(String::as_str))));
    }
    let settings = values.iter().enumerate().map(|(index, value)| variant(value, origin(index)));
    Ok(Axis { key: key.to_owned(), is_variant: true, settings: settings.collect::<Result<_, _>>()? })
}

fn variant(value: &Value, origin: Origin) -> Result<Setting, BadAxis> {
    let table = value.as_object().cloned().unwrap_or_default();
    let Some(label @ Value::String(_)) = table.get("name").cloned() else {
        let message = "a variant needs a `name`".to_owned();
        return Err(BadAxis { origin, message, help: None });
    };
    let overrides = table.into_iter().filter(|(key, _)| key != "name").collect();
    Ok(Setting { label, overrides, origin })
}

/// Adds one `--set` option: it narrows or replaces an axis, or becomes a new one.
pub(crate) fn add_set(
    axes: &mut Vec<Axis>,
    keys: &Keys,
    option: &SetOption,
    text: &str,
) -> Result<(), BadAxis> {
    let origin = Origin::Set(text.to_owned());
    let canonical = keys.canonical(&option.key).unwrap_or_else(|| option.key.clone());
    if let Some(axis) = axes.iter_mut().find(|axis| axis.is_called(&option.key, keys)) {
        if axis.is_variant {
            return narrow(axis, option, origin);
        }
        axis.settings = plain_settings(&axis.key, option, &origin);
        return Ok(());
    }
    for axis in axes.iter().filter(|axis| axis.is_variant) {
        let sets =
            |s: &Setting| s.overrides.iter().any(|(key, _)| keys.canonical(key).as_ref() == Some(&canonical));
        if axis.settings.iter().any(sets) {
            let names: Vec<String> = axis.settings.iter().map(|s| plain(&s.label)).collect();
            let choice = shell_word(&format!("{}={}", axis.key, list(&names)));
            return Err(BadAxis {
                origin,
                message: format!("`{}` is decided by the axis `{}` of the sweep", option.key, axis.key),
                help: Some(format!("choose with --set {choice}")),
            });
        }
    }
    let settings = plain_settings(&option.key, option, &origin);
    axes.push(Axis { key: option.key.clone(), is_variant: false, settings });
    Ok(())
}

fn plain_settings(key: &str, option: &SetOption, origin: &Origin) -> Vec<Setting> {
    let setting = |value: &Value| Setting {
        label: value.clone(),
        overrides: vec![(key.to_owned(), value.clone())],
        origin: origin.clone(),
    };
    option.values.iter().map(setting).collect()
}

fn narrow(axis: &mut Axis, option: &SetOption, origin: Origin) -> Result<(), BadAxis> {
    let mut chosen = Vec::new();
    // A list in brackets is for names that have commas.
    for value in
        option.values.iter().flat_map(|v| v.as_array().map_or(std::slice::from_ref(v), Vec::as_slice))
    {
        match axis.settings.iter().find(|s| plain(&s.label) == plain(value)) {
            Some(setting) => chosen.push(setting.clone()),
            None => {
                let names: Vec<String> = axis.settings.iter().map(|s| plain(&s.label)).collect();
                let name = plain(value);
                let message = format!("`{name}` is not one of {}", names.join(", "));
                let help = did_you_mean(&name, names.iter().map(String::as_str));
                return Err(BadAxis { origin, message, help });
            }
        }
    }
    axis.settings = chosen;
    Ok(())
}

/// Names as the value of a `--set` option that picks them.
fn list(names: &[String]) -> String {
    if names.iter().all(|name| !name.contains([',', '[', '{', '"', '\'']) && name.trim() == name) {
        return names.join(",");
    }
    Value::from(names).to_string()
}

/// `word` as a POSIX shell reads it back.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Refuses axes that set the same value, and more cases than anyone means.
pub(crate) fn check(axes: &[Axis], keys: &Keys) -> Result<(), BadAxis> {
    let mut seen: Vec<(String, &str)> = Vec::new();
    let mut cases = 1usize;
    for axis in axes {
        cases = cases.saturating_mul(axis.settings.len());
        let mut own: Vec<String> = axis
            .settings
            .iter()
            .flat_map(|s| {
                s.overrides.iter().map(|(key, _)| keys.canonical(key).unwrap_or_else(|| key.clone()))
            })
            .collect();
        own.sort();
        own.dedup();
        for key in own {
            if let Some((_, other)) = seen.iter().find(|(k, _)| *k == key) {
                let origin = axis.settings[0].origin.clone();
                let message = format!("`{key}` is set by the axis `{}` and by the axis `{other}`", axis.key);
                return Err(BadAxis { origin, message, help: Some("keep one of them".into()) });
            }
            seen.push((key, &axis.key));
        }
    }
    if cases > MAX_CASES {
        let origin = axes[0].settings[0].origin.clone();
        let message = format!("the sweep has {cases} cases; at most {MAX_CASES} are allowed");
        return Err(BadAxis { origin, message, help: Some("list fewer values".into()) });
    }
    Ok(())
}

/// Every combination, as one index per axis; the last axis varies fastest.
pub(crate) fn combinations(axes: &[Axis]) -> Vec<Vec<usize>> {
    axes.iter().fold(vec![Vec::new()], |combos, axis| {
        combos
            .iter()
            .flat_map(|combo| {
                (0..axis.settings.len()).map(move |i| combo.iter().copied().chain([i]).collect())
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("cc=lia,vmcc"), "cc=lia,vmcc");
        assert_eq!(shell_word("my file.toml"), "'my file.toml'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
