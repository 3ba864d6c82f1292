//! The part of this server in a cluster, for all its threads. Without the feature `cluster`, uninhabited types replace it.
//!
//! The folder uses no other part of the server. Its way into an election is in `election.rs`.

#[cfg(not(feature = "cluster"))]
mod without_cluster;

#[cfg(not(feature = "cluster"))]
pub(crate) use self::without_cluster::{AnswerTimes, Member};
#[cfg(feature = "cluster")]
pub(crate) use latchd_cluster::{AnswerTimes, Member};
