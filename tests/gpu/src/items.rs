//! What is checked, and what each check needs of CUDA.

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::json;

use crate::cases::{CASES, DRIVER_CASES};
use crate::hold::{self, Held};
use crate::library::{COPYING, Cuda, Found};
use crate::outcome::Outcome;
use crate::{copying, mapping, registering, say, training};

/// A check.
struct Item {
    name: &'static str,
    /// Functions of the runtime and of the driver without which it is left out.
    of_runtime: &'static [&'static str],
    of_driver: &'static [&'static str],
    check: fn(&Cuda, Option<&Path>) -> Result<Outcome>,
}

const REGISTER: &[&str] = &["cudaHostRegister", "cudaHostUnregister"];
const CONTEXTS: &[&str] =
    &["cuInit", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxGetState", "cuCtxPushCurrent_v2"];
const BY_DRIVER: &[&str] = &[
    "cuInit",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
];
const CREATE: &[&str] = &[
    "cuInit",
    "cuDevicePrimaryCtxGetState",
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemExportToShareableHandle",
];
const MAP: &[&str] = &[
    "cuInit",
    "cuDevicePrimaryCtxGetState",
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
];
const IMPORT: &[&str] = &[
    "cuInit",
    "cuDeviceGetCount",
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
];
const WATCH: &[&str] = &["cuMemGetInfo_v2", "cuInit", "cuMemCreate", "cuMemExportToShareableHandle"];

const fn item(
    name: &'static str,
    of_runtime: &'static [&'static str],
    of_driver: &'static [&'static str],
    check: fn(&Cuda, Option<&Path>) -> Result<Outcome>,
) -> Item {
    Item { name, of_runtime, of_driver, check }
}

const ITEMS: &[Item] = &[
    item("devices", &["cudaRuntimeGetVersion", "cudaDriverGetVersion"], &["cuInit"], mapping::devices),
    item("context/bytes", &["cudaSetDevice", "cudaFree"], &["cuMemGetInfo_v2"], mapping::context_bytes),
    item("register/makes-a-context", REGISTER, CONTEXTS, registering::makes_a_context),
    item("register/two-mappings-of-a-page", REGISTER, &[], registering::two_mappings),
    item("register/one-table", REGISTER, BY_DRIVER, registering::one_table),
    item("register/memlock", REGISTER, &[], registering::memlock),
    item("register/shown-by-the-kernel", REGISTER, &[], registering::shown_by_the_kernel),
    item("register/at-once", REGISTER, &[], registering::at_once),
    item("register/at-once-in-turns", REGISTER, &[], training::in_turns),
    item("register/seconds", REGISTER, &[], registering::seconds),
    item("copy/bandwidth", COPYING, &[], copying::bandwidth),
    item("copy/across-registrations", COPYING, &[], copying::across_registrations),
    item("memory/create-without-a-context", &[], CREATE, mapping::create_without_a_context),
    item("memory/map-without-a-context", &[], MAP, mapping::map_without_a_context),
    item("memory/unmap-several", &[], MAP, mapping::unmap_several),
    item("memory/import-of-an-invisible-device", &[], IMPORT, mapping::import_invisible),
    item("memory/descriptor-is-closed-on-exec", &[], CREATE, mapping::closed_on_exec),
    item("memory/importer-dies", &[], WATCH, mapping::importer_dies),
    item("training", COPYING, &[], training::end_to_end),
];

const CASE: &str = "cases/runtime/";
const DRIVER_CASE: &str = "cases/driver/";

/// The names of all checks, in their order.
pub fn names() -> Vec<String> {
    let items = ITEMS.iter().map(|item| item.name.to_owned());
    let cases = (0..CASES.len()).map(|index| format!("{CASE}{index}"));
    items.chain(cases).chain((0..DRIVER_CASES.len()).map(|index| format!("{DRIVER_CASE}{index}"))).collect()
}

/// Plays a check, or a part of one.
pub fn play(words: &[String], library: Option<&Path>) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["look"] => {
            println!("{}", Found::look(library).to_json());
            return Ok(());
        }
        ["watch", device] => return mapping::play_watch(device.parse()?),
        ["import"] => return mapping::play_import(),
        ["stay"] => return mapping::play_stay(),
        ["register", file, bytes] => return registering::play_register(library, file, bytes.parse()?),
        ["daemon", socket] => return training::play_daemon(socket),
        ["worker", socket] => return training::play_worker(Path::new(socket)),
        ["pin", socket] => return training::play_pin(library, Path::new(socket)),
        [name] => outcome_of(name, library)?,
        _ => bail!("there is no part {words:?}"),
    };
    say(&outcome);
    Ok(())
}

fn outcome_of(name: &str, library: Option<&Path>) -> Result<Outcome> {
    if let Some(index) = name.strip_prefix(CASE) {
        let case = &CASES[index.parse::<usize>()?];
        return Ok(match Cuda::load(library, &["cudaHostRegister", "cudaDeviceGetAttribute"], &[]) {
            Ok(cuda) => of_case(case.name, hold::runtime_case(case, cuda.runtime())),
            Err(missing) => Outcome::left_out(missing),
        });
    }
    if let Some(index) = name.strip_prefix(DRIVER_CASE) {
        let case = &DRIVER_CASES[index.parse::<usize>()?];
        return Ok(match Cuda::load(library, &[], &["cuInit"]) {
            Ok(cuda) => of_case(case.name, hold::driver_case(case, cuda.driver())),
            Err(missing) => Outcome::left_out(missing),
        });
    }
    let Some(item) = ITEMS.iter().find(|item| item.name == name) else { bail!("there is no check {name}") };
    Ok(match Cuda::load(library, item.of_runtime, item.of_driver) {
        Ok(cuda) => {
            (item.check)(&cuda, library).unwrap_or_else(|error| Outcome::differs(format!("{error:#}")))
        }
        Err(missing) => Outcome::left_out(missing),
    })
}

fn of_case(name: &str, held: Held) -> Outcome {
    let values = json!({ "case": name });
    let outcome = match held {
        Held::Yes => return Outcome::holds(true, "", values),
        Held::LeftOut(why) => Outcome::left_out(why),
        Held::No(why) => Outcome::differs(why),
    };
    Outcome { values: Outcome::measured(values).values, ..outcome }
}
