//! The command line: what `echod --help` says, word for word.
//!
//! Settings are kept as text here. The configuration reads them, by the same rules and with the same
//! messages as those of the environment and the file.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Parser, ValueHint};

use crate::config::Key;
use crate::exit::Exit;

const LONG_ABOUT: &str = "\
Moves samples from rollout workers to trainers on one machine, through shared memory.

echod owns the tables: page-locked ring buffers in shared memory. Workers and trainers connect to its socket,
get the memory of a table handed over, and from then on write and read there by themselves.";

const WHERE_VALUES_COME_FROM: &str = "\
Where a value comes from, the strongest first:
  1. a flag, such as --host-budget \"64 GiB\"
  2. the environment variable of that name, such as ECHO_HOST_BUDGET; an empty one counts as not set
  3. the configuration file, such as host_budget = \"64 GiB\"
  4. the default
'echod --print-config' shows each value and which of these it came from, as a configuration file.

The configuration file is the one that --config or ECHO_CONFIG names, else the first of these that exists:
  $XDG_CONFIG_HOME/echo/echod.toml   (not for root; ~/.config if XDG_CONFIG_HOME is not set)
  /etc/echo/echod.toml
Tables are declared in the file alone:
  [[table]]
  name = \"rollouts\"
  batch_size = 256           # samples in a batch
  capacity = 8               # batches in the table
  max_capacity = 16          # batches it may grow to; default: capacity
  pin = \"required\"           # or \"best-effort\" (the default), \"off\"
  huge_pages = \"auto\"        # or \"required\", \"off\"
  access = [\"group:ml=write,read\", \"user:ann=administer\", \"everyone=observe\"]
  arrays = [
      { path = \"obs\", dtype = \"float32\", shape = [4] },
      { path = \"reward\", dtype = \"float32\", shape = [] },
  ]";

/// What somebody would type, and what for.
pub const EXAMPLES: &str = "  echod
      For yourself: listen on $XDG_RUNTIME_DIR/echo/echod.sock
  echod --socket /tmp/echod.sock --host-budget \"8 GiB\" --log debug
      Try something out
  echod --config /etc/echo/echod.toml --print-config
      Check a file and see what it comes to";

/// What the help ends with.
fn after_long_help() -> String {
    let codes: Vec<String> =
        Exit::ALL.iter().map(|(exit, meaning)| format!("  {:>2}  {meaning}", exit.code())).collect();
    format!(
        "{WHERE_VALUES_COME_FROM}\n\nExamples:\n{EXAMPLES}\n\nExit codes, as in sysexits.h:\n{}",
        codes.join("\n")
    )
}

/// Moves samples from rollout workers to trainers on one machine, through shared memory
#[derive(Parser, Clone, PartialEq, Eq, Debug, Default)]
#[command(name = "echod", version, long_about = LONG_ABOUT, after_long_help = after_long_help())]
#[command(after_help = "'--help' says more: the file, the environment, examples, exit codes")]
pub struct Cli {
    /// Read this configuration file; it must exist
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Print the configuration and where each value came from, and exit
    #[arg(long)]
    pub print_config: bool,

    /// Listen on this socket
    ///
    /// An absolute path. Default: $XDG_RUNTIME_DIR/echo/echod.sock, or /run/echo/echod.sock for root
    /// and where XDG_RUNTIME_DIR is not set. A socket that a service manager hands over is used
    /// instead of any path.
    #[arg(long, value_name = "PATH", help_heading = "Settings", verbatim_doc_comment)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub socket: Option<OsString>,

    /// Host memory for all tables, such as "64 GiB" [default: half of the memory]
    #[arg(long, value_name = "SIZE", help_heading = "Settings")]
    pub host_budget: Option<OsString>,

    /// Host memory for the tables of one user [default: the host budget]
    #[arg(long, value_name = "SIZE", help_heading = "Settings")]
    pub uid_budget: Option<OsString>,

    /// Clients that one user can have at a time [default: 256]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pub max_clients: Option<OsString>,

    /// Connections of one user at a time that have not said hello yet [default: 64]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pub max_pending: Option<OsString>,

    /// Calls a second of one user, once it has made as many at once [default: 5000]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pub max_calls: Option<OsString>,

    /// Tables that one user can have at a time [default: 256]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pub max_tables: Option<OsString>,

    /// Batches granted ahead to one user's readers: the sum of their prefetch depths [default: 8192]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pub max_leases: Option<OsString>,

    /// Time that a connection has to say hello, such as "500ms" [default: 2s]
    #[arg(long, value_name = "DURATION", help_heading = "Settings")]
    pub hello_timeout: Option<OsString>,

    /// Time that clients have to finish when the daemon stops [default: 10s]
    #[arg(long, value_name = "DURATION", help_heading = "Settings")]
    pub drain_timeout: Option<OsString>,

    /// Threads that make the pages of a new table resident [default: one a core, at most 4]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pub prefault_threads: Option<OsString>,

    /// What to log: a level, or levels by part, such as "warn,echod=debug" [default: info]
    #[arg(long, value_name = "FILTER", help_heading = "Settings")]
    pub log: Option<OsString>,

    /// Where to log: auto, text (on standard error) or journal [default: auto]
    ///
    /// auto is the journal if standard error is connected to it, else text.
    #[arg(long, value_name = "FORMAT", help_heading = "Settings")]
    pub log_format: Option<OsString>,
}

impl Cli {
    /// What the command line says about a setting.
    pub fn setting(&self, key: Key) -> Option<&OsStr> {
        match key {
            Key::Socket => self.socket.as_deref(),
            Key::HostBudget => self.host_budget.as_deref(),
            Key::UidBudget => self.uid_budget.as_deref(),
            Key::MaxClients => self.max_clients.as_deref(),
            Key::MaxPending => self.max_pending.as_deref(),
            Key::MaxCalls => self.max_calls.as_deref(),
            Key::MaxTables => self.max_tables.as_deref(),
            Key::MaxLeases => self.max_leases.as_deref(),
            Key::HelloTimeout => self.hello_timeout.as_deref(),
            Key::DrainTimeout => self.drain_timeout.as_deref(),
            Key::PrefaultThreads => self.prefault_threads.as_deref(),
            Key::Log => self.log.as_deref(),
            Key::LogFormat => self.log_format.as_deref(),
        }
    }
}

/// What the daemon exits with when the command line was no order to serve: help, version, or an error.
pub fn exit_of(error: &clap::Error) -> Exit {
    if error.use_stderr() { Exit::Usage } else { Exit::Ok }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_has_its_flag() {
        for key in Key::ALL {
            let cli = Cli::try_parse_from(["echod", key.flag(), "text"]).expect("a flag with a value");
            for other in Key::ALL {
                assert_eq!(cli.setting(other), (other == key).then_some(OsStr::new("text")), "{key:?}");
            }
        }
    }

    #[test]
    fn help_names_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for (exit, meaning) in Exit::ALL {
            assert!(help.contains(&format!("\n{:>4}  {meaning}", exit.code())), "{exit:?}:\n{help}");
        }
    }

    #[test]
    fn help_and_version_are_no_errors_and_an_unknown_flag_is() {
        for (flag, exit) in [("--help", Exit::Ok), ("--version", Exit::Ok), ("--sokcet", Exit::Usage)] {
            let error = Cli::try_parse_from(["echod", flag]).expect_err("no order to serve");
            assert_eq!(exit_of(&error), exit, "{flag}");
        }
    }
}
