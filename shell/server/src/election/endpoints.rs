//! The threads that carry requests to the endpoints of the authority.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use latchd_core::election::{Authority, Transaction, partition_key, ring_key};
use smol::channel::{Receiver, Sender, bounded};

use crate::cluster::etcd::{AuthorityError, Endpoint, Etcd};
use crate::cluster::member::Notice;
use crate::config::cluster_settings::ClusterSettings;

/// A request to the authority.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// Reads the record of the ring.
    Ring,
    /// Reads the records of all partitions.
    Partitions,
    /// Executes a transaction on the record of the partition, and names its number.
    Transaction(u64, Transaction),
}

/// The keys of the records.
#[derive(Clone, Debug)]
struct Keys {
    ring: String,
    partition: String,
    /// The beginning of the keys of all partitions.
    partitions: String,
}

impl Keys {
    fn new(settings: &ClusterSettings) -> Option<Self> {
        let ring = ring_key(&settings.cluster)?;
        let partition = partition_key(&settings.cluster, &settings.partition)?;
        let partitions = partition.strip_suffix(&settings.partition)?.to_owned();
        Some(Self {
            ring,
            partition,
            partitions,
        })
    }
}

/// The endpoints. Their threads end when it is dropped.
#[derive(Debug)]
pub(super) struct Endpoints {
    requests: Vec<Sender<Request>>,
    /// When a failure of each endpoint was logged last.
    failed: Vec<Option<Instant>>,
    /// The endpoint that is asked for the addresses next.
    turn: usize,
}

impl Endpoints {
    /// Starts a thread for each endpoint.
    ///
    /// # Errors
    /// The kernel's, if it starts no thread; or the names in `settings` are illegal.
    pub(super) fn start(
        etcd: &Etcd,
        settings: &ClusterSettings,
        notices: &Sender<Notice>,
    ) -> io::Result<Self> {
        let keys = Keys::new(settings).ok_or(io::ErrorKind::InvalidInput)?;
        let mut requests = Vec::new();
        for (index, endpoint) in etcd.endpoints().into_iter().enumerate() {
            let (sender, received) = bounded(1);
            let (keys, notices) = (keys.clone(), notices.clone());
            let thread = thread::Builder::new().name(format!("latchd-etcd-{index}"));
            thread.spawn(move || carry(index, endpoint, &keys, &received, &notices))?;
            requests.push(sender);
        }
        Ok(Self {
            failed: vec![None; requests.len()],
            requests,
            turn: 0,
        })
    }

    /// The number of endpoints.
    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    /// Sends a request to all endpoints; that for the addresses to one of them, in turn.
    pub(super) fn send(&mut self, request: &Request) {
        if let Request::Partitions = request {
            self.turn = (self.turn + 1) % self.requests.len();
            // A transaction that waits is not replaced.
            let _ = self.requests[self.turn].try_send(request.clone());
            return;
        }
        for requests in &self.requests {
            // The thread ends only with this sender.
            let _ = requests.force_send(request.clone());
        }
    }

    /// Notes that an endpoint gave no answer. Returns whether to log it.
    pub(super) fn note_failed(&mut self, endpoint: usize, silence: Duration) -> bool {
        let last = &mut self.failed[endpoint];
        let is_due = last.is_none_or(|at| at.elapsed() >= silence);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// Carries requests to one endpoint until the sender is dropped.
fn carry(
    index: usize,
    mut endpoint: Endpoint,
    keys: &Keys,
    requests: &Receiver<Request>,
    notices: &Sender<Notice>,
) {
    while let Ok(request) = requests.recv_blocking() {
        let notice = match perform(&mut endpoint, keys, &request) {
            Ok(notice) => notice,
            Err(error) => Notice::Failed {
                endpoint: index,
                error,
            },
        };
        if notices.send_blocking(notice).is_err() {
            return;
        }
    }
}

fn perform(
    endpoint: &mut Endpoint,
    keys: &Keys,
    request: &Request,
) -> Result<Notice, AuthorityError> {
    Ok(match request {
        Request::Ring => Notice::Ring(endpoint.read(&keys.ring)?),
        Request::Partitions => Notice::Partitions(endpoint.list(&keys.partitions)?),
        Request::Transaction(number, transaction) => Notice::Answered {
            number: *number,
            answer: transaction.perform(endpoint, &keys.partition)?,
        },
    })
}
