//! What tests of latest tables have in common: values that show when they are torn.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::time::Duration;

use echo_client::{ArraySpec, Client, DType, LatestOptions, LatestReader, Publisher, TableSpec, Value};

use crate::support::Daemon;

pub const TABLE: &str = "policy";
/// Elements of a value: large enough for a writer to be killed in the middle of it.
pub const LENGTH: usize = 16 * 1024;
pub const SHORT: Duration = Duration::from_millis(100);

/// Values of a version and what follows from it, so that a torn one is seen.
pub fn spec(capacity: u32) -> TableSpec {
    let arrays = vec![
        ArraySpec::new("version", DType::U64, []),
        ArraySpec::new("weights", DType::U64, [LENGTH as u64]),
        ArraySpec::new("nothing", DType::F32, [0]),
    ];
    TableSpec { capacity, max_capacity: capacity, ..TableSpec::latest(TABLE, arrays) }
}

pub fn weights(version: u64) -> Vec<u8> {
    version.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes().repeat(LENGTH)
}

pub fn publish(publisher: &mut Publisher) -> u64 {
    let version = publisher.version() + 1;
    let published = publisher.publish(&[&version.to_ne_bytes(), &weights(version), &[]]).unwrap();
    assert_eq!(published, version);
    version
}

/// In place, as large values are.
pub fn publish_in_place(publisher: &mut Publisher) -> u64 {
    let mut claim = publisher.claim().unwrap();
    let version = claim.version();
    claim.array_mut_as::<u64>(0).unwrap()[0] = version;
    claim.array_mut(1).copy_from_slice(&weights(version));
    assert_eq!(claim.publish().unwrap(), version);
    version
}

/// Looks at every byte.
pub fn check(value: &Value) -> u64 {
    let version = value.version();
    assert_eq!(value.array(0).as_slice::<u64>().unwrap(), [version], "the value of version {version}");
    let expected = version.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let weights: &[u64] = value.array_named("weights").unwrap().as_slice().unwrap();
    assert!(weights.len() == LENGTH && weights.iter().all(|&x| x == expected), "version {version} is torn");
    version
}

pub fn reader(client: &Client) -> LatestReader {
    client.attach_latest(TABLE, None, LatestOptions::default()).unwrap()
}

pub fn table(capacity: u32) -> (Daemon, Client) {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&spec(capacity)).unwrap();
    (daemon, client)
}

/// Until somebody kills this process.
pub fn stay() {
    loop {
        std::thread::park();
    }
}
