//! Search for traffic, link and loss patterns under which a congestion control breaks a property.
//!
//! A candidate is a bounded list of changes to a scenario. It is written as a scenario of its own, whose sweep compares the
//! connections under test with one TCP connection on each path of the same network, and whose claims are the properties. So a
//! candidate is judged by what `vmcc run` would say of its file. An evolution maximizes the violation of each property; what it finds is
//! confirmed with other seeds of the simulator and shrunk. The idea is that of CC-Fuzz (Ray and Seshan, HotNets 2022).
//!
//! | module | content |
//! |---|---|
//! | `change` | one change, its numbers and their ranges |
//! | `candidate` | lists of changes: mutation, crossover |
//! | `property` | properties as claims |
//! | `subject` | the scenario under test; candidates as scenario files |
//! | `minimal` | a scenario file without keys that say the default |
//! | `runner` | simulator runs, several at a time, within a budget |
//! | `evolution` | populations, one for each property |
//! | `shrink` | confirmation with other seeds; smaller candidates |
//! | `search` | the whole |

mod candidate;
mod change;
mod draw;
mod error;
mod evolution;
mod minimal;
mod property;
mod runner;
mod search;
mod shrink;
mod subject;

pub use error::SearchError;
pub use evolution::Strategy;
pub use property::Property;
pub use search::{Execution, Finding, HeldOut, Outcome, PropertyOutcome, Settings, search};
pub use subject::Subject;
