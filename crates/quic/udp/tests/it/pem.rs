//! The tests' certificate as files, for programs of others.

use std::path::Path;
use vmcc_quic_testkit::tls;

/// Writes `certificate.pem` and `key.pem` into a folder.
pub(crate) fn write_identity(folder: &Path) {
    let (certificate, key) = tls::identity();
    std::fs::write(folder.join("certificate.pem"), pem("CERTIFICATE", certificate)).unwrap();
    std::fs::write(folder.join("key.pem"), pem("PRIVATE KEY", key)).unwrap();
}

/// Text encoding of DER (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let bits =
                group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            for digit in 0..4 {
                let value = (bits >> (18 - 6 * digit) & 63) as usize;
                text.push(if digit > group.len() { '=' } else { char::from(DIGITS[value]) });
            }
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
