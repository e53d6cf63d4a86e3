//! Titles of metrics for people.

use vmcc_metrics::catalogue;

/// A metric's name for people; of one that this version does not know, the name in the file.
pub(crate) fn metric_title(metric: &str) -> String {
    catalogue::named(metric).map_or_else(|| metric.to_owned(), |listed| sentence_case(listed.title))
}

/// A title with a capital letter.
pub(crate) fn sentence_case(title: &str) -> String {
    let mut letters = title.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
