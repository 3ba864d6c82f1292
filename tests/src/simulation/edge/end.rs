//! How it ends: for one client, and for all of them.

use latchd_core::server::StateMachine as _;
use latchd_server::verify::simulated::Span;

use super::world::{Cause, Farewell, World};
use crate::simulation::Breach;

/// More rounds than it takes to answer everything, if all clients read.
const LAST_ROUNDS_MAX: usize = 10_000;

impl World {
    /// The server has closed a connection: if it was not reset, the client reads the rest, and
    /// every request has its answer.
    pub(super) fn see_end(&mut self, client: usize) -> Result<(), Breach> {
        if let Some(it) = &mut self.clients[client] {
            it.is_stalled = false;
        }
        let is_reset = self.clients[client]
            .as_ref()
            .is_some_and(|it| it.pipe.is_reset());
        if !is_reset {
            self.read(client, usize::MAX)?;
        }
        let Some(it) = self.clients[client].take() else {
            return Ok(());
        };
        let heard = &mut self.worker.machine_mut().heard;
        let unanswered = heard.unanswered(it.conn);
        let may_wait = heard.may_wait(it.conn);
        heard.forget(it.conn);
        let broken = |what| Err(Breach { rule: "E5", what });
        match (it.farewell, unanswered) {
            _ if is_reset => Ok(()),
            (Farewell::No, _) => broken(format!("{} was closed for nothing", it.conn)),
            // A waiter that is gone waits for nothing.
            (Farewell::HalfClosed, Some(_)) if may_wait => Ok(()),
            (Farewell::Quit | Farewell::HalfClosed, Some(what)) => broken(what),
            (Farewell::Quit | Farewell::HalfClosed, None) => Ok(()),
        }
    }

    /// All clients read until every request is answered, and go (E5).
    pub(super) fn leave(&mut self) -> Result<(), Breach> {
        for round in 0.. {
            let mut is_over = true;
            for client in 0..self.clients.len() {
                let Some(it) = &mut self.clients[client] else {
                    continue;
                };
                it.is_stalled = false;
                it.pipe.set_capacity(usize::MAX, usize::MAX);
                let conn = it.conn;
                self.deliver(client, usize::MAX);
                if self.worker.wake(self.now(), conn, Span::Long) {
                    is_over = false;
                    self.after(conn, Cause::Epoll)?;
                }
                self.read(client, usize::MAX)?;
            }
            while let Some(conn) = self.worker.go_on(self.now(), Span::Long) {
                is_over = false;
                self.after(conn, Cause::Row)?;
            }
            while let Some(conn) = self.worker.read_letter(self.now(), Span::Long) {
                is_over = false;
                self.after(conn, Cause::Letter)?;
            }
            if let Some(at) = self.worker.machine_mut().next_deadline() {
                is_over = false;
                self.now_ms = self.now_ms.max(at.as_millis());
                self.worker.pass(self.now());
            }
            if is_over {
                break;
            }
            if round == LAST_ROUNDS_MAX {
                let what = "it does not come to an end".to_owned();
                return Err(Breach { rule: "E5", what });
            }
        }
        for client in 0..self.clients.len() {
            self.read(client, usize::MAX)?;
            let Some(it) = self.clients[client].take() else {
                continue;
            };
            if let Some(what) = self.worker.machine_mut().heard.unanswered(it.conn) {
                return Err(Breach { rule: "E5", what });
            }
            it.pipe.reset();
            self.worker.wake(self.now(), it.conn, Span::Long);
        }
        let core = &self.worker.machine_mut().core;
        core.check();
        let held = core.locks_in_force().count();
        if held > 0 || core.has_waits() {
            let what = format!("{held} locks have no holder");
            return Err(Breach { rule: "E5", what });
        }
        Ok(())
    }
}
