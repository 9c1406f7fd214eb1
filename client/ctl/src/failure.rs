//! What did not work, for people and for programs.

use std::error::Error as _;
use std::io;

use echo_client::Error;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::json::SCHEMA;
use crate::view::printable;

/// Why the command failed.
#[derive(Debug)]
pub enum Failure {
    /// The daemon refused, or was not there.
    Client(Error),
    /// The answer could not be printed.
    Print(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Failure {
    /// How the command ends.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => Exit::of(error),
            Self::Print(_) => Exit::IoErr,
        }
    }

    /// What standard error gets: a sentence, or an object.
    pub fn render(&self, json: bool) -> String {
        if json {
            format!("{}\n", json!({ "schema": SCHEMA, "error": self.object() }))
        } else {
            format!("echoctl: {}\n", self.sentence())
        }
    }

    /// For programs.
    pub fn object(&self) -> Value {
        json!({ "kind": self.kind(), "exit": self.exit().code(), "message": self.message() })
    }

    /// For people; more than one line if there is a difference to show.
    pub fn sentence(&self) -> String {
        self.message().split('\n').map(printable).collect::<Vec<_>>().join("\n")
    }

    /// Whether nobody reads the answer: `head` may have seen enough.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Print(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// A word that stays the same: what the daemon refused, else what the exit code says.
    fn kind(&self) -> String {
        match self {
            Self::Client(Error::Refused(refusal)) => snake_case(&format!("{:?}", refusal.kind)),
            _ => snake_case(&format!("{:?}", self.exit())),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Client(error) => {
                let mut message = error.to_string();
                let mut source = error.source();
                while let Some(cause) = source {
                    message += &format!(": {cause}");
                    source = cause.source();
                }
                message
            }
            Self::Print(error) => format!("cannot print the answer: {error}"),
        }
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use echo_client::message::{Refusal, RefusalKind};

    use super::*;

    #[test]
    fn a_refusal_is_a_sentence_or_an_object() {
        let refusal = Refusal { kind: RefusalKind::NoSuchTable, message: "there is no table \"x\"".into() };
        let failure = Failure::from(Error::Refused(refusal));
        assert_eq!(failure.render(false), "echoctl: there is no table \"x\"\n");
        assert_eq!(
            failure.render(true),
            "{\"error\":{\"exit\":1,\"kind\":\"no_such_table\",\"message\":\"there is no table \\\"x\\\"\"},\
             \"schema\":1}\n"
        );
    }
}
