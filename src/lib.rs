//! The core of echo.
pub mod ids;
pub mod ring;
pub mod spec;
pub mod sync;
pub mod table;
pub mod wire;
