//! `[scale.NAME]`: overrides for a size, and which cases are left of the sweep.

use serde_json::{Map, Value};

use super::apply;
use super::document::{Outcome, Resolver, Touched};
use super::keys::Keys;
use super::set_option::SetOption;
use super::sweep::{Axis, Origin};
use crate::claim::Claim;
use crate::plan::{ResolvedCase, Scale};
use vmcc_config::did_you_mean;

/// The key of a scale that is no override.
const ONLY_CLAIMED: &str = "only_claimed";

/// The scale that is asked for; nothing, if the file does not have it.
#[derive(Default)]
pub(super) struct ScaleTable {
    name: &'static str,
    overrides: Map<String, Value>,
    /// Cases that no claim looks at are left out.
    pub(super) only_claimed: bool,
}

impl Resolver<'_> {
    pub(super) fn scale_asked_for(&self, mut scales: Map<String, Value>) -> Outcome<ScaleTable> {
        if let Some(unknown) = scales.keys().find(|name| !Scale::NAMES.contains(&name.as_str())) {
            let help = did_you_mean(unknown, Scale::NAMES);
            return Err(self.at(
                &format!("scale.{unknown}"),
                "the scales are `small` and `quick`".into(),
                help,
            ));
        }
        let Some(name) = self.overrides.scale.name() else { return Ok(ScaleTable::default()) };
        let mut overrides = match scales.remove(name) {
            None => Map::new(),
            Some(Value::Object(table)) => table,
            Some(_) => {
                return Err(self.at(&format!("scale.{name}"), "expected a table of overrides".into(), None));
            }
        };
        let only_claimed = match overrides.remove(ONLY_CLAIMED) {
            None => false,
            Some(Value::Bool(only)) => only,
            Some(_) => {
                let path = format!("scale.{name}.{ONLY_CLAIMED}");
                return Err(self.at(&path, "expected `true` or `false`".into(), None));
            }
        };
        Ok(ScaleTable { name, overrides, only_claimed })
    }

    /// Its `sweep` table replaces axes.
    pub(super) fn apply_scale(
        &self,
        scale: &ScaleTable,
        base: &mut Map<String, Value>,
        keys: &Keys,
        sweep_table: &mut Map<String, Value>,
    ) -> Outcome<Touched> {
        let name = scale.name;
        let mut touched = Touched::new();
        for (key, value) in &scale.overrides {
            let origin = format!("scale.{name}.{key}");
            if key == "sweep" {
                let axes =
                    value.as_object().ok_or_else(|| self.at(&origin, "expected a table".into(), None))?;
                sweep_table.extend(axes.iter().map(|(k, v)| (k.clone(), v.clone())));
                continue;
            }
            let paths =
                apply::set(base, keys, key, value).map_err(|e| self.at(&origin, e.message, e.help))?;
            touched.extend(paths.into_iter().map(|path| {
                let from = format!("scale.{name}.{}", without_indices(&path));
                (path, Origin::File(from))
            }));
        }
        Ok(touched)
    }

    /// A scale that sets what an axis sets would have no effect.
    pub(super) fn refuse_scaled_axes(&self, axes: &[Axis], keys: &Keys, touched: &Touched) -> Outcome<()> {
        for axis in axes.iter().filter(|axis| !axis.is_variant) {
            let Some(full) = keys.canonical(&axis.key) else { continue };
            let scaled = touched
                .iter()
                .find(|(path, origin)| without_indices(path) == full && matches!(origin, Origin::File(_)));
            if let (Some((_, origin)), Origin::File(_)) = (scaled, &axis.settings[0].origin) {
                let message = format!("`{}` is an axis of the sweep, which would override this", axis.key);
                let help = format!("write `sweep.{} = [...]` here instead", axis.key);
                return Err(self.at_origin(origin, None, message, Some(help)));
            }
        }
        Ok(())
    }

    /// True if `--set` names an axis. Cases that are chosen this way are all run, with a claim or without.
    pub(super) fn chooses_among(&self, axes: &[Axis], keys: &Keys) -> bool {
        let options = self.overrides.set.iter().filter_map(|text| SetOption::parse(text).ok());
        options.into_iter().any(|option| axes.iter().any(|axis| axis.is_called(&option.key, keys)))
    }

    /// Leaves out the cases that no claim looks at.
    pub(super) fn keep_claimed(
        &self,
        scale: &ScaleTable,
        cases: &mut Vec<ResolvedCase>,
        claims: &[Claim],
    ) -> Outcome<()> {
        cases.retain(|case| claims.iter().any(|claim| claim.looks_at(&case.set)));
        if cases.is_empty() {
            let path = format!("scale.{}.{ONLY_CLAIMED}", scale.name);
            return Err(self.at(&path, "no claim looks at any case of the sweep".into(), None));
        }
        for (index, case) in cases.iter_mut().enumerate() {
            case.index = index;
        }
        Ok(())
    }
}

/// `traffic[0].size` as it would be written in a table: `traffic.size`.
fn without_indices(path: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}
