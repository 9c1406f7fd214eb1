use super::*;

/// A file system of these files.
fn listing(files: &'static [&'static str]) -> impl Fn(&Path) -> Vec<OsString> {
    move |folder| {
        let below = files.iter().filter_map(|file| Path::new(file).strip_prefix(folder).ok());
        let mut names: Vec<OsString> =
            below.filter_map(|path| Some(path.components().next()?.as_os_str().to_owned())).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn ladder(search: &Search, files: &'static [&'static str]) -> Vec<String> {
    let lines = candidates(search, &listing(files)).into_iter().map(|candidate| match candidate {
        Candidate::Library { rung, name, load } => format!("{rung}: {}", described(&name, load)),
        Candidate::None { rung, .. } => format!("{rung}: (none)"),
    });
    lines.collect()
}

const MAPS: &[u8] = b"7f00-7f01 r-xp 00001000 08:01 42    /opt/torch/lib/libcudart-9335f6a2.so.12\n\
    7f01-7f02 r-xp 00001000 08:01 43    /gone/libcudart.so.13 (deleted)\n\
    7f02-7f03 r-xp 00001000 08:01 44    /lib/libcudart_stub.so\n";

#[test]
fn the_order_of_the_whole_ladder() {
    let search = Search {
        named: None,
        maps: MAPS.to_vec(),
        vendor_roots: vec!["/venv/nvidia".into(), "/usr/nvidia".into()],
        conda_prefix: Some("/conda".into()),
        toolkits: vec!["/usr/local/cuda".into()],
    };
    let files = &[
        "/usr/nvidia/cu14/lib/libcudart.so.14",
        "/venv/nvidia/cuda_runtime/lib/libcudart.so.12",
        "/venv/nvidia/cu13/lib/libcudart.so.13",
        "/venv/nvidia/cu13/lib/libcudart_static.a",
        "/venv/nvidia/cublas/lib/libcublas.so.12",
        "/conda/lib/libcudart.so",
        "/conda/lib/libcudart.so.12",
        "/conda/targets/x86_64-linux/lib/libcudart.so.12.9.79",
        "/usr/local/cuda/targets/x86_64-linux/lib/libcudart.so.11.0",
        "/usr/local/cuda/lib64/stubs/libcudart.so",
    ];
    let expected = [
        "override: (none)",
        "already loaded: /gone/libcudart.so.13 (if loaded)",
        "already loaded: /opt/torch/lib/libcudart-9335f6a2.so.12 (if loaded)",
        "already loaded: /opt/torch/lib/libcudart-9335f6a2.so.12",
        "installed wheels: /venv/nvidia/cu13/lib/libcudart.so.13",
        "installed wheels: /venv/nvidia/cuda_runtime/lib/libcudart.so.12",
        "installed wheels: /usr/nvidia/cu14/lib/libcudart.so.14",
        "conda prefix: /conda/targets/x86_64-linux/lib/libcudart.so.12.9.79",
        "conda prefix: /conda/lib/libcudart.so.12",
        "conda prefix: /conda/lib/libcudart.so",
        "loader: libcudart.so.13 (if loaded)",
        "loader: libcudart.so.13",
        "loader: libcudart.so.12 (if loaded)",
        "loader: libcudart.so.12",
        "loader: libcudart.so.11.0 (if loaded)",
        "loader: libcudart.so.11.0",
        "loader: libcudart.so (if loaded)",
        "loader: libcudart.so",
        "toolkit: /usr/local/cuda/targets/x86_64-linux/lib/libcudart.so.11.0",
        "driver: libcuda.so.1 (if loaded)",
    ];
    assert_eq!(ladder(&search, files), expected);
}

#[test]
fn a_rung_without_a_candidate_says_that_it_was_climbed() {
    let expected =
        ["override: (none)", "already loaded: (none)", "installed wheels: (none)", "conda prefix: (none)"];
    let nothing = ladder(&Search::default(), &[]);
    assert_eq!(nothing[..4], expected);
    assert_eq!(nothing[12..], ["toolkit: (none)", "driver: libcuda.so.1 (if loaded)"]);

    let searched = Search { vendor_roots: vec!["/venv/nvidia".into()], ..Search::default() };
    let reason = |search: &Search| {
        let ladder = candidates(search, &listing(&[]));
        let wheels = ladder.into_iter().find_map(|candidate| match candidate {
            Candidate::None { rung: Rung::Wheels, reason } => Some(reason),
            _ => None,
        });
        wheels.unwrap()
    };
    assert_eq!(reason(&searched), "no package beneath /venv/nvidia has one");
    assert!(reason(&Search::default()).contains("no directory of CUDA's vendor packages is known"));
}

#[test]
fn a_file_that_was_named_is_the_whole_ladder() {
    let named = Some((PathBuf::from("/my/cudart.so"), "the caller".to_owned()));
    let search = Search { named, maps: MAPS.to_vec(), ..Search::default() };
    assert_eq!(ladder(&search, &[]), ["override: /my/cudart.so"]);
}

#[test]
fn a_named_file_that_does_not_load_is_an_error_that_says_who_named_it() {
    let named = Some((PathBuf::from("/no/such/libcudart.so.12"), OVERRIDE_VARIABLE.to_owned()));
    let error = resolve(&Search { named, ..Search::default() }).unwrap_err().to_string();
    assert!(
        error.starts_with("/no/such/libcudart.so.12 cannot be used, which ECHO_CUDART names: "),
        "{error}"
    );
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn a_library_without_the_functions_is_passed_over_by_name() {
    let named = Some(("libc.so.6".into(), "the caller".into()));
    let error = resolve(&Search { named, ..Search::default() }).unwrap_err().to_string();
    assert!(error.contains("it has no cudaHostRegister"), "{error}");
}
