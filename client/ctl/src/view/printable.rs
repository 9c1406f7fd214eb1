//! What others chose to call themselves.

/// The text with control characters and what changes the direction of writing escaped.
pub(crate) fn printable(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(printable("worker-7 (ü)"), "worker-7 (ü)");
        assert_eq!(printable("\x1b[2Jx\n\u{202e}"), "\\u{1b}[2Jx\\u{a}\\u{202e}");
    }
}
