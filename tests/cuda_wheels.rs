//! The CUDA runtimes that people install, as they are: the ladder finds them in the layouts of their own wheels, and
//! says what they say on a machine without a GPU.
//!
//! The wheels are fetched with pip, once, into the target folder. Where that is not possible, or this machine has a
//! driver, a test says so and passes.

#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use echo::host_pinning::{PinError, Rung, Search, resolve};
use support::{Actor, say};

/// Name and version of a wheel, and the library that is in it.
struct Wheel {
    requirement: &'static str,
    library: &'static str,
}

const CUDA_11: Wheel = Wheel {
    requirement: "nvidia-cuda-runtime-cu11==11.8.89",
    library: "nvidia/cuda_runtime/lib/libcudart.so.11.0",
};
const CUDA_12: Wheel = Wheel {
    requirement: "nvidia-cuda-runtime-cu12==12.9.79",
    library: "nvidia/cuda_runtime/lib/libcudart.so.12",
};
const CUDA_13: Wheel =
    Wheel { requirement: "nvidia-cuda-runtime==13.0.48", library: "nvidia/cu13/lib/libcudart.so.13" };

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    let roots: Vec<PathBuf> = role.iter().map(PathBuf::from).collect();
    let error = resolve(&Search { vendor_roots: roots, ..Search::of_this_process(None, &[]) }).unwrap_err();
    let PinError::Initialise { library, failure, probes } = &error else { panic!("{error}") };
    say(library);
    say(&format!("{} {}", failure.code, failure.name));
    say(&failure.advice);
    for probe in probes.iter().filter(|probe| probe.rung == Rung::Wheels) {
        say(&probe.to_string());
    }
    say("and no more");
}

/// What a process says that looks for a runtime beneath these roots: the library that does not start, with what error,
/// what to do, and each wheel that was tried.
fn climb(roots: &[&Path]) -> Vec<String> {
    let roots: Vec<&str> = roots.iter().map(|root| root.to_str().unwrap()).collect();
    let mut actor = Actor::start(&roots.join(" "), Path::new("/nowhere"));
    let said: Vec<String> =
        std::iter::from_fn(|| actor.line()).take_while(|line| line != "and no more").collect();
    assert!(actor.wait().success(), "{said:?}");
    said
}

/// Where the wheels' content is, each in a place of its own; none if this machine cannot have it or has a driver.
fn installed(test: &str, wheels: &[&Wheel]) -> Option<Vec<PathBuf>> {
    // A driver without a GPU says something else, and one with a GPU starts.
    // SAFETY: asks whether the driver's library is there, in a process that does nothing else with it.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        eprintln!("{test} was not tested: this machine has an NVIDIA driver");
        return None;
    }
    let places = wheels.iter().map(|wheel| fetch(wheel)).collect::<Result<Vec<_>, _>>();
    places.inspect_err(|reason| eprintln!("{test} was not tested: {reason}")).ok()
}

fn fetch(wheel: &Wheel) -> Result<PathBuf, String> {
    // One at a time: tests are threads here, and other runs may have the same target folder.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let wheels = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels");
    let place = wheels.join(wheel.requirement);
    if place.join(wheel.library).exists() {
        return Ok(place);
    }
    std::fs::create_dir_all(&wheels).map_err(|error| error.to_string())?;
    let lock = File::create(wheels.join("lock")).map_err(|error| error.to_string())?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
    let fetched = wheels.join(format!("{}-{}", wheel.requirement, std::process::id()));
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]);
    pip.args(["--timeout", "20", "--retries", "1", "--root-user-action", "ignore"]);
    pip.arg("--target").arg(&fetched).arg(wheel.requirement);
    let output = pip.output().map_err(|error| format!("python3 cannot be run ({error})"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("pip does not fetch {}: {}", wheel.requirement, said.trim()));
    }
    // Whole or not at all, also for who looks without the lock.
    if !place.exists() {
        std::fs::rename(&fetched, &place).map_err(|error| error.to_string())?;
    }
    Ok(place)
}

#[test]
fn each_wheel_is_found_in_its_own_layout_and_says_that_there_is_no_driver() {
    let wheels = [&CUDA_11, &CUDA_12, &CUDA_13];
    let Some(places) = installed("finding the wheels of CUDA 11 to 13", &wheels) else { return };
    for (wheel, place) in wheels.iter().zip(places) {
        let said = climb(&[&place.join("nvidia")]);
        assert_eq!(said[0], place.join(wheel.library).to_str().unwrap());
        assert_eq!(said[1], "35 cudaErrorInsufficientDriver");
        // CUDA 11 does not say that the driver's version is 0 where there is none.
        assert!(said[2].contains("no NVIDIA driver"), "{said:?}");
        assert_eq!(
            said[3],
            format!("installed wheels: {}: it does not start: cudaErrorInsufficientDriver (35)", said[0])
        );
        assert_eq!(said.len(), 4);
    }
}

#[test]
fn of_two_wheels_the_newer_is_tried_first_and_the_older_where_the_driver_is_too_old() {
    let Some(places) = installed("choosing between two wheels", &[&CUDA_12, &CUDA_13]) else { return };
    let [twelve, thirteen] = &places[..] else { panic!("{places:?}") };
    let said = climb(&[&thirteen.join("nvidia"), &twelve.join("nvidia")]);
    assert_eq!(said[0], thirteen.join(CUDA_13.library).to_str().unwrap(), "the error is of the first");
    assert!(said[3].contains("libcudart.so.13: it does not start"), "{said:?}");
    assert!(said[4].contains("libcudart.so.12: it does not start"), "{said:?}");
}
