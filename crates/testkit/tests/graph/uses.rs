//! Paths of its own crate that a source file names.

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};
use std::collections::BTreeMap;

/// Paths and imports of a file, without those of its tests.
#[derive(Default)]
pub(crate) struct Uses {
    /// Paths, imported or in the code, as they stand there.
    pub(crate) paths: Vec<Vec<String>>,
    /// Imported names, with the path of each.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// Modules in files of their own that only tests have.
    pub(crate) tests: Vec<String>,
}

impl Uses {
    pub(crate) fn of(text: &str) -> Result<Self, LexError> {
        let mut uses = Self::default();
        uses.walk(text.parse()?);
        Ok(uses)
    }

    fn walk(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at += self.skip_item(&tokens[at..]);
            } else if is(&tokens[at], "use") && !tokens.get(at + 1).is_some_and(|next| is(next, "<")) {
                let end =
                    tokens[at..].iter().position(|token| is(token, ";")).map_or(tokens.len(), |n| at + n);
                self.import(&tokens[at + 1..end], &[]);
                at = end + 1;
            } else if ["crate", "self", "super"].iter().any(|root| is(&tokens[at], root)) {
                let path = path(&tokens[at..]);
                at += 1 + 3 * (path.len() - 1);
                if path.len() > 1 {
                    self.paths.push(path);
                }
            } else {
                if let TokenTree::Group(group) = &tokens[at] {
                    self.walk(group.stream());
                }
                at += 1;
            }
        }
    }

    /// Reads the tree of a `use`: `a::{b, c as d}`.
    fn import(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        for branch in tokens.split(|token| is(token, ",")).filter(|branch| !branch.is_empty()) {
            let names = branch.iter().take_while(|token| !is(token, "as")).filter(|token| !is(token, ":"));
            let (groups, names): (Vec<_>, Vec<_>) =
                names.partition(|token| matches!(token, TokenTree::Group(_)));
            let path = [prefix, &names.iter().map(ToString::to_string).collect::<Vec<_>>()].concat();
            if let Some(TokenTree::Group(group)) = groups.first() {
                self.import(&group.stream().into_iter().collect::<Vec<_>>(), &path);
                continue;
            }
            let path: Vec<String> = match path.as_slice() {
                [module @ .., last] if last == "self" && !module.is_empty() => module.to_vec(),
                _ => path,
            };
            let alias = branch.iter().position(|token| is(token, "as")).and_then(|at| branch.get(at + 1));
            if let Some(name) = alias.map(ToString::to_string).or(path.last().cloned()) {
                self.imports.insert(name, path.clone());
            }
            self.paths.push(path);
        }
    }

    /// Length of an item with its attributes; a module in a file of its own is noted.
    fn skip_item(&mut self, tokens: &[TokenTree]) -> usize {
        let ends = |token: &TokenTree| {
            is(token, ";")
                || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
        };
        let length = tokens.iter().position(ends).map_or(tokens.len(), |last| last + 1);
        let item = &tokens[..length];
        if let Some(at) = item.iter().position(|token| is(token, "mod"))
            && item.last().is_some_and(|token| is(token, ";"))
        {
            self.tests.extend(item.get(at + 1).map(ToString::to_string));
        }
        length
    }
}

fn is(token: &TokenTree, text: &str) -> bool {
    !matches!(token, TokenTree::Group(_)) && token.to_string() == text
}

/// `#[cfg(test)]`, alone or in `all(...)`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(group), ..] = tokens else { return false };
    let text = group.to_string().replace(' ', "");
    is(hash, "#") && text.starts_with("[cfg(") && text.contains("test") && !text.contains("not(test")
}

/// The names of a path: `crate::a::b`.
fn path(tokens: &[TokenTree]) -> Vec<String> {
    let mut names = vec![tokens[0].to_string()];
    for next in tokens[1..].chunks(3) {
        match next {
            [a, b, TokenTree::Ident(name)] if is(a, ":") && is(b, ":") => names.push(name.to_string()),
            _ => break,
        }
    }
    names
}
