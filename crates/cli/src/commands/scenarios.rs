//! `vmcc scenarios` and `vmcc scenario`: the scenario language and the scenarios that come with vmcc.

use crate::args::ScenarioAction;
use crate::failure::{Exit, Failure, scenario_failure};
use crate::table;
use crate::ui::{Ui, counted};
use serde::Serialize;
use serde_json::json;
use vmcc_scenario::{Document, Overrides, Plan, Scale, ScenarioError, builtin};

#[derive(Serialize)]
struct Entry {
    name: String,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    cases: usize,
    runs: u32,
    duration: String,
    claims: usize,
}

impl Entry {
    fn of(plan: &Plan) -> Self {
        Self {
            name: plan.name.clone(),
            title: plan.title.clone(),
            source: plan.source.clone(),
            cases: plan.cases.len(),
            runs: plan.runs,
            duration: plan.cases.first().map(|c| c.scenario.duration.to_string()).unwrap_or_default(),
            claims: plan.claims.len(),
        }
    }
}

fn plan_of(document: &Document, scale: Scale) -> Result<Plan, ScenarioError> {
    document.plan(&Overrides { scale, ..Overrides::default() })
}

pub(crate) fn list(ui: &Ui) -> Result<Exit, Failure> {
    let open = |b: &builtin::Builtin| {
        let document = Document::open(b.name)?;
        plan_of(&document, Scale::Full).map(|plan| Entry::of(&plan))
    };
    let entries: Vec<Entry> =
        builtin::all().iter().map(open).collect::<Result<_, _>>().map_err(|e| scenario_failure(&e))?;
    ui.answer(&json!({ "scenarios": entries }), || {
        let mut table = table::plain(&["NAME", "CASES", "RUNS", "DURATION", "CLAIMS", "TITLE"]);
        for e in &entries {
            table.add_row([
                e.name.clone(),
                e.cases.to_string(),
                e.runs.to_string(),
                e.duration.clone(),
                e.claims.to_string(),
                e.title.clone(),
            ]);
        }
        table::render(&table)
    });
    Ok(Exit::Done)
}

pub(crate) fn scenario(action: &ScenarioAction, ui: &Ui) -> Result<Exit, Failure> {
    match action {
        ScenarioAction::Check { scenario, algorithms } => {
            crate::own_algorithms::load(algorithms, ui)?;
            check(scenario, ui)
        }
        ScenarioAction::Show { scenario } => show(scenario, ui),
        ScenarioAction::Schema => {
            let schema = vmcc_scenario::schema();
            ui.answer(&schema, || format!("{schema:#}"));
            Ok(Exit::Done)
        }
    }
}

fn check(name: &str, ui: &Ui) -> Result<Exit, Failure> {
    let document = Document::open(name).map_err(|e| scenario_failure(&e))?;
    let plan = plan_of(&document, Scale::Full).map_err(|e| scenario_failure(&e))?;
    let entry = Entry::of(&plan);
    ui.answer(&json!({ "valid": true, "scenario": entry }), || {
        format!(
            "{name}: valid; {}, {} each of {}, {}",
            counted(entry.cases, "case"),
            counted(entry.runs, "run"),
            entry.duration,
            counted(entry.claims, "claim")
        )
    });
    Ok(Exit::Done)
}

fn show(name: &str, ui: &Ui) -> Result<Exit, Failure> {
    let document = Document::open(name).map_err(|e| scenario_failure(&e))?;
    ui.answer(&json!({ "name": document.name(), "toml": document.text() }), || document.text().to_owned());
    Ok(Exit::Done)
}
