//! The two kinds of ports: one with queues of its own, and one that shares the rate of its VM.

use super::attachment::Attachment;
use super::device::Device;
use super::error::PortError;
use super::record::{Content, Record};
use super::recovery::{self, Found};
use super::shared_rate::{self, Member};
use super::state;
use crate::{PortConfig, PortStats};

/// A port that is held: with queues of its own, or sharing the budget of its VM.
pub(crate) enum AnyAttachment {
    Own(Box<Attachment>),
    Member(Box<Member>),
}

impl AnyAttachment {
    pub(crate) fn begin(port: &str, config: &PortConfig) -> Result<Self, PortError> {
        if shared_rate::shared(config).is_none() {
            let attached = Attachment::begin(port, config, |dev, record| clear(dev, record, config));
            return attached.map(|served| Self::Own(Box::new(served)));
        }
        let mut dev = Device::open(port)?;
        // Refused here, what is wrong with the settings leaves no trace of a budget.
        dev.plan(config)?;
        let record = Record::lock(port, dev.index)?;
        match recovery::settle(&mut dev, &record)? {
            Found::Whole(..) | Found::Member(_) => Err(PortError::AlreadyAttached { port: port.to_owned() }),
            Found::Nothing | Found::Undone => {
                Member::begin(dev, record, config).map(|member| Self::Member(Box::new(member)))
            }
        }
    }

    pub(crate) fn adopt(port: &str) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        let record = Record::lock(port, dev.index)?;
        Self::settled(recovery::settle(&mut dev, &record)?, dev, record)
    }

    fn settled(found: Found, dev: Device, record: Record) -> Result<Self, PortError> {
        let port = dev.name.clone();
        match found {
            Found::Whole(content, program) => Attachment::open_as(dev, *content, *program, Some(record))
                .map(|served| Self::Own(Box::new(served))),
            Found::Member(content) => Member::open_as(dev, &content, Some(record))
                .map(|member| Self::Member(Box::new(member)))
                .ok_or(PortError::NotAttached { port }),
            Found::Nothing | Found::Undone => {
                record.remove();
                Err(PortError::NotAttached { port })
            }
        }
    }

    /// Serves a port again as it was set, whatever is left of that, from what is known of it.
    pub(crate) fn repair(port: &str) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        let record = Record::lock(port, dev.index)?;
        let (content, program) = state::peek(&mut dev)?;
        let Some(content) = content else { return Err(PortError::NotAttached { port: port.to_owned() }) };
        let config = content.config.clone();
        let Some(member) = &content.member else {
            let clear = |dev: &mut Device, record: &Record| clear(dev, record, &config);
            return Attachment::serve_again(dev, record, content, program.as_ref(), clear)
                .map(|served| Self::Own(Box::new(served)));
        };
        shared_rate::repair(&member.vm)?;
        shared_rate::take_off_whole(&mut dev, &content)?;
        // As in `serve_again`.
        drop(record);
        Self::begin(port, &config)
    }

    /// The present state, with any holder.
    pub(crate) fn look(port: &str) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        match state::peek(&mut dev)?.0 {
            Some(content) if shared_rate::is_joined(&mut dev, &content)? => {
                let member = Member::open_as(dev, &content, None);
                member
                    .map(|member| Self::Member(Box::new(member)))
                    .ok_or_else(|| PortError::NotAttached { port: port.to_owned() })
            }
            _ => Attachment::look(port).map(|served| Self::Own(Box::new(served))),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Own(served) => &served.name,
            Self::Member(member) => &member.name,
        }
    }

    /// Content of its record.
    pub(crate) fn recorded(&self) -> Option<Content> {
        match self {
            Self::Own(served) => served.recorded(),
            Self::Member(member) => member.record()?.read(),
        }
    }

    pub(crate) fn change(&mut self, config: &PortConfig) -> Result<u64, PortError> {
        match self {
            Self::Own(served) if shared_rate::shared(config).is_some() => {
                let problem = "a port with queues of its own cannot join a shared budget";
                let help = format!("`vmcc unmark {}` first, then mark it again", served.name);
                Err(PortError::config(&served.name, "vm", problem).help(help))
            }
            Self::Own(served) => served.change(config, |dev| shared_rate::check_parts(dev, config)),
            Self::Member(member) => member.change(config),
        }
    }

    pub(crate) fn stats(&self) -> Result<PortStats, PortError> {
        match self {
            Self::Own(served) => served.stats(),
            Self::Member(member) => shared_rate::stats(member.vm()),
        }
    }

    /// See [`Attachment::mark_kept`].
    pub(crate) fn mark_kept(&self) {
        match self {
            Self::Own(served) => served.mark_kept(),
            Self::Member(member) => member.mark_kept(),
        }
    }

    pub(crate) fn end(self) -> Result<(), PortError> {
        match self {
            Self::Own(served) => served.end(),
            Self::Member(member) => member.end(),
        }
    }
}

/// Refuses to attach where something is attached, or more than the VM's budget would be given away.
fn clear(dev: &mut Device, record: &Record, config: &PortConfig) -> Result<(), PortError> {
    match recovery::settle(dev, record)? {
        Found::Whole(..) | Found::Member(_) => Err(PortError::AlreadyAttached { port: dev.name.clone() }),
        Found::Nothing | Found::Undone => shared_rate::check_parts(dev, config),
    }
}
