//! Section 6: the configuration that `echod` would load, and whether this machine can do what it asks for.
//!
//! It is loaded by `echod`'s own code, of this user and environment. A table that says nothing asks for nothing: of the
//! policies only `required` counts, and of the access lists only those that differ from the default, which lets
//! everyone pin.

use std::path::PathBuf;

use echo::access::{AccessList, Role};
use echo::spec::{HugePages, Pin};
use echo::table::store::{Needs, Store};
use echo_client::SocketPlace;
use echod::bytes::Bytes;
use echod::cli::Cli;
use echod::config::{Config, Declared, Origin, Valued};
use echod::surroundings::Surroundings;

use super::groups::Groups;
use super::memory::{MORE_LOCKING, line, more_huge_pages, shared_huge_page};
use super::process::{Locking, Process};
use super::socket::{Daemon, said};
use super::{Check, Section, State};
use crate::view::bytes;

/// The configuration, or what is wrong with it.
pub(super) type Loaded = Result<Config, String>;

pub(super) fn load(file: Option<PathBuf>, surroundings: &Surroundings<'_>) -> Loaded {
    Config::load(&Cli { config: file, ..Cli::default() }, surroundings).map_err(|error| said(&error))
}

/// The tables whose list gives somebody the role to pin.
pub(super) fn tables_that_pin(loaded: &Loaded) -> Vec<String> {
    let tables = loaded.iter().flat_map(|config| &config.tables);
    tables
        .filter(|table| asks_to_pin(&table.value.access))
        .map(|table| table.value.spec.name.clone())
        .collect()
}

fn asks_to_pin(access: &AccessList) -> bool {
    *access != AccessList::open() && access.0.iter().any(|rule| rule.roles.names(Role::Pin))
}

pub(super) fn section(
    loaded: &Loaded,
    actor: &Process,
    daemon: Option<&Daemon>,
    places: &[SocketPlace],
    surroundings: &Surroundings<'_>,
) -> Section {
    let checks = match loaded {
        Err(error) => {
            let advice = "'echod --print-config' checks it; echod.toml(5) says what may stand there";
            vec![Check::new("file", State::Failed, error).advise(advice).require()]
        }
        Ok(config) => {
            let machine = Machine::of(actor, surroundings);
            let mut checks = vec![file(config), socket(config, places)];
            checks.extend(daemon.and_then(|daemon| same_budget(config, daemon)));
            checks.push(budget(config, &machine));
            checks.extend(tables(config, actor, &machine));
            checks
        }
    };
    Section { name: "configuration", title: "Configuration", checks }
}

/// What the machine has for tables.
struct Machine {
    /// Bytes of memory that the process may have, and what says so.
    memory: Option<(u64, String)>,
    huge_page: Result<usize, echo::memory::pages::NoHugePages>,
}

impl Machine {
    fn of(actor: &Process, surroundings: &Surroundings<'_>) -> Self {
        let meminfo = surroundings.read("/proc/meminfo".as_ref()).unwrap_or_default();
        let total = line(&meminfo, "MemTotal:").map(|bytes| (bytes, "the machine's memory".to_owned()));
        let groups = Groups::read(surroundings, &actor.directory);
        let group = groups
            .tightest()
            .and_then(|group| Some((group.max?, format!("the memory limit of {}", group.path.display()))));
        Self {
            memory: total.into_iter().chain(group).min_by_key(|(bytes, _)| *bytes),
            huge_page: shared_huge_page(surroundings),
        }
    }
}

fn file(config: &Config) -> Check {
    let declared = match config.tables.len() {
        0 => "no tables".to_owned(),
        1 => "1 table".to_owned(),
        many => format!("{many} tables"),
    };
    let found = match &config.file {
        Some(file) => format!("{} is valid, with {declared}", file.display()),
        None => "there is none: the defaults, and no tables until a client makes them".to_owned(),
    };
    Check::ok("file", found).require()
}

