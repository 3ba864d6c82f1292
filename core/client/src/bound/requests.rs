//! The bytes of each request.

use latchd_protocol::command::{Command, Delete, Get, ItemCommand, Mode, Set, SetMode};
use latchd_protocol::key::Key;
use latchd_protocol::time::Exptime;
use latchd_protocol::wire::classic;
use latchd_protocol::wire::meta::{Flag, Verb};

use super::{Bound, Job, LOCK_ITEM, LockSupport, Mark, MissingItem, Query, leased};
use crate::session::{AnyRequest, Flags};

impl Bound {
    pub(super) fn request(&self, query: Query) -> AnyRequest<'_> {
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        if let Some(session) = &self.session
            && query == Query::Attach
        {
            return session.attach(self.is_held());
        }
        if let Some(session) = &self.session
            && query == Query::EndSession
        {
            return session.end();
        }
        match (query, self.jobs.front()) {
            // The item may be gone by now.
            (Query::Confirm, _) => {
                let mut flags = self.grant_flags();
                if let Mode::Shared { among } = self.terms.mode {
                    flags = flags.with(Flag::Shared(among));
                }
                AnyRequest::meta(Verb::Lock, key, flags)
            }
            (Query::Lock, _) if self.words == LockSupport::Classic => {
                AnyRequest::change(ItemCommand::Lock { key })
            }
            (Query::Lock, _) => AnyRequest::meta(Verb::Lock, key, self.lock_flags()),
            (Query::Wait { ms }, _) => {
                AnyRequest::meta(Verb::Lock, key, self.lock_flags().with(Flag::Wait(ms)))
            }
            (Query::Create, _) => AnyRequest::change(Set {
                exptime: match self.terms.missing {
                    MissingItem::Create(exptime) => exptime,
                    MissingItem::Refuse => Exptime::Never,
                },
                mode: SetMode::Add,
                client_flags: LOCK_ITEM,
                ..Set::new(key, b"")
            }),
            (Query::Renew, _) | (Query::Job, Some(Job::Refresh)) => {
                let flags = self.grant_flags().with(leased::asked_for(self.ttl()));
                AnyRequest::meta(Verb::Lock, key, flags)
            }
            (Query::Obstacle, _) if self.terms.lease.is_some() => {
                AnyRequest::meta(Verb::Debug, key, Flags::of([]))
            }
            (Query::Look | Query::Obstacle, _) => {
                AnyRequest::meta(Verb::Get, key, Flags::of([Flag::ShowClientFlags]))
            }
            (Query::Mark, _) => {
                let (value, flags) = match &self.terms.mark {
                    Mark::Note(note, exptime) => {
                        let kind = Flag::ClientFlags(LOCK_ITEM);
                        let flags = Flags::of([Flag::Touch(*exptime), kind, Flag::ShowCas]);
                        (&**note, flags)
                    }
                    // Nothing is appended: the value stays, but it gets a new version.
                    Mark::None | Mark::Number => {
                        (&b""[..], Flags::of([Flag::Mode(b'A'), Flag::ShowCas]))
                    }
                };
                AnyRequest::Meta {
                    verb: Verb::Set,
                    key,
                    flags,
                    value,
                }
            }
            (Query::Job, Some(Job::Read)) if self.needs_meta => {
                let flags = Flags::of([Flag::Value, Flag::ShowCas, Flag::ShowClientFlags]);
                AnyRequest::meta(Verb::Get, key, flags)
            }
            (Query::Job, Some(Job::Read)) => AnyRequest::Classic {
                command: Command::from(Get::new(key)),
                envelope: classic::ClassicEnvelope::Get {
                    with_cas: true,
                    last: true,
                },
            },
            (
                Query::Job,
                Some(Job::Write {
                    value,
                    client_flags,
                    exptime,
                    ..
                }),
            ) if self.needs_meta => AnyRequest::Meta {
                verb: Verb::Set,
                key,
                flags: Flags::of([Flag::ClientFlags(*client_flags), Flag::Touch(*exptime)]),
                value,
            },
            (
                Query::Job,
                Some(Job::Write {
                    value,
                    client_flags,
                    exptime,
                    ..
                }),
            ) => AnyRequest::change(Set {
                client_flags: *client_flags,
                exptime: *exptime,
                ..Set::new(key, value)
            }),
            (Query::Job, Some(Job::Unlock { .. })) if self.ours && self.of_key => {
                AnyRequest::meta(Verb::Delete, key, Flags::of([Flag::Unlock]))
            }
            (Query::Job, Some(Job::Unlock { .. })) if self.ours => {
                AnyRequest::change(Delete::new(key))
            }
            (Query::GiveUp, _) | (Query::Job, Some(Job::Unlock { .. })) if self.of_key => {
                AnyRequest::meta(Verb::Unlock, key, Flags::of([]))
            }
            (Query::GiveUp, _) | (Query::Job, Some(Job::Unlock { .. })) => {
                AnyRequest::change(ItemCommand::Unlock { key })
            }
            (Query::Ping, _) | (Query::Job, Some(Job::Check)) if self.hold.is_some() => {
                AnyRequest::Hold
            }
            (Query::Ping | Query::Attach | Query::EndSession, _)
            | (Query::Job, None | Some(Job::Check)) => AnyRequest::Noop,
        }
    }

    /// The flags of `ml` that show the grant. The place of a lease carries no belief, so it needs no hold.
    fn grant_flags(&self) -> Flags<'static> {
        let flags = Flags::of([Flag::ShowFence]);
        if self.lacks_hold || self.terms.is_place {
            flags
        } else {
            flags.with(Flag::ShowHold)
        }
    }

    /// The flags of `ml`. They ask for the fence, and for the fields of the item if there is one (B4, B6, E3).
    /// If no item may be made, the item must exist.
    fn lock_flags(&self) -> Flags<'static> {
        let mut flags = self.grant_flags();
        if self.terms.lease.is_none() {
            flags = flags.with(Flag::ShowClientFlags);
        }
        if self.terms.missing == MissingItem::Refuse {
            flags = flags.with(Flag::Clear);
        }
        if let Some(lease) = &self.terms.lease {
            flags = flags
                .with(leased::asked_for(lease.ttl))
                .with(Flag::ShowSize);
        }
        if let Mode::Shared { among } = self.terms.mode {
            flags = flags.with(Flag::Shared(among));
        }
        flags
    }
}
