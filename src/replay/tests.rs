//! The replay core against plain models, and against what Reverb's documents promise.

pub(crate) mod chi_squared;
