//! Tables whose `kind` (or `rule`) key says which type the other keys belong to.
//!
//! Serde's own internally tagged enums lose the place of an error and ignore unknown keys next to flattened
//! ones, so these are read in two steps: take the tag, then read the rest strictly as the type it names.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserializer;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

mod fault;
mod reader;

pub use fault::{Cause, Fault};
use fault::{owned, quoted};
use reader::Reader;

/// One variant: its tag and how to read and describe its table.
pub struct Variant<E> {
    /// The tag.
    pub tag: &'static str,
    /// Reads the rest of the table.
    pub read: fn(Value) -> Result<E, Fault>,
    /// Describes the rest of the table.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

/// An enum read from a table by the value of one key.
pub trait Tagged: Sized + 'static {
    /// The key that selects the variant.
    const TAG: &'static str;
    /// Name of the table, for messages.
    const WHAT: &'static str;
    /// The variants in order.
    fn variants() -> &'static [Variant<Self>];

    /// The tags in order.
    fn tags() -> Vec<&'static str> {
        Self::variants().iter().map(|v| v.tag).collect()
    }
}

/// Reads one type strictly.
///
/// # Errors
/// What does not fit, and where.
pub fn read_strict<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(Reader(value)).map_err(|error| {
        let path = error.path().to_string();
        error.into_inner().below(&path)
    })
}

/// Reads a tagged table.
pub fn deserialize<'de, E: Tagged, D: Deserializer<'de>>(deserializer: D) -> Result<E, D::Error> {
    let value: Value = serde::Deserialize::deserialize(deserializer)?;
    from_value(value).map_err(Fault::raise)
}

/// Reads a tagged table from a value.
///
/// # Errors
/// What does not fit, and where.
pub fn from_value<E: Tagged>(value: Value) -> Result<E, Fault> {
    let mut table = table_of::<E>(value)?;
    let other = |text: String| Fault::new(Cause::Other(text));
    let tag = match table.remove(E::TAG) {
        Some(Value::String(tag)) => tag,
        Some(_) => {
            return Err(other(format!("expected a text, one of {}", quoted(&E::tags()))).below(E::TAG));
        }
        None => {
            let note = format!(": {} has one of {}", E::WHAT, quoted(&E::tags()));
            return Err(Fault::new(Cause::Missing { name: E::TAG.to_owned(), note }));
        }
    };
    match E::variants().iter().find(|v| v.tag == tag) {
        Some(variant) => (variant.read)(Value::Object(table)),
        None => {
            let unknown = Cause::UnknownWord { name: tag, expected: owned(&E::tags()) };
            Err(Fault::new(unknown).below(E::TAG))
        }
    }
}

fn table_of<E: Tagged>(value: Value) -> Result<Map<String, Value>, Fault> {
    match value {
        Value::Object(table) => Ok(table),
        _ => Err(Fault::new(Cause::Other(format!("expected {}: a table with a `{}`", E::WHAT, E::TAG)))),
    }
}

/// The schema of a tagged table: one alternative per tag, each strict.
pub fn schema<E: Tagged>(generator: &mut SchemaGenerator) -> Schema {
    let alternatives: Vec<Value> = E::variants()
        .iter()
        .map(|variant| {
            let inner = (variant.schema)(generator).to_value();
            let tag = serde_json::json!({
                "type": "object",
                "properties": { E::TAG: { "const": variant.tag } },
                "required": [E::TAG],
            });
            merge_objects(tag, inner)
        })
        .collect();
    schemars::json_schema!({ "oneOf": alternatives })
}

/// One strict object schema with the properties of both.
fn merge_objects(first: Value, second: Value) -> Value {
    let (mut first, second) = (object(first), object(second));
    let mut properties = first.remove("properties").map(object).unwrap_or_default();
    properties.extend(second.get("properties").cloned().map(object).unwrap_or_default());
    let required: BTreeSet<String> = [first.get("required"), second.get("required")]
        .into_iter()
        .flatten()
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect();
    first.extend(second.into_iter().filter(|(key, _)| matches!(key.as_str(), "description" | "$defs")));
    first.insert("type".into(), "object".into());
    first.insert("properties".into(), properties.into());
    first.insert("required".into(), required.into_iter().collect::<Vec<_>>().into());
    first.insert("additionalProperties".into(), false.into());
    Value::Object(first)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Splits a table into the keys that belong to `C` and the rest, then reads both.
///
/// # Errors
/// What does not fit, and where.
pub fn split_common<C: DeserializeOwned + JsonSchema + 'static, E: Tagged>(
    value: Value,
) -> Result<(C, E), Fault> {
    let names = property_names::<C>();
    let (common, rest): (Map<_, _>, Map<_, _>) =
        table_of::<E>(value)?.into_iter().partition(|(key, _)| names.contains(key));
    let kind = from_value::<E>(Value::Object(rest)).map_err(|fault| with_expected(fault, names))?;
    Ok((read_strict(Value::Object(common))?, kind))
}

/// Adds the shared keys to those that might have been meant by an unknown one beside them.
fn with_expected(mut fault: Fault, names: &BTreeSet<String>) -> Fault {
    if let Cause::UnknownKey { name, expected } = &mut fault.cause
        && (fault.path.is_empty() || fault.path == *name)
    {
        expected.extend(names.iter().cloned());
    }
    fault
}

/// Keys of table types, made once per type: a schema costs more than reading a table.
static PROPERTY_NAMES: Mutex<BTreeMap<TypeId, &'static BTreeSet<String>>> = Mutex::new(BTreeMap::new());

/// The keys of a table type, from its schema.
pub fn property_names<T: JsonSchema + 'static>() -> &'static BTreeSet<String> {
    // A schema may need that of another tagged table, so none is made under the lock.
    let known = || PROPERTY_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(names) = known().get(&TypeId::of::<T>()).copied() {
        return names;
    }
    let schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
    let names: BTreeSet<String> = schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|p| p.keys().cloned().collect())
        .unwrap_or_default();
    known().entry(TypeId::of::<T>()).or_insert_with(|| Box::leak(Box::new(names)))
}

/// Implements reading, describing and listing for a tagged enum of newtype variants.
#[macro_export]
macro_rules! tagged {
    ($name:ident, $tag:literal, $what:literal, { $($text:literal => $variant:ident($inner:ty)),+ $(,)? }) => {
        impl $crate::tagged::Tagged for $name {
            const TAG: &'static str = $tag;
            const WHAT: &'static str = $what;
            fn variants() -> &'static [$crate::tagged::Variant<Self>] {
                &[$($crate::tagged::Variant {
                    tag: $text,
                    read: |value| $crate::tagged::read_strict::<$inner>(value).map($name::$variant),
                    schema: <$inner as schemars::JsonSchema>::json_schema,
                }),+]
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::tagged::deserialize(deserializer)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::tagged::schema::<Self>(generator)
            }
        }
    };
}
/// The schema name of a table made of a shared part and a tagged part, and its schema.
pub fn common_schema<C: JsonSchema, E: Tagged>(generator: &mut SchemaGenerator) -> Schema {
    let common = C::json_schema(generator).to_value();
    let mut alternatives = schema::<E>(generator).to_value();
    if let Some(list) = alternatives.get_mut("oneOf").and_then(Value::as_array_mut) {
        for alternative in list {
            let own = alternative.take();
            *alternative = merge_objects(own, common.clone());
        }
    }
    let description: Cow<'static, str> = E::WHAT.into();
    let mut schema = Schema::try_from(alternatives).unwrap_or_default();
    schema.insert("description".into(), description.into_owned().into());
    schema
}
