//! The view of a state: everything that matters to later steps and to their judgement.

use std::hash::{Hash, Hasher as _};

use latchd_core::Owner;
use latchd_protocol::connection::Progress;

use super::client::Client;
use super::names::Names;
use super::world::World;

impl World {
    pub(super) fn view(&self) -> u64 {
        let mut names = Names::default();
        for one in &self.clients {
            let Client {
                machine,
                lock,
                obtains_left,
                wire: _,
                token: _,
                conn,
                up,
                down,
                is_closed,
                is_cut,
            } = one;
            (machine, lock, obtains_left, conn, is_closed, is_cut).hash(&mut names);
            names.write_text(up);
            names.write_text(down);
        }
        for (conn, up) in &self.left {
            conn.hash(&mut names);
            names.write_text(up);
        }
        let budgets = [
            self.breaks_left,
            self.cuts_left,
            self.drops_left,
            self.revokes_left,
        ];
        (self.now_ms, budgets, self.last).hash(&mut names);
        self.view_server(&mut names);
        names.finish()
    }

    fn view_server(&self, names: &mut Names) {
        let core = self.server.machine();
        let view = core.view();
        (view.locks, view.connections, view.waits, view.handovers).hash(names);
        (view.ended, view.left, view.notices.len()).hash(names);
        for session in view.sessions.behind(Owner::from_number(0)) {
            (session.owner(), session.attachment().conn()).hash(names);
            (session.ends_at(), session.due_at(), session.waits).hash(names);
        }
        let left = self.left.iter().map(|(conn, _)| *conn);
        let conns = self.clients.iter().filter_map(|one| one.conn).chain(left);
        for conn in conns {
            let waits = self.server.progress(conn) == Progress::Waiting;
            (waits, self.server.kept_bytes(conn)).hash(names);
        }
    }
}
