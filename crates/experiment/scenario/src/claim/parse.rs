//! Reading an expression: selectors out, the rest to the expression library.

use serde_json::Value;

use super::{BadClaim, FUNCTIONS, Filter, Function, Selector};
use vmcc_config::did_you_mean;

/// The longest expression; the library reads it recursively.
const MAX_LENGTH: usize = 4000;
const MAX_DEPTH: usize = 40;

pub(super) struct Parsed {
    pub(super) selectors: Vec<Selector>,
    pub(super) expression: String,
    pub(super) left: Option<String>,
    pub(super) right: Option<(String, String)>,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    selectors: Vec<Selector>,
    out: String,
    depth: usize,
    /// Offset in `out` of the first comparison outside parentheses.
    comparison: Option<usize>,
    /// The operator of that comparison, and where in `out` its right side begins.
    right: Option<(String, usize)>,
    /// True if the first comparison is only a part of the whole.
    compound: bool,
}

fn bad(offset: usize, length: usize, message: impl Into<String>) -> BadClaim {
    BadClaim { offset, length, message: message.into(), help: None }
}

pub(super) fn parse(text: &str) -> Result<Parsed, BadClaim> {
    if text.len() > MAX_LENGTH {
        return Err(bad(0, 1, format!("the expression is longer than {MAX_LENGTH} bytes")));
    }
    let mut reader = Reader {
        text,
        at: 0,
        selectors: Vec::new(),
        out: String::new(),
        depth: 0,
        comparison: None,
        right: None,
        compound: false,
    };
    while reader.at < text.len() {
        reader.step()?;
    }
    let left = reader.comparison.and_then(|end| reader.out.get(..end)).map(str::to_owned);
    let whole = reader.right.filter(|_| !reader.compound);
    let right = whole.and_then(|(operator, at)| Some((operator, reader.out.get(at..)?.to_owned())));
    Ok(Parsed { selectors: reader.selectors, expression: reader.out, left, right })
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_space(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn step(&mut self) -> Result<(), BadClaim> {
        let Some(c) = self.rest().chars().next() else { return Ok(()) };
        match c {
            c if c.is_ascii_digit() => self.number(),
            c if is_name(c) => self.name(),
            '(' | ')' => self.parenthesis(c),
            '<' | '>' | '=' | '!' => self.operator(),
            '\'' | '"' => {
                Err(bad(self.at, 1, "a text belongs into a selector, as in mean(goodput_bps, cc='lia')"))
            }
            ';' => Err(bad(self.at, 1, "one claim is one expression; write two claims")),
            c => {
                if self.depth == 0 && (c == '&' || c == '|') {
                    self.compound = true;
                    self.comparison.get_or_insert(self.out.len());
                }
                self.out.push(c);
                self.at += c.len_utf8();
                Ok(())
            }
        }
    }

    fn parenthesis(&mut self, c: char) -> Result<(), BadClaim> {
        if c == '(' {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(bad(self.at, 1, format!("more than {MAX_DEPTH} parentheses inside one another")));
            }
        } else {
            self.depth = self
                .depth
                .checked_sub(1)
                .ok_or_else(|| bad(self.at, 1, "this parenthesis closes nothing"))?;
        }
        self.out.push(c);
        self.at += 1;
        Ok(())
    }

    fn operator(&mut self) -> Result<(), BadClaim> {
        let start = self.at;
        let operator = self.take_while(|c| matches!(c, '<' | '>' | '=' | '!'));
        match operator {
            "<" | ">" | "<=" | ">=" | "==" | "!=" => {
                if self.depth == 0 {
                    self.compound |= self.comparison.is_some();
                    self.comparison.get_or_insert(self.out.len());
                    self.right = Some((operator.to_owned(), self.out.len() + operator.len()));
                }
            }
            "!" => {}
            "=" => return Err(bad(start, 1, "`=` assigns nothing here; compare with `==`")),
            other => return Err(bad(start, other.len(), format!("unknown operator `{other}`"))),
        }
        self.out.push_str(operator);
        Ok(())
    }

    /// Every number becomes a floating-point one, so that `1 / 2` is a half.
    fn number(&mut self) -> Result<(), BadClaim> {
        let start = self.at;
        let rest = self.rest();
        let mut end = 0;
        let bytes = rest.as_bytes();
        while let Some(&b) = bytes.get(end) {
            let sign_of_exponent =
                matches!(b, b'+' | b'-') && matches!(bytes.get(end.wrapping_sub(1)), Some(b'e' | b'E'));
            if !(b.is_ascii_alphanumeric() || b == b'.' || sign_of_exponent) {
                break;
            }
            end += 1;
        }
        self.at += end;
        let text = &rest[..end];
        let value = text.parse::<f64>().ok().filter(|v| v.is_finite());
        let value = value.ok_or_else(|| bad(start, end, format!("`{text}` is not a number")))?;
        let shown = value.to_string();
        self.out.push_str(&shown);
        if !shown.contains('.') {
            self.out.push_str(".0");
        }
        Ok(())
    }

    fn name(&mut self) -> Result<(), BadClaim> {
        let start = self.at;
        let name = self.take_while(|c| is_name(c) || c == ':');
        let after_name = self.at;
        self.skip_space();
        if !self.rest().starts_with('(') {
            if matches!(name, "true" | "false") {
                self.out.push_str(name);
                return Ok(());
            }
            let message = format!(
                "`{name}` is neither a number nor a function; metrics stand inside one, as mean({name})"
            );
            return Err(bad(start, name.len(), message));
        }
        let function = FUNCTIONS.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
        match function {
            // `min` and `max` of numbers belong to the library.
            Some(Function::Min | Function::Max) if !self.selector_follows() => {}
            Some(function) => return self.selector(start, function),
            None if name.contains("::") || matches!(name, "floor" | "ceil" | "round" | "if") => {}
            None => {
                let mut error = bad(start, name.len(), format!("there is no function `{name}`"));
                let names =
                    FUNCTIONS.iter().map(|(n, _)| *n).chain(["math::abs", "math::sqrt", "round", "if"]);
                error.help = did_you_mean(name, names);
                return Err(error);
            }
        }
        self.out.push_str(name);
        self.at = after_name;
        Ok(())
    }

    /// True if the parenthesis holds a metric's name rather than numbers.
    fn selector_follows(&self) -> bool {
        let inside = self.rest()[1..].trim_start();
        let name = inside.split(|c: char| !is_metric(c)).next().unwrap_or_default();
        let after = inside[name.len()..].trim_start();
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && after.starts_with([',', ')'])
    }

    fn selector(&mut self, start: usize, function: Function) -> Result<(), BadClaim> {
        self.at += 1;
        self.skip_space();
        let metric_at = self.at;
        let metric = self.take_while(is_metric).to_owned();
        if metric.is_empty() {
            return Err(bad(metric_at, 1, "expected the name of a metric, such as goodput_bps"));
        }
        let mut selector =
            Selector { function, metric, metric_at, axis: None, filters: Vec::new(), text: String::new() };
        loop {
            self.skip_space();
            let at = self.at;
            match self.rest().chars().next() {
                Some(')') => {
                    self.at += 1;
                    break;
                }
                Some(',') => {
                    self.at += 1;
                    self.argument(&mut selector)?;
                }
                Some(_) => return Err(bad(at, 1, "expected `,` or `)`")),
                None => return Err(bad(start, at - start, "the parenthesis is not closed")),
            }
        }
        if function == Function::Spearman && selector.axis.is_none() {
            return Err(bad(start, self.at - start, "spearman needs an axis: spearman(metric, connections)"));
        }
        selector.text = self.text[start..self.at].to_owned();
        let index = self.selectors.iter().position(|s| s.text == selector.text).unwrap_or_else(|| {
            self.selectors.push(selector);
            self.selectors.len() - 1
        });
        self.out.push_str(&variable(index));
        Ok(())
    }

    /// `key='value'`, or the axis of `spearman`.
    fn argument(&mut self, selector: &mut Selector) -> Result<(), BadClaim> {
        self.skip_space();
        let key_at = self.at;
        let key = self.take_while(is_metric).to_owned();
        if key.is_empty() {
            return Err(bad(key_at, 1, "expected a filter such as cc='vmcc'"));
        }
        self.skip_space();
        if !self.rest().starts_with('=') {
            if selector.function == Function::Spearman && selector.axis.is_none() {
                selector.axis = Some((key, key_at));
                return Ok(());
            }
            return Err(bad(key_at, key.len(), format!("expected a value, as in {key}='...'")));
        }
        self.take_while(|c| c == '=');
        self.skip_space();
        let value_at = self.at;
        let value = self.value()?;
        selector.filters.push(Filter { key, key_at, value, value_at });
        Ok(())
    }

    fn value(&mut self) -> Result<Value, BadClaim> {
        let start = self.at;
        match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let rest = &self.rest()[1..];
                let end = rest.find(quote).ok_or_else(|| bad(start, 1, "the text has no closing quote"))?;
                self.at += end + 2;
                Ok(Value::String(rest[..end].to_owned()))
            }
            _ => {
                let word = self.take_while(|c| is_metric(c) || c == '+').to_owned();
                if word.is_empty() {
                    return Err(bad(start, 1, "expected a text in quotes or a number"));
                }
                Ok(serde_json::from_str(&word).unwrap_or(Value::String(word)))
            }
        }
    }
}

fn is_metric(c: char) -> bool {
    is_name(c) || c == '.' || c == '-'
}

/// The variable that stands for the `index`-th selector.
pub(super) fn variable(index: usize) -> String {
    format!("selector_{index}")
}
