//! Proves that the core needs no standard library: this crate brings a panic handler of its own,
//! which the standard library would bring a second time, and an allocator of its own.
//!
//! Built by `.ci/run`; nothing is ever run.
#![no_std]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};

use latchd_core::wire::WireLimits;
use latchd_core::engine::Config;
use latchd_core::{ConnId, Connection, Core, Event, Instant};

struct NoMemory;

// SAFETY: it never gives memory, so there is none to give wrongly.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Everything a transport needs of the core, in one place, so that all of it is linked.
pub fn serve(input: &[u8], out: &mut alloc::vec::Vec<u8>) -> usize {
    let conn = ConnId::from_number(1);
    let now = Instant::from_millis(0);
    let mut core = Core::new(Config::default());
    core.handle(now, Event::Opened(conn));
    let mut connection = Connection::new(WireLimits::default());
    let (consumed, _) = connection.drive(input, &mut core.at(now, conn), out, usize::MAX);
    core.handle(now, Event::Closed(conn));
    consumed
}
