//! How the daemon ends: the exit codes of `sysexits.h`, which systemd shows by name.
//!
//! A unit can tell by them what a restart will not repair: 64, 77 and 78 belong into
//! `RestartPreventExitStatus=`.

use std::io;
use std::process::ExitCode;

/// An exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// The daemon did what it was asked, or was told to stop.
    Ok = 0,
    /// `EX_USAGE`: the command line cannot be understood.
    Usage = 64,
    /// `EX_UNAVAILABLE`: something that the daemon needs is not there.
    Unavailable = 69,
    /// `EX_OSERR`: the operating system refused something that it should give.
    OsErr = 71,
    /// `EX_CANTCREAT`: a file or a socket cannot be created.
    CantCreate = 73,
    /// `EX_IOERR`: reading or writing failed.
    IoErr = 74,
    /// `EX_NOPERM`: a permission is missing.
    NoPerm = 77,
    /// `EX_CONFIG`: the configuration (a file or the environment) is wrong.
    Config = 78,
}

impl Exit {
    /// All of them, with what the help says of each.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Ok, "told to stop, or nothing but printing was asked for"),
        (Self::Usage, "the command line is wrong"),
        (Self::Unavailable, "something that the daemon needs is not there"),
        (Self::OsErr, "the operating system refused something"),
        (Self::CantCreate, "the socket or a file cannot be created"),
        (Self::IoErr, "reading or writing failed"),
        (Self::NoPerm, "a permission is missing"),
        (Self::Config, "the configuration file or an environment variable is wrong"),
    ];

    /// The number that the parent process sees.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// [`Exit::NoPerm`] if that is what the error says, else `otherwise`.
    pub fn of_io(error: &io::Error, otherwise: Self) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NoPerm,
            _ => otherwise,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_sysexits() {
        assert_eq!(Exit::ALL.map(|(exit, _)| exit.code()), [0, 64, 69, 71, 73, 74, 77, 78]);
    }

    #[test]
    fn a_missing_permission_is_told_from_other_errors() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(Exit::of_io(&denied, Exit::Config), Exit::NoPerm);
        assert_eq!(Exit::of_io(&missing, Exit::Config), Exit::Config);
    }
}
