//! What the fake CUDA libraries of the tests are made of.
//!
//! Three shared objects are built of this: two runtimes (`libcudart.so.12`, `libcudart.so.13`) and the driver's
//! library (`libcuda.so.1`). They answer with the codes that real ones answer with, and a registration takes a real pin
//! from the kernel, so that a mistake which a GPU would show as wrong bytes shows as wrong bytes here.
//!
//! Always: each library that is loaded has a state of its own, since this crate is linked into each; no call panics
//! for what a caller does; every call is written to the journal, whatever it answers.
//!
//! The functions are safe where C's pointers are: what may be NULL is an `Option` of a reference, and memory of the caller is a number
//! until it is copied.
//!
//! What it deliberately does not do: kernels, streams, device pointers of the runtime (`cudaMalloc`), peers, memory
//! of the host in the virtual memory calls. One process's driver does not know what another's has allocated.

pub mod codes;
mod contexts;
mod device_memory;
mod devices;
pub mod driver;
mod journal;
mod knobs;
mod library;
mod maps;
mod out;
mod physical;
mod pin;
mod registrations;
pub mod runtime;
mod virtual_memory;

pub use codes::Code;
pub use device_memory::{AccessDescription, Location, Properties};
pub use library::Library;
pub use out::Out;
