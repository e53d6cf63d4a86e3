//! Requests to the kernel, read back.

mod shaper;
