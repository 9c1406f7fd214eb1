//! The state machines against plain models, under random schedules.

mod latest;
mod queue;
mod replay;
