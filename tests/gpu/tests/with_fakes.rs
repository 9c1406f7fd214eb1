//! The check, as far as it can be tried without a GPU: against libraries that answer as CUDA's do, and without any.

#[path = "../../support/fakes.rs"]
mod fakes;

use std::process::{Command, Output};

use fakes::{Tree, built};
use serde_json::Value;

/// Runs it with nothing of CUDA's in its environment but what is put there.
fn check(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echo-gpu-check"));
    for name in ["ECHO_CUDART", "ECHO_CUDA_VENDOR_ROOTS", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"] {
        command.env_remove(name);
    }
    command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("LD_LIBRARY_PATH");
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Where the loader finds fakes of the runtime and of the driver.
fn folder(tree: &Tree) -> String {
    tree.put(&built().cudart12, "lib/libcudart.so.12");
    tree.put(&built().cuda, "lib/libcuda.so.1");
    tree.path().join("lib").to_str().unwrap().to_owned()
}

fn of<'a>(lines: &'a [Value], check: &str) -> &'a Value {
    lines.iter().find(|line| line["check"] == check).unwrap_or_else(|| panic!("no line of {check}"))
}

#[test]
fn without_a_gpu_nothing_passes() {
    let output = check(&[], &[]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("gpu-check: left out, there is no GPU: ") && said.lines().count() == 1,
        "{said}"
    );

    let tree = Tree::new("gpu-none");
    let folder = folder(&tree);
    let output = check(&[], &[("LD_LIBRARY_PATH", &folder), ("ECHO_FAKE_CUDA_DEVICES", "0")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(77), ""));
    assert!(text(&output.stderr).contains("CUDA_ERROR_NO_DEVICE (100)"), "{output:?}");
}

#[test]
fn each_check_says_a_line_and_fakes_are_as_echo_assumes() {
    let tree = Tree::new("gpu-all");
    let folder = folder(&tree);
    let output = check(&[], &[("LD_LIBRARY_PATH", &folder)]);
    let lines = lines(&output);
    let differs: Vec<&Value> = lines.iter().filter(|line| line["status"] == "differs").collect();
    assert!(differs.is_empty(), "{differs:#?}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in &lines {
        let known = ["measured", "held", "left out"].contains(&line["status"].as_str().unwrap());
        assert!(known && (line["status"] != "left out" || line["reason"].is_string()), "{line}");
    }
    for check in ["copy/bandwidth", "copy/across-registrations", "training"] {
        assert_eq!(of(&lines, check)["reason"], "it has no cudaMalloc", "{check}");
    }
    for check in ["context/bytes", "memory/importer-dies"] {
        assert_eq!(of(&lines, check)["status"], "left out", "{check}");
    }
    let held = [
        "register/makes-a-context",
        "register/memlock",
        "register/at-once-in-turns",
        "memory/create-without-a-context",
        "memory/map-without-a-context",
        "memory/unmap-several",
        "memory/import-of-an-invisible-device",
        "cases/runtime/0",
        "cases/driver/0",
    ];
    for check in held {
        assert_eq!(of(&lines, check)["status"], "held", "{}", of(&lines, check));
    }
}

#[test]
fn what_is_not_as_echo_assumes_fails_it() {
    let tree = Tree::new("gpu-differs");
    let folder = folder(&tree);
    let knobs = [("LD_LIBRARY_PATH", folder.as_str()), ("ECHO_FAKE_CUDA_VMM_CONTEXT", "1")];
    let output = check(&["--only", "memory/map"], &knobs);
    let lines = lines(&output);
    assert_eq!((lines.len(), output.status.code()), (1, Some(1)), "{output:?}");
    assert_eq!(lines[0]["status"], "differs");
    assert!(lines[0]["reason"].is_string(), "{}", lines[0]);
}

#[test]
fn who_sees_another_device_imports_nothing() {
    let tree = Tree::new("gpu-two");
    let folder = folder(&tree);
    let knobs = [("LD_LIBRARY_PATH", folder.as_str()), ("ECHO_FAKE_CUDA_DEVICES", "2")];
    let output = check(&["--only", "invisible"], &knobs);
    let lines = lines(&output);
    assert_eq!(lines[0]["status"], "held", "{output:?}");
    assert_eq!(lines[0]["init_and_import"]["another"], serde_json::json!([0, 101]));
}

#[test]
fn a_runtime_is_used_that_somebody_names() {
    let tree = Tree::new("gpu-named");
    let runtime = tree.put(&built().cudart13, "elsewhere/libcudart.so.13");
    tree.put(&built().cuda, "lib/libcuda.so.1");
    let folder = tree.path().join("lib");
    let arguments = ["--only", "devices", "--library", runtime.to_str().unwrap()];
    let output = check(&arguments, &[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
    assert_eq!(lines(&output)[0]["runtime"], 13050, "{output:?}");
    let without = check(&["--only", "devices"], &[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
    assert_eq!(lines(&without)[0]["status"], "left out", "{without:?}");
}
