//! What `watch` writes on: a terminal that is drawn over, a file that grows, or a program.
//!
//! A terminal is left as it was after every frame, so that an interrupt at any moment needs no handler: lines are not
//! wrapped within a frame and are again behind it, the cursor is never hidden, and what was on the screen before stays
//! there. Nothing is coloured.

use std::fmt::Write;
use std::io;
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;
use serde_json::json;

use super::rates::Look;
use crate::failure::Failure;
use crate::json::{self, SCHEMA};
use crate::view::watch::{Column, columns, lines};

/// Rows and columns of a terminal that does not say how many it has.
const SIZE: (usize, usize) = (24, 80);

/// Where looks are written to.
pub(super) enum Paper {
    /// A terminal, and how many lines of it were drawn last.
    Screen { drawn: usize },
    /// Rows, and whether their heads were written.
    Rows { headed: bool },
    /// An object a line.
    Objects,
}

impl Paper {
    /// What is to be printed of a look, compared with the one before.
    pub(super) fn write(&mut self, seen: Result<&Look, &Failure>, before: &Look) -> String {
        let now = SystemTime::now();
        match self {
            Self::Objects => {
                let mut object = match seen {
                    Ok(look) => json::watched(look, Some(before)),
                    Err(failure) => json!({ "error": failure.object() }),
                };
                let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                object["at_ms"] = (since_epoch.as_millis() as u64).into();
                object["schema"] = SCHEMA.into();
                format!("{object}\n")
            }
            Self::Rows { headed } => {
                let time = format_rfc3339_seconds(now).to_string();
                let columns = columns();
                let mut text = String::new();
                if !std::mem::replace(headed, true) {
                    let heads: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
                    text += &row("TIME", &heads, &columns);
                }
                match seen {
                    Ok(look) if look.tables.is_empty() => text += &format!("{time}  there are no tables\n"),
                    Ok(look) => {
                        text.extend(lines(look, before).iter().map(|cells| row(&time, cells, &columns)))
                    }
                    Err(failure) => text += &format!("{time}  {}; trying again\n", failure.sentence()),
                }
                text
            }
            Self::Screen { drawn } => {
                let time = format_rfc3339_seconds(now);
                let text = match seen {
                    Ok(look) => format!("{time}\n{}", crate::view::watch::table(look, before)),
                    Err(failure) => format!("{time}\n{}; trying again", failure.sentence()),
                };
                let (frame, lines) = frame(&text, *drawn, size());
                *drawn = lines;
                frame
            }
        }
    }
}

/// A line whose columns are where those of the line before were, as far as what stands in them allows.
fn row(time: &str, cells: &[String], columns: &[Column]) -> String {
    let mut line = format!("{time:<20}");
    for (cell, column) in cells.iter().zip(columns) {
        let width = column.width;
        // A String takes everything that is written to it.
        let _ = match column.right {
            true => write!(line, "  {cell:>width$}"),
            false => write!(line, "  {cell:<width$}"),
        };
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// What draws the text over the lines that were drawn last, and how many lines it has.
fn frame(text: &str, drawn: usize, (rows, columns): (usize, usize)) -> (String, usize) {
    let mut lines: Vec<&str> = text.lines().collect();
    // What has scrolled off the screen cannot be drawn over.
    lines.truncate(rows.saturating_sub(1).max(1));
    let mut frame = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
    frame += "\r\x1b[J\x1b[?7l";
    for (i, line) in lines.iter().enumerate() {
        frame += if i > 0 { "\r\n" } else { "" };
        frame.extend(line.chars().take(columns));
    }
    (frame + "\x1b[?7h\r\n", lines.len())
}

fn size() -> (usize, usize) {
    let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else { return SIZE };
    match (size.ws_row, size.ws_col) {
        (0, _) | (_, 0) => SIZE,
        (rows, columns) => (rows.into(), columns.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rates::tests::look;

    #[test]
    fn rows_have_their_heads_once_and_stand_under_them() {
        let (first, second) = (look(1, 1, 1000, 100, 20), look(1, 1, 2000, 300, 60));
        let mut paper = Paper::Rows { headed: false };
        let text = paper.write(Ok(&second), &first);
        let [head, row] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(head.starts_with("TIME                  TABLE "), "{head}");
        let end = head.find("COMMITTED/S").unwrap() + "COMMITTED/S".len();
        assert_eq!(&row[..end][end - 5..], "  200", "{text}");
        assert_eq!(paper.write(Ok(&second), &first).lines().count(), 1);
        let gone = Failure::Print(io::Error::other("x\x1b"));
        assert!(paper.write(Err(&gone), &second).ends_with("x\\u{1b}; trying again\n"));
    }

    #[test]
    fn a_frame_covers_the_one_before_and_leaves_the_terminal_as_it_was() {
        let (frame, drawn) = frame("one\ntwo and more\nthree\nfour", 2, (4, 5));
        assert_eq!(drawn, 3, "the last line of the terminal is the cursor's");
        assert_eq!(frame, "\x1b[2A\r\x1b[J\x1b[?7lone\r\ntwo a\r\nthree\x1b[?7h\r\n");
    }

    #[test]
    fn an_object_is_one_line() {
        let (first, second) = (look(1, 1, 1000, 100, 20), look(1, 1, 2000, 300, 60));
        let text = Paper::Objects.write(Ok(&second), &first);
        assert_eq!(text.lines().count(), 1);
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["schema"], SCHEMA);
        let rates = &object["tables"][0]["rates"];
        assert_eq!(rates["samples_committed_per_s"], 200.0);
        assert_eq!(rates["bytes_committed_per_s"], 204_800.0);
        assert_eq!(object["tables"][0]["wait"], serde_json::Value::Null);
        let text = Paper::Objects.write(Ok(&second), &look(2, 1, 1000, 100, 20));
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["tables"][0]["rates"], serde_json::Value::Null);
    }
}
