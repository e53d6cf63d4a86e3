//! Which figures are meant.

use crate::failure::Failure;
use vmcc_scenario::papers;

/// The names of the figures that `what`, a paper or a figure of one, means.
pub(super) fn chosen(what: &str) -> Result<Vec<String>, Failure> {
    let (key, wanted) = what.split_once('/').map_or((what, None), |(paper, figure)| (paper, Some(figure)));
    let paper = papers::ALL.iter().find(|paper| paper.key == key).ok_or_else(|| unknown(what))?;
    let meant = |key: &str| wanted.is_none_or(|wanted| wanted == key);
    let figures: Vec<_> = paper.figures.iter().filter(|figure| meant(figure.key)).collect();
    if figures.is_empty() {
        return Err(unknown(what));
    }
    let with_scenario = figures.iter().filter_map(|figure| paper.scenario(figure));
    let names: Vec<String> = with_scenario.map(|scenario| scenario.name.to_owned()).collect();
    if names.is_empty() {
        let why = wanted.and_then(|_| figures.iter().find_map(|figure| figure.without));
        let why = why.unwrap_or("there is no scenario of it yet");
        return Err(
            Failure::usage(format!("{what}: {why}")).help("`vmcc reproduce` lists the figures that have one")
        );
    }
    Ok(names)
}

fn unknown(what: &str) -> Failure {
    let failure = Failure::usage(format!("{what}: there is no such paper or figure"));
    let near: Vec<String> = papers::nearest(what).iter().map(|name| format!("`{name}`")).collect();
    failure.help(if near.is_empty() {
        "`vmcc reproduce` lists them".to_owned()
    } else {
        format!("did you mean {}? `vmcc reproduce` lists them", near.join(" or "))
    })
}
