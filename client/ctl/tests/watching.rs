//! `echoctl watch` beside daemons that come and go.

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use echo_client::{ReaderOptions, Writer};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use support::{Daemon, LONG, check_of, eventually, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

fn watch(socket: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    command.env_clear().env("ECHO_SOCKET", socket).stdin(Stdio::null());
    command.args(["watch", "--interval", "50ms"]).args(arguments.split_whitespace());
    command
}

/// A watcher that runs, and what it prints.
struct Watching {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Watching {
    fn start(socket: &Path, arguments: &str) -> Self {
        let mut child = watch(socket, arguments).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).unwrap() > 0, "it has ended: {:?}", self.child.wait());
        line
    }

    /// The first object that it prints from now on of which this is true.
    fn until(&mut self, what: &str, mut so: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LONG;
        loop {
            let object: Value = serde_json::from_str(&self.line()).unwrap();
            assert_eq!(object["schema"], 1);
            assert_never_negative(&object);
            if so(&object) {
                return object;
            }
            assert!(Instant::now() < deadline, "not seen in time: {what}; last {object}");
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn assert_never_negative(object: &Value) {
    for table in object["tables"].as_array().into_iter().flatten() {
        for rate in table["rates"].as_object().into_iter().flat_map(|rates| rates.values()) {
            assert!(rate.as_f64().unwrap() >= 0.0, "{object}");
        }
    }
}

fn append(writer: &mut Writer, n: u64) {
    for id in 0..n {
        writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
    }
}

#[test]
fn what_happens_is_seen_as_rates_and_waits() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 2, 2)).unwrap();
    client.create_table(&numbers("other", 2, 2)).unwrap();
    let mut watching = Watching::start(&daemon.socket(), "t --json");
    let still = watching.until("a first look", |_| true);
    assert_eq!(still["tables"].as_array().unwrap().len(), 1, "the one that was asked for");
    assert_eq!(still["tables"][0]["rates"]["samples_committed_per_s"], 0.0);
    assert_eq!(still["tables"][0]["wait"], Value::Null);
    let mut writer = client.attach_writer("t", None).unwrap();
    append(&mut writer, 4);
    let positive = |object: &Value, rate: &str| {
        object["tables"][0]["rates"][rate].as_f64().is_some_and(|rate| rate > 0.0)
    };
    let seen = watching.until("samples", |object| positive(object, "samples_committed_per_s"));
    assert!(positive(&seen, "bytes_committed_per_s"), "{seen}");
    let mut reader = client.attach_reader("t", None, ReaderOptions::default()).unwrap();
    drop(reader.next_batch(LONG).unwrap());
    let seen = watching.until("a batch", |object| positive(object, "batches_delivered_per_s"));
    assert!(positive(&seen, "samples_delivered_per_s"), "{seen}");
    drop(reader.next_batch(LONG).unwrap());
    let seen = watching.until("a reader that waits", |object| object["tables"][0]["wait"].is_object());
    assert_eq!((&seen["tables"][0]["writers"], &seen["tables"][0]["readers"]), (&1.into(), &1.into()));
}

#[test]
fn a_daemon_that_is_replaced_is_gone_and_then_another() {
    let mut daemon = Daemon::start();
    let socket = daemon.socket();
    daemon.client().create_table(&numbers("t", 1, 8)).unwrap();
    let mut writer = daemon.client().attach_writer("t", None).unwrap();
    append(&mut writer, 8);
    let mut watching = Watching::start(&socket, "--json");
    let first = watching.until("a look", |object| object["tables"][0]["samples"]["committed"] == 8);
    daemon.actor().kill();
    let gone = watching.until("that it is gone", |object| object["error"].is_object());
    assert_eq!(gone["error"]["exit"], 69);
    let _successor = daemon.rival();
    let back = watching.until("that another is there", |object| object["tables"].is_array());
    assert_ne!(back["instance"], first["instance"]);
    daemon.client().create_table(&numbers("t", 1, 8)).unwrap();
    let fresh = watching.until("its table", |object| object["tables"][0].is_object());
    assert_eq!(fresh["tables"][0]["samples"]["committed"], 0);
}

#[test]
fn a_table_that_is_dropped_and_made_anew_begins_anew() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 8)).unwrap();
    let mut watching = Watching::start(&daemon.socket(), "t --json");
    watching.until("a look", |object| object["tables"].is_array());
    client.drop_table("t").unwrap();
    let dropped = watching.until("that it is dropped", |object| object["error"].is_object());
    assert_eq!(dropped["error"]["kind"], "no_such_table");
    client.create_table(&numbers("t", 1, 8)).unwrap();
    let fresh = watching.until("the new one", |object| object["tables"].is_array());
    assert_eq!(fresh["tables"][0]["rates"], Value::Null);
}

#[test]
fn rows_are_appended_where_nothing_can_be_drawn_over() {
    let daemon = Daemon::start();
    daemon.client().create_table(&numbers("t", 1, 8)).unwrap();
    let output = watch(&daemon.socket(), "--count 3").output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && err.is_empty(), "{err}");
    assert!(!out.contains('\x1b'), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].starts_with("TIME "), "{out}");
    assert!(lines[1..].iter().all(|line| line.split_whitespace().nth(1) == Some("t")), "{out}");
}

#[test]
fn a_terminal_is_drawn_over_and_left_as_it_was() {
    let daemon = Daemon::start();
    daemon.client().create_table(&numbers("t", 1, 8)).unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let screen = File::options().read(true).write(true).open(name).unwrap();
    let mut command = watch(&daemon.socket(), "--count 3");
    assert!(command.env("TERM", "xterm").stdout(screen).status().unwrap().success());
    // The terminal's other end is closed with the command; what was drawn is still there.
    drop(command);
    let mut drawn = Vec::new();
    let end = File::from(terminal).read_to_end(&mut drawn);
    assert_eq!(end.map_err(|error| error.raw_os_error()), Err(Some(rustix::io::Errno::IO.raw_os_error())));
    let drawn = String::from_utf8(drawn).unwrap();
    assert_eq!(drawn.matches("\x1b[3A\r\x1b[J").count(), 2, "{drawn:?}");
    assert_eq!(drawn.matches("\x1b[?7l").count(), drawn.matches("\x1b[?7h").count(), "{drawn:?}");
    assert!(!drawn.contains("\x1b[?1049h") && !drawn.contains("\x1b[?25l"), "{drawn:?}");
}

#[test]
fn a_watcher_ends_quietly_when_nobody_reads_it() {
    let daemon = Daemon::start();
    let mut command = watch(&daemon.socket(), "--json");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn the_first_look_fails_as_any_command_and_the_last_decides() {
    let mut daemon = Daemon::start();
    let socket = daemon.socket();
    for (arguments, exit, sentence) in [
        ("nobody", 1, "nobody"),
        ("--interval 1ms", 64, "at least 50ms"),
        ("--interval soon", 64, "--interval"),
        ("--count 0", 64, "--count"),
        ("--socket /nowhere/echod.sock", 69, "/nowhere/echod.sock"),
    ] {
        // The interval can be given once.
        let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
        command.env_clear().env("ECHO_SOCKET", &socket).arg("watch").args(arguments.split(' '));
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{arguments}: {err}");
        assert!(output.stdout.is_empty() && err.contains(sentence), "{arguments}: {err}");
    }
    let mut watching = Watching::start(&socket, "--count 80");
    watching.line();
    daemon.actor().kill();
    let mut rest = String::new();
    watching.out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("; trying again"), "{rest}");
    assert_eq!(watching.child.wait().unwrap().code(), Some(69));
}
