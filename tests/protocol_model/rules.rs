//! The rules of the protocol that somebody could leave out, each with a switch.
//!
//! A rule earns its place by a configuration in which the protocol without it loses, doubles or tears a sample, or
//! hangs: see `rules_off.rs`, which holds one test a rule.

/// Which rules are kept. All `true` is the protocol, apart from the alternative named at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A worker reads the block from `fill` before its CAS on the cursor. Off: after it, when `fill` may already
    /// speak of a later lap.
    pub fill_read_before_cas: bool,
    /// A worker that lost its CAS clears the record of the claim it did not get. Off: the record stays and covers
    /// somebody else's position.
    pub record_cleared_after_lost_cas: bool,
    /// A worker that reads a hole's block sees in `ready` that it holds the hole, before its CAS on the entry. Off: the
    /// entry may have been taken and offered twice since it was read, with another hole in between.
    pub hole_block_checked: bool,
    /// `ready` holds the block's sequence, and a completer's CAS expects its own. Off: a completer that slept
    /// through a lap marks the next incarnation.
    pub ready_carries_sequence: bool,
    /// A commit is a CAS that leaves a RETIRED word alone. Off: it is a fetch-or, so that a retired word changes
    /// after it was counted.
    pub commit_is_cas: bool,
    /// Reclaim looks at the cursor, the refill entries, the live records, and last at the bit. Off: the bit first.
    pub reclaim_order: bool,
    /// A rescue that finds every slot counted is called off. Off: the complete block is broken under its readers.
    pub rescue_called_off_when_complete: bool,
    /// A rescued block is free again when no record covers it. Off: only when the process that held it is gone,
    /// which for a stopped one is never.
    pub quarantine_until_records_clear: bool,
    /// The daemon takes a position for its copy by closing the cursor and noting the target first. Off: it claims
    /// by CAS like a worker, and after a crash cannot tell whose claim it was.
    pub daemon_copies_under_closed_cursor: bool,
    /// A dropped claim is marked in its record, and the daemon clears that. Off: the worker clears the record and
    /// sends a message, and may die in between.
    pub drop_marks_record_first: bool,
    /// A worker reads `space` before it looks for room. Off: after, and sleeps through the wake it needed.
    pub space_read_before_limit: bool,
    /// A rescue stores `ready = broken` before its record says that the block is quarantined. Off: the other way
    /// round, and after a crash nobody tells the reader.
    pub broken_before_quarantine_record: bool,
    /// A worker that moves a sample out of a retired block keeps its first record and takes a second. Off: the one
    /// record is overwritten, and the block is reused while the bytes are still being read from it.
    pub second_record_while_moving: bool,
    /// The last block that can still be written is never quarantined. Off: the copies have nowhere to go.
    pub last_block_never_quarantined: bool,
    /// Reclaim finds a position's block in the daemon's private table. Off: through `fill`, which may speak of
    /// another lap.
    pub private_block_table: bool,
    /// A broken block is not reused before its grant has come back. Off: its reader reads the next incarnation.
    pub broken_block_waits_for_its_grant: bool,
    /// A waiting reader looks at the commit words itself. Off: a completer that dies before its wake stops it.
    pub reader_looks_at_words: bool,

    /// Finishing begins when every writer is gone and the daemon has noticed. Off: it begins over the head of a
    /// worker with a live record.
    pub finishing_waits_for_writers: bool,
    /// That the table is finishing is in the daemon's private record before anything is done about it. Off: a
    /// restarted daemon opens the cursor again.
    pub finishing_is_recorded: bool,
    /// No writer attaches to a table that is finishing.
    pub finishing_refuses_writers: bool,
    /// A block's bytes are moved together before its record says `Finishing`. Off: the record comes first, and a
    /// restarted daemon moves bytes that a reader is reading.
    pub bytes_moved_before_finishing_record: bool,
    /// A block's record says `Finishing`, with its counted bits, before any further commit bit is set. Off: a
    /// restarted daemon counts the bits that it set itself.
    pub finishing_record_before_words: bool,
    /// A block's true length is stored before its commit words become full. Off: a reader that looks for itself
    /// delivers slots that hold nothing.
    pub length_before_words: bool,
    /// A reader reads the length after it saw that the block is complete. Off: when it gets the grant.
    pub length_read_after_complete: bool,
    /// A finished block wakes its reader. Off: it sleeps for ever.
    pub finishing_wakes_readers: bool,
    /// The grant of a block that holds nothing is taken back. Off: its reader waits for ever.
    pub empty_grant_is_taken_back: bool,

    /// An alternative, not a rule of the protocol: the reader reads `ready` once more after its own look, which
    /// would make [`Rules::broken_block_waits_for_its_grant`] unnecessary.
    pub reader_reads_ready_again: bool,
}

impl Rules {
    /// The protocol as it is.
    pub const ON: Rules = Rules {
        fill_read_before_cas: true,
        record_cleared_after_lost_cas: true,
        hole_block_checked: true,
        ready_carries_sequence: true,
        commit_is_cas: true,
        reclaim_order: true,
        rescue_called_off_when_complete: true,
        quarantine_until_records_clear: true,
        daemon_copies_under_closed_cursor: true,
        drop_marks_record_first: true,
        space_read_before_limit: true,
        broken_before_quarantine_record: true,
        second_record_while_moving: true,
        last_block_never_quarantined: true,
        private_block_table: true,
        broken_block_waits_for_its_grant: true,
        reader_looks_at_words: true,
        finishing_waits_for_writers: true,
        finishing_is_recorded: true,
        finishing_refuses_writers: true,
        bytes_moved_before_finishing_record: true,
        finishing_record_before_words: true,
        length_before_words: true,
        length_read_after_complete: true,
        finishing_wakes_readers: true,
        empty_grant_is_taken_back: true,
        reader_reads_ready_again: false,
    };
}
