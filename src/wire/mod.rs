//! The conversation between clients and the daemon.
//!
//! - [`message`]: all of it, on a page.
//! - [`codec`]: messages to bytes and back.
//! - [`socket`]: packets with descriptors.
//! - [`socket_path`]: one daemon per path.
//! - [`fds`]: descriptors that were not opened here.
//! - [`tag`]: how enums are told apart.

pub mod codec;
pub mod fds;
pub mod message;
pub mod socket;
pub mod socket_path;
pub mod tag;
