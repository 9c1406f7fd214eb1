//! A line for each call, so that a test can tell what was called, in what order, and that nothing was.
//!
//! `PID LIBRARY CALL ARGUMENTS -> CODE`. A line is one write at the end of the file, so lines of several processes stay
//! whole. Nothing is kept between calls: a forked child writes its own.

use std::ffi::OsStr;
use std::fmt::{Arguments, Display};
use std::fs::OpenOptions;
use std::io::Write;

use crate::Code;

const FILE: &str = "ECHO_FAKE_CUDA_JOURNAL";

pub(crate) fn call(library: &str, name: &str, arguments: Arguments<'_>, code: Code) {
    let arguments = arguments.to_string();
    let space = if arguments.is_empty() { "" } else { " " };
    note(library, format_args!("{name}{space}{arguments} -> {code}"));
}

/// A line that is no call.
pub(crate) fn note(library: &str, what: impl Display) {
    let Some(file) = std::env::var_os(FILE) else { return };
    // A journal that cannot be written is the test's to notice: it reads it.
    let _ = append(&file, &format!("{} {library} {what}\n", std::process::id()));
}

fn append(file: &OsStr, line: &str) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).open(file)?.write_all(line.as_bytes())
}
