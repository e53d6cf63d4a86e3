//! Reads `algorithms/registry.toml` and generates what is derived from it.
//!
//! For build scripts: `vmcc-cc` makes its Rust table and the native C objects from a [`Registry`],
//! the kernel loader makes one BPF object per [`Algorithm`]; both compile against the C header that
//! [`Registry::c_header`] returns (write it as `cc_params.h` into the include path).

mod generate;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Parameters per algorithm: `CC_MAX_PARAMS` of `cc.h`.
pub const MAX_PARAMS: usize = 12;
/// Longest kernel name: `TCP_CA_NAME_MAX` without its terminating zero.
pub const MAX_KERNEL_NAME: usize = 15;

/// All algorithms, in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Registry {
    /// The entries.
    pub algorithms: Vec<Algorithm>,
}

/// One entry of the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct Algorithm {
    /// Name, also of its source file and the prefix of its hooks.
    pub name: String,
    /// Name under which the kernel knows it.
    pub kernel_name: String,
    /// One line: what it is.
    pub title: String,
    /// Paper or standard it implements.
    pub source: String,
    /// Reads sibling paths.
    pub coupled: bool,
    /// Needs ECN to be negotiated.
    pub needs_ecn: bool,
    /// Begins its state with DCTCP's estimate of the marked fraction.
    pub alpha: bool,
    /// Detects paths that share a bottleneck.
    pub detects: bool,
    /// Spaces packets.
    pub paces: bool,
    /// Parameters, in the order of `struct cc_params`.
    pub params: Vec<Param>,
}

/// One parameter of an algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Name, as users write it.
    pub name: String,
    /// Unit, `"1"` for a pure number.
    pub unit: String,
    /// Default, in `unit`; for a choice the index of the default word.
    pub default: f64,
    /// Smallest value allowed.
    pub min: f64,
    /// Largest value allowed.
    pub max: f64,
    /// The C code sees `round(value * scale)`.
    pub scale: f64,
    /// The words of a choice; empty for a number.
    pub choices: Vec<String>,
    /// Source of the default and the range.
    pub cite: String,
    /// Effect of the parameter.
    pub doc: String,
}

