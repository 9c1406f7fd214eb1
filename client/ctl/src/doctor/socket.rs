//! Section 5: where a daemon would be asked, whether this user may, and who answers.

use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use echo::peer::Peer;
use echo::wire::message::{LAYOUT_VERSION, PROTOCOL_MAX, PROTOCOL_MIN, Refused, Status};
use echo::wire::socket::{self, SocketError};
use echo_client::{Error, SocketPlace, SocketSource};
use echod::surroundings::Surroundings;

use super::{Check, Section, State};

/// A daemon that answers.
pub(super) struct Daemon {
    pub(super) status: Status,
    /// Its pid as this process has it, if that is certain: what it says may be of another PID namespace.
    pub(super) pid: Option<u32>,
}

const START: &str = "start it: 'echod' for yourself, 'systemctl start echod.socket' for the machine, or say where it \
                     listens by --socket or ECHO_SOCKET";

pub(super) fn section(
    places: &[SocketPlace],
    surroundings: &Surroundings<'_>,
    timeout: Duration,
) -> (Section, Option<Daemon>) {
    let mut checks = Vec::new();
    let daemon = look(places, surroundings, timeout, &mut checks);
    (Section { name: "socket", title: "Socket", checks }, daemon)
}

/// Each check is only worth making if the one before it came to something.
fn look(
    places: &[SocketPlace],
    surroundings: &Surroundings<'_>,
    timeout: Duration,
    checks: &mut Vec<Check>,
) -> Option<Daemon> {
    let Some(place) = places.iter().find(|place| place.counts()) else {
        let tried: Vec<_> = places.iter().map(|place| place.path.display().to_string()).collect();
        let found = format!("none is named, and none is at {}", tried.join(" or "));
        checks.push(Check::new("path", State::Missing, found).advise(START));
        return None;
    };
    let path = &place.path;
    checks.push(Check::ok("path", format!("{}, {}", path.display(), reason(place.source))));
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => {
            let file = file(&metadata);
            let is_socket = file.state == State::Ok;
            checks.push(file);
            if let Some(Ok(metadata)) = path.parent().map(std::fs::metadata) {
                checks.push(directory(&metadata));
            }
            if !is_socket {
                return None;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            checks.push(Check::new("file", State::Missing, "nothing is there").advise(START));
            return None;
        }
        // Connecting may work all the same, and says it if not.
        Err(error) => {
            checks.push(Check::new("file", State::Unknown, format!("it cannot be looked at: {error}")))
        }
    }
    let listener = match socket::connect(path, Instant::now() + timeout) {
        Ok(connected) => {
            checks.push(Check::ok("connecting", "this user may"));
            // Whoever made the socket listen: a service manager, it may be.
            Peer::of(connected.as_fd()).map_or(0, |peer| peer.pid())
        }
        Err(error) => {
            checks.push(refused(&error, std::fs::metadata(path).ok().as_ref()));
            return None;
        }
    };
    match echo_client::status(Some(path), timeout) {
        Ok(status) => {
            checks.extend([answers(&status), versions(&status)]);
            let pid = known_pid(status.pid, listener, surroundings);
            Some(Daemon { status, pid })
        }
        Err(error) => {
            checks.push(silent(&error));
            None
        }
    }
}

const fn reason(source: SocketSource) -> &'static str {
    match source {
        SocketSource::Named => "which --socket names",
        SocketSource::Variable => "which ECHO_SOCKET names",
        SocketSource::RuntimeDirectory => "the first place that is searched: that of XDG_RUNTIME_DIR",
        SocketSource::System => "the last place that is searched: that of the machine's daemon",
    }
}

fn file(metadata: &Metadata) -> Check {
    if !metadata.file_type().is_socket() {
        return Check::new("file", State::Failed, "what is there is no socket")
            .advise("remove it, or choose another path by --socket");
    }
    Check::ok("file", format!("a socket {}", owned(metadata)))
}

/// Who can put another socket there.
fn directory(metadata: &Metadata) -> Check {
    let found = owned(metadata);
    let (writable, sticky) = (metadata.mode() & 0o022 != 0, metadata.mode() & 0o1000 != 0);
    match writable && !sticky {
        true => {
            let found = format!("{found}: others can put a socket of their own there");
            Check::new("directory", State::Warning, found)
                .advise("chmod go-w, or let a unit make it (RuntimeDirectory=)")
        }
        false => Check::ok("directory", found),
    }
}

