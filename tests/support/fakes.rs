//! Fake CUDA libraries: built once, laid out as a wheel or a system has them, and read by what they wrote down.
//!
//! A process that loads one is a process of its own: what a library keeps, and what the loader knows, is the process's.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::FlockOperation;

/// Where the libraries are as they were built. [`Tree`] has them under the names that they go by.
pub struct Built {
    pub cudart12: PathBuf,
    pub cudart13: PathBuf,
    pub cuda: PathBuf,
}

/// The fake libraries, which are built if they are not, or no longer as the sources say.
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("fakes");
        std::fs::create_dir_all(&target).unwrap();
        build(&target);
        let library = |name: &str| target.join("debug").join(name);
        Built {
            cudart12: library("libcudart12.so"),
            cudart13: library("libcudart13.so"),
            cuda: library("libcuda1.so"),
        }
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
    for package in ["echo-fake-cudart12", "echo-fake-cudart13", "echo-fake-cuda1"] {
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
        // Another file in the place of one that is there, and at once: a process may load that, or have it mapped.
        let new = path.with_extension("new");
        std::fs::copy(library, &new).unwrap();
        std::fs::rename(new, &path).unwrap();
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

    /// As the driver's installation has it, in a directory for the loader to search.
    pub fn put_driver(&self) -> PathBuf {
        self.put(&built().cuda, "driver/libcuda.so.1")
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
