//! The rules of a latest table that somebody could leave out, each with a switch: `rules_off.rs` holds one test a rule.

/// Which rules are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A reader looks at `newest` once more when its hazard is stored, and only then holds the value. Off: it holds what it
    /// saw before, whose block may be on its way round.
    pub reader_looks_again: bool,
    /// The daemon reads `newest` before it looks at the hazards. Off: after, and takes for old what a reader has begun to
    /// hold since.
    pub newest_read_before_hazards: bool,
    /// The newest value's block is not published again. Off: readers that come find their value changed.
    pub newest_is_kept: bool,
    /// A block that is older goes round when its value is committed: until then somebody may be writing it. Off: whatever
    /// is older.
    pub only_committed_goes_round: bool,
    /// `newest` is stored when the value is committed. Off: when it is claimed.
    pub newest_after_commit: bool,
    /// The daemon changes `newest` by a CAS from what it saw. Off: by a store, and takes it back.
    pub newest_is_monotone: bool,
    /// The daemon publishes what was committed and is not in `newest`. Off: if the writer died in between nobody does.
    pub daemon_catches_up: bool,
    /// The daemon wakes the readers for a writer that is gone. Off: they sleep on, if it died between `newest` and its wake.
    pub daemon_wakes_for_the_dead: bool,
    /// One writer at a time. Off: two, and one's value is older than the other's before it is there.
    pub one_writer: bool,
    /// The next writer attaches when what the last one had claimed is settled. Off: it passes over the hole, and a value
    /// that is committed there is never the newest.
    pub next_writer_waits_for_the_hole: bool,
    /// A daemon that took over lets no block go round before all readers are back, or gone. Off: it does not know yet what
    /// they hold.
    pub recycling_waits_for_readers: bool,
    /// A reader sleeps only while `newest` is what it saw. Off: it sleeps through what came in between.
    pub sleep_compares: bool,
}

impl Rules {
    pub const ON: Rules = Rules {
        reader_looks_again: true,
        newest_read_before_hazards: true,
        newest_is_kept: true,
        only_committed_goes_round: true,
        newest_after_commit: true,
        newest_is_monotone: true,
        daemon_catches_up: true,
        daemon_wakes_for_the_dead: true,
        one_writer: true,
        next_writer_waits_for_the_hole: true,
        recycling_waits_for_readers: true,
        sleep_compares: true,
    };
}
