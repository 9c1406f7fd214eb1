//! The command beside a daemon and its clients, as a person or a script uses it.

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use echo_client::message::LeaseState;
use echo_client::{Client, ConnectOptions, LatestOptions, Mark, ReaderOptions, SamplerOptions};
use serde_json::Value;
use support::{Daemon, LONG, check_of, eventually, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

/// What it exits with, and what it says on both streams.
fn echoctl(socket: &Path, arguments: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    command.env_clear().env("ECHO_SOCKET", socket).args(arguments.split(' ')).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// What it answers; it does answer.
fn answer(socket: &Path, arguments: &str) -> String {
    let (exit, out, err) = echoctl(socket, arguments);
    assert_eq!((exit, err.as_str()), (0, ""), "{arguments}");
    out
}

fn json(socket: &Path, arguments: &str) -> Value {
    let object: Value = serde_json::from_str(&answer(socket, &format!("--json {arguments}"))).unwrap();
    assert_eq!(object["schema"], 1);
    object
}

fn named(socket: &Path, name: &str) -> Client {
    let options = ConnectOptions { socket: Some(socket.to_owned()), name: name.into(), timeout: LONG };
    Client::connect(&options).unwrap()
}

#[test]
fn a_table_is_made_shown_and_dropped() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let status = answer(&socket, "status");
    assert!(
        status.contains(&format!("(pid {}) is serving at {}", daemon.pid(), socket.display())),
        "{status}"
    );
    assert!(answer(&socket, "table list").starts_with("there are no tables"));
    let create =
        "table create a/b --batch-size 256 --capacity 8 --array obs:float32:4 --array reward:float32";
    assert_eq!(answer(&socket, create), "table a/b was made\n");
    assert_eq!(answer(&socket, create), "table a/b was there already, with an equal spec\n");
    assert_eq!(json(&socket, create)["created"], false);
    let shown = answer(&socket, "table show a/b");
    for line in
        ["table a/b: open, of uid ", "  size       8 batches of 256 samples of 20 B", "nobody is attached"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    let list = answer(&socket, "table list");
    assert_eq!(list.lines().count(), 2, "{list}");
    let spec = &json(&socket, "table show a/b")["table"]["spec"];
    assert_eq!(spec["arrays"][0], serde_json::json!({ "path": "obs", "dtype": "float32", "shape": [4] }));
    assert_eq!(spec["pin"], "best-effort");
    assert_eq!(json(&socket, "status")["status"]["tables"], 1);
    assert_eq!(answer(&socket, "table drop a/b"), "table a/b was dropped\n");
    assert_eq!(json(&socket, "table list")["tables"], serde_json::json!([]));
}

#[test]
fn a_latest_table_is_made_and_says_who_holds_what() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let create = "table create policy --kind latest --array weights:float32:16";
    assert_eq!(answer(&socket, create), "table policy was made\n");
    let (exit, _, err) = echoctl(&socket, "table create rollouts --array weights:float32:16");
    assert!(exit == 64 && err.contains("a queue table needs --batch-size <NUMBER>"), "{exit} {err}");
    let (exit, _, err) = echoctl(&socket, &create.replace("latest", "newest"));
    assert!(exit == 64 && err.contains("possible values: queue, latest"), "{exit} {err}");
    assert!(answer(&socket, "table list").contains("policy  latest      1         4 "));

    let mut publisher = named(&socket, "trainer").attach_publisher("policy", None).unwrap();
    let reader = named(&socket, "actor").attach_latest("policy", None, LatestOptions::default()).unwrap();
    let pid = std::process::id();
    let held: Vec<_> = (0..4)
        .map(|_| {
            publisher.publish(&[&[7; 64]]).unwrap();
            reader.get().unwrap().unwrap()
        })
        .collect();
    let shown = answer(&socket, "table show policy");
    for line in
        ["  kind       latest", "  size       4 values of 64 B", "0 filling, 4 complete; 4 held by readers"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    assert!(shown.contains("  values     4 published, "), "{shown}");
    let leases = answer(&socket, "lease list policy");
    assert_eq!(leases.lines().count(), 5, "{leases}");
    assert!(leases.contains("v3"), "{leases}");
    let lease = &json(&socket, "lease list")["leases"][3];
    assert_eq!((&lease["version"], &lease["name"]), (&4.into(), &"actor".into()));

    publisher.set_timeout(LONG);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| publisher.publish(&[&[8; 64]]).unwrap());
        eventually("why names the actor", || {
            let why = answer(&socket, "why policy");
            why.starts_with(&format!("writer trainer (pid {pid}) (for "))
                && why.contains(
                    "  waits for  room: all 4 blocks are in use, one by the newest value (version 4)",
                )
                && why.contains(&format!(
                    "  held by    actor (pid {pid}): holds 3 older values, from version 1 on (for "
                ))
        });
        drop(held);
        assert_eq!(publishing.join().unwrap(), 5);
    });
    eventually("the daemon has seen it", || json(&socket, "table show policy")["table"]["newest"] == 5);
    let table = &json(&socket, "table show policy")["table"];
    assert_eq!((&table["kind"], &table["spec"]["kind"]), (&"latest".into(), &"latest".into()));
    assert_eq!(table["members"][0]["values_published"], 5);
    assert_eq!(table["members"][1]["values_taken"], 4);
}

