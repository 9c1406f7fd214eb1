//! Numbers that nobody can guess, from the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::ids::LeaseToken;

/// A token that no one has seen.
///
/// # Errors
/// If the kernel gives no random numbers.
pub fn lease_token() -> io::Result<LeaseToken> {
    random().map(LeaseToken)
}

/// What tells one daemon from all others that ever ran.
///
/// # Errors
/// If the kernel gives no random numbers.
pub fn instance_id() -> io::Result<[u8; 16]> {
    random()
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // Up to 256 bytes come whole or not at all.
    let got = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if got == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_alike() {
        assert_ne!(lease_token().unwrap(), lease_token().unwrap());
    }
}
