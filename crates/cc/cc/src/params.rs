//! Parameters of an algorithm: from what users write to the raw values that the C code reads.

use crate::MAX_PARAMS;
use crate::algorithm::{Algorithm, ParamInfo, suggest};

/// A value as users give it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamValue<'a> {
    /// In the parameter's unit; for a choice the index of the word.
    Number(f64),
    /// A word of a choice, or a number as text.
    Text(&'a str),
}

impl From<f64> for ParamValue<'_> {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl<'a> From<&'a str> for ParamValue<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

/// Error of setting a parameter. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// The algorithm has no such parameter.
    #[error("{algorithm} has no parameter `{name}`; {}", suggest(nearest, known))]
    Unknown {
        /// The algorithm.
        algorithm: &'static str,
        /// The requested name.
        name: String,
        /// Names like it, most alike first.
        nearest: Vec<&'static str>,
        /// Every parameter it has.
        known: Vec<&'static str>,
    },
    /// The value is outside the range.
    #[error("{algorithm}: {name} = {value} is out of range; allowed: {range}")]
    OutOfRange {
        /// The algorithm.
        algorithm: &'static str,
        /// The parameter.
        name: &'static str,
        /// The value given.
        value: f64,
        /// The range with its unit.
        range: String,
    },
    /// The text is neither a number nor a word of the choice.
    #[error("{algorithm}: {name} = `{value}` is not a value; allowed: {range}")]
    NotAValue {
        /// The algorithm.
        algorithm: &'static str,
        /// The parameter.
        name: &'static str,
        /// The text given.
        value: String,
        /// The range with its unit.
        range: String,
    },
}

/// Parameters that some detectors of shared bottlenecks heed, and which.
const DETECTORS_OF: [(&[&str], &[&str]); 2] =
    [(&["theta", "phi", "early", "count", "tests"], &["counts"]), (&["interval"], &["events", "statistics"])];

/// The parameters of one algorithm, as its C code reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    raw: [u64; MAX_PARAMS],
    algorithm: Algorithm,
}

impl Params {
    /// The defaults of the registry.
    pub fn defaults(algorithm: Algorithm) -> Self {
        let mut raw = [0; MAX_PARAMS];
        for (slot, info) in raw.iter_mut().zip(algorithm.info().params) {
            *slot = to_raw(info, info.default);
        }
        Self { raw, algorithm }
    }

    /// Parameters as the C code has them.
    pub fn from_raw(algorithm: Algorithm, raw: [u64; MAX_PARAMS]) -> Self {
        Self { raw, algorithm }
    }

    /// Every parameter with its value in its unit: the shortest number that gives what the C code reads.
    pub fn values(&self) -> impl Iterator<Item = (&'static ParamInfo, f64)> {
        self.algorithm.info().params.iter().zip(self.raw).map(|(info, raw)| (info, from_raw(info, raw)))
    }

    /// Those of [`Self::values`] that are not the registry's default.
    pub fn changed(&self) -> impl Iterator<Item = (&'static ParamInfo, f64)> {
        self.values().filter(|(info, value)| to_raw(info, *value) != to_raw(info, info.default))
    }

    /// Explanation, with a remedy, for parameters that differ from their defaults and have no effect; `None` if all have one.
    pub fn unheeded(&self) -> Option<String> {
        let chosen = self.choice("detector")?;
        let of_others = DETECTORS_OF.iter().filter(|(_, of)| !of.contains(&chosen));
        let missing = |(names, of): &(&[&str], &[&str])| {
            let names: Vec<_> =
                self.changed().map(|(info, _)| info.name).filter(|name| names.contains(name)).collect();
            let of: Vec<_> = of.iter().map(|name| format!("detector = \"{name}\"")).collect();
            let (names, of) = (names.join(", "), of.join(" or "));
            (!names.is_empty()).then(|| format!("without {of} there is no effect of {names}"))
        };
        let all: Vec<_> = of_others.filter_map(missing).collect();
        let (algorithm, all) = (self.algorithm, all.join(", "));
        (!all.is_empty()).then(|| format!("{algorithm}: {all}; set that too, or leave them out"))
    }

    /// The algorithm these belong to.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// `struct cc_params`: the raw values, zero beyond the algorithm's last parameter.
    #[inline]
    pub fn raw(&self) -> &[u64; MAX_PARAMS] {
        &self.raw
    }

    /// The current value of a parameter in its unit, if the algorithm has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        let index = self.algorithm.info().params.iter().position(|p| p.name == name)?;
        Some(self.raw[index] as f64 / self.algorithm.info().params[index].scale)
    }

    /// The current word of a parameter that is a choice, if the algorithm has it.
    pub fn choice(&self, name: &str) -> Option<&'static str> {
        let info = self.algorithm.info().params.iter().find(|p| p.name == name)?;
        info.choices.get(self.get(name)? as usize).copied()
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The algorithm does not have it, or the value is not allowed; the error names what is.
    pub fn set<'a>(&mut self, name: &str, value: impl Into<ParamValue<'a>>) -> Result<(), ParamError> {
        let info = self.algorithm.info();
        let Some(index) = info.params.iter().position(|p| p.name == name) else {
            let known: Vec<_> = info.params.iter().map(|p| p.name).collect();
            let nearest = vmcc_config::nearest(name, known.iter().copied());
            return Err(ParamError::Unknown { algorithm: info.name, name: name.to_owned(), nearest, known });
        };
        let param = &info.params[index];
        self.raw[index] = to_raw(param, checked(info.name, param, value.into())?);
        Ok(())
    }
}

fn checked(algorithm: &'static str, param: &ParamInfo, value: ParamValue<'_>) -> Result<f64, ParamError> {
    let number = match value {
        ParamValue::Number(x) => x,
        ParamValue::Text(text) => parse(param, text).ok_or_else(|| ParamError::NotAValue {
            algorithm,
            name: param.name,
            value: text.to_owned(),
            range: param.range_text(),
        })?,
    };
    let whole = param.choices.is_empty() || number.fract() == 0.0;
    if !(number >= param.min && number <= param.max && whole) {
        let range = param.range_text();
        return Err(ParamError::OutOfRange { algorithm, name: param.name, value: number, range });
    }
    Ok(number)
}

fn parse(param: &ParamInfo, text: &str) -> Option<f64> {
    if param.choices.is_empty() {
        return text.trim().parse().ok();
    }
    param.choices.iter().position(|c| *c == text.trim()).map(|i| i as f64)
}

fn to_raw(info: &ParamInfo, value: f64) -> u64 {
    (value * info.scale).round() as u64
}

fn from_raw(info: &ParamInfo, raw: u64) -> f64 {
    /// More digits than a scale of 32 fractional bits can tell apart.
    const MAX_DIGITS: usize = 12;
    let exact = raw as f64 / info.scale;
    let rounded = |digits: usize| format!("{exact:.digits$}").parse().unwrap_or(exact);
    (0..=MAX_DIGITS).map(rounded).find(|value| to_raw(info, *value) == raw).unwrap_or(exact)
}
