//! Which names somebody may have meant whose name is not known.

/// Less alike than this (of 1) is another name.
const LEAST: f64 = 0.75;
/// One letter too many, too few, wrong, or two exchanged: as alike as this, however short the name is.
const ONE_SLIP: f64 = 0.9;
/// Names are told that are hardly less alike than the best.
const HARDLY: f64 = 0.08;
const MOST: usize = 3;

/// The names most like `name`, best first, at most three; letters count the same whether they are capital or not.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> =
        names.into_iter().map(|known| (score(&name, &known.to_lowercase()), known)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    let near = scored.into_iter().filter(|(score, _)| *score >= LEAST.max(best - HARDLY));
    near.take(MOST).map(|(_, known)| known).collect()
}

fn score(name: &str, known: &str) -> f64 {
    let alike = strsim::jaro_winkler(name, known);
    if name.chars().count() > 2 && strsim::osa_distance(name, known) <= 1 {
        return alike.max(ONE_SLIP);
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_nearer_than_letters_in_common() {
        let known = ["balia", "cubic", "lia", "olia", "vmcc"];
        assert_eq!(nearest("lai", known), ["lia"]);
        assert_eq!(nearest("VMC", known), ["vmcc"]);
        assert_eq!(nearest("vmmc", known), ["vmcc"]);
        assert_eq!(nearest("cubik", known), ["cubic"]);
    }

    #[test]
    fn nothing_alike_is_nothing_named() {
        assert!(nearest("westwood", ["lia", "vmcc"]).is_empty());
        assert!(nearest("", ["lia"]).is_empty());
        assert!(nearest("x", []).is_empty());
    }

    #[test]
    fn no_name_twice_and_never_more_than_three() {
        assert_eq!(nearest("fig1", ["fig2", "fig2", "fig3", "fig4", "fig5"]), ["fig2", "fig3", "fig4"]);
    }
}
