//! The algorithms against vectors, models and the papers' properties.

mod asleep;
mod asleep_model;
mod detector;
mod differential;
mod events;
mod marked_rounds;
mod model;
mod pauses;
mod pool;
mod probes;
mod properties;
mod published_detectors;
mod registry;
mod spaced;
mod theorem;
mod vectors;
