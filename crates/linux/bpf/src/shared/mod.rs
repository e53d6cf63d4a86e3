//! Types and constants shared by the programs in `kernel/` and this crate: a file per C header, a type per C struct with its
//! name in C, and the constants under their C names. A test compares all of it with the BTF of the objects that the build makes.
//!
//! Members and constants are documented where C has them, in `kernel/shared`.
//!
//! No type has padding (the compiler sees to that), so each is its bytes.

#![allow(missing_docs)]

pub mod activity;
pub mod algorithm;
pub mod cgroup;
pub mod hold;
pub mod live;
#[cfg(test)]
pub mod marking;
pub mod observe;
pub mod port;
pub mod qdisc;
pub mod states;
#[cfg(test)]
mod tests;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The key of an array's first element.
pub const FIRST: u32 = 0;

/// A struct as one side sees it.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    /// Name, offset and size of each.
    pub(crate) members: &'static [(&'static str, usize, usize)],
}

/// An enum of C and the constants that this side has of it.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constants {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [(&'static str, u32)],
}

/// Structs that C has too, and a table `LAYOUTS` of them for the comparison.
macro_rules! shared_structs {
    ($($(#[$meta:meta])* struct $name:ident as $c:literal {
        $($(#[$of:meta])* $member:ident: $type:ty,)*
    })*) => {
        $($(#[$meta])* #[repr(C)] pub struct $name { $($(#[$of])* pub $member: $type,)* })*

        #[cfg(test)]
        pub(crate) const LAYOUTS: &[$crate::shared::Layout] = &[$($crate::shared::Layout {
            name: $c,
            size: size_of::<$name>(),
            members: &[$((stringify!($member), std::mem::offset_of!($name, $member), size_of::<$type>()),)*],
        },)*];
    };
}

/// Constants that C has too, by enum, and a table `CONSTANTS` of them for the comparison; those that C has as macros are
/// in `enum ..._macros` of kernel/shared/layouts.bpf.c.
macro_rules! shared_constants {
    ($($c:literal { $($name:ident = $value:expr,)* })*) => {
        $($(pub const $name: u32 = $value;)*)*

        #[cfg(test)]
        pub(crate) const CONSTANTS: &[$crate::shared::Constants] = &[$($crate::shared::Constants {
            name: $c,
            values: &[$((stringify!($name), $name),)*],
        },)*];
    };
}

pub(crate) use {shared_constants, shared_structs};

/// An element of an array map; `None` if there is none, or it is none of these.
///
/// # Errors
/// The kernel refuses.
pub fn read<T: FromBytes>(map: &impl MapCore, index: u32) -> libbpf_rs::Result<Option<T>> {
    let bytes = map.lookup(index.as_bytes(), MapFlags::ANY)?;
    Ok(bytes.and_then(|bytes| T::read_from_bytes(&bytes).ok()))
}

/// Writes an element of an array map.
///
/// # Errors
/// The kernel refuses.
pub fn write<T: IntoBytes + Immutable + ?Sized>(
    map: &impl MapCore,
    index: u32,
    value: &T,
) -> libbpf_rs::Result<()> {
    map.update(index.as_bytes(), value.as_bytes(), MapFlags::ANY)
}
