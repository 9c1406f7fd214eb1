//! From a configuration to a serving daemon, and to its end.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use echo::memory::MemoryGovernor;
use echo::spec::TableSpec;
use echo::table::store::{Store, StoreError};
use echo::token::instance_id;
use echo::wire::fds::inherited_listener;
use echo::wire::socket;
use echo::wire::socket_path::SocketGuard;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::config::{Config, Declared};
use crate::connection;
use crate::door::Door;
use crate::exit::Exit;
use crate::limits::Limits;
use crate::readiness;
use crate::supervisor::creation::progress;
use crate::supervisor::{Input, Supervisor};

/// Inputs that may wait for the supervisor; beyond it, connections wait.
const INPUTS: usize = 4096;
/// Tables in all.
const TABLES: u32 = 1024;
/// Writers and readers of one client.
const MEMBERS: u32 = 256;

/// Why the daemon does not serve.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum RunError {
    #[error("the inherited socket cannot be used")]
    Inherited(#[source] echo::wire::fds::InheritedError),
    #[error(transparent)]
    Socket(#[from] echo::wire::socket_path::SocketPathError),
    #[error("cannot set up the event loop")]
    Loop(#[source] io::Error),
    #[error("table {name:?}, which the configuration declares, cannot be made")]
    Table { name: String, source: Box<StoreError> },
    #[error("the kernel gives no random numbers")]
    Random(#[source] io::Error),
}

impl RunError {
    /// What the daemon exits with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Inherited(_) => Exit::Config,
            Self::Socket(error) => match error.io_kind() {
                Some(io::ErrorKind::PermissionDenied) => Exit::NoPerm,
                Some(io::ErrorKind::AddrInUse) => Exit::Unavailable,
                None if error.is_taken() => Exit::Unavailable,
                _ => Exit::CantCreate,
            },
            // What another configuration repairs, and no restart does.
            Self::Table { source, .. } if source.is_refusal() => Exit::Config,
            Self::Loop(_) | Self::Random(_) | Self::Table { .. } => Exit::OsErr,
        }
    }
}

/// Serves until SIGTERM or SIGINT, then drains. A second signal ends the draining.
///
/// # Errors
/// If it cannot start. Once it serves, nothing but a signal ends it.
pub fn run(config: &Config) -> Result<(), RunError> {
    let (listener, guard) = match inherited_listener().map_err(RunError::Inherited)? {
        Some(inherited) => (inherited, None),
        None => {
            let (listener, guard) = SocketGuard::bind(&config.socket.value)?;
            (listener, Some(guard))
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Loop)?;
    let result = runtime.block_on(serve(config, listener));
    // A table that is still being made is not waited for.
    runtime.shutdown_background();
    drop(guard);
    result
}

async fn serve(config: &Config, listener: OwnedFd) -> Result<(), RunError> {
    let limits = Limits {
        clients_per_uid: config.max_clients.value,
        pending_per_uid: config.max_pending.value,
        calls_per_uid: config.max_calls.value,
        leases_per_uid: config.max_leases.value,
        tables_per_uid: config.max_tables.value,
        hello_timeout: config.hello_timeout.value,
        drain_timeout: config.drain_timeout.value,
        prefault_threads: config.prefault_threads.value,
        tables: TABLES,
        members_per_client: MEMBERS,
        own_uid: rustix::process::geteuid().as_raw(),
    };
    let governor = Arc::new(MemoryGovernor::new(config.host_budget.value.0, config.uid_budget.value.0));
    let instance = instance_id().map_err(RunError::Random)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Loop)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Loop)?;
    // Its default would end the daemon where a table is larger than RLIMIT_FSIZE allows; handled, the table is
    // refused.
    let too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    let _too_large = signal(too_large).map_err(RunError::Loop)?;
    raise_descriptor_limit();
    let (inputs, received) = mpsc::channel(INPUTS);
    let mut supervisor = Supervisor::new(limits.clone(), governor.clone(), instance, inputs.clone());
    for table in &config.tables {
        let Declared { spec, access, groups } = &table.value;
        let made = declared(spec, &governor, &limits);
        tokio::select! {
            store = made => supervisor.declare(store?, access.clone(), groups),
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
    // An inherited one is where the service manager put it.
    let socket = socket::path_of(listener.as_fd()).unwrap_or_else(|| config.socket.value.clone());
    if let Err(error) = socket::refuse_descriptors(listener.as_fd()) {
        warn!(%error, "clients may send descriptors, which are closed");
    }
    if let Err(error) = echo::peer::prepare(listener.as_fd()) {
        warn!(%error, "clients that die without a word cannot be told from clients that live");
    }
    let listener = readiness::watch(listener, Interest::READABLE).map_err(RunError::Loop)?;
    let mut supervising = tokio::spawn(supervisor.run(received));
    info!(socket = %socket.display(), "serving");
    // Without systemd there is nobody to notify.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    let (alive, mut all_ended) = mpsc::channel(1);
    let accepting = tokio::spawn(accept_all(listener, limits, inputs.clone(), alive.clone()));
    let mut told_to_stop = false;
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            ended = &mut supervising => {
                if let Err(panic) = ended {
                    std::panic::resume_unwind(panic.into_panic());
                }
                break;
            }
        }
        // Without systemd there is nobody to notify.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        // If the supervisor is gone, the loop ends by itself.
        let _ = inputs.send(if told_to_stop { Input::Stop } else { Input::Drain }).await;
        told_to_stop = true;
    }
    accepting.abort();
    drop((inputs, alive));
    // The connections say their last words: the channel closes with the last of them.
    let _ = tokio::time::timeout(connection::LAST_WORDS, all_ended.recv()).await;
    info!("stopped");
    Ok(())
}

