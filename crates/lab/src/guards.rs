//! Closes paths that an algorithm of the run asks to close, as `vmcc up --guard` does on a host.

use crate::Error;
use std::time::Duration;
use vmcc_host::Loaded;
use vmcc_host::guard::Guard;

/// Those of a run. Of an algorithm that somebody else has loaded, that one's guard is responsible: requests are read once.
pub(crate) struct Guards(Vec<Guard>);

impl Guards {
    pub(crate) fn of(algorithms: &[Loaded]) -> Result<Self, Error> {
        let own = algorithms.iter().filter(|loaded| loaded.is_own());
        let guards = own.filter_map(|loaded| Guard::new(loaded).transpose()).collect::<Result<_, _>>();
        guards.map(Self).map_err(|e| Error::reading("reading what algorithms ask to close", &e))
    }

    /// Does what was asked for since the last time. `look` comes before that: what is closed must have been seen, however short its
    /// life was.
    pub(crate) fn act(&self, look: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let failed = |e| Error::reading("reading what algorithms ask to close", &e);
        let mut asked = Vec::new();
        for guard in &self.0 {
            let requests = guard.requests(Duration::ZERO).map_err(failed)?;
            asked.extend(requests.into_iter().map(|request| (guard.kernel_name(), request)));
        }
        if asked.is_empty() {
            return Ok(());
        }
        look()?;
        for (algorithm, request) in asked {
            // It may be of another run that ends just now; what is not closed, is seen by whoever counts.
            let _ = request.close(algorithm);
        }
        Ok(())
    }
}
