//! Contents of the screen, and the effects of keys.

use super::lines::{self, Kind, fit};
use super::model::{Model, Order};
use super::row::{Identity, Row, identity};
use crate::args::SortKey;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use std::time::Duration;

/// Lines above the connections: a summary, algorithms, how it is shown, the names of the columns.
const ABOVE: usize = 4;
/// Lines for the selected connection, where there is room for them.
const DETAILS: usize = 4;
/// Less is for the connections alone.
const MIN_WITH_DETAILS: usize = 18;
/// An agent may be busy for that long.
const SILENT: Duration = Duration::from_secs(2);
const HELP: &str = "q quit  arrows move  g goodput  w cwnd  r rtt  a alpha  m marked  c conn  n name  R reverse  / filter  space pause";
const HELP_NARROW: &str = "q quit  g/w/r/a/m/c/n sort  R reverse  / filter  space pause  arrows move";

/// Request of a key to the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    Quit,
    Interrupt,
    /// Back to the shell for a while.
    Suspend,
}

/// State of the host, shown above the connections.
#[derive(Debug, Default)]
pub(crate) struct Above {
    pub(crate) agent: String,
    pub(crate) algorithms: String,
    /// Reason for which the last look failed.
    pub(crate) problem: Option<String>,
    /// For how long the agent has not answered.
    pub(crate) silent: Option<Duration>,
}

pub(crate) struct Screen {
    pub(crate) model: Model,
    pub(crate) above: Above,
    pub(crate) paused: bool,
    every: String,
    color: bool,
    /// Follows its connection; `None`: whichever is first.
    selected: Option<Identity>,
    /// Index of the selected connection on the last screen. When the connection has ended, the one at that index is selected instead.
    place: usize,
    /// The connection in the first line.
    top: usize,
    /// Text that is being typed.
    typing: Option<String>,
    /// Number of connections on the last screen, for paging.
    page: usize,
}

