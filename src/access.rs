//! Who may do what with a table.
//!
//! A list of rules, each giving roles to a user, to a group, or to everyone who may connect. What one is allowed is
//! what all rules that fit give together; nothing is ever denied by a rule. A table's owner, root and the daemon's
//! own user may do everything, whatever the list says.
//!
//! It is asked when somebody attaches, shows or changes a table, and at no other time: who is attached stays
//! attached when the list changes, since memory that is mapped cannot be taken back.

use std::fmt;
use std::str::FromStr;

use bincode::de::Decoder;
use bincode::error::DecodeError;
use bincode::{Decode, Encode};
use nix::unistd::{Group, User};
use thiserror::Error;

use crate::wire::tag::NoTag;

/// Most rules in one list.
pub const MAX_RULES: usize = 64;

/// Something that can be done with a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Commit samples. Implies `Observe`.
    Write = 1,
    /// Read batches, with the samples mapped read-only. Implies `Observe`.
    Read = 2,
    /// Read batches, with the samples mapped so that CUDA can page-lock them: writable. Implies `Read`.
    Pin = 4,
    /// See the table, who is attached, and why something waits.
    Observe = 8,
    /// Drop the table, and change this list. Implies all others.
    Administer = 16,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Write, Self::Read, Self::Pin, Self::Observe, Self::Administer];

    /// Its name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Pin => "pin",
            Self::Observe => "observe",
            Self::Administer => "administer",
        }
    }

    /// It, and what it implies.
    const fn implied(self) -> u8 {
        let observe = Self::Observe as u8;
        match self {
            Self::Write => Self::Write as u8 | observe,
            Self::Read => Self::Read as u8 | observe,
            Self::Pin => Self::Pin as u8 | Self::Read as u8 | observe,
            Self::Observe => observe,
            Self::Administer => ALL_BITS,
        }
    }
}

const ALL_BITS: u8 = 31;

/// A set of roles, not empty, as it was written: what they imply is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode)]
pub struct Roles(u8);

impl Roles {
    /// These.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(roles: &[Role]) -> Self {
        assert!(!roles.is_empty(), "a rule gives something");
        Self(roles.iter().fold(0, |bits, &role| bits | role as u8))
    }

    /// Whether that one was written, whatever others imply.
    pub const fn names(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }

    fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |&role| self.names(role))
    }

    fn implied(self) -> u8 {
        self.iter().fold(0, |bits, role| bits | role.implied())
    }
}

impl<Context> Decode<Context> for Roles {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        match u8::decode(decoder)? {
            bits @ 1..=ALL_BITS => Ok(Self(bits)),
            _ => Err(DecodeError::Other("no such roles")),
        }
    }
}

bincode::impl_borrow_decode!(Roles);

/// Whom a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Who {
    #[doc(hidden)]
    Zero(NoTag),
    /// Everyone who may connect to the daemon.
    Everyone,
    /// A user.
    Uid(u32),
    /// The members of a group.
    Gid(u32),
}

/// Some roles for somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Rule {
    /// For whom.
    pub who: Who,
    /// Which.
    pub roles: Roles,
}

/// Who may do what. At most [`MAX_RULES`] rules; none is a table for its owner alone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct AccessList(pub Vec<Rule>);

/// Somebody who asks, by the kernel's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The user's groups, in ascending order: there can be tens of thousands.
    pub groups: Vec<u32>,
}

impl AccessList {
    /// Everyone may write, read and observe: what a table that the configuration declares has, unless it says
    /// otherwise.
    pub fn open() -> Self {
        Self::everyone(&[Role::Write, Role::Pin])
    }

    /// Everyone may look, and nobody but the owner do anything: what a table that a client makes has, unless it
    /// says otherwise.
    pub fn owned() -> Self {
        Self::everyone(&[Role::Observe])
    }

    fn everyone(roles: &[Role]) -> Self {
        Self(vec![Rule { who: Who::Everyone, roles: Roles::of(roles) }])
    }

    /// Whether its rules give that role to that caller.
    pub fn allows(&self, caller: &Caller, role: Role) -> bool {
        self.given_to(caller) & role as u8 != 0
    }

    /// What its rules give to that caller, for people.
    pub fn describe(&self, caller: &Caller) -> String {
        let given = self.given_to(caller);
        let names: Vec<_> =
            Role::ALL.iter().filter(|&&role| given & role as u8 != 0).map(|role| role.name()).collect();
        if names.is_empty() { "nothing".into() } else { names.join(", ") }
    }

    fn given_to(&self, caller: &Caller) -> u8 {
        let fits = |who| match who {
            Who::Everyone => true,
            Who::Uid(uid) => caller.uid == uid,
            Who::Gid(gid) => caller.groups.binary_search(&gid).is_ok(),
            Who::Zero(no) => match no {},
        };
        self.0.iter().filter(|rule| fits(rule.who)).fold(0, |bits, rule| bits | rule.roles.implied())
    }
}

