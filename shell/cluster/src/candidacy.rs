//! The preparation of a process that stands in an election: its id, its address and its endpoints.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

use latchd_protocol::address::HostPort;
use smol::channel::{Receiver, bounded};

use crate::candidate::{Candidate, Over};
use crate::election::{Id, Process};
use crate::etcd::{AuthorityUrl, Etcd};
use crate::host::{Host, SpawnThread};
use crate::member::{Member, Notice};
use crate::random_id::random_id;
use crate::settings::ClusterSettings;

/// A process before it stands.
#[derive(Debug)]
pub struct Candidacy {
    member: Arc<Member>,
    notices: Receiver<Notice>,
    settings: ClusterSettings,
    process: Process,
    predecessor: Option<Id>,
    etcd: Etcd,
    spawn_thread: SpawnThread,
}

/// A process that stands.
#[derive(Debug)]
pub struct Standing {
    member: Arc<Member>,
    election: JoinHandle<()>,
    over: Receiver<Over>,
    etcd: Arc<Etcd>,
    /// Closed once the ring has accepted the process or refused it, or etcd has not answered for long.
    decided: Receiver<()>,
}

impl Standing {
    /// The part in the cluster.
    #[must_use]
    pub const fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Waits until the part in the cluster is over.
    pub async fn over(&self) -> Over {
        match self.over.recv().await {
            Ok(over) => over,
            // The process has left, or this was called before.
            Err(_) => smol::future::pending().await,
        }
    }

    /// Waits until the ring has accepted the process or refused it ([`Self::over`]), or the authority has not answered for
    /// 3 s.
    pub async fn decided(&self) {
        // Nothing is sent: it is closed.
        let _ = self.decided.recv().await;
    }

    /// Reads the certificates for etcd again.
    ///
    /// # Errors
    /// A file is not usable; the certificates stay as they are then.
    pub fn reload(&self) -> io::Result<()> {
        self.etcd.reload()
    }

    /// Nothing is open or unsaved any more: the partition is free. Returns the thread of the election, which ends.
    #[must_use]
    pub fn close(self) -> JoinHandle<()> {
        self.member.close();
        self.election
    }
}

impl Candidacy {
    /// Prepares a process with these TCP listeners and so many workers. `spawn_thread` starts all its threads.
    ///
    /// # Errors
    /// Its address cannot be reached by others, or the files of the authority cannot be read.
    pub fn new(
        settings: &ClusterSettings,
        listeners: &[SocketAddr],
        workers: usize,
        spawn_thread: SpawnThread,
    ) -> io::Result<Self> {
        let address = advertised(settings, listeners)?;
        let id = random_id()?;
        let etcd = Etcd::new(&settings.authority)
            .map_err(|error| io::Error::other(format!("--authority: {error}")))?;
        let (member, notices) = Member::new(settings, workers, &address);
        Ok(Self {
            member: Arc::new(member),
            notices,
            settings: settings.clone(),
            process: Process {
                id,
                address,
                version: env!("CARGO_PKG_VERSION").into(),
                // The clock counts as one.
                workers: workers + 1,
            },
            predecessor: None,
            etcd,
            spawn_thread,
        })
    }

    /// The id of the process, which the state directory keeps.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.process.id
    }

    /// Sets the id of the process that used the same state directory before, and has ended (E9).
    pub const fn set_predecessor(&mut self, id: Id) {
        self.predecessor = Some(id);
    }

    /// The part in the cluster.
    #[must_use]
    pub const fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Starts the thread of the election, and the one that ends the process at the end of a hold.
    ///
    /// # Errors
    /// The kernel's, if it starts no thread.
    pub fn stand(self, host: Box<dyn Host>) -> io::Result<Standing> {
        let spawn_thread = self.spawn_thread;
        self.member.serving_lease().watch_end(spawn_thread)?;
        let (tell_over, over) = bounded(1);
        let (undecided, decided) = bounded(1);
        let candidate = Candidate {
            host,
            spawn_thread,
            member: Arc::clone(&self.member),
            settings: self.settings,
            process: self.process,
            predecessor: self.predecessor,
            notices: self.notices,
            over: tell_over,
            undecided: Some(undecided),
            is_ready: false,
            primaries: Vec::new(),
        };
        let etcd = Arc::new(self.etcd);
        let authority = Arc::clone(&etcd);
        let run = Box::new(move || candidate.run(&authority));
        Ok(Standing {
            member: self.member,
            election: spawn_thread("latchd-election", run)?,
            over,
            etcd,
            decided,
        })
    }
}

/// The address under which others reach this process.
///
/// # Errors
/// There is none, or it is a loopback address and the authority is on another machine.
fn advertised(settings: &ClusterSettings, listeners: &[SocketAddr]) -> io::Result<String> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let endpoints = &settings.authority.endpoints;
    if let Some(address) = &settings.advertise {
        let host = HostPort::parse(address, 0).map(|address| address.host);
        let ip = host.ok().and_then(|host| host.parse::<IpAddr>().ok());
        let is_local = ip.is_some_and(|ip| ip.is_loopback()) && !endpoints.iter().all(is_here);
        if is_local || ip.is_some_and(|ip| ip.is_unspecified()) {
            return Err(invalid(format!(
                "--advertise {address}: other machines cannot reach this address; name the machine's own"
            )));
        }
        return Ok(address.clone());
    }
    let none = || invalid("--authority: there is no TCP address to advertise; add -l".into());
    let mut address = *listeners.first().ok_or_else(none)?;
    if address.ip().is_unspecified() {
        let towards = endpoints.iter().find_map(towards);
        let unknown = || {
            invalid(format!(
                "-l {}: the address towards the authority is unknown; add --advertise HOST:PORT",
                address.ip()
            ))
        };
        address.set_ip(towards.ok_or_else(unknown)?);
    } else if address.ip().is_loopback() && !endpoints.iter().all(is_here) {
        return Err(invalid(format!(
            "-l {address}: other machines cannot reach this address; listen on another one with -l, or add --advertise \
             HOST:PORT"
        )));
    }
    Ok(address.to_string())
}

/// The address of this machine on the way to an endpoint. Nothing is sent.
fn towards(endpoint: &AuthorityUrl) -> Option<IpAddr> {
    let to = endpoint.resolve().ok()?.into_iter().next()?;
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Whether an endpoint is on this machine. An endpoint whose name is unknown now may be.
fn is_here(endpoint: &AuthorityUrl) -> bool {
    let addresses = endpoint.resolve().unwrap_or_default();
    addresses.iter().all(|address| address.ip().is_loopback())
}
