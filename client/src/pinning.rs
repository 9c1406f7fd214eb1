//! Page-locking a reader's mapping with CUDA, so that a copy of a batch to a GPU is one DMA.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use echo::host_pinning::{CHUNK_BYTES, CudaApi, Permission, PinError, Progress, Search, advice, resolve};
use echo::ring::buf::{Pinned, Pinning};
use echo::wire::message::PinReport;

use crate::connection::Wanted;
use crate::latest::LatestReader;
use crate::member::Member;
use crate::reader::Reader;
use crate::{Error, Result};

/// How much longer than a call a turn may be waited for, for each GiB of the table: registering one takes a second at
/// worst, and several readers may be before.
const PATIENCE_PER_GIB: Duration = Duration::from_secs(10);

/// Of a device that uses this machine's page tables.
const NOT_LOCKED: &str = "registered and not locked (the device uses this machine's page tables)";

/// How a reader page-locks what it has mapped.
#[derive(Clone)]
pub struct PinOptions {
    /// The file of the CUDA runtime. If none is named, nor in `ECHO_CUDART`, one is searched for: the one that this
    /// process has loaded comes first.
    pub library: Option<PathBuf>,
    /// Directories of CUDA's vendor packages (`.../site-packages/nvidia`), whose wheels are searched; those in
    /// `ECHO_CUDA_VENDOR_ROOTS` come after them.
    pub vendor_roots: Vec<PathBuf>,
    /// Most bytes of one registration, if a batch of one array is not larger.
    pub chunk_bytes: usize,
    /// Called after each registration, in the thread that pins.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// Asked ten times a second while other readers have the turn, in the thread that waits for it: if it says no,
    /// the call ends with [`Error::Cancelled`].
    pub wanted: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// Functions to be used instead of a library that is searched for.
    pub api: Option<CudaApi>,
}

impl Default for PinOptions {
    fn default() -> Self {
        Self {
            library: None,
            vendor_roots: Vec::new(),
            chunk_bytes: CHUNK_BYTES,
            progress: None,
            wanted: None,
            api: None,
        }
    }
}

impl fmt::Debug for PinOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinOptions")
            .field("library", &self.library)
            .field("vendor_roots", &self.vendor_roots)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("api", &self.api)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Page-locks the samples of the whole table in this process, with the CUDA runtime that is found, until the reader
    /// and its last batch are gone. All of it, or an error that says why not; batches may be out meanwhile.
    ///
    /// Call it in the thread that uses the GPU, after the framework has chosen its device: registering starts CUDA in
    /// this process, which creates a context on the thread's current device unless there is one.
    ///
    /// Readers take turns, since several processes that register the same memory at once fail each other; this waits
    /// for the others. The reader must have attached with
    /// [`registrable`](crate::ReaderOptions::registrable), unless its device registers read-only memory.
    ///
    /// # Errors
    /// [`Error::Pin`] with every library that was tried, CUDA's error by its symbol, and what to do;
    /// [`Error::TimedOut`] if other readers have the turn for too long, [`Error::Cancelled`], [`Error::Gone`],
    /// [`Error::Forked`].
    pub fn pin_host_memory(&self, options: &PinOptions) -> Result<Pinned> {
        self.attached.member.pin_host_memory(options)
    }
}

impl LatestReader {
    /// As [`Reader::pin_host_memory`], until the reader and its last value are gone.
    ///
    /// # Errors
    /// As that.
    pub fn pin_host_memory(&self, options: &PinOptions) -> Result<Pinned> {
        self.taking.member.pin_host_memory(options)
    }
}

impl Member {
    fn pin_host_memory(&self, options: &PinOptions) -> Result<Pinned> {
        // In a child CUDA is of no use, and the mapping is not there.
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        // Finding and starting a library takes long at times, and is nobody else's business: not in the turn.
        let (api, probes) = match &options.api {
            Some(api) => (api.clone(), Vec::new()),
            None => {
                let search = Search::of_this_process(options.library.as_deref(), &options.vendor_roots);
                let resolved = resolve(&search)?;
                (resolved.api, resolved.probes)
            }
        };
        let table = self.table();
        // One thread of this process at a time; another would be told that this reader has the turn already.
        let _alone = self.pinning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = table.arrays.pinned_by() {
            return Err(PinError::Already { library }.into());
        }
        table.arrays.prefault()?;
        let gibs = u32::try_from(table.arrays.committed() >> 30).unwrap_or(u32::MAX);
        let patience = self.connection.timeout().saturating_add(PATIENCE_PER_GIB.saturating_mul(gibs));
        let turn = Turn::of(self, patience, options.wanted.as_deref())?;
        let mut progress = |progress| options.progress.iter().for_each(|told| told(progress));
        let how = Pinning {
            chunk_bytes: options.chunk_bytes,
            ..Pinning::of_rows(table.spec.batch_size, &mut progress)
        };
        // SAFETY: this process mapped the table for this reader, which has no way to write to it; a writer of the same
        // table has a mapping of its own.
        let pinned = unsafe { table.arrays.pin_to_read(&api, how) }.map_err(|error| error.after(&probes))?;
        turn.end_with(report(&pinned, &api));
        Ok(pinned)
    }
}

/// It is this reader's turn. However it ends, the others are told.
struct Turn<'a> {
    member: &'a Member,
}

impl<'a> Turn<'a> {
    fn of(member: &'a Member, patience: Duration, wanted: Option<&Wanted<'_>>) -> Result<Self> {
        member.connection.begin_pin(member.id, patience, wanted)?;
        Ok(Self { member })
    }

    /// Something is registered.
    fn end_with(self, report: PinReport) {
        self.member.connection.end_pin(self.member.id, report);
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    /// Nothing more is registered than before.
    fn drop(&mut self) {
        self.member.connection.end_turn(self.member.id);
    }
}

fn report(pinned: &Pinned, api: &CudaApi) -> PinReport {
    // What matters most comes first: the daemon cuts what is long.
    let version = api.versions().runtime.map(|number| format!("CUDA {}", advice::version(number)));
    let notice = (!pinned.locked).then(|| NOT_LOCKED.to_owned());
    let said: Vec<String> = version.into_iter().chain(notice).chain([pinned.library.clone()]).collect();
    PinReport {
        bytes: pinned.bytes,
        registrations: u32::try_from(pinned.pieces).unwrap_or(u32::MAX),
        library: said.join(", "),
        read_only: pinned.permission == Permission::ReadOnly,
    }
}
