//! Files without a name, in memory: made, filled and sealed before anyone else sees them.
//!
//! ```text
//!   Unsealed ── size, mode, no shrinking or growing ──▶ filled by its maker ──▶ Sealed ──▶ shared
//! ```
//!
//! A `Sealed` file's size and seals are final. That does not stop its writers from punching holes into it; no
//! seal does that without stopping everybody, the daemon's successor included, from mapping it writable.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memfd::{FileSeal, Memfd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::memory::error::MemoryError;
use crate::memory::mapping::Access;
use crate::memory::syscalls;

const SIZE_SEALS: [FileSeal; 2] = [FileSeal::SealShrink, FileSeal::SealGrow];

/// Still its maker's alone.
#[derive(Debug)]
pub struct Unsealed {
    file: Memfd,
    bytes: u64,
}

/// May be shared.
#[derive(Debug)]
pub struct Sealed {
    fd: OwnedFd,
    bytes: u64,
}

impl AsFd for Unsealed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_file().as_fd()
    }
}

impl AsFd for Sealed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Unsealed {
    /// A file of that many zero bytes, none of which has memory yet. The name is for people who look into
    /// `/proc`.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn create(name: &str, bytes: u64) -> Result<Self, MemoryError> {
        let fd = create(name).map_err(MemoryError::os("make a memory file", bytes))?;
        // Without this, a read-only descriptor could be opened again for writing through /proc.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)
            .map_err(MemoryError::os("set the mode of a memory file", bytes))?;
        syscalls::truncate(fd.as_fd(), bytes).map_err(MemoryError::os("size a memory file", bytes))?;
        let file = Memfd::try_from_fd(fd).map_err(|_| MemoryError::Descriptor("is no memfd".into()))?;
        file.add_seals(&SIZE_SEALS).map_err(seal_error(bytes))?;
        Ok(Self { file, bytes })
    }

    /// The descriptor once more.
    ///
    /// # Errors
    /// If there are too many.
    pub fn try_clone(&self) -> Result<OwnedFd, MemoryError> {
        rustix::io::fcntl_dupfd_cloexec(self.as_fd(), 0)
            .map_err(MemoryError::os("duplicate a descriptor", self.bytes))
    }

    /// Its size.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nobody can change its seals any more.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn seal(self) -> Result<Sealed, MemoryError> {
        self.file.add_seal(FileSeal::SealSeal).map_err(seal_error(self.bytes))?;
        Ok(Sealed { fd: self.file.into_file().into(), bytes: self.bytes })
    }
}

impl Sealed {
    /// A descriptor that was received, if it is what was announced.
    ///
    /// # Errors
    /// If it is of another kind, size or mode, or not sealed.
    pub fn received(fd: OwnedFd, bytes: u64, access: Access) -> Result<Self, MemoryError> {
        let wrong = |what: String| MemoryError::Descriptor(what);
        let status = rustix::fs::fstat(&fd).map_err(|errno| wrong(format!("has no status: {errno}")))?;
        if status.st_size as u64 != bytes {
            return Err(wrong(format!("has {} bytes where {bytes} were announced", status.st_size)));
        }
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| wrong(format!("has no flags: {errno}")))?;
        let got = if flags & OFlags::ACCMODE == OFlags::RDWR { Access::ReadWrite } else { Access::ReadOnly };
        if got != access {
            return Err(wrong(format!("is {got:?} where {access:?} was announced")));
        }
        let file = Memfd::try_from_fd(fd).map_err(|_| wrong("is no memfd".into()))?;
        let seals = file.seals().map_err(|error| wrong(format!("has no seals: {error}")))?;
        let missing = SIZE_SEALS.iter().chain(&[FileSeal::SealSeal]).find(|seal| !seals.contains(seal));
        if let Some(missing) = missing {
            return Err(wrong(format!("lacks the seal {missing:?}")));
        }
        Ok(Self { fd: file.into_file().into(), bytes })
    }

    /// Its size.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The same file through a descriptor that nobody can write through.
    ///
    /// # Errors
    /// If `/proc` is missing, or there are too many descriptors.
    pub fn read_only(&self) -> Result<OwnedFd, MemoryError> {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.fd));
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(MemoryError::os("open a memory file read-only", self.bytes))
    }
}

/// Never executable where the kernel knows that (6.3 on); before, it makes do without.
fn create(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match syscalls::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => syscalls::memfd_create(name, flags),
        result => result,
    }
}

fn seal_error(bytes: u64) -> impl FnOnce(memfd::Error) -> MemoryError {
    move |error| MemoryError::Os {
        doing: "seal a memory file",
        bytes,
        hint: error.to_string(),
        source: std::io::ErrorKind::Other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::mapping::Mapping;
    use crate::memory::syscalls::{Call, with_fault};

    fn sealed() -> Sealed {
        Unsealed::create("echo-test", 8192).unwrap().seal().unwrap()
    }

    #[test]
    fn a_file_is_0600_and_its_size_and_seals_are_final() {
        let file = sealed();
        let status = rustix::fs::fstat(file.as_fd()).unwrap();
        assert_eq!(status.st_mode & 0o777, 0o600);
        for bytes in [4096, 16384] {
            assert_eq!(rustix::fs::ftruncate(file.as_fd(), bytes), Err(Errno::PERM));
        }
        let again = Memfd::try_from_fd(file.into_fd()).unwrap();
        assert!(again.add_seal(FileSeal::SealWrite).is_err());
    }

    #[test]
    fn a_read_only_descriptor_stays_so() {
        let file = sealed();
        let read_only = file.read_only().unwrap();
        assert!(Mapping::new(&read_only, 8192, Access::ReadWrite).is_err());
        assert!(Mapping::new(&read_only, 8192, Access::ReadOnly).is_ok());
        let received = Sealed::received(read_only, 8192, Access::ReadWrite).unwrap_err().to_string();
        assert!(received.contains("is ReadOnly where ReadWrite was announced"), "{received}");
    }

    #[test]
    fn what_was_not_announced_is_refused() {
        let whole = sealed().into_fd();
        let error = Sealed::received(whole, 4096, Access::ReadWrite).unwrap_err().to_string();
        assert!(error.contains("has 8192 bytes where 4096 were announced"), "{error}");
        let unsealed = Unsealed::create("echo-test", 8192).unwrap();
        let error = Sealed::received(unsealed.try_clone().unwrap(), 8192, Access::ReadWrite).unwrap_err();
        assert!(error.to_string().contains("lacks the seal SealSeal"), "{error}");
        let (null, bytes) = (std::fs::File::open("/dev/null").unwrap(), 0);
        let error = Sealed::received(null.into(), bytes, Access::ReadOnly).unwrap_err().to_string();
        assert!(error.contains("is no memfd"), "{error}");
    }

    #[test]
    fn a_kernel_that_knows_no_noexec_seal_makes_files_all_the_same() {
        let (file, hit) = with_fault(Call::MemfdCreate, 0, Errno::INVAL, || Unsealed::create("echo-test", 1));
        assert!(hit && file.is_ok());
    }

    #[test]
    fn a_failure_leaves_no_descriptor() {
        for (call, errno) in [(Call::MemfdCreate, Errno::MFILE), (Call::Truncate, Errno::FBIG)] {
            let (result, hit) =
                with_fault(call, 0, errno, || Unsealed::create("echo-test-leak", 4096).map(|_| ()));
            assert!(hit && result.is_err());
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let leaked = open
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.to_string_lossy().contains("echo-test-leak"));
        assert_eq!(leaked.count(), 0);
    }
}
