//! The loop that drives a machine over a connection: its own ([`Driver`](super::driver::Driver)), or a shared
//! one ([`Link`](super::link::Link)).
//!
//! - V1: The loop never waits for one event alone. Opening, sending and receiving proceed side by side, and
//!   the machine is polled whenever it asks for it. So its deadlines hold for any server and network.
//! - V2: A server counts as silent only if no received bytes are unread. Otherwise a process that was stopped
//!   would mistake its own pause for the server's silence.

use std::future::Future;
use std::io;

use futures_lite::future::FutureExt;
use latchd_client_core::{Action, AnyRequest, HoldSupport, Machine};

use super::clock::{self, sleep_until};

/// The reason why the loop ended.
pub(super) enum Heard<News, Call> {
    /// The machine has news.
    News(News),
    /// The caller's own future has ended.
    Call(Call),
}

/// A connection that may be opened, closed and opened again, as the loop sees it.
pub(super) trait Line {
    /// An event on the connection.
    type Event;

    /// Starts to open the connection unless it is open or being opened. Returns whether it is open without
    /// the machine knowing.
    fn open(&mut self) -> bool;

    /// Whether the server of the open connection shows its hold, by the answers to all users of the connection.
    fn hold_support(&self) -> HoldSupport;

    /// Accepts a request to be sent.
    ///
    /// # Errors
    /// The connection is closed, or this is no valid request: call [`fail`](Self::fail).
    fn send(&mut self, request: &AnyRequest<'_>) -> io::Result<()>;

    /// Waits for the next event; for ever if there can be none. An aborted wait loses nothing.
    fn event(&mut self) -> impl Future<Output = Self::Event> + Send;

    /// Handles an event, and passes its news to the machine.
    fn take(&mut self, event: Self::Event, machine: &mut impl Machine);

    /// Passes news that needs no waiting to the machine; returns whether there was any.
    fn take_ready(&mut self, machine: &mut impl Machine) -> bool;

    /// Called when the machine takes the server for silent. Passes received bytes to the machine (V2), or
    /// ends the connection.
    fn give_up(&mut self, machine: &mut impl Machine) -> impl Future<Output = ()>;

    /// Ends the connection.
    fn fail(&mut self, machine: &mut impl Machine, cause: io::Error);
}

/// The reason why the loop woke.
enum Woken<Event, Call> {
    Event(Event),
    Time,
    Call(Call),
}

/// Follows the machine's actions until it has news or `call` ends. Calls `show` whenever the machine's belief
/// may have changed, and before each wait.
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
                    machine.hold_support(line.hold_support());
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
