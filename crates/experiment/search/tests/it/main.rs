//! Searches on the simulator: a planted fault is found, a sound case is not reported, and nothing depends on threads.

mod published;
mod searches;
mod subjects;
