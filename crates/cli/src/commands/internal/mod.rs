//! Hidden commands for the scripts of this repository: completions, manual pages, kernel checks, guests.

#[cfg(feature = "kernel")]
mod guest;
#[cfg(feature = "kernel")]
mod kernel_check;

use crate::args::{Arguments, InternalAction};
use crate::failure::{Exit, Failure};
use crate::ui::Ui;
use clap::CommandFactory;
use serde_json::json;
use std::path::Path;

pub(crate) fn internal(action: InternalAction, ui: &Ui) -> Result<Exit, Failure> {
    match action {
        InternalAction::Completions { shell } => completions(shell, ui),
        InternalAction::Man { folder } => manual(&folder, ui),
        InternalAction::AlgorithmCheck { folder, file } => {
            vmcc_external::worker(&folder, &file);
            Ok(Exit::Done)
        }
        #[cfg(feature = "kernel")]
        InternalAction::KernelCheck { algorithms } => kernel_check::check(&algorithms, ui),
        #[cfg(feature = "kernel")]
        InternalAction::Guest(options) => guest::program(&options),
        #[cfg(feature = "kernel")]
        InternalAction::GuestWorker { folder } => {
            let done = vmcc_lab::engine::worker(&folder);
            done.map(|()| Exit::Done).map_err(|e| crate::failure::engine_failure(&e.into()))
        }
        #[cfg(feature = "kernel")]
        InternalAction::QuicEnd { algorithms, libraries, order } => {
            for (file, library) in algorithms.iter().zip(&libraries) {
                vmcc_external::load_compiled(file, library)
                    .map_err(|e| crate::failure::external_failure(&e))?;
            }
            let done = vmcc_lab::quic_end(&order);
            done.map(|()| Exit::Done).map_err(|e| crate::failure::engine_failure(&e.into()))
        }
        #[cfg(feature = "kernel")]
        InternalAction::GuestSender { folder } => {
            let done = vmcc_lab::sender(&folder);
            done.map(|()| Exit::Done).map_err(|e| crate::failure::engine_failure(&e.into()))
        }
    }
}

fn completions(shell: clap_complete::Shell, ui: &Ui) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "vmcc", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    ui.answer(&json!({ "shell": shell.to_string(), "script": script }), || script.clone());
    Ok(Exit::Done)
}

fn manual(folder: &Path, ui: &Ui) -> Result<Exit, Failure> {
    clap_mangen::generate_to(Arguments::command(), folder).map_err(|error| {
        Failure::host(format!("{}: {error}", folder.display()))
            .help("give a folder that exists and that you may write")
    })?;
    ui.answer(&json!({ "folder": folder }), || format!("manual pages in {}", folder.display()));
    Ok(Exit::Done)
}
