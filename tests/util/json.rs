//! A strict reader of JSON: what it accepts, everybody does.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(BTreeMap<String, Json>),
}

impl Json {
    /// Reads a text, which must be JSON and nothing else.
    #[track_caller]
    pub fn parse(text: &str) -> Json {
        let mut reader = Reader(text.chars().peekable());
        let value = reader.value();
        reader.space();
        assert_eq!(reader.0.next(), None, "something follows");
        value
    }

    /// A member, which must be there.
    #[track_caller]
    pub fn get(&self, name: &str) -> &Json {
        self.find(name)
            .unwrap_or_else(|| panic!("no {name:?} in {self:?}"))
    }

    /// A member, if it is there.
    pub fn find(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Map(map) => map.get(name),
            _ => None,
        }
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    #[track_caller]
    pub fn number(&self) -> f64 {
        match self {
            Json::Number(number) => *number,
            other => panic!("no number: {other:?}"),
        }
    }

    #[track_caller]
    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(list) => list,
            other => panic!("no list: {other:?}"),
        }
    }
}

struct Reader<'a>(Peekable<Chars<'a>>);

impl Reader<'_> {
    fn space(&mut self) {
        while self.0.next_if(|c| " \n\r\t".contains(*c)).is_some() {}
    }

    fn take(&mut self, wanted: char) -> bool {
        self.space();
        self.0.next_if_eq(&wanted).is_some()
    }

    fn must(&mut self, wanted: char) {
        assert!(self.take(wanted), "no {wanted:?}: {:?}", self.0.peek());
    }

    fn word(&mut self, word: &str, value: Json) -> Json {
        word.chars()
            .for_each(|c| assert_eq!(self.0.next(), Some(c)));
        value
    }

    fn value(&mut self) -> Json {
        self.space();
        match self.0.peek().copied() {
            Some('n') => self.word("null", Json::Null),
            Some('t') => self.word("true", Json::Bool(true)),
            Some('f') => self.word("false", Json::Bool(false)),
            Some('"') => Json::Text(self.string()),
            Some('[') => {
                self.must('[');
                let mut list = Vec::new();
                while list.is_empty() && !self.take(']') || !list.is_empty() && self.more(']') {
                    list.push(self.value());
                }
                Json::List(list)
            }
            Some('{') => {
                self.must('{');
                let mut map = BTreeMap::new();
                while map.is_empty() && !self.take('}') || !map.is_empty() && self.more('}') {
                    self.space();
                    let name = self.string();
                    self.must(':');
                    let value = self.value();
                    assert!(map.insert(name, value).is_none(), "a name comes twice");
                }
                Json::Map(map)
            }
            _ => Json::Number(self.number()),
        }
    }

    /// Whether another entry follows, or the list ends.
    fn more(&mut self, end: char) -> bool {
        if self.take(end) {
            return false;
        }
        self.must(',');
        true
    }

    fn string(&mut self) -> String {
        assert_eq!(self.0.next(), Some('"'));
        let mut text = String::new();
        loop {
            match self.0.next().expect("a string has an end") {
                '"' => return text,
                '\\' => text.push(match self.0.next().unwrap() {
                    'u' => {
                        let digits: String = (0..4).map(|_| self.0.next().unwrap()).collect();
                        let code = u32::from_str_radix(&digits, 16).unwrap();
                        char::from_u32(code).expect("no half of a pair is written")
                    }
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    same @ ('"' | '\\' | '/') => same,
                    other => panic!("no escape: {other:?}"),
                }),
                other if other < ' ' => panic!("a control character: {other:?}"),
                other => text.push(other),
            }
        }
    }

    fn number(&mut self) -> f64 {
        let mut text = String::new();
        while let Some(char) = self
            .0
            .next_if(|c| "+-.eE".contains(*c) || c.is_ascii_digit())
        {
            text.push(char);
        }
        assert!(
            !text.starts_with('0') || text.len() == 1 || text.starts_with("0."),
            "{text}"
        );
        text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
    }
}
