//! Text files in a scenario's folder.

use std::path::{Component, Path};

/// Enough for as many lines as a pattern or a distribution may have, and a hundred thousand transfers.
const MAX_BYTES: u64 = 4 << 20;

/// A fault, and its remedy.
pub(super) type Fault = (String, String);

/// A text file, with its path for messages.
pub(super) struct Text {
    path: String,
    text: String,
}

impl Text {
    /// Lines with their numbers, without those that are empty or comments.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().map(str::trim).enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    }

    /// A fault in a line.
    pub(super) fn fault(&self, line: usize, what: &str, remedy: &str) -> Fault {
        (format!("{}:{line}: {what}", self.path), remedy.to_owned())
    }
}

/// Reads a file in the scenario's folder or below it.
pub(super) fn read(name: &str, folder: Option<&Path>) -> Result<Text, Fault> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if name.is_empty() || !Path::new(name).components().all(inside) {
        let message = format!("{name:?} is no file in the scenario's folder or below it");
        return Err((message, "put it there, and write its path from there".to_owned()));
    }
    let Some(folder) = folder else {
        let message = format!("there is no folder in which {name:?} could be");
        return Err((message, "write the values here, or keep the scenario in a file of its own".to_owned()));
    };
    let path = folder.join(name);
    let unreadable = |why: String| {
        (format!("{} cannot be read: {why}", path.display()), "it lies beside the scenario".to_owned())
    };
    let bytes = vmcc_config::read_regular(&path, MAX_BYTES).map_err(|e| unreadable(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|e| unreadable(format!("it is not UTF-8 text: {e}")))?;
    Ok(Text { path: path.display().to_string(), text })
}
