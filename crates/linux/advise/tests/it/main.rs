//! Advice from facts alone: one program.

mod facts;
mod file;
mod rules;
mod score;
