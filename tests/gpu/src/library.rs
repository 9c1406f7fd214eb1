//! CUDA's libraries: which are used, and the calls that only these checks make.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use echo::host_pinning::{Rung, Search, resolve};
use serde_json::{Value, json};

use crate::cuda::{Driver, Loaded, Runtime};

/// Never without its version: that is what a stub for linking is called.
const DRIVER: &str = "libcuda.so.1";

/// What a machine has.
pub enum Found {
    NoGpu(String),
    /// The runtime, or why there is none.
    Gpu {
        runtime: Result<PathBuf, String>,
    },
}

impl Found {
    /// Looks for a GPU, and for the runtime that a trainer would use. Both are started: for a process of its own.
    pub fn look(library: Option<&Path>) -> Self {
        // Before the driver is loaded, which is on the ladder too.
        let resolved = resolve(&Search::of_this_process(library, &[]));
        let driver = match driver() {
            Ok(driver) => driver,
            Err(error) => return Self::NoGpu(format!("{error:#}")),
        };
        let name = |code| format!("{} ({code})", driver.error_name(code).unwrap_or_default());
        match driver.init(0) {
            0 => {}
            code => return Self::NoGpu(format!("cuInit answers {}", name(code))),
        }
        match driver.says::<i32>("cuDeviceGetCount") {
            Ok(0) => return Self::NoGpu("the driver sees no device".into()),
            Ok(_) => {}
            Err(code) => return Self::NoGpu(format!("cuDeviceGetCount answers {}", name(code))),
        }
        let runtime = match resolved {
            Ok(resolved) => match resolved.probes.last() {
                Some(used) if used.rung != Rung::Driver => Ok(resolved.api.library().into()),
                _ => Err("none was found".into()),
            },
            Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
        };
        Self::Gpu { runtime }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::NoGpu(reason) => json!({ "no_gpu": reason }),
            Self::Gpu { runtime: Ok(path) } => json!({ "runtime": path }),
            Self::Gpu { runtime: Err(reason) } => json!({ "no_runtime": reason }),
        }
    }

    pub fn from_json(text: &str) -> Option<Self> {
        let said: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        Some(match (text("no_gpu"), text("runtime")) {
            (Some(reason), _) => Self::NoGpu(reason),
            (None, Some(path)) => Self::Gpu { runtime: Ok(path.into()) },
            (None, None) => Self::Gpu { runtime: Err(text("no_runtime")?) },
        })
    }
}

fn driver() -> Result<Driver> {
    Driver::load(Path::new(DRIVER)).context(DRIVER)
}

/// The libraries of a part: those of which it needs something.
pub struct Cuda {
    runtime: Option<Runtime>,
    driver: Option<Driver>,
}

impl Cuda {
    /// Loads them, and says what is missing.
    pub fn load(library: Option<&Path>, of_runtime: &[&str], of_driver: &[&str]) -> Result<Self, String> {
        let missing = |loaded: &Loaded, names: &[&str]| match names.iter().find(|name| !loaded.has(name)) {
            Some(name) => Err(format!("it has no {name}")),
            None => Ok(()),
        };
        let mut cuda = Self { runtime: None, driver: None };
        if !of_runtime.is_empty() {
            let library = library.ok_or("there is no CUDA runtime")?;
            let runtime = Runtime::load(library)
                .with_context(|| library.display().to_string())
                .map_err(|error| format!("{error:#}"))?;
            missing(runtime.loaded(), of_runtime)?;
            cuda.runtime = Some(runtime);
        }
        if !of_driver.is_empty() {
            let driver = driver().map_err(|error| format!("{error:#}"))?;
            missing(driver.loaded(), of_driver)?;
            cuda.driver = Some(driver);
        }
        Ok(cuda)
    }

    /// # Panics
    /// If the check that asks does not say that it needs one.
    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("a check that needs a runtime names its functions")
    }

    /// # Panics
    /// As above.
    pub fn driver(&self) -> &Driver {
        self.driver.as_ref().expect("a check that needs the driver names its functions")
    }

    /// The driver, started.
    pub fn started(&self) -> Result<&Driver> {
        let driver = self.driver();
        refused("cuInit", driver.init(0))?;
        Ok(driver)
    }
}

/// What a call answered that must not fail.
pub fn refused(call: &str, code: i32) -> Result<()> {
    ensure!(code == 0, "{call} answers {code}");
    Ok(())
}

