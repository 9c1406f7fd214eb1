//! Everything works on Linux 5.15, the oldest that echo runs on: a filter refuses what came later, as that kernel would,
//! in the daemon and in its clients.

#[path = "support/kernel.rs"]
mod kernel;
#[path = "support/process.rs"]
mod process;
#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::AsFd;

use echo::wire::codec;
use echo::wire::message::{Answer, Call, Event, LAYOUT_VERSION, MAGIC, PROTOCOL_MAX, Request};
use echo_client::message::EndReason;
use echo_client::{Error, ReaderOptions};
use rustix::io::Errno;
use stranger::Stranger;
use support::{Daemon, LONG, check_of, client_of_role, eventually, ids, numbers, say};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    let [age, part, rest @ ..] = &role[..] else { panic!("{role:?}") };
    match age.as_str() {
        "old" => kernel::is_old(),
        "boxed" => return boxed(&role[1..]),
        _ => {}
    }
    // Not to outlive who started it, where that is not the test.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    match part.as_str() {
        "daemon" => support::play_daemon(rest),
        "worker" => work(rest[0].parse().unwrap()),
        "claimer" => claim_and_stay(),
        "trainer" => train(),
        "look" => look(),
        _ => panic!("no such part: {role:?}"),
    }
}

/// The kernel of this process is what the tests below take it for.
fn look() {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::NOEXEC_SEAL;
    assert_eq!(rustix::fs::memfd_create("new", flags).map(drop), Err(Errno::INVAL));
    rustix::fs::memfd_create("old", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (one, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let peer = nix::sys::socket::getsockopt(&one, nix::sys::socket::sockopt::PeerPidfd);
    assert_eq!(peer.map(drop), Err(nix::errno::Errno::ENOPROTOOPT));
    nix::sys::socket::getsockopt(&one, nix::sys::socket::sockopt::PeerCredentials).unwrap();
    let error = echo::wire::socket::refuse_descriptors(one.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
    let waited = rustix::thread::futex::waitv(
        &[],
        rustix::thread::futex::WaitvFlags::empty(),
        None,
        rustix::time::ClockId::Monotonic,
    );
    assert_eq!(waited.map(drop), Err(Errno::NOSYS));
    say("it is old");
}

fn work(samples: u64) {
    let client = client_of_role();
    let mut writer = client.attach_writer("t", None).unwrap();
    writer.set_timeout(LONG);
    for id in 0..samples {
        writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
    }
    writer.finish().unwrap();
    say("finished");
}

fn claim_and_stay() {
    let client = client_of_role();
    let mut writer = client.attach_writer("t", None).unwrap();
    let _claim = writer.claim(1).unwrap();
    say("claimed");
    loop {
        std::thread::park();
    }
}

fn train() {
    let client = client_of_role();
    let mut reader = client.attach_reader("t", None, ReaderOptions::with_prefetch(2)).unwrap();
    let mut count = 0;
    loop {
        match reader.next_batch(LONG) {
            Ok(batch) => count += ids(&batch).len(),
            Err(Error::Closed { reason: EndReason::Finished, .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    say(&count.to_string());
}

#[test]
fn the_filter_refuses_what_came_after_5_15() {
    let daemon = Daemon::start_as("new daemon");
    let mut look = daemon.actor_of("old look");
    look.expect("it is old");
    assert!(look.wait().success());
}

/// Each of the two may be on an old kernel's side: containers have their own filters.
fn everything_works(daemon: &str, clients: &str) {
    let daemon = Daemon::start_as(&format!("{daemon} daemon"));
    let client = daemon.client();
    client.create_table(&numbers("t", 4, 4)).unwrap();
    // Its death is noticed, and what it had claimed is written by others.
    let mut claimer = daemon.actor_of(&format!("{clients} claimer"));
    claimer.expect("claimed");
    let mut trainer = daemon.actor_of(&format!("{clients} trainer"));
    let mut worker = daemon.actor_of(&format!("{clients} worker 1001"));
    eventually("samples wait for the claim", || client.show_table("t").unwrap().row.samples.committed > 3);
    claimer.kill();
    worker.expect("finished");
    trainer.expect("1001");
    assert!(worker.wait().success() && trainer.wait().success());
    let samples = client.show_table("t").unwrap().row.samples;
    assert_eq!((samples.committed, samples.delivered, samples.pending), (1001, 1001, 0));
    eventually("everybody is forgotten", || client.list_clients().unwrap().len() == 1);
    client.drop_table("t").unwrap();
    eventually("its memory went back", || {
        echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used == 0
    });
}

#[test]
fn a_sample_travels_and_a_death_is_noticed_on_an_old_kernel() {
    everything_works("old", "old");
}

#[test]
fn an_old_daemon_serves_new_clients() {
    everything_works("old", "new");
}

#[test]
fn a_new_daemon_serves_old_clients() {
    everything_works("new", "old");
}

#[test]
fn descriptors_that_an_old_kernel_lets_through_are_closed() {
    let daemon = Daemon::start_as("old daemon");
    let client = daemon.client();
    let (stranger, page) = Stranger::greeted(&daemon.socket());
    let before = process::descriptors(daemon.pid());
    let list = Request::Call { id: 1, call: Call::ListTables { after: None } };
    let list = codec::encode_request(&list).unwrap();
    for count in [1, 2] {
        for _ in 0..50 {
            assert!(stranger.try_send(&list, &vec![page.as_fd(); count]), "the kernel lets it through");
            let answered = stranger.receive();
            assert!(
                matches!(answered, Some(Event::Answer { answer: Answer::Tables { .. }, .. })),
                "{answered:?}"
            );
        }
        assert_eq!(process::descriptors(daemon.pid()), before);
    }
    // More than there is room for, by hand.
    let many = [page.as_fd(); 100];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&many)));
    let bytes = [std::io::IoSlice::new(&list)];
    rustix::net::sendmsg(&stranger.socket, &bytes, &mut control, rustix::net::SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(stranger.receive(), Some(Event::Answer { .. })));
    assert_eq!(process::descriptors(daemon.pid()), before);

    // With a hello, where the kernel's word on who says it comes as well.
    let other = Stranger::connect(&daemon.socket());
    assert!(other.try_send(&Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION), &[page.as_fd()]));
    while other.receive().is_some() {}
    eventually("nothing of it is left", || process::descriptors(daemon.pid()) == before);
    client.list_tables().unwrap();
}

/// Starts the part in a PID namespace of its own, in which its clients have no pid.
fn boxed(part: &[String]) {
    // SAFETY: changes what this process's children are called, and nothing else.
    let done = unsafe { libc::unshare(libc::CLONE_NEWPID) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(std::env::args().skip(1)).env("ECHO_TEST_ROLE", part.join(" "));
    command.spawn().unwrap().wait().unwrap();
}

#[test]
fn a_client_that_has_no_pid_in_the_daemons_namespace_is_served_until_its_goodbye() {
    if !process::may_change_user("a PID namespace") {
        return;
    }
    let daemon = Daemon::start_as("boxed old daemon");
    let client = daemon.client();
    assert_eq!(client.list_clients().unwrap()[0].pid, 0);
    client.create_table(&numbers("t", 1, 4)).unwrap();
    let other = daemon.client();
    let mut writer = other.attach_writer("t", None).unwrap();
    let mut reader = other.attach_reader("t", None, Default::default()).unwrap();
    writer.append(&[&7_u64.to_ne_bytes(), &check_of(7)]).unwrap();
    assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [7]);
    drop((writer, reader, other));
    eventually("it said goodbye", || client.list_clients().unwrap().len() == 1);
    assert!(client.show_table("t").unwrap().members.is_empty());
}
