//! The page: one document, put together from its parts, and the policy that allows exactly these parts.
//!
//! - Script and style are allowed by their hashes. Whatever else got into the page would not run.
//! - Strings never become markup: the policy has the browser refuse that (`trusted-types`).

use hyper::body::Bytes;
use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("page/style.css");

/// One script, in files by what they draw.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("page/base.js"),
    include_str!("page/lanes.js"),
    include_str!("page/matrix.js"),
    include_str!("page/histograms.js"),
    include_str!("page/tasks.js"),
    include_str!("page/events.js"),
    include_str!("page/servers.js"),
    include_str!("page/shutdown.js"),
    include_str!("page/main.js"),
    "})();\n",
);

const DOCUMENT: &str = include_str!("page/index.html");

/// The picture of the tab.
pub(super) const ICON: &str = include_str!("page/icon.svg");

/// The document and its policy.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) document: Bytes,
    pub(super) policy: HeaderValue,
}

impl Page {
    pub(super) fn new() -> Page {
        let document = DOCUMENT
            .replace("/* style */", STYLE)
            .replace("/* script */", SCRIPT);
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; img-src 'self'; connect-src 'self'; \
             frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            source_hash(SCRIPT),
            source_hash(STYLE)
        );
        Page {
            document: document.into(),
            policy: policy.try_into().expect("hashes are ASCII"),
        }
    }
}

/// A hash as a policy names it.
fn source_hash(source: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(source)))
}

/// Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_its_specification() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_hash_of_nothing() {
        let empty = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(source_hash(""), empty);
    }

    #[test]
    fn the_document_is_complete_and_loads_nothing_from_elsewhere() {
        let page = Page::new();
        let text = std::str::from_utf8(&page.document).unwrap();
        assert!(text.contains(SCRIPT) && text.contains(STYLE));
        assert!(!text.contains("/* script */") && !text.contains("/* style */"));
        assert_eq!(text.matches("<script>").count(), 1);
        assert_eq!(text.matches("<style>").count(), 1);
        for wrong in [
            " style=\"",
            " onclick=",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "localStorage",
            "sessionStorage",
            "url(",
            "@import",
        ] {
            assert!(!text.contains(wrong), "{wrong}");
        }
        // One address of another site, for the button that opens it.
        let addresses = text.split("https://").skip(1).map(|rest| &rest[..15]);
        assert!(addresses.into_iter().all(|rest| rest == "ui.perfetto.dev"));
        let only = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!only.contains("http://"));
    }

    #[test]
    fn the_policy_allows_what_is_in_the_document_and_nothing_else() {
        let policy = Page::new().policy;
        let policy = policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"));
    }
}
