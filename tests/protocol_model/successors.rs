//! Where a state can go: filled by the processes' steps, read by the explorer.

use crate::state::State;

/// One step of one process.
pub struct Successor<S = State> {
    pub state: S,
    /// What was done, for traces; empty unless asked for.
    pub label: String,
    /// Possible, but nothing may depend on it for its progress: somebody dies, or somebody new comes.
    pub is_chance: bool,
}

pub struct Successors<S = State> {
    pub steps: Vec<Successor<S>>,
    /// The first invariant that a step out of this state breaks.
    pub violation: Option<String>,
    with_labels: bool,
}

impl<S> Successors<S> {
    pub fn new(with_labels: bool) -> Self {
        Successors { steps: Vec::new(), violation: None, with_labels }
    }

    pub fn clear(&mut self) {
        self.steps.clear();
        self.violation = None;
    }

    /// A step; the label is only made where somebody reads it.
    pub fn push(&mut self, state: S, label: impl FnOnce() -> String) {
        let label = if self.with_labels { label() } else { String::new() };
        self.steps.push(Successor { state, label, is_chance: false });
    }

    pub fn push_chance(&mut self, state: S, label: impl FnOnce() -> String) {
        let label = if self.with_labels { label() } else { String::new() };
        self.steps.push(Successor { state, label, is_chance: true });
    }

    /// An invariant is broken by the step that is being taken.
    pub fn violate(&mut self, message: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(message());
        }
    }
}
