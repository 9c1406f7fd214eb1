//! The command line: what `echoctl --help` says, word for word.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};
use echo_client::{ArraySpec, GroupFrom, HugePages, Pin, Rule, RuleError, TableKind, TableSpec, VALUES};

use echod::bytes::Bytes;

use crate::array;
use crate::exit::Exit;
use crate::replay::Replay;

/// Shortest time from one look to the next.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

const LONG_ABOUT: &str = "\
Shows what happens in an echod, and why something waits.

A table is a ring in shared memory. Of a queue table writers (rollout workers) fill batches and readers (trainers) empty
them, each once; of a latest table one writer publishes values and every reader takes the newest; of a replay table samples
are chosen, read and put back, until they are removed.";

/// What somebody would type.
pub const EXAMPLES: &str = "  echoctl status
  echoctl table create rollouts --batch-size 256 --capacity 8 --array obs:float32:4 --array reward:float32
  echoctl table create policy --kind latest --array weights:float32:1000000
  echoctl table create replay --kind replay --max-size 1000000 --sampler prioritized:0.6 --array obs:uint8:84x84
  echoctl why rollouts
  echoctl watch --interval 5s
  echoctl doctor --config /etc/echo/echod.toml
  echoctl --json table list | jq '.tables[] | select(.samples.pending > 0) | .name'";

/// What the help ends with.
fn after_long_help() -> String {
    let codes: Vec<String> =
        Exit::ALL.iter().map(|(exit, meaning)| format!("  {:>2}  {meaning}", exit.code())).collect();
    format!(
        "\
The daemon's socket is the one that --socket or ECHO_SOCKET names, else the first of these that exists:
  $XDG_RUNTIME_DIR/echo/echod.sock
  /run/echo/echod.sock

With --json there is one object on standard output, or on standard error if it did not work (but for a command line
that cannot be understood); 'watch' prints one a line, for each look. Its \"schema\" is 1 until a field changes its
meaning or goes; others may come. Sizes are bytes, durations milliseconds.

Examples:
{EXAMPLES}

Exit codes:
{}",
        codes.join("\n")
    )
}

/// Shows what happens in an echod, and why something waits
#[derive(Parser, Debug)]
#[command(name = "echoctl", version, long_about = LONG_ABOUT, after_long_help = after_long_help())]
#[command(after_help = "'--help' says more: the socket, --json, examples, exit codes")]
pub struct Cli {
    /// Where and how to ask.
    #[command(flatten)]
    pub connect: Connect,

    /// Print an object for programs
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where and how to ask.
#[derive(Args, Debug)]
pub struct Connect {
    /// Ask the daemon that listens on this socket
    #[arg(long, value_name = "PATH", global = true, value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,

    /// How long the daemon may take to answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    #[arg(global = true)]
    pub timeout: Duration,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// How the daemon is; works with a daemon of any version
    Status,
    /// Tables
    #[command(subcommand)]
    Table(Table),
    /// Groups of readers, each of which reads all batches of a queue table
    #[command(subcommand)]
    Group(Group),
    /// Connected processes
    #[command(subcommand)]
    Client(Client),
    /// Batches and values that readers hold
    #[command(subcommand)]
    Lease(Lease),
    /// What changes: samples and batches a second, and what waits longest
    ///
    /// Looks again and again until it is interrupted. A rate is that since the look before, so the first line comes
    /// after one interval. On a terminal the lines are drawn anew in place, else each look adds one a table; with
    /// --json it adds an object on a line of its own.
    ///
    /// A daemon that goes away is said to be gone and tried again. A table, or a daemon, that is new since the look
    /// before has no rates yet.
    Watch(Watch),
    /// What this machine can do for echo, and why not; works without a daemon
    ///
    /// Looks at CUDA, memory, NUMA nodes and control groups, the kernel, the socket and the daemon behind it, and at the
    /// configuration that echod would load, as this user and in this environment. It changes nothing and makes no
    /// context on a GPU.
    ///
    /// It exits with 0 if all that is asked for would work, else with 1, also where that cannot be known. The
    /// configuration asks for what it calls required, for tables that fit, and for CUDA where an access list gives
    /// somebody the role pin; --pin asks for CUDA too. What nobody asks for is told and does not count.
    Doctor(Doctor),
    /// What is being waited for at a table, who holds it up, and since when
    Why {
        /// The table's name
        table: String,
    },
}

/// What to do with tables.
#[derive(Subcommand, Debug)]
pub enum Table {
    /// All tables, with their samples
    List,
    /// One table: its arrays, its memory, who is attached
    Show {
        /// Its name
        name: String,
    },
    /// Make a table, unless one of that name with an equal spec is there
    Create(Create),
    /// End a table for everybody; samples that were not read are lost
    Drop {
        /// Its name
        name: String,
    },
    /// Remove all items of a replay table, and count from zero
    Reset {
        /// Its name
        name: String,
    },
    /// Show or replace the rules that say who may do what with a table, beside its owner
    Access(Access),
}

/// A table to be made.
#[derive(Args, Debug)]
pub struct Create {
    /// Its name: letters, digits, '.', '_', '-' and '/'
    pub name: String,