/// Whether a daemon with this configuration would be found.
fn socket(config: &Config, places: &[SocketPlace]) -> Check {
    let listens = config.socket.value.display();
    let found = format!("echod would listen at {listens} ({})", config.socket.origin);
    match places.iter().any(|place| place.path == config.socket.value) {
        true => Check::ok("socket", found),
        false => Check::new(
            "socket",
            State::Warning,
            format!("{found}, where this command and clients do not look"),
        )
        .advise(format!("export ECHO_SOCKET={listens}")),
    }
}

/// Whether the daemon that runs was told something else. It reads its file once, when it starts.
fn same_budget(config: &Config, daemon: &Daemon) -> Option<Check> {
    let (told, runs) = (config.host_budget.value.0, daemon.status.host_budget);
    (told != runs && config.host_budget.origin != Origin::Default).then(|| {
        let found = format!("it runs with a host_budget of {}, not of {}", Bytes(runs), Bytes(told));
        Check::new("running daemon", State::Warning, found)
            .advise("restart it to have it read the file, or give --config and the variables that it was started with")
    })
}

fn budget(config: &Config, machine: &Machine) -> Check {
    let (host, uid) = (&config.host_budget, &config.uid_budget);
    let found =
        format!("host_budget {} ({}), uid_budget {} ({})", host.value, host.origin, uid.value, uid.origin);
    match &machine.memory {
        Some((memory, of)) if host.value.0 > *memory => {
            let found = format!("{found}: more than {of}, {}", bytes(*memory));
            Check::new("budgets", State::Warning, found).advise(
                "lower host_budget, so that a table is refused before the \
                                                                 kernel ends the daemon",
            )
        }
        _ => Check::ok("budgets", found),
    }
}

fn tables(config: &Config, actor: &Process, machine: &Machine) -> Vec<Check> {
    let huge_page = machine.huge_page.as_ref().ok().copied();
    let mut checks = Vec::new();
    let (mut total, mut locked) = (0_u64, 0_u64);
    for table in &config.tables {
        let Valued { value: Declared { spec, access, .. }, .. } = table;
        let name = |what: &str| format!("{}: {what}", spec.name);
        let size = huge_page.filter(|_| spec.huge_pages != HugePages::Off);
        let needs = match Store::needs(spec, size) {
            Ok(needs) => needs,
            Err(error) => {
                checks.push(Check::new(name("size"), State::Failed, said(&error)).require());
                continue;
            }
        };
        total = total.saturating_add(needs.bytes);
        checks.push(size_of(name("size"), &needs, total, config, actor, machine));
        if spec.pin != Pin::Off {
            locked = locked.saturating_add(needs.bytes);
            checks.push(pin(name("pin"), spec.pin, needs.bytes, locked, actor));
            // What is locked as far as it goes leaves nothing to those after it, and takes no more than there is.
            if let Locking::UpTo(limit) = actor.locking() {
                locked = locked.min(limit);
            }
        }
        if spec.huge_pages == HugePages::Required {
            checks.push(huge_pages(name("huge_pages"), machine));
        }
        if asks_to_pin(access) {
            let who: Vec<_> =
                access.0.iter().filter(|rule| rule.roles.names(Role::Pin)).map(ToString::to_string).collect();
            let found = format!("{}: 'CUDA' says whether that works", who.join(", "));
            checks.push(Check::ok(name("access"), found));
        }
    }
    checks
}

/// Whether a table fits, with those before it.
fn size_of(
    name: String,
    needs: &Needs,
    total: u64,
    config: &Config,
    actor: &Process,
    machine: &Machine,
) -> Check {
    let found = format!("{}, {} with those before it", bytes(needs.bytes), bytes(total));
    let failed = |why: String, advice: &str| {
        Check::new(name.clone(), State::Failed, format!("{found}: more than {why}")).advise(advice).require()
    };
    // Declared tables are the daemon's own, so that they count for its uid.
    for (key, budget) in [("host_budget", config.host_budget.value), ("uid_budget", config.uid_budget.value)]
    {
        if total > budget.0 {
            return failed(format!("{key}, {budget}"), "raise it, or declare fewer batches (capacity)");
        }
    }
    if let Some((memory, of)) = &machine.memory
        && total > *memory
    {
        return failed(
            format!("{of}, {}", bytes(*memory)),
            "declare fewer batches (capacity), or raise the limit",
        );
    }
    let limits = actor.limits;
    if let Some(limit) = limits.and_then(|limits| limits.file_size)
        && needs.file_bytes > limit
    {
        return failed(
            format!("RLIMIT_FSIZE of {}, {}", actor.who, bytes(limit)),
            "LimitFSIZE=infinity, 'ulimit -f unlimited'",
        );
    }
    if let Some(limit) = limits.and_then(|limits| limits.address_space)
        && total > limit
    {
        return failed(
            format!("RLIMIT_AS of {}, {}", actor.who, bytes(limit)),
            "LimitAS=infinity, 'ulimit -v unlimited'",
        );
    }
    Check::ok(name, found).require()
}

