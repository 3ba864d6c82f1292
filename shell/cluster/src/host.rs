//! The server, as the thread of the election uses it.
//!
//! The package knows no clients and no items, so it calls the server by this trait. The server in turn asks a
//! [`Member`](crate::Member) whether it may serve.

use std::fmt;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::election::Term;

/// Starts a thread with a name. Its error names the thread, and the limit that is reached.
pub type SpawnThread = fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;

/// A server that stands in an election. No call waits for a client, for a disk or for etcd (Y1 in `candidate.rs`).
pub trait Host: fmt::Debug + Send {
    /// Asks each worker to answer this round, with [`Member::confirm`](crate::Member::confirm).
    fn ask_workers(&self, round: u64);

    /// Tells each worker to close the connections with a lock, a wait, a bound win or a session, and then to answer this
    /// round (E3).
    fn suspend(&self, round: u64);

    /// Begins the only term of the process. The server's numbers begin at `term.first` (E10). It grants no lock for
    /// `withheld` (E9), and restores the items of the process before if that left them for this term (E12).
    ///
    /// Returns whether the items are complete. If not, [`Member::note_restored`](crate::Member::note_restored) follows.
    fn begin_term(&self, term: Term, withheld: Duration) -> bool;

    /// Listens and accepts clients from now on. The term has begun, and the items are complete.
    fn listen(&self);
}
