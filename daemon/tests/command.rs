//! The command as a person or a service manager meets it: what it says, and what it exits with.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use echo_client::{Client, ConnectOptions};

const LONG: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("echod-command-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn echod() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echod"));
    command.env_clear();
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Starts a daemon, and waits until it says that it serves.
fn serve(directory: &Directory, command: &mut Command) -> Serving {
    let ready = UnixDatagram::bind(directory.path("notify")).unwrap();
    ready.set_read_timeout(Some(LONG)).unwrap();
    let child = Serving(command.env("NOTIFY_SOCKET", directory.path("notify")).spawn().unwrap());
    let mut said = [0; 64];
    let n = ready.recv(&mut said).unwrap();
    assert!(said[..n].starts_with(b"READY=1"));
    child
}

struct Serving(Child);

impl Serving {
    fn stop(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(socket: &Path) -> Client {
    Client::connect(&ConnectOptions { socket: Some(socket.into()), ..ConnectOptions::default() }).unwrap()
}

#[test]
fn what_is_wrong_is_said_with_a_code_of_its_own() {
    let directory = Directory::new("wrong");
    let (code, _, stderr) = run(echod().arg("--sokcet"));
    assert_eq!(code, Some(64), "{stderr}");
    std::fs::write(directory.path("bad.toml"), "host_bugdet = 1").unwrap();
    let (code, _, stderr) = run(echod().arg("--config").arg(directory.path("bad.toml")));
    assert_eq!(code, Some(78), "{stderr}");
    assert!(stderr.contains("did you mean \"host_budget\""), "{stderr}");
    std::fs::write(directory.path("file"), "").unwrap();
    let socket = directory.path("file");
    let (code, _, stderr) = run(echod().args(["--config", "/dev/null"]).arg("--socket").arg(&socket));
    assert_eq!(code, Some(73), "{stderr}");
    assert!(stderr.contains("is no socket: remove it"), "{stderr}");
}

#[test]
fn a_socket_that_is_served_is_refused_with_the_pid() {
    let directory = Directory::new("taken");
    let socket = directory.path("echod.sock");
    let arguments = |command: &mut Command| {
        command.args(["--config", "/dev/null", "--log", "warn"]).arg("--socket").arg(&socket);
    };
    let mut first = echod();
    arguments(&mut first);
    let mut first = serve(&directory, &mut first);
    let mut second = echod();
    arguments(&mut second);
    let (code, _, stderr) = run(&mut second);
    assert_eq!(code, Some(69), "{stderr}");
    assert!(stderr.contains(&format!("another echod (pid {})", first.0.id())), "{stderr}");
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn declared_tables_are_there_before_anybody_connects() {
    let directory = Directory::new("declared");
    let table = |name: &str, batch: u32| {
        format!(
            "[[table]]\nname = \"{name}\"\nbatch_size = {batch}\ncapacity = 2\n\
             arrays = [{{ path = \"obs\", dtype = \"float32\", shape = [4] }}]\n"
        )
    };
    let file = directory.path("echod.toml");
    let socket = directory.path("echod.sock");
    let mut command = echod();
    command.arg("--config").arg(&file).arg("--socket").arg(&socket).args(["--log", "warn"]);
    std::fs::write(&file, table("one", 8) + &table("two", 16)).unwrap();
    let mut serving = serve(&directory, &mut command);
    let names: Vec<_> = client(&socket).list_tables().unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(serving.stop(), Some(0));

    std::fs::write(&file, table("large", 1 << 20)).unwrap();
    let (code, _, stderr) = run(command.args(["--host-budget", "1MiB"]));
    assert_eq!(code, Some(78), "{stderr}");
    assert!(stderr.contains("table \"large\"") && stderr.contains("of 1048576 bytes"), "{stderr}");
}

#[test]
fn a_declared_table_that_the_kernel_refuses_ends_the_daemon_with_a_sentence() {
    let directory = Directory::new("file-size");
    let file = directory.path("echod.toml");
    let table = "[[table]]\nname = \"large\"\nbatch_size = 1\ncapacity = 64\n\
                 arrays = [{ path = \"obs\", dtype = \"uint8\", shape = [1048576] }]\n";
    std::fs::write(&file, table).unwrap();
    let mut shell = Command::new("sh");
    // In blocks of 512 bytes.
    shell
        .args(["-c", "ulimit -f 32768; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_echod"), "--config"])
        .arg(&file);
    shell.env_clear().arg("--socket").arg(directory.path("echod.sock"));
    let (code, _, stderr) = run(&mut shell);
    assert_eq!(code, Some(71), "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
}

#[test]
fn a_socket_that_a_service_manager_passes_is_served() {
    let directory = Directory::new("passed");
    let socket = directory.path("passed.sock");
    let listener = echo::wire::socket::listen(&socket, 16).unwrap();
    assert_eq!(echo::wire::socket::path_of(listener.as_fd()), Some(socket.clone()), "the log says so");
    // The socket is descriptor 3, and LISTEN_PID the daemon's own pid, which a shell knows that becomes it.
    let mut shell = Command::new("sh");
    let become_it = "export LISTEN_PID=$$; exec \"$0\" \"$@\" 3<&0 </dev/null";
    shell.args(["-c", become_it, env!("CARGO_BIN_EXE_echod"), "--config", "/dev/null", "--log", "warn"]);
    shell.env_clear().env("LISTEN_FDS", "1").stdin(listener);
    let mut serving = serve(&directory, &mut shell);
    assert!(client(&socket).list_tables().unwrap().is_empty());
    assert_eq!(serving.stop(), Some(0));
    assert!(socket.exists(), "it is not the daemon's to remove");
}
