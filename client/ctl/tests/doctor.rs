//! `echoctl doctor` on this machine, whatever that can do: without a daemon, beside one, and with configurations that
//! ask for more than there is.

#[path = "../../../tests/support/fakes.rs"]
mod fakes;
#[path = "../../../tests/support/mod.rs"]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::Daemon;

const NOBODY: u32 = 65534;
const SECTIONS: [&str; 6] = ["cuda", "memory", "numa", "kernel", "socket", "configuration"];
const TABLE: &str = "[[table]]\nname = \"t\"\nbatch_size = 1\ncapacity = 2\n\
                     arrays = [{ path = \"obs\", dtype = \"uint8\", shape = [1048576] }]\n";

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

/// A directory that others may look into, and that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("echoctl-doctor-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(directory)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("echod.sock")
    }

    /// A configuration file of that text.
    fn config(&self, text: &str) -> PathBuf {
        let path = self.0.join("echod.toml");
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What it exits with, and what it says; it never fails to answer.
fn ended(command: &mut Command) -> (i32, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code().expect("no signal"), String::from_utf8(output.stdout).unwrap())
}

fn doctor(socket: &Path, config: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    command.env_clear().arg("--socket").arg(socket).arg("doctor").arg("--config").arg(config).args(arguments);
    ended(&mut command)
}

fn parsed(text: &str) -> Value {
    let report: Value = serde_json::from_str(text).unwrap();
    assert_eq!(report["schema"], 1);
    report
}

/// The check of that name.
fn check<'r>(report: &'r Value, section: &str, name: &str) -> &'r Value {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|found| found["name"] == section).unwrap();
    let checks = section["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no check {name}: {section:#}"))
}

#[test]
fn without_a_daemon_and_a_configuration_nothing_is_missed() {
    let place = Place::new("nothing");
    let (exit, text) = doctor(&place.socket(), Path::new("/dev/null"), &[]);
    assert_eq!(exit, 0, "{text}");
    for title in ["CUDA", "Memory", "NUMA nodes and control groups", "Kernel", "Socket", "Configuration"] {
        assert!(text.lines().any(|line| line == title), "{title}: {text}");
    }
    assert!(text.ends_with("\nWhat is asked for here would work.\n"), "{text}");

    let (exit, text) = doctor(&place.socket(), Path::new("/dev/null"), &["--json"]);
    let report = parsed(&text);
    assert_eq!((exit, &report["verdict"]), (0, &"works".into()));
    let sections = report["sections"].as_array().unwrap();
    assert_eq!(
        sections.iter().map(|section| section["name"].as_str().unwrap()).collect::<Vec<_>>(),
        SECTIONS
    );
    for check in sections.iter().flat_map(|section| section["checks"].as_array().unwrap()) {
        assert!(check["name"].is_string() && check["found"].is_string(), "{check}");
        let state = check["state"].as_str().unwrap();
        assert!(["ok", "missing", "warning", "failed", "unknown"].contains(&state), "{check}");
        assert!(check["required"].is_boolean());
        assert!(check["advice"].is_string() || check["advice"].is_null());
    }
    assert_eq!(check(&report, "socket", "file")["state"], "missing");
}

#[test]
fn a_daemon_is_found_with_its_process() {
    let daemon = Daemon::start_with(&["--host-budget", "64MiB"]);
    let place = Place::new("daemon");
    let config = place.config(&format!("host_budget = \"32MiB\"\nsocket = {:?}\n{TABLE}", daemon.socket()));
    let (exit, text) = doctor(&daemon.socket(), &config, &["--json"]);
    let report = parsed(&text);
    assert_eq!(exit, 0, "{report:#}");
    for name in ["path", "file", "directory", "connecting", "daemon", "versions"] {
        assert_eq!(check(&report, "socket", name)["state"], "ok", "{name}");
    }
    let pid = format!("echod (pid {})", daemon.pid());
    let locking = &check(&report, "memory", "page locking by echod")["found"];
    assert!(locking.as_str().unwrap().contains(&pid), "{locking}");
    assert_eq!(check(&report, "configuration", "socket")["state"], "ok");
    let running = check(&report, "configuration", "running daemon");
    assert_eq!(running["found"], "it runs with a host_budget of 64 MiB, not of 32 MiB");
}

#[test]
fn a_configuration_that_cannot_be_loaded_is_the_answer_no() {
    let place = Place::new("bad");
    let (exit, text) = doctor(&place.socket(), &place.config("sokcet = 3\n"), &[]);
    assert_eq!(exit, 1, "{text}");
    assert!(text.contains("unknown key \"sokcet\", did you mean \"socket\"?"), "{text}");
    assert!(text.ends_with("would not work:\n  failed   Configuration, file\n"), "{text}");
    let (exit, text) = doctor(&place.socket(), &place.0.join("none.toml"), &["--json"]);
    assert_eq!((exit, &parsed(&text)["verdict"]), (1, &"fails".into()));
}

