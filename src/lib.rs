//! The core of echo.
pub mod ids;
pub mod spec;
pub mod sync;
pub mod wire;
