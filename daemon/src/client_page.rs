//! The client page as the daemon makes it: a file of one page, mapped here and sent to its client.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use echo::memory::memfd::Unsealed;
use echo::memory::shared::Filling;
use echo::memory::{Access, Mapping, MemoryError};
use echo::ring::record::{ClientPage, PAGE_BYTES};
use echo::ring::words::Words;
use echo::spec::Pin;

/// A new page, and the descriptor that its client gets.
///
/// # Errors
/// If the kernel has no memory or no descriptors left.
pub fn create() -> Result<(Arc<ClientPage>, Arc<OwnedFd>), MemoryError> {
    let file = Unsealed::create("echo/client-page", PAGE_BYTES as u64)?;
    let mapping = Mapping::new(&file, PAGE_BYTES, Access::ReadWrite)?;
    mapping.make_resident(&Filling::new(1, Pin::BestEffort, |_| ()))?;
    let page = ClientPage::create(Words::mapped(mapping)).expect("the mapping is a page long");
    Ok((Arc::new(page), Arc::new(file.seal()?.into_fd())))
}
