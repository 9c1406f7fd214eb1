use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::Parser;
use echo::access::AccessList;
use echo::replay::settings::{Real, ReplaySpec, Selector};
use echo::spec::{ArraySpec, DType, HugePages, Pin, TableKind, TableSpec};

use super::*;

mod replay;

const FILE: &str = "/tmp/echod.toml";

/// A machine of a test: 32 GiB, 8 cores, no variables, no files.
#[derive(Clone, Default)]
struct Machine {
    vars: HashMap<&'static str, OsString>,
    files: HashMap<PathBuf, String>,
    denied: Vec<PathBuf>,
    root: bool,
    no_memory: bool,
}

impl Machine {
    fn with_file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }

    fn with_var(mut self, name: &'static str, value: &str) -> Self {
        self.vars.insert(name, value.into());
        self
    }

    fn load(&self, flags: &[&str]) -> Result<Config, ConfigError> {
        let cli = Cli::try_parse_from([&["echod"], flags].concat()).expect("these flags exist");
        let read = |path: &Path| {
            if self.denied.iter().any(|denied| denied == path) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            if path == Path::new("/proc/meminfo") && !self.no_memory {
                return Ok("MemTotal:       33554432 kB\n".to_owned());
            }
            self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Config::load(&cli, &Surroundings::new(|name| self.vars.get(name).cloned(), read, self.root, 8))
    }

    /// The exit code and the message with all causes, of a configuration that is refused.
    fn refusal(&self, flags: &[&str]) -> (Exit, String) {
        let error = self.load(flags).expect_err("this configuration is wrong");
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        (error.exit(), message)
    }
}

fn load_text(text: &str) -> Result<Config, ConfigError> {
    Machine::default().with_file(FILE, text).load(&["--config", FILE])
}

/// The message for a file of that text, and that it is an error of the configuration.
fn refused_text(text: &str) -> String {
    let (exit, message) = Machine::default().with_file(FILE, text).refusal(&["--config", FILE]);
    assert_eq!(exit, Exit::Config, "{message}");
    message
}

/// What a setting came to, as it is printed, and where it came from.
fn printed(config: &Config, key: Key) -> (String, String) {
    let text = config.to_toml();
    let line = text.lines().find(|line| line.starts_with(&format!("{} = ", key.name())));
    let (code, origin) = line.expect("every setting is printed").split_once(" # ").expect("with its origin");
    let value = code.split_once(" = ").expect("an assignment").1.trim();
    (value.trim_matches(['"', '\'']).to_owned(), origin.to_owned())
}

/// For each setting: its default here, then what a file, a variable and a flag say.
const VALUES: [(Key, [&str; 4]); 13] = [
    (Key::Socket, ["/run/echo/echod.sock", "/file.sock", "/env.sock", "/flag.sock"]),
    (Key::HostBudget, ["16 GiB", "3 GiB", "5 MiB", "7 TiB"]),
    (Key::UidBudget, ["16 GiB", "1 GiB", "96 KiB", "65537 B"]),
    (Key::MaxClients, ["256", "1", "2", "65536"]),
    (Key::MaxPending, ["64", "1", "2", "3"]),
    (Key::MaxCalls, ["5000", "1", "2", "1000000"]),
    (Key::MaxTables, ["256", "1", "2", "1024"]),
    (Key::MaxLeases, ["8192", "1", "2", "1048576"]),
    (Key::HelloTimeout, ["2s", "500ms", "1m 30s", "1ms"]),
    (Key::DrainTimeout, ["10s", "1day", "0s", "1s"]),
    (Key::PrefaultThreads, ["4", "1", "2", "1024"]),
    (Key::Log, ["info", "warn", "debug,echod=trace", "off"]),
    (Key::LogFormat, ["auto", "text", "journal", "text"]),
];

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    for (key, [default, file, env, flag]) in VALUES {
        let told = |config: Result<Config, ConfigError>| printed(&config.expect("these are good"), key);
        let text = match key.form() {
            key::Form::Number => format!("# a comment\n{} = {file}\n", key.name()),
            _ => format!("# a comment\n{} = {file:?}\n", key.name()),
        };
        let mut machine = Machine::default();
        assert_eq!(told(machine.load(&[])), (default.into(), "default".into()));
        machine = machine.with_file(FILE, &text).with_var("ECHO_CONFIG", FILE);
        assert_eq!(told(machine.load(&[])), (file.into(), format!("{FILE}:2")));
        machine = machine.with_var(key.env(), env);
        assert_eq!(told(machine.load(&[])), (env.into(), key.env().into()));
        assert_eq!(told(machine.load(&[key.flag(), flag])), (flag.into(), key.flag().into()));
    }
    assert_eq!(VALUES.map(|(key, _)| key), Key::ALL, "every setting is tried");
}

