//! vmcc report.
