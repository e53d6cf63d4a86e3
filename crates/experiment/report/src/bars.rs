//! Cases compared as bars, with whiskers for confidence intervals. Plain SVG: sharp in a talk, readable without
//! JavaScript, colored by the page's theme.

use crate::titles::sentence_case;
use maud::{Markup, html};
use vmcc_metrics::stats::MeanCi;
use vmcc_results::figure::{Column, mean_text};

const LABEL_WIDTH: f64 = 132.0;
const BAR_WIDTH: f64 = 196.0;
const VALUE_WIDTH: f64 = 100.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
/// Characters of a label that fit beside the bars.
const LABEL_CHARS: usize = 20;

/// One card: the figure of these of the cases.
pub(crate) fn card(column: &Column, cases: &[String], members: &[usize]) -> Markup {
    let width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH;
    let height = ROW * members.len() as f64 + 4.0;
    let reach = |c: &MeanCi| c.mean + c.half_width.unwrap_or(0.0);
    let largest = members
        .iter()
        .filter_map(|case| column.cells[*case].as_ref())
        .map(reach)
        .fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| (value / largest).clamp(0.0, 1.0) * BAR_WIDTH;
    html! {
        figure.card {
            figcaption { (title(column)) }
            svg.bars viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(title(column)) {
                @for (row, (case, cell)) in members.iter().map(|case| (&cases[*case], &column.cells[*case])).enumerate() {
                    @let y = ROW * row as f64 + (ROW - BAR) / 2.0;
                    @let value = |of: Option<f64>| of.map(|of| (of / column.scale.divisor).to_string());
                    g data-case=(case) data-mean=[value(cell.map(|c| c.mean))]
                        data-half=[value(cell.and_then(|c| c.half_width))] {
                        text.label x=(LABEL_WIDTH - 8.0) y=(y + BAR - 4.0) text-anchor="end" { (short(case)) }
                        @if let Some(cell) = cell {
                            title { (case) ": " (mean_text(*cell, column.scale)) " " (column.scale.unit) }
                            rect.track x=(LABEL_WIDTH) y=(y) width=(BAR_WIDTH) height=(BAR) rx="3" {}
                            rect class=(format!("bar c{}", row % 10)) x=(LABEL_WIDTH) y=(y)
                                width=(format!("{:.1}", x(cell.mean).max(1.0))) height=(BAR) rx="3" {}
                            @if let Some(half) = cell.half_width {
                                @let (a, b) = (LABEL_WIDTH + x(cell.mean - half), LABEL_WIDTH + x(cell.mean + half));
                                @let middle = y + BAR / 2.0;
                                path.whisker d=(format!("M{a:.1} {middle}H{b:.1}M{a:.1} {}V{}M{b:.1} {}V{}",
                                    middle - 4.0, middle + 4.0, middle - 4.0, middle + 4.0)) {}
                            }
                            text.value x=(LABEL_WIDTH + BAR_WIDTH + 8.0) y=(y + BAR - 4.0) {
                                (mean_text(MeanCi { half_width: None, ..*cell }, column.scale))
                            }
                        } @else {
                            text.value x=(LABEL_WIDTH + 4.0) y=(y + BAR - 4.0) { "not measured" }
                        }
                    }
                }
            }
        }
    }
}

fn title(column: &Column) -> String {
    let title = sentence_case(&column.title);
    match column.scale.unit {
        "" => title,
        unit => format!("{title} [{unit}]"),
    }
}

fn short(label: &str) -> String {
    if label.chars().count() <= LABEL_CHARS {
        return label.to_owned();
    }
    let kept: String = label.chars().take(LABEL_CHARS - 1).collect();
    format!("{kept}…")
}
