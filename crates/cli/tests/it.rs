//! The program as a user runs it, without privilege.

mod common;
mod it {
    mod alerts;
    mod algorithm;
    mod commands;
    mod compare;
    mod copy;
    #[cfg(target_os = "linux")]
    mod disk;
    mod guide;
    mod interrupt;
    mod parquet;
    mod proxy;
    mod report;
    mod reproduce;
    mod run;
    mod search;
    mod service;
    mod sides;
    #[cfg(target_os = "linux")]
    mod socks;
    mod tables;
}
mod prometheus;
