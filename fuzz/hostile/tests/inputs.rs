//! Every door with the committed inputs, and with random ones and random changes of those: some of what the fuzzer
//! does, on every `cargo test`.

use std::fs;
use std::path::Path;

use echo_hostile::{DOORS, Door, seeds};

/// Random inputs of one door: in a build without optimisation, a second or two of them.
const RANDOM: usize = 20000;

fn committed(door: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(door);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// On a panic, the input stands in the log.
fn drive(door: Door, bytes: &[u8]) {
    let (name, holds) = door;
    if let Err(panic) = std::panic::catch_unwind(|| holds(bytes)) {
        eprintln!("{name} does not hold with {bytes:?}");
        std::panic::resume_unwind(panic);
    }
}

fn holds(name: &str) {
    let door = *DOORS.iter().find(|(door, _)| *door == name).unwrap();
    let inputs = committed(name);
    assert!(!inputs.is_empty());
    for input in &inputs {
        drive(door, input);
    }
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..RANDOM {
        let mut input = match random.bool() {
            true => inputs[random.usize(..inputs.len())].clone(),
            false => (0..random.usize(..400)).map(|_| random.u8(..)).collect(),
        };
        for _ in 0..random.usize(..8) {
            let at = random.usize(..=input.len());
            match random.u8(..3) {
                0 => input.insert(at, random.u8(..)),
                1 => input.truncate(at.max(4)),
                _ if at < input.len() => input[at] = random.u8(..),
                _ => {}
            }
        }
        drive(door, &input);
    }
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    holds("message");
}

#[test]
fn what_comes_beside_a_packet_is_owned_or_closed() {
    holds("ancillary");
}

#[test]
fn a_spoilt_control_region_harms_its_table_alone() {
    holds("control_region");
}

#[test]
fn a_spoilt_client_page_harms_its_table_alone() {
    holds("client_page");
}

#[test]
fn a_spoilt_latest_table_harms_itself_alone() {
    holds("latest");
}

#[test]
fn a_spoilt_replay_table_harms_itself_alone() {
    holds("replay");
}

#[test]
fn any_bytes_are_a_configuration_or_an_error() {
    holds("configuration");
}

#[test]
fn every_seed_is_committed() {
    for (door, name, bytes) in seeds::all() {
        let committed = committed(door);
        assert!(committed.contains(&bytes), "{door}/{name}: run `cargo run --package echo-hostile`");
    }
}
