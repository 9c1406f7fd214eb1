//! Writes the inputs to start from into `fuzz/corpus`: `cargo run --package echo-hostile`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (door, name, bytes) in echo_hostile::seeds::all() {
        let folder = corpus.join(door);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
