//! The messages to a worker: new clients, ended waits, clients to close, and the sweep of silent ones.

use std::sync::Arc;
use std::time::Duration;

use latchd_protocol::connection::Connection;
use latchd_protocol::watch::Topic;
use rustix::event::epoll::{self, EventData};

use super::token::Token;
use super::{ENDS_SPAN, Worker};
use crate::clients::budget::Holder;
use crate::clients::mailbox::{Arrival, Message};
use crate::net::transport::Transport;
use crate::worker::connection::{ClientConn, End, READABLE};
use crate::worker::executor::ClientSession;
use crate::worker::input::Input;
use crate::worker::request_log::log_connect;
use crate::worker::turn::FIRST_TURN;

impl Worker {
    pub(super) fn read_mail(&mut self) {
        for message in self.shared.mailbox(self.index).take() {
            match message {
                Message::Adopt(arrival) => self.adopt(arrival),
                Message::Sweep => self.sweep(),
                Message::News(name) => {
                    let name = Token::decode(EventData::new_u64(name));
                    self.have_turn(name, FIRST_TURN, ClientConn::deliver);
                }
                Message::WaitEnded(name, outcome) => {
                    let name = Token::decode(EventData::new_u64(name));
                    self.ended_waits.push_back((name, outcome));
                }
                Message::Close(name, kept) => {
                    let worker = self.index;
                    self.close_over_budget(Holder { worker, name }, kept);
                }
                Message::LostSession(name) => {
                    let name = Token::decode(EventData::new_u64(name));
                    if let Token::Client { slot, .. } = name
                        && self.is_there(slot, name)
                    {
                        self.end(slot, &End::LostSession);
                    }
                }
                // The channel has space for it, unless the sender no longer waits.
                Message::Echo(tell) => drop(tell.try_send(())),
                Message::Confirm(round) => self.confirm(round),
                Message::Suspend(round) => self.suspend(round),
            }
        }
    }

    /// Confirms a round of the election.
    fn confirm(&self, round: u64) {
        if let Some(member) = &self.shared.member {
            member.confirm(self.index, round);
        }
    }

    /// Closes the clients that rely on the server alone, then confirms it (E3). All at once: nothing is served now.
    fn suspend(&mut self, round: u64) {
        let (now, shared) = (self.now, Arc::clone(&self.shared));
        for slot in self.slots(|client| client.relies(now, &*shared)) {
            self.end(slot, &End::NotPrimary);
        }
        self.confirm(round);
    }

    fn adopt(&mut self, arrival: Arrival) {
        let number = arrival.conn.number();
        let keys = self.shared.keys.as_ref();
        let Some(transport) = Transport::new(arrival.socket, arrival.security, keys) else {
            self.shared.connection_table.remove(number);
            return self.shared.count_closed(self.index);
        };
        let entry = self.clients.vacant_entry();
        let (slot, name) = (entry.key(), Token::client(entry.key(), number));
        let wire = Connection::new(self.shared.wire_limits);
        let endpoint = Arc::clone(&arrival.entry);
        let holder = Holder {
            worker: self.index,
            name: name.encode().u64(),
        };
        let session = ClientSession::new(arrival.conn, holder, endpoint.host_number());
        let input = Input::new(self.shared.config.secure_erase);
        let client = ClientConn::new(transport, session, wire, input, arrival.entry, self.now);
        let client = entry.insert(client);
        if client.is_handshaking() {
            self.handshakes.push_back((self.now, name));
        }
        if self.shared.watch.wanted().contain(Topic::Connections) {
            let line = format!("type=conn_new {} cfd={number}", endpoint.endpoint());
            self.shared.tell(Topic::Connections, number, &line);
        }
        if self.shared.logs_probes() {
            log_connect(number, &client.peer());
        }
        if let Err(errno) = epoll::add(&self.epoll, &*client, name.encode(), READABLE) {
            self.end(slot, &End::Failed(errno));
        }
    }

    fn sweep(&mut self) {
        let ended = self.lingering.expire(self.now);
        self.count_lingering_ended(ended);
        let tls = self.shared.config.tls.as_ref();
        let most = tls.map_or(Duration::MAX, |tls| tls.handshake_max);
        let oldest_ms = self.now.as_millis().saturating_sub(millis(most));
        while let Some((began, name)) = self.handshakes.front().copied()
            && began.as_millis() < oldest_ms
        {
            self.handshakes.pop_front();
            if let Token::Client { slot, .. } = name
                && self.is_there(slot, name)
                && self.clients[slot].is_handshaking()
            {
                self.end(slot, &End::NoHandshake);
            }
        }
        let Some(timeout) = self.shared.config.idle_timeout else {
            return;
        };
        let oldest_ms = self.now.as_millis().saturating_sub(millis(timeout));
        let is_silent =
            |client: &ClientConn| client.may_ask() && client.last_active().as_millis() < oldest_ms;
        let ends_at = std::time::Instant::now() + ENDS_SPAN;
        for slot in self.slots(is_silent) {
            if self.clients[slot].holds(self.now, &*self.shared) {
                continue;
            }
            self.end(slot, &End::Idle);
            if std::time::Instant::now() >= ends_at {
                // Other clients have a round before the rest.
                return self.shared.mailbox(self.index).post(Message::Sweep);
            }
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
