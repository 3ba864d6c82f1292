//! The clients: their connections, and the requests that they draw.

use std::collections::VecDeque;

use super::said::{Said, Verb};
use super::world::{Cause, Client, Farewell, WORKERS, World};
use crate::simulation::Breach;

/// The most requests that a client writes ahead.
const OWED_MAX: usize = 6;

impl World {
    pub(super) fn connect(&mut self, client: usize) {
        let worker = self.below(WORKERS);
        let host = u128::from(self.random.below(self.hosts));
        let (conn, pipe) = self.workers.open(worker, host);
        pipe.set_capacity(usize::MAX, usize::MAX);
        self.judge.connect(self.now_ms, conn, host);
        self.clients[client] = Some(Client {
            conn,
            pipe,
            said: VecDeque::new(),
            farewell: Farewell::No,
            read: 0,
        });
    }

    /// The connection ends, or is lost. The server notices a reset before it executes more: the client would not get the
    /// replies, so nothing could be compared with them.
    pub(super) fn part(&mut self, client: usize) -> Result<(), Breach> {
        let choice = self.below(6);
        let Some(it) = &mut self.clients[client] else {
            return Ok(());
        };
        let conn = it.conn;
        match (it.farewell, choice) {
            (Farewell::No, 0..2) => it.farewell = Farewell::Silent,
            (Farewell::No, 2) => {
                it.farewell = Farewell::HalfClosed;
                it.pipe.half_close();
            }
            (Farewell::No, 3) => {
                it.farewell = Farewell::Quit;
                self.write(client, Said::Quit);
            }
            (Farewell::No | Farewell::Silent, _) => {
                it.farewell = Farewell::Reset;
                it.pipe.reset();
            }
            (Farewell::Quit | Farewell::HalfClosed | Farewell::Reset, _) => {}
        }
        let has_asked = self.clients[client]
            .as_ref()
            .is_some_and(|it| it.farewell == Farewell::Reset && !it.said.is_empty());
        if (has_asked || self.judge.waiting(conn).is_some()) && self.workers.wake(conn) {
            return self.after(conn, Cause::Epoll);
        }
        Ok(())
    }

    pub(super) fn say(&mut self, client: usize) {
        let count = 1 + self.below(8) / 6;
        for _ in 0..count {
            let said = self.draw(client);
            let may = self.clients[client]
                .as_ref()
                .is_some_and(|it| it.farewell == Farewell::No && it.said.len() < OWED_MAX);
            if may {
                self.write(client, said);
            }
        }
    }

    fn write(&mut self, client: usize, said: Said) {
        let mut bytes = Vec::new();
        said.write(&self.keys, &mut bytes);
        if let Some(it) = &mut self.clients[client] {
            it.pipe.arrive(&bytes);
            it.said.push_back(said);
        }
    }

    fn draw(&mut self, client: usize) -> Said {
        // Most clients have a token of their own.
        let token = match self.below(4) {
            0 => self.below(self.tokens),
            _ => client % self.tokens,
        };
        let key = self.below(self.keys.len());
        match self.below(64) {
            0..20 => Said::Open {
                token,
                seconds: 1 + u32::try_from(self.below(3)).expect("a few seconds"),
                only_resumes: self.below(4) == 0,
            },
            20 | 21 => Said::End { token },
            roll => {
                let within = (self.below(5) == 0).then_some(token);
                let verb = match roll {
                    22..36 => Verb::Acquire { wait_ms: 0 },
                    36..44 => Verb::Acquire {
                        wait_ms: 1 + self.below(2_000) as u64,
                    },
                    44..56 => Verb::Release,
                    56..60 => Verb::Set,
                    60..62 => Verb::Delete,
                    _ => Verb::UnlockAll,
                };
                let is_for_key = verb != Verb::UnlockAll;
                Said::Ask {
                    verb,
                    key,
                    within: within.filter(|_| is_for_key),
                }
            }
        }
    }
}
