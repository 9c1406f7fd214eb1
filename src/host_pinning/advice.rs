//! What to do about an error of CUDA's, for each cause that is known.

use super::api::{Code, Versions};

/// What an error means for page-locking, and what to do. The runtime and the driver share these numbers.
pub fn advice(code: Code, versions: Versions) -> String {
    let text = match code {
        1 => {
            "the kernel did not pin the pages: they must be shared memory that is mapped and writable (no file of a \
             disk, no guard page), and the machine must have memory left to move them"
        }
        2 => {
            "the driver has no memory left for it: free memory of the machine and of the device, or register less in \
             one piece (chunk_bytes)"
        }
        3 => {
            "CUDA is not usable in this process: it was forked from one that had used CUDA (start workers by spawn, not \
             fork), or the driver could not start"
        }
        4 => "CUDA is shutting down in this process: pin earlier, and let readers go before the process ends",
        34 => {
            "a stub of the driver's library was loaded, which is for linking alone: take its folder (it ends in \
             `stubs`) out of LD_LIBRARY_PATH"
        }
        35 => return driver_is_insufficient(versions),
        46 => {
            "every GPU is in use by others, or in prohibited compute mode: `nvidia-smi -q -d COMPUTE` shows it"
        }
        100 => {
            "no GPU is visible to this process: look at `nvidia-smi`, at CUDA_VISIBLE_DEVICES, and whether the container \
             was started with its GPUs (--gpus)"
        }
        101 => "this thread's device does not exist: choose one of those that CUDA_VISIBLE_DEVICES leaves",
        201 => {
            "this process has no CUDA context: let the framework use its GPU first (torch.cuda.init(), for example), and \
             pin then"
        }
        304 => {
            "the operating system refused a call of the driver's: its log (`dmesg`, lines with NVRM) says which"
        }
        400 => "a handle of CUDA's is none any more: pin after the last reset of the device",
        709 => {
            "this thread's context was destroyed, or the device's has not been used yet: pin, and drop readers and \
             batches, in the thread that uses the GPU, and not after a reset of the device"
        }
        712 => {
            "part of it is registered already, by something else in this process: it is page-locked, and whoever \
             registered it must unregister it; pin a reader once"
        }
        713 => "it is not registered, or no longer, since the device was reset",
        800 => {
            "the system does not permit it: a container may lack the right to its GPU's device files, or a policy \
             forbids registering host memory"
        }
        801 => {
            "this device or driver cannot register such memory: a read-only mapping needs a device that supports it \
             (attach with a registrable mapping instead), and some integrated GPUs need no registration at all"
        }
        802 => "the system's fabric is not ready yet: is nvidia-fabricmanager running",
        803 => {
            "the driver's library and its kernel module are of different versions: reboot, or reload the module after \
             the upgrade"
        }
        804 => {
            "the forward-compatibility package does not support this GPU: use a runtime that the driver itself can do"
        }
        805 => {
            "the MPS control daemon cannot be reached: start it for this user, or unset CUDA_MPS_PIPE_DIRECTORY"
        }
        700 | 702 | 710 | 714..=719 => {
            "an earlier kernel of this process failed, and its context can do nothing any more: find that error, and \
             start the process again"
        }
        _ => "CUDA's documentation of this error says more, and so may `dmesg` (lines with NVRM)",
    };
    text.into()
}

/// `cudaErrorInsufficientDriver` means two things; the driver's version tells which.
fn driver_is_insufficient(versions: Versions) -> String {
    match (versions.driver, versions.runtime) {
        (Some(0), _) => {
            "no NVIDIA driver was found: install it, or, in a container, start that with its GPUs (--gpus), which brings \
             the driver's library in"
                .into()
        }
        (Some(driver), Some(runtime)) => format!(
            "the driver can do CUDA {}, which is older than the runtime's {}: install a newer driver, or a runtime for \
             CUDA {} or older",
            version(driver),
            version(runtime),
            driver / 1000
        ),
        (driver, _) => format!(
            "there is no NVIDIA driver, or it is older than the runtime needs (it can do CUDA {}): install a newer one",
            driver.map_or("nobody knows what".into(), version)
        ),
    }
}

/// 12090 as 12.9.
pub fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Versions = Versions { driver: None, runtime: None };

    #[test]
    fn each_documented_cause_has_advice_of_its_own() {
        let general = advice(99_999, NONE);
        let causes =
            [1, 2, 3, 4, 34, 35, 46, 100, 101, 201, 304, 709, 712, 713, 719, 800, 801, 802, 803, 804, 805];
        let mut said: Vec<String> = causes.iter().map(|&code| advice(code, NONE)).collect();
        assert!(said.iter().all(|text| *text != general && text.len() > 30));
        said.sort();
        said.dedup();
        assert_eq!(said.len(), causes.len(), "no two are the same");
    }

    #[test]
    fn no_driver_and_an_old_driver_are_told_apart() {
        let of = |driver, runtime| advice(35, Versions { driver, runtime });
        assert!(of(Some(0), Some(13050)).contains("no NVIDIA driver was found"));
        let old = of(Some(12020), Some(13050));
        assert!(
            old.contains("CUDA 12.2") && old.contains("13.5") && old.contains("for CUDA 12 or older"),
            "{old}"
        );
        assert!(of(None, None).contains("no NVIDIA driver, or it is older"));
        assert!(of(Some(11080), None).contains("CUDA 11.8"));
    }
}