    /// What becomes of its samples: each batch goes to one reader, or the newest value to all, or they are chosen until they
    /// are removed
    #[arg(long, value_name = "KIND", default_value = "queue", value_parser = one_of(TableKind::ALL, TableKind::name))]
    pub kind: TableKind,

    /// Samples in a batch; not of a latest table, whose values are single [default of a replay table: 256]
    #[arg(long, value_name = "NUMBER")]
    pub batch_size: Option<u32>,

    /// Batches that the table holds, or values [default of a latest table: 4]
    #[arg(long, value_name = "NUMBER")]
    pub capacity: Option<u32>,

    /// Batches, or values, that it may grow to [default: the capacity]
    #[arg(long, value_name = "NUMBER")]
    pub max_capacity: Option<u32>,

    /// An array of a sample, such as obs:float32:84x84 or reward:float32; once for each
    #[arg(long = "array", value_name = "PATH:DTYPE[:SHAPE]", required = true, value_parser = array::parse)]
    pub arrays: Vec<ArraySpec>,

    /// Who may do what with it, such as group:ml=read,write; roles are write, read, pin, observe and administer;
    /// once for each [default: everyone=observe]
    #[arg(long = "access", value_name = "WHO=ROLE[,ROLE...]", value_parser = parse_rule)]
    pub access: Vec<Rule>,

    /// Whether its pages must be locked
    #[arg(long, value_name = "POLICY", default_value = "best-effort", value_parser = one_of(PINS, pin))]
    pub pin: Pin,

    /// Whether its large arrays must be on huge pages
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = one_of(HUGE_PAGES, huge_pages))]
    pub huge_pages: HugePages,

    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened")]
    pub replay: Replay,
}

impl Cli {
    /// The command line, whose options go together.
    ///
    /// # Errors
    /// If it cannot be understood, or only asks for help.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(arguments)?;
        if let Command::Table(Table::Create(create)) = &cli.command {
            create.spec()?;
        }
        Ok(cli)
    }
}

impl Create {
    /// What it is to be like.
    ///
    /// # Errors
    /// If its size is not given, and tables of that kind have no usual one; or if something is given that tables of that kind
    /// have not.
    pub fn spec(&self) -> Result<TableSpec, clap::Error> {
        let spec = match self.kind {
            TableKind::Queue => self.blocks(self.batch_size, self.capacity)?,
            TableKind::Latest => self.blocks(self.batch_size.or(Some(1)), self.capacity.or(Some(VALUES)))?,
            TableKind::Replay => {
                let capacity = [(self.capacity, "--capacity"), (self.max_capacity, "--max-capacity")];
                if let Some((_, option)) = capacity.iter().find(|(given, _)| given.is_some()) {
                    return Err(self.has_not(option));
                }
                let settings = self.replay.settings(self.batch_size);
                let settings = settings.ok_or_else(|| self.needs("--max-size"))?;
                TableSpec::replay(&self.name, self.arrays.clone(), settings)
            }
        };
        if self.kind != TableKind::Replay
            && let Some(option) = self.replay.given()
        {
            return Err(self.has_not(option));
        }
        Ok(TableSpec { kind: self.kind, pin: self.pin, huge_pages: self.huge_pages, ..spec })
    }

    fn blocks(&self, batch_size: Option<u32>, capacity: Option<u32>) -> Result<TableSpec, clap::Error> {
        let batch_size = batch_size.ok_or_else(|| self.needs("--batch-size"))?;
        let capacity = capacity.ok_or_else(|| self.needs("--capacity"))?;
        let max_capacity = self.max_capacity.unwrap_or(capacity);
        Ok(TableSpec {
            max_capacity,
            ..TableSpec::new(&self.name, self.arrays.clone(), batch_size, capacity)
        })
    }

