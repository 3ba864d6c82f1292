//! A real server under clients of many connections: whether their answers can have come from one
//! operation after the other.
//!
//! Clients send requests in batches, in all three protocols, about a few keys, and note when each
//! was sent and answered ([`history`]). After a round every key's history is judged ([`search`]) by
//! the specification of a key ([`specification`]); operations on several keys are judged beside it
//! ([`one_step`]). Each round has keys of its own, so that histories are short and begin with
//! nothing. The clients are threads of several processes ([`record`]), or of one. The same is
//! played with a server that is killed and started again (`restarts`), beside processes that use
//! the client library ([`believer`]). A file of another program is judged alike ([`told`]).
//!
//! The seed chooses the requests. The machine decides in which order a server gets them: the same
//! seed is not the same history.

pub mod believer;
mod client;
pub mod history;
pub mod one_step;
pub mod packed;
mod play;
mod recorder;
mod restarts;
pub mod search;
pub mod specification;
mod tally;
pub mod told;
mod wire;
mod worker;

pub use play::{Failure, Setting, judge_numbers, play};
pub use recorder::record;
pub use restarts::{Restarts, Survived, survive};
pub use tally::Tally;
