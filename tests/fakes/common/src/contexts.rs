//! Primary contexts, one for each device, and which of them is current on a thread.
//!
//! A context lives while somebody retains it. One that is made after it has died is another, with another handle.

use std::cell::Cell;

use crate::Code;
use crate::codes::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, OUT_OF_MEMORY};

/// What a context is called outside: never 0, which is none.
pub(crate) type Handle = usize;

const FIRST: Handle = 0xc0de_0000;
/// Handles of one generation.
const GENERATION: Handle = 256;
const DEPTH: usize = 16;

thread_local! {
    /// The contexts that the thread has pushed, and how many. Without a destructor, which would keep the library loaded.
    static STACK: Cell<([Handle; DEPTH], usize)> = const { Cell::new(([0; DEPTH], 0)) };
}

pub(crate) struct Contexts {
    devices: Vec<Primary>,
}

struct Primary {
    retained: u32,
    generation: usize,
}

impl Contexts {
    /// `active`: as if something else in the process has retained each.
    pub(crate) fn new(devices: usize, active: bool) -> Self {
        let primary = |_| Primary { retained: active.into(), generation: 0 };
        Self { devices: (0..devices).map(primary).collect() }
    }

    pub(crate) fn is_active(&self, device: usize) -> bool {
        self.devices[device].retained > 0
    }

    pub(crate) fn active(&self) -> usize {
        self.devices.iter().filter(|primary| primary.retained > 0).count()
    }

    pub(crate) fn retain(&mut self, device: usize) -> Handle {
        self.devices[device].retained += 1;
        self.handle(device)
    }

    pub(crate) fn release(&mut self, device: usize) -> Result<(), Code> {
        let primary = &mut self.devices[device];
        primary.retained = primary.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if primary.retained == 0 {
            primary.generation += 1;
        }
        Ok(())
    }

    pub(crate) fn is_alive(&self, context: Handle) -> bool {
        (0..self.devices.len()).any(|device| self.is_active(device) && self.handle(device) == context)
    }

    /// The thread's, where a call cannot do without one.
    pub(crate) fn current(&self) -> Result<Handle, Code> {
        match current() {
            None => Err(INVALID_CONTEXT),
            Some(context) if !self.is_alive(context) => Err(CONTEXT_IS_DESTROYED),
            Some(context) => Ok(context),
        }
    }

    /// Of one that is alive.
    pub(crate) fn device_of(&self, context: Handle) -> usize {
        (context - FIRST) % GENERATION
    }

    pub(crate) fn push(&self, context: Handle) -> Result<(), Code> {
        if !self.is_alive(context) {
            return Err(INVALID_CONTEXT);
        }
        let (mut stack, depth) = STACK.get();
        *stack.get_mut(depth).ok_or(OUT_OF_MEMORY)? = context;
        STACK.set((stack, depth + 1));
        Ok(())
    }

    /// In the place of the current one; 0 takes that away.
    pub(crate) fn set(&self, context: Handle) -> Result<(), Code> {
        if context != 0 && !self.is_alive(context) {
            return Err(INVALID_CONTEXT);
        }
        let _ = pop();
        if context == 0 { Ok(()) } else { self.push(context) }
    }

    fn handle(&self, device: usize) -> Handle {
        FIRST + self.devices[device].generation * GENERATION + device
    }
}

pub(crate) fn current() -> Option<Handle> {
    let (stack, depth) = STACK.get();
    Some(stack[depth.checked_sub(1)?])
}

pub(crate) fn pop() -> Result<Handle, Code> {
    let context = current().ok_or(INVALID_CONTEXT)?;
    let (stack, depth) = STACK.get();
    STACK.set((stack, depth - 1));
    Ok(context)
}