#[test]
fn a_replay_table_is_made_and_reset_and_says_whom_the_limiter_holds_back() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let create = "table create r --kind replay --max-size 100 --batch-size 4 --sampler prioritized:0.5 \
                  --rate-limiter ratio:2:4:4 --array id:uint64 --array check:uint8:8";
    assert_eq!(answer(&socket, create), "table r was made\n");
    assert_eq!(json(&socket, create)["created"], false);
    let (exit, _, err) = echoctl(&socket, &create.replace("--max-size 100 ", ""));
    assert!(exit == 64 && err.contains("a replay table needs --max-size <NUMBER>"), "{exit} {err}");
    let (exit, _, err) = echoctl(&socket, &create.replace("ratio:2:4:4", "ratio:2:4:1"));
    assert!(exit != 0 && err.contains("the error buffer gives the interval [7, 9]"), "{exit} {err}");
    let list = answer(&socket, "table list");
    assert!(list.contains("r      replay      4       100 "), "{list}");

    let (mut worker, trainer) =
        (named(&socket, "worker").attach_replay_writer("r", None).unwrap(), named(&socket, "trainer"));
    let pid = std::process::id();
    let options = SamplerOptions { prefetch: 1, threads: 0, ..Default::default() };
    let sampler = trainer.attach_sampler("r", None, options).unwrap();
    let mut ids = 0..;
    let mut append = |n| {
        for id in ids.by_ref().take(n) {
            let mark = Mark { priority: Some(1.0), version: Some(1) };
            worker.append(&[&u64::to_le_bytes(id), &check_of(id)], mark).unwrap();
        }
    };
    let held = std::thread::scope(|scope| {
        let sampling = scope.spawn(|| sampler.next_batch(LONG).unwrap());
        eventually("why names the trainer and the inequality", || {
            let why = answer(&socket, "why r");
            why.starts_with(&format!("reader trainer (pid {pid}) (for "))
                && why.contains(
                    "  waits for  4 samples, of which it has 0: inserts 0 - deletes 0 = 0 is less than min_size 4; \
                     the writers that are attached are between samples",
                )
        });
        append(4);
        sampling.join().unwrap()
    });
    assert_eq!(held.len(), 4);
    std::thread::scope(|scope| {
        scope.spawn(|| append(9));
        eventually("why names the worker, the inequality and who could take more", || {
            let why = answer(&socket, "why r");
            why.starts_with(&format!("writer worker (pid {pid}) (for "))
                && why.contains(
                    "  waits for  the limiter, until trainers have taken more: inserts 8 + 1 - deletes 0 = 9 is more than \
                     min_size 4, and (inserts 8 + 1) * ratio 2 - samples 4 = 14 is more than max_diff 12",
                )
                && why.contains(&format!("  held by    trainer (pid {pid}): holds 4 samples (for "))
        });
        let shown = answer(&socket, "table show r");
        for line in [
            "  kind       replay",
            "  size       100 items of 16 B",
            "  items      8 came, 8 are there; 4 samples were taken",
            "  sampler    prioritized:0.5; removed by fifo",
            "  limiter    ratio:2:4:4: 8 inserts, 4 samples, 0 deletes; 0 requests wait",
            "  leases     4 samples with readers, 0 of items that were removed",
        ] {
            assert!(shown.contains(&format!("{line}\n")), "{shown}");
        }
        let leases = json(&socket, "lease list r");
        let lease = &leases["leases"][0];
        assert_eq!(
            (&lease["name"], &lease["batch"], &lease["block"]),
            (&"trainer".into(), &Value::Null, &Value::Null)
        );
        drop(held);
        for _ in 0..3 {
            assert_eq!(sampler.next_batch(LONG).unwrap().len(), 4);
        }
    });
    // Another batch may have been asked for ahead.
    drop(sampler);
    eventually("all has come and is given back", || {
        let replay = &json(&socket, "table show r")["table"]["replay"];
        (&replay["inserts"], &replay["leased"]) == (&13.into(), &0.into())
    });
    assert_eq!(answer(&socket, "table reset r"), "all items of table r were removed\n");
    let table = &json(&socket, "table show r")["table"];
    let (replay, spec) = (&table["replay"], &table["spec"]["replay"]);
    assert_eq!((&replay["size"], &replay["inserts"], &replay["samples"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!((&spec["sampler"], &spec["rate_limiter"]), (&"prioritized:0.5".into(), &"ratio:2:4:4".into()));
    assert_eq!((&spec["max_size"], &spec["batch_size"]), (&100.into(), &4.into()));
    assert_eq!(table["members"][0]["samples_committed"], 13);
    let (exit, _, err) = echoctl(&socket, "table reset nothing");
    assert!(exit != 0 && err.contains("nothing"), "{exit} {err}");
}

#[test]
fn why_names_the_worker_that_holds_a_batch_up() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    daemon.client().create_table(&numbers("t", 2, 2)).unwrap();
    assert_eq!(answer(&socket, "why t"), "nothing waits at table t\n");
    // A name that would clear a terminal.
    let mut writer = named(&socket, "wor\x1b[2Jker").attach_writer("t", None).unwrap();
    let trainer = named(&socket, "trainer");
    let mut reader = trainer.attach_reader("t", None, ReaderOptions::default()).unwrap();
    writer.append(&[&0_u64.to_ne_bytes(), &check_of(0)]).unwrap();
    let claim = writer.claim(1).unwrap();
    let pid = std::process::id();
    let why = answer(&socket, "why t");
    assert!(why.starts_with(&format!("reader trainer (pid {pid}) (for ")), "{why}");
    assert!(why.contains("\n  waits for  batch 0: 1 of 2 samples are committed\n"), "{why}");
    let held =
        format!("  held by    wor\\u{{1b}}[2Jker (pid {pid}): is writing the sample at position 1 (for ");
    assert!(why.contains(&held), "{why}");
    let clients = answer(&socket, "client list");
    assert_eq!(clients.lines().count(), 3, "the question itself is not listed\n{clients}");
    drop(claim);
    writer.append(&[&1_u64.to_ne_bytes(), &check_of(1)]).unwrap();
    drop(reader.next_batch(LONG).unwrap());
    eventually("the daemon has the batch back", || {
        json(&socket, "table show t")["table"]["samples"]["delivered"] == 2
    });
    let table = &json(&socket, "table show t")["table"];
    let role = |i: usize| table["members"][i]["role"].as_str().unwrap().to_owned();
    assert_eq!([role(0), role(1)], ["writer", "reader"]);
    assert_eq!(table["members"][0]["samples_committed"], 2);
    assert_eq!(table["members"][1]["batches_given_back"], 1);
    let clients = json(&socket, "client list");
    assert_eq!(clients["clients"][0]["name"], "wor\x1b[2Jker");
    let pins =
        ["pinned_bytes", "pins", "pins_left_out"].map(|field| clients["clients"][1][field].to_string());
    assert_eq!(pins, ["0", "[]", "0"], "it has registered nothing with CUDA");
    assert_eq!(table["members"][1]["pinned_bytes"], 0);
}

#[test]
fn leases_are_listed_with_their_readers_and_states() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    daemon.client().create_table(&numbers("t", 1, 2)).unwrap();
    daemon.client().create_table(&numbers("many", 1, 200)).unwrap();
    assert_eq!(answer(&socket, "lease list"), "no reader holds a batch\n");
    let trainer = named(&socket, "trainer");
    let mut reader = trainer.attach_reader("t", None, ReaderOptions::default()).unwrap();
    let mut writer = named(&socket, "worker").attach_writer("t", None).unwrap();
    writer.append(&[&0_u64.to_ne_bytes(), &check_of(0)]).unwrap();
    let batch = reader.next_batch(LONG).unwrap();
    eventually("the daemon has looked at them", || {
        let leases = json(&socket, "lease list t")["leases"].clone();
        leases.as_array().unwrap().iter().all(|lease| lease["for_ms"].is_u64())
    });
    let leases = json(&socket, "lease list t")["leases"].clone();
    for (i, state) in ["complete", "filling"].into_iter().enumerate() {
        let lease = &leases[i];
        assert_eq!([&lease["table"], &lease["name"], &lease["state"]], ["t", "trainer", state], "{leases}");
        assert_eq!(lease["client"], trainer.id().0);
        assert_eq!(lease["pid"], std::process::id());
        assert_eq!((&lease["grant"], &lease["batch"]), (&(i + 1).into(), &i.into()));
    }
    assert!(!leases.to_string().contains("token"));
    let list = answer(&socket, "lease list t");
    assert_eq!(list.lines().count(), 3, "{list}");
    // More than fit into one page, behind those of another table.
    let options = ReaderOptions { prefetch: 200, ..ReaderOptions::default() };
    let _all = trainer.attach_reader("many", None, options).unwrap();
    let every = trainer.list_leases(None).unwrap();
    let of = |name: &str| -> Vec<u64> {
        every.iter().filter(|lease| lease.table_name == name).map(|lease| lease.seq.0).collect()
    };
    assert_eq!((of("t"), of("many")), (vec![0, 1], (0..200).collect()));
    // What a reader has of a table that was dropped it can still read; what was missing will not come.
    trainer.drop_table("t").unwrap();
    let left = trainer.list_leases(None).unwrap();
    let states: Vec<_> = left.iter().filter(|l| l.table_name == "t").map(|l| l.state).collect();
    assert_eq!(states, [LeaseState::Complete, LeaseState::Broken]);
    drop((batch, reader, writer));
    assert_eq!(echoctl(&socket, "lease list t").0, 1);
}