/// Error of reading a registry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not what its comment says.
    #[error("registry: {0}")]
    Syntax(#[from] toml::de::Error),
    /// An entry contradicts a rule.
    #[error("registry: {algorithm}: {problem}")]
    Entry {
        /// The entry.
        algorithm: String,
        /// The rule it breaks.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlgorithm {
    title: String,
    source: String,
    coupled: bool,
    needs_ecn: bool,
    #[serde(default)]
    alpha: bool,
    #[serde(default)]
    detects: bool,
    #[serde(default)]
    paces: bool,
    kernel: Option<String>,
    #[serde(default)]
    param: Vec<RawParam>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParam {
    name: String,
    #[serde(default)]
    unit: String,
    default: toml::Value,
    min: Option<f64>,
    max: Option<f64>,
    q: Option<u32>,
    scale: Option<f64>,
    #[serde(default)]
    choices: Vec<String>,
    cite: String,
    doc: String,
}

impl Registry {
    /// Reads and checks a registry file.
    ///
    /// # Errors
    /// The file is unreadable, not TOML of the expected form, or breaks a rule that the error names.
    pub fn load(path: &Path) -> Result<Self, RegistryError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| RegistryError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Parses and checks the text of a registry.
    ///
    /// # Errors
    /// As [`Registry::load`], without reading.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let table: toml::Table = toml::from_str(text)?;
        let mut algorithms = Vec::with_capacity(table.len());
        for (name, value) in table {
            let raw: RawAlgorithm = value.try_into()?;
            let entry = Algorithm::check(&name, raw)
                .map_err(|problem| RegistryError::Entry { algorithm: name, problem })?;
            algorithms.push(entry);
        }
        Ok(Self { algorithms })
    }
}

impl Algorithm {
    /// Parses and checks one entry, without the line of its name: the description in a user's own file.
    ///
    /// # Errors
    /// As [`Registry::parse`].
    pub fn parse(name: &str, text: &str) -> Result<Self, RegistryError> {
        Self::check(name, toml::from_str(text)?)
            .map_err(|problem| RegistryError::Entry { algorithm: name.to_owned(), problem })
    }

    fn check(name: &str, raw: RawAlgorithm) -> Result<Self, String> {
        if !is_identifier(name) {
            return Err("a name is made of a-z, 0-9 and _, starting with a letter".into());
        }
        let kernel_name = raw.kernel.unwrap_or_else(|| format!("mp_{name}"));
        if kernel_name.len() > MAX_KERNEL_NAME || !is_identifier(&kernel_name) {
            return Err(format!(
                "kernel name `{kernel_name}` is longer than {MAX_KERNEL_NAME} or not a name"
            ));
        }
        if raw.param.len() > MAX_PARAMS {
            return Err(format!("more than {MAX_PARAMS} parameters"));
        }
        let params: Vec<Param> = raw.param.into_iter().map(Param::check).collect::<Result<_, _>>()?;
        for (i, p) in params.iter().enumerate() {
            if params[..i].iter().any(|q| q.name == p.name) {
                return Err(format!("parameter `{}` appears twice", p.name));
            }
        }
        let (title, source) = (raw.title, raw.source);
        let (coupled, needs_ecn, alpha) = (raw.coupled, raw.needs_ecn, raw.alpha);
        let (detects, paces) = (raw.detects, raw.paces);
        Ok(Self {
            name: name.to_owned(),
            kernel_name,
            title,
            source,
            coupled,
            needs_ecn,
            alpha,
            detects,
            paces,
            params,
        })
    }
}

impl Param {
    fn check(raw: RawParam) -> Result<Self, String> {
        let name = raw.name.clone();
        let param = if raw.choices.is_empty() { Self::number(raw) } else { Self::choice(raw) }
            .map_err(|e| format!("{name}: {e}"))?;
        if !is_identifier(&param.name) {
            return Err(format!("{name}: a parameter is named like an algorithm"));
        }
        if !(param.min <= param.default && param.default <= param.max && param.min >= 0.0) {
            return Err(format!("{name}: needs 0 <= min <= default <= max"));
        }
        if param.max * param.scale > (1u64 << 53) as f64 {
            return Err(format!("{name}: max * scale is not exact"));
        }
        Ok(param)
    }

    fn number(raw: RawParam) -> Result<Self, String> {
        let default = match &raw.default {
            toml::Value::Float(x) => *x,
            toml::Value::Integer(x) => *x as f64,
            other => return Err(format!("default is {}, not a number", other.type_str())),
        };
        let scale = match (raw.q, raw.scale) {
            (Some(q), None) if q <= 40 => (1u64 << q) as f64,
            (None, Some(s)) if s >= 1.0 => s,
            (None, None) => 1.0,
            _ => return Err("give `q` (at most 40) or `scale` (at least 1), not both".into()),
        };
        let (min, max) = raw.min.zip(raw.max).ok_or("a number needs min and max")?;
        if raw.unit.is_empty() {
            return Err("a number needs a unit (\"1\" for none)".into());
        }
        let (name, unit, cite, doc) = (raw.name, raw.unit, raw.cite, raw.doc);
        Ok(Self { name, unit, default, min, max, scale, choices: Vec::new(), cite, doc })
    }

    fn choice(raw: RawParam) -> Result<Self, String> {
        let numeric = raw.q.is_some() || raw.scale.is_some() || raw.min.is_some() || raw.max.is_some();
        if numeric || !raw.unit.is_empty() {
            return Err("a choice has no unit, min, max, q or scale".into());
        }
        let word = raw.default.as_str().ok_or("the default of a choice is one of its words")?;
        let index =
            raw.choices.iter().position(|c| c == word).ok_or("the default is not among the choices")?;
        let max = (raw.choices.len() - 1) as f64;
        Ok(Self {
            name: raw.name,
            unit: "choice".into(),
            default: index as f64,
            min: 0.0,
            max,
            scale: 1.0,
            choices: raw.choices,
            cite: raw.cite,
            doc: raw.doc,
        })
    }

    /// Integer that the C code gets for a value in the parameter's unit.
    pub fn raw(&self, value: f64) -> u64 {
        (value * self.scale).round() as u64
    }
}

/// True for a name of an algorithm or a parameter: a-z, 0-9 and _, starting with a letter.
pub fn is_identifier(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_lowercase())
        && s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
