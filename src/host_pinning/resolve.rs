//! Finding the CUDA runtime: a ladder whose rungs are tried in order, and every step of which is remembered.
//!
//! The order is what this is about, so [`candidates`] makes the whole ladder as a pure function of what was found in
//! the process's surroundings, and [`resolve`] climbs it. Nothing here calls CUDA, but to start what was found.
//!
//! 1. *override*: the file that somebody named. It is used or it is an error; nothing else is tried then.
//! 2. *already loaded*: what this process has mapped, by its path. The framework has loaded it, whatever it is called
//!    and wherever it came from, and opening it again gives the same copy. Most climbs end here.
//! 3. *installed wheels*: beneath the directories of CUDA's vendor packages, which whoever can find them passes in.
//!    One level of packages is searched and none is named, since their names change with CUDA's major version.
//! 4. *conda prefix*: the active environment's libraries.
//! 5. *loader*: by name, the versioned ones first, each looked for among the loaded before it is loaded.
//! 6. *toolkit*: where a CUDA toolkit is installed.
//! 7. *driver*: the driver's own library, where this process has it loaded and no runtime was found.
//!
//! A library is opened so that its symbols are nobody else's (`RTLD_LOCAL`), and never closed: registrations outlive
//! every place in the code that could do it.

use std::ffi::{CStr, OsStr, OsString, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::api::{Code, CudaApi};
use super::error::{Failure, PinError, Probe};
use super::{library_name, maps};

/// Names for the loader, the newest first. CUDA 11 has its minor version in its name.
const SONAMES: [&str; 4] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"];
/// The driver's library. Never without its version: that is what its stub is called.
const DRIVER: &str = "libcuda.so.1";
/// Names a runtime's file.
pub const OVERRIDE_VARIABLE: &str = "ECHO_CUDART";
/// Directories of CUDA's vendor packages, separated by colons.
pub const VENDOR_ROOTS_VARIABLE: &str = "ECHO_CUDA_VENDOR_ROOTS";
/// `cudaErrorInsufficientDriver`: an older runtime may be good enough.
const INSUFFICIENT_DRIVER: Code = 35;

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the module's page has them")]
pub enum Rung {
    Override,
    AlreadyLoaded,
    Wheels,
    Conda,
    Loader,
    Toolkit,
    Driver,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Override => "override",
            Self::AlreadyLoaded => "already loaded",
            Self::Wheels => "installed wheels",
            Self::Conda => "conda prefix",
            Self::Loader => "loader",
            Self::Toolkit => "toolkit",
            Self::Driver => "driver",
        })
    }
}

/// How a library is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// If this process has it loaded.
    IfLoaded,
    /// In any case.
    Fully,
}

/// A step of the ladder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Candidate {
    /// A library, as a path or as a name for the loader.
    Library {
        /// Its rung.
        rung: Rung,
        /// The path or name.
        name: OsString,
        /// How to open it.
        load: Load,
    },
    /// The rung has no candidate, and why.
    None {
        /// The rung.
        rung: Rung,
        /// Why.
        reason: String,
    },
}

/// What the ladder is made of: the surroundings of a process, or of a test.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Search {
    /// The file that somebody named, and what names it.
    pub named: Option<(PathBuf, String)>,
    /// The text of `/proc/self/maps`.
    pub maps: Vec<u8>,
    /// Directories of CUDA's vendor packages: `.../site-packages/nvidia`. There may be several.
    pub vendor_roots: Vec<PathBuf>,
    /// The active conda environment.
    pub conda_prefix: Option<PathBuf>,
    /// Where a toolkit may be.
    pub toolkits: Vec<PathBuf>,
}

impl Search {
    /// The surroundings of this process. `named` is a file that its user named, and `vendor_roots` what it knows; both
    /// come before what the environment says.
    pub fn of_this_process(named: Option<&Path>, vendor_roots: &[PathBuf]) -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let directory = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let named = match named {
            Some(path) => Some((path.to_owned(), "the caller".to_owned())),
            None => var(OVERRIDE_VARIABLE).map(|path| (path.into(), OVERRIDE_VARIABLE.to_owned())),
        };
        let mut roots = vendor_roots.to_vec();
        if let Some(more) = var(VENDOR_ROOTS_VARIABLE) {
            roots.extend(std::env::split_paths(&more).filter(|path| path.is_absolute()));
        }
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(directory);
        Self {
            named,
            // Without /proc nothing is known to be loaded; the rung then says that there is none.
            maps: std::fs::read("/proc/self/maps").unwrap_or_default(),
            vendor_roots: roots,
            conda_prefix: directory("CONDA_PREFIX"),
            toolkits: toolkits.chain([PathBuf::from("/usr/local/cuda")]).collect(),
        }
    }
}

