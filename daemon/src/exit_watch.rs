//! Watches for the exit of a client's process.

use std::io;

use echo::ids::ClientId;
use echo::peer::{Peer, ProofOfExit};
use tokio::io::Interest;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::readiness;
use crate::supervisor::Input;

/// Watches for as long as it lives, so that a process that connects again and again costs no more descriptors
/// than it has connections.
#[derive(Debug)]
pub struct ExitWatch(Option<AbortHandle>);

impl ExitWatch {
    /// Reports when the peer's process is gone. On kernels that give no pidfd nothing is watched: the client's
    /// rights then end with its goodbye alone.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated or registered.
    pub fn begin(client: ClientId, peer: &Peer, inputs: mpsc::Sender<Input>) -> io::Result<Self> {
        let Some(pidfd) = peer.pidfd() else { return Ok(Self(None)) };
        let pidfd = readiness::watch(pidfd.try_clone()?, Interest::READABLE)?;
        let watching = tokio::spawn(async move {
            loop {
                let Ok(mut ready) = pidfd.readable().await else { return };
                if let Some(proof) = ProofOfExit::of(pidfd.get_ref()) {
                    // A supervisor that is gone has nobody to tell.
                    let _ = inputs.send(Input::Exited(client, proof)).await;
                    return;
                }
                ready.clear_ready();
            }
        });
        Ok(Self(Some(watching.abort_handle())))
    }
}

impl Drop for ExitWatch {
    fn drop(&mut self) {
        if let Some(watching) = &self.0 {
            watching.abort();
        }
    }
}
