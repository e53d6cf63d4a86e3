//! Paths that the guard closes, and those that it leaves alone, in network namespaces. Needs root: without it these tests fail, they
//! do not skip.

mod requests;
mod sharing;
