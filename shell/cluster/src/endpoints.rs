//! The threads that carry requests to the endpoints of the authority.

use std::io;
use std::mem::{self, Discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use smol::channel::{Receiver, Sender, bounded};

use crate::election::{ANSWER_MS, Authority, RETRY_MS, Transaction, partition_key, ring_key};
use crate::etcd::{AuthorityError, Endpoint, Etcd};
use crate::host::SpawnThread;
use crate::member::{Member, Notice};
use crate::settings::ClusterSettings;

/// A request to the authority.
#[derive(Clone, Debug)]
pub(crate) enum Request {
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

/// The most requests that are under way at one endpoint. A transaction is followed by another one after [`RETRY_MS`],
/// and given up after [`ANSWER_MS`]: the last of these is sent while the first one is given up.
pub(crate) const LANES_MAX: usize = 4;

const _: () = assert!(LANES_MAX as u64 == ANSWER_MS.div_ceil(RETRY_MS) + 1);

/// The endpoints. Their threads end when it is dropped.
#[derive(Debug)]
pub(crate) struct Endpoints {
    all: Vec<Lanes>,
    /// When a failure of each endpoint was logged last.
    failed: Vec<Complaints>,
    /// The endpoint that is asked for the addresses next.
    turn: usize,
}

/// The ways to one endpoint. While one of them waits for its answer, the next request takes another one, so while the
/// endpoint answers in time there is one.
#[derive(Debug)]
struct Lanes {
    index: usize,
    endpoint: Endpoint,
    keys: Arc<Keys>,
    member: Arc<Member>,
    spawn_thread: SpawnThread,
    open: Vec<Lane>,
}

/// A thread with a connection to an endpoint.
#[derive(Debug)]
struct Lane {
    requests: Sender<Request>,
    /// Whether a request is under way.
    is_busy: Arc<AtomicBool>,
}

impl Endpoints {
    /// Starts a thread for each endpoint.
    ///
    /// # Errors
    /// The kernel's, if it starts no thread; or the names in `settings` are illegal.
    pub(crate) fn start(
        etcd: &Etcd,
        settings: &ClusterSettings,
        member: &Arc<Member>,
        spawn_thread: SpawnThread,
    ) -> io::Result<Self> {
        let keys = Keys::new(settings).ok_or(io::ErrorKind::InvalidInput)?;
        let keys = Arc::new(keys);
        let mut all = Vec::new();
        for (index, endpoint) in etcd.endpoints().into_iter().enumerate() {
            let mut lanes = Lanes {
                index,
                endpoint,
                keys: Arc::clone(&keys),
                member: Arc::clone(member),
                spawn_thread,
                open: Vec::new(),
            };
            lanes.add()?;
            all.push(lanes);
        }
        Ok(Self {
            failed: all.iter().map(|_| Complaints::default()).collect(),
            all,
            turn: 0,
        })
    }

    /// The number of endpoints.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Sends a request to all endpoints; that for the addresses to one of them, in turn.
    pub(crate) fn send(&mut self, request: &Request) {
        if let Request::Partitions = request {
            self.turn = (self.turn + 1) % self.all.len();
            return self.all[self.turn].send(request);
        }
        for endpoint in &mut self.all {
            endpoint.send(request);
        }
    }

    /// Notes that an endpoint gave no answer. Returns whether to log it.
    pub(crate) fn note_failed(
        &mut self,
        endpoint: usize,
        error: &AuthorityError,
        silence: Duration,
    ) -> bool {
        self.failed[endpoint].note(Instant::now(), error, silence)
    }
}

/// The failures of an endpoint that were logged: at most one for each kind, with its time.
#[derive(Debug, Default)]
struct Complaints(Vec<(Discriminant<AuthorityError>, Instant)>);

impl Complaints {
    /// Notes a failure at `now`. Returns whether to log it: the last of its kind was `silence` ago, or there was none.
    fn note(&mut self, now: Instant, error: &AuthorityError, silence: Duration) -> bool {
        let kind = mem::discriminant(error);
        self.0
            .retain(|(_, at)| now.saturating_duration_since(*at) < silence);
        let is_due = self.0.iter().all(|(logged, _)| *logged != kind);
        if is_due {
            self.0.push((kind, now));
        }
        is_due
    }
}

impl Lanes {
    /// Sends a request on the first free lane. If there is none, it is not sent: the election sends another one soon.
    fn send(&mut self, request: &Request) {
        let is_free = |lane: &Lane| !lane.is_busy.load(Ordering::SeqCst);
        let free = self.open.iter().position(is_free);
        if free.is_none()
            && self.open.len() < LANES_MAX
            && let Err(error) = self.add()
        {
            let error = AuthorityError::Unreachable(error.to_string());
            let endpoint = self.index;
            // If the channel is full, there are enough failures to tell.
            let notice = Notice::Failed { endpoint, error };
            let _ = self.member.notices().try_send(notice);
        }
        let free = free.or_else(|| self.open.iter().position(is_free));
        if let Some(free) = free {
            let lane = &self.open[free];
            lane.is_busy.store(true, Ordering::SeqCst);
            // A free lane has taken its last request, and its thread ends only with this sender.
            let _ = lane.requests.try_send(request.clone());
        }
    }

    /// Starts the thread of another lane.
    fn add(&mut self) -> io::Result<()> {
        let (requests, received) = bounded(1);
        let is_busy = Arc::default();
        let (index, endpoint) = (self.index, self.endpoint.another());
        let (keys, member) = (Arc::clone(&self.keys), Arc::clone(&self.member));
        let done = Arc::clone(&is_busy);
        let name = format!("latchd-etcd-{index}");
        let body = move || carry(index, endpoint, &keys, &received, &member, &done);
        (self.spawn_thread)(&name, Box::new(body))?;
        self.open.push(Lane { requests, is_busy });
        Ok(())
    }
}

/// Carries requests to one endpoint until the sender is dropped.
fn carry(
    index: usize,
    mut endpoint: Endpoint,
    keys: &Keys,
    requests: &Receiver<Request>,
    member: &Member,
    is_busy: &AtomicBool,
) {
    let notices = member.notices();
    while let Ok(request) = requests.recv_blocking() {
        let sent = Instant::now();
        let notice = match perform(&mut endpoint, keys, &request) {
            Ok(notice) => {
                member.view().answers.note(sent.elapsed());
                notice
            }
            Err(error) => Notice::Failed {
                endpoint: index,
                error,
            },
        };
        // Before the notice: its receiver may have the next request, and this connection is the best one for it.
        is_busy.store(false, Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::Builder;

    use super::*;
    use crate::election::Answer;
    use crate::etcd::AuthorityOptions;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n\
        {\"header\":{\"cluster_id\":\"77\",\"member_id\":\"1\",\"revision\":\"9\",\"raft_term\":\"2\"}}";

    fn endpoints(listener: &TcpListener) -> (Endpoints, Receiver<Notice>) {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let authority = AuthorityOptions::new(vec![url.parse().unwrap()]);
        let settings = ClusterSettings::new(authority.clone(), "shop".into(), "a:1".into());
        let (member, received) = Member::new(&settings, 1, "a:1");
        let etcd = Etcd::new(&authority).unwrap();
        let spawn: SpawnThread = |name, body| Builder::new().name(name.to_owned()).spawn(body);
        let endpoints = Endpoints::start(&etcd, &settings, &Arc::new(member), spawn);
        (endpoints.unwrap(), received)
    }

    fn read(number: u64) -> Request {
        Request::Transaction(number, Transaction::Read)
    }

    /// The number of the next answer.
    fn answered(notices: &Receiver<Notice>) -> u64 {
        let notice = notices.recv_blocking().unwrap();
        let Notice::Answered { number, answer } = notice else {
            panic!("{notice:?}");
        };
        assert_eq!(answer, Answer::Found(None));
        number
    }

    /// Reads a request, and returns its connection.
    fn accept(listener: &TcpListener) -> TcpStream {
        let mut reader = BufReader::new(listener.accept().unwrap().0);
        receive(&mut reader);
        reader.into_inner()
    }

    fn receive(reader: &mut BufReader<TcpStream>) {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = text.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
    }

    #[test]
    fn late_answer_arrives_after_the_next_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut endpoints, notices) = endpoints(&listener);
        endpoints.send(&read(1));
        let mut first = accept(&listener);
        endpoints.send(&read(2));
        let mut second = accept(&listener);
        second.write_all(REPLY).unwrap();
        assert_eq!(answered(&notices), 2);
        first.write_all(REPLY).unwrap();
        assert_eq!(answered(&notices), 1);
        // An endpoint that answers in time has one connection.
        for number in 3..6 {
            endpoints.send(&read(number));
            receive(&mut BufReader::new(first.try_clone().unwrap()));
            first.write_all(REPLY).unwrap();
            assert_eq!(answered(&notices), number);
        }
        assert_eq!(endpoints.all[0].open.len(), 2);
    }

    #[test]
    fn silent_endpoint_has_bounded_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut endpoints, notices) = endpoints(&listener);
        for number in 1..20 {
            endpoints.send(&read(number));
        }
        let silent: Vec<_> = (0..LANES_MAX).map(|_| accept(&listener)).collect();
        for _ in 0..LANES_MAX {
            let notice = notices.recv_blocking().unwrap();
            let Notice::Failed { endpoint: 0, error } = notice else {
                panic!("{notice:?}");
            };
            assert_eq!(error, AuthorityError::Late);
        }
        assert!(notices.is_empty());
        drop(silent);
        endpoints.send(&read(20));
        accept(&listener).write_all(REPLY).unwrap();
        assert_eq!(answered(&notices), 20);
    }

    #[test]
    fn each_kind_of_failure_is_logged_at_once() {
        let mut complaints = Complaints::default();
        let (start, silence) = (Instant::now(), Duration::from_secs(10));
        let mut note =
            |seconds, error| complaints.note(start + Duration::from_secs(seconds), &error, silence);
        let closed = || AuthorityError::Unreachable("the connection was closed".to_owned());
        assert!(note(0, closed()));
        assert!(note(1, AuthorityError::NoSpace), "another kind");
        assert!(!note(9, closed()), "the same within the silence");
        assert!(note(10, closed()));
        assert!(!note(10, AuthorityError::NoSpace));
    }
}
