//! Checks of the object file: an algorithm defines its hooks, calls nothing else and has no variables of its own.

use crate::error::ExternalError;
use crate::source::Source;
use crate::workspace;
use object::{BinaryFormat, Object, ObjectSection, ObjectSymbol, SectionKind, Symbol};
use std::path::Path;

/// Functions that compilers call by themselves, also for freestanding code.
const OF_COMPILERS: [&str; 6] =
    ["memcmp", "memcpy", "memmove", "memset", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"];

pub(crate) fn check(source: &Source, object: &Path, program: &str) -> Result<(), ExternalError> {
    let unreadable = |problem: String| ExternalError::Object {
        path: source.path.clone(),
        program: program.to_owned(),
        problem,
    };
    let bytes = std::fs::read(object).map_err(|error| unreadable(error.to_string()))?;
    let file = object::File::parse(&*bytes).map_err(|error| unreadable(error.to_string()))?;
    let name = |symbol: &Symbol<'_, '_>| -> Option<String> {
        let name = symbol.name().ok()?;
        let prefix = if file.format() == BinaryFormat::MachO { "_" } else { "" };
        Some(name.strip_prefix(prefix).unwrap_or(name).to_owned())
    };
    let undefined: Vec<String> =
        file.symbols().filter(|symbol| symbol.is_undefined()).filter_map(|symbol| name(&symbol)).collect();
    let hooks = workspace::hooks(source);
    let (missing, other): (Vec<_>, Vec<_>) = undefined
        .into_iter()
        .filter(|name| !name.is_empty() && !OF_COMPILERS.contains(&name.as_str()))
        .partition(|name| hooks.contains(name));
    let path = source.path.clone();
    if !missing.is_empty() {
        return Err(ExternalError::MissingHooks { path, name: source.entry.name.clone(), hooks: missing });
    }
    if !other.is_empty() {
        return Err(ExternalError::UndefinedFunctions { path, functions: other });
    }
    let changes = |symbol: &Symbol<'_, '_>| symbol.is_common() || in_writable_section(&file, symbol);
    let variables: Vec<String> = file.symbols().filter(changes).filter_map(|symbol| name(&symbol)).collect();
    let variables: Vec<String> = variables.into_iter().filter(|name| !name.is_empty()).collect();
    if variables.is_empty() { Ok(()) } else { Err(ExternalError::MutableGlobals { path, variables }) }
}

/// True for a variable whose section is written while the program runs, and not only by the dynamic linker.
fn in_writable_section(file: &object::File<'_>, symbol: &Symbol<'_, '_>) -> bool {
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    section.is_some_and(|section| {
        let relocated =
            section.name().is_ok_and(|name| name.starts_with(".data.rel.ro") || name == "__const");
        let writable = matches!(
            section.kind(),
            SectionKind::Data
                | SectionKind::UninitializedData
                | SectionKind::Tls
                | SectionKind::UninitializedTls
                | SectionKind::TlsVariables
        );
        // A section's own symbol is no variable.
        writable && !relocated && symbol.kind() != object::SymbolKind::Section
    })
}
