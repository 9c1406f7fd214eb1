//! The settings by name: one spelling for the flag, the variable, the file and the messages.
//!
//! The three names of a setting follow from one another (`host_budget`, `--host-budget`,
//! `ECHO_HOST_BUDGET`); a test holds them to it. Tables are no setting: they are declared in the file
//! alone.

/// One setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// The path of the socket that clients connect to.
    Socket,
    /// Bytes of host memory for all tables.
    HostBudget,
    /// Bytes of host memory for the tables of one uid.
    UidBudget,
    /// Clients of one uid at a time.
    MaxClients,
    /// Connections of one uid at a time that have not said hello yet.
    MaxPending,
    /// Calls a second of one uid.
    MaxCalls,
    /// Tables of one uid at a time.
    MaxTables,
    /// Batches that may be granted ahead to the readers of one uid.
    MaxLeases,
    /// Time that a connection has to say hello.
    HelloTimeout,
    /// Time that clients have to finish when the daemon stops.
    DrainTimeout,
    /// Threads that make the pages of a new table resident.
    PrefaultThreads,
    /// What is logged.
    Log,
    /// Where and how it is logged.
    LogFormat,
}

/// What a file may write as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `"text"`
    Text,
    /// `12`
    Number,
    /// `0.5`, or `1`
    Real,
    /// Either: `"64 GiB"` or `68719476736`.
    Size,
}

impl Key {
    /// Every setting, in the order in which they are printed.
    pub const ALL: [Self; 13] = [
        Self::Socket,
        Self::HostBudget,
        Self::UidBudget,
        Self::MaxClients,
        Self::MaxPending,
        Self::MaxCalls,
        Self::MaxTables,
        Self::MaxLeases,
        Self::HelloTimeout,
        Self::DrainTimeout,
        Self::PrefaultThreads,
        Self::Log,
        Self::LogFormat,
    ];

    /// The name in the file, the flag, the variable.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Socket => ["socket", "--socket", "ECHO_SOCKET"],
            Self::HostBudget => ["host_budget", "--host-budget", "ECHO_HOST_BUDGET"],
            Self::UidBudget => ["uid_budget", "--uid-budget", "ECHO_UID_BUDGET"],
            Self::MaxClients => ["max_clients", "--max-clients", "ECHO_MAX_CLIENTS"],
            Self::MaxPending => ["max_pending", "--max-pending", "ECHO_MAX_PENDING"],
            Self::MaxCalls => ["max_calls", "--max-calls", "ECHO_MAX_CALLS"],
            Self::MaxTables => ["max_tables", "--max-tables", "ECHO_MAX_TABLES"],
            Self::MaxLeases => ["max_leases", "--max-leases", "ECHO_MAX_LEASES"],
            Self::HelloTimeout => ["hello_timeout", "--hello-timeout", "ECHO_HELLO_TIMEOUT"],
            Self::DrainTimeout => ["drain_timeout", "--drain-timeout", "ECHO_DRAIN_TIMEOUT"],
            Self::PrefaultThreads => ["prefault_threads", "--prefault-threads", "ECHO_PREFAULT_THREADS"],
            Self::Log => ["log", "--log", "ECHO_LOG"],
            Self::LogFormat => ["log_format", "--log-format", "ECHO_LOG_FORMAT"],
        }
    }

    /// The name in the file, such as `host_budget`.
    pub const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// The flag, such as `--host-budget`.
    pub const fn flag(self) -> &'static str {
        self.names()[1]
    }

    /// The environment variable, such as `ECHO_HOST_BUDGET`.
    pub const fn env(self) -> &'static str {
        self.names()[2]
    }

    pub(super) const fn form(self) -> Form {
        match self {
            Self::HostBudget | Self::UidBudget => Form::Size,
            Self::MaxClients
            | Self::MaxPending
            | Self::MaxCalls
            | Self::MaxTables
            | Self::MaxLeases
            | Self::PrefaultThreads => Form::Number,
            Self::Socket | Self::HelloTimeout | Self::DrainTimeout | Self::Log | Self::LogFormat => {
                Form::Text
            }
        }
    }
}

/// The name among `known` that `name` was probably meant to be, if one is near enough.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase().replace('-', "_");
    let (distance, key) = known.iter().map(|key| (distance(&name, key), *key)).min()?;
    // A third of a name may be wrong: "host_bugdet" is two steps from "host_budget", "port" is no setting.
    (distance <= key.len().div_ceil(3)).then_some(key)
}

/// Letters to insert, remove or replace to get from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // `row[j]` is the distance from the part of `a` that was read to the first `j` letters of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let replaced = corner + usize::from(letter != b[j]);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_names_of_a_setting_follow_from_one_another() {
        for key in Key::ALL {
            assert_eq!(key.flag(), format!("--{}", key.name().replace('_', "-")));
            assert_eq!(key.env(), format!("ECHO_{}", key.name().to_uppercase()));
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = Key::ALL.map(Key::name);
        for (typed, meant) in [
            ("host_bugdet", "host_budget"),
            ("host-budget", "host_budget"),
            ("Socket", "socket"),
            ("sokcet", "socket"),
            ("max_client", "max_clients"),
            ("logformat", "log_format"),
        ] {
            assert_eq!(nearest(typed, &known), Some(meant), "{typed}");
        }
        assert_eq!(nearest("port", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("anything", &[]), None);
    }
}
