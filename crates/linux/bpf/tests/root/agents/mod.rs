//! Tests that load algorithms and measure no rate.

mod churn;
mod replay;