#[test]
fn an_empty_variable_is_as_good_as_none() {
    let config = Machine::default().with_var("ECHO_LOG", "").load(&[]).expect("the defaults are good");
    assert_eq!(config.log, Valued::new("info".into(), Origin::Default));
}

#[test]
fn the_budget_of_a_user_follows_that_of_the_machine() {
    let config = Machine::default().load(&["--host-budget", "3GiB"]).expect("a good flag");
    assert_eq!(config.uid_budget, Valued::new(Bytes(3 << 30), Origin::Default));
}

#[test]
fn a_size_may_be_a_plain_number_in_the_file() {
    let config = load_text("host_budget = 1_048_576\nuid_budget = 0x20000").expect("two good sizes");
    assert_eq!(config.host_budget.value, Bytes(1 << 20));
    assert_eq!(config.uid_budget.value, Bytes(1 << 17));
}

#[test]
fn the_memory_is_asked_for_only_if_nobody_gives_a_budget() {
    let machine = Machine { no_memory: true, ..Machine::default() };
    let (exit, message) = machine.refusal(&[]);
    assert_eq!(exit, Exit::OsErr);
    assert!(message.contains("--host-budget"), "{message}");
    assert!(machine.load(&["--host-budget", "1 GiB"]).is_ok());
}

#[test]
fn the_users_own_file_is_read_before_the_machines_and_root_has_none() {
    let user = Machine::default()
        .with_var("XDG_CONFIG_HOME", "/home/u/cfg")
        .with_var("HOME", "/home/u")
        .with_file("/home/u/cfg/echo/echod.toml", "max_pending = 1")
        .with_file("/home/u/.config/echo/echod.toml", "max_pending = 2")
        .with_file(SYSTEM_CONFIG, "max_pending = 3\nmax_clients = 3");
    let pending = |machine: &Machine| machine.load(&[]).expect("good files").max_pending.value;
    assert_eq!(pending(&user), 1);
    assert_eq!(user.load(&[]).expect("a good file").max_clients.value, 256, "files are not mixed");
    let mut homely = user.clone();
    homely.vars.remove("XDG_CONFIG_HOME");
    assert_eq!(pending(&homely), 2);
    assert_eq!(pending(&Machine { root: true, ..user.clone() }), 3);
    let mut service = user;
    service.vars.clear();
    assert_eq!(pending(&service), 3);
}

#[test]
fn a_named_file_must_be_there_and_the_default_one_need_not() {
    let config = Machine::default().load(&[]).expect("no file is needed");
    assert_eq!(config.file, None);
    let (exit, message) = Machine::default().refusal(&["--config", "/no/such.toml"]);
    assert_eq!(exit, Exit::Config);
    assert!(message.contains("/no/such.toml, which --config names"), "{message}");
    let (exit, message) = Machine::default().with_var("ECHO_CONFIG", "/none").refusal(&[]);
    assert_eq!(exit, Exit::Config);
    assert!(message.contains("/none, which ECHO_CONFIG names"), "{message}");
}

#[test]
fn the_flag_for_the_file_beats_its_variable() {
    let machine = Machine::default().with_var("ECHO_CONFIG", "/none").with_file(FILE, "");
    assert_eq!(machine.load(&["--config", FILE]).expect("a good file").file, Some(FILE.into()));
}

