//! This server in the election of its partition.
//!
//! The thread of the election ([`latchd_cluster`]) decides, and carries requests to the authority. It reaches the workers, the
//! items and the acceptor through the [`Host`] here.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchd_cluster::election::{Id, Term};
use latchd_cluster::{Host, Member, Over};
use latchd_core::engine::Numbers;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;

use crate::clients::mailbox::Message;
use crate::config::Config;
use crate::memory_file::{Claim, MemoryFile};
use crate::net::listen::Address;
use crate::os::state_dir::StateDir;
use crate::os::threads::{join, spawn_thread};
use crate::server_state::ServerState;
use crate::sync::channel::Sender;

/// A server before it stands.
#[derive(Debug)]
pub(crate) struct Candidacy {
    candidate: latchd_cluster::Candidacy,
    state: Option<StateDir>,
}

impl Candidacy {
    /// Prepares a server with these listeners; `None` if it is no member of a cluster.
    ///
    /// # Errors
    /// Its address cannot be reached by others, the state directory is in use, or the files of the authority cannot be
    /// read.
    pub(crate) fn new(config: &Config, addresses: &[Address]) -> io::Result<Option<Self>> {
        let Some(settings) = &config.cluster else {
            return Ok(None);
        };
        let tcp = addresses.iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        let tcp: Vec<_> = tcp.collect();
        let workers = config.threads.get();
        let mut candidate = latchd_cluster::Candidacy::new(settings, &tcp, workers, spawn_thread)?;
        let mut state = None;
        if let Some(directory) = &settings.state {
            let (claimed, predecessor) = StateDir::claim(directory, candidate.id().0)?;
            if let Some(id) = predecessor {
                candidate.set_predecessor(Id(id));
            }
            state = Some(claimed);
        }
        Ok(Some(Self { candidate, state }))
    }

    /// The part in the cluster.
    pub(crate) const fn member(&self) -> &Arc<Member> {
        self.candidate.member()
    }

    /// Starts the thread of the election, and the one that ends the process at the end of a hold. `begin` lets the
    /// acceptor listen.
    ///
    /// # Errors
    /// The kernel's, if it starts no thread.
    pub(crate) fn stand(
        self,
        shared: &Arc<ServerState>,
        begin: Sender<()>,
    ) -> io::Result<Standing> {
        let claim = Arc::default();
        let host = MemberServer {
            shared: Arc::clone(shared),
            member: Arc::clone(self.member()),
            begin,
            claim: Arc::clone(&claim),
        };
        Ok(Standing {
            election: self.candidate.stand(Box::new(host))?,
            claim,
            _state: self.state,
        })
    }
}

/// A server that stands.
#[derive(Debug)]
pub(crate) struct Standing {
    election: latchd_cluster::Standing,
    /// The claim to the file of `-e`, held for the term.
    claim: Arc<Mutex<Option<Claim>>>,
    /// The claim to the state directory, held until the process ends.
    _state: Option<StateDir>,
}

impl Standing {
    /// Waits until the part in the cluster is over.
    pub(crate) async fn over(&self) -> Over {
        self.election.over().await
    }

    /// Waits until the ring has accepted the process or refused it, or the authority has not answered for 3 s.
    pub(crate) async fn decided(&self) {
        self.election.decided().await;
    }

    /// Reads the certificates for etcd again.
    ///
    /// # Errors
    /// A file is not usable; the certificates stay as they are then.
    pub(crate) fn reload(&self) -> io::Result<()> {
        self.election.reload()
    }

    /// Announces that the server is to stop. A primary serves on until no client relies on it any more.
    pub(crate) fn leave(&self) {
        self.election.member().leave();
    }

    /// All workers and the clock have ended. Returns the id and the term for the file of `-e`. `None`: the server must not
    /// write it, since it has no term, or the file is another process's.
    pub(crate) fn ended(&self) -> Option<(u128, u64)> {
        let member = self.election.member();
        member.note_ended();
        let (id, term) = member.term()?;
        let has_claim = self.claim.lock().is_ok_and(|claim| claim.is_some());
        has_claim.then_some((id.0, term))
    }

    /// Nothing is open or unsaved any more: the partition is free. Returns when the election has ended.
    pub(crate) fn close(self) {
        // The file of `-e` is written: the next primary may read it.
        if let Ok(mut claim) = self.claim.lock() {
            *claim = None;
        }
        join(self.election.close());
    }
}

/// A server that stands, as the thread of the election uses it.
#[derive(Debug)]
struct MemberServer {
    shared: Arc<ServerState>,
    member: Arc<Member>,
    /// Lets the acceptor listen.
    begin: Sender<()>,
    /// The claim to the file of `-e`, once the term has begun.
    claim: Arc<Mutex<Option<Claim>>>,
}

impl MemberServer {
    fn post(&self, message: impl Fn() -> Message) {
        for mailbox in &*self.shared.mailboxes {
            mailbox.post(message());
        }
    }
}

impl Host for MemberServer {
    fn ask_workers(&self, round: u64) {
        self.post(|| Message::Confirm(round));
    }

    fn suspend(&self, round: u64) {
        self.post(|| Message::Suspend(round));
    }

    fn begin_term(&self, term: Term, withheld: Duration) -> bool {
        let first = term.first;
        self.shared.shards.resume(Numbers {
            cas: Cas::new(first.number()).unwrap_or(Cas::FIRST),
            fence: first.max(Fence::FIRST),
        });
        self.shared.withhold_grants(withheld);
        let Some(path) = self.shared.config.memory_file.clone() else {
            return true;
        };
        let (shared, member) = (Arc::clone(&self.shared), Arc::clone(&self.member));
        let claim = Arc::clone(&self.claim);
        let inherits = term.inherits.map(|(id, term)| (id.0, term));
        let restore = move || {
            if let Err(error) = take_over(&path, &shared, &claim, inherits) {
                tracing::error!(event = "items_refused", "{error}");
            }
            member.note_restored();
        };
        let started = spawn_thread("latchd-restore", restore);
        if let Err(error) = &started {
            tracing::error!("cannot read the file of -e, starting empty: {error}");
        }
        started.is_err()
    }

    fn listen(&self) {
        // The acceptor needs one message.
        let _ = self.begin.try_send(());
    }
}

/// Claims the file of `-e` for a term, and stores its items if the process before has left them (Q5).
fn take_over(
    path: &Path,
    shared: &ServerState,
    claim: &Mutex<Option<Claim>>,
    inherits: Option<(u128, u64)>,
) -> io::Result<()> {
    let own = Claim::to(path)?;
    match MemoryFile::open(path, shared.config.value_bytes_max)? {
        Some(file) if file.writer.is_some() && file.writer == inherits => {
            file.restore(&shared.shards, &shared.clock)?;
        }
        Some(file) => file.discard("it is not of the term just before"),
        None => {}
    }
    // A process that ends before has not all items, and must not write them.
    if let Ok(mut claim) = claim.lock() {
        *claim = Some(own);
    }
    Ok(())
}
