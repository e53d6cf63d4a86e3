//! "Did you mean" suggestions for misspelt names.

/// Least similarity (0 to 1) of a suggestion.
const MIN_SIMILARITY: f64 = 0.75;
/// Similarity of names at edit distance 1, however short they are.
const ONE_EDIT: f64 = 0.9;
/// Largest difference to the best suggestion.
const MAX_DIFFERENCE: f64 = 0.08;
const MAX_SUGGESTIONS: usize = 3;

/// Up to three known names similar to `name`, best first. Case is ignored.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> =
        names.into_iter().map(|known| (score(&name, &known.to_lowercase()), known)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    let near = scored.into_iter().filter(|(score, _)| *score >= MIN_SIMILARITY.max(best - MAX_DIFFERENCE));
    near.take(MAX_SUGGESTIONS).map(|(_, known)| known).collect()
}

fn score(name: &str, known: &str) -> f64 {
    let alike = strsim::jaro_winkler(name, known);
    if name.chars().count() > 2 && strsim::osa_distance(name, known) <= 1 {
        return alike.max(ONE_EDIT);
    }
    alike
}

/// A help text such as "did you mean `lia`?"; none without a similar name.
pub fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let found = nearest(name, names);
    if found.is_empty() {
        return None;
    }
    let list: Vec<String> = found.iter().map(|n| format!("`{n}`")).collect();
    Some(format!("did you mean {}?", list.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_one_beats_common_letters() {
        let known = ["balia", "cubic", "lia", "olia", "vmcc"];
        assert_eq!(nearest("lai", known), ["lia"]);
        assert_eq!(nearest("VMC", known), ["vmcc"]);
        assert_eq!(nearest("vmmc", known), ["vmcc"]);
        assert_eq!(nearest("cubik", known), ["cubic"]);
    }

    #[test]
    fn dissimilar_names_give_no_suggestion() {
        assert!(nearest("westwood", ["lia", "vmcc"]).is_empty());
        assert!(nearest("", ["lia"]).is_empty());
        assert!(nearest("x", []).is_empty());
    }

    #[test]
    fn suggestions_are_unique_and_at_most_three() {
        assert_eq!(nearest("fig1", ["fig2", "fig2", "fig3", "fig4", "fig5"]), ["fig2", "fig3", "fig4"]);
    }
}
