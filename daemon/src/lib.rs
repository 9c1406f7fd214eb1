//! The daemon: it owns the buffers of every table and hands them out over a Unix socket.
//!
//! Reading order: [`cli`] (what a person can say), [`config`] (what that, the environment and the file come
//! to), [`logging`] (where it tells what it does), [`exit`] (how it ends).
#![forbid(unsafe_code)]

pub mod bytes;
pub mod cli;
pub mod config;
pub mod exit;
pub mod logging;
pub mod socket_path;
pub mod surroundings;
