//! The format of a vector file.

use std::collections::BTreeMap;

/// One line of a vector file.
pub(crate) struct Row {
    pub(crate) line: usize,
    pub(crate) case: String,
    pub(crate) verb: String,
    with: BTreeMap<String, String>,
    pub(crate) expect: Vec<String>,
    pub(crate) within: f64,
}

/// Parses a file: five columns, `#` starts a comment line, empty lines separate.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
    match lines.next() {
        Some((_, "case,do,with,expect,within")) => {}
        _ => return Err("the first line must be `case,do,with,expect,within`".to_owned()),
    }
    lines
        .map(|(i, line)| {
            parse_row(line).map_err(|e| format!("line {}: {e}", i + 1)).map(|r| Row { line: i + 1, ..r })
        })
        .collect()
}

fn parse_row(line: &str) -> Result<Row, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [case, verb, with, expect, within] = cells[..] else {
        return Err(format!("{} columns instead of 5", cells.len()));
    };
    let pair = |word: &str| match word.split_once('=') {
        Some((k, v)) => Ok((k.to_owned(), v.to_owned())),
        None => Err(format!("`{word}` is not key=value")),
    };
    Ok(Row {
        line: 0,
        case: case.to_owned(),
        verb: verb.to_owned(),
        with: with.split_whitespace().map(pair).collect::<Result<_, _>>()?,
        expect: expect.split(';').filter(|e| !e.is_empty()).map(|e| e.trim().to_owned()).collect(),
        within: if within.is_empty() { 0.0 } else { number(within)? },
    })
}

/// A number, or a fraction `a/b`.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let parse = |t: &str| t.parse::<f64>().map_err(|_| format!("`{t}` is not a number"));
    match text.split_once('/') {
        Some((a, b)) => Ok(parse(a)? / parse(b)?),
        None => parse(text),
    }
}

impl Row {
    /// Fails on a key that the verb does not know.
    pub(crate) fn only(&self, keys: &[&str]) -> Result<(), String> {
        match self.with.keys().find(|k| !keys.contains(&k.as_str())) {
            Some(k) => Err(format!("`{}` does not take `{k}`", self.verb)),
            None => Ok(()),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.with.get(key).map(String::as_str)
    }

    pub(crate) fn list(&self, key: &str) -> Result<Option<Vec<f64>>, String> {
        self.text(key).map(|v| v.split(';').map(number).collect()).transpose()
    }

    pub(crate) fn get(&self, key: &str, default: f64) -> Result<f64, String> {
        self.text(key).map_or(Ok(default), number)
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Compares what was found with the expectations, one by one; a single expectation holds for all.
    pub(crate) fn check(&self, found: &[f64]) -> Result<usize, String> {
        if self.expect.is_empty() {
            return Err("expects nothing".to_owned());
        }
        if self.expect.len() != 1 && self.expect.len() != found.len() {
            return Err(format!("expects {} values of {}", self.expect.len(), found.len()));
        }
        for (i, x) in found.iter().enumerate() {
            let want = number(&self.expect[if self.expect.len() == 1 { 0 } else { i }])?;
            let allowed = self.within * want.abs().max(f64::MIN_POSITIVE);
            if (x - want).abs() > allowed {
                return Err(format!(
                    "`{}` number {i} is {x:.12}, expected {want:.12} within {allowed:e}",
                    self.verb
                ));
            }
        }
        Ok(found.len())
    }
}

#[test]
fn fractions_are_parsed_as_numbers() {
    assert_eq!(number("1/4"), Ok(0.25));
    assert!(number("1/x").is_err());
}
