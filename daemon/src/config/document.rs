//! The configuration file as it stands, before its values mean anything: keys, values, lines.
//!
//! Every error names the file and the line. Unknown keys are errors, found when a section is opened: a typo
//! is reported as such, and not as the missing of the key that was meant. This walks the parsed document
//! rather than deriving a deserializer, because that one names neither the table and array nor the key that
//! was meant.

use std::path::Path;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Form, nearest};
use super::origin::Place;
use super::value::quoted;

/// What is wrong with the form of a file.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum DocumentError {
    #[error("{place}: this is not TOML")]
    Syntax { place: Place, source: toml::de::Error },
    #[error("{place}: unknown key {key:?}, {hint}")]
    UnknownKey { place: Place, key: String, hint: Hint },
    #[error("{place}: {key} is missing")]
    Missing { place: Place, key: &'static str },
    #[error("{place}: {key} must be {expected}, it is a TOML {found}")]
    Type { place: Place, key: String, expected: &'static str, found: &'static str },
}

/// What to write instead of an unknown key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// This one was probably meant.
    Meant(&'static str),
    /// One of these can stand there.
    Known(&'static [&'static str]),
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Meant(key) => write!(f, "did you mean {key:?}?"),
            Self::Known(keys) => write!(f, "it must be one of {}", quoted(keys)),
        }
    }
}

/// The text of a file and its name.
#[derive(Clone, Copy)]
pub(super) struct Source<'d> {
    pub(super) path: &'d Path,
    pub(super) text: &'d str,
}

impl<'d> Source<'d> {
    /// Parses the text.
    pub(super) fn parse(self) -> Result<Spanned<DeTable<'d>>, DocumentError> {
        DeTable::parse(self.text).map_err(|source| {
            let at = source.span().map_or(0, |span| span.start);
            DocumentError::Syntax { place: self.place(at, ""), source }
        })
    }

    /// The place of a byte of the text.
    pub(super) fn place(self, at: usize, within: &str) -> Place {
        let before = self.text.as_bytes().iter().take(at);
        let line = 1 + before.filter(|&&byte| byte == b'\n').count();
        Place { path: self.path.to_owned(), line, within: within.to_owned() }
    }
}

/// A TOML table all of whose keys are known.
pub(super) struct Section<'d> {
    source: Source<'d>,
    entries: &'d DeTable<'d>,
    place: Place,
}

/// The value of a key, or an element of an array.
pub(super) struct Item<'d> {
    pub(super) key: String,
    pub(super) place: Place,
    source: Source<'d>,
    value: &'d DeValue<'d>,
}

impl<'d> Section<'d> {
    /// The table that starts at `place` and may have only the keys `known`.
    pub(super) fn open(
        source: Source<'d>,
        entries: &'d DeTable<'d>,
        place: Place,
        known: &'static [&'static str],
    ) -> Result<Self, DocumentError> {
        let unknown = entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let name = key.get_ref().to_string();
            let hint = nearest(&name, known).map_or(Hint::Known(known), Hint::Meant);
            let place = source.place(key.span().start, &place.within);
            return Err(DocumentError::UnknownKey { place, key: name, hint });
        }
        Ok(Self { source, entries, place })
    }

    /// Where the section starts.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The value of a key, if it is there.
    pub(super) fn get(&self, key: &'static str) -> Option<Item<'d>> {
        let (name, value) = self.entries.get_key_value(key)?;
        let place = self.source.place(name.span().start, &self.place.within);
        Some(Item { key: key.to_owned(), place, source: self.source, value: value.get_ref() })
    }

    /// The value of a key that must be there.
    pub(super) fn need(&self, key: &'static str) -> Result<Item<'d>, DocumentError> {
        self.get(key).ok_or_else(|| DocumentError::Missing { place: self.place.clone(), key })
    }
}

impl<'d> Item<'d> {
    fn must_be(&self, expected: &'static str) -> DocumentError {
        DocumentError::Type {
            place: self.place.clone(),
            key: self.key.clone(),
            expected,
            found: self.value.type_str(),
        }
    }

    /// The value as the text that a flag would have.
    pub(super) fn text(&self, form: Form) -> Result<String, DocumentError> {
        match (form, self.value) {
            (Form::Text | Form::Size, DeValue::String(text)) => Ok(text.to_string()),
            (Form::Real, DeValue::Float(number)) => Ok(number.as_str().to_owned()),
            (Form::Number | Form::Size | Form::Real, DeValue::Integer(number)) => {
                // Other bases become decimal; what does not fit stays as it is and is refused as a value.
                let decimal = u64::from_str_radix(number.as_str(), number.radix());
                Ok(decimal.map_or_else(|_| number.to_string(), |number| number.to_string()))
            }
            (Form::Text, _) => Err(self.must_be("a string in quotes")),
            (Form::Number | Form::Real, _) => Err(self.must_be("a number without quotes")),
            (Form::Size, _) => Err(self.must_be("a string such as \"64 GiB\" or a number of bytes")),
        }
    }

    /// The elements of an array; `expected` says what it is an array of.
    pub(super) fn elements(&self, expected: &'static str) -> Result<Vec<Self>, DocumentError> {
        let array = self.value.as_array().ok_or_else(|| self.must_be(expected))?;
        let item = |(i, value): (usize, &'d Spanned<DeValue<'d>>)| Self {
            key: format!("{}[{i}]", self.key),
            place: self.source.place(value.span().start, &self.place.within),
            source: self.source,
            value: value.get_ref(),
        };
        Ok(array.iter().enumerate().map(item).collect())
    }

    /// The table that the value is.
    pub(super) fn table(&self, expected: &'static str) -> Result<&'d DeTable<'d>, DocumentError> {
        self.value.as_table().ok_or_else(|| self.must_be(expected))
    }
}
