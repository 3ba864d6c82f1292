//! The loop that drives a machine over a connection, whether that is the machine's own
//! ([`Driver`](super::driver::Driver)) or one that many share ([`Link`](super::link::Link)).
//!
//! - V1: nothing here is waited for alone. Opening a connection, sending and receiving go on side by
//!   side, and the machine is asked again whenever it wants to be: so its deadlines hold whatever the
//!   server and the network do.
//! - V2: a server is silent only if nothing of it is there to be read: a process that was stopped takes
//!   its own standing still for the server's silence otherwise.

use std::future::Future;
use std::io;

use futures_lite::future::FutureExt;
use latchd_core::client::{Action, AnyRequest, Machine};

use super::clock::{self, sleep_until};

/// What ended a drive.
pub(super) enum Heard<News, Call> {
    /// The machine has something to tell.
    News(News),
    /// What the caller waited for beside it has come.
    Call(Call),
}

/// A connection that may be opened, closed and opened again, as the loop sees it.
pub(super) trait Line {
    /// Something that has happened to it.
    type Event;

    /// Has it opened, if it is neither open nor being opened. Whether it is open, and the machine has not been
    /// told so.
    fn open(&mut self) -> bool;

    /// Takes a request, to be sent.
    ///
    /// # Errors
    /// The connection is gone, or this is no request: it is to [`fail`](Self::fail).
    fn send(&mut self, request: &AnyRequest<'_>) -> io::Result<()>;

    /// Waits until something happens; for ever if nothing can. What was not waited for to the end is not lost.
    fn event(&mut self) -> impl Future<Output = Self::Event> + Send;

    /// Takes note of what has happened, and tells the machine what concerns it.
    fn take(&mut self, event: Self::Event, machine: &mut impl Machine);

    /// Tells the machine something that is there without waiting; whether there was anything.
    fn take_ready(&mut self, machine: &mut impl Machine) -> bool;

    /// The machine takes the server for silent: tells it what of the server is there to be read (V2), or that the
    /// connection is over.
    fn give_up(&mut self, machine: &mut impl Machine) -> impl Future<Output = ()>;

    /// The connection is over.
    fn fail(&mut self, machine: &mut impl Machine, cause: io::Error);
}

/// What woke the loop.
enum Woken<Event, Call> {
    Event(Event),
    Time,
    Call(Call),
}

/// Does what `machine` says until it has something to tell, or until `call` is there. Whenever
/// what it believes may have changed, and before anything is waited for, `show` is told.
pub(super) async fn drive<L: Line, M: Machine, Call>(
    line: &mut L,
    machine: &mut M,
    call: impl Future<Output = Call>,
    mut show: impl FnMut(&M),
) -> Heard<M::News, Call> {
    let mut call = std::pin::pin!(call);
    loop {
        let until = match machine.poll(clock::now()) {
            Action::Tell(news) => {
                show(machine);
                return Heard::News(news);
            }
            Action::Connect { until } => {
                if line.open() {
                    machine.connected(clock::now());
                    continue;
                }
                until
            }
            Action::Disconnect => {
                line.give_up(machine).await;
                continue;
            }
            Action::Send(request) => {
                if let Err(error) = line.send(&request) {
                    line.fail(machine, error);
                }
                continue;
            }
            Action::Wait { until } => until,
        };
        if line.take_ready(machine) {
            continue;
        }
        show(machine);
        let woken = {
            let event = async { Woken::Event(line.event().await) };
            let time = async {
                sleep_until(until).await;
                Woken::Time
            };
            let call = async { Woken::Call(call.as_mut().await) };
            event.or(call).or(time).await
        };
        match woken {
            Woken::Event(event) => line.take(event, machine),
            Woken::Time => {}
            Woken::Call(call) => return Heard::Call(call),
        }
    }
}
