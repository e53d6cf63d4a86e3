//! A checked scenario file, and its cases.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::apply;
use super::beside;
use super::keys::Keys;
use super::set_option::SetOption;
use super::sweep::{self, Axis, BadAxis, Origin};
use crate::claim::Claim;
use crate::error::ScenarioError;
use crate::model::{ClaimSpec, Scenario};
use crate::plan::{Overrides, Plan, ResolvedCase, Scale};
use vmcc_config::ReadError;
use vmcc_config::{BadValue, decode};
use vmcc_config::{Diagnostic, did_you_mean};
use vmcc_config::{MAX_BYTES, Source};

/// Keys of the file that are not part of a case.
const FILE_KEYS: [&str; 3] = ["sweep", "scale", "claim"];
/// Keys that hold for the whole plan and so cannot vary between cases.
const PLAN_KEYS: [&str; 5] = ["title", "source", "description", "runs", "seed"];

/// A scenario file that was read and found valid.
#[derive(Debug, Clone)]
pub struct Document {
    name: String,
    source: Source,
    /// Folder of the file, if it is one.
    folder: Option<PathBuf>,
}

pub(super) type Outcome<T> = Result<T, Box<Diagnostic>>;

impl Document {
    /// Reads a built-in scenario by name, or else a file.
    ///
    /// # Errors
    /// There is no such scenario, it cannot be read, or it is not valid.
    pub fn open(name_or_path: &str) -> Result<Self, ScenarioError> {
        if let Some(builtin) = crate::builtin::find(name_or_path) {
            return Self::parse(builtin.name, builtin.text);
        }
        let path = Path::new(name_or_path);
        if path.exists() || name_or_path.ends_with(".toml") {
            return Self::load(path);
        }
        let names = crate::builtin::all();
        // Who leaves out the folder means the one that ends like that.
        let ends = |b: &&crate::builtin::Builtin| b.name.rsplit('/').next() == Some(name_or_path);
        let mut nearest: Vec<&str> = names.iter().filter(ends).map(|b| b.name).collect();
        let similar = vmcc_config::nearest(name_or_path, names.iter().map(|b| b.name));
        nearest.extend(similar.into_iter().filter(|name| !nearest.contains(name)).collect::<Vec<_>>());
        Err(ScenarioError::NotFound {
            name: name_or_path.to_owned(),
            nearest: nearest.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or it is not a valid scenario.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let read = |source| ScenarioError::Read { path: path.to_owned(), source };
        let unusable = |why: String| ScenarioError::Unusable { path: path.to_owned(), why };
        let bytes = vmcc_config::read(path, MAX_BYTES as u64).map_err(|e| match e {
            ReadError::Io(source) => read(source),
            other => unusable(other.to_string()),
        })?;
        let text = String::from_utf8(bytes).map_err(|e| unusable(format!("it is not UTF-8 text: {e}")))?;
        let stem = path.file_stem().map_or_else(|| "scenario".into(), |s| s.to_string_lossy().into_owned());
        let folder = path.parent().map(Path::to_owned);
        Self::parse_as(stem, &path.display().to_string(), &text, folder)
    }

    /// Reads a text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// It is not a valid scenario.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        Self::parse_as(name.to_owned(), name, text, None)
    }

    fn parse_as(
        name: String,
        file: &str,
        text: &str,
        folder: Option<PathBuf>,
    ) -> Result<Self, ScenarioError> {
        let source = Source::parse(file, text).map_err(ScenarioError::Invalid)?;
        let document = Self { name, source, folder };
        document.plan(&Overrides::default())?;
        if document.source.tree().contains_key("scale") {
            for scale in [Scale::Small, Scale::Quick] {
                document.plan(&Overrides { scale, ..Overrides::default() })?;
            }
        }
        Ok(document)
    }

    /// The scenario's name: a built-in name, or the file's name without its ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text as it was read.
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// Returns the name of this scale's table if the file does not have it, so that it runs as written.
    pub fn missing_scale(&self, scale: Scale) -> Option<&'static str> {
        let there = self.source.tree().get("scale").and_then(Value::as_object);
        scale.name().filter(|name| there.is_none_or(|scales| !scales.contains_key(*name)))
    }

    /// The cases and claims after scale, overrides and sweep, each case fully checked.
    ///
    /// # Errors
    /// An override, or a case that results from them, is not valid.
    pub fn plan(&self, overrides: &Overrides) -> Result<Plan, ScenarioError> {
        let folder = self.folder.as_deref();
        Resolver { source: &self.source, folder, overrides }.plan(&self.name).map_err(ScenarioError::Invalid)
    }
}

pub(super) struct Resolver<'a> {
    source: &'a Source,
    folder: Option<&'a Path>,
    pub(super) overrides: &'a Overrides,
}

/// A path that was overridden, and by what.
pub(super) type Touched = Vec<(String, Origin)>;