#[test]
fn tables_that_do_not_fit_are_the_answer_no() {
    let place = Place::new("budget");
    let config = place.config(&format!("host_budget = \"1MiB\"\n{TABLE}"));
    let (exit, text) = doctor(&place.socket(), &config, &["--json"]);
    let report = parsed(&text);
    assert_eq!((exit, &check(&report, "configuration", "t: size")["state"]), (1, &"failed".into()));
}

#[test]
fn a_table_that_requires_more_locked_memory_than_is_allowed_is_the_answer_no() {
    let place = Place::new("memlock");
    let run = |pin: &str| {
        let config = place.config(&format!("{TABLE}pin = \"{pin}\"\n"));
        let mut command = Command::new("sh");
        // Root has the capability to lock all there is, so that nobody is asked.
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(["-c", "ulimit -l 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_echoctl"), "--json"]);
        command.env_clear().arg("--socket").arg(place.socket()).arg("doctor").arg("--config").arg(config);
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let (exit, text, errors) = run("best-effort");
    if exit == Some(126) || exit == Some(127) || exit == Some(2) {
        let errors = String::from_utf8_lossy(&errors);
        return eprintln!("left out, since nobody may not start the command from here: {errors}");
    }
    assert_eq!(exit, Some(0), "{text}");
    assert_eq!(check(&parsed(&text), "configuration", "t: pin")["state"], "warning");
    let (exit, text, _) = run("required");
    assert_eq!(exit, Some(1), "{text}");
    let report = parsed(&text);
    let pin = check(&report, "configuration", "t: pin");
    assert_eq!((&pin["state"], &pin["required"]), (&"failed".into(), &true.into()));
    assert!(pin["found"].as_str().unwrap().ends_with("RLIMIT_MEMLOCK of this process is 64.0 KiB"), "{pin}");
    assert!(pin["advice"].as_str().unwrap().contains("LimitMEMLOCK=infinity"), "{pin}");
}

/// The report beside these fake libraries of CUDA, with these knobs of theirs.
fn with_cuda(tree: &fakes::Tree, knobs: &[(&str, &str)], arguments: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    command.env_clear().env("LD_LIBRARY_PATH", tree.path().join("driver"));
    let (journal, file) = tree.journal().variable();
    command
        .env(journal, file)
        .envs(knobs.iter().map(|(name, value)| (format!("ECHO_FAKE_CUDA_{name}"), value)));
    command.args(["--json", "--socket", "/nowhere", "doctor", "--config", "/dev/null"]).args(arguments);
    let (exit, text) = ended(&mut command);
    (exit, parsed(&text))
}

#[test]
fn page_locking_is_said_to_work_where_driver_device_and_runtime_are_there() {
    let tree = fakes::Tree::new("doctor");
    let root = tree.path().join("nvidia").into_os_string().into_string().unwrap();
    tree.put_driver();
    let pin = ["--pin", "--vendor-root", &root];
    let (exit, report) = with_cuda(&tree, &[], &pin);
    assert_eq!((exit, &check(&report, "cuda", "runtime")["state"]), (1, &"missing".into()), "{report:#}");
    let [cuda12, _] = tree.put_wheels();
    let (exit, report) = with_cuda(&tree, &[], &pin);
    assert_eq!((exit, &check(&report, "cuda", "page-locking")["state"]), (0, &"ok".into()), "{report:#}");
    assert!(check(&report, "cuda", "device 0")["found"].as_str().unwrap().contains("GPU-"), "{report:#}");
    // A driver for CUDA 12: the newer one of the two wheels is passed over.
    let (exit, report) = with_cuda(&tree, &[("DRIVER", "12020")], &pin);
    let runtime = check(&report, "cuda", "runtime")["found"].as_str().unwrap();
    assert!(exit == 0 && runtime.contains(cuda12.to_str().unwrap()), "{report:#}");
    // No device: asked for or not is what decides.
    let (exit, report) = with_cuda(&tree, &[("INIT", "100")], &pin);
    assert_eq!((exit, &check(&report, "cuda", "driver")["state"]), (1, &"failed".into()), "{report:#}");
    assert_eq!(with_cuda(&tree, &[("INIT", "100")], &[]).0, 0);
    // The one that is named is used, or nothing.
    let (exit, report) = with_cuda(&tree, &[], &["--pin", "--cudart", "/nowhere/libcudart.so.12"]);
    assert_eq!(
        (exit, &check(&report, "cuda", "ladder: override")["state"]),
        (1, &"failed".into()),
        "{report:#}"
    );

    let harmless =
        ["cuInit", "cuGetErrorName", "cuDriverGetVersion", "cudaDriverGetVersion", "cudaRuntimeGetVersion"];
    for call in tree.journal().calls() {
        let name = call.split(' ').next().unwrap();
        assert!(harmless.contains(&name) || name.starts_with("cuDevice"), "no context is made: {call}");
        assert!(!name.contains("Ctx"), "no context is made: {call}");
    }
}

#[test]
fn a_wrong_option_is_a_wrong_command_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_echoctl")).args(["doctor", "--gpu"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
}
