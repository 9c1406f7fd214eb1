//! The command beside daemons of other versions, and beside what is no daemon at all.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use echo::ids::{ClientId, MemberId};
use echo::wire::codec;
use echo::wire::message::{
    BUILD, Event, LAYOUT_VERSION, MAX_MESSAGE, PROTOCOL_MAX, PROTOCOL_MIN, Refused, Request, Status, Welcome,
};
use echo::wire::socket::{self, Received};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(60);

/// A path for a socket, in a directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("echoctl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("echod.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What an impostor does with a connection.
enum Answer {
    /// Reads one message and answers as a daemon of that kind would.
    To(fn(&Request) -> Event),
    /// Reads one message and answers with these bytes.
    Bytes(Vec<u8>),
    /// Says this without being asked, and closes.
    Unasked(Vec<u8>),
    /// Reads, and says nothing.
    Silence,
    /// Does not even read.
    Close,
}

/// The next message of the peer, or none when it is gone.
fn receive(socket: BorrowedFd<'_>) -> Option<Request> {
    let mut buffer = vec![0; MAX_MESSAGE + 1];
    loop {
        match socket::receive(socket, &mut buffer).unwrap() {
            Received::Packet(packet) => return Some(codec::decode_request(&buffer[..packet.bytes]).unwrap()),
            Received::Closed => return None,
            Received::WouldBlock => {
                assert!(
                    socket::wait_readable(socket, Instant::now() + LONG).unwrap(),
                    "the command is silent"
                );
            }
        }
    }
}

/// Serves one connection, until the peer is gone.
fn serve(listener: &OwnedFd, answer: &Answer) {
    assert!(socket::wait_readable(listener.as_fd(), Instant::now() + LONG).unwrap(), "nobody connects");
    let peer = socket::accept(listener.as_fd()).unwrap().expect("it waits");
    let say = |bytes: &[u8]| socket::send(peer.as_fd(), bytes, &[]).map(drop);
    match answer {
        Answer::Close => return,
        Answer::Unasked(bytes) => {
            say(bytes).unwrap();
            return;
        }
        Answer::To(event) => {
            let request = receive(peer.as_fd()).expect("a message");
            say(&codec::encode_event(&event(&request)).unwrap()).unwrap();
        }
        Answer::Bytes(bytes) => {
            receive(peer.as_fd()).expect("a message");
            say(bytes).unwrap();
        }
        Answer::Silence => {}
    }
    while receive(peer.as_fd()).is_some() {}
}

/// What the command exits with and says on both streams, beside a daemon that answers like this.
fn echoctl(answer: &Answer, arguments: &str) -> (i32, String, String) {
    static NEXT: Mutex<u32> = Mutex::new(0);
    let next = {
        let mut next = NEXT.lock().unwrap();
        *next += 1;
        next.to_string()
    };
    let place = Place::new(&next);
    let listener = socket::listen(&place.socket(), 4).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, answer));
        run(&place.socket(), arguments)
    })
}

fn run(socket: &Path, arguments: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echoctl"));
    command.env_clear().env("ECHO_SOCKET", socket).args(arguments.split(' ')).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// A daemon of a time to come: it speaks other versions, and is in a state that nobody here has heard of.
fn newer(request: &Request) -> Event {
    match request {
        Request::Status => Event::Status(Status {
            protocol_min: 7,
            protocol_max: 9,
            layout: 5,
            build: "4.0.0-beta".into(),
            pid: 4711,
            uptime_ms: 125_000,
            state: "levitating\x1b[2J".into(),
            tables: 3,
            clients: 2,
            host_budget: 8 << 30,
            host_used: 1 << 30,
        }),
        _ => refused(7, 9, 5, "too old"),
    }
}

fn refused(protocol_min: u16, protocol_max: u16, layout: u32, reason: &str) -> Event {
    Event::Refused(Refused {
        protocol_min,
        protocol_max,
        layout,
        build: "4.0.0-beta".into(),
        reason: reason.into(),
    })
}

#[test]
fn a_daemon_to_come_says_how_it_is() {
    let (exit, out, err) = echoctl(&Answer::To(newer), "status");
    assert_eq!((exit, err.as_str()), (0, ""));
    for part in [
        "echod 4.0.0-beta (pid 4711) is levitating\\u{1b}[2J at ",
        "for 2m 5s",
        "1.0 GiB of 8.0 GiB",
        "protocol 7 to 9, layout 5",
    ] {
        assert!(out.contains(part), "{out}");
    }
    let (exit, out, _) = echoctl(&Answer::To(newer), "--json status");
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, &status["status"]["protocol_min"]), (0, &7.into()));
}

