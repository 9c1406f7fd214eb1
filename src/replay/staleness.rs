//! How far samples lag behind the trainer, and how many more may be made before they would lag too far.
//!
//! The lag of a sample is the trainer's version less the one that made it, and 0 if that is not positive. Removing what
//! lags too far is done by the [index](super::index), weighing by age by the
//! [weights](super::selector::prioritized). Here is what keeps workers from making what nobody will use.

use crate::replay::settings::Admission;

/// What has been let in and used up, in samples, since the same beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// In the making.
    pub running: u64,
    /// Made, whether consumed or not.
    pub accepted: u64,
    /// Consumed by the trainer, or dropped.
    pub consumed: u64,
}

impl Flow {
    /// What is known when a trainer begins at a version, after `version` of them have been consumed, with `waiting`
    /// samples in the table that it has not seen.
    ///
    /// A trainer that starts again from an older version, or a newer one, changes what has been consumed and with it
    /// what has been accepted. Counting on from numbers of before would let in a burst, or nothing for a long time.
    pub fn restored(admission: &Admission, version: u64, waiting: u64, running: u64) -> Self {
        let consumed = version.saturating_mul(admission.samples_per_version.into());
        Self { running, accepted: consumed.saturating_add(waiting), consumed }
    }
}

impl Admission {
    /// How many more samples may be begun now so that none of them, consumed in the order in which they were begun,
    /// lags by more than `max_staleness`.
    ///
    /// A sample that is begun now is of the present version. Before it, `accepted + running - consumed` others will be
    /// consumed, and the trainer makes a version of each `samples_per_version`; so it lags by that number divided by
    /// `samples_per_version`, rounded down. With `consumed = version * samples_per_version` this is
    /// `(max_staleness + version + 1) * samples_per_version - (accepted + running)`.
    pub fn admissible(&self, max_staleness: u64, flow: &Flow) -> u64 {
        let Flow { running, accepted, consumed } = *flow;
        let ahead = max_staleness.saturating_add(1).saturating_mul(self.samples_per_version.into());
        let waiting = accepted.saturating_sub(consumed).saturating_add(running);
        ahead.saturating_sub(waiting).min(u64::from(self.max_running).saturating_sub(running))
    }
}

/// How many samples had which lag, in a fixed number of buckets: 0, 1, 2 to 3, 4 to 7, and so on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LagHistogram {
    /// The last one has all that lie beyond.
    pub buckets: [u64; Self::BUCKETS],
    /// Samples that have no version, or had none to compare with.
    pub unversioned: u64,
}

impl LagHistogram {
    /// How many buckets there are.
    pub const BUCKETS: usize = 33;

    /// The smallest lag of a bucket.
    pub fn from(bucket: usize) -> u64 {
        if bucket == 0 { 0 } else { 1 << (bucket - 1) }
    }

    /// Counts a sample.
    #[inline]
    pub fn add(&mut self, version: Option<u64>, trainer: Option<u64>) {
        match version.zip(trainer) {
            Some((version, trainer)) => {
                let lag = trainer.saturating_sub(version);
                let bucket = (u64::BITS - lag.leading_zeros()) as usize;
                self.buckets[bucket.min(Self::BUCKETS - 1)] += 1;
            }
            None => self.unversioned += 1,
        }
    }
}

impl Default for LagHistogram {
    fn default() -> Self {
        Self { buckets: [0; Self::BUCKETS], unversioned: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADMISSION: Admission = Admission { samples_per_version: 4, max_running: 100 };

    /// The same, told by versions and not by what was consumed.
    fn by_versions(max: i128, version: i128, batch: i128, accepted: i128, running: i128, most: i128) -> i128 {
        (most - running).min((max + version + 1) * batch - (accepted + running)).max(0)
    }

    proptest! {
        #![proptest_config(crate::cases::cases(5_000))]

        #[test]
        fn a_trainer_that_consumes_by_versions_lets_in_by_versions(
            (max, version, batch, most) in (0..9_u64, 0..1000_u64, 1..64_u32, 1..512_u32),
            (waiting, running) in (0..2000_u64, 0..600_u64),
        ) {
            let admission = Admission { samples_per_version: batch, max_running: most };
            // As after a restart of the trainer: what was accepted is what the version says, and what waits.
            let flow = Flow::restored(&admission, version, waiting, running);
            let [max_, version, batch, most] = [max, version, batch.into(), most.into()].map(i128::from);
            let expected = by_versions(max_, version, batch, flow.accepted.into(), running.into(), most);
            prop_assert_eq!(i128::from(admission.admissible(max, &flow)), expected);
        }

        /// Workers begin all that they may, in rounds; the trainer makes a version of each batch.
        #[test]
        fn what_is_let_in_is_never_staler_than_allowed_and_never_runs_dry(
            (max, batch, most) in (0..5_u64, 1..20_u32, 1..40_u32),
            finishing in proptest::collection::vec(1..40_usize, 60),
        ) {
            let admission = Admission { samples_per_version: batch, max_running: most };
            let mut flow = Flow::default();
            let (mut running, mut made) = (std::collections::VecDeque::new(), std::collections::VecDeque::new());
            let mut version = 0;
            for finish in finishing {
                for _ in 0..admission.admissible(max, &flow) {
                    running.push_back(version);
                    flow.running += 1;
                }
                prop_assert!(flow.running <= u64::from(most));
                prop_assert!(!running.is_empty() || made.len() >= batch as usize, "everybody waits");
                let finished = finish.min(running.len());
                made.extend(running.drain(..finished));
                flow.running -= finished as u64;
                flow.accepted += finished as u64;
                while made.len() >= batch as usize {
                    for version_of in made.drain(..batch as usize) {
                        prop_assert!(version - version_of <= max);
                    }
                    flow.consumed += u64::from(batch);
                    version += 1;
                }
            }
        }
    }

    #[test]
    fn a_restart_lets_in_neither_a_burst_nor_nothing() {
        // Version 1000 began again at 10, with 3 samples in the table and 2 in the making.
        let flow = Flow::restored(&ADMISSION, 10, 3, 2);
        assert_eq!(flow, Flow { running: 2, accepted: 43, consumed: 40 });
        assert_eq!(ADMISSION.admissible(1, &flow), 3);
        // Without it, what was accepted before would be far ahead of what is consumed, or far behind.
        assert_eq!(ADMISSION.admissible(1, &Flow { consumed: 40, accepted: 4003, running: 2 }), 0);
        assert_eq!(
            ADMISSION.admissible(u64::MAX, &Flow { running: u64::MAX, accepted: u64::MAX, consumed: 0 }),
            0
        );
    }

    #[test]
    fn every_lag_has_a_bucket() {
        let mut lags = LagHistogram::default();
        for (version, trainer) in [(5, 5), (9, 5), (4, 5), (2, 5), (1, 5), (0, 1 << 31), (0, u64::MAX)] {
            lags.add(Some(version), Some(trainer));
        }
        lags.add(None, Some(3));
        lags.add(Some(3), None);
        assert_eq!(lags.unversioned, 2);
        assert_eq!((lags.buckets[0], lags.buckets[1], lags.buckets[2], lags.buckets[3]), (2, 1, 1, 1));
        assert_eq!(lags.buckets[32], 2, "2^31 and all beyond");
        assert_eq!([0, 1, 2, 3, 32].map(LagHistogram::from), [0, 1, 2, 4, 1 << 31]);
    }
}