#[test]
fn a_file_that_may_not_be_read_is_not_passed_over() {
    let machine = Machine { denied: vec![SYSTEM_CONFIG.into()], ..Machine::default() };
    let (exit, message) = machine.refusal(&[]);
    assert_eq!(exit, Exit::NoPerm);
    assert!(message.contains(SYSTEM_CONFIG), "{message}");
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_key_that_was_meant() {
    assert_eq!(
        refused_text("log = \"info\"\n\nhost_bugdet = \"1 GiB\"\nzzz = 1\n"),
        "/tmp/echod.toml:3: unknown key \"host_bugdet\", did you mean \"host_budget\"?"
    );
    let far = refused_text("port = 80");
    assert!(
        far.starts_with("/tmp/echod.toml:1: unknown key \"port\", it must be one of \"socket\", "),
        "{far}"
    );
    assert!(far.ends_with("or \"table\""), "{far}");
}

#[test]
fn what_is_not_toml_is_shown() {
    let message = refused_text("max_clients = 3\nmax_pending = = 4\n");
    assert!(message.starts_with("/tmp/echod.toml:2: this is not TOML: "), "{message}");
    assert!(message.contains("max_pending = = 4"), "{message}");
    let twice = refused_text("log = \"info\"\nlog = \"warn\"\n");
    assert!(twice.starts_with("/tmp/echod.toml:2: this is not TOML: "), "{twice}");
}

#[test]
fn a_value_of_the_wrong_type_is_told_what_it_should_be() {
    for (text, expected) in [
        ("max_clients = \"3\"", "max_clients must be a number without quotes, it is a TOML string"),
        ("max_clients = 1.5", "max_clients must be a number without quotes, it is a TOML float"),
        ("log = true", "log must be a string in quotes, it is a TOML boolean"),
        ("host_budget = [1]", "host_budget must be a string such as \"64 GiB\" or a number of bytes"),
        ("table = 3", "table must be declared under a heading [[table]], it is a TOML integer"),
        ("[table]\nname = \"x\"", "table must be declared under a heading [[table]], it is a TOML table"),
    ] {
        let message = refused_text(text);
        assert!(message.starts_with(&format!("{FILE}:1: {expected}")), "{message}");
    }
}

#[test]
fn a_bad_value_is_told_why_wherever_it_comes_from() {
    let long = format!("/{}", "x".repeat(107));
    for (key, value, reason) in [
        (Key::Socket, "echod.sock", "it cannot be the path of a socket: the path must be absolute"),
        (Key::Socket, long.as_str(), "the path has 108 bytes, a socket's can have 107"),
        (Key::HostBudget, "64 GB", "it is not a size: unknown unit \"GB\", use B, KiB, MiB, GiB or TiB"),
        (Key::HostBudget, "lots", "it is not a size: a size is a whole number and a unit"),
        (Key::HostBudget, "64", "it is 64 B, a budget has at least 64 KiB: is a unit missing"),
        (Key::UidBudget, "99999999 TiB", "it is not a size: more bytes than 2^64"),
        (Key::HelloTimeout, "soon", "it is not a duration, such as \"2s\""),
        (Key::HelloTimeout, "2", "it is not a duration, such as \"2s\""),
        (Key::HelloTimeout, "0s", "it must be from 1ms to 1day"),
        (Key::DrainTimeout, "2days", "it must be from 0s to 1day"),
        (Key::Log, "debgu", "it is not a level: use off, error, warn, info, debug or trace"),
        (Key::Log, "echod=loud", "it is not a filter, such as"),
        (Key::LogFormat, "json", "it must be one of \"auto\", \"text\" or \"journal\""),
    ] {
        let told = format!("{} cannot be {value:?}: ", key.name());
        let check = |exit, expected_exit, origin: &str, message: String| {
            assert_eq!(exit, expected_exit, "{message}");
            assert!(message.starts_with(&format!("{origin}: {told}")), "{message}");
            assert!(message.contains(reason), "{message}");
        };
        let (exit, message) = Machine::default().refusal(&[key.flag(), value]);
        check(exit, Exit::Usage, key.flag(), message);
        let (exit, message) = Machine::default().with_var(key.env(), value).refusal(&[]);
        check(exit, Exit::Config, key.env(), message);
        let text = format!("\n{} = {value:?}", key.name());
        check(Exit::Config, Exit::Config, "/tmp/echod.toml:2", refused_text(&text));
    }
}

#[test]
fn a_number_out_of_range_is_told_the_range() {
    for (key, value, max) in [
        (Key::MaxClients, "0", 65536),
        (Key::MaxPending, "65537", 65536),
        (Key::PrefaultThreads, "1025", 1024),
        (Key::PrefaultThreads, "-1", 1024),
        (Key::MaxClients, "4294967296", 65536),
    ] {
        let reason = format!("{} cannot be {value:?}: it must be ", key.name());
        let (exit, message) = Machine::default().with_var(key.env(), value).refusal(&[]);
        assert_eq!(exit, Exit::Config);
        assert!(message.contains(&reason) && message.contains(&format!("from 1 to {max}")), "{message}");
        let message = refused_text(&format!("{} = {value}", key.name()));
        assert!(message.contains(&reason), "{message}");
    }
}

#[test]
fn a_value_that_is_not_unicode_is_refused() {
    let mut machine = Machine::default();
    machine.vars.insert("ECHO_SOCKET", OsString::from_vec(b"/tmp/\xff".to_vec()));
    let (exit, message) = machine.refusal(&[]);
    assert_eq!(exit, Exit::Config);
    assert!(message.ends_with("it is not UTF-8"), "{message}");
}

#[test]
fn the_default_socket_is_checked_like_any_other() {
    let machine = Machine::default().with_var("XDG_RUNTIME_DIR", &format!("/{}", "x".repeat(100)));
    let (exit, message) = machine.refusal(&[]);
    assert_eq!(exit, Exit::Config);
    assert!(message.starts_with("default: socket cannot be "), "{message}");
    assert!(machine.load(&["--socket", "/tmp/s"]).is_ok());
}

const TABLES: &str = r#"
[[table]]
name = "rollouts"
batch_size = 256
capacity = 8
arrays = [
    { path = "obs", dtype = "float32", shape = [4] },
    { path = "reward", dtype = "float32", shape = [] },
]

[[table]]
name = "replay/1"
batch_size = 32
capacity = 100
max_capacity = 0xff
pin = "required"
huge_pages = "off"
[[table.arrays]]
path = "it's \"quoted\" \\ ü"
dtype = "bfloat16"
shape = [84, 84, 3]

[[table]]
name = "policy"
kind = "latest"
arrays = [{ path = "weights", dtype = "float32", shape = [1000] }]

[[table]]
name = "replay"
kind = "replay"
max_size = 1_000_000
sampler = "prioritized:0.6"
arrays = [{ path = "obs", dtype = "float32", shape = [4] }]
"#;

#[test]
fn tables_are_declared_with_their_defaults() {
    let config = load_text(TABLES).expect("good tables");
    let arrays = vec![ArraySpec::new("obs", DType::F32, [4]), ArraySpec::new("reward", DType::F32, [])];
    let rollouts = TableSpec::new("rollouts", arrays, 256, 8);
    let arrays = vec![ArraySpec::new("it's \"quoted\" \\ ü", DType::BF16, [84, 84, 3])];
    let replay = TableSpec {
        max_capacity: 255,
        pin: Pin::Required,
        huge_pages: HugePages::Off,
        ..TableSpec::new("replay/1", arrays, 32, 100)
    };
    let policy = TableSpec::latest("policy", vec![ArraySpec::new("weights", DType::F32, [1000])]);
    let settings = ReplaySpec {
        sampler: Selector::Prioritized { exponent: Real(0.6) },
        ..ReplaySpec::new(1_000_000, 256)
    };
    let prioritized = TableSpec::replay("replay", vec![ArraySpec::new("obs", DType::F32, [4])], settings);
    let origin = |line| Origin::File(Place { path: FILE.into(), line, within: String::new() });
    let groups = |spec: &TableSpec| match spec.kind {
        TableKind::Queue => vec![DeclaredGroup::default()],
        _ => vec![],
    };
    let open = |spec: TableSpec| Declared { groups: groups(&spec), spec, access: AccessList::open() };
    assert_eq!(
        config.tables,
        [
            Valued::new(open(rollouts), origin(2)),
            Valued::new(open(replay), origin(11)),
            Valued::new(open(policy), origin(23)),
            Valued::new(open(prioritized), origin(28)),
        ]
    );
}

#[test]
fn an_access_list_is_one_rule_a_string() {
    let text = table_with(&[("access", "[\"gid:7=write,read\", \"everyone=observe\"]")]);
    let config = load_text(&text).expect("a good table");
    let rules: Vec<_> = config.tables[0].value.access.0.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["gid:7=write,read", "everyone=observe"]);
    assert_eq!(load_text(&table_with(&[("access", "[]")])).unwrap().tables[0].value.access.0, []);

    let told = refused_text(&table_with(&[("access", "[\"gid:7=wirte\"]")]));
    assert!(told.contains("is no access rule") && told.contains("\"wirte\" is no role"), "{told}");
    let many = vec!["\"everyone=read\""; 65].join(", ");
    let told = refused_text(&table_with(&[("access", &format!("[{many}]"))]));
    assert!(told.contains("65 rules"), "{told}");
}