    fn needs(&self, option: &str) -> clap::Error {
        let message = format!("a {} table needs {option} <NUMBER>", self.kind);
        Cli::command().error(ErrorKind::MissingRequiredArgument, message)
    }

    fn has_not(&self, option: &str) -> clap::Error {
        let message = format!("a {} table has no {option}", self.kind);
        Cli::command().error(ErrorKind::ArgumentConflict, message)
    }
}

/// What to do with the groups that read a queue table, each batch going to one reader of every group.
#[derive(Subcommand, Debug)]
pub enum Group {
    /// All groups of a table: how far each has come
    List {
        /// The table's name
        table: String,
    },
    /// Have another group read the table
    Add(AddGroup),
    /// Let a group go that has no readers; nobody waits for it any more
    Remove {
        /// The table's name
        table: String,
        /// The group's name
        group: String,
    },
    /// Have a group read once more what is still there
    Rewind {
        /// The table's name
        table: String,
        /// The group's name
        group: String,
    },
}

/// A group to be added.
#[derive(Args, Debug)]
pub struct AddGroup {
    /// The table's name
    pub table: String,

    /// The group's name
    pub group: String,

    /// From where on it reads: what is still there, or what is not begun yet
    #[arg(long, value_name = "WHERE", default_value = "oldest", value_parser = one_of(FROM, from))]
    pub from: GroupFrom,

    /// Bytes of batches by which it may lag before it skips the oldest, such as 64MiB [default: any number, and workers
    /// wait for it]
    #[arg(long, value_name = "SIZE")]
    pub max_lag: Option<Bytes>,
}

/// Who may do what with a table.
#[derive(Args, Debug)]
pub struct Access {
    /// The table's name
    pub name: String,

    /// Replace all rules by this one, and by each further one, such as group:ml=read,write or everyone=observe
    #[arg(long = "set", value_name = "WHO=ROLE[,ROLE...]", value_parser = parse_rule)]
    pub rules: Vec<Rule>,

    /// Remove all rules, so that only the owner can do anything
    #[arg(long, conflicts_with = "rules")]
    pub clear: bool,
}

/// What to ask about clients.
#[derive(Subcommand, Debug)]
pub enum Client {
    /// All clients, with what they hold
    List,
}

/// What to watch, and how often.
#[derive(Args, Debug)]
pub struct Watch {
    /// This table alone; it must be there
    pub table: Option<String>,

    /// How long from one look to the next
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,

    /// End after so many looks; the exit code is that of the last [default: never]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// What to look at, and what to ask for.
#[derive(Args, Debug, Default)]
pub struct Doctor {
    /// The configuration file that echod would be given [default: the one that it would find]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Ask for page-locking for CUDA, whatever the configuration asks for
    #[arg(long)]
    pub pin: bool,

    /// Use this CUDA runtime and look for no other
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub cudart: Option<PathBuf>,

    /// A directory of NVIDIA's packages, such as .../site-packages/nvidia; once for each
    #[arg(long = "vendor-root", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub vendor_roots: Vec<PathBuf>,
}

/// What to ask about leases.
#[derive(Subcommand, Debug)]
pub enum Lease {
    /// All batches and values that readers hold: which reader, which batch, whether it can be read, and for how long it was so
    List {
        /// Of this table alone
        table: Option<String>,
    },
}

const FROM: [GroupFrom; 2] = [GroupFrom::Oldest, GroupFrom::Newest];
const PINS: [Pin; 3] = [Pin::Required, Pin::BestEffort, Pin::Off];
const HUGE_PAGES: [HugePages; 3] = [HugePages::Auto, HugePages::Required, HugePages::Off];

/// Where a group begins.
pub const fn from(from: GroupFrom) -> &'static str {
    match from {
        GroupFrom::Oldest => "oldest",
        GroupFrom::Newest => "newest",
    }
}

/// A pin policy's name.
pub const fn pin(pin: Pin) -> &'static str {
    match pin {
        Pin::Required => "required",
        Pin::BestEffort => "best-effort",
        Pin::Off => "off",
    }
}

/// A huge page policy's name.
pub const fn huge_pages(huge_pages: HugePages) -> &'static str {
    match huge_pages {
        HugePages::Auto => "auto",
        HugePages::Required => "required",
        HugePages::Off => "off",
    }
}

fn parse_rule(text: &str) -> Result<Rule, RuleError> {
    text.parse()
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match interval < MIN_INTERVAL {
        true => Err(format!(
            "it is at least {}, since the daemon is asked each time",
            humantime::format_duration(MIN_INTERVAL)
        )),
        false => Ok(interval),
    }
}

