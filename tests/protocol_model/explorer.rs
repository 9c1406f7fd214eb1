//! Explores every state of a model, breadth first, and then asks whether each can still come to a good end.
//!
//! *Safety*: no step breaks an invariant. Breadth first makes the trace to the first violation a shortest one.
//! *Liveness*: from every state, with no further crash and nobody new, a goal state can be reached (AG EF in the words of the field).
//! That is weaker than "will be reached": a schedule that starves somebody for ever is allowed, a dead end is not.

use std::fmt::{self, Write};

use crate::arena::Arena;
use crate::packing::Packer;
use crate::successors::Successors;

/// What is explored: a table of some kind, its size, and what may go wrong in it.
pub trait Model {
    type State: Copy + PartialEq;

    fn initial(&self) -> Self::State;

    /// Every step that any process can take.
    fn successors(&self, state: &Self::State, out: &mut Successors<Self::State>);

    /// Has everybody come to a good end?
    fn is_goal(&self, state: &Self::State) -> bool;

    /// The state in as few bits as it needs.
    fn pack(&self, state: &Self::State) -> Packer;

    /// The state that was packed into these words.
    fn unpack(&self, packed: &[u64]) -> Self::State;

    /// The state as lines for a trace.
    fn show(&self, state: &Self::State) -> String;

    /// Stop after this many states, with the exploration incomplete.
    fn states_at_most(&self) -> usize;
}

/// What an exploration without a violation has seen.
#[derive(Debug)]
pub struct Explored {
    pub states: usize,
    pub goals: usize,
    /// False if it stopped at the model's bound. Then liveness was not asked.
    pub complete: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    Safety,
    Liveness,
}

/// A property that does not hold.
pub struct Violation {
    pub property: Property,
    pub message: String,
    /// The steps from the initial state, the last state, and how many states had been found.
    pub trace: String,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}\n{}", self.property, self.message, self.trace)
    }
}

/// Explores a model.
pub fn explore(model: &impl Model) -> Result<Explored, Violation> {
    Exploration::new(model).run()
}

struct Exploration<'a, M> {
    model: &'a M,
    arena: Arena,
    /// For each state the one that it was first reached from.
    parents: Vec<u32>,
    /// For each state where its steps begin in `steps`: the states that it leads to without chance.
    first_step: Vec<u32>,
    steps: Vec<u32>,
}

impl<'a, M: Model> Exploration<'a, M> {
    fn new(model: &'a M) -> Self {
        let initial = model.pack(&model.initial());
        let mut arena = Arena::new(initial.words_used());
        arena.insert(&initial.words);
        Exploration { model, arena, parents: vec![0], first_step: Vec::new(), steps: Vec::new() }
    }

    fn state(&self, number: usize) -> M::State {
        self.model.unpack(self.arena.get(number))
    }

    fn run(mut self) -> Result<Explored, Violation> {
        let mut out = Successors::new(false);
        let mut number = 0;
        while number < self.arena.len() {
            if self.arena.len() > self.model.states_at_most() {
                return Ok(Explored { states: self.arena.len(), goals: 0, complete: false });
            }
            out.clear();
            self.model.successors(&self.state(number), &mut out);
            if let Some(message) = out.violation.take() {
                return Err(self.violation(Property::Safety, message, number));
            }
            self.first_step.push(u32::try_from(self.steps.len()).expect("fewer than 2^32 steps"));
            for successor in &out.steps {
                let (reached, is_new) = self.arena.insert(&self.model.pack(&successor.state).words);
                if is_new {
                    self.parents.push(number as u32);
                }
                if !successor.is_chance {
                    self.steps.push(reached);
                }
            }
            number += 1;
        }
        self.first_step.push(self.steps.len() as u32);
        self.check_liveness()
    }

    /// Spreads "a goal can be reached" backwards over the steps until nothing changes. Most steps lead to a state with
    /// a higher number, so that going through the states from the last to the first needs few rounds.
    fn check_liveness(self) -> Result<Explored, Violation> {
        let states = self.arena.len();
        let mut reaches: Vec<bool> =
            (0..states).map(|number| self.model.is_goal(&self.state(number))).collect();
        let goals = reaches.iter().filter(|&&goal| goal).count();
        let mut changed = true;
        while changed {
            changed = false;
            for number in (0..states).rev().filter(|&number| !reaches[number]).collect::<Vec<_>>() {
                let steps = self.first_step[number] as usize..self.first_step[number + 1] as usize;
                if self.steps[steps].iter().any(|&reached| reaches[reached as usize]) {
                    reaches[number] = true;
                    changed = true;
                }
            }
        }
        match reaches.iter().position(|&good| !good) {
            None => Ok(Explored { states, goals, complete: true }),
            Some(number) => {
                let stuck = reaches.iter().filter(|&&good| !good).count();
                let message =
                    format!("from {stuck} states there is no way to a good end; the nearest is this one");
                Err(self.violation(Property::Liveness, message, number))
            }
        }
    }

    fn violation(&self, property: Property, message: String, at: usize) -> Violation {
        Violation { property, message, trace: self.trace(at).expect("a string takes all that is written") }
    }

    /// The steps from the initial state to this one: the path is known, its labels are made by taking it once more.
    fn trace(&self, at: usize) -> Result<String, fmt::Error> {
        let mut path = vec![at];
        while let Some(&number) = path.last().filter(|&&number| number != 0) {
            path.push(self.parents[number] as usize);
        }
        let mut trace = String::new();
        let mut out = Successors::new(true);
        for (step, pair) in path.windows(2).rev().enumerate() {
            out.clear();
            self.model.successors(&self.state(pair[1]), &mut out);
            let target = self.state(pair[0]);
            let taken = out.steps.iter().find(|successor| successor.state == target);
            writeln!(trace, "{:4} {}", step + 1, taken.map_or("(no label)", |successor| &successor.label))?;
        }
        write!(trace, "{}\n{} states were found", self.model.show(&self.state(at)), self.arena.len())?;
        Ok(trace)
    }
}
