//! The texts derived from a registry.

use crate::{Algorithm, Param, Registry};
use std::fmt::Write;

impl Registry {
    /// The C header `cc_params.h`: for each parameter its index in `struct cc_params`
    /// (`CC_P_<ALGORITHM>_<PARAMETER>`), for each choice the value of its words
    /// (`CC_P_<ALGORITHM>_<PARAMETER>_<WORD>`).
    pub fn c_header(&self) -> String {
        let mut out = String::from(
            "/* Generated from algorithms/registry.toml. */\n#ifndef VMCC_CC_PARAMS_H\n#define VMCC_CC_PARAMS_H\n\n",
        );
        for alg in &self.algorithms {
            for (index, p) in alg.params.iter().enumerate() {
                let id = format!("CC_P_{}_{}", alg.name, p.name).to_uppercase();
                writeln!(out, "#define {id} {index}").expect("writing to a string");
                for (value, word) in p.choices.iter().enumerate() {
                    writeln!(out, "#define {id}_{} {value}u", word.to_uppercase())
                        .expect("writing to a string");
                }
            }
        }
        out.push_str("\n#endif\n");
        out
    }

    /// The initialiser of a Rust `[Entry; N]` with the fields that `vmcc-cc` declares, and the
    /// declarations of the C tables it points to.
    pub fn rust_table(&self) -> String {
        let mut out = String::from("unsafe extern \"C\" {\n");
        for alg in &self.algorithms {
            writeln!(out, "    static cc_host_ops_{}: Ops;", alg.name).expect("writing to a string");
        }
        out.push_str("}\n\n");
        writeln!(out, "pub(crate) static TABLE: [Entry; {}] = [", self.algorithms.len())
            .expect("writing to a string");
        for alg in &self.algorithms {
            out.push_str(&rust_entry(alg));
        }
        out.push_str("];\n");
        out
    }
}

fn rust_entry(alg: &Algorithm) -> String {
    let params: String = alg.params.iter().map(rust_param).collect();
    format!(
        "    Entry {{ ops: &raw const cc_host_ops_{name}, build: None, info: AlgorithmInfo {{ name: {name:?}, kernel_name: {kernel:?}, \
         title: {title:?}, source: {source:?}, coupled: {coupled}, needs_ecn: {ecn}, alpha: {alpha}, detects: {detects}, paces: {paces}, \
         params: &[\n{params}    ] }} }},\n",
        name = alg.name,
        kernel = alg.kernel_name,
        title = alg.title,
        source = alg.source,
        coupled = alg.coupled,
        ecn = alg.needs_ecn,
        alpha = alg.alpha,
        detects = alg.detects,
        paces = alg.paces,
    )
}

fn rust_param(p: &Param) -> String {
    let Param { name, unit, default, min, max, scale, choices, cite, doc } = p;
    format!(
        "        ParamInfo {{ name: {name:?}, unit: {unit:?}, default: {default:?}, min: {min:?}, max: {max:?}, \
         scale: {scale:?}, choices: &{choices:?}, cite: {cite:?}, doc: {doc:?} }},\n"
    )
}
