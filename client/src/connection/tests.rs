//! The connection beside a daemon that is played here, message by message: what a real one does only by chance.

use echo::ids::{ClientId, MemberId};
use echo::memory::memfd::Unsealed;
use echo::memory::shared::Filling;
use echo::ring::record::{PAGE_BYTES, RECORDS};
use echo::spec::Pin;
use echo::wire::message::{Refusal, RefusalKind};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::*;

const READER: MemberId = MemberId(1);

/// The daemon's end.
struct Played {
    socket: OwnedFd,
}

impl Played {
    /// A connection to it, once both have greeted.
    fn greeted() -> (Arc<Connection>, Self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (here, there) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let played = Self { socket: there };
        let greeting = std::thread::spawn(move || Connection::greet(here, "test", LONG).unwrap());
        assert!(matches!(played.hears(), Request::Hello(_)));
        let welcome = Welcome {
            protocol: PROTOCOL_MAX,
            instance: [1; 16],
            client: ClientId(1),
            page_bytes: PAGE_BYTES as u64,
            records: RECORDS,
        };
        let page = Unsealed::create("echo/client-page", PAGE_BYTES as u64).unwrap();
        let mapping = Mapping::new(&page, PAGE_BYTES, Access::ReadWrite).unwrap();
        mapping.make_resident(&Filling::new(1, Pin::Off, |_| ())).unwrap();
        ClientPage::create(Words::mapped(mapping)).unwrap();
        let page = page.seal().unwrap().into_fd();
        let bytes = codec::encode_event(&Event::Welcome(welcome)).unwrap();
        assert_eq!(socket::send(played.socket.as_fd(), &bytes, &[page.as_fd()]).unwrap(), Sent::Done);
        assert_eq!(played.hears(), Request::Received);
        (Arc::new(greeting.join().unwrap()), played)
    }

    fn hears(&self) -> Request {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        loop {
            assert!(socket::wait_readable(self.socket.as_fd(), deadline_in(LONG)).unwrap());
            if let Received::Packet(packet) = socket::receive(self.socket.as_fd(), &mut buffer).unwrap() {
                return codec::decode_request(&buffer[..packet.bytes]).unwrap();
            }
        }
    }

    fn hears_call(&self) -> (u32, Call) {
        match self.hears() {
            Request::Call { id, call } => (id, call),
            other => panic!("{other:?}"),
        }
    }

    fn answers(&self, id: u32, answer: Answer) {
        let bytes = codec::encode_event(&Event::Answer { id, answer }).unwrap();
        assert_eq!(socket::send(self.socket.as_fd(), &bytes, &[]).unwrap(), Sent::Done);
    }
}

fn report() -> PinReport {
    PinReport { bytes: 4096, registrations: 1, library: "libcudart.so.12".into(), read_only: false }
}

#[test]
fn a_turn_that_does_not_come_in_time_is_given_up_and_comes_too_late_without_harm() {
    let (connection, daemon) = Played::greeted();
    let waiting = connection.clone();
    let waiting = std::thread::spawn(move || waiting.begin_pin(READER, Duration::from_millis(1), None));
    let (first, call) = daemon.hears_call();
    assert_eq!(call, Call::BeginPin { member: READER });
    let (given_up, call) = daemon.hears_call();
    assert_eq!(call, Call::EndPin { member: READER, pinned: None });
    match waiting.join().unwrap().unwrap_err() {
        Error::TimedOut { what, .. } => {
            assert!(what.starts_with("waiting for the turn to page-lock"), "{what}")
        }
        other => panic!("{other}"),
    }
    // The answers to both find nobody, and the next turn is its own.
    daemon.answers(first, Answer::Done);
    daemon.answers(given_up, Answer::Done);
    let waiting = connection.clone();
    let waiting = std::thread::spawn(move || waiting.begin_pin(READER, LONG, None));
    let (second, call) = daemon.hears_call();
    assert_eq!(call, Call::BeginPin { member: READER });
    assert!(!waiting.is_finished(), "what was answered is another call");
    daemon.answers(second, Answer::Done);
    waiting.join().unwrap().unwrap();
    assert!(connection.shared.state().calls.is_empty(), "nothing is kept of any of them");
}

#[test]
fn giving_up_says_again_what_is_registered() {
    let (connection, daemon) = Played::greeted();
    let ending = connection.clone();
    let ending = std::thread::spawn(move || ending.end_pin(READER, report()));
    let (id, call) = daemon.hears_call();
    assert_eq!(call, Call::EndPin { member: READER, pinned: Some(report()) });
    daemon.answers(id, Answer::Done);
    ending.join().unwrap();
    assert!(matches!(connection.begin_pin(READER, Duration::ZERO, None), Err(Error::TimedOut { .. })));
    assert_eq!(daemon.hears_call().1, Call::BeginPin { member: READER });
    assert_eq!(daemon.hears_call().1, Call::EndPin { member: READER, pinned: Some(report()) });
    // Of a reader that is detached nothing is kept.
    connection.detach(READER);
    assert!(connection.shared.state().pinned.is_empty());
}

#[test]
fn a_turn_that_is_refused_is_not_given_up_as_well() {
    let (connection, daemon) = Played::greeted();
    let waiting = connection.clone();
    let waiting = std::thread::spawn(move || waiting.begin_pin(READER, LONG, None));
    let (id, _) = daemon.hears_call();
    let refusal = Refusal { kind: RefusalKind::Poisoned, message: "it is poisoned".into() };
    daemon.answers(id, Answer::Refused(refusal));
    assert_eq!(waiting.join().unwrap().unwrap_err().refusal(), Some(RefusalKind::Poisoned));
    drop(connection);
    assert_eq!(daemon.hears(), Request::Goodbye, "that is all it says");
}

#[test]
fn a_turn_that_is_not_wanted_any_more_is_given_up() {
    let (connection, daemon) = Played::greeted();
    let (asked, question) = std::sync::mpsc::sync_channel(0);
    let waiting = connection.clone();
    let wanted = move || asked.send(()).is_ok();
    let waiting = std::thread::spawn(move || waiting.begin_pin(READER, LONG, Some(&wanted)));
    let (id, _) = daemon.hears_call();
    // It is asked again and again, until there is nobody to say that it should go on.
    for _ in 0..3 {
        question.recv_timeout(LONG).unwrap();
    }
    drop(question);
    assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
    assert_eq!(daemon.hears_call().1, Call::EndPin { member: READER, pinned: None });
    // What comes after all finds nobody, and harms nobody.
    daemon.answers(id, Answer::Done);
    let again = connection.clone();
    let again = std::thread::spawn(move || again.begin_pin(READER, LONG, Some(&|| true)));
    let (id, _) = daemon.hears_call();
    daemon.answers(id, Answer::Done);
    again.join().unwrap().unwrap();
}

#[test]
fn one_who_hears_nothing_any_more_is_gone_before_the_listener_knows() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (here, there) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    drop(there);
    let sent = send(&here, &Request::Status, deadline_in(LONG));
    assert!(matches!(sent, Err(Error::Gone { .. })), "{sent:?}");
}
