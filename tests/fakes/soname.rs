//! Gives a fake library the name that the real one has in itself, by which the loader knows it again.

#![expect(clippy::print_stdout, reason = "how a build script speaks to cargo")]

fn main() {
    println!("cargo::rerun-if-changed=../soname.rs");
    let package = std::env::var("CARGO_PKG_NAME").expect("cargo says it");
    let (soname, version) = match package.as_str() {
        "echo-fake-cudart12" => ("libcudart.so.12", 12090),
        "echo-fake-cudart13" => ("libcudart.so.13", 13050),
        "echo-fake-cuda1" => ("libcuda.so.1", 0),
        _ => panic!("no name for the library of {package}"),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    println!("cargo::rustc-env=FAKE_SONAME={soname}");
    println!("cargo::rustc-env=FAKE_VERSION={version}");
}