/// Takes a policy's name; completions and help know them all.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(name)).map(move |text| {
        let found = all.into_iter().find(|&policy| name(policy) == text);
        found.expect("the parser before this takes no other name")
    })
}

#[cfg(test)]
mod tests {
    use echo_client::replay::{Admission, RateLimiter, Real, ReplaySpec, Selector, Staleness};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for (exit, meaning) in Exit::ALL {
            assert!(help.contains(&format!("{:>4}  {meaning}", exit.code())), "{exit:?}:\n{help}");
        }
    }

    #[test]
    fn options_may_follow_the_command() {
        let cli =
            Cli::try_parse_from(["echoctl", "table", "show", "t", "--json", "--timeout", "1s"]).unwrap();
        assert!(cli.json);
        assert_eq!(cli.connect.timeout, Duration::from_secs(1));
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_ones() {
        let line = ["echoctl", "table", "create", "t", "--batch-size=1", "--capacity=1", "--array=r:bool"];
        let error = Cli::try_parse_from(line.into_iter().chain(["--pin=yes"])).unwrap_err().to_string();
        assert!(error.contains("possible values: required, best-effort, off"), "{error}");
    }

    #[test]
    fn a_queue_table_needs_a_size_and_a_latest_table_has_one() {
        let cli = |more: &[&str]| {
            let line = ["echoctl", "table", "create", "t", "--array=r:bool"];
            Cli::of(line.iter().chain(more).map(OsString::from))
        };
        for (more, missing) in [(&["--capacity=1"][..], "--batch-size"), (&["--batch-size=1"], "--capacity")]
        {
            let error = cli(more).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
            assert!(error.to_string().contains(&format!("a queue table needs {missing}")), "{error}");
        }
        let Command::Table(Table::Create(create)) = cli(&["--kind=latest"]).unwrap().command else {
            panic!("it makes a table")
        };
        let spec = create.spec().unwrap();
        assert_eq!((spec.batch_size, spec.capacity), (1, VALUES));
    }

    #[test]
    fn a_replay_table_has_options_of_its_own() {
        let cli = |more: &[&str]| {
            let line = ["echoctl", "table", "create", "t", "--array=r:bool"];
            Cli::of(line.iter().chain(more).map(OsString::from))
        };
        let spec = |more: &[&str]| {
            let more = [&["--kind=replay", "--max-size=100"], more].concat();
            let Command::Table(Table::Create(create)) = cli(&more).unwrap().command else {
                panic!("it makes a table")
            };
            create.spec().unwrap().replay.unwrap()
        };
        assert_eq!(spec(&[]), ReplaySpec::new(100, 256));
        let said = spec(&[
            "--batch-size=32",
            "--sampler=prioritized:0.6",
            "--remover=lifo",
            "--max-times-sampled=3",
            "--rate-limiter=min-size:10",
            "--max-staleness=4",
            "--staleness-decay=0.9",
            "--samples-per-version=32",
            "--max-running=64",
        ]);
        let admission = Some(Admission { samples_per_version: 32, max_running: 64 });
        let expected = ReplaySpec {
            sampler: Selector::Prioritized { exponent: Real(0.6) },
            remover: Selector::Lifo,
            max_times_sampled: 3,
            limiter: RateLimiter::MinSize(10),
            staleness: Staleness { max: Some(4), decay: Some(Real(0.9)), admission },
            ..ReplaySpec::new(100, 32)
        };
        assert_eq!(said, expected);

        for (more, told) in [
            (&["--kind=replay"][..], "a replay table needs --max-size"),
            (&["--kind=replay", "--max-size=9", "--capacity=2"], "--capacity"),
            (&["--kind=replay", "--max-size=9", "--max-capacity=2"], "--max-capacity"),
            (&["--kind=replay", "--max-size=9", "--sampler=random"], "\"random\" is no selector"),
            (&["--kind=replay", "--max-size=9", "--rate-limiter=queue"], "\"queue\" is no rate limiter"),
            (&["--kind=replay", "--max-size=9", "--samples-per-version=2"], "--max-running"),
            (&["--kind=replay", "--max-size=9", "--max-running=2"], "--samples-per-version"),
            (&["--kind=latest", "--max-staleness=2"], "--max-staleness"),
            (&["--batch-size=1", "--capacity=2", "--sampler=fifo"], "--sampler"),
        ] {
            let error = cli(more).unwrap_err().to_string();
            assert!(error.contains(told), "{more:?}: {error}");
        }
    }
}
