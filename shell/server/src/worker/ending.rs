//! The ends of a worker's clients: their locks, their sessions, their sockets.

use std::sync::atomic::Ordering;

use latchd_protocol::watch::Topic;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::Worker;
use super::token::Token;
use crate::clients::budget::Holder;
use crate::clients::mailbox::Message;
use crate::net::transport::Transport;
use crate::stats::connection_stats::BufferKind;
use crate::worker::backend::Backend;
use crate::worker::connection::End;

impl Worker {
    /// Closes a client that exceeds the budget, on any worker.
    pub(super) fn close_over_budget(&mut self, holder: Holder, kept: BufferKind) {
        if holder.worker != self.index {
            let message = Message::Close(holder.name, kept);
            return self.shared.mailbox(holder.worker).post(message);
        }
        let name = Token::decode(EventData::new_u64(holder.name));
        if let Token::Client { slot, .. } = name
            && self.is_there(slot, name)
        {
            self.end(slot, &End::OutOfMemory(kept));
        }
    }

    /// Removes a client: first it releases its locks, then it closes its socket; the other way round if it has lost its
    /// session.
    pub(super) fn end(&mut self, slot: usize, why: &End) {
        if !self.clients.contains(slot) {
            return;
        }
        if self.clients[slot].has_deferred() {
            self.send_deferred();
            if !self.clients.contains(slot) {
                return;
            }
        }
        if let End::OutOfMemory(kept) = why {
            self.shared.connection_stats.count_out_of_memory(*kept);
            let traffic = self.shared.connection_stats.traffic(self.index);
            self.clients[slot].refuse(traffic, &mut self.records);
        }
        let holder = Holder {
            worker: self.index,
            name: Token::client(slot, self.clients[slot].number())
                .encode()
                .u64(),
        };
        self.clients[slot].discharge(holder, &self.shared.unfinished, &self.shared.unsent);
        if self.shared.watch.wanted().contain(Topic::Connections) {
            let client = &self.clients[slot];
            let (number, line) = (client.number(), client.farewell(why));
            self.shared.tell(Topic::Connections, number, &line);
        }
        let mut client = self.clients.remove(slot);
        // The connection that takes the session over is answered when this one is closed.
        let lost = if let End::LostSession = why {
            client.take_session()
        } else {
            client.release(&self.shared, self.now);
            None
        };
        client.say_goodbye();
        let stats = &self.shared.connection_stats;
        if let End::Misunderstood(failure) = why {
            stats.count_misunderstood(failure.is_handshake);
        }
        if let End::Idle = why {
            stats.count_idle();
        }
        if why.is_of_tls() {
            client.note_sent(&*self.shared);
        }
        if self.shared.is_verbose() && (client.has_sent() || self.shared.logs_probes()) {
            let (conn, peer, reason) = (client.number(), client.peer(), why.to_string());
            tracing::info!(event = "disconnect", conn, peer = %peer, reason, "<{conn} connection closed");
        }
        self.shared.connection_table.remove(client.number());
        if why.may_be_unread() && !client.has_left() {
            self.linger(client.into_transport());
        } else {
            drop(client);
            self.shared.count_closed(self.index);
        }
        if let Some(session) = lost {
            self.shared.close(self.now, session);
        }
    }

    /// Keeps the socket of a closed client, so that the client can read the error.
    fn linger(&mut self, transport: Transport) {
        let place = self.lingering.next_place();
        let kept = self.lingering.keep(transport, self.now);
        // If the kernel refuses, the client has closed its socket.
        self.shared.lingering.fetch_add(1, Ordering::Relaxed);
        self.count_lingering_ended(kept.unwrap_or(1));
        let name = Token::Lingering { place }.encode();
        if let Some(socket) = self.lingering.socket(place)
            && epoll::modify(&self.epoll, socket, name, EventFlags::IN).is_err()
        {
            self.lingering.forget(place);
            self.count_lingering_ended(1);
        }
    }

    pub(super) fn count_lingering_ended(&self, ended: usize) {
        for _ in 0..ended {
            self.shared.lingering.fetch_sub(1, Ordering::Relaxed);
            self.shared.count_closed(self.index);
        }
    }
}
