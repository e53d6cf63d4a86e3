//! Options of the comparison.

use crate::Result;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Vmcc,
    Quinn,
    Noq,
    /// No transport at all.
    Udp,
}

impl Library {
    fn has_paths(self) -> bool {
        matches!(self, Library::Vmcc | Library::Noq)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Vmcc => "vmcc",
            Library::Quinn => "quinn",
            Library::Noq => "noq",
            Library::Udp => "udp",
        })
    }
}

impl FromStr for Library {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Library, String> {
        let known = [Library::Vmcc, Library::Quinn, Library::Noq, Library::Udp];
        let found = known.into_iter().find(|library| library.to_string() == name);
        found.ok_or_else(|| format!("`{name}` is no library here; there are vmcc, quinn, noq and udp"))
    }
}

/// One cell of the comparison, as configured for the processes.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) library: Library,
    /// Several segments in one call to the kernel.
    pub(crate) offload: bool,
    pub(crate) gib: f64,
    /// Of the receiver, one for each path; with ports where it has told them.
    pub(crate) at: Vec<SocketAddr>,
    /// Of the sender.
    pub(crate) from: Vec<IpAddr>,
}

impl Case {
    pub(crate) fn bytes(&self) -> u64 {
        let pieces = (self.gib * (1_u64 << 30) as f64) as u64 / crate::payload::PIECE as u64;
        pieces * crate::payload::PIECE as u64
    }

    pub(crate) fn paths(&self) -> usize {
        self.at.len()
    }

    pub(crate) fn to_args(&self) -> [String; 5] {
        [
            self.library.to_string(),
            self.offload.to_string(),
            self.gib.to_string(),
            join(&self.at),
            join(&self.from),
        ]
    }

    pub(crate) fn from_args(args: &[String]) -> Result<Case> {
        let [library, offload, gib, at, from] = args else { return Err("five arguments".into()) };
        let (library, offload, gib) = (library.parse()?, offload.parse()?, gib.parse()?);
        Ok(Case { library, offload, gib, at: list(at)?, from: list(from)? })
    }
}

pub(crate) fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

pub(crate) fn list<T: FromStr>(text: &str) -> Result<Vec<T>>
where
    T::Err: fmt::Display,
{
    let parse = |item: &str| item.parse().map_err(|error| format!("`{item}`: {error}").into());
    text.split(',').map(parse).collect()
}

/// The user's options.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) gib: f64,
    pub(crate) rounds: u32,
    paths: Vec<usize>,
    offload: Vec<String>,
    libraries: Vec<Library>,
    at: Vec<IpAddr>,
    from: Vec<IpAddr>,
    pub(crate) far_in: Vec<String>,
    pub(crate) near_in: Vec<String>,
    pub(crate) json: Option<String>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Options> {
        let loopback: Vec<IpAddr> = (1..=8).map(|last| IpAddr::from([127, 0, 0, last])).collect();
        let mut options = Options {
            gib: 2.0,
            rounds: 5,
            paths: vec![1, 2],
            offload: vec!["on".into(), "off".into()],
            libraries: vec![Library::Vmcc, Library::Quinn, Library::Noq, Library::Udp],
            at: loopback.clone(),
            from: loopback,
            far_in: Vec::new(),
            near_in: Vec::new(),
            json: None,
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} wants a value\n{}", crate::USAGE))?;
            let words = || value.split_whitespace().map(str::to_owned).collect();
            match name.as_str() {
                "--gib" => options.gib = value.parse()?,
                "--rounds" => options.rounds = value.parse()?,
                "--paths" => options.paths = list(value)?,
                "--offload" => options.offload = list(value)?,
                "--libraries" => options.libraries = list(value)?,
                "--at" => options.at = list(value)?,
                "--from" => options.from = list(value)?,
                "--far-in" => options.far_in = words(),
                "--near-in" => options.near_in = words(),
                "--json" => options.json = Some(value.clone()),
                _ => return Err(format!("there is no option {name}\n{}", crate::USAGE).into()),
            }
        }
        let most = options.at.len().min(options.from.len());
        if let Some(paths) = options.paths.iter().find(|&&paths| paths == 0 || paths > most) {
            return Err(format!("{paths} paths: there are addresses for 1 to {most}").into());
        }
        if let Some(other) = options.offload.iter().find(|word| !["on", "off"].contains(&word.as_str())) {
            return Err(format!("--offload {other}: on, off or both").into());
        }
        Ok(options)
    }

    /// Each library beside the others; some have one path only.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for offload in self.offload.iter().map(|word| word == "on") {
            for &paths in &self.paths {
                for &library in self.libraries.iter().filter(|own| paths == 1 || own.has_paths()) {
                    let at = self.at[..paths].iter().map(|&ip| SocketAddr::new(ip, 0)).collect();
                    let from = self.from[..paths].to_vec();
                    cases.push(Case { library, offload, gib: self.gib, at, from });
                }
            }
        }
        cases
    }
}
