//! Hash of a network namespace's addresses, interfaces and routes, which shows changes.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use vmcc_netlink::Links;

const ROUTES: &str = "/proc/thread-self/net/route";
const ROUTES6: &str = "/proc/thread-self/net/ipv6_route";
/// Columns of the latter that count uses.
const COUNTS: [usize; 2] = [6, 7];

/// A number for what the calling thread's namespace has; another one when that changes. What cannot be read does not change.
pub(crate) fn topology() -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Ok(mut links) = Links::open() {
        for port in links.list().unwrap_or_default() {
            (port.index, port.name, port.up).hash(&mut hasher);
        }
        for found in links.addresses().unwrap_or_default() {
            (found.port, found.address, found.usable).hash(&mut hasher);
        }
    }
    let without_counts = |line: &str| -> Vec<String> {
        let words = line.split_whitespace().enumerate();
        words.filter(|(at, _)| !COUNTS.contains(at)).map(|(_, word)| word.to_owned()).collect()
    };
    // Interfaces may have names that are no text.
    fs::read(ROUTES).unwrap_or_default().hash(&mut hasher);
    let six = fs::read(ROUTES6).unwrap_or_default();
    let six: Vec<_> = String::from_utf8_lossy(&six).lines().map(without_counts).collect();
    six.hash(&mut hasher);
    hasher.finish()
}
