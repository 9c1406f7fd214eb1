//! What comes of a check.

use serde_json::{Map, Value, json};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Echo relies on nothing of it.
    Measured,
    /// It is as echo assumes.
    Held,
    /// It is not, or could not be found out.
    Differs,
    /// The machine or the library lacks something.
    LeftOut,
}

const WORDS: [(Status, &str); 4] = [
    (Status::Measured, "measured"),
    (Status::Held, "held"),
    (Status::Differs, "differs"),
    (Status::LeftOut, "left out"),
];

#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub status: Status,
    pub values: Map<String, Value>,
    pub reason: Option<String>,
}

impl Outcome {
    /// With values, an object.
    pub fn measured(values: Value) -> Self {
        let Value::Object(values) = values else { unreachable!("values have names") };
        Self { status: Status::Measured, values, reason: None }
    }

    /// Whether it is as echo assumes, with values; and what it assumes.
    pub fn holds(so: bool, assumed: &str, values: Value) -> Self {
        let status = if so { Status::Held } else { Status::Differs };
        let reason = (!so).then(|| format!("echo assumes that {assumed}"));
        Self { status, reason, ..Self::measured(values) }
    }

    pub fn differs(reason: impl Into<String>) -> Self {
        Self { status: Status::Differs, values: Map::new(), reason: Some(reason.into()) }
    }

    pub fn left_out(reason: impl Into<String>) -> Self {
        Self { status: Status::LeftOut, values: Map::new(), reason: Some(reason.into()) }
    }

    pub fn to_json(&self) -> Value {
        let (_, word) = WORDS.iter().find(|(status, _)| *status == self.status).expect("each has a word");
        json!({ "status": word, "values": self.values, "reason": self.reason })
    }

    pub fn from_json(text: &str) -> Option<Self> {
        let Value::Object(mut said) = serde_json::from_str(text).ok()? else { return None };
        let (status, _) = WORDS.iter().find(|(_, word)| said["status"] == *word)?;
        let Value::Object(values) = said.remove("values")? else { return None };
        Some(Self { status: *status, values, reason: said["reason"].as_str().map(str::to_owned) })
    }

    /// The line that is printed: check, status, reason, and the values beside them.
    pub fn line(&self, check: &str) -> String {
        let mut all = self.to_json();
        let Some(object) = all.as_object_mut() else { unreachable!("made as one") };
        object.remove("values");
        object.retain(|_, value| !value.is_null());
        object.insert("check".into(), check.into());
        object.extend(self.values.clone());
        all.to_string()
    }
}
