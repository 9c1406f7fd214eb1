//! A library that is loaded: its state, from the first call to the end of the process.
//!
//! ```text
//!   not initialised ──► ready ──► broken (a fatal code: every call answers it from then on)
//!        │    ▲           │
//!        └────┘           ├──► forked (the child: every call answers 3)
//!     (init fails:        └──► over   (the process is at its end: every call answers 4)
//!      at every call)
//! ```

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Code;
use crate::codes::{NOT_INITIALIZED, SUCCESS, UNLOADING, is_fatal};
use crate::contexts::Contexts;
use crate::devices::Devices;
use crate::journal;
use crate::knobs::Knobs;
use crate::registrations::Registrations;
use crate::virtual_memory::VirtualMemory;

pub struct Library {
    pub(crate) soname: &'static str,
    at_exit: extern "C" fn(),
    /// The process that initialised it, or 0. Read before the lock is taken, which a child may find locked for good.
    owner: AtomicU32,
    is_over: AtomicBool,
    state: Mutex<Option<State>>,
}

pub(crate) struct State {
    pub(crate) soname: &'static str,
    pub(crate) knobs: Knobs,
    pub(crate) devices: Devices,
    pub(crate) registrations: Registrations,
    /// Whether the runtime has made a context.
    pub(crate) has_context: bool,
    /// Whether the driver was asked to begin.
    pub(crate) is_initialised: bool,
    pub(crate) contexts: Contexts,
    pub(crate) memory: VirtualMemory,
    /// A fatal code, from which there is no way back.
    broken: Option<Code>,
    calls: BTreeMap<&'static str, u32>,
}

impl Library {
    /// `at_exit` calls [`Library::end`].
    pub const fn new(soname: &'static str, at_exit: extern "C" fn()) -> Self {
        Self {
            soname,
            at_exit,
            owner: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            state: Mutex::new(None),
        }
    }

    /// A call. `initialise` comes first, and says whether it goes on.
    pub(crate) fn call(
        &self,
        name: &'static str,
        arguments: Arguments<'_>,
        initialise: impl FnOnce(&mut State) -> Result<(), Code>,
        body: impl FnOnce(&mut State) -> Result<(), Code>,
    ) -> Code {
        let code = self.enter(name, initialise, body).err().unwrap_or(SUCCESS);
        journal::call(self.soname, name, arguments, code);
        code
    }

    /// A call that is not written down.
    pub(crate) fn enter(
        &self,
        name: &'static str,
        initialise: impl FnOnce(&mut State) -> Result<(), Code>,
        body: impl FnOnce(&mut State) -> Result<(), Code>,
    ) -> Result<(), Code> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(UNLOADING);
        }
        if ![0, std::process::id()].contains(&self.owner.load(Ordering::Relaxed)) {
            return Err(NOT_INITIALIZED);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.get_or_insert_with(|| {
            // SAFETY: the function is this library's, and the loader calls it before it unloads the library.
            unsafe { libc::atexit(self.at_exit) };
            State::new(self.soname)
        });
        initialise(state)?;
        state.broken.map_or(Ok(()), Err)?;
        let nth = state.calls.entry(name).or_default();
        *nth += 1;
        let asked_for = state.knobs.failures.iter().find_map(|failure| failure.of(name, *nth));
        let done = asked_for.map_or(Ok(()), Err).and_then(|()| body(state));
        if let Err(code) = done
            && is_fatal(code)
        {
            state.broken = Some(code);
        }
        done
    }

    /// From now on the library belongs to this process, and to none that it forks.
    pub(crate) fn belongs_here(&self) {
        self.owner.store(std::process::id(), Ordering::Relaxed);
    }

    /// Writes down what is still there, unless a call is at work on it.
    pub fn say_what_lives(&self) {
        if let Ok(state) = self.state.try_lock()
            && let Some(state) = &*state
        {
            journal::note(self.soname, state.live());
        }
    }

    /// The process is at its end, or the library is unloaded.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        if self.owner.load(Ordering::Relaxed) == std::process::id() {
            self.say_what_lives();
        }
    }
}

impl State {
    fn new(soname: &'static str) -> Self {
        let knobs = Knobs::from_environment();
        let devices = Devices::new(&knobs);
        Self {
            soname,
            has_context: knobs.context,
            is_initialised: false,
            contexts: Contexts::new(devices.count(), knobs.context),
            memory: VirtualMemory::new(),
            devices,
            knobs,
            registrations: Registrations::default(),
            broken: None,
            calls: BTreeMap::new(),
        }
    }

    fn live(&self) -> String {
        let [handles, reservations, mappings] = self.memory.counts();
        format!(
            "live registrations={} bytes={} handles={handles} reservations={reservations} mappings={mappings} \
             memory={} contexts={}",
            self.registrations.count(),
            self.registrations.bytes(),
            self.memory.used(),
            self.contexts.active().max(self.has_context.into()),
        )
    }
}