#[test]
fn every_other_command_says_which_versions_would_have_to_meet() {
    for arguments in [
        "table list",
        "table show t",
        "table create t --batch-size 1 --capacity 1 --array r:bool",
        "table drop t",
        "client list",
        "lease list",
        "why t",
    ] {
        let (exit, out, err) = echoctl(&Answer::To(newer), arguments);
        assert_eq!((exit, out.as_str()), (76, ""), "{arguments}: {err}");
        assert_eq!(
            err,
            format!(
                "echoctl: echod refuses this client: too old (echod 4.0.0-beta speaks versions 7 to 9 of the protocol \
                 over version 5 of the shared memory; this client, {BUILD}, speaks versions {PROTOCOL_MIN} to \
                 {PROTOCOL_MAX} over version {LAYOUT_VERSION})\n"
            ),
            "{arguments}"
        );
    }
}

#[test]
fn a_refusal_that_is_no_matter_of_versions_names_none_and_may_pass() {
    let answer = Answer::To(|_| {
        refused(PROTOCOL_MIN, 9, LAYOUT_VERSION, "echod is stopping: connect to its successor")
    });
    let (exit, _, err) = echoctl(&answer, "table list");
    assert_eq!(
        (exit, err.as_str()),
        (75, "echoctl: echod refuses this client: echod is stopping: connect to its successor\n")
    );
}

#[test]
fn what_is_no_daemon_is_told_apart_and_waited_for_no_longer_than_was_said() {
    let event = |event| codec::encode_event(&event).unwrap();
    let page_missing =
        Welcome { protocol: 1, instance: [1; 16], client: ClientId(1), page_bytes: 4096, records: 63 };
    let released = Event::Released { member: MemberId(1), count: 1 };
    let refusal = event(refused(7, 9, 5, "too old"));
    let closing = event(Event::Closing { reason: "lunch".into() });
    for (answer, exit, sentence) in [
        (Answer::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), 76, "bytes are no message"),
        (Answer::Bytes(vec![0xff; 300]), 76, "is of another version"),
        (Answer::Bytes(vec![0; 10]), 76, "10 bytes are no message"),
        (Answer::Bytes(vec![2; MAX_MESSAGE + 2]), 76, "longer than"),
        (Answer::Bytes(event(released)), 76, "makes no sense"),
        (Answer::Bytes(event(Event::Welcome(page_missing))), 76, "0 descriptors came where 1 belong"),
        (Answer::Bytes(closing), 69, "echod is gone: lunch"),
        (Answer::Unasked(refusal), 76, "too old"),
        (Answer::Close, 69, "echod is gone: its socket has closed"),
        (Answer::Silence, 75, "echod's first answer took longer than"),
    ] {
        let timeout = if exit == 75 { "50ms" } else { "60s" };
        for command in ["status", "table list"] {
            let (got, out, err) = echoctl(&answer, &format!("{command} --timeout {timeout}"));
            assert_eq!((got, out.as_str()), (exit, ""), "{command}: {err}");
            assert!(err.starts_with("echoctl: ") && err.contains(sentence), "{command}: {err}");
            assert_eq!(err.lines().count(), 1, "{err}");
        }
    }
}

#[test]
fn a_daemon_that_never_accepts_is_given_up() {
    let place = Place::new("deaf");
    let _listener = socket::listen(&place.socket(), 4).unwrap();
    let (exit, _, err) = run(&place.socket(), "status --timeout 50ms");
    assert_eq!(exit, 75, "{err}");
}
