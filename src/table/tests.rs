//! The state machines against plain models, under random schedules.

mod groups;
mod latest;
mod queue;
mod replay;
