//! The part of this server in a cluster, for all its threads.
//!
//! The folder uses no other part of the server. Its way into an election is in `election.rs`.

pub(crate) use latchd_cluster::{AnswerTimes, Member};
