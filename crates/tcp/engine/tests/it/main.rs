//! Sessions over simulated carriers in deterministic time.

mod anything;
mod chaos;
mod death;
mod greetings;
mod head_of_line;
mod late;
mod net;
mod shares;
mod tls;
mod transfer;
