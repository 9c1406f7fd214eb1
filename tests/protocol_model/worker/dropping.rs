//! Giving a claim back: marked in its record, then said.

use super::{Worker, WorkerStep, abandon};
use crate::configuration::Configuration;
use crate::record::Record;
use crate::state::State;
use crate::successors::Successors;

pub fn drop_claim(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    abandon(&mut next, who);
    let worker = &mut next.workers[who];
    worker.claim.owned = false;
    if config.rules.drop_marks_record_first {
        worker.records[0] = worker.records[0].map(|record| Record { dropped: true, ..record });
        worker.step = WorkerStep::AwaitDropTaken;
        out.push(next, || format!("w{who} marks its record DROPPED"));
    } else {
        worker.records[0] = None;
        worker.step = WorkerStep::SendDrop;
        out.push(next, || format!("w{who} clears its record to drop the claim"));
    }
}

/// Rule off: the message carries the claim, which here is the mark appearing in the record.
pub fn send_drop(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    worker.records[0] =
        Some(Record { first: worker.claim.first, length: worker.claim.length, dropped: true });
    worker.step = WorkerStep::AwaitDropTaken;
    out.push(next, || format!("w{who} tells the daemon of the drop"));
}

pub fn await_drop_taken(state: &State, who: usize, out: &mut Successors) {
    if state.workers[who].records[0].is_some() {
        return;
    }
    let mut next = *state;
    let worker = &mut next.workers[who];
    *worker = Worker { records: worker.records, ..worker.without_claim(WorkerStep::Idle) };
    out.push(next, || format!("w{who} sees its record cleared"));
}
