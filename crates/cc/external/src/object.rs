//! Checks of the object file: an algorithm defines its hooks, calls nothing else and has no variables of its own.

use crate::error::ExternalError;
use crate::source::Source;
use crate::workspace;
use object::{
    BinaryFormat, File, Object, ObjectSection, ObjectSymbol, Section, SectionFlags, SectionKind, Symbol,
    SymbolKind, elf,
};
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
    let file = File::parse(&*bytes).map_err(|error| unreadable(error.to_string()))?;
    let undefined = file.symbols().filter(|symbol| symbol.is_undefined());
    let hooks = workspace::hooks(source);
    let (missing, other): (Vec<_>, Vec<_>) = undefined
        .filter_map(|symbol| name(&file, &symbol))
        .filter(|name| !OF_COMPILERS.contains(&name.as_str()))
        .partition(|name| hooks.contains(name));
    let path = source.path.clone();
    if !missing.is_empty() {
        return Err(ExternalError::MissingHooks { path, name: source.entry.name.clone(), hooks: missing });
    }
    if !other.is_empty() {
        return Err(ExternalError::UndefinedFunctions { path, functions: other });
    }
    let variables = variables(&file);
    if variables.is_empty() { Ok(()) } else { Err(ExternalError::MutableGlobals { path, variables }) }
}

/// Name of a symbol in C; `None` if it has none.
fn name(file: &File<'_>, symbol: &Symbol<'_, '_>) -> Option<String> {
    let name = symbol.name().ok()?;
    let prefix = if file.format() == BinaryFormat::MachO { "_" } else { "" };
    let name = name.strip_prefix(prefix).unwrap_or(name);
    // The assembler marks data by symbols like `$d`.
    (!name.is_empty() && !name.starts_with('$')).then(|| name.to_owned())
}

/// Variables that outlive a call. Assembler code has some without a symbol: the section stands for them.
fn variables(file: &File<'_>) -> Vec<String> {
    let common = file.symbols().filter(|symbol| symbol.is_common());
    let mut found: Vec<String> = common.filter_map(|symbol| name(file, &symbol)).collect();
    for section in file.sections().filter(|section| is_written(section)) {
        // A section's own symbol is no variable.
        let inside = file.symbols().filter(|symbol| {
            symbol.section_index() == Some(section.index()) && symbol.kind() != SymbolKind::Section
        });
        let names: Vec<String> = inside.filter_map(|symbol| name(file, &symbol)).collect();
        if names.is_empty() {
            found.push(format!("section {}", section.name().unwrap_or_default()));
        }
        found.extend(names);
    }
    found
}

/// True for a section with content that is written while the program runs, and not only by the dynamic linker.
fn is_written(section: &Section<'_, '_>) -> bool {
    let name = section.name().unwrap_or_default();
    let written = match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => {
            let relocated = name == ".data.rel.ro" || name.starts_with(".data.rel.ro.");
            sh_flags.contains(elf::SHF_ALLOC) && sh_flags.contains(elf::SHF_WRITE) && !relocated
        }
        _ => {
            let data = matches!(
                section.kind(),
                SectionKind::Data
                    | SectionKind::UninitializedData
                    | SectionKind::Tls
                    | SectionKind::UninitializedTls
                    | SectionKind::TlsVariables
            );
            data && name != "__const"
        }
    };
    written && section.size() > 0
}
