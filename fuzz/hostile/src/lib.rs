//! What must hold whatever bytes a stranger sends, or writes into memory that it shares.
//!
//! One function a door through which such bytes come in. Each takes any bytes at all, has the product's own code do
//! with them what it does, and panics if something came out that must not. What is allowed is to refuse, by an error
//! that has a name.
//!
//! The same functions are driven twice: by libFuzzer (`fuzz/fuzz_targets`), which looks for new ways through the
//! code, and by `tests/inputs.rs` on every `cargo test`, with the committed inputs and some random ones. So an input
//! that once broke something and was committed is a regression test.
//!
//! It does not look for races: inputs are programs of one thread. For those see `tests/ring_loom.rs`.
#![forbid(unsafe_code)]

pub mod ancillary;
pub mod configuration;
mod input;
pub mod latest;
pub mod message;
mod neighbour;
pub mod replay;
pub mod seeds;
pub mod shared_words;
mod spoiling;
mod table;

/// A door: its name, which is the fuzz target's and the corpus's, and what holds behind it.
pub type Door = (&'static str, fn(&[u8]));

/// Every door.
pub const DOORS: [Door; 7] = [
    ("message", message::holds),
    ("ancillary", ancillary::holds),
    ("control_region", shared_words::control_region_holds),
    ("client_page", shared_words::client_page_holds),
    ("latest", latest::holds),
    ("replay", replay::holds),
    ("configuration", configuration::holds),
];
