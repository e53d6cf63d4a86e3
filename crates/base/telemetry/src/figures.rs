//! Families of figures, in Prometheus' text format.

use prometheus::core::Collector;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, Error, Histogram, TextEncoder};
use std::collections::HashMap;

/// Type of a family of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never goes down while what counts it runs.
    Counter,
    /// As it is now.
    Gauge,
}

/// Families, in the order in which they came.
#[derive(Debug, Default)]
pub struct Figures(Vec<MetricFamily>);

impl Figures {
    /// A family and its samples: for each the values of `labels`, in their order, and the figure. Samples whose values are all the same
    /// are one, their sum: Prometheus refuses everything where something is there twice. Without samples there is no family.
    pub fn family<'a, const LABELS: usize>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        labels: [&str; LABELS],
        samples: impl IntoIterator<Item = ([&'a str; LABELS], f64)>,
    ) {
        let mut sums: Vec<([&str; LABELS], f64)> = Vec::new();
        let mut places = HashMap::new();
        for (values, figure) in samples {
            let place = *places.entry(values).or_insert(sums.len());
            match sums.get_mut(place) {
                Some((_, sum)) => *sum += figure,
                None => sums.push((values, figure)),
            }
        }
        if sums.is_empty() {
            return;
        }
        let metric = |(values, figure): ([&str; LABELS], f64)| metric(kind, labels, values, figure);
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(match kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
        });
        family.set_metric(sums.into_iter().map(metric).collect());
        self.0.push(family);
    }

    /// A family of one figure, which has no labels.
    pub fn one(&mut self, family: (&str, Kind, &str), figure: f64) {
        self.family(family, [], [([], figure)]);
    }

    /// Writes a histogram's counts so far.
    pub fn histogram(&mut self, histogram: &Histogram) {
        self.0.extend(histogram.collect());
    }

    /// Everything, as Prometheus and the textfile collector of `node_exporter` read it.
    ///
    /// # Errors
    /// The encoder refuses.
    pub fn text(&self) -> Result<String, Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.0, &mut text)?;
        String::from_utf8(text).map_err(|error| Error::Msg(error.to_string()))
    }
}

fn metric<const LABELS: usize>(
    kind: Kind,
    labels: [&str; LABELS],
    values: [&str; LABELS],
    figure: f64,
) -> Metric {
    let pair = |(label, value): (&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(label.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    let mut metric = Metric::from_label(labels.into_iter().zip(values).map(pair).collect());
    match kind {
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(figure);
            metric.set_counter(counter);
        }
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(figure);
            metric.set_gauge(gauge);
        }
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: (&str, Kind, &str) = ("a_total", Kind::Counter, "What there is.");

    #[test]
    fn samples_with_equal_labels_are_summed() {
        let mut figures = Figures::default();
        figures.family(FAMILY, ["of"], [(["x"], 1.0), (["y\"\n"], 5.0), (["x"], 2.5)]);
        let expected = "# HELP a_total What there is.\n# TYPE a_total counter\na_total{of=\"x\"} 3.5\na_total{of=\"y\\\"\\n\"} 5\n";
        assert_eq!(figures.text().unwrap(), expected);
    }

    #[test]
    fn family_without_samples_is_omitted() {
        let mut figures = Figures::default();
        figures.family(FAMILY, ["of"], []);
        assert_eq!(figures.text().unwrap(), "");
        figures.one(("b", Kind::Gauge, "One."), -1.0);
        assert_eq!(figures.text().unwrap(), "# HELP b One.\n# TYPE b gauge\nb -1\n");
    }
}
