//! echod.