/// The names in a directory; none if it cannot be read.
pub type List<'a> = &'a dyn Fn(&Path) -> Vec<OsString>;

/// The names in a directory of this machine.
pub fn list_directory(path: &Path) -> Vec<OsString> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()
}

/// The ladder, in the order in which it is climbed. Every rung is in it.
pub fn candidates(search: &Search, list: List<'_>) -> Vec<Candidate> {
    if let Some((path, _)) = &search.named {
        return vec![library(Rung::Override, path.clone().into(), Load::Fully)];
    }
    let mut all = vec![none(Rung::Override, format!("nobody named a file ({OVERRIDE_VARIABLE})"))];
    let mut rung = |rung: Rung, found: Vec<Candidate>, reason: &dyn Fn() -> String| match found.is_empty() {
        true => all.push(none(rung, reason())),
        false => all.extend(found),
    };

    let mapped = maps::runtimes(&search.maps).into_iter().flat_map(|file| {
        let again = |load| library(Rung::AlreadyLoaded, file.path.clone().into(), load);
        // One that has no file any more is found by its name, as long as it is loaded.
        if file.deleted {
            vec![again(Load::IfLoaded)]
        } else {
            vec![again(Load::IfLoaded), again(Load::Fully)]
        }
    });
    rung(Rung::AlreadyLoaded, mapped.collect(), &|| "this process has no CUDA runtime mapped".into());

    let wheels = search.vendor_roots.iter().flat_map(|root| {
        let packages = list(root).into_iter().map(|package| root.join(package).join("lib"));
        runtimes_in(packages, list)
    });
    rung(Rung::Wheels, fully(Rung::Wheels, wheels), &|| match search.vendor_roots.as_slice() {
        [] => format!("no directory of CUDA's vendor packages is known ({VENDOR_ROOTS_VARIABLE})"),
        roots => format!("no package beneath {} has one", displayed(roots)),
    });

    let conda =
        search.conda_prefix.iter().flat_map(|prefix| runtimes_in(library_folders(prefix, list), list));
    rung(Rung::Conda, fully(Rung::Conda, conda), &|| match &search.conda_prefix {
        None => "no conda environment is active (CONDA_PREFIX)".into(),
        Some(prefix) => format!("{} has none", prefix.display()),
    });

    let names = SONAMES
        .iter()
        .flat_map(|name| [Load::IfLoaded, Load::Fully].map(|load| library(Rung::Loader, name.into(), load)));
    rung(Rung::Loader, names.collect(), &String::new);

    let toolkits = search.toolkits.iter().flat_map(|home| runtimes_in(library_folders(home, list), list));
    rung(Rung::Toolkit, fully(Rung::Toolkit, toolkits), &|| match search.toolkits.as_slice() {
        [] => "no toolkit is known (CUDA_HOME)".into(),
        homes => format!("there is none in {} (CUDA_HOME)", displayed(homes)),
    });

    all.push(library(Rung::Driver, DRIVER.into(), Load::IfLoaded));
    all
}

fn library(rung: Rung, name: OsString, load: Load) -> Candidate {
    Candidate::Library { rung, name, load }
}

fn none(rung: Rung, reason: String) -> Candidate {
    Candidate::None { rung, reason }
}

fn fully(rung: Rung, paths: impl Iterator<Item = PathBuf>) -> Vec<Candidate> {
    paths.map(|path| library(rung, path.into(), Load::Fully)).collect()
}

fn displayed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// Where the libraries of a toolkit or a conda environment are.
fn library_folders(home: &Path, list: List<'_>) -> Vec<PathBuf> {
    let targets = home.join("targets");
    let mut architectures = list(&targets);
    architectures.sort();
    let of_targets = architectures.into_iter().map(|architecture| targets.join(architecture).join("lib"));
    ["lib64", "lib"].map(|folder| home.join(folder)).into_iter().chain(of_targets).collect()
}

/// The runtimes in some directories, the newest first.
fn runtimes_in(folders: impl IntoIterator<Item = PathBuf>, list: List<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        let names = list(&folder).into_iter().filter(|name| library_name::version(name).is_some());
        found.extend(names.map(|name| folder.join(name)));
    }
    found.sort_by_key(|path| (library_name::order(path.file_name().unwrap_or_default()), path.clone()));
    found
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The library, which has started.
    pub api: CudaApi,
    /// All that was tried, the last of which is used.
    pub probes: Vec<Probe>,
}

/// A step of a climb: what was tried, and the library if it can be opened and has what is needed.
#[derive(Debug)]
pub struct Step {
    /// What was tried. Its reason is why there is no library.
    pub probe: Probe,
    /// The library, which was not started.
    pub api: Option<CudaApi>,
}

