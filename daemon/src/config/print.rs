//! The configuration as a file: every setting, its value, and where it came from in a comment.
//!
//! What is printed parses again, to the same values. Comments hold no control characters, whatever a path
//! has.

use std::fmt::{self, Write};

use echo::spec::TableSpec;

use super::groups;
use super::key::Key;
use super::origin::{Origin, Valued, printable};
use super::replay;
use super::tables::{Declared, huge_pages_word, pin_word};
use super::{Bytes, Config};

/// The column in which comments start, where the line leaves room.
const COMMENT: usize = 44;

impl Config {
    /// The text of a configuration file that says the same as this configuration.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.write_toml(&mut out).expect("a String takes everything that is written to it");
        out
    }

    fn write_toml(&self, out: &mut String) -> fmt::Result {
        match &self.file {
            Some(path) => writeln!(out, "# the configuration file is {}", printable(path))?,
            None => writeln!(out, "# there is no configuration file")?,
        }
        for key in Key::ALL {
            let (value, origin) = self.setting(key);
            line(out, &format!("{} = {value}", key.name()), origin)?;
        }
        for table in &self.tables {
            write_table(out, table)?;
        }
        Ok(())
    }

    /// A setting as TOML.
    fn setting(&self, key: Key) -> (String, &Origin) {
        fn text(value: &Valued<impl ToString>) -> (String, &Origin) {
            (quote(&value.value.to_string()), &value.origin)
        }
        fn number(value: &Valued<u32>) -> (String, &Origin) {
            (value.value.to_string(), &value.origin)
        }
        fn duration(value: &Valued<std::time::Duration>) -> (String, &Origin) {
            (quote(&humantime::format_duration(value.value).to_string()), &value.origin)
        }
        fn size(value: &Valued<Bytes>) -> (String, &Origin) {
            text(value)
        }
        match key {
            // Loss does not occur: every path was checked to be UTF-8.
            Key::Socket => (quote(&self.socket.value.to_string_lossy()), &self.socket.origin),
            Key::HostBudget => size(&self.host_budget),
            Key::UidBudget => size(&self.uid_budget),
            Key::MaxClients => number(&self.max_clients),
            Key::MaxPending => number(&self.max_pending),
            Key::MaxCalls => number(&self.max_calls),
            Key::MaxTables => number(&self.max_tables),
            Key::MaxLeases => number(&self.max_leases),
            Key::HelloTimeout => duration(&self.hello_timeout),
            Key::DrainTimeout => duration(&self.drain_timeout),
            Key::PrefaultThreads => number(&self.prefault_threads),
            Key::Log => text(&self.log),
            Key::LogFormat => text(&self.log_format),
        }
    }
}

/// `key = value      # origin`
fn line(out: &mut String, code: &str, origin: &Origin) -> fmt::Result {
    writeln!(out, "{code:<COMMENT$} # {origin}")
}

fn write_table(out: &mut String, table: &Valued<Declared>) -> fmt::Result {
    let Declared { spec, access, groups: declared_groups } = &table.value;
    let TableSpec {
        name,
        kind,
        arrays,
        batch_size,
        capacity,
        max_capacity,
        pin,
        huge_pages,
        replay: settings,
    } = spec;
    writeln!(out)?;
    line(out, "[[table]]", &table.origin)?;
    writeln!(out, "name = {}", quote(name))?;
    writeln!(out, "kind = {}", quote(kind.name()))?;
    match settings {
        Some(settings) => replay::write(out, settings)?,
        None => {
            writeln!(out, "batch_size = {batch_size}")?;
            writeln!(out, "capacity = {capacity}")?;
            writeln!(out, "max_capacity = {max_capacity}")?;
        }
    }
    writeln!(out, "pin = {}", quote(pin_word(*pin)))?;
    writeln!(out, "huge_pages = {}", quote(huge_pages_word(*huge_pages)))?;
    let rules: Vec<_> = access.0.iter().map(|rule| quote(&rule.to_string())).collect();
    writeln!(out, "access = [{}]", rules.join(", "))?;
    if !declared_groups.is_empty() {
        groups::write(out, declared_groups)?;
    }
    writeln!(out, "arrays = [")?;
    for array in arrays {
        let (path, dtype) = (quote(&array.path), quote(array.dtype.name()));
        writeln!(out, "    {{ path = {path}, dtype = {dtype}, shape = {:?} }},", array.shape)?;
    }
    writeln!(out, "]")
}

/// A TOML string.
fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}
