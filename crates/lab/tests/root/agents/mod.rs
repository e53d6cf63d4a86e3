//! Tests of the agent: what it keeps in the kernel, reports and cleans up. They measure no rate.

mod cleanup;
