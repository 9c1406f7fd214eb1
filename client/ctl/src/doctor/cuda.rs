//! Section 1: whether a trainer could page-lock a table for CUDA.
//!
//! The ladder is the one that a trainer climbs (`echo::host_pinning`), and stops where a runtime is found that the
//! driver can do. Libraries are opened and asked for their versions, the driver is started and asked for its devices;
//! nothing is registered, and no context is made on a GPU.
//!
//! A trainer may find more: what its framework has loaded is on the ladder's second rung, and this command has loaded
//! nothing.

use std::io;
use std::path::Path;

use echo::host_pinning::advice::version;
use echo::host_pinning::resolve::climb;
use echo::host_pinning::{Probe, Rung, Search, Versions};
use echo::memory::CudaError;
use echo::memory::cuda::CudaDriverApi;
use echo::memory::cuda::survey::{Ability, Seen, Survey, survey};
use echod::surroundings::Surroundings;

use super::socket::said;
use super::{Check, Section, State};
use crate::cli::Doctor;

/// Who asks for CUDA.
pub(super) struct Asks {
    /// `--pin`.
    pub(super) by_flag: bool,
    /// Tables whose access lists give somebody the role `pin`.
    pub(super) by_tables: Vec<String>,
}

impl Asks {
    /// For people; none if nobody does.
    fn who(&self) -> Option<String> {
        let flag = self.by_flag.then(|| "--pin".to_owned());
        let tables = self.by_tables.iter().map(|table| format!("the access list of table {table}"));
        let all: Vec<_> = flag.into_iter().chain(tables).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// A candidate of the ladder, and what it says if it is a runtime.
struct Step {
    probe: Probe,
    versions: Option<Versions>,
}

/// What of CUDA is there.
struct Found {
    /// The ladder as far as it was climbed.
    steps: Vec<Step>,
    /// The driver and its devices; else how that is, and why.
    survey: Result<Survey, (State, String)>,
}

impl Found {
    fn here(search: &Search) -> Self {
        let mut steps = Vec::new();
        for step in climb(search) {
            // The driver's own rung needs what another has started: it is looked at below.
            let runtime = step.api.filter(|_| step.probe.rung != Rung::Driver);
            let step = Step { probe: step.probe, versions: runtime.map(|api| api.versions()) };
            let ends = step.versions.is_some_and(|versions| !is_too_new(versions));
            steps.push(step);
            if ends {
                break;
            }
        }
        let survey = CudaDriverApi::load().and_then(|api| survey(&api)).map_err(|error| {
            let state = match error {
                CudaError::Library { .. } => State::Missing,
                _ => State::Failed,
            };
            (state, said(&error))
        });
        Self { steps, survey }
    }

    /// The runtime that a trainer would use.
    fn runtime(&self) -> Option<(&Probe, Versions)> {
        let mut runtimes = self.steps.iter().filter_map(|step| Some((&step.probe, step.versions?)));
        runtimes.find(|&(_, versions)| !is_too_new(versions))
    }
}

/// Whether an older runtime would do, and this one does not.
fn is_too_new(versions: Versions) -> bool {
    match (versions.driver, versions.runtime) {
        (Some(driver), Some(runtime)) => driver > 0 && runtime / 1000 > driver / 1000,
        _ => false,
    }
}

pub(super) fn section(doctor: &Doctor, asks: &Asks, surroundings: &Surroundings<'_>) -> Section {
    let search = Search::of_this_process(doctor.cudart.as_deref(), &doctor.vendor_roots);
    section_of(&Found::here(&search), asks, surroundings)
}

fn section_of(found: &Found, asks: &Asks, surroundings: &Surroundings<'_>) -> Section {
    let mut checks = vec![kernel_driver(surroundings), driver(&found.survey)];
    if let Ok(survey) = &found.survey {
        checks.extend(survey.devices.iter().enumerate().map(|(i, device)| self::device(i, device)));
    }
    checks.push(runtime(found));
    checks.extend(found.steps.iter().map(step));
    checks.push(page_locking(found, asks));
    Section { name: "cuda", title: "CUDA", checks }
}

const MODULE: &str = "/proc/driver/nvidia/version";
const DRIVER: &str = "install NVIDIA's driver on the host; start a container with its GPUs ('--gpus all' for docker, a \
                      GPU resource for Kubernetes)";

fn kernel_driver(surroundings: &Surroundings<'_>) -> Check {
    let name = "kernel driver";
    match surroundings.read(Path::new(MODULE)) {
        Ok(text) => match text.lines().find_map(|line| line.strip_prefix("NVRM version:")) {
            Some(version) => Check::ok(name, version.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => Check::new(name, State::Unknown, format!("{MODULE} does not say its version")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let found = "NVIDIA's kernel module is not loaded, or not seen from here (WSL has none)";
            Check::new(name, State::Missing, found).advise(DRIVER)
        }
        Err(error) => Check::new(name, State::Unknown, format!("{MODULE} cannot be read: {error}")),
    }
}

fn driver(survey: &Result<Survey, (State, String)>) -> Check {
    match survey {
        Ok(survey) => {
            let (version, count) = (version(survey.driver_version), survey.devices.len());
            let found = format!("libcuda.so.1 can do CUDA {version}; devices: {count}");
            match count {
                0 => Check::new("driver", State::Missing, found)
                    .advise("look at nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices"),
                _ => Check::ok("driver", found),
            }
        }
        Err((state, why)) => Check::new("driver", *state, why).advise(DRIVER),
    }
}

fn device(index: usize, device: &Seen) -> Check {
    let of = |wanted: bool| {
        let abilities = Ability::ALL.iter().filter(|ability| device.abilities.contains(ability) == wanted);
        let words: Vec<_> =
            abilities.map(|ability| format!("{} ({})", word(*ability), ability.attribute())).collect();
        if words.is_empty() { "nothing of that".into() } else { words.join(", ") }
    };
    let found = format!("{}, {}: {}; not {}", device.name, device.uuid, of(true), of(false));
    let name = format!("device {index}");
    match device.abilities.contains(&Ability::RegistersHost) {
        true => Check::ok(name, found),
        false => Check::new(name, State::Warning, found)
            .advise("leave readers unpinned on it: copies are staged then"),
    }
}

/// What an attribute is about.
const fn word(ability: Ability) -> &'static str {
    match ability {
        Ability::VirtualMemory => "virtual memory",
        Ability::PosixDescriptors => "memory as descriptors",
        Ability::RegistersHost => "registering host memory",
        Ability::RegistersReadOnly => "registering what is mapped read-only",
        Ability::HostPageTables => "the host's page tables",
        Ability::PageableAccess => "pageable memory",
        Ability::Integrated => "part of the host's chip",
    }
}

const RUNTIME: &str = "pip install nvidia-cuda-runtime-cu12 (nvidia-cuda-runtime for CUDA 13), and name its directory \
                       by --vendor-root .../site-packages/nvidia or ECHO_CUDA_VENDOR_ROOTS; or a libcudart.so by --cudart \
                       or ECHO_CUDART";

fn runtime(found: &Found) -> Check {
    let name = "runtime";
    match found.runtime() {
        Some((probe, versions)) => {
            let number = versions.runtime.map_or_else(|| "of a version that it does not say".into(), version);
            Check::ok(name, format!("CUDA {number}, {} ({})", probe.what, probe.rung))
        }
        None => match found.steps.iter().find_map(|step| step.versions) {
            Some(Versions { driver: Some(driver), .. }) => {
                let found = format!(
                    "all that were found are newer than the driver, which can do CUDA {}",
                    version(driver)
                );
                let advice =
                    format!("install a runtime for CUDA {} or older, or a newer driver", driver / 1000);
                Check::new(name, State::Failed, found).advise(advice)
            }
            _ => {
                let found = "none is found from here; a trainer uses the one that its framework has loaded";
                Check::new(name, State::Missing, found).advise(RUNTIME)
            }
        },
    }
}

/// A candidate that is not used is no fault: there are others.
fn step(step: &Step) -> Check {
    let Step { probe: Probe { rung, what, reason }, versions } = step;
    let name = format!("ladder: {rung}");
    match (reason, versions) {
        (Some(reason), _) if what == "(none)" => Check::new(name, State::Missing, reason),
        (Some(reason), _) => {
            let state = if *rung == Rung::Override { State::Failed } else { State::Missing };
            Check::new(name, state, format!("{what}: {reason}"))
        }
        (None, Some(versions)) if is_too_new(*versions) => {
            Check::new(name, State::Warning, format!("{what}: too new for the driver, and passed over"))
        }
        (None, Some(_)) => Check::ok(name, format!("{what}: this one is used")),
        (None, None) => Check::ok(
            name,
            format!("{what}: it does where a framework has a context and no runtime of its own"),
        ),
    }
}

fn page_locking(found: &Found, asks: &Asks) -> Check {
    let name = "page-locking";
    let asked = asks.who();
    let by =
        asked.as_ref().map_or_else(|| "nobody asks for it".to_owned(), |who| format!("asked for by {who}"));
    let can = |ability| {
        let devices = found.survey.iter().flat_map(|survey| &survey.devices);
        devices.into_iter().any(|device| device.abilities.contains(&ability))
    };
    let (state, why) = match (&found.survey, found.runtime()) {
        (Err((state, _)), _) => (*state, "there is no driver that starts"),
        (Ok(survey), _) if survey.devices.is_empty() => (State::Missing, "there is no device"),
        (Ok(_), None) => (runtime(found).state, "there is no runtime that the driver can do"),
        (Ok(_), Some(_)) if can(Ability::HostPageTables) => (
            State::Warning,
            "a device uses the host's page tables, where registering locks nothing and needs not",
        ),
        (Ok(_), Some(_)) if can(Ability::RegistersReadOnly) => {
            (State::Ok, "also of what is mapped read-only")
        }
        (Ok(_), Some(_)) if can(Ability::RegistersHost) => {
            (State::Ok, "of what is mapped writable, for which a table's access list must give the role pin")
        }
        (Ok(_), Some(_)) => (State::Failed, "no device registers host memory"),
    };
    let check = Check::new(name, state, format!("{by}; {why}"));
    if asked.is_some() { check.require() } else { check }
}

#[cfg(test)]
mod tests {
    use echo::memory::cuda::DeviceUuid;

    use super::*;
    use crate::doctor::tests::{check, machine};

    const NOBODY: Asks = Asks { by_flag: false, by_tables: vec![] };
    const PIN: Asks = Asks { by_flag: true, by_tables: vec![] };

    fn survey_of(abilities: &[Ability]) -> Result<Survey, (State, String)> {
        let device = Seen {
            name: "Stub".into(),
            uuid: DeviceUuid::from_bytes([0xa0; 16]),
            abilities: abilities.to_vec(),
        };
        Ok(Survey { driver_version: 12020, devices: vec![device] })
    }

    fn no_driver() -> Result<Survey, (State, String)> {
        Err((State::Missing, "no such library".into()))
    }

    fn step(rung: Rung, runtime: Option<i32>) -> Step {
        let reason = runtime.is_none().then(|| "it is not there".to_owned());
        let versions = runtime.map(|runtime| Versions { driver: Some(12020), runtime: Some(runtime) });
        Step { probe: Probe { rung, what: "libcudart.so".into(), reason }, versions }
    }

    fn states(found: &Found, asks: &Asks) -> Vec<(String, State)> {
        let section = section_of(found, asks, &machine(&[]));
        section.checks.into_iter().map(|check| (check.name, check.state)).collect()
    }

    #[test]
    fn a_machine_with_nothing_says_what_to_install() {
        let found = Found { steps: vec![step(Rung::Loader, None)], survey: no_driver() };
        let section = section_of(&found, &PIN, &machine(&[]));
        for name in ["kernel driver", "driver", "runtime", "ladder: loader", "page-locking"] {
            assert_eq!(check(&section, name).state, State::Missing, "{name}");
        }
        assert!(check(&section, "driver").advice.as_ref().unwrap().contains("--gpus all"));
        assert!(check(&section, "runtime").advice.as_ref().unwrap().contains("pip install"));
        assert!(check(&section, "page-locking").required);
        let found = section_of(&found, &NOBODY, &machine(&[]));
        assert!(!found.checks.iter().any(|check| check.required));
    }

    #[test]
    fn a_device_is_shown_with_what_it_can_do() {
        let abilities = [Ability::VirtualMemory, Ability::PosixDescriptors, Ability::RegistersHost];
        let found = Found { steps: vec![step(Rung::Wheels, Some(12090))], survey: survey_of(&abilities) };
        let module = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue\nGCC version: 12\n";
        let files = Box::leak(Box::new([("/proc/driver/nvidia/version", module)]));
        let section = section_of(&found, &PIN, &machine(files));
        assert_eq!(check(&section, "kernel driver").found, "NVIDIA UNIX x86_64 Kernel Module 535.261.03 Tue");
        assert_eq!(check(&section, "driver").found, "libcuda.so.1 can do CUDA 12.2; devices: 1");
        assert_eq!(
            check(&section, "device 0").found,
            "Stub, GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0: virtual memory (102), memory as descriptors (103), \
             registering host memory (99); not registering what is mapped read-only (113), the host's page tables \
             (100), pageable memory (88), part of the host's chip (18)"
        );
        assert_eq!(check(&section, "runtime").found, "CUDA 12.9, libcudart.so (installed wheels)");
        let locking = check(&section, "page-locking");
        assert!(locking.state == State::Ok && locking.found.contains("the role pin"), "{locking:?}");
    }

    #[test]
    fn a_runtime_that_is_too_new_is_passed_over_for_an_older_one() {
        let abilities = [Ability::RegistersHost];
        let steps = vec![step(Rung::Wheels, Some(13050)), step(Rung::Loader, Some(12090))];
        let both = Found { steps, survey: survey_of(&abilities) };
        assert!(both.runtime().unwrap().0.rung == Rung::Loader);
        assert!(states(&both, &PIN).contains(&("ladder: installed wheels".into(), State::Warning)));
        let found = Found { steps: vec![step(Rung::Wheels, Some(13050))], survey: survey_of(&abilities) };
        let section = section_of(&found, &PIN, &machine(&[]));
        assert_eq!(check(&section, "page-locking").state, State::Failed);
        let advice = check(&section, "runtime").advice.as_ref().unwrap();
        assert!(advice.contains("for CUDA 12 or older"), "{advice}");
        // Without a driver none is newer than it.
        assert!(!is_too_new(Versions { driver: Some(0), runtime: Some(13050) }));
    }

    #[test]
    fn what_devices_cannot_do_decides_about_page_locking() {
        let state = |abilities: &[Ability]| {
            let found = Found { steps: vec![step(Rung::Wheels, Some(12090))], survey: survey_of(abilities) };
            page_locking(&found, &PIN).state
        };
        assert_eq!(state(&[]), State::Failed);
        assert_eq!(state(&[Ability::RegistersHost, Ability::RegistersReadOnly]), State::Ok);
        assert_eq!(state(&[Ability::HostPageTables, Ability::RegistersHost]), State::Warning);
        let empty = Ok(Survey { driver_version: 12020, devices: vec![] });
        let found = Found { steps: vec![step(Rung::Wheels, Some(12090))], survey: empty };
        assert_eq!(page_locking(&found, &PIN).state, State::Missing);
    }

    #[test]
    fn who_asks_is_told() {
        let asks = Asks { by_flag: true, by_tables: vec!["t".into()] };
        assert_eq!(asks.who().unwrap(), "--pin, the access list of table t");
        assert_eq!(NOBODY.who(), None);
    }
}