/// The ladder, climbed a step at a time. Libraries are opened, and nothing in them is called.
pub fn climb(search: &Search) -> impl Iterator<Item = Step> + use<> {
    candidates(search, &list_directory).into_iter().map(|candidate| match candidate {
        Candidate::None { rung, reason } => {
            Step { probe: Probe { rung, what: "(none)".into(), reason: Some(reason) }, api: None }
        }
        Candidate::Library { rung, name, load } => {
            let (api, reason) = match open(rung, &name, load) {
                Ok(api) => (Some(api), None),
                Err(reason) => (None, Some(reason)),
            };
            Step { probe: Probe { rung, what: described(&name, load), reason }, api }
        }
    })
}

/// Climbs the ladder until a library can be opened, has what is needed, and starts. A runtime that is too new for the
/// driver is passed over, since an older one may be there; any other failure to start ends the climb.
///
/// # Errors
/// [`PinError::NotFound`], [`PinError::Override`] or [`PinError::Initialise`], with all that was tried.
pub fn resolve(search: &Search) -> Result<Resolved, PinError> {
    let mut probes = Vec::new();
    let mut too_new = None;
    for Step { mut probe, api } in climb(search) {
        let Some(api) = api else {
            probes.push(probe);
            continue;
        };
        let Err(code) = api.initialise() else {
            probes.push(probe);
            return Ok(Resolved { api, probes });
        };
        let failure = Failure::of(&api, code);
        probe.reason = Some(format!("it does not start: {} ({code})", failure.name));
        probes.push(probe);
        let error = PinError::Initialise { library: api.library().into(), failure, probes: Vec::new() };
        if code != INSUFFICIENT_DRIVER {
            return Err(error.after(&probes));
        }
        too_new.get_or_insert(error);
    }
    if let Some((path, source_name)) = &search.named
        && too_new.is_none()
    {
        let reason = probes.pop().and_then(|probe| probe.reason).unwrap_or_default();
        let path = path.display().to_string();
        return Err(PinError::Override { path, source_name: source_name.clone(), reason });
    }
    Err(too_new.unwrap_or(PinError::NotFound { probes: Vec::new() }).after(&probes))
}

fn described(name: &OsStr, load: Load) -> String {
    match load {
        Load::IfLoaded => format!("{} (if loaded)", Path::new(name).display()),
        Load::Fully => Path::new(name).display().to_string(),
    }
}

/// Where a library lies that was opened by its name.
fn path_of(library: &Library) -> Option<String> {
    // Any of its functions tells, and each library that is of use has one of these.
    let function = [c"cudaHostRegister", c"cuMemHostRegister_v2"].into_iter().find_map(|name| {
        // SAFETY: an address alone is taken.
        let found = unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) };
        found.ok().map(|symbol| symbol.as_raw_ptr())
    })?;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; the struct is ours.
    if unsafe { libc::dladdr(function.cast_const(), info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: plain numbers and pointers, zeroed before and filled by the call.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader's, which stays as long as the library, which is never closed.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

/// What the loader says, which is the cause of what libloading says, without the name that it begins with.
fn loaders_words(error: &libloading::Error, name: &OsStr) -> String {
    let words = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    match name.to_str().and_then(|name| words.strip_prefix(name)?.strip_prefix(": ")) {
        Some(rest) => rest.to_owned(),
        None => words,
    }
}

/// Opens a library and takes its functions, or says why not.
fn open(rung: Rung, name: &OsStr, load: Load) -> Result<CudaApi, String> {
    let flags = match load {
        Load::IfLoaded => RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD,
        Load::Fully => RTLD_NOW | RTLD_LOCAL,
    };
    // SAFETY: the initialisers of a library run, if it is not loaded yet. It has the name of a CUDA runtime and is in a
    // place from which this process's own search, its user or an installed package would load it.
    let opened = unsafe { Library::open(Some(name), flags) };
    let library = opened.map_err(|error| match load {
        Load::IfLoaded => "it is not loaded".to_owned(),
        Load::Fully => loaders_words(&error, name),
    })?;
    let lookup = |symbol: &'static CStr| {
        // SAFETY: an address alone is taken, which is valid as long as the library, which is never closed.
        let found = unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
        found.map_or(std::ptr::null(), |symbol| symbol.as_raw_ptr().cast_const())
    };
    let path = path_of(&library).unwrap_or_else(|| Path::new(name).display().to_string());
    let made = match rung {
        // SAFETY: what a library that calls itself the driver's exports by the names of the driver's functions.
        Rung::Driver => unsafe { CudaApi::driver(path, lookup) },
        // SAFETY: as above, for the runtime.
        _ => unsafe { CudaApi::new(path, lookup) },
    };
    // Never closed, whatever it is.
    std::mem::forget(library);
    made.map_err(|missing| missing.to_string())
}

#[cfg(test)]
mod tests;
