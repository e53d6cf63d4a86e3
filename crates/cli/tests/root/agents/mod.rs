//! Tests of the agent: what it keeps in the kernel, reports and cleans up. They measure no rate.

mod agent;
mod agent_cgroups;
mod agent_config;
mod agent_cycles;
mod agent_faults;
mod agent_killed;
mod agent_live;
mod agent_paths;
mod agent_seen;
mod agent_use;
mod deb;
mod guard;
mod guard_congested;
mod guard_many;
mod prometheus;
mod top;
mod tutorial;