impl Screen {
    pub(crate) fn new(model: Model, every: String, color: bool) -> Self {
        let above = Above::default();
        Self {
            model,
            above,
            paused: false,
            every,
            color,
            selected: None,
            place: 0,
            top: 0,
            typing: None,
            page: 1,
        }
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wish::Interrupt,
                KeyCode::Char('z') => Wish::Suspend,
                _ => Wish::Nothing,
            };
        }
        if self.typing.is_some() {
            self.typed(key.code);
            return Wish::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.model.filter().is_empty() => return Wish::Quit,
            KeyCode::Esc => self.model.set_filter(""),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = Some(String::new()),
            KeyCode::Char('R') => {
                let reversed = !self.model.order().reversed;
                self.model.set_order(Order { reversed, ..self.model.order() });
            }
            KeyCode::Char(letter) => self.sort(letter),
            code => self.walk(code),
        }
        Wish::Nothing
    }

    fn typed(&mut self, code: KeyCode) {
        let Some(text) = &mut self.typing else { return };
        match code {
            KeyCode::Esc => self.typing = None,
            KeyCode::Enter => {
                let text = std::mem::take(text);
                self.typing = None;
                self.model.set_filter(&text);
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) if text.len() < 64 => text.push(letter),
            _ => {}
        }
    }

    fn sort(&mut self, letter: char) {
        let by = match letter {
            'g' => SortKey::Goodput,
            'w' => SortKey::Cwnd,
            'r' => SortKey::Rtt,
            'a' => SortKey::Alpha,
            'm' => SortKey::Marked,
            'c' => SortKey::Connection,
            'n' => SortKey::Algorithm,
            _ => return,
        };
        self.model.set_order(Order { by, ..self.model.order() });
    }

    /// Moves what is selected.
    fn walk(&mut self, code: KeyCode) {
        self.model.settle();
        let (last, at) = (self.model.len().saturating_sub(1), self.at());
        let to = match code {
            KeyCode::Up => at.saturating_sub(1),
            KeyCode::Down => at + 1,
            KeyCode::PageUp => at.saturating_sub(self.page),
            KeyCode::PageDown => at + self.page,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
        self.select(to.min(last));
    }

    fn select(&mut self, at: usize) {
        self.selected = self.model.get(at).filter(|_| at > 0).map(|row| identity(&row.connection));
        self.place = at;
    }

    /// Index of the selected connection now, if it still exists.
    fn found(&self) -> Option<usize> {
        let Some(selected) = self.selected else { return Some(0) };
        self.model.rows().position(|row: &Row| identity(&row.connection) == selected)
    }

    fn at(&self) -> usize {
        self.found().unwrap_or_else(|| self.place.min(self.model.len().saturating_sub(1)))
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        self.model.settle();
        let (width, height) = (usize::from(frame.area().width), usize::from(frame.area().height));
        let details = if height < MIN_WITH_DETAILS { 0 } else { DETAILS + 1 };
        let room = height.saturating_sub(ABOVE + details + 1);
        let mut all = self.head(width);
        all.extend(self.body(width, room));
        all.resize_with((ABOVE + room).min(height), Line::default);
        if details > 0 {
            all.extend(self.details(width));
        }
        all.resize_with(height.saturating_sub(1), Line::default);
        all.push(self.foot(width));
        let area = frame.area();
        for (y, line) in (0..area.height).zip(&all) {
            frame.buffer_mut().set_line(0, y, line, area.width);
        }
    }

    fn head(&self, width: usize) -> Vec<Line<'static>> {
        let (connections, paths, bps) = self.model.totals();
        let paused = if self.paused { "PAUSED  " } else { "" };
        let reversed = if self.model.order().reversed { ", reversed" } else { "" };
        let filter = match self.model.filter() {
            "" => String::new(),
            text => format!(", {} with `{text}`", self.model.len()),
        };
        let by = clap::ValueEnum::to_possible_value(&self.model.order().by);
        let by = by.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let shown = match &self.above.problem {
            Some(problem) => format!("cannot look: {problem}"),
            None => format!("{paused}by {by}{reversed}, every {}{filter}", self.every),
        };
        let agent = match self.above.silent.filter(|time| *time >= SILENT) {
            Some(time) => format!("agent does not answer since {} s", time.as_secs()),
            None => self.above.agent.clone(),
        };
        let summary =
            format!("vmcc top: {connections} connections, {paths} paths, {:.1} Mbit/s; {agent}", bps / 1e6);
        let plain = |text: &str, style| Line::styled(fit(text, width), style);
        vec![
            plain(&summary, Modifier::BOLD.into()),
            plain(&self.above.algorithms, Style::new()),
            plain(&shown, Style::new()),
            plain(&format!("{:<width$}", lines::head(width)), Modifier::REVERSED.into()),
        ]
    }

    /// As many connections as there is room for, and no others.
    fn body(&mut self, width: usize, room: usize) -> Vec<Line<'static>> {
        let selected = self.at();
        // Filtered out, it is only not shown; what has ended is forgotten.
        if self.found().is_none() && self.model.filter().is_empty() {
            self.select(selected);
        }
        self.place = selected;
        self.top = self.first(selected, room);
        let mut all = Vec::with_capacity(room);
        let mut shown = 0;
        while let Some(row) = self.model.get(self.top + shown).filter(|_| all.len() < room) {
            let of = lines::lines(row, self.model.history(row), width);
            let marked = self.top + shown == selected;
            all.extend(of.into_iter().map(|(kind, text)| Line::styled(text, self.style(kind, marked))));
            shown += 1;
        }
        self.page = shown.max(1);
        all.truncate(room);
        all
    }

    /// Which connection comes first so that the selected one is seen: no other than before if that does.
    fn first(&self, selected: usize, room: usize) -> usize {
        let mut first = selected;
        let mut used = self.model.get(selected).map_or(0, lines::count);
        while first > self.top {
            used += self.model.get(first - 1).map_or(0, lines::count);
            if used > room {
                break;
            }
            first -= 1;
        }
        first
    }

    fn style(&self, kind: Kind, selected: bool) -> Style {
        let color = match kind {
            Kind::Shares => Some(Color::Red),
            Kind::Closed => Some(Color::Yellow),
            Kind::Connection | Kind::Path => None,
        };
        let style = color.filter(|_| self.color).map_or(Style::new(), |color| Style::new().fg(color));
        match kind {
            Kind::Connection if selected => style.add_modifier(Modifier::BOLD | Modifier::REVERSED),
            Kind::Connection => style.add_modifier(Modifier::BOLD),
            _ => style,
        }
    }

    fn details(&self, width: usize) -> Vec<Line<'static>> {
        let Some(row) = self.model.get(self.at()) else { return Vec::new() };
        let head = format!("{:-<width$}", format!("--- {} ", row.name()));
        let mut said = lines::details(row);
        if said.len() > DETAILS {
            let more = said.len() - (DETAILS - 1);
            said.truncate(DETAILS - 1);
            said.push(format!("and {more} more paths, which `vmcc status --json` has"));
        }
        let all = std::iter::once(head).chain(said);
        all.map(|text| Line::raw(fit(&text, width))).collect()
    }

    fn foot(&self, width: usize) -> Line<'static> {
        let text = match &self.typing {
            Some(text) => format!("filter: {text}_   Enter sets it, Esc leaves it as it was"),
            None if HELP.len() <= width => HELP.to_owned(),
            None => HELP_NARROW.to_owned(),
        };
        Line::styled(fit(&text, width), Modifier::DIM)
    }
}
