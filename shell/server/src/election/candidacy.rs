//! What a process needs before it stands in the election: its id, its address, its state directory and its endpoints.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use latchd_cluster::election::{Id, Process};
use latchd_cluster::{AuthorityUrl, ClusterSettings, Etcd, Member, Notice, random_id};
use latchd_protocol::address::HostPort;
use smol::channel::{Receiver, bounded};

use super::{Candidate, Over};
use crate::memory_file::Claim;
use crate::net::listen::Address;
use crate::os::state_dir::StateDir;
use crate::os::threads::spawn_thread;
use crate::shared::Shared;
use crate::sync::channel::Sender as Begin;

/// A process before it stands.
#[derive(Debug)]
pub(crate) struct Candidacy {
    pub(crate) member: Arc<Member>,
    notices: Receiver<Notice>,
    settings: ClusterSettings,
    process: Process,
    predecessor: Option<Id>,
    state: Option<StateDir>,
    etcd: Etcd,
}

/// A process that stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) member: Arc<Member>,
    pub(crate) election: JoinHandle<()>,
    pub(crate) over: Receiver<Over>,
    /// The claim to the file of `-e`, held for the term.
    claim: Arc<Mutex<Option<Claim>>>,
    etcd: Arc<Etcd>,
    /// Closed once the ring has accepted the process or refused it, or etcd has not answered for long.
    pub(crate) decided: Receiver<()>,
    /// The claim to the state directory, held until the process ends.
    _state: Option<StateDir>,
}

impl Standing {
    /// Reads the certificates for etcd again.
    ///
    /// # Errors
    /// A file is not usable; the certificates stay as they are then.
    pub(crate) fn reload(&self) -> io::Result<()> {
        self.etcd.reload()
    }

    /// Whether the process may write the file of `-e`.
    pub(crate) fn has_claim(&self) -> bool {
        self.claim.lock().is_ok_and(|claim| claim.is_some())
    }

    /// The file of `-e` is written: another process may claim it.
    pub(crate) fn give_up_claim(&self) {
        if let Ok(mut claim) = self.claim.lock() {
            *claim = None;
        }
    }
}

impl Candidacy {
    /// Prepares a process with these listeners and so many workers.
    ///
    /// # Errors
    /// Its address cannot be reached by others, the state directory is in use, or the files of the authority cannot be
    /// read.
    pub(crate) fn new(
        settings: &ClusterSettings,
        addresses: &[Address],
        workers: usize,
    ) -> io::Result<Self> {
        let address = advertised(settings, addresses)?;
        let id = random_id()?;
        let claimed = settings
            .state
            .as_deref()
            .map(|path| StateDir::claim(path, id.0));
        let (state, predecessor) = match claimed.transpose()? {
            Some((state, predecessor)) => (Some(state), predecessor.map(Id)),
            None => (None, None),
        };
        let etcd = Etcd::new(&settings.authority)
            .map_err(|error| io::Error::other(format!("--authority: {error}")))?;
        let (member, notices) = Member::new(workers, &address);
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
            predecessor,
            state,
            etcd,
        })
    }

    /// Starts the thread of the election, and the one that ends the process at the end of a hold. `begin` lets the
    /// acceptor listen.
    ///
    /// # Errors
    /// The kernel's, if it starts no thread.
    pub(crate) fn stand(self, shared: &Arc<Shared>, begin: Begin<()>) -> io::Result<Standing> {
        self.member.gate().watch_end(spawn_thread)?;
        let (tell_over, over) = bounded(1);
        let (undecided, decided) = bounded(1);
        let claim = Arc::default();
        let candidate = Candidate {
            shared: Arc::clone(shared),
            member: Arc::clone(&self.member),
            settings: self.settings,
            process: self.process,
            predecessor: self.predecessor,
            notices: self.notices,
            begin,
            over: tell_over,
            undecided: Some(undecided),
            claim: Arc::clone(&claim),
            is_ready: false,
            primaries: Vec::new(),
        };
        let etcd = Arc::new(self.etcd);
        let authority = Arc::clone(&etcd);
        Ok(Standing {
            member: self.member,
            election: spawn_thread("latchd-election", move || candidate.run(&authority))?,
            over,
            claim,
            etcd,
            decided,
            _state: self.state,
        })
    }
}

/// The address under which others reach this process.
///
/// # Errors
/// There is none, or it is a loopback address and the authority is on another machine.
fn advertised(settings: &ClusterSettings, addresses: &[Address]) -> io::Result<String> {
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
    let tcp = addresses.iter().find_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    });
    let none = || invalid("--authority: there is no TCP address to advertise; add -l".into());
    let mut address = tcp.ok_or_else(none)?;
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
