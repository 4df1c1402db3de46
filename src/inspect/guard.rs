//! Which requests are answered, and which are refused, before anything is looked at.
//!
//! | check | refused with |
//! |---|---|
//! | the method is `GET` or `HEAD` | 405 |
//! | there is no body | 413 |
//! | one `Host`, and without a token one that only this machine has | 400, 403 |
//! | the `Origin`, if there is one, is that of the `Host` | 403 |
//! | the browser says that the page itself asks, or a person who opens it | 403 |
//! | the token, if one is needed | 401 |
//!
//! The checks are in this order, so that a request that is refused for its `Host` learns nothing about the
//! token.

use std::net::SocketAddr;

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};

use crate::inspect::query::Query;
use crate::inspect::token::TokenHash;

/// Decides on requests.
#[derive(Debug)]
pub(super) struct Guard {
    /// The hosts that this machine alone has, with the port.
    hosts: Vec<String>,
    token: Option<TokenHash>,
    cookie: String,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
    /// A header that belongs to the status.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

impl Guard {
    /// The guard of an inspector at this address.
    pub(super) fn new(address: SocketAddr, token: Option<TokenHash>) -> Guard {
        let port = address.port();
        let mut hosts: Vec<_> = ["localhost", "127.0.0.1", "[::1]"]
            .map(|name| format!("{name}:{port}"))
            .into();
        hosts.push(address.to_string()); // such as 127.0.0.2
        if port == 80 {
            let without: Vec<_> = hosts.iter().map(|host| host.replace(":80", "")).collect();
            hosts.extend(without);
        }
        Guard {
            hosts,
            token,
            // Cookies are shared by all ports of a host.
            cookie: format!("loopgroup-inspect-{port}"),
        }
    }

    /// Refuses the request, or lets it pass.
    pub(super) fn check<B: hyper::body::Body>(&self, request: &Request<B>) -> Result<(), Refusal> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let allow = HeaderValue::from_static("GET, HEAD");
            return Err(Refusal {
                header: Some((header::ALLOW, allow)),
                ..refusal(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only")
            });
        }
        if !request.body().is_end_stream() {
            let reason = "a request must not have a body";
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        let headers = request.headers();
        let host = self.check_host(headers)?;
        // A proxy's form of a request names its host twice.
        if let Some(authority) = request.uri().authority() {
            if !authority.as_str().eq_ignore_ascii_case(host) {
                let reason = "the target of the request names another host than its Host header";
                return Err(refusal(StatusCode::BAD_REQUEST, reason));
            }
        }
        check_origin(headers, host)?;
        check_fetch(headers, request.uri().path())?;
        self.check_token(request)
    }

    /// A cookie that carries the token, for an answer to a request that has it in its address.
    ///
    /// For this token alone: what else stands in an address was not written by us.
    pub(super) fn cookie<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        let query = Query::parse(request.uri().query());
        let presented = query.get("token")?;
        if !self.token.as_ref()?.is(presented) {
            return None;
        }
        let name = &self.cookie;
        let cookie = format!("{name}={presented}; HttpOnly; SameSite=Strict; Path=/");
        HeaderValue::from_str(&cookie).ok()
    }

    fn check_host<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Refusal> {
        let host = only(headers, &header::HOST).map_err(|_| {
            let reason = "a request has one Host header, in ASCII";
            refusal(StatusCode::BAD_REQUEST, reason)
        })?;
        let Some(host) = host.filter(|host| !host.is_empty()) else {
            return Err(refusal(
                StatusCode::BAD_REQUEST,
                "the Host header is missing",
            ));
        };
        let is_known = |known: &String| known.eq_ignore_ascii_case(host);
        // With a token, the machine may have any name: a site that pretends to be this one does not have the
        // token, and no cookie under its own name.
        if self.token.is_none() && !self.hosts.iter().any(is_known) {
            let reason =
                "this Host is not served: open the page by localhost or 127.0.0.1, and its port";
            return Err(refusal(StatusCode::FORBIDDEN, reason));
        }
        Ok(host)
    }

    fn check_token<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let headers = request.headers();
        let bearer = only(headers, &header::AUTHORIZATION).ok().flatten();
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        // All of them: another server of this machine can set one of the same name.
        let cookies = cookies
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == self.cookie)
            .map(|(_, value)| value);
        let query = Query::parse(request.uri().query());
        // In the address only where a person opens the page: other addresses end up in logs.
        let address = query.get("token").filter(|_| request.uri().path() == "/");
        let mut presented = [bearer, address].into_iter().flatten().chain(cookies);
        if presented.any(|one| token.is(one)) {
            return Ok(());
        }
        Err(Refusal {
            header: Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            ..refusal(
                StatusCode::UNAUTHORIZED,
                "a token is needed: open the page by its whole link, or send Authorization: Bearer <token>",
            )
        })
    }
}

/// Refuses what another origin asks for.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    let reason = "a page of another origin may not read this: open the inspector's own page";
    let foreign = refusal(StatusCode::FORBIDDEN, reason);
    let Ok(origin) = only(headers, &header::ORIGIN) else {
        return Err(foreign);
    };
    let is_ours = |origin: &str| {
        // https: a proxy with TLS may stand in front, where the token is needed.
        let schemes = ["http://", "https://"].into_iter();
        let mut rest = schemes.filter_map(|scheme| origin.strip_prefix(scheme));
        rest.any(|rest| rest.eq_ignore_ascii_case(host))
    };
    match origin.is_none_or(is_ours) {
        true => Ok(()),
        false => Err(foreign),
    }
}

/// Refuses what a browser says another site has asked for, except that a person follows a link to the page.
///
/// The page cannot be framed, and the site that has the link cannot look into it.
fn check_fetch(headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
    let value = |name: &'static str| {
        let name = HeaderName::from_static(name);
        only(headers, &name).map(|value| value.unwrap_or_default())
    };
    let (site, mode, target) = (
        value("sec-fetch-site"),
        value("sec-fetch-mode"),
        value("sec-fetch-dest"),
    );
    let link = path == "/" && mode == Ok("navigate") && target == Ok("document");
    match site {
        Ok("" | "same-origin" | "none") => Ok(()),
        Ok("same-site" | "cross-site") if link => Ok(()),
        _ => {
            let reason = "a page of another site may not read this: open the inspector's own page";
            Err(refusal(StatusCode::FORBIDDEN, reason))
        }
    }
}

/// The header occurs more than once, or is not ASCII.
#[derive(Debug, PartialEq, Eq)]
struct Ambiguous;

/// The value of a header that may occur once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Ambiguous> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Ambiguous),
        _ => Err(Ambiguous),
    }
}

fn refusal(status: StatusCode, reason: &'static str) -> Refusal {
    Refusal {
        status,
        reason,
        header: None,
    }
}

#[cfg(test)]
mod tests;
