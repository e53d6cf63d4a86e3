// The body of the fuzz target `events`, included by it and by the tests of vmcc-cc.

/// Runs one event sequence: the first bytes choose algorithm, number of paths, conduct and parameters, the rest are
/// the events. Panics if an invariant breaks.
fn fuzz_events(data: &[u8]) {
    // The end of the bytes ends the trace.
    let _ = fuzz_trace(Bytes(data));
}

fn fuzz_trace(mut source: Bytes<'_>) -> Option<()> {
    let algorithms: Vec<Algorithm> = Algorithm::all().collect();
    let algorithm = algorithms[source.below(algorithms.len() as u32)? as usize];
    let paths = 1 + source.below(MAX_PATHS as u32)? as usize;
    let conduct = if source.below(2)? == 0 { Conduct::Lawful } else { Conduct::Wild };
    let mut params = Params::defaults(algorithm);
    vary_params(&mut params, &mut source)?;
    let mut walk = Walk::new(algorithm, params, paths, conduct, source)?;
    while let Some(step) = walk.advance() {
        if let Err(e) = step.check() {
            panic!("{algorithm}, {paths} paths, {conduct:?}: {e}");
        }
    }
    Some(())
}
