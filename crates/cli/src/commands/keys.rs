//! `vmcc keys`: this user's certificate, and whom it trusts.

use crate::args::KeysOptions;
use crate::failure::{Exit, Failure};
use crate::ui::Ui;
use serde_json::json;
use std::path::{Path, PathBuf};
use vmcc_apps::keys::{self, Fingerprint, Identity, KeysError};

pub(crate) fn keys(options: &KeysOptions, ui: &Ui) -> Result<Exit, Failure> {
    let folder = folder(options.keys.as_deref())?;
    let peers = fingerprints(&options.trust)?;
    let (identity, made) = Identity::load_or_create(&folder).map_err(|error| failure(&error))?;
    for peer in peers {
        keys::trust(&folder, peer, &options.comment).map_err(|error| failure(&error))?;
    }
    let own = identity.fingerprint().to_string();
    let trusted = keys::peers(&folder).map_err(|error| failure(&error))?;
    let trusted: Vec<_> = trusted.iter().map(ToString::to_string).collect();
    let document = json!({ "fingerprint": own, "folder": folder, "made": made, "trusted": trusted });
    ui.answer(&document, || {
        let first = format!("{own}\nin {}{}", folder.display(), if made { ", made now" } else { "" });
        let list: String = trusted.iter().map(|peer| format!("\n  {peer}")).collect();
        if trusted.is_empty() {
            format!("{first}; no peer is trusted yet")
        } else {
            format!("{first}; trusted:{list}")
        }
    });
    Ok(Exit::Done)
}

/// The folder that was named, or the usual one.
pub(super) fn folder(named: Option<&Path>) -> Result<PathBuf, Failure> {
    match named {
        Some(folder) => Ok(folder.to_owned()),
        None => keys::folder().map_err(|error| failure(&error)),
    }
}

pub(super) fn fingerprints(texts: &[String]) -> Result<Vec<Fingerprint>, Failure> {
    texts.iter().map(|text| text.parse().map_err(Failure::usage)).collect()
}

/// Failure for an error of keys; its text has the remedy.
pub(super) fn failure(error: &KeysError) -> Failure {
    match error {
        KeysError::Io { .. } | KeysError::Make(_) => Failure::host(error),
        _ => Failure::usage(error),
    }
}