#[test]
fn scripts_see_by_the_exit_code_what_went_wrong() {
    let daemon = Daemon::start_with(&["--host-budget", "1MiB"]);
    let socket = daemon.socket();
    let create = "table create t --batch-size 1 --capacity 1 --array";
    for (arguments, exit, sentence) in [
        ("table show nobody", 1, "nobody"),
        ("why nobody", 1, "nobody"),
        ("table drop nobody", 1, "nobody"),
        ("table create t! --batch-size 1 --capacity 1 --array r:bool", 1, "t!"),
        (&format!("{create} big:uint8:2097152"), 75, "budget"),
        (&format!("{create} r:float"), 64, "\"float\" is no dtype"),
        ("tables", 64, "unrecognized subcommand"),
        ("status --timeout soon", 64, "--timeout"),
        ("status --socket /nowhere/echod.sock", 69, "/nowhere/echod.sock"),
    ] {
        let (got, out, err) = echoctl(&socket, arguments);
        assert_eq!((got, out.as_str()), (exit, ""), "{arguments}: {err}");
        assert!(err.contains(sentence), "{arguments}: {err}");
    }
    let (exit, out, err) = echoctl(&socket, "--json table show nobody");
    assert_eq!((exit, out.as_str()), (1, ""));
    let error: Value = serde_json::from_str(&err).unwrap();
    assert_eq!((&error["error"]["kind"], &error["error"]["exit"]), (&"no_such_table".into(), &1.into()));
}

#[test]
fn a_daemon_that_does_not_answer_is_given_up() {
    let mut daemon = Daemon::start();
    let socket = daemon.socket();
    daemon.actor().signal(rustix::process::Signal::STOP);
    let (exit, _, err) = echoctl(&socket, "table list --timeout 50ms");
    daemon.actor().signal(rustix::process::Signal::CONT);
    assert_eq!(exit, 75, "{err}");
    daemon.actor().kill();
    assert_eq!(echoctl(&socket, "status").0, 69);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let daemon = Daemon::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    let status = command.args(["--help"]).stdout(writer.try_clone().unwrap()).status().unwrap();
    assert!(status.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    command.env("ECHO_SOCKET", daemon.socket()).arg("status").stdout(writer);
    assert!(command.status().unwrap().success());
}
