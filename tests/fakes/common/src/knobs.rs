//! What a test asks for, by environment variables. They are read once, at the first call.
//!
//! A knob that cannot be read ends the process: a test must not pass because of a misspelt one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Code;

pub(crate) struct Knobs {
    /// `INIT`: what every attempt to initialise answers.
    pub(crate) init: Code,
    /// `DRIVER`: the driver's version, 0 for none. A runtime of a later major will not work with it.
    pub(crate) driver: i32,
    /// `FAIL`: `NAME:N:CODE,...`; the N-th call (from 1), from the N-th on (`N+`), or each (`*`) answers CODE.
    pub(crate) failures: Vec<Failure>,
    /// `CONTEXT`: 1 if the primary context of each device is active from the start, as after a framework's work.
    pub(crate) context: bool,
    /// `ATTRIBUTES`: `NUMBER=VALUE,...`, instead of an ordinary card's.
    pub(crate) attributes: BTreeMap<i32, i32>,
    /// `DEVICES`: how many the machine has. `CUDA_VISIBLE_DEVICES` says which of them the process sees.
    pub(crate) devices: usize,
    /// `MEMORY`: bytes of each device.
    pub(crate) memory: u64,
    /// `REGISTERED`: bytes that may be registered at a time.
    pub(crate) registered: u64,
    /// `EXCLUSIVE`: a directory. Two that register one file at once, by this directory, and the second is answered 1.
    pub(crate) exclusive: Option<PathBuf>,
    /// `HOLD`: a FIFO. Each registration waits until somebody opens it to write.
    pub(crate) hold: Option<PathBuf>,
    /// `PIN`: 0 if no registration asks the kernel for a pin.
    pub(crate) pin: bool,
    /// `VMM_CONTEXT`: 1 if calls for virtual memory want a current context.
    pub(crate) vmm_context: bool,
}

pub(crate) struct Failure {
    name: String,
    first: u32,
    last: u32,
    code: Code,
}

impl Failure {
    pub(crate) fn of(&self, name: &str, nth: u32) -> Option<Code> {
        (self.name == name && (self.first..=self.last).contains(&nth)).then_some(self.code)
    }
}

const CUDA_13: i32 = 13_000;
const MEMORY: u64 = 16 << 30;

impl Knobs {
    pub(crate) fn from_environment() -> Self {
        Self {
            init: number("INIT", 0),
            driver: number("DRIVER", CUDA_13),
            failures: list("FAIL", failure),
            context: number("CONTEXT", 0) != 0,
            attributes: list("ATTRIBUTES", attribute).into_iter().collect(),
            devices: number("DEVICES", 1),
            memory: number("MEMORY", MEMORY),
            registered: number("REGISTERED", u64::MAX),
            exclusive: text("EXCLUSIVE").map(PathBuf::from),
            hold: text("HOLD").map(PathBuf::from),
            pin: number("PIN", 1) != 0,
            vmm_context: number("VMM_CONTEXT", 0) != 0,
        }
    }
}

fn text(knob: &str) -> Option<String> {
    std::env::var(format!("ECHO_FAKE_CUDA_{knob}")).ok()
}

fn number<T: FromStr>(knob: &str, otherwise: T) -> T {
    let Some(text) = text(knob) else { return otherwise };
    text.parse().unwrap_or_else(|_| misspelt(knob, &text))
}

fn list<T>(knob: &str, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
    let text = text(knob).unwrap_or_default();
    let parse = |item| parse(item).unwrap_or_else(|| misspelt(knob, item));
    text.split(',').filter(|item| !item.is_empty()).map(parse).collect()
}

fn failure(item: &str) -> Option<Failure> {
    let mut parts = item.split(':');
    let (name, nth, code) = (parts.next()?.to_owned(), parts.next()?, parts.next()?.parse().ok()?);
    let (first, last) = match nth.strip_suffix('+') {
        Some(first) => (first.parse().ok()?, u32::MAX),
        None if nth == "*" => (1, u32::MAX),
        None => (nth.parse().ok()?, nth.parse().ok()?),
    };
    Some(Failure { name, first, last, code })
}

fn attribute(item: &str) -> Option<(i32, i32)> {
    let (number, value) = item.split_once('=')?;
    Some((number.parse().ok()?, value.parse().ok()?))
}

fn misspelt(knob: &str, value: &str) -> ! {
    eprintln!("ECHO_FAKE_CUDA_{knob} makes no sense: {value:?}");
    std::process::abort()
}
