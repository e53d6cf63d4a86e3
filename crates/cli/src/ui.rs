//! Everything that is printed: one JSON document or a text for people on stdout, the rest on stderr.

use crate::failure::Failure;
use crate::table;
use serde::Serialize;
use serde_json::json;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Lines of an answer that are printed on stderr when stdout does not take it.
const LINES_INSTEAD: usize = 10;

/// Output to the user.
#[derive(Debug)]
pub(crate) struct Ui {
    json: bool,
    quiet: bool,
    /// Color on stderr.
    color: bool,
    /// Color on stdout.
    color_answer: bool,
    bars: bool,
    /// True if an answer could not be written.
    unwritten: AtomicBool,
}

impl Ui {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let terminal = io::stderr().is_terminal();
        Self {
            json,
            quiet,
            color: terminal && !no_color,
            color_answer: io::stdout().is_terminal() && !no_color,
            bars: terminal && !quiet,
            unwritten: AtomicBool::new(false),
        }
    }

    /// True if only results and problems are wanted.
    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    /// True if the answer is JSON.
    #[cfg(feature = "kernel")]
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// True if a terminal may be drawn on in colors.
    #[cfg(feature = "kernel")]
    pub(crate) fn color(&self) -> bool {
        self.color
    }

    /// True if progress bars may be drawn on stderr.
    pub(crate) fn bars(&self) -> bool {
        self.bars
    }

    /// Prints `value` as the JSON document, or `text` for people, if there is any.
    pub(crate) fn answer(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            match serde_json::to_string_pretty(value) {
                Ok(document) => self.print(&document),
                Err(error) => self.warn(&format!("result: cannot be written as JSON: {error}")),
            }
        } else {
            let text = text();
            if !text.is_empty() {
                self.print(&text);
            }
        }
    }

    /// Prints a text that is for another program as it is.
    #[cfg(feature = "kernel")]
    pub(crate) fn plain(&self, text: &str) {
        self.print(text);
    }

    /// True if the command succeeded but its answer could not be written.
    pub(crate) fn unwritten(&self) -> bool {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Writes to stdout. What would have been read there is done even if that fails: it is said on stderr.
    fn print(&self, text: &str) {
        if let Err(error) = to_stdout(&table::painted(&harmless(text), self.color_answer)) {
            self.unwritten.store(true, Ordering::Relaxed);
            let begin = table::painted(text, false);
            let begin = begin.lines().take(LINES_INSTEAD).collect::<Vec<_>>().join("\n");
            let message = format!("done, but its answer could not be written: {error}; it begins:\n{begin}");
            to_stderr(&self.paint("error: ", "31"), &message);
        }
    }

    /// One line about what is going on, on stderr.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            to_stderr("", text);
        }
    }

    /// Something the user should know although the command goes on.
    pub(crate) fn warn(&self, text: &str) {
        to_stderr(&self.paint("warning: ", "33"), text);
    }

    /// Prints the failure that stops the command; with `--json` also as the JSON document.
    pub(crate) fn failure(&self, failure: &Failure) {
        to_stderr(&self.paint("error: ", "31"), &failure.message);
        if let Some(help) = &failure.help {
            to_stderr(&self.paint("help: ", "36"), help);
        }
        if self.json {
            self.failure_json(failure);
        }
    }

    /// The JSON document of a failure.
    pub(crate) fn failure_json(&self, failure: &Failure) {
        let mut error = json!({ "message": failure.message, "exit": failure.exit as u8 });
        if let Some(help) = &failure.help {
            error["help"] = json!(help);
        }
        // It was said on stderr before.
        let _ = to_stdout(&harmless(&format!("{:#}", json!({ "error": error }))));
    }

    fn paint(&self, text: &str, color: &str) -> String {
        if self.color { format!("\x1b[1;{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// One line about what is going on, on stderr, from another thread than that of the command.
pub(crate) fn note(text: &str) {
    to_stderr("", text);
}

/// `text` with control characters in their written form: what comes from a file must not command a terminal.
pub(crate) fn harmless(text: &str) -> String {
    let written = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    if text.chars().any(char::is_control) { text.chars().map(written).collect() } else { text.to_owned() }
}

/// A count with its noun: `1 path`, `2 paths`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

/// True if the reader closed the pipe (`vmcc algorithms | head`), which is no error.
pub(crate) fn went_away(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn to_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
    written.or_else(|error| if went_away(&error) { Ok(()) } else { Err(error) })
}

/// Our own word, which may be colored, and a text.
fn to_stderr(word: &str, text: &str) {
    // With stderr closed there is nowhere left to report that.
    let _ = writeln!(io::stderr().lock(), "{word}{}", harmless(text));
}

#[cfg(test)]
mod tests {
    use super::{counted, harmless};

    #[test]
    fn nouns_agree_with_their_count() {
        assert_eq!(
            [0_usize, 1, 2].map(|count| counted(count, "socket")),
            ["0 sockets", "1 socket", "2 sockets"]
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(harmless("\x1b]0;evil\x07 \u{9b}31m\r"), "\\u001b]0;evil\\u0007 \\u009b31m\\u000d");
        assert_eq!(harmless("two\n\tlines of größe"), "two\n\tlines of größe");
    }
}
