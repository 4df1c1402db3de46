//! Redis' protocol, as far as this cache needs it.

use std::io;

/// The largest command: what a peer may make us keep until it is complete.
pub(crate) const LIMIT: usize = 1 << 20;

/// Adds a text to a reply.
pub(crate) fn bulk(text: &[u8], output: &mut Vec<u8>) {
    output.extend(format!("${}\r\n", text.len()).bytes());
    output.extend(text);
    output.extend(b"\r\n");
}

/// The first command, and what follows it; `None` if it is not complete.
pub(crate) type Parsed<'a> = Option<(Vec<&'a [u8]>, &'a [u8])>;

pub(crate) fn parse(input: &[u8]) -> io::Result<Parsed<'_>> {
    if input.first().is_some_and(|&mark| mark != b'*') {
        return Ok(inline(input));
    }
    let Some((count, mut rest)) = number(input, b'*')? else {
        return Ok(None);
    };
    let mut command = Vec::new(); // grows with what the peer sends, not with what it says
    for _ in 0..count {
        let Some((length, after)) = number(rest, b'$')? else {
            return Ok(None);
        };
        if after.len() < length + 2 {
            return Ok(None);
        }
        command.push(&after[..length]);
        rest = &after[length + 2..];
    }
    Ok(Some((command, rest)))
}

/// A command as one types it: words, up to the end of the line.
fn inline(input: &[u8]) -> Parsed<'_> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    let words = input[..end].split(u8::is_ascii_whitespace);
    let command = words.filter(|word| !word.is_empty()).collect();
    Some((command, &input[end + 1..]))
}

/// A number behind its mark, up to the end of the line.
fn number(input: &[u8], mark: u8) -> io::Result<Option<(usize, &[u8])>> {
    let Some(end) = input.windows(2).take(32).position(|pair| pair == b"\r\n") else {
        return if input.len() > 32 {
            Err(bad("a number without end"))
        } else {
            Ok(None)
        };
    };
    let digits = input[..end]
        .strip_prefix(&[mark])
        .and_then(|digits| std::str::from_utf8(digits).ok());
    match digits
        .and_then(|digits| digits.parse().ok())
        .filter(|&number| number <= LIMIT)
    {
        Some(number) => Ok(Some((number, &input[end + 2..]))),
        None => Err(bad("not a command of this protocol")),
    }
}

pub(crate) fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}
