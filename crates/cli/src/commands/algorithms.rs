//! `vmcc algorithms`: the registry.

use crate::failure::{Exit, Failure};
use crate::table;
use crate::ui::Ui;
use serde::Serialize;
use serde_json::{Value, json};
use vmcc_cc::{Algorithm, AlgorithmInfo, ParamInfo};

#[derive(Serialize)]
pub(super) struct Entry {
    name: &'static str,
    kernel_name: &'static str,
    title: &'static str,
    source: &'static str,
    coupled: bool,
    needs_ecn: bool,
    parameters: Vec<Parameter>,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    unit: &'static str,
    default: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    choices: &'static [&'static str],
    description: &'static str,
    source: &'static str,
}

impl From<&'static AlgorithmInfo> for Entry {
    fn from(info: &'static AlgorithmInfo) -> Self {
        Self {
            name: info.name,
            kernel_name: info.kernel_name,
            title: info.title,
            source: info.source,
            coupled: info.coupled,
            needs_ecn: info.needs_ecn,
            parameters: info.params.iter().map(Parameter::from).collect(),
        }
    }
}

impl From<&'static ParamInfo> for Parameter {
    fn from(info: &'static ParamInfo) -> Self {
        let number = info.choices.is_empty();
        Self {
            name: info.name,
            unit: info.unit,
            default: if number { json!(info.default) } else { json!(info.default_text()) },
            min: number.then_some(info.min),
            max: number.then_some(info.max),
            choices: info.choices,
            description: info.doc,
            source: info.cite,
        }
    }
}

pub(crate) fn algorithms(ui: &Ui) -> Result<Exit, Failure> {
    let entries: Vec<Entry> = Algorithm::all().map(|a| Entry::from(a.info())).collect();
    ui.answer(&json!({ "algorithms": entries }), || text(&entries));
    Ok(Exit::Done)
}

fn text(entries: &[Entry]) -> String {
    let yes_no = |yes| if yes { "yes" } else { "no" };
    let mut overview = table::plain(&["NAME", "IN THE KERNEL", "COUPLED", "ECN", "TITLE"]);
    for e in entries {
        overview.add_row([e.name, e.kernel_name, yes_no(e.coupled), yes_no(e.needs_ecn), e.title]);
    }
    let mut text = table::render(&overview);
    text.push_str(
        "\n\nParameters, to be set with `vmcc run --set params.ALGORITHM.PARAMETER=VALUE` and \
         `vmcc up --set ALGORITHM.PARAMETER=VALUE`\n",
    );
    let mut parameters = table::plain(&["ALGORITHM", "PARAMETER", "DEFAULT", "RANGE", "MEANING"]);
    for algorithm in Algorithm::all() {
        for p in algorithm.info().params {
            let row =
                [algorithm.name(), p.name, &p.default_text(), &p.range_text(), p.doc].map(str::to_owned);
            parameters.add_row(row);
        }
    }
    text.push_str(&table::render(&parameters));
    text.push_str("\n\nSources\n");
    let mut sources = table::plain(&["ALGORITHM", "SOURCE"]);
    for e in entries {
        sources.add_row([e.name, e.source]);
    }
    text.push_str(&table::render(&sources));
    text
}
