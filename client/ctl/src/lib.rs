//! `echoctl`: what happens in an `echod`, and why something waits.
//!
//! Reading order: [`command`] (a command line, to its exit code), [`cli`] (what can be asked), [`commands`] (asking),
//! [`watch`] (asking again and again), [`doctor`] (asking the machine), [`view`] (answers for people), [`json`] (answers for
//! programs), [`failure`] and [`exit`] (what a script sees when it did not work).
//!
//! What clients call themselves is shown with its control characters escaped: a worker must not be able to write
//! escape sequences to an administrator's terminal.

#![forbid(unsafe_code)]

pub mod array;
pub mod cli;
pub mod command;
pub mod commands;
pub mod doctor;
pub mod exit;
pub mod failure;
pub mod json;
pub mod replay;
pub mod view;
pub mod watch;