/// A text that is no rule.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum RuleError {
    #[error("it must be WHO=ROLE[,ROLE...], such as \"group:ml=read,write\" or \"everyone=observe\"")]
    Form,
    #[error("{0:?} is nobody: it must be everyone, uid:NUMBER, user:NAME, gid:NUMBER or group:NAME")]
    Who(String),
    #[error("{0:?} must be a number from 0 to 4294967294")]
    Id(String),
    #[error("there is no {what} {name:?} on this machine")]
    NoSuchName { what: &'static str, name: String },
    #[error("the {what} {name:?} cannot be looked up")]
    Lookup { what: &'static str, name: String, source: nix::Error },
    #[error("{0:?} is no role: it must be {roles}", roles = Role::ALL.map(Role::name).join(", "))]
    Role(String),
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (who, roles) = text.split_once('=').ok_or(RuleError::Form)?;
        let mut bits = 0;
        for name in roles.split(',').map(str::trim) {
            let role = Role::ALL.into_iter().find(|role| role.name() == name);
            bits |= role.ok_or_else(|| RuleError::Role(name.into()))? as u8;
        }
        Ok(Self { who: who.trim().parse()?, roles: Roles(bits) })
    }
}

impl FromStr for Who {
    type Err = RuleError;

    /// A name is looked up here and now: what is kept, sent and shown is its number.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text == "everyone" {
            return Ok(Self::Everyone);
        }
        let unknown = || RuleError::Who(text.into());
        let (kind, name) = text.split_once(':').ok_or_else(unknown)?;
        // The largest stands for "no id" in the kernel.
        let id = || match name.parse() {
            Ok(id) if id != u32::MAX => Ok(id),
            _ => Err(RuleError::Id(name.into())),
        };
        match kind {
            "uid" => Ok(Self::Uid(id()?)),
            "gid" => Ok(Self::Gid(id()?)),
            "user" => Ok(Self::Uid(looked_up("user", name, User::from_name(name))?.uid.as_raw())),
            "group" => Ok(Self::Gid(looked_up("group", name, Group::from_name(name))?.gid.as_raw())),
            _ => Err(unknown()),
        }
    }
}

fn looked_up<T>(what: &'static str, name: &str, found: nix::Result<Option<T>>) -> Result<T, RuleError> {
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(RuleError::NoSuchName { what, name: name.into() }),
        Err(source) => Err(RuleError::Lookup { what, name: name.into(), source }),
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Everyone => f.write_str("everyone"),
            Self::Uid(uid) => write!(f, "uid:{uid}"),
            Self::Gid(gid) => write!(f, "gid:{gid}"),
            Self::Zero(no) => match no {},
        }
    }
}

impl fmt::Display for Rule {
    /// As it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<_> = self.roles.iter().map(Role::name).collect();
        write!(f, "{}={}", self.who, roles.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &[&str]) -> AccessList {
        AccessList(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn caller(uid: u32, groups: &[u32]) -> Caller {
        Caller { uid, groups: groups.to_vec() }
    }

    #[test]
    fn rules_add_up_and_roles_imply_others() {
        let list = list(&["uid:1000=write", "gid:100=pin", "everyone=observe", "uid:7=administer"]);
        for (caller, expected) in [
            (caller(1000, &[]), "write, observe"),
            (caller(1000, &[5, 100]), "write, read, pin, observe"),
            (caller(1, &[100]), "read, pin, observe"),
            (caller(7, &[]), "write, read, pin, observe, administer"),
            (caller(100, &[1000]), "observe"),
        ] {
            assert_eq!(list.describe(&caller), expected, "{caller:?}");
            for role in Role::ALL {
                assert_eq!(list.allows(&caller, role), expected.contains(role.name()), "{caller:?} {role:?}");
            }
        }
        assert_eq!(AccessList::default().describe(&caller(1, &[1])), "nothing");
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for text in ["everyone=observe", "uid:0=write,read,pin,observe,administer", "gid:100=read"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        assert_eq!("user:root=pin, write".parse::<Rule>().unwrap().to_string(), "uid:0=write,pin");
        assert_eq!("group:root=read".parse::<Rule>().unwrap().to_string(), "gid:0=read");
    }

    #[test]
    fn what_is_no_rule_is_refused_with_what_it_should_be() {
        for (text, says) in [
            ("uid:7", "WHO=ROLE"),
            ("me=read", "everyone, uid:NUMBER"),
            ("uid:=read", "number"),
            ("uid:4294967295=read", "number"),
            ("user:nobody-of-that-name=read", "no user"),
            ("group:nobody-of-that-name=read", "no group"),
            ("uid:7=", "write, read, pin"),
            ("uid:7=raed", "\"raed\" is no role"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
