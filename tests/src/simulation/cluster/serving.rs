//! Requests and replies at a process, behind its gate.
//!
//! The gate is asked where the shell asks it (`shell/server/src/worker/connection.rs`): before requests are executed, and
//! before output leaves, at once, deferred, or for a client whose wait has ended. Output that must not leave costs its
//! connection. A closed gate refuses requests, and ends the connection of a client that waits.

use std::time::Duration;

use latchd_core::{Action, ConnId, Instant};
use latchd_protocol::connection::Progress;

use super::network::{Down, Peer, Up};
use super::process::{Conn, Internal, Process};
use super::world::{Judged, World};
use super::{MS, S, WORKERS};

/// The reply of a process that must not serve.
const NOT_PRIMARY: &[u8] = b"SERVER_ERROR not primary\r\n";

impl World {
    /// Something arrives at a process.
    pub(super) fn arrive_at_process(&mut self, node: usize, peer: Peer, up: Up) -> Judged {
        let now = self.nodes[node].clock.at(self.now);
        let process = self.nodes[node].process.as_mut();
        let Some(process) = process.filter(|process| process.server.is_some()) else {
            if matches!(up, Up::Open) {
                self.send_down(node, peer, Down::Refused);
            }
            return Ok(());
        };
        let known = process.conns.iter().find(|(_, conn)| conn.peer == peer);
        let known = known.map(|(id, conn)| (*id, *conn));
        let is_open = process.is_open(now);
        let Some(server) = process.server.as_mut() else {
            return Ok(());
        };
        match (up, known) {
            (Up::Open, _) => {
                let id = process.id;
                let conn = server.open(now);
                process.conns.insert(conn, Conn { peer, flush_at: 0 });
                self.send_down(node, peer, Down::Opened(id));
                Ok(())
            }
            (Up::Bytes(_) | Up::Close, None) => Ok(()),
            (Up::Close, Some((conn, _))) => {
                server.close(now, conn);
                process.conns.remove(&conn);
                self.collect(node)
            }
            (Up::Bytes(bytes), Some((conn, _))) => {
                if is_open {
                    return self.execute(node, conn, &bytes);
                }
                if server.progress(conn) == Progress::Waiting {
                    return self.end(node, conn);
                }
                self.send_down(node, peer, Down::Bytes(NOT_PRIMARY.to_vec()));
                Ok(())
            }
        }
    }

    /// Executes requests: the gate was open.
    fn execute(&mut self, node: usize, conn: ConnId, bytes: &[u8]) -> Judged {
        self.judge_step(node, "executes a request")?;
        let now = self.nodes[node].clock.at(self.now);
        if let Some(process) = self.nodes[node].process.as_mut() {
            let hold = process.hold();
            if let Some(server) = process.server.as_mut() {
                server.set_hold(Some(hold));
                server.receive(now, conn, bytes);
            }
        }
        self.collect(node)
    }

    /// Time has passed for the server.
    pub(super) fn pass_time(&mut self, node: usize) -> Judged {
        let now = self.nodes[node].clock.at(self.now);
        let since_1970 = Duration::from_millis(self.unix_ms(node));
        if let Some(process) = self.nodes[node].process.as_mut()
            && process.due_at <= self.now
            && let Some(server) = process.server.as_mut()
        {
            server.advance(now, since_1970);
        }
        self.collect(node)
    }

    /// Carries out the actions of the server, and notes its next deadline.
    fn collect(&mut self, node: usize) -> Judged {
        let clock = self.nodes[node].clock;
        let now = clock.at(self.now);
        loop {
            let Some(process) = self.nodes[node].process.as_mut() else {
                return Ok(());
            };
            let hold = process.hold();
            let Some(server) = process.server.as_mut() else {
                return Ok(());
            };
            server.set_hold(Some(hold));
            match server.poll() {
                Action::Wait(deadline) => {
                    let at = deadline.map_or(u64::MAX, |at| clock.us_at(at).max(self.now + 1));
                    if std::mem::replace(&mut process.due_at, at) != at && deadline.is_some() {
                        let id = process.id;
                        self.push_process(node, id, at, Internal::Due);
                    }
                    return Ok(());
                }
                Action::Send(conn, output) => {
                    let bytes: Vec<u8> = output.into();
                    process.note_reply(&bytes);
                    self.send_or_defer(node, now, conn, bytes)?;
                }
                Action::Read(_) => {}
                Action::Close(conn) => {
                    if let Some(conn) = process.conns.remove(&conn) {
                        self.send_down(node, conn.peer, Down::Closed);
                    }
                }
            }
        }
    }

