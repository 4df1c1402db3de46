//! The token of an inspector that may be reached from other machines.
//!
//! - It is kept and compared as its hash, all bytes of it: neither the time of a comparison nor the debug
//!   output tells anything of the token.
//! - Its characters need no escape in a URL, a header or a cookie.

use std::fmt;
use std::io;

use sha2::{Digest, Sha256};

/// The shortest token.
const LEAST: usize = 16;
/// The longest token.
const MOST: usize = 256;

/// The hash of a token.
#[derive(Clone)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Checks the token, and hashes it.
    pub(super) fn of(token: &str) -> io::Result<TokenHash> {
        let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"-._~".contains(&letter);
        let mistake = if token.len() < LEAST {
            format!(
                "the token of allow_remote has {} characters: use {LEAST} or more",
                token.len()
            )
        } else if token.len() > MOST {
            format!(
                "the token of allow_remote has {} characters: use {MOST} at most",
                token.len()
            )
        } else if !token.bytes().all(is_plain) {
            "the token of allow_remote may have ASCII letters, digits and - . _ ~ only".to_owned()
        } else {
            return Ok(TokenHash(Sha256::digest(token).into()));
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, mistake))
    }

    /// Whether it is this token; in a time that does not depend on where they differ.
    pub(super) fn is(&self, presented: &str) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        let pairs = self.0.iter().zip(&presented);
        pairs.fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let token = TokenHash::of("correct-horse-battery").unwrap();
        assert!(token.is("correct-horse-battery"));
        for wrong in [
            "",
            "correct-horse-batterz",
            "correct-horse-battery ",
            "Correct-horse-battery",
        ] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{token:?}"), "TokenHash(..)");
    }

    #[test]
    fn a_token_that_cannot_work_is_refused_with_a_reason() {
        let long = "x".repeat(MOST + 1);
        for (token, reason) in [
            ("", "has 0 characters"),
            ("short", "has 5 characters"),
            (&*long, "has 257 characters"),
            ("sixteen letters; and a semicolon", "ASCII letters"),
            ("sixteen\nletters\nand\nlines", "ASCII letters"),
        ] {
            let error = TokenHash::of(token).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