/// Lets the daemon have as many descriptors as it may: a table costs five and a client four.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What cannot be raised is what there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The table that the configuration declares. Those who connect find all of them there.
async fn declared(
    spec: &TableSpec,
    governor: &Arc<MemoryGovernor>,
    limits: &Limits,
) -> Result<Store, RunError> {
    let (name, spec, governor) = (spec.name.clone(), spec.clone(), governor.clone());
    let (uid, threads) = (limits.own_uid, limits.prefault_threads);
    let create =
        move || Store::create(&spec, &governor, uid, threads, progress(spec.name.clone(), Arc::default()));
    let made = tokio::task::spawn_blocking(create).await.map_err(|ended| RunError::Loop(ended.into()))?;
    made.map_err(|source| RunError::Table { name, source: Box::new(source) })
}

/// Serves every connection.
async fn accept_all(
    listener: AsyncFd<OwnedFd>,
    limits: Limits,
    inputs: mpsc::Sender<Input>,
    alive: mpsc::Sender<Infallible>,
) {
    let door = Door::new(limits.clients_per_uid, limits.pending_per_uid, limits.calls_per_uid);
    let door = Arc::new(door);
    loop {
        if let Some(fd) = accept(&listener).await {
            let (inputs, door, alive) = (inputs.clone(), door.clone(), alive.clone());
            tokio::spawn(connection::serve(fd, inputs, door, limits.hello_timeout, alive));
            // A backlog that never empties must not keep the only thread.
            tokio::task::yield_now().await;
        }
    }
}

/// The next connection; `None` if there is none after all.
async fn accept(listener: &AsyncFd<OwnedFd>) -> Option<OwnedFd> {
    let mut ready = listener.readable().await.ok()?;
    match socket::accept(listener.get_ref().as_fd()) {
        Ok(Some(fd)) => Some(fd),
        Ok(None) => {
            ready.clear_ready();
            None
        }
        Err(error) => {
            warn!(%error, "cannot accept a connection");
            // Out of descriptors, say: the listener stays readable, and trying at once would spin.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            None
        }
    }
}
