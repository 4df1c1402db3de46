//! Strings in JSON.

use std::fmt;

/// A text as a string of JSON, with its quotes.
///
/// Besides what JSON demands, all control characters and the line ends of JavaScript are escaped, and so is
/// the slash of `</`: no text ends a script that contains it. (`<` itself is left as it is, for some viewers
/// show escapes by number as they are written.)
pub(crate) struct JsonString<'a>(pub(crate) &'a str);

impl fmt::Display for JsonString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        let mut rest = self.0;
        while let Some(at) = rest.find(needs_look) {
            f.write_str(&rest[..at])?;
            let mut chars = rest[at..].chars();
            match chars.next() {
                Some('"') => f.write_str("\\\"")?,
                Some('\\') => f.write_str("\\\\")?,
                Some('\n') => f.write_str("\\n")?,
                Some('\r') => f.write_str("\\r")?,
                Some('\t') => f.write_str("\\t")?,
                Some('<') if chars.as_str().starts_with('/') => {
                    f.write_str("<\\/")?;
                    chars.next();
                }
                Some('<') => f.write_str("<")?,
                // Those are all in the basic plane: one escape of four digits.
                Some(other) => write!(f, "\\u{:04x}", u32::from(other))?,
                None => {}
            }
            rest = chars.as_str();
        }
        f.write_str(rest)?;
        f.write_str("\"")
    }
}

fn needs_look(char: char) -> bool {
    matches!(char, '"' | '\\' | '<' | '\u{2028}' | '\u{2029}') || char.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_has_what_json_demands() {
        let cases = [
            ("", r#""""#),
            ("plain", r#""plain""#),
            ("é 漢 🦀", r#""é 漢 🦀""#),
            (r#"a "quote" and \"#, r#""a \"quote\" and \\""#),
            (
                "\n\r\t\u{8}\u{c}\0\u{1f}",
                r#""\n\r\t\u0008\u000c\u0000\u001f""#,
            ),
            (
                "\u{7f}\u{9f}\u{2028}\u{2029}",
                r#""\u007f\u009f\u2028\u2029""#,
            ),
            ("</script></<b>&<", r#""<\/script><\/<b>&<""#),
        ];
        for (text, json) in cases {
            assert_eq!(JsonString(text).to_string(), json);
        }
    }
}
