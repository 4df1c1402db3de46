//! The query of a request: `name=value` pairs, percent-encoded.

/// The pairs of a query, decoded; the first one counts if a name occurs twice.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: Option<&str>) -> Query {
        let pairs = text.unwrap_or_default().split('&');
        let decoded = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Query(decoded.collect())
    }

    /// The value of a name; `None` if it is missing or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(known, _)| known == name)?;
        Some(&*pair.1).filter(|value| !value.is_empty())
    }
}

/// Decodes `%41` and `+`. What is no valid escape stays as it is, and what is no UTF-8 is replaced.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = || {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
        };
        let (byte, used) = match first {
            b'+' => (b' ', 1),
            b'%' => escaped().map_or((first, 1), |byte| (byte, 3)),
            _ => (first, 1),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse(Some("q=a%2Fb+c&empty=&flag&q=second&%6eame=%c3%a9"));
        assert_eq!(query.get("q"), Some("a/b c"));
        assert_eq!(query.get("name"), Some("é"));
        assert_eq!(
            (query.get("empty"), query.get("flag"), query.get("none")),
            (None, None, None)
        );
    }

    #[test]
    fn nonsense_is_taken_as_it_is() {
        let query = Query::parse(Some("&&=&a=%&b=%4&c=%zz&d=%+1&e=%ff"));
        assert_eq!((query.get("a"), query.get("b")), (Some("%"), Some("%4")));
        assert_eq!((query.get("c"), query.get("d")), (Some("%zz"), Some("% 1")));
        assert_eq!(query.get("e"), Some("\u{fffd}"));
        assert_eq!(Query::parse(None).get("a"), None);
    }
}
