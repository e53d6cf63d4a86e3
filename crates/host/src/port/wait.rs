//! Waiting for something in the kernel that tells nobody when it is done.

use std::thread;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(1);

/// Looks every millisecond whether it is done, at most `steps` times. What is not done by then goes on undone.
pub(super) fn until<E>(steps: u32, mut done: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
    for _ in 0..steps {
        if done()? {
            break;
        }
        thread::sleep(STEP);
    }
    Ok(())
}
