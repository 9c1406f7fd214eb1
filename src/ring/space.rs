//! Where workers wait for room.
//!
//! The daemon bumps the word after it has raised the limit, offered a hole or opened the cursor, and then
//! wakes all. A worker loads the word *first*, then looks for room, and sleeps only while the word is what it
//! loaded. So no wake is lost: if the bump came before the load, the worker's look came after the change that
//! the bump announces and found it; if it came after, the kernel finds the word changed and does not let the
//! worker sleep, or the wake finds it asleep.

use std::time::Duration;

use crate::ring::control::Control;
use crate::sync::{Ordering, futex_wait, futex_wake_all};

/// What the word is now. Load it before looking for room.
#[inline]
pub fn observe(control: &Control) -> u32 {
    // acquire: pairs with the release in `announce`
    control.space().load(Ordering::Acquire)
}

/// Sleeps while the word is `seen`, for at most `slice`.
pub fn sleep(control: &Control, seen: u32, slice: Duration) {
    futex_wait(control.space(), seen, slice);
}

/// The daemon's: something that a worker waits for has happened.
pub fn announce(control: &Control) {
    // release: pairs with the acquire in `observe`
    control.space().fetch_add(1, Ordering::Release);
    wake(control);
}

/// Wakes all who wait, to let them look at something other than the word.
pub fn wake(control: &Control) {
    futex_wake_all(control.space());
}
