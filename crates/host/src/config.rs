//! The configuration of a loaded algorithm: `struct mp_config` of `kernel/shared.h`.

use vmcc_cc::{MAX_PARAMS, Params};

/// Bytes of `struct mp_config`.
pub(crate) const CONFIG_BYTES: usize = 160;
/// Where `accounts_map_id` is; `account_connections`, `owner_start` and `initial_netns` follow.
const ACCOUNTS_AT: usize = 144;
/// Name of the data section, hence of the map.
pub(crate) const CONFIG_MAP: &str = ".data.vmcc";
const NAME_BYTES: usize = 16;

/// `struct mp_config`, with the same fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) interface_version: u32,
    pub(crate) owner_pid: u32,
    pub(crate) ops_map_id: u32,
    pub(crate) groups_map_id: u32,
    pub(crate) events_map_id: u32,
    pub(crate) counters_map_id: u32,
    pub(crate) build: u64,
    pub(crate) kernel_name: String,
    pub(crate) params: [u64; MAX_PARAMS],
    pub(crate) accounts_map_id: u32,
    pub(crate) account_connections: u32,
    pub(crate) owner_start: u32,
    pub(crate) initial_netns: u32,
}

impl Config {
    /// Reads the value of the map; `None` if it is none of ours.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CONFIG_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let name = &bytes[32..32 + NAME_BYTES];
        let end = name.iter().position(|b| *b == 0)?;
        Some(Self {
            interface_version: word(0),
            owner_pid: word(4),
            ops_map_id: word(8),
            groups_map_id: word(12),
            events_map_id: word(16),
            counters_map_id: word(20),
            build: long(24),
            kernel_name: std::str::from_utf8(&name[..end]).ok()?.to_owned(),
            params: std::array::from_fn(|i| long(48 + 8 * i)),
            accounts_map_id: word(ACCOUNTS_AT),
            account_connections: word(ACCOUNTS_AT + 4),
            owner_start: word(ACCOUNTS_AT + 8),
            initial_netns: word(ACCOUNTS_AT + 12),
        })
    }

    /// The value of the map.
    pub(crate) fn encode(&self) -> [u8; CONFIG_BYTES] {
        let mut bytes = [0; CONFIG_BYTES];
        let words = [
            self.interface_version,
            self.owner_pid,
            self.ops_map_id,
            self.groups_map_id,
            self.events_map_id,
            self.counters_map_id,
        ];
        for (i, word) in words.into_iter().enumerate() {
            bytes[4 * i..4 * i + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[24..32].copy_from_slice(&self.build.to_ne_bytes());
        // The last byte stays zero.
        let name = &self.kernel_name.as_bytes()[..self.kernel_name.len().min(NAME_BYTES - 1)];
        bytes[32..32 + name.len()].copy_from_slice(name);
        for (i, value) in self.params.iter().enumerate() {
            bytes[48 + 8 * i..56 + 8 * i].copy_from_slice(&value.to_ne_bytes());
        }
        let words = [self.accounts_map_id, self.account_connections, self.owner_start, self.initial_netns];
        for (i, word) in words.into_iter().enumerate() {
            let at = ACCOUNTS_AT + 4 * i;
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn with_params(mut self, params: &Params) -> Self {
        self.params = *params.raw();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let config = Config {
            interface_version: 1,
            owner_pid: 2,
            ops_map_id: 3,
            groups_map_id: 4,
            events_map_id: 5,
            counters_map_id: 6,
            build: 0x0123_4567_89ab_cdef,
            kernel_name: "mp_fifteenchars".to_owned(),
            params: std::array::from_fn(|i| u64::MAX - i as u64),
            accounts_map_id: 7,
            account_connections: 8,
            owner_start: 9,
            initial_netns: 10,
        };
        assert_eq!(Config::decode(&config.encode()), Some(config));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert_eq!(Config::decode(&[0; CONFIG_BYTES - 1]), None);
        assert_eq!(Config::decode(&[0xff; CONFIG_BYTES]), None);
    }
}
