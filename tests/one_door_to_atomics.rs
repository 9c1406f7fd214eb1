//! Atomics come from `echo::sync` alone: it is std's in a build and loom's under test, and loom can only
//! explore what it sees.

use std::fs;
use std::path::Path;

#[test]
fn only_sync_names_the_atomics_of_std() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut strays = Vec::new();
    let mut folders: Vec<_> = ["src", "daemon/src", "client"].map(|folder| root.join(folder)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs")
                && !path.ends_with("src/sync.rs")
                && fs::read_to_string(&path).unwrap().contains("std::sync::atomic")
            {
                strays.push(path);
            }
        }
    }
    assert_eq!(strays, Vec::<std::path::PathBuf>::new(), "use echo::sync");
}
