//! Tables and sentences that fit the terminal, and verdicts in color.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width};
use std::io;
use std::ops::Range;
use unicode_width::UnicodeWidthStr;

/// Width where stdout is no terminal and `COLUMNS` is not set.
const DEFAULT_WIDTH: usize = 80;
/// Narrower ones leave no room for a column.
const MIN_WIDTH: usize = 20;
/// Content of a column that is wider may be wrapped, down to this.
const WRAP_WIDTH: usize = 24;
/// Blanks beside the content of a column.
const PADDING: usize = 2;

/// A table of left-aligned columns without borders.
pub(crate) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.to_vec());
    table
}

/// Aligns all columns from `first` on to the right.
pub(crate) fn align_right_from(table: &mut Table, first: usize) {
    align_right(table, first..usize::MAX);
}

/// Aligns these columns to the right.
pub(crate) fn align_right(table: &mut Table, columns: Range<usize>) {
    for (_, column) in table.column_iter_mut().enumerate().filter(|(index, _)| columns.contains(index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// The table in the width of the output; its first column names a row.
pub(crate) fn render(table: &Table) -> String {
    render_keyed(table, 1)
}

/// The same where the first `keys` columns together name a row.
pub(crate) fn render_keyed(table: &Table, keys: usize) -> String {
    within(table, keys, output_width())
}

/// Sentences in lines of the width of the output; a longer word has a line of its own.
pub(crate) fn wrapped(text: &str) -> String {
    wrapped_at(text, output_width().max(MIN_WIDTH))
}

fn wrapped_at(text: &str, width: usize) -> String {
    let (mut wrapped, mut used) = (String::with_capacity(text.len()), 0);
    for word in text.split(' ') {
        let columns = word.width();
        if used > 0 && used + 1 + columns > width {
            wrapped.push('\n');
            used = 0;
        } else if used > 0 {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(word);
        used += columns;
    }
    wrapped
}

/// Columns of stdout: `COLUMNS`, or those of the terminal.
pub(crate) fn output_width() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<u16>().ok());
    let terminal = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0);
    given.filter(|width| *width > 0).or_else(terminal).map_or(DEFAULT_WIDTH, usize::from)
}

/// The table in lines of at most `width` columns. One that is wider is divided into blocks below each other, each with the
/// columns that name a row; wide columns are wrapped.
pub(crate) fn within(table: &Table, keys: usize, width: usize) -> String {
    // Padding at the end of a line is cut off.
    let room = width.max(MIN_WIDTH) + 1;
    let whole = widths(table);
    if whole.iter().sum::<usize>() <= room {
        return text(table);
    }
    // Words stay whole, unless one takes half a line.
    let least = |(whole, word): (&usize, usize)| (*whole).min(word.max(WRAP_WIDTH + PADDING)).min(room / 2);
    let least: Vec<usize> = whole.iter().zip(widths(&words(table))).map(least).collect();
    let blocks = blocks(&least, keys, room);
    blocks.iter().map(|columns| text(&block(table, columns, &least, room))).collect::<Vec<_>>().join("\n\n")
}

/// Width of each column with its padding.
fn widths(table: &Table) -> Vec<usize> {
    table.column_max_content_widths().iter().map(|content| usize::from(*content) + PADDING).collect()
}

/// The table with each word in a line of its own.
fn words(table: &Table) -> Table {
    let split = |row: &Row| row.cell_iter().map(|cell| cell.content().replace(' ', "\n")).collect::<Vec<_>>();
    let mut words = Table::new();
    words.set_header(table.header().map(split).unwrap_or_default());
    words.add_rows(table.row_iter().map(split));
    words
}

/// The columns of each block: those that name a row, and as many of the others as there is room for.
fn blocks(least: &[usize], keys: usize, room: usize) -> Vec<Vec<usize>> {
    let own: Vec<usize> = (0..keys.min(least.len())).collect();
    let named: usize = own.iter().map(|column| least[*column]).sum();
    let (mut blocks, mut used) = (vec![own.clone()], named);
    for (column, least) in least.iter().enumerate().skip(own.len()) {
        if used > named && used + least > room {
            blocks.push(own.clone());
            used = named;
        }
        used += least;
        blocks.last_mut().expect("there is one from the start").push(column);
    }
    blocks
}

/// The table with these columns alone, wrapped where they are too wide.
fn block(table: &Table, columns: &[usize], least: &[usize], room: usize) -> Table {
    let mut block = table.clone();
    let fits = columns.iter().map(|column| least[*column]).sum::<usize>() <= room;
    for (index, column) in block.column_iter_mut().enumerate() {
        if !columns.contains(&index) {
            column.set_constraint(ColumnConstraint::Hidden);
        } else if fits {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrow(least[index]))));
        }
    }
    block.set_content_arrangement(ContentArrangement::Dynamic).set_width(narrow(room));
    block
}

fn narrow(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}

/// The lines without the blanks that padding leaves at their ends.
fn text(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Meaning of a colored text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Unknown,
}

impl Tone {
    const ALL: [Self; 3] = [Self::Good, Self::Bad, Self::Unknown];

    /// Color of the terminal, as SGR has it.
    fn color(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Unknown => "33",
        }
    }

    /// First letter of this tone, in Unicode's last plane for private use.
    fn base(self) -> u32 {
        0x10_f000 + 0x100 * self as u32
    }
}

/// An ASCII text as letters that [`painted`] colors. In a table each of them is one column wide, which escape sequences are not.
pub(crate) fn toned(ascii: &str, tone: Tone) -> String {
    ascii.chars().filter_map(|letter| char::from_u32(tone.base() + u32::from(letter))).collect()
}

