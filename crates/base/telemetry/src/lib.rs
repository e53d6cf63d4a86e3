//! Figures for Prometheus: [`Figures`] are written in its text format, version 0.0.4, and a [`Server`] hands them out over HTTP.

mod figures;
mod server;

pub use figures::{Figures, Kind};
pub use prometheus::{Error, Histogram, HistogramOpts};
pub use server::{Question, Server};