#[test]
fn groups_are_named_and_may_lag() {
    let declared = "[{ name = \"trainer\" }, { name = \"log\", max_lag = \"64 MiB\" }]";
    let config = load_text(&table_with(&[("groups", declared)])).expect("a good table");
    let [trainer, log] = &config.tables[0].value.groups[..] else { panic!("two groups") };
    assert_eq!(
        (&*trainer.name, trainer.max_lag, &*log.name, log.max_lag),
        ("trainer", None, "log", Some(Bytes(64 << 20)))
    );
    assert!(config.to_toml().contains(&format!("groups = {declared}\n")), "{}", config.to_toml());

    for (groups, said) in [
        ("[]", "groups: 0 are given, and a table has 1 to 8"),
        ("[{ name = \"a b\" }]", "name: a group's name is 1 to 64 of letters"),
        ("[{ name = \"a\" }, { name = \"a\" }]", "groups[1]: two are called \"a\""),
        ("[{ name = \"a\", max_lag = \"x\" }]", "max_lag: "),
        ("[{ nmae = \"a\" }]", "name"),
        ("[\"a\"]", "max_lag where it may not hold workers up"),
    ] {
        let told = refused_text(&table_with(&[("groups", groups)]));
        assert!(told.contains(said), "{told}");
    }
    let latest = table_with(&[("kind", "\"latest\""), ("batch_size", "1"), ("groups", declared)]);
    assert!(refused_text(&latest).contains("only a table of kind \"queue\" is read by groups"));
}

