//! Memory that a test's thread asks for: a measure of work that no load of the machine changes.
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ASKED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting the bytes that each thread asks for.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED_BYTES.set(ASKED_BYTES.get() + layout.size() as u64);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Result of `work`, and the bytes that it asked for on this thread, whether or not it gave them back.
pub fn asked_by<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ASKED_BYTES.get();
    let made = work();
    (made, ASKED_BYTES.get() - before)
}