    fn send_or_defer(&mut self, node: usize, now: Instant, id: ConnId, bytes: Vec<u8>) -> Judged {
        let is_rough = self.is_rough;
        let wait = match self.random.below(64) {
            0 if is_rough => self.random.below(S),
            0..16 => self.random.below(if is_rough { 40 * MS } else { 2 * MS }),
            _ => 0,
        };
        let Some(process) = self.nodes[node].process.as_mut() else {
            return Ok(());
        };
        // A closed gate drops the output now.
        let is_open = process.is_open(now);
        let Some(conn) = process.conns.get_mut(&id) else {
            return Ok(());
        };
        let at = (self.now + wait).max(conn.flush_at);
        // Output that is due now may not have left yet.
        let is_behind = conn.flush_at >= self.now;
        if at <= self.now && !is_behind || !is_open {
            return self.send(node, id, bytes);
        }
        conn.flush_at = at;
        let process = process.id;
        self.push_process(node, process, at, Internal::Flush(id, bytes));
        Ok(())
    }

    /// Sends output if the gate is open, and else ends the connection.
    pub(super) fn send(&mut self, node: usize, id: ConnId, bytes: Vec<u8>) -> Judged {
        let now = self.nodes[node].clock.at(self.now);
        let Some(process) = self.nodes[node].process.as_ref() else {
            return Ok(());
        };
        let Some(conn) = process.conns.get(&id) else {
            return Ok(());
        };
        let peer = conn.peer;
        if !process.is_open(now) {
            self.tally.dropped += 1;
            return self.end(node, id);
        }
        self.judge_step(node, "sends a reply")?;
        self.send_down(node, peer, Down::Bytes(bytes));
        Ok(())
    }

    /// The server ends a connection, which frees its locks.
    fn end(&mut self, node: usize, id: ConnId) -> Judged {
        let now = self.nodes[node].clock.at(self.now);
        let Some(process) = self.nodes[node].process.as_mut() else {
            return Ok(());
        };
        let conn = process.conns.remove(&id);
        if let Some(server) = process.server.as_mut() {
            server.close(now, id);
        }
        if let Some(conn) = conn {
            self.send_down(node, conn.peer, Down::Closed);
        }
        self.pass_time(node)
    }

    /// A worker closes its connections that have a lock or wait.
    pub(super) fn suspend(&mut self, node: usize, worker: usize) -> Judged {
        let Some(process) = self.nodes[node].process.as_ref() else {
            return Ok(());
        };
        let Some(server) = process.server.as_ref() else {
            return Ok(());
        };
        let relies = |id: &ConnId| {
            server.progress(*id) == Progress::Waiting
                || server.machine().held((*id).into()).locks > 0
        };
        let of_worker = |id: &ConnId| id.number() % WORKERS as u64 == worker as u64;
        let conns = process.conns.keys().copied();
        let ended: Vec<_> = conns.filter(|id| of_worker(id) && relies(id)).collect();
        for id in ended {
            self.end(node, id)?;
        }
        Ok(())
    }
}

impl Process {
    /// The end of the hold that clients are shown.
    fn hold(&self) -> Instant {
        let until = self.serves_until.unwrap_or_default();
        self.leaves_at.map_or(until, |at| until.min(at))
    }

    /// Notes the promise and the numbers in a reply.
    fn note_reply(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for word in text.split_ascii_whitespace() {
            let (letter, number) = word.split_at_checked(1).unwrap_or_default();
            match (letter, number.parse()) {
                ("H", Ok(0..)) => {
                    self.promised = self.promised.max(self.hold());
                }
                ("F" | "c", Ok(number)) => self.numbers = self.numbers.max(number),
                (_, Ok(_) | Err(_)) => {}
            }
        }
    }
}
