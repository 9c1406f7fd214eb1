//! What the connections of one user may have of the daemon, all together.
//!
//! Users must not feel each other: each has so many connections, of which only some are greeted at a time, so many
//! requests that wait for the supervisor, and so many calls a second. What is too much *waits*, in its own user's
//! line and in no other; only connections beyond what all clients of a user could need are refused.
//!
//! Tables, leases and bytes are counted elsewhere, by the supervisor and by the memory governor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::allowance::Allowance;
use crate::limits::{OWN_REQUESTS, PART, REQUESTS};

/// Where connections come in.
#[derive(Debug)]
pub struct Door {
    connections: u32,
    greetings: u32,
    calls: u32,
    opened: Instant,
    shares: Mutex<HashMap<u32, Share>>,
}

/// One user's part.
#[derive(Debug)]
struct Share {
    connections: u32,
    greetings: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    calls: Allowance,
}

/// A connection that was let in; it counts until it is dropped.
#[derive(Debug)]
pub struct Admission {
    door: Arc<Door>,
    uid: u32,
    greetings: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    own_requests: Arc<Semaphore>,
}

/// A place among the requests that wait for the supervisor, until it is dropped.
#[derive(Debug)]
pub struct Place {
    door: Arc<Door>,
    uid: u32,
    _of_user: OwnedSemaphorePermit,
    _of_connection: OwnedSemaphorePermit,
}

impl Door {
    /// For so many clients of one user, so many of its connections that are greeted, and so many calls a second.
    pub fn new(clients: u32, greetings: u32, calls: u32) -> Self {
        Self {
            connections: clients.saturating_add(greetings),
            greetings,
            calls,
            opened: Instant::now(),
            shares: Mutex::default(),
        }
    }

    /// Lets a connection of that user in.
    ///
    /// # Errors
    /// If the user has too many, with the reason for the client.
    pub fn admit(self: &Arc<Self>, uid: u32) -> Result<Admission, String> {
        let mut shares = self.shares();
        let share = shares.entry(uid).or_insert_with(|| Share {
            connections: 0,
            greetings: Arc::new(Semaphore::new(self.greetings as usize)),
            requests: Arc::new(Semaphore::new(REQUESTS)),
            calls: Allowance::new(self.calls),
        });
        if share.connections >= self.connections {
            let limit = self.connections;
            return Err(format!(
                "uid {uid} has {limit} connections already, which is the limit (max_clients and max_pending): close \
                 some, or raise it"
            ));
        }
        share.connections += 1;
        let (greetings, requests) = (share.greetings.clone(), share.requests.clone());
        let own_requests = Arc::new(Semaphore::new(OWN_REQUESTS));
        Ok(Admission { door: self.clone(), uid, greetings, requests, own_requests })
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<u32, Share>> {
        // Every change is whole: a count, or an entry.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// A place among the user's connections that are greeted.
    pub async fn greeting(&self) -> OwnedSemaphorePermit {
        place(&self.greetings).await
    }

    /// A place among the requests of the connection and of its user that wait for the supervisor.
    pub async fn request(&self) -> Place {
        let _of_connection = place(&self.own_requests).await;
        let _of_user = place(&self.requests).await;
        Place { door: self.door.clone(), uid: self.uid, _of_user, _of_connection }
    }

    /// How long the user's next call has to wait; to be asked once a call.
    pub fn delay_of_call(&self) -> Duration {
        let now = self.door.opened.elapsed();
        let mut shares = self.door.shares();
        shares.get_mut(&self.uid).map_or(Duration::ZERO, |share| share.calls.take(now))
    }
}

impl Place {
    /// The call that the place was for kept the supervisor busy for so long.
    pub fn took(self, time: Duration) {
        let now = self.door.opened.elapsed();
        let mut shares = self.door.shares();
        if let Some(share) = shares.get_mut(&self.uid) {
            share.calls.spend(now, time * PART);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut shares = self.door.shares();
        if let Some(share) = shares.get_mut(&self.uid) {
            share.connections -= 1;
            // Forgotten with the last one, unless that would be a way to more calls.
            let is_spent = share.calls.is_spent(self.door.opened.elapsed());
            if share.connections == 0 && !is_spent {
                shares.remove(&self.uid);
            }
        }
    }
}

async fn place(line: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    line.clone().acquire_owned().await.expect("it is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Arc<Door> {
        Arc::new(Door::new(2, 1, 10))
    }

    #[test]
    fn a_user_has_so_many_connections_and_others_do_not_feel_it() {
        let door = door();
        let mut all: Vec<_> = (0..3).map(|_| door.admit(7).unwrap()).collect();
        let refused = door.admit(7).unwrap_err();
        assert!(refused.contains("uid 7 has 3 connections"), "{refused}");
        assert!(door.admit(8).is_ok());
        all.pop();
        assert!(door.admit(7).is_ok(), "one that went makes room");
        drop(all);
        assert!(door.shares().is_empty(), "nobody is remembered");
    }

    #[tokio::test]
    async fn what_takes_long_counts_as_several_calls() {
        let one = door().admit(7).unwrap();
        one.request().await.took(Duration::from_millis(10));
        assert!(one.delay_of_call().is_zero());
        one.request().await.took(Duration::from_secs(1));
        assert!(!one.delay_of_call().is_zero());
    }

    #[test]
    fn calls_are_counted_by_user_and_not_by_connection() {
        let door = door();
        let one = door.admit(7).unwrap();
        assert!((0..10).all(|_| one.delay_of_call().is_zero()));
        let other = door.admit(7).unwrap();
        assert!(!other.delay_of_call().is_zero());
        drop((one, other));
        assert!(!door.admit(7).unwrap().delay_of_call().is_zero(), "coming back does not help");
        assert!(door.admit(8).unwrap().delay_of_call().is_zero());
    }
}
