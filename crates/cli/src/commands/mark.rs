//! `vmcc mark` and `vmcc unmark`: marking on one port.

use crate::args::MarkOptions;
use crate::failure::{Exit, Failure};
use crate::ui::Ui;
use vmcc_units::{BitsPerSec, Bytes, Threshold};

/// What a packet counts when a threshold is given in packets.
const PACKET: Bytes = Bytes::new(1514);

#[cfg_attr(not(feature = "kernel"), expect(unused_variables, reason = "only the kernel can mark"))]
pub(crate) fn mark(options: &MarkOptions, ui: &Ui) -> Result<Exit, Failure> {
    let threshold = threshold(options)?;
    #[cfg(feature = "kernel")]
    return crate::kernel::mark::mark(&options.port, threshold, ui);
    #[cfg(not(feature = "kernel"))]
    Err(crate::failure::without_kernel("vmcc mark"))
}

#[cfg_attr(not(feature = "kernel"), expect(unused_variables, reason = "only the kernel can mark"))]
pub(crate) fn unmark(port: &str, ui: &Ui) -> Result<Exit, Failure> {
    #[cfg(feature = "kernel")]
    return crate::kernel::mark::unmark(port, ui);
    #[cfg(not(feature = "kernel"))]
    Err(crate::failure::without_kernel("vmcc unmark"))
}

fn threshold(options: &MarkOptions) -> Result<Bytes, Failure> {
    let wrong = |option: &str, error: &dyn std::fmt::Display| Failure::usage(format!("{option}: {error}"));
    let threshold: Threshold = options.threshold.parse().map_err(|e| wrong("--threshold", &e))?;
    let rate: Option<BitsPerSec> = match &options.rate {
        Some(text) => Some(text.parse().map_err(|e| wrong("--rate", &e))?),
        None => None,
    };
    let rate = match (threshold, rate) {
        (Threshold::Time(_), None) => {
            return Err(Failure::usage("--threshold: a time needs the rate at which the port drains")
                .help("add --rate, such as --rate 10gbit, or give the threshold in bytes"));
        }
        (_, rate) => rate.unwrap_or(BitsPerSec::ZERO),
    };
    let bytes = threshold.bytes(rate, PACKET).filter(|bytes| !bytes.is_zero());
    bytes.ok_or_else(|| {
        Failure::usage(format!("--threshold: {threshold} is no queue length"))
            .help("give at least one byte, and less than 2^64")
    })
}
