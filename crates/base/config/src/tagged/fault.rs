//! Reason and place of a value that was refused, as types; messages for people are made of them.

use std::cell::RefCell;
use std::fmt;

/// Kind of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A key that does not belong there.
    UnknownKey {
        /// It.
        name: String,
        /// Those that do.
        expected: Vec<String>,
    },
    /// A text that is none of a list.
    UnknownWord {
        /// It.
        name: String,
        /// The list.
        expected: Vec<String>,
    },
    /// A key is not there.
    Missing {
        /// It.
        name: String,
        /// Further information; may be empty.
        note: String,
    },
    /// Said by the type that was to be read.
    Other(String),
}

/// A cause, and the path of keys from the value's top to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Such as `traffic[0].sizes`; empty at the top.
    pub path: String,
    /// The fault there.
    pub cause: Cause,
}

impl Fault {
    /// At the top.
    pub(crate) fn new(cause: Cause) -> Self {
        Self { path: String::new(), cause }
    }

    /// The same, seen from further up.
    pub(crate) fn below(mut self, path: &str) -> Self {
        self.path = match (path, self.path.as_str()) {
            ("." | "", _) => self.path,
            (path, "") => path.to_owned(),
            (path, inner) if inner.starts_with('[') => format!("{path}{inner}"),
            (path, inner) => format!("{path}.{inner}"),
        };
        self
    }

    /// As an error of the reader. A reader that uses [`crate::read_strict`], gets this fault and not its text alone.
    pub fn raise<E: serde::de::Error>(self) -> E {
        // The error's type is not known here, and serde hands a text over. It is the next that happens on this thread.
        let text = self.to_string();
        RAISED.set(Some(self));
        E::custom(text)
    }
}

thread_local! {
    /// Between [`Fault::raise`] and the error that it becomes.
    static RAISED: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

impl serde::de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = message.to_string();
        // One that became another error type is left over, with another text.
        let raised = RAISED.take().filter(|raised| raised.to_string() == text);
        raised.unwrap_or_else(|| Self::new(Cause::Other(text)))
    }

    fn unknown_field(name: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Cause::UnknownKey { name: name.to_owned(), expected: owned(expected) })
    }

    fn unknown_variant(name: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Cause::UnknownWord { name: name.to_owned(), expected: owned(expected) })
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(Cause::Missing { name: name.to_owned(), note: String::new() })
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "at `{}`: ", self.path)?;
        }
        match &self.cause {
            Cause::UnknownKey { name, expected } if expected.is_empty() => {
                write!(f, "unknown key `{name}`, no keys belong here")
            }
            Cause::UnknownKey { name, expected } => {
                write!(f, "unknown key `{name}`, expected one of {}", quoted(expected))
            }
            Cause::UnknownWord { name, expected } => write!(f, "`{name}` is not one of {}", quoted(expected)),
            Cause::Missing { name, note } => write!(f, "the key `{name}` is missing{note}"),
            Cause::Other(text) => f.write_str(text),
        }
    }
}

pub(crate) fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::Error;

    #[test]
    fn fault_survives_nested_deserializers() {
        let fault =
            Fault { path: "a[0]".into(), cause: Cause::Missing { name: "b".into(), note: String::new() } };
        assert_eq!(fault.clone().raise::<Fault>(), fault);
        assert_eq!(fault.below("x"), Fault { path: "x.a[0]".into(), cause: Fault::missing_field("b").cause });
    }

    #[test]
    fn fault_lost_in_another_error_does_not_leak_into_the_next() {
        let fault = Fault::missing_field("b");
        let other: serde_json::Error = fault.clone().raise();
        assert_eq!(other.to_string(), fault.to_string());
        assert_eq!(Fault::custom("else").cause, Cause::Other("else".into()));
        assert_eq!(Fault::custom(&fault).cause, Cause::Other(fault.to_string()), "only once");
    }
}
