//! The processes of a run: started together, ended together.
//!
//! Each is this executable in a hidden role, and none outlives the director: the kernel kills them when it ends,
//! however it ends.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use echo::wire::socket::wait_readable;
use echo_client::{Client, ConnectOptions};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open};

use crate::private_dir::PrivateDir;
use crate::sample::{TABLE, table_spec};
use crate::{Arguments, Role, weights};

const WORKERS: usize = 4;
/// Time between two killed workers.
const KILL_EVERY: Duration = Duration::from_secs(1);
/// Time in which what is told to end must end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Names the process whose end is the end of this one.
const PARENT: &str = "CARTPOLE_PARENT";

/// Starts the others, kills workers if it is to, and ends with the trainer's outcome.
pub fn direct(arguments: &Arguments) -> Result<ExitCode> {
    let directory = PrivateDir::new()?;
    // Everybody in the run gets these.
    let arguments = &Arguments { directory: directory.path().to_owned(), ..arguments.clone() };
    let daemon = if arguments.socket.is_none() { Some(start_daemon(directory.path())?) } else { None };
    let client = connect(arguments)?;
    client.create_table(&table_spec())?;
    client.create_table(&weights::table_spec())?;

    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let start_worker = |seed| start(Role::Worker, &Arguments { seed, ..arguments.clone() });
    let mut workers: Vec<Child> =
        (0..WORKERS).map(|_| start_worker(random.u64(..))).collect::<Result<_>>()?;
    let mut trainer = start(Role::Trainer, arguments)?;
    let trainer_ends = pidfd_open(Pid::from_child(&trainer), PidfdFlags::empty())?;

    let mut next = Instant::now() + KILL_EVERY;
    while !wait_readable(trainer_ends.as_fd(), next)? {
        next += KILL_EVERY;
        for worker in &mut workers {
            if let Some(status) = worker.try_wait()? {
                bail!("a worker has ended: {status}");
            }
        }
        if arguments.kill_workers {
            let victim = &mut workers[random.usize(..WORKERS)];
            victim.kill()?;
            victim.wait()?;
            *victim = start_worker(random.u64(..))?;
        }
    }
    let solved = trainer.wait()?;
    if !solved.success() {
        // One that failed early has not dropped the tables, and the workers would wait for room and for weights.
        let _ = client.drop_table(TABLE);
        let _ = client.drop_table(weights::TABLE);
    }
    for mut worker in workers {
        // The trainer has dropped the tables, of which they hear.
        if !end(&mut worker)? {
            bail!("a worker failed");
        }
    }
    drop(client);
    if let Some(mut daemon) = daemon {
        kill_process(Pid::from_child(&daemon), Signal::TERM)?;
        if !end(&mut daemon)? {
            bail!("the daemon failed");
        }
    }
    Ok(if solved.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for the end of a process, and says whether it was a good one.
fn end(child: &mut Child) -> Result<bool> {
    let ends = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    if !wait_readable(ends.as_fd(), Instant::now() + PATIENCE)? {
        child.kill()?;
    }
    Ok(child.wait()?.success())
}

fn start(role: Role, arguments: &Arguments) -> Result<Child> {
    command(role, arguments)?.spawn().with_context(|| format!("cannot start the {role:?}"))
}

fn command(role: Role, arguments: &Arguments) -> Result<Command> {
    let executable = std::env::current_exe().context("cannot find this executable")?;
    let mut command = Command::new(executable);
    command
        .arg("--role")
        .arg(format!("{role:?}").to_lowercase())
        .arg("--directory")
        .arg(&arguments.directory);
    command.arg("--seed").arg(arguments.seed.to_string()).env(PARENT, std::process::id().to_string());
    if arguments.kill_workers {
        command.arg("--kill-workers");
    }
    if arguments.pin {
        command.arg("--pin");
    }
    if let Some(socket) = &arguments.socket {
        command.arg("--socket").arg(socket);
    }
    if matches!(role, Role::Daemon) {
        // What is configured for another daemon is not for this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ECHO_")) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Starts the daemon, and waits until it serves.
fn start_daemon(directory: &Path) -> Result<Child> {
    let ready = UnixDatagram::bind(directory.join("notify"))?;
    ready.set_read_timeout(Some(PATIENCE))?;
    let nothing = Arguments {
        kill_workers: false,
        pin: false,
        socket: None,
        seed: 0,
        role: Role::Daemon,
        directory: directory.into(),
    };
    let mut command = command(Role::Daemon, &nothing)?;
    let daemon = command.env("NOTIFY_SOCKET", directory.join("notify")).spawn()?;
    let mut said = [0; 16];
    ready.recv(&mut said).context("the daemon does not say that it is ready")?;
    Ok(daemon)
}

/// The daemon's part.
pub fn daemon(directory: &Path) -> Result<ExitCode> {
    use echod::{cli::Cli, config::Config, logging, run, surroundings::Surroundings};
    let cli = Cli {
        config: Some("/dev/null".into()),
        socket: Some(directory.join("echod.sock").into()),
        log: Some("warn".into()),
        ..Cli::default()
    };
    let surroundings = Surroundings::of_this_process();
    let config = Config::load(&cli, &surroundings)?;
    logging::init(&config, &surroundings)?;
    run::run(&config)?;
    Ok(ExitCode::SUCCESS)
}

/// Lets the kernel end this process when the one that started it ends.
pub fn with_its_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let started_by: Option<i32> = std::env::var(PARENT).ok().and_then(|pid| pid.parse().ok());
    // It may have ended before the kernel was asked.
    if getppid().map(|pid| pid.as_raw_pid()) != started_by {
        bail!("the process that started this one is gone");
    }
    Ok(())
}

/// A connection to the daemon of this run, under the name of the part that this process plays.
pub fn connect(arguments: &Arguments) -> Result<Client> {
    let socket = arguments.socket.clone().unwrap_or_else(|| arguments.directory.join("echod.sock"));
    let name = format!("cartpole {:?}", arguments.role).to_lowercase();
    Ok(Client::connect(&ConnectOptions { socket: Some(socket), name, ..ConnectOptions::default() })?)
}
