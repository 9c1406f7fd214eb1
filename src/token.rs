//! Numbers that nobody can guess, from the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::ids::LeaseToken;

/// Bytes that the kernel gives whole or not at all.
const WHOLE: usize = 256;
/// Tokens that one call to the kernel gives.
const AT_ONCE: usize = WHOLE / size_of::<LeaseToken>();

/// Tokens that no one has seen: an endless source of them, several from each call to the kernel.
///
/// # Errors
/// Of the source: if the kernel gives no random numbers.
pub fn lease_tokens() -> impl FnMut() -> io::Result<LeaseToken> + Send {
    let mut left: Vec<LeaseToken> = Vec::with_capacity(AT_ONCE);
    move || {
        if left.is_empty() {
            let bytes: [u8; WHOLE] = random()?;
            left.extend(bytes.as_chunks().0.iter().copied().map(LeaseToken));
        }
        // Taken out, so that none is given twice.
        left.pop().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// What tells one daemon from all others that ever ran.
///
/// # Errors
/// If the kernel gives no random numbers.
pub fn instance_id() -> io::Result<[u8; 16]> {
    random()
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= WHOLE) };
    let mut bytes = [0; N];
    let got = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if got == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_alike() {
        let mut tokens = lease_tokens();
        let all: std::collections::HashSet<_> = (0..AT_ONCE * 3).map(|_| tokens().unwrap()).collect();
        assert_eq!(all.len(), AT_ONCE * 3);
    }
}