#[test]
fn every_policy_has_a_word_that_means_it() {
    for (key, word) in [
        ("kind", "queue"),
        ("pin", "required"),
        ("pin", "best-effort"),
        ("pin", "off"),
        ("huge_pages", "auto"),
        ("huge_pages", "required"),
        ("huge_pages", "off"),
    ] {
        let text = table_with(&[(key, &format!("{word:?}"))]);
        let printed = load_text(&text).expect("a good word").to_toml();
        assert!(printed.contains(&format!("{key} = {word:?}\n")), "{printed}");
    }
}

/// A good table named "t" with one array "a", but for what is told; a value of `""` leaves the key out.
fn table_with(changes: &[(&str, &str)]) -> String {
    let mut keys = vec![
        ("name", "\"t\""),
        ("batch_size", "4"),
        ("capacity", "2"),
        ("arrays", "[{ path = \"a\", dtype = \"int8\", shape = [] }]"),
    ];
    for &(key, value) in changes {
        keys.retain(|(other, _)| *other != key);
        keys.push((key, value));
    }
    let lines = keys.iter().filter(|(_, value)| !value.is_empty());
    lines.fold("[[table]]\n".to_owned(), |text, (key, value)| format!("{text}{key} = {value}\n"))
}

#[test]
fn a_bad_table_is_named_with_its_array_and_the_reason() {
    for (key, value, expected) in [
        ("batch_size", "", ":1: table \"t\": batch_size is missing"),
        ("name", "", ":1: table 1: name is missing"),
        (
            "kind",
            "\"fifo\"",
            ":6: table \"t\": kind \"fifo\" is unknown, it must be one of \"queue\", \"latest\" or \"replay\"",
        ),
        (
            "kind",
            "\"latest\"",
            ":1: table \"t\": no table can be like this: batch_size is 4, and it is 1 in a latest",
        ),
        ("name", "\"a b\"", ":1: table \"a b\": no table can be like this: table name \"a b\" must be"),
        ("batchsize", "3", ":6: table \"t\": unknown key \"batchsize\", did you mean \"batch_size\"?"),
        ("batch_size", "0", ":5: table \"t\": batch_size cannot be 0: it must be from 1 to 1048576"),
        ("capacity", "-1", ":5: table \"t\": capacity cannot be -1: it must be a whole number from 1"),
        ("max_capacity", "1", ":1: table \"t\": no table can be like this: max_capacity is 1 batches"),
        (
            "pin",
            "\"on\"",
            ":6: table \"t\": pin \"on\" is unknown, it must be one of \"required\", \"best-effort\"",
        ),
        ("huge_pages", "true", ":6: table \"t\": huge_pages must be a string in quotes"),
        ("arrays", "", ":1: table \"t\": arrays is missing"),
        ("arrays", "[]", ":1: table \"t\": no table can be like this: a table needs at least one array"),
        ("arrays", "[1]", ":5: table \"t\": arrays[0] must be an array of { path = \"obs\""),
        ("arrays", "[{}]", ":5: table \"t\", array 1: path is missing"),
        (
            "arrays",
            "[\n{ path = \"a\", dtype = \"float\", shape = [] }]",
            ":6: table \"t\", array \"a\": dtype \"float\" is unknown, it must be one of \"bool\", \"uint8\"",
        ),
        (
            "arrays",
            "[\n\n{ path = \"a\", dtyp = \"int8\" }]",
            ":7: table \"t\", array \"a\": unknown key \"dtyp\", did you mean \"dtype\"?",
        ),
        (
            "arrays",
            "[{ path = \"a\", dtype = \"int8\", shape = [1, -2] }]",
            ":5: table \"t\", array \"a\": shape[1] is -2, it must be a whole number from 0",
        ),
        (
            "arrays",
            "[{ path = \"a\", dtype = \"int8\", shape = 4 }]",
            ":5: table \"t\", array \"a\": shape must be an array of numbers, [] for a scalar",
        ),
        (
            "arrays",
            "[{ path = \"a\", dtype = \"int8\", shape = [9223372036854775807] }]",
            ":1: table \"t\": no table can be like this: array a int8[9223372036854775807] of 8 slots",
        ),
    ] {
        let message = refused_text(&table_with(&[(key, value)]));
        assert!(message.starts_with(&format!("{FILE}{expected}")), "{expected}\n{message}");
    }
}