impl Resolver<'_> {
    fn plan(&self, name: &str) -> Outcome<Plan> {
        let mut base = self.source.tree().clone();
        let mut sweep_table = self.take_table(&mut base, "sweep")?;
        let scales = self.take_table(&mut base, "scale")?;
        let claims = self.claims(base.remove("claim"))?;
        let keys = Keys::of(&base);
        let scale = self.scale_asked_for(scales)?;
        let mut touched = self.apply_scale(&scale, &mut base, &keys, &mut sweep_table)?;
        let keys = Keys::of(&base);
        let mut axes = sweep::axes(&sweep_table, &keys).map_err(|e| self.bad_axis(e))?;
        let values = axes.clone();
        self.set_options(&mut base, &keys, &mut axes, &mut touched)?;
        sweep::check(&axes, &keys).map_err(|e| self.bad_axis(e))?;
        self.refuse_scaled_axes(&axes, &keys, &touched)?;
        let mut cases = self.cases(&base, &keys, &axes, &touched)?;
        let narrowed = !self.overrides.set.is_empty();
        let claims = self.check_claims(claims, &values, &cases[0].scenario, narrowed)?;
        if scale.only_claimed && !self.chooses_among(&values, &keys) {
            self.keep_claimed(&scale, &mut cases, &claims)?;
        }
        let sets: Vec<_> = cases.iter().map(|case| case.set.clone()).collect();
        let axes: Vec<_> = values.iter().map(labels).collect();
        // A claim that no sweep of the file could decide is no victim of the override.
        let removed = |claim: &Claim| narrowed && !claim.selects(&sets) && claim.could_select(&axes);
        let (not_applicable, claims) = claims.into_iter().partition(removed);
        let first = &cases[0].scenario;
        Ok(Plan {
            name: name.to_owned(),
            title: first.title.clone(),
            source: first.source.clone(),
            runs: first.runs,
            seed: first.seed,
            claims,
            not_applicable,
            cases,
        })
    }

    fn take_table(&self, tree: &mut Map<String, Value>, key: &str) -> Outcome<Map<String, Value>> {
        match tree.remove(key) {
            None => Ok(Map::new()),
            Some(Value::Object(table)) => Ok(table),
            Some(_) => Err(self.at(key, "expected a table".into(), None)),
        }
    }

    pub(super) fn at(&self, path: &str, message: String, help: Option<String>) -> Box<Diagnostic> {
        Box::new(self.source.diagnostic(path, false, message, help))
    }

    pub(super) fn at_origin(
        &self,
        origin: &Origin,
        key: Option<&str>,
        message: String,
        help: Option<String>,
    ) -> Box<Diagnostic> {
        match origin {
            Origin::File(path) => self.at(path, message, help),
            Origin::Set(text) => Box::new(Diagnostic {
                file: format!("--set {text}"),
                place: None,
                key: key.map(str::to_owned),
                message,
                help,
            }),
        }
    }

    fn bad_axis(&self, bad: BadAxis) -> Box<Diagnostic> {
        self.at_origin(&bad.origin, None, bad.message, bad.help)
    }

    fn set_options(
        &self,
        base: &mut Map<String, Value>,
        keys: &Keys,
        axes: &mut Vec<Axis>,
        touched: &mut Touched,
    ) -> Outcome<()> {
        let mut seen: Vec<String> = Vec::new();
        for text in &self.overrides.set {
            let origin = Origin::Set(text.clone());
            let option = SetOption::parse(text).map_err(|m| self.at_origin(&origin, None, m, None))?;
            let is_axis = axes.iter().any(|axis| axis.key == option.key);
            let canonical = keys.canonical(&option.key);
            if canonical.is_none() && !is_axis {
                let names: Vec<String> =
                    keys.all().into_iter().chain(axes.iter().map(|axis| axis.key.clone())).collect();
                let help = did_you_mean(&option.key, names.iter().map(String::as_str));
                let message = format!("the scenario has no value called `{}`", option.key);
                return Err(self.at_origin(&origin, None, message, help));
            }
            let full = canonical.unwrap_or_else(|| option.key.clone());
            if seen.contains(&full) {
                let message = format!("`{}` is set twice", option.key);
                return Err(self.at_origin(&origin, None, message, None));
            }
            seen.push(full.clone());
            if PLAN_KEYS.contains(&full.as_str()) {
                let [value] = option.values.as_slice() else {
                    let message = format!("`{}` holds for all cases and takes one value", option.key);
                    return Err(self.at_origin(&origin, None, message, None));
                };
                base.insert(full.clone(), value.clone());
                touched.push((full, origin));
                continue;
            }
            sweep::add_set(axes, keys, &option, text).map_err(|e| self.bad_axis(e))?;
        }
        for (key, value) in [("runs", self.overrides.runs.map(u64::from)), ("seed", self.overrides.seed)] {
            if let Some(value) = value {
                base.insert(key.into(), value.into());
                touched.push((key.into(), Origin::Set(format!("{key}={value}"))));
            }
        }
        Ok(())
    }

    fn cases(
        &self,
        base: &Map<String, Value>,
        keys: &Keys,
        axes: &[Axis],
        touched: &Touched,
    ) -> Outcome<Vec<ResolvedCase>> {
        let resolve = |(index, combo): (usize, Vec<usize>)| {
            let (mut tree, mut touched) = (base.clone(), touched.clone());
            let mut set = IndexMap::new();
            for (axis, choice) in axes.iter().zip(combo) {
                let setting = &axis.settings[choice];
                set.insert(axis.key.clone(), setting.label.clone());
                for (key, value) in &setting.overrides {
                    let paths = apply::set(&mut tree, keys, key, value)
                        .map_err(|e| self.at_origin(&setting.origin, None, e.message, e.help))?;
                    touched.extend(paths.into_iter().map(|path| (path, setting.origin.clone())));
                }
            }
            let scenario = self.typed(tree, &touched)?;
            ResolvedCase::new(index, set, scenario).map_err(|bad| self.locate(bad, &touched))
        };
        sweep::combinations(axes).into_iter().enumerate().map(resolve).collect()
    }

    fn typed(&self, mut tree: Map<String, Value>, touched: &Touched) -> Outcome<Scenario> {
        beside::expand(&mut tree, self.folder).map_err(|bad| self.locate(bad, touched))?;
        decode(Value::Object(tree)).map_err(|bad| self.locate(with_file_keys(bad), touched))
    }

    /// Blames the override that set the value, or else the place in the file.
    fn locate(&self, bad: BadValue, touched: &Touched) -> Box<Diagnostic> {
        let within = |outer: &str| {
            bad.path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        match touched.iter().rev().find(|(path, _)| within(path)) {
            Some((_, origin)) => {
                let mut diagnostic = self.at_origin(origin, Some(&bad.path), bad.message, bad.help);
                diagnostic.key = Some(bad.path);
                diagnostic
            }
            None => Box::new(self.source.diagnostic(&bad.path, bad.of_key, bad.message, bad.help)),
        }
    }

    fn claims(&self, value: Option<Value>) -> Outcome<Vec<ClaimSpec>> {
        let Some(value) = value else { return Ok(Vec::new()) };
        let claims: Vec<ClaimSpec> = decode(value).map_err(|bad| {
            let path = match bad.path.as_str() {
                "" => "claim".to_owned(),
                inner if inner.starts_with('[') => format!("claim{inner}"),
                inner => format!("claim.{inner}"),
            };
            Box::new(self.source.diagnostic(&path, bad.of_key, bad.message, bad.help))
        })?;
        for (index, claim) in claims.iter().enumerate() {
            if claims[..index].iter().any(|other| other.id == claim.id) {
                let message = format!("another claim is called `{}`", claim.id);
                return Err(self.at(&format!("claim[{index}].id"), message, None));
            }
        }
        Ok(claims)
    }

    /// Parses every claim and checks its names against the sweep and the network.
    fn check_claims(
        &self,
        specs: Vec<ClaimSpec>,
        axes: &[Axis],
        scenario: &Scenario,
        narrowed: bool,
    ) -> Outcome<Vec<Claim>> {
        let check = |(index, spec): (usize, ClaimSpec)| {
            let path = format!("claim[{index}].check");
            let at = |bad: crate::claim::BadClaim| {
                let mut diagnostic =
                    self.source.diagnostic_inside(&path, bad.offset, bad.length, bad.message);
                diagnostic.help = bad.help;
                Box::new(diagnostic)
            };
            let claim = Claim::parse(spec).map_err(at)?;
            let mut axes: Vec<_> = axes.iter().map(labels).collect();
            if narrowed {
                axes.extend(self.extra_axes(&axes));
            }
            claim.check_names(scenario, &axes).map_err(at)?;
            Ok(claim)
        };
        specs.into_iter().enumerate().map(check).collect()
    }

    /// Axes that `--set` added; their values are not checked against claims written without them.
    fn extra_axes(&self, known: &[(String, Vec<Value>)]) -> Vec<(String, Vec<Value>)> {
        let options = self.overrides.set.iter().filter_map(|text| SetOption::parse(text).ok());
        options
            .filter(|option| !known.iter().any(|(key, _)| *key == option.key))
            .map(|option| (option.key, option.values))
            .collect()
    }
}

/// The name of an axis and its values.
fn labels(axis: &Axis) -> (String, Vec<Value>) {
    (axis.key.clone(), axis.settings.iter().map(|s| s.label.clone()).collect())
}

/// The top of the file has more keys than a case.
fn with_file_keys(mut bad: BadValue) -> BadValue {
    if bad.of_key && !bad.path.contains('.') && bad.help.is_none() {
        bad.help = did_you_mean(&bad.path, FILE_KEYS);
    }
    bad
}
