//! The client of echo: writes samples into rings that the daemon owns, and reads batches out of them.
//!
//! A rollout worker:
//!
//! ```no_run
//! use echo_client::{ArraySpec, Client, DType, TableSpec};
//!
//! let client = Client::connect_default()?;
//! let arrays = vec![ArraySpec::new("obs", DType::F32, [4]), ArraySpec::new("reward", DType::F32, [])];
//! client.create_table(&TableSpec::new("rollouts", arrays, 256, 8))?;
//! let mut writer = client.attach_writer("rollouts", None)?;
//! for step in 0..1000 {
//!     let (obs, reward) = ([0.5_f32; 4], step as f32);
//!     let obs: Vec<u8> = obs.iter().flat_map(|x| x.to_le_bytes()).collect();
//!     writer.append(&[&obs, &reward.to_le_bytes()])?;
//! }
//! writer.finish()?;
//! # Ok::<(), echo_client::Error>(())
//! ```
//!
//! A trainer:
//!
//! ```no_run
//! use std::time::Duration;
//! use echo_client::{Client, Error};
//!
//! let client = Client::connect_default()?;
//! let mut reader = client.attach_reader("rollouts", None, Default::default())?;
//! loop {
//!     let batch = match reader.next_batch(Duration::from_secs(60)) {
//!         Ok(batch) => batch,
//!         Err(Error::Closed { .. }) => break,
//!         Err(error) => return Err(error),
//!     };
//!     let rewards: &[f32] = batch.array(1).as_slice()?;
//!     println!("{} samples, mean reward {}", batch.len(), rewards.iter().sum::<f32>() / batch.len() as f32);
//! } // dropping a batch gives its block back to the workers
//! # Ok::<(), Error>(())
//! ```
//!
//! What every worker wants the newest of, such as the weights of a policy, is in a latest table: one publishes, all take it
//! where it lies.
//!
//! ```no_run
//! use echo_client::{ArraySpec, Client, DType, TableSpec};
//!
//! let client = Client::connect_default()?;
//! let arrays = vec![ArraySpec::new("weights", DType::F32, [10_000_000])];
//! client.create_table(&TableSpec::latest("policy", arrays))?;
//! let mut publisher = client.attach_publisher("policy", None)?;
//! let mut claim = publisher.claim()?;
//! claim.array_mut_as::<f32>(0)?.fill(0.5);
//! claim.publish()?;
//!
//! let reader = client.attach_latest("policy", None, Default::default())?; // in each worker
//! let mut version = 0;
//! if let Some(value) = reader.newer_than(version)? {
//!     let weights: &[f32] = value.array(0).as_slice()?;
//!     println!("version {} begins with {}", value.version(), weights[0]);
//!     version = value.version();
//! } // dropping the value lets its room be written again
//! # let _ = version;
//! # Ok::<(), echo_client::Error>(())
//! ```
//!
//! Everything is blocking and made of plain threads; nothing here installs a signal handler. On a sample's way
//! there is no system call and no lock: a worker claims positions, copies and commits by atomics in shared
//! memory, and a batch that is complete costs its trainer a few loads. Every wait has a deadline, can be
//! cancelled from another thread ([`Canceller`]), and ends at once when the daemon is gone; what is mapped then
//! stays readable. A forked child can use nothing that its parent made: every call says [`Error::Forked`], and
//! the bytes of a claim or a batch are not handed out there.
//!
//! Reading order: [`Client`], then a sample's way: `writer`, `claim`, `reader`, `batch`, and a value's: `publisher`,
//! `latest`; beneath them `member` and `table` (what is mapped), `wait`, `inbox` (what one member was told), `connection` (the
//! socket and its thread).

mod batch;
mod claim;
mod client;
mod connection;
mod element;
mod error;
mod gather;
mod inbox;
mod latest;
mod member;
mod pinning;
mod publisher;
mod reader;
mod replay_writer;
mod sampled;
mod sampler;
mod search;
mod staging;
mod status;
mod table;
mod wait;
mod writer;

pub use batch::{ArrayView, Batch};
pub use claim::{Claim, ClaimAside, check_marks};
pub use client::{Client, ConnectOptions, CreatedTable};
pub use echo::access::{AccessList, Role, Roles, Rule, RuleError, Who};
pub use echo::host_pinning;
pub use echo::replay::settings as replay;
pub use echo::ring::buf::Pinned;
pub use echo::ring::hold::HOLDS;
pub use echo::ring::marks::Mark;
pub use echo::spec::{ArraySpec, DType, HugePages, Pin, TableKind, TableSpec, VALUES};
pub use echo::table::group::DEFAULT_GROUP;
pub use echo::wire::message;
pub use echo::wire::message::GroupFrom;
pub use element::Element;
pub use error::Error;
pub use inbox::Canceller;
pub use latest::{LatestOptions, LatestReader, Value};
pub use pinning::PinOptions;
pub use publisher::{Publisher, ValueClaim};
pub use reader::{Reader, ReaderOptions, wait_any};
pub use replay_writer::{ReplayClaim, ReplayWriter};
pub use sampled::{Chosen, Largest, SampledBatch};
pub use sampler::{Counted, Sampler, SamplerOptions};
pub use search::{SOCKET_VARIABLE, SocketPlace, SocketSource, search, socket_places};
pub use status::status;
pub use writer::Writer;

/// What a call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
