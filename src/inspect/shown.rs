//! Text of the user's that a person is to read: names of tasks and groups, errors, addresses.
//!
//! - Characters that would change how the rest is shown (controls, line breaks, marks that reverse the
//!   direction of writing) become visible escapes.
//! - The length is bounded: a name of a megabyte is cut, and says so.

/// The longest text, in characters.
const MOST: usize = 300;

/// The text as a page may show it.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MOST));
    for (count, letter) in text.chars().enumerate() {
        if count == MOST {
            shown.push('…');
            break;
        }
        if is_invisible(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Whether a character is a control, or changes how its neighbours are shown.
pub(super) fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped_and_the_rest_is_not() {
        assert_eq!(
            shown("<script> Ünïcode 🦀 \"'&"),
            "<script> Ünïcode 🦀 \"'&"
        );
        assert_eq!(shown("a\nb\0c\x1b[31m"), "a\\nb\\u{0}c\\u{1b}[31m");
        assert_eq!(shown("\u{202e}txt.exe"), "\\u{202e}txt.exe");
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = shown(&"é".repeat(1_000_000));
        assert_eq!(text.chars().count(), MOST + 1);
        assert!(text.ends_with('…'));
    }
}
