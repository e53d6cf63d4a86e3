//! Configurations that cannot work: each is refused with its reason.

mod class;
mod marking;

pub(crate) use class::rates;
pub(crate) use marking::{red, threshold_bytes, thresholds};

use crate::config::{MAX_CLASSES, PortConfig, VmShare};
use crate::error::{Check, ConfigError, require};
use crate::plan::LinkFacts;
use vmcc_config::Discipline;
use vmcc_units::{BitsPerSec, Bytes, Limit};

/// The least rate: below it a packet takes seconds.
const MIN_RATE: BitsPerSec = BitsPerSec::new(8_000);
/// The largest rate: a byte per picosecond.
const MAX_RATE: BitsPerSec = BitsPerSec::new(8_000_000_000_000);
/// The largest buffer, quantum and threshold; keeps the kernel's products of bytes and rates within 64 bits.
const MAX_BYTES: Bytes = Bytes::new(1 << 32);
/// The largest sum of the weights of a VM's ports.
const MAX_WEIGHTS: u32 = 1_000;
/// The longest name of a class or VM, in bytes; the kernel's records have room for it.
const MAX_NAME: usize = 31;

/// Everything that does not depend on the link.
pub(crate) fn config(config: &PortConfig) -> Check {
    if let Some(given) = config.rate {
        rate(given, "rate")?;
    }
    vm(config)?;
    queue(config)?;
    buffer(config.buffer, "buffer")?;
    if let Some(rule) = &config.marking {
        marking::rule(rule, config, "marking")?;
    }
    let phantom = config.phantom.is_none_or(|share| (0.5..=1.0).contains(&share));
    require(phantom, "phantom", || "a virtual queue drains at 0.5 to 1 of the real rate".to_owned())?;
    marking::measured(config)?;
    let overload = (0.5..=1.0).contains(&config.overload);
    require(overload, "overload", || "a queue is overloaded at 0.5 to 1 of its buffer".to_owned())?;
    class::all(config)
}

pub(crate) fn rate(rate: BitsPerSec, key: &str) -> Check {
    require(!rate.is_zero(), key, || "a rate of zero carries nothing".to_owned())?;
    let fits = (MIN_RATE..=MAX_RATE).contains(&rate);
    require(fits, key, || format!("{rate} is not from {MIN_RATE} to {MAX_RATE}"))
}

fn vm(config: &PortConfig) -> Check {
    let Some(vm) = &config.vm else { return Ok(()) };
    name(&vm.name, "vm.name", "a VM")?;
    require(!vm.rate.is_zero(), "vm.rate", || {
        format!("a budget of zero would stop all ports of VM `{}`", vm.name)
    })?;
    rate(vm.rate, "vm.rate")?;
    match vm.share {
        VmShare::Split => {
            require(vm.weight > 0, "vm.weight", || "a port of weight zero gets nothing".to_owned())?;
            let (weight, weights) = (vm.weight, vm.weights);
            let fits = weight <= weights && weights <= MAX_WEIGHTS;
            require(fits, "vm.weights", || {
                format!("the part {weight}/{weights} is not from 1/{MAX_WEIGHTS} to 1/1")
            })?;
            rate(vm.part(), "vm.weight")
        }
        VmShare::Shared => {
            require(vm.weight == 1 && vm.weights == 1, "vm.weight", || {
                "a shared budget has no parts".to_owned()
            })?;
            let message = "the ports of a shared budget have one rate, that of the budget";
            require(config.rate.is_none(), "rate", || message.to_owned())
        }
    }
}

fn queue(config: &PortConfig) -> Check {
    let classes = config.classes.len();
    if classes > MAX_CLASSES {
        let message = format!("there are {classes} classes; a port has at most {MAX_CLASSES}");
        return Err(ConfigError::at(format!("class[{MAX_CLASSES}]"), message).help("join some of them"));
    }
    if config.discipline() == Discipline::Fifo && classes > 1 {
        let message = format!("`fifo` is one queue, but there are {classes} classes");
        return Err(ConfigError::at("queue", message)
            .help("use `drr` to share by weight, or `priority` to serve the first class first"));
    }
    let Some(quantum) = config.quantum else { return Ok(()) };
    let drr = config.discipline() == Discipline::Drr;
    require(drr, "quantum", || "only the order `drr` has a quantum".to_owned())?;
    let fits = !quantum.is_zero() && quantum <= Bytes::new(1 << 24);
    require(fits, "quantum", || "a quantum is from 1B to 16MiB".to_owned())
}

pub(crate) fn buffer(limit: Limit, key: &str) -> Check {
    require(!limit.is_zero(), key, || "a buffer of nothing drops every packet".to_owned())?;
    let fits = limit.bytes(Bytes::new(1 << 16)).is_some_and(|bytes| bytes <= MAX_BYTES)
        || matches!(limit, Limit::Bytes(bytes) if bytes <= MAX_BYTES);
    require(fits, key, || format!("{limit} is more than 4GiB or 65536 packets"))
}

/// A name as labels and file names can have it.
pub(crate) fn name(text: &str, key: &str, what: &str) -> Check {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let fits = (1..=MAX_NAME).contains(&text.len());
    require(plain && fits, key, || {
        format!("the name of {what} is 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`")
    })
}

/// A size that was checked.
pub(crate) fn bounded(bytes: Option<Bytes>) -> u64 {
    bytes.unwrap_or(Bytes::MAX).min(MAX_BYTES).get()
}

/// Checks the configuration against the link.
pub(crate) fn link(config: &PortConfig, link: &LinkFacts) -> Check {
    if let (Some(rate), Some(speed)) = (config.rate, link.speed)
        && rate > speed
    {
        let message = format!(
            "{rate} is more than the link carries ({speed}): the queue would build below vmcc, unmarked"
        );
        return Err(
            ConfigError::at("rate", message).help(format!("give at most {speed}, or leave the rate out"))
        );
    }
    class::buffers_hold_a_packet(config, link)
}

/// Key of a class's setting, or of the port's which it inherits.
fn inherited(own: bool, index: usize, key: &str) -> String {
    if own { format!("class[{index}].{key}") } else { key.to_owned() }
}
