//! The two kinds of ports: one with queues of its own, and one that shares the budget of its VM.

use super::budget::{self, Member};
use super::error::PortError;
use super::half::{self, Found};
use super::plan::Plan;
use super::record::{Content, Record};
use super::served::Served;
use super::site::Site;
use vmcc_port::{PortConfig, PortStats};

/// A port that is held: with queues of its own, or sharing the budget of its VM.
pub(crate) enum Held {
    Own(Box<Served>),
    Member(Box<Member>),
}

impl Held {
    pub(crate) fn begin(port: &str, config: &PortConfig) -> Result<Self, PortError> {
        if budget::shared(config).is_none() {
            return Served::begin(port, config).map(|served| Self::Own(Box::new(served)));
        }
        let mut site = Site::open(port)?;
        // Refused here, what is wrong with the settings leaves no trace of a budget.
        Plan::new(port, config, site.facts)?;
        let record = Record::lock(port, site.index)?;
        match half::settle(&mut site, &record)? {
            Found::Whole(..) | Found::Member(_) => Err(PortError::AlreadyAttached { port: port.to_owned() }),
            Found::Nothing | Found::Undone => {
                Member::begin(site, record, config).map(|member| Self::Member(Box::new(member)))
            }
        }
    }

    pub(crate) fn adopt(port: &str) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        let record = Record::lock(port, site.index)?;
        Self::settled(half::settle(&mut site, &record)?, site, record)
    }

    fn settled(found: Found, site: Site, record: Record) -> Result<Self, PortError> {
        let port = site.name.clone();
        match found {
            Found::Whole(content, program) => Served::open_as(site, *content, *program, Some(record))
                .map(|served| Self::Own(Box::new(served))),
            Found::Member(content) => Member::open_as(site, &content, Some(record))
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
        let mut site = Site::open(port)?;
        let record = Record::lock(port, site.index)?;
        let (content, program) = half::peek(&mut site)?;
        let Some(content) = content else { return Err(PortError::NotAttached { port: port.to_owned() }) };
        let config = content.config.clone();
        let Some(member) = &content.member else {
            return Served::serve_again(site, record, content, program.as_ref())
                .map(|served| Self::Own(Box::new(served)));
        };
        budget::repair(&member.vm)?;
        budget::take_off_whole(&mut site, &content)?;
        // As in `serve_again`.
        drop(record);
        Self::begin(port, &config)
    }

    /// As it is, whoever holds it.
    pub(crate) fn look(port: &str) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        match half::peek(&mut site)?.0 {
            Some(content) if content.member.is_some() && budget::is_member(&mut site)? => {
                let member = Member::open_as(site, &content, None);
                member
                    .map(|member| Self::Member(Box::new(member)))
                    .ok_or_else(|| PortError::NotAttached { port: port.to_owned() })
            }
            _ => Served::look(port).map(|served| Self::Own(Box::new(served))),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Own(served) => &served.name,
            Self::Member(member) => &member.name,
        }
    }

    /// What is on record about it.
    pub(crate) fn recorded(&self) -> Option<Content> {
        match self {
            Self::Own(served) => served.recorded(),
            Self::Member(member) => member.record()?.read(),
        }
    }

    pub(crate) fn change(&mut self, config: &PortConfig) -> Result<u64, PortError> {
        match self {
            Self::Own(served) if budget::shared(config).is_some() => {
                let problem = "a port with queues of its own cannot join a shared budget";
                let help = format!("`vmcc unmark {}` first, then mark it again", served.name);
                Err(PortError::config(&served.name, "vm", problem).help(help))
            }
            Self::Own(served) => served.change(config),
            Self::Member(member) => member.change(config),
        }
    }

    pub(crate) fn stats(&self) -> Result<PortStats, PortError> {
        match self {
            Self::Own(served) => served.stats(),
            Self::Member(member) => budget::stats(member.vm()),
        }
    }

    /// See [`Served::mark_kept`].
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