#[test]
fn a_latest_table_has_a_usual_size_and_may_have_another() {
    let of = |changes: &[(&str, &str)]| {
        let latest = [("kind", "\"latest\""), ("batch_size", "")];
        load_text(&table_with(&[&latest, changes].concat())).map(|config| config.tables[0].value.spec.clone())
    };
    let usual = of(&[("capacity", "")]).expect("a good table");
    assert_eq!(
        (usual.kind, usual.batch_size, usual.capacity, usual.max_capacity),
        (TableKind::Latest, 1, 4, 4)
    );
    assert_eq!(of(&[("capacity", "9"), ("batch_size", "1")]).expect("a good table").capacity, 9);
    assert!(of(&[("capacity", "1")]).is_err(), "the newest, and the next");
}

#[test]
fn two_tables_of_one_name_are_refused() {
    let message = refused_text(&table_with(&[]).repeat(2));
    assert_eq!(message, "/tmp/echod.toml:6: table \"t\": this name is taken by the table of line 1");
}

#[test]
fn what_is_printed_parses_to_the_same_configuration() {
    let machine = Machine::default()
        .with_var("ECHO_HELLO_TIMEOUT", "1h 2m 3s 4ms 5us 6ns")
        .with_var("ECHO_LOG", "warn,echod[x{y=\"z\"}]=debug")
        .with_file("/tmp/odd\nname.toml", TABLES);
    let odd = ["--config", "/tmp/odd\nname.toml", "--uid-budget", "65537", "--socket", "/tmp/\"quo'ted\\ ü"];
    let config = machine.load(&odd).expect("odd, but good");
    let again = load_text(&config.to_toml()).expect("what is printed is a file");
    for (ours, theirs) in config.tables.iter().zip(&again.tables) {
        assert_eq!(ours.value, theirs.value);
    }
    assert_eq!(config.tables.len(), again.tables.len());
    for key in Key::ALL {
        assert_eq!(printed(&config, key).0, printed(&again, key).0);
    }
    assert_eq!(config.socket.value, again.socket.value);
    assert_eq!(config.hello_timeout.value, again.hello_timeout.value);
    assert_eq!(config.log.value, again.log.value);
}
