//! Fake CUDA libraries: built once, laid out as a wheel or a system has them, and read by what they wrote down.
//!
//! A process that loads one is a process of its own: what a library keeps, and what the loader knows, is the process's.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::FlockOperation;

/// Where the libraries are as they were built. [`Tree`] has them under the names that they go by.
pub struct Built {
    pub cudart12: PathBuf,
    pub cudart13: PathBuf,
}

/// The fake libraries, which are built if they are not, or no longer as the sources say.
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("fakes");
        std::fs::create_dir_all(&target).unwrap();
        build(&target);
        let library = |name: &str| target.join("debug").join(name);
        Built { cudart12: library("libcudart12.so"), cudart13: library("libcudart13.so") }
    })
}

/// In a folder of its own, since cargo holds a lock on the one that it builds the tests in.
fn build(target: &Path) {
    // Held until the process that has it is done. Under nextest each test is a process, and one of them builds.
    let lock = File::create(target.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let done = target.join("done");
    let run = std::env::var("NEXTEST_RUN_ID").ok();
    if run.is_some() && std::fs::read_to_string(&done).ok() == run {
        return;
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
        .args(["build", "--quiet", "--locked", "--config", "profile.dev.debug=false", "--target-dir"])
        .arg(target);
    for package in ["echo-fake-cudart12", "echo-fake-cudart13"] {
        command.args(["--package", package]);
    }
    // What a sanitizer or loom asks of the tests is not asked of these.
    for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
        command.env_remove(flags);
    }
    let status = command.status().expect("cargo is there");
    assert!(status.success(), "the fake libraries are not built: {status}");
    std::fs::write(done, run.unwrap_or_default()).unwrap();
}

/// A directory with libraries in it as somebody installed them, and with a journal. It goes when this is dropped.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// An empty one. The name tells the trees of one process apart.
    pub fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("echo-fakes-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        Self { root }
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Puts a copy of a library at a path in the tree.
    pub fn put(&self, library: &Path, at: &str) -> PathBuf {
        let path = self.make_way(at);
        std::fs::copy(library, &path).unwrap();
        path
    }

    /// As the wheels of CUDA 12 and 13 lie beneath `site-packages`: the versioned name alone, and no link to it.
    pub fn put_wheels(&self) -> [PathBuf; 2] {
        let built = built();
        [
            self.put(&built.cudart12, "nvidia/cuda_runtime/lib/libcudart.so.12"),
            self.put(&built.cudart13, "nvidia/cu13/lib/libcudart.so.13"),
        ]
    }

    /// As a framework bundles a runtime of its own: with a hash in the name of the file.
    pub fn put_bundled(&self) -> PathBuf {
        self.put(&built().cudart12, "torch/lib/libcudart-9335f6a2.so.12")
    }

    /// A name that only a loose search takes for a runtime.
    pub fn put_stub(&self) -> PathBuf {
        self.put(&built().cudart12, "stubs/libcudart_stub.so")
    }

    /// A copy in which a function goes by another name, so that it is not found.
    pub fn put_without(&self, library: &Path, function: &str, at: &str) -> PathBuf {
        let mut bytes = std::fs::read(library).unwrap();
        let name = format!("\0{function}\0").into_bytes();
        let found: Vec<usize> =
            (0..bytes.len() - name.len()).filter(|&at| bytes[at..][..name.len()] == name).collect();
        assert!(!found.is_empty(), "{function} is in {}", library.display());
        for at in found {
            bytes[at + name.len() - 2] = b'_';
        }
        let path = self.make_way(at);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// One that the loader does not load, since it ends early, as after a full disk. Not in its segments: the loader maps
    /// those unseen, and the process dies.
    pub fn put_truncated(&self, at: &str) -> PathBuf {
        let bytes = std::fs::read(&built().cudart12).unwrap();
        let path = self.make_way(at);
        std::fs::write(&path, &bytes[..128]).unwrap();
        path
    }

    /// One that the loader does not load, since what it needs is not there: the C library's name is changed in it,
    /// to one of the same length.
    pub fn put_needy(&self, at: &str) -> PathBuf {
        let mut bytes = std::fs::read(&built().cudart12).unwrap();
        let needed = b"\0libc.so.6\0";
        let found =
            bytes.windows(needed.len()).position(|bytes| bytes == needed).expect("it needs the C library");
        bytes[found..][..needed.len()].copy_from_slice(b"\0libx.so.6\0");
        let path = self.make_way(at);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn journal(&self) -> Journal {
        Journal { file: self.root.join("journal") }
    }

    fn make_way(&self, at: &str) -> PathBuf {
        let path = self.root.join(at);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// What fake libraries were asked, and what they answered.
pub struct Journal {
    file: PathBuf,
}

/// A line: a call, or (without a code) a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub pid: u32,
    pub library: String,
    pub name: String,
    pub arguments: Vec<String>,
    pub code: Option<i32>,
}

impl Journal {
    /// What a process that is to write it has in its environment.
    pub fn variable(&self) -> (&'static str, PathBuf) {
        ("ECHO_FAKE_CUDA_JOURNAL", self.file.clone())
    }

    /// All of it until now; nothing if no library was called.
    pub fn entries(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        text.lines()
            .map(|line| Entry::parse(line).unwrap_or_else(|| panic!("no line of a journal: {line}")))
            .collect()
    }

    /// The calls, as `cudaHostUnregister 713`, without what they were given.
    pub fn calls(&self) -> Vec<String> {
        self.entries().iter().filter_map(|entry| Some(format!("{} {}", entry.name, entry.code?))).collect()
    }

    /// The last count that a library wrote down, such as of `registrations`.
    pub fn live(&self, library: &str, what: &str) -> Option<u64> {
        let entries = self.entries();
        let live = entries.iter().rev().find(|entry| entry.library == library && entry.name == "live")?;
        live.arguments.iter().find_map(|count| count.strip_prefix(what)?.strip_prefix('=')?.parse().ok())
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let (said, code) = match line.rsplit_once(" -> ") {
            Some((said, code)) => (said, Some(code.parse().ok()?)),
            None => (line, None),
        };
        let mut words = said.split(' ').map(str::to_owned);
        let (pid, library, name) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        Some(Self { pid, library, name, arguments: words.collect(), code })
    }
}

/// A runtime that is loaded, fake or real. It stays loaded, as it does in a client.
pub struct Runtime {
    library: Library,
}

impl Runtime {
    pub fn load(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: what a CUDA library runs when it is loaded asks nothing of us.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        Ok(Self { library })
    }

    /// A function by its name; what it is must be known.
    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: each caller in this file names the function's own type.
        *unsafe { self.library.get::<F>(name) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the symbol is looked for and not used.
        unsafe { self.library.get::<*const c_void>(name) }.is_ok()
    }

    pub fn host_register(&self, start: usize, bytes: usize, flags: u32) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int =
            self.function("cudaHostRegister");
        // SAFETY: the library says what is wrong with memory. Tests unregister before they reuse it.
        unsafe { call(pointer(start), bytes, flags) }
    }

    pub fn host_unregister(&self, start: usize) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> c_int = self.function("cudaHostUnregister");
        // SAFETY: as above.
        unsafe { call(pointer(start)) }
    }

    /// The bytes at an address, as a device sees them where they are registered.
    ///
    /// # Safety
    /// The memory is readable, or was when it was registered.
    pub unsafe fn bytes(&self, start: usize, bytes: usize) -> Result<Vec<u8>, i32> {
        const DEFAULT: c_int = 4;
        let call: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int =
            self.function("cudaMemcpy");
        let mut copy = vec![0; bytes];
        // SAFETY: the copy has so many bytes, and the memory as well by our caller's promise.
        match unsafe { call(copy.as_mut_ptr().cast(), pointer(start), bytes, DEFAULT) } {
            0 => Ok(copy),
            code => Err(code),
        }
    }

    pub fn free_nothing(&self) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> c_int = self.function("cudaFree");
        // SAFETY: NULL may be freed.
        unsafe { call(std::ptr::null_mut()) }
    }

    pub fn get_last_error(&self) -> i32 {
        self.call_plain("cudaGetLastError")
    }

    pub fn peek_at_last_error(&self) -> i32 {
        self.call_plain("cudaPeekAtLastError")
    }

    fn call_plain(&self, name: &str) -> i32 {
        let call: unsafe extern "C" fn() -> c_int = self.function(name);
        // SAFETY: it takes nothing.
        unsafe { call() }
    }

    pub fn error_name(&self, code: i32) -> String {
        let call: unsafe extern "C" fn(c_int) -> *const c_char = self.function("cudaGetErrorName");
        // SAFETY: any number may be asked for.
        let name = unsafe { call(code) };
        // SAFETY: a text of the library's own, which is never NULL and stays.
        unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap().to_owned()
    }

    /// A call that says a number, such as `cudaDriverGetVersion`.
    pub fn number(&self, name: &str) -> Result<i32, i32> {
        let call: unsafe extern "C" fn(*mut c_int) -> c_int = self.function(name);
        let mut number = 0;
        // SAFETY: it writes one number.
        match unsafe { call(&raw mut number) } {
            0 => Ok(number),
            code => Err(code),
        }
    }

    pub fn attribute(&self, attribute: i32) -> Result<i32, i32> {
        let call: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
            self.function("cudaDeviceGetAttribute");
        let mut value = 0;
        // SAFETY: it writes one number.
        match unsafe { call(&raw mut value, attribute, 0) } {
            0 => Ok(value),
            code => Err(code),
        }
    }

    /// Has a fake write down what lives in it.
    pub fn say_what_lives(&self) {
        let call: unsafe extern "C" fn() = self.function("echo_fake_live");
        // SAFETY: it takes nothing.
        unsafe { call() }
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}
