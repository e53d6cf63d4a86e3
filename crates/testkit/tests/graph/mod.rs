//! Uses between the modules of a crate, from its sources.

mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use uses::Uses;

/// Names of siblings that use each other.
pub(crate) type Ring = BTreeSet<String>;

/// Path of a module from the crate's root.
type Module = Vec<String>;

/// Rings among siblings, each with the path of their parent (`::a::b`).
pub(crate) fn rings(source: &Path) -> Vec<(String, Ring)> {
    let modules = Modules::read(source);
    let mut siblings: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, uses) in &modules.0 {
        for to in uses.paths.iter().filter_map(|path| modules.resolve(from, path, 0)) {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if common < from.len().min(to.len()) {
                let edges = siblings.entry(from[..common].to_vec()).or_default();
                edges.entry(from[common].clone()).or_default().insert(to[common].clone());
            }
        }
    }
    let place = |parent: &Module| parent.iter().map(|name| format!("::{name}")).collect::<String>();
    siblings
        .iter()
        .flat_map(|(parent, edges)| components(edges).into_iter().map(|ring| (place(parent), ring)))
        .collect()
}

/// Sets of more than one node that all reach each other.
fn components(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Ring> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            open.extend(edges.get(node).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|node| (node, reached(node))).collect();
    all.iter()
        .filter(|(node, reached)| reached.contains(**node))
        .map(|(node, reached)| {
            reached
                .iter()
                .filter(|to| all.get(to).is_some_and(|back| back.contains(*node)))
                .cloned()
                .collect()
        })
        .filter(|ring: &Ring| ring.len() > 1)
        .collect()
}

/// The modules of a crate, without those of its tests.
struct Modules(BTreeMap<Module, Uses>);

impl Modules {
    fn read(source: &Path) -> Self {
        let mut all = BTreeMap::new();
        read_folder(source, &mut Vec::new(), &mut all);
        let tests: Vec<Module> = all
            .iter()
            .flat_map(|(module, uses): (&Module, &Uses)| {
                uses.tests.iter().map(move |name| [module.as_slice(), std::slice::from_ref(name)].concat())
            })
            .collect();
        all.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Self(all)
    }

    /// The innermost module that a path, as it stands in module `from`, leads to.
    fn resolve(&self, from: &Module, path: &[String], depth: u32) -> Option<Module> {
        const MAX_REEXPORTS: u32 = 8;
        if depth > MAX_REEXPORTS {
            return None;
        }
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (mut at, names) = match path.first()?.as_str() {
            "crate" => (Module::new(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            "super" => (from[..from.len().checked_sub(supers)?].to_vec(), &path[supers..]),
            name if self.is_child(from, name) => (from.clone(), path),
            _ => return None,
        };
        for (index, name) in names.iter().enumerate() {
            if self.is_child(&at, name) {
                at.push(name.clone());
                continue;
            }
            let Some(import) = self.0.get(&at).and_then(|uses| uses.imports.get(name)) else { break };
            let through = [import.as_slice(), &names[index + 1..]].concat();
            return self.resolve(&at, &through, depth + 1).or(Some(at));
        }
        Some(at)
    }

    fn is_child(&self, module: &Module, name: &str) -> bool {
        self.0.contains_key(&[module.as_slice(), &[name.to_owned()]].concat())
    }
}

fn read_folder(folder: &Path, at: &mut Module, all: &mut BTreeMap<Module, Uses>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            at.push(name);
            read_folder(&path, at, all);
            at.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let own = matches!(name.as_str(), "mod" | "lib" | "main");
            let module = if own { at.clone() } else { [at.as_slice(), &[name]].concat() };
            let text = fs::read_to_string(&path).unwrap();
            all.insert(module, Uses::of(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        }
    }
}