/// Whether a table's pages can be locked, with those of the tables before it.
fn pin(name: String, pin: Pin, own: u64, locked: u64, actor: &Process) -> Check {
    let (policy, short) = match pin {
        Pin::Required => ("required", State::Failed),
        Pin::BestEffort | Pin::Off => ("best-effort", State::Warning),
    };
    let found = format!("{policy}: {} to lock", bytes(own));
    let check = match actor.locking() {
        Locking::UpTo(limit) if locked > limit => {
            let found = format!(
                "{found}, {} with those before it, and RLIMIT_MEMLOCK of {} is {}",
                bytes(locked),
                actor.who,
                bytes(limit)
            );
            Check::new(name, short, found).advise(MORE_LOCKING)
        }
        Locking::Unknown => Check::new(
            name,
            State::Unknown,
            format!("{found}; /proc does not show how much {} may", actor.who),
        ),
        _ => Check::ok(name, format!("{found}, which {} may", actor.who)),
    };
    if pin == Pin::Required { check.require() } else { check }
}

fn huge_pages(name: String, machine: &Machine) -> Check {
    match &machine.huge_page {
        Ok(size) => Check::ok(name, format!("required: those of {} may be had", bytes(*size as u64))),
        Err(why) => Check::new(name, State::Failed, format!("required, and there are none: {why}"))
            .advise(more_huge_pages(why)),
    }
    .require()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::process::Limits;
    use crate::doctor::tests::check;

    const TABLE: &str = "[[table]]\nbatch_size = 1\ncapacity = 16\narrays = [{ path = \"a\", dtype = \"uint8\", shape = \
                         [1048576] }]\n";

    /// The section of a machine with this configuration file, and 1 GiB of memory.
    fn of(config: &str, memlock: Option<u64>, shmem: &str) -> Section {
        of_limits(config, Limits { memlock, file_size: None, address_space: None, open_files: None }, shmem)
    }

    fn of_limits(config: &str, limits: Limits, shmem: &str) -> Section {
        let files = [
            ("/c.toml", config.to_owned()),
            ("/proc/meminfo", "MemTotal: 1048576 kB\n".to_owned()),
            ("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n".to_owned()),
            ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", format!("[{shmem}]\n")),
        ];
        let read = move |path: &std::path::Path| {
            let found = files.iter().find(|(name, _)| path == std::path::Path::new(name));
            found.map(|(_, text)| text.clone()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
        };
        let surroundings = Surroundings::new(|_| None, read, true, 2);
        let actor = Process {
            who: "echod (pid 7)".into(),
            directory: "/proc/7".into(),
            limits: Some(limits),
            ipc_lock: Some(false),
        };
        section(&load(Some("/c.toml".into()), &surroundings), &actor, None, &[], &surroundings)
    }

    fn table(name: &str, more: &str) -> String {
        format!("{TABLE}name = \"{name}\"\n{more}\n")
    }

    fn is_met(section: &Section) -> bool {
        section.checks.iter().filter(|check| check.required).all(|check| check.state == State::Ok)
    }

    #[test]
    fn a_file_that_is_wrong_is_the_only_check() {
        let section = of("sokcet = 3", None, "never");
        let [file] = &section.checks[..] else { panic!("{section:?}") };
        assert_eq!((file.state, file.required), (State::Failed, true));
        assert!(file.found.contains("did you mean \"socket\"?"), "{file:?}");
    }

    #[test]
    fn without_tables_nothing_is_asked_for() {
        let section = of("", Some(0), "never");
        assert!(is_met(&section), "{section:?}");
        assert_eq!(check(&section, "file").found, "/c.toml is valid, with no tables");
        assert_eq!(check(&section, "socket").state, State::Warning, "no place is searched here");
    }

    #[test]
    fn a_pin_that_is_required_counts_what_is_locked_before_it() {
        let two = |first: &str, second: &str| {
            table("one", &format!("pin = \"{first}\"")) + &table("two", &format!("pin = \"{second}\""))
        };
        assert!(is_met(&of(&two("required", "required"), None, "never")));
        assert!(is_met(&of(&two("required", "required"), Some(64 << 20), "never")));
        let short = of(&two("required", "required"), Some(24 << 20), "never");
        assert_eq!(check(&short, "one: pin").state, State::Ok);
        assert_eq!(check(&short, "two: pin").state, State::Failed, "{short:?}");
        let short = of(&two("best-effort", "required"), Some(8 << 20), "never");
        assert_eq!(
            (check(&short, "one: pin").state, check(&short, "one: pin").required),
            (State::Warning, false)
        );
        assert_eq!(check(&short, "two: pin").state, State::Failed);
        assert!(is_met(&of(&two("best-effort", "best-effort"), Some(0), "never")));
        assert!(is_met(&of(&two("off", "off"), Some(0), "never")));
    }

    #[test]
    fn huge_pages_that_are_required_need_the_kernels_leave() {
        let required = table("t", "huge_pages = \"required\"");
        assert!(is_met(&of(&required, None, "advise")));
        let none = of(&required, None, "never");
        assert_eq!(check(&none, "t: huge_pages").state, State::Failed);
        assert!(check(&none, "t: huge_pages").advice.as_ref().unwrap().starts_with("echo advise > /sys"));
        assert!(is_met(&of(&table("t", "huge_pages = \"auto\""), None, "never")));
    }

    #[test]
    fn tables_fit_into_the_budgets_the_memory_and_the_limits() {
        let two = table("one", "") + &table("two", "");
        let fails = |config: &str, what: &str| {
            let section = of(config, None, "never");
            assert_eq!(check(&section, "one: size").state, State::Ok);
            let size = check(&section, "two: size");
            assert!(size.state == State::Failed && size.required && size.found.contains(what), "{size:?}");
        };
        assert!(is_met(&of(&two, None, "never")));
        fails(&format!("host_budget = \"24MiB\"\n{two}"), "more than host_budget, 24 MiB");
        fails(&format!("uid_budget = \"24MiB\"\n{two}"), "more than uid_budget, 24 MiB");
        let large = two.replace("[1048576]", "[41943040]");
        fails(&format!("host_budget = \"2GiB\"\n{large}"), "more than the machine's memory, 1.0 GiB");
        let section = of("host_budget = \"2GiB\"", None, "never");
        assert_eq!(check(&section, "budgets").state, State::Warning);
        for limit in [
            Limits { memlock: None, file_size: Some(1 << 20), address_space: None, open_files: None },
            Limits { memlock: None, file_size: None, address_space: Some(1 << 20), open_files: None },
        ] {
            let section = of_limits(&two, limit, "never");
            assert_eq!(check(&section, "one: size").state, State::Failed, "{section:?}");
        }
    }

    #[test]
    fn a_list_that_gives_pin_asks_for_cuda_and_the_default_does_not() {
        let asks = |access: &str| {
            let text = table("t", access);
            let read = move |_: &std::path::Path| Ok(text.clone());
            let surroundings = Surroundings::new(|_| None, read, true, 2);
            let told = Cli { host_budget: Some("1GiB".into()), config: Some("/c".into()), ..Cli::default() };
            tables_that_pin(&Config::load(&told, &surroundings).map_err(|error| error.to_string()))
        };
        assert_eq!(asks("access = [\"everyone=observe\", \"gid:7=read,pin\"]"), ["t"]);
        assert!(asks("access = [\"everyone=write,read\"]").is_empty());
        assert!(asks("access = [\"uid:7=administer\"]").is_empty(), "what a role implies is not asked for");
        assert!(asks("").is_empty());
        assert!(tables_that_pin(&Err("broken".into())).is_empty());
    }
}
