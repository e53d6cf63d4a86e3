//! TOML text as a tree of values, and the place of every key in the text.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::decode::{decode, join};
use crate::diagnostic::{Diagnostic, Place};

/// The largest text that is read.
pub const MAX_BYTES: usize = 1 << 20;

/// A TOML text as a tree of values, which knows the place of every key.
#[derive(Debug, Clone)]
pub struct Source {
    file: String,
    text: String,
    tree: Map<String, Value>,
    places: BTreeMap<String, Span>,
}

#[derive(Debug, Clone)]
struct Span {
    key: Range<usize>,
    value: Range<usize>,
}

impl Source {
    /// Parses `text`; `file` stands for it in messages.
    ///
    /// # Errors
    /// It is not TOML, is longer than [`MAX_BYTES`], or has dates, or numbers that are not finite or do not fit.
    pub fn parse(file: &str, text: &str) -> Result<Self, Box<Diagnostic>> {
        let fault = |message: String, range: Option<Range<usize>>| {
            Box::new(Diagnostic {
                file: file.to_owned(),
                place: range.map(|r| Place::of(text, r)),
                key: None,
                message,
                help: None,
            })
        };
        if text.len() > MAX_BYTES {
            return Err(fault(format!("the text is longer than {MAX_BYTES} bytes"), None));
        }
        let table =
            DeTable::parse(text).map_err(|e| fault(format!("not TOML: {}", e.message()), e.span()))?;
        let mut places = BTreeMap::new();
        let tree = table_value(table.get_ref(), "", &mut places)
            .map_err(|(message, range)| fault(message, Some(range)))?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), tree, places })
    }

    /// The text itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tree of its values, with keys in the text's order.
    pub fn tree(&self) -> &Map<String, Value> {
        &self.tree
    }

    /// Reads the text as a type.
    ///
    /// # Errors
    /// The diagnostic of the first key that does not fit, with the nearest valid name.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Box<Diagnostic>> {
        decode(Value::Object(self.tree.clone()))
            .map_err(|bad| Box::new(self.diagnostic(&bad.path, bad.of_key, bad.message, bad.help)))
    }

    /// A diagnostic at a key path such as `class[1].weight`, or at the nearest enclosing key that the text has;
    /// `of_key` points at the key instead of at its value.
    pub fn diagnostic(&self, path: &str, of_key: bool, message: String, help: Option<String>) -> Diagnostic {
        let mut at = path;
        let found = loop {
            if let Some(span) = self.places.get(at) {
                break Some(span);
            }
            match at.rfind(['.', '[']) {
                Some(cut) => at = &at[..cut],
                None => break None,
            }
        };
        let range =
            found.map(|span| if of_key && at == path { span.key.clone() } else { span.value.clone() });
        // A missing key belongs to its table: point at the table's name, not at all of its text.
        let range = match (range, found) {
            (Some(range), Some(span)) if self.text.get(range.clone()).is_some_and(|t| t.contains('\n')) => {
                Some(span.key.clone())
            }
            (range, _) => range,
        };
        Diagnostic {
            file: self.file.clone(),
            place: range.map(|r| Place::of(&self.text, r)),
            key: (!path.is_empty()).then(|| path.to_owned()),
            message,
            help,
        }
    }

    /// A diagnostic inside the text value of a key, `offset` bytes from its first character.
    pub fn diagnostic_inside(&self, path: &str, offset: usize, length: usize, message: String) -> Diagnostic {
        let mut diagnostic = self.diagnostic(path, false, message, None);
        if let Some(span) = self.places.get(path) {
            let raw = self.text.get(span.value.clone()).unwrap_or("");
            let quote = if raw.starts_with("\"\"\"") || raw.starts_with("'''") { 3 } else { 1 };
            // Escapes would shift the place; then the whole value is shown.
            if !raw.contains('\\') {
                let start = span.value.start + quote + offset;
                diagnostic.place = Some(Place::of(&self.text, start..start + length.max(1)));
            }
        }
        diagnostic
    }
}

type Bad = (String, Range<usize>);

fn table_value(
    table: &DeTable<'_>,
    path: &str,
    places: &mut BTreeMap<String, Span>,
) -> Result<Map<String, Value>, Bad> {
    // DeTable is sorted by key; results should follow the text.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut map = Map::new();
    for (key, value) in entries {
        let name = key.get_ref().to_string();
        let inner = join(path, &name);
        let converted = convert(value, &inner, places)?;
        places.insert(inner, Span { key: key.span(), value: value.span() });
        map.insert(name, converted);
    }
    Ok(map)
}

fn convert(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    places: &mut BTreeMap<String, Span>,
) -> Result<Value, Bad> {
    let bad = |message: &str| (message.to_owned(), value.span());
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            let parsed = i64::from_str_radix(&digits, number.radix());
            Value::Number(parsed.map_err(|_| bad("this integer does not fit into 64 bits"))?.into())
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().replace('_', "").parse::<f64>().ok().and_then(Number::from_f64);
            Value::Number(parsed.ok_or_else(|| bad("a number must be finite"))?)
        }
        DeValue::Datetime(_) => return Err(bad("dates have no place here; times are texts such as \"10s\"")),
        DeValue::Array(items) => {
            let mut list = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let inner = format!("{path}[{index}]");
                list.push(convert(item, &inner, places)?);
                places.insert(inner, Span { key: item.span(), value: item.span() });
            }
            Value::Array(list)
        }
        DeValue::Table(table) => Value::Object(table_value(table, path, places)?),
    })
}
