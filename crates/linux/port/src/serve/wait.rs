//! Waiting for something in the kernel that tells nobody when it is done.

use std::thread;
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Result of waiting.
#[must_use = "what is not done by then goes on undone"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// It is done.
    Done,
    /// It took too long.
    GivenUp,
}

/// Looks every millisecond whether it is done, at most `steps` times.
pub(super) fn until<E>(steps: u32, mut done: impl FnMut() -> Result<bool, E>) -> Result<Waited, E> {
    for _ in 0..steps {
        if done()? {
            return Ok(Waited::Done);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(Waited::GivenUp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn timeout_is_distinguished_from_completion() {
        let mut looks = 0;
        let mut third = || {
            looks += 1;
            Ok::<_, Infallible>(looks == 3)
        };
        assert_eq!(until(2, &mut third), Ok(Waited::GivenUp));
        assert_eq!(until(2, &mut third), Ok(Waited::Done));
        assert_eq!(until(2, || Err("gone")), Err("gone"));
    }
}
