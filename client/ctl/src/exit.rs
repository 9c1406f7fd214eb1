//! How the command ends: a small number of its own, else the codes of `sysexits.h`.

use std::process::ExitCode;

use echo_client::Error;
use echo_client::message::RefusalKind;

/// An exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// It is done, or the question is answered.
    Done = 0,
    /// The answer is no: there is no such table, there cannot be one, or what `doctor` was asked about would not work.
    No = 1,
    /// `EX_USAGE`: the command line cannot be understood.
    Usage = 64,
    /// `EX_UNAVAILABLE`: no daemon answers.
    Unavailable = 69,
    /// `EX_SOFTWARE`: the daemon or this command failed.
    Software = 70,
    /// `EX_IOERR`: the answer could not be printed.
    IoErr = 74,
    /// `EX_TEMPFAIL`: not now; a budget or a limit is used up, or the daemon took too long.
    TempFail = 75,
    /// `EX_PROTOCOL`: the daemon is of a version that cannot be spoken to.
    Protocol = 76,
    /// `EX_NOPERM`: a permission is missing.
    NoPerm = 77,
}

impl Exit {
    /// All of them, with what the help says of each.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Done, "done, or answered"),
        (
            Self::No,
            "the answer is no: there is no such table, there cannot be one, or 'doctor' found what would not work",
        ),
        (Self::Usage, "the command line is wrong"),
        (Self::Unavailable, "no daemon answers"),
        (Self::Software, "the daemon or this command failed"),
        (Self::IoErr, "the answer could not be printed"),
        (Self::TempFail, "not now: a budget or a limit is used up, or the daemon took too long"),
        (Self::Protocol, "the daemon is of a version that cannot be spoken to"),
        (Self::NoPerm, "a permission is missing"),
    ];

    /// The number that the parent process sees.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// How the command ends after this error.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Refused(refusal) => match refusal.kind {
                RefusalKind::NoSuchTable
                | RefusalKind::SpecMismatch
                | RefusalKind::InvalidSpec
                | RefusalKind::Finished
                | RefusalKind::NoSuchGroup
                | RefusalKind::Poisoned => Self::No,
                RefusalKind::Budget | RefusalKind::Limit | RefusalKind::Draining | RefusalKind::Memory => {
                    Self::TempFail
                }
                RefusalKind::NotPermitted => Self::NoPerm,
                RefusalKind::Invalid | RefusalKind::Internal => Self::Software,
            },
            Error::Connect { source, .. } if source.is_permission_denied() => Self::NoPerm,
            Error::NoDaemon { .. } | Error::Connect { .. } | Error::Gone { .. } => Self::Unavailable,
            // The spec does not fit into a message.
            Error::Codec(_) => Self::No,
            // It would speak to this client, but not now: it is stopping, or a limit is used up.
            Error::Version(refused) if refused.versions_meet() => Self::TempFail,
            Error::Version(_) | Error::Announced(_) => Self::Protocol,
            Error::TimedOut { .. } => Self::TempFail,
            Error::Socket(_) => Self::Unavailable,
            _ => Self::Software,
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
    use std::time::Duration;

    use echo_client::message::Refusal;

    use super::*;

    #[test]
    fn errors_are_told_apart_by_what_a_script_would_do() {
        let refused = |kind| Error::Refused(Refusal { kind, message: String::new() });
        for (error, exit) in [
            (refused(RefusalKind::NoSuchTable), Exit::No),
            (refused(RefusalKind::Budget), Exit::TempFail),
            (refused(RefusalKind::NotPermitted), Exit::NoPerm),
            (refused(RefusalKind::Internal), Exit::Software),
            (Error::NoDaemon { tried: String::new() }, Exit::Unavailable),
            (Error::TimedOut { what: "", after: Duration::ZERO }, Exit::TempFail),
            (Error::Announced(String::new()), Exit::Protocol),
        ] {
            assert_eq!(Exit::of(&error), exit, "{error:?}");
        }
    }
}