fn owned(metadata: &Metadata) -> String {
    format!("of uid {} and gid {}, mode {:04o}", metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

/// Why nobody can be connected to.
fn refused(error: &SocketError, metadata: Option<&Metadata>) -> Check {
    let kind = match error {
        SocketError::Os { source, .. } => source.kind(),
        _ => io::ErrorKind::Other,
    };
    match kind {
        io::ErrorKind::PermissionDenied => {
            let group =
                metadata.map_or_else(|| "the socket's group".into(), |of| format!("gid {}", of.gid()));
            Check::new("connecting", State::Failed, "this user may not: who may write to the socket may connect").advise(
                format!("add this user to {group} if its mode lets the group write, or set SocketGroup= in the socket unit"),
            )
        }
        io::ErrorKind::ConnectionRefused => Check::new(
            "connecting",
            State::Missing,
            "nobody listens: the daemon that made the socket is gone",
        )
        .advise(START),
        _ => Check::new("connecting", State::Failed, said(error)),
    }
}

/// An error and its causes.
pub(super) fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

fn answers(status: &Status) -> Check {
    let Status { build, pid, state, tables, clients, .. } = status;
    let found = format!("echod {build} (pid {pid}) is {state}, with {tables} tables and {clients} clients");
    match state.as_str() {
        "serving" => Check::ok("daemon", found),
        _ => Check::new("daemon", State::Warning, found),
    }
}

fn versions(status: &Status) -> Check {
    let Status { protocol_min, protocol_max, layout, build, .. } = status;
    let daemon = Refused {
        protocol_min: *protocol_min,
        protocol_max: *protocol_max,
        layout: *layout,
        build: build.clone(),
        reason: String::new(),
    };
    if daemon.versions_meet() {
        return Check::ok("versions", format!("the protocol's meet, and the memory's is {layout} for both"));
    }
    let found = format!(
        "the daemon speaks {protocol_min} to {protocol_max} of the protocol over {layout} of the shared memory, this \
         command {PROTOCOL_MIN} to {PROTOCOL_MAX} over {LAYOUT_VERSION}"
    );
    Check::new("versions", State::Failed, found)
        .advise("install echod, its clients and echoctl of one version")
}

/// What listens does not say how it is.
fn silent(error: &Error) -> Check {
    let advice = match error {
        Error::Version(_) => "install echod and echoctl of versions that meet",
        Error::TimedOut { .. } => {
            "look whether it is stopped or busy (ps, its log), or allow it more --timeout"
        }
        _ => "look whether it is echod that listens there",
    };
    Check::new("daemon", State::Failed, said(error)).advise(advice)
}

/// The daemon's pid, if whoever listens has it too, or a process of that name.
fn known_pid(said: u32, listener: u32, surroundings: &Surroundings<'_>) -> Option<u32> {
    let is_echod = || {
        let name = surroundings.read(Path::new(&format!("/proc/{said}/comm")));
        name.is_ok_and(|name| name.trim() == "echod")
    };
    (said != 0 && (said == listener || is_echod())).then_some(said)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;
    use crate::doctor::tests::machine;

    /// A directory that goes with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("echoctl-doctor-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn look(&self) -> Vec<(String, State, String)> {
            let place = SocketPlace { path: self.0.join("echod.sock"), source: SocketSource::Named };
            let (section, daemon) = section(&[place], &machine(&[]), Duration::from_millis(50));
            assert!(daemon.is_none());
            section.checks.into_iter().map(|check| (check.name, check.state, check.found)).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn where_nothing_is_it_is_said_where_it_was_looked_for() {
        let place = |path: &str, source| SocketPlace { path: path.into(), source };
        let places = [
            place("/nowhere/run/echod.sock", SocketSource::RuntimeDirectory),
            place("/nowhere/system/echod.sock", SocketSource::System),
        ];
        let (section, daemon) = section(&places, &machine(&[]), Duration::ZERO);
        assert!(daemon.is_none());
        let [path] = &section.checks[..] else { panic!("{section:?}") };
        assert_eq!(path.state, State::Missing);
        assert_eq!(
            path.found,
            "none is named, and none is at /nowhere/run/echod.sock or /nowhere/system/echod.sock"
        );
        let looked = Place::new("nothing").look();
        assert_eq!((looked[1].0.as_str(), looked[1].1), ("file", State::Missing));
    }

    #[test]
    fn what_is_no_socket_is_not_connected_to() {
        let place = Place::new("file");
        std::fs::write(place.0.join("echod.sock"), "").unwrap();
        let looked = place.look();
        assert_eq!((looked[1].0.as_str(), looked[1].1), ("file", State::Failed));
        assert_eq!(looked.len(), 3, "{looked:?}");
    }

    #[test]
    fn a_socket_that_was_left_behind_and_an_open_directory_are_told() {
        let place = Place::new("stale");
        drop(socket::listen(&place.0.join("echod.sock"), 1).unwrap());
        std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o777)).unwrap();
        let looked = place.look();
        let states: Vec<_> = looked.iter().map(|(name, state, _)| (name.as_str(), *state)).collect();
        assert_eq!(
            states,
            [
                ("path", State::Ok),
                ("file", State::Ok),
                ("directory", State::Warning),
                ("connecting", State::Missing)
            ]
        );
        std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(place.look()[2].1, State::Ok, "the sticky bit is what keeps others out");
    }

    #[test]
    fn who_listens_and_is_silent_is_not_waited_for() {
        let place = Place::new("silent");
        let _listener = socket::listen(&place.0.join("echod.sock"), 4).unwrap();
        let looked = place.look();
        let last = looked.last().unwrap();
        assert_eq!((last.0.as_str(), last.1), ("daemon", State::Failed), "{looked:?}");
    }

    #[test]
    fn a_pid_is_the_daemons_where_the_kernel_or_its_name_says_so() {
        let surroundings = machine(&[("/proc/7/comm", "echod\n"), ("/proc/8/comm", "bash\n")]);
        assert_eq!(known_pid(7, 1, &surroundings), Some(7), "systemd listens");
        assert_eq!(known_pid(8, 1, &surroundings), None, "it is of another namespace");
        assert_eq!(known_pid(8, 8, &surroundings), Some(8));
        assert_eq!(known_pid(0, 0, &surroundings), None);
    }

    #[test]
    fn versions_that_do_not_meet_are_a_failure() {
        let status = |protocol_min| Status {
            protocol_min,
            protocol_max: protocol_min,
            layout: LAYOUT_VERSION,
            build: "9.0.0".into(),
            pid: 7,
            uptime_ms: 1,
            state: "draining".into(),
            tables: 0,
            clients: 0,
            host_budget: 1,
            host_used: 0,
        };
        assert_eq!(versions(&status(PROTOCOL_MAX)).state, State::Ok);
        assert_eq!(versions(&status(PROTOCOL_MAX + 1)).state, State::Failed);
        assert_eq!(answers(&status(1)).state, State::Warning);
    }
}
