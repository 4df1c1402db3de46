//! The head of a request, as far as this server needs it.

use std::io;

use futures::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use loopgroup::net::TcpStream;

/// The longest head.
const LIMIT: u64 = 16 * 1024;

pub(crate) struct Request {
    pub(crate) path: String,
    /// Whether this is to be the last request of its connection.
    pub(crate) close: bool,
}

/// Reads the head of a request; `None` at the end of the connection. Bodies are refused.
pub(crate) async fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut head = String::new();
    let mut lines = reader.take(LIMIT);
    while !head.ends_with("\n\r\n") && !head.ends_with("\n\n") {
        if lines.read_line(&mut head).await? == 0 {
            return match (head.is_empty(), lines.limit()) {
                (true, _) => Ok(None),
                (false, 0) => Err(bad("the head of the request is too long")),
                (false, _) => Err(bad("the request is cut off")),
            };
        }
    }
    let (line, headers) = head.split_once('\n').unwrap_or((&head, ""));
    let headers = headers.to_ascii_lowercase();
    // All of that name, and also with a blank before the colon: a body that is overlooked would be
    // read as the next request.
    let header = |name: &'static str| {
        let lines = headers.lines().filter_map(|line| line.split_once(':'));
        let named = lines.filter(move |(one, _)| one.trim() == name);
        named.flat_map(|(_, value)| value.split(',').map(str::trim))
    };
    if header("content-length").any(|length| length != "0")
        || header("transfer-encoding").next().is_some()
    {
        return Err(bad("this server reads no bodies"));
    }
    let words: Vec<_> = line.split_whitespace().collect();
    let ["GET", path, version @ ("HTTP/1.1" | "HTTP/1.0")] = words[..] else {
        return Err(bad("this is no GET of HTTP/1.1"));
    };
    let says = |word| header("connection").any(|one| one == word);
    let close = says("close") || (version == "HTTP/1.0" && !says("keep-alive"));
    let path = path.to_owned();
    Ok(Some(Request { path, close }))
}

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}