/// `text` with its colored letters as terminals take them, or without their color.
pub(crate) fn painted(text: &str, color: bool) -> String {
    let (mut painted, mut before) = (String::with_capacity(text.len()), None);
    for letter in text.chars() {
        let (letter, tone) = resolved(letter);
        if color && tone != before {
            painted.push_str(if before.is_some() { "\x1b[0m" } else { "" });
            painted.extend(tone.map(|tone| format!("\x1b[1;{}m", tone.color())));
            before = tone;
        }
        painted.push(letter);
    }
    painted.push_str(if before.is_some() { "\x1b[0m" } else { "" });
    painted
}

/// The letter that a colored one stands for. Others stand for themselves, and so does what would be a control character.
fn resolved(letter: char) -> (char, Option<Tone>) {
    let of = |tone: Tone| {
        let ascii = u8::try_from(u32::from(letter).checked_sub(tone.base())?).ok()?;
        (ascii == b' ' || ascii.is_ascii_graphic()).then_some((char::from(ascii), Some(tone)))
    };
    Tone::ALL.into_iter().find_map(of).unwrap_or((letter, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve columns of figures, 162 wide; the first row has this name.
    fn figures(name: &str) -> Table {
        let titles: Vec<String> = (0..12).map(|n| format!("figure {n:02}\nMbit/s")).collect();
        let header: Vec<&str> = ["cc"].into_iter().chain(titles.iter().map(String::as_str)).collect();
        let mut table = plain(&header);
        for row in [name, "lia"] {
            let cells = (0..12).map(|n| format!("{n:02}.5 ± 0.11"));
            table.add_row([row.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
        }
        align_right_from(&mut table, 1);
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| usize::from(plain(&[line]).column_max_content_widths()[0])).max().unwrap()
    }

    #[test]
    fn wide_tables_become_blocks_with_the_names_of_their_rows() {
        for (width, blocks) in [(80, 3), (100, 2), (150, 2), (200, 1)] {
            let text = within(&figures("vmcc"), 1, width);
            assert!(widest(&text) <= width, "{width}: {text}");
            assert_eq!(text.split("\n\n").count(), blocks, "{width}: {text}");
            assert!(
                text.split("\n\n").all(|block| block.contains(" vmcc ") && block.contains(" lia ")),
                "{text}"
            );
            for n in 0..12 {
                assert_eq!(text.matches(&format!("{n:02}.5 ± 0.11")).count(), 2, "{width}, {n}: {text}");
            }
        }
    }

    #[test]
    fn wide_characters_count_as_the_terminal_shows_them() {
        let text = within(&figures("擁塞制御"), 1, 80);
        assert!(widest(&text) <= 80 && text.contains("擁塞制御"), "{text}");
    }

    #[test]
    fn names_longer_than_a_line_are_wrapped() {
        for name in ["x".repeat(200), "vms.example.net ".repeat(12)] {
            for width in [1, 40, 80, 150] {
                let text = within(&figures(&name), 1, width);
                assert!(widest(&text) <= width.max(MIN_WIDTH), "{width}: {text}");
                let letters = |text: &str| text.matches('x').count();
                assert!(letters(&text) >= letters(&name), "{width}: {text}");
            }
        }
    }

    #[test]
    fn prose_is_wrapped_beside_the_columns_before_it() {
        let mut table = plain(&["CLAIM", "", "CHECK"]);
        table.add_row(["fair", &toned("pass", Tone::Good), &"mean of ".repeat(20)]);
        let text = within(&table, 1, 80);
        assert!(widest(&text) <= 80 && !text.contains("\n\n"), "{text}");
        assert_eq!(text.matches("mean").count(), 20, "{text}");
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let sentence = "vmcc carried 155.2 Mbit/s, 1.61 times 擁塞制御, and cut the median RTT to 2.65 ms.";
        for width in [20, 33, 40, 80] {
            let text = wrapped_at(sentence, width);
            assert!(widest(&text) <= width, "{width}: {text}");
            assert_eq!(text.replace('\n', " "), sentence, "{width}");
            let next = |pair: &[&str]| pair[0].width() + 1 + pair[1].split(' ').next().unwrap().width();
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.windows(2).all(|pair| next(pair) > width), "{width}: {text}");
        }
        let path = format!("see {} there", "x".repeat(50));
        assert_eq!(wrapped_at(&path, 20), path.replace(' ', "\n"), "no path is cut");
        assert_eq!((wrapped_at("", 20), wrapped_at("one", 20)), (String::new(), "one".to_owned()));
    }

    #[test]
    fn words_are_not_broken() {
        let mut table = plain(&["METRIC", "UNIT", "OVER", "MEANING"]);
        table.add_row(["subflows_closed_by_path_manager", "1", "run", &"a window, unfinished ".repeat(9)]);
        let text = within(&table, 1, 80);
        assert!(widest(&text) <= 80 && text.contains("subflows_closed_by_path_manager"), "{text}");
        assert_eq!(text.matches("unfinished").count(), 9, "{text}");
    }

    #[test]
    fn tables_without_rows_or_columns_are_rendered() {
        assert_eq!(within(&plain(&["NAME", "CASES"]), 1, 80), " NAME  CASES");
        within(&plain(&[]), 1, 80);
        within(&plain(&["x".repeat(100).as_str()]), 1, 80);
    }

    #[test]
    fn color_marks_verdicts_and_nothing_else() {
        let text = format!("a {} b {}", toned("pass", Tone::Good), toned("FAIL", Tone::Bad));
        assert_eq!(painted(&text, false), "a pass b FAIL");
        assert_eq!(painted(&text, true), "a \x1b[1;32mpass\x1b[0m b \x1b[1;31mFAIL\x1b[0m");
        let control = char::from_u32(Tone::Good.base() + 0x1b).unwrap().to_string();
        assert_eq!(painted(&control, true), control, "no letter stands for ESC");
    }
}
