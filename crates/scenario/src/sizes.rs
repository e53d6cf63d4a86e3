//! Published distributions of transfer sizes.

use serde::Serialize;

/// A published distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Named {
    /// Query and background traffic of a web-search cluster (DCTCP, SIGCOMM 2010, figure 4).
    WebSearch,
    /// A data-mining cluster (VL2, SIGCOMM 2009, figure 2).
    DataMining,
    /// A Memcached cache cluster (Roy et al., SIGCOMM 2015, figure 6).
    Cache,
}

impl Named {
    /// The names in the language.
    pub const NAMES: &'static [&'static str] = &["web-search", "data-mining", "cache"];

    /// The distribution of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "web-search" => Some(Self::WebSearch),
            "data-mining" => Some(Self::DataMining),
            "cache" => Some(Self::Cache),
            _ => None,
        }
    }
}
