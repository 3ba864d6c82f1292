//! The connections between clients and processes: ordered bytes with delays.
//!
//! While the clients of a node or one client are cut off, their bytes wait on both ways. A process that ends resets its
//! connections; bytes that are on the way to a client are lost then.

use latchd_cluster::election::Id;

use super::world::{Event, Judged, World};
use super::{MS, PARTITION_OF, S};

/// The longest delay in a rough episode, in microseconds.
const SLOW: u64 = S;

/// The longest way of a reset, in microseconds. A process needs longer to start.
const RESET: u64 = 20 * MS;

/// A client's end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) node: usize,
    /// The process at the other end, once it has accepted.
    pub(super) process: Option<Id>,
    /// When the last bytes arrive, on both ways.
    up_at: u64,
    down_at: u64,
}

/// What goes to a process.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Open,
    Bytes(Vec<u8>),
    Close,
}

/// What goes to a client.
#[derive(Clone, Debug)]
pub(super) enum Down {
    Opened(Id),
    Refused,
    Bytes(Vec<u8>),
    Closed,
}

/// The name of a connection: the client, and its number there.
pub(super) type Peer = (usize, u64);

impl World {
    /// Opens a connection to the next process of the client's partition.
    pub(super) fn connect(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let nodes = (0..PARTITION_OF.len()).filter(|node| PARTITION_OF[*node] == one.partition);
        let nodes: Vec<_> = nodes.collect();
        one.links += 1;
        one.link = Some(Link {
            number: one.links,
            node: nodes[one.next_node % nodes.len()],
            process: None,
            up_at: self.now,
            down_at: self.now,
        });
        self.send_up(client, Up::Open);
    }

    /// The client closes its connection, if it has one.
    pub(super) fn hang_up(&mut self, client: usize) {
        if self.clients[client].link.is_some() {
            self.send_up(client, Up::Close);
            self.clients[client].link = None;
        }
    }

    pub(super) fn send_up(&mut self, client: usize, up: Up) {
        let Some(link) = self.clients[client].link.clone() else {
            return;
        };
        let open = self.nodes[link.node].requests_cut_until;
        let open = open.max(self.clients[client].cut_until);
        let at = self.arrival(open).max(link.up_at);
        let Link { number, node, .. } = link;
        if let Some(link) = &mut self.clients[client].link {
            link.up_at = at;
        }
        let peer = (client, number);
        self.push(at, Event::Up { node, peer, up });
    }

    pub(super) fn send_down(&mut self, node: usize, peer: Peer, down: Down) {
        if let Down::Bytes(bytes) = &down {
            self.digest_bytes(bytes);
        }
        let (client, number) = peer;
        let open = self.nodes[node].replies_cut_until;
        let at = self.arrival(open.max(self.clients[client].cut_until));
        let link = self.clients[client].link.as_mut();
        let Some(link) = link.filter(|link| link.number == number) else {
            return;
        };
        link.down_at = at.max(link.down_at);
        let at = link.down_at;
        self.push(at, Event::Down { peer, down });
    }

    /// The process at the other end has ended: the client learns it soon, whatever else is on the way.
    pub(super) fn reset(&mut self, peer: Peer) {
        let at = self.now + self.random.below(RESET);
        let down = Down::Closed;
        self.push(at, Event::Down { peer, down });
    }

    /// Something arrives at a client. It hears nothing of a connection that it has closed.
    pub(super) fn arrive_at_client(&mut self, peer: Peer, down: Down) -> Judged {
        let (client, number) = peer;
        let one = &mut self.clients[client];
        let Some(link) = one.link.as_mut().filter(|link| link.number == number) else {
            return Ok(());
        };
        match &down {
            Down::Opened(id) => link.process = Some(*id),
            Down::Refused | Down::Closed => one.link = None,
            Down::Bytes(_) => {}
        }
        if let Down::Refused = down {
            one.next_node += 1;
        }
        self.hear(client, down)
    }

    /// When something that is sent now arrives, on a way that is open from a moment on.
    fn arrival(&mut self, open: u64) -> u64 {
        let mut way = MS / 10 + self.random.below(2 * MS);
        if self.is_rough {
            way += match self.random.below(200) {
                0 => self.random.below(SLOW),
                1..10 => self.random.below(200 * MS),
                _ => 0,
            };
        }
        self.now.max(open) + way
    }
}