/// The same of a call that says something.
pub fn said<T>(call: &str, said: Result<T, i32>) -> Result<T> {
    said.map_err(|code| anyhow!("{call} answers {code}"))
}

/// 0, or what a call answered.
pub fn code<T>(said: &Result<T, i32>) -> i32 {
    said.as_ref().err().copied().unwrap_or(0)
}

/// Makes a device's primary context current in this thread, by the driver.
pub fn enter(driver: &Driver, device: i32) -> Result<()> {
    let context: usize =
        said("cuDevicePrimaryCtxRetain", driver.of_device("cuDevicePrimaryCtxRetain", device))?;
    refused("cuCtxPushCurrent", driver.with_context("cuCtxPushCurrent_v2", context))
}

/// The functions by which a device of the runtime is chosen and memory copied to it.
pub const COPYING: &[&str] = &[
    "cudaMalloc",
    "cudaStreamCreate",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaMemcpy",
    "cudaHostRegister",
    "cudaHostUnregister",
];

/// Memory of the current device, and a stream that copies to it.
pub struct Destination<'a> {
    runtime: &'a Runtime,
    memory: usize,
    bytes: usize,
    stream: usize,
}

impl<'a> Destination<'a> {
    pub fn new(runtime: &'a Runtime, bytes: usize) -> Result<Self> {
        let malloc: unsafe extern "C" fn(*mut usize, usize) -> c_int =
            runtime.loaded().function("cudaMalloc");
        let create: unsafe extern "C" fn(*mut usize) -> c_int = runtime.loaded().function("cudaStreamCreate");
        let (mut memory, mut stream) = (0, 0);
        // SAFETY: it writes one pointer.
        refused("cudaMalloc", unsafe { malloc(&raw mut memory, bytes) })?;
        // SAFETY: as above.
        refused("cudaStreamCreate", unsafe { create(&raw mut stream) })?;
        Ok(Self { runtime, memory, bytes, stream })
    }

    /// Copies from the host, and waits for it: what the two calls answered.
    ///
    /// # Safety
    /// So many bytes from there are mapped and readable, and nobody writes them meanwhile.
    pub unsafe fn copy(&self, from: usize, bytes: usize) -> (i32, i32) {
        const TO_DEVICE: c_int = 1;
        assert!(bytes <= self.bytes, "it fits");
        let call: unsafe extern "C" fn(usize, usize, usize, c_int, usize) -> c_int =
            self.runtime.loaded().function("cudaMemcpyAsync");
        let wait: unsafe extern "C" fn(usize) -> c_int =
            self.runtime.loaded().function("cudaStreamSynchronize");
        // SAFETY: the device's memory has so many bytes, and the host's by our caller's promise.
        let copied = unsafe { call(self.memory, from, bytes, TO_DEVICE, self.stream) };
        // SAFETY: a stream that is there.
        (copied, unsafe { wait(self.stream) })
    }

    /// What is there.
    pub fn read(&self, bytes: usize) -> Result<Vec<u8>> {
        const TO_HOST: c_int = 2;
        let call: unsafe extern "C" fn(*mut c_void, usize, usize, c_int) -> c_int =
            self.runtime.loaded().function("cudaMemcpy");
        let mut read = vec![0; bytes];
        // SAFETY: both have so many bytes.
        refused("cudaMemcpy", unsafe { call(read.as_mut_ptr().cast(), self.memory, bytes, TO_HOST) })?;
        Ok(read)
    }
}

/// Free bytes of the current context's device.
pub fn free_bytes(driver: &Driver) -> Result<u64> {
    let call: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int =
        driver.loaded().function("cuMemGetInfo_v2");
    let (mut free, mut total) = (0, 0);
    // SAFETY: it writes two numbers.
    refused("cuMemGetInfo", unsafe { call(&raw mut free, &raw mut total) })?;
    u64::try_from(free).context("free bytes")
}

/// Makes a device the runtime's current one in this thread.
pub fn set_device(runtime: &Runtime, device: i32) -> Result<()> {
    let call: unsafe extern "C" fn(c_int) -> c_int = runtime.loaded().function("cudaSetDevice");
    // SAFETY: any number may be given.
    refused("cudaSetDevice", unsafe { call(device) })
}
