//! The daemon: it owns the buffers of every table and hands them out over a Unix socket.
//!
//! Reading order:
//!
//! - [`command`]: from a command line to a configuration and to what the process exits with.
//! - [`run`]: from a configuration to a serving daemon, and to its end.
//! - [`door`], [`allowance`]: what one user's connections may have, all together.
//! - [`connection`]: one connection's packets; [`outbox`]: what is to be said to it; [`readiness`]: when.
//! - [`supervisor`]: the one task that owns all [`table`]s and [`client`]s, within [`limits`]; [`burials`]: tables on
//!   their way out.
//! - [`exit_watch`]: the end of a process; [`client_page`]: what it leaves behind.
//! - [`view`]: what the daemon shows of itself.
//! - [`cli`], [`config`], [`surroundings`], [`socket_path`], [`bytes`]: how it is configured.
//! - [`logging`], [`exit`]: where it tells what it does, and how it ends.
#![forbid(unsafe_code)]

pub mod allowance;
pub mod burials;
pub mod bytes;
pub mod cli;
pub mod client;
pub mod client_page;
pub mod command;
pub mod config;
pub mod connection;
pub mod door;
pub mod exit;
pub mod exit_watch;
pub mod limits;
pub mod logging;
pub mod outbox;
pub mod readiness;
pub mod run;
pub mod socket_path;
pub mod supervisor;
pub mod surroundings;
pub mod table;
pub mod view;
