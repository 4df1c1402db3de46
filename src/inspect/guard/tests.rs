use super::*;

type Headers<'a> = &'a [(&'static str, &'a str)];

const TOKEN: &str = "a-token-of-some-length";

fn guard(token: Option<&str>) -> Guard {
    let token = token.map(|token| TokenHash::of(token).unwrap());
    Guard::new(SocketAddr::from(([127, 0, 0, 1], 9000)), token)
}

fn status(guard: &Guard, method: &str, target: &str, headers: Headers<'_>) -> u16 {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(String::new()).unwrap();
    guard
        .check(&request)
        .map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
}

/// Of a request for a path, from this machine.
fn local(headers: Headers<'_>) -> u16 {
    status(&guard(None), "GET", "/api/snapshot", headers)
}

const HERE: (&str, &str) = ("host", "127.0.0.1:9000");

#[test]
fn a_host_that_only_this_machine_has_is_served() {
    for host in [
        "127.0.0.1:9000",
        "localhost:9000",
        "LocalHost:9000",
        "[::1]:9000",
    ] {
        assert_eq!(local(&[("host", host)]), 200, "{host}");
    }
}

#[test]
fn any_other_host_is_refused() {
    for host in [
        "evil.example:9000",
        "evil.example",
        "localhost",
        "localhost:9001",
        "127.0.0.1",
        "127.0.0.1:9000.evil.example",
        "evil.example@127.0.0.1:9000",
        "localhost.evil.example:9000",
        "127.0.0.1:9000, evil.example",
        "0.0.0.0:9000",
        "[::]:9000",
    ] {
        assert_eq!(local(&[("host", host)]), 403, "{host}");
    }
    assert_eq!(local(&[]), 400);
    assert_eq!(local(&[("host", "")]), 400);
    assert_eq!(local(&[HERE, HERE]), 400);
    assert_eq!(local(&[("host", "löcalhost:9000")]), 400);
}

#[test]
fn a_port_of_80_may_be_left_out() {
    let guard = Guard::new(SocketAddr::from(([127, 0, 0, 1], 80)), None);
    for host in ["localhost", "localhost:80", "[::1]", "127.0.0.1:80"] {
        assert_eq!(status(&guard, "GET", "/", &[("host", host)]), 200, "{host}");
    }
    assert_eq!(status(&guard, "GET", "/", &[("host", "evil.example")]), 403);
}

#[test]
fn a_target_that_names_another_host_is_refused() {
    let target = "http://evil.example/api/snapshot";
    assert_eq!(status(&guard(None), "GET", target, &[HERE]), 400);
    let target = "http://127.0.0.1:9000/api/snapshot";
    assert_eq!(status(&guard(None), "GET", target, &[HERE]), 200);
}

#[test]
fn only_get_and_head_are_allowed() {
    assert_eq!(status(&guard(None), "HEAD", "/", &[HERE]), 200);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        assert_eq!(status(&guard(None), method, "/", &[HERE]), 405, "{method}");
    }
    let request = Request::post("/").body(String::new()).unwrap();
    let refused = guard(None).check(&request).unwrap_err();
    let allow = HeaderValue::from_static("GET, HEAD");
    assert_eq!(refused.header, Some((header::ALLOW, allow)));
}

#[test]
fn a_body_is_refused() {
    let request = Request::get("/")
        .header("host", HERE.1)
        .body("body".to_owned())
        .unwrap();
    assert_eq!(
        guard(None).check(&request).unwrap_err().status.as_u16(),
        413
    );
}

#[test]
fn a_foreign_origin_is_refused() {
    assert_eq!(local(&[HERE, ("origin", "http://127.0.0.1:9000")]), 200);
    for origin in [
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1:9001",
        "http://localhost:9000", // another origin than that of the Host
        "http://127.0.0.1",
        "ftp://127.0.0.1:9000",
    ] {
        assert_eq!(local(&[HERE, ("origin", origin)]), 403, "{origin}");
    }
    let ours = ("origin", "http://127.0.0.1:9000");
    assert_eq!(local(&[HERE, ours, ours]), 403);
}

#[test]
fn another_site_may_link_to_the_page_and_nothing_else() {
    for site in ["same-origin", "none"] {
        assert_eq!(local(&[HERE, ("sec-fetch-site", site)]), 200, "{site}");
    }
    for site in ["cross-site", "same-site", "new-word"] {
        assert_eq!(local(&[HERE, ("sec-fetch-site", site)]), 403, "{site}");
    }
    let asks = |target, mode, to| {
        let headers = [
            HERE,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", to),
        ];
        status(&guard(None), "GET", target, &headers)
    };
    assert_eq!(asks("/", "navigate", "document"), 200);
    assert_eq!(asks("/", "navigate", "iframe"), 403);
    assert_eq!(asks("/", "no-cors", "script"), 403);
    assert_eq!(asks("/", "cors", "empty"), 403);
    assert_eq!(asks("/api/snapshot", "navigate", "document"), 403);
}

#[test]
fn with_a_token_every_request_needs_it_by_whatever_name() {
    let guard = guard(Some(TOKEN));
    let host = ("host", "build-7.example:9000");
    let cookie = format!("a=b; loopgroup-inspect-9000={TOKEN}");
    let bearer = format!("Bearer {TOKEN}");
    let with = format!("/?token={TOKEN}");
    assert_eq!(
        status(
            &guard,
            "GET",
            "/metrics",
            &[host, ("authorization", &bearer)]
        ),
        200
    );
    assert_eq!(
        status(&guard, "GET", "/metrics", &[host, ("cookie", &cookie)]),
        200
    );
    assert_eq!(status(&guard, "GET", &with, &[host]), 200);
    assert_eq!(status(&guard, "GET", "/", &[host]), 401);
    assert_eq!(
        status(&guard, "GET", "/", &[HERE]),
        401,
        "also from this machine"
    );
    assert_eq!(status(&guard, "GET", "/?token=wrong", &[host]), 401);
    assert_eq!(
        status(&guard, "GET", &format!("/metrics?token={TOKEN}"), &[host]),
        401
    );
    assert_eq!(
        status(&guard, "GET", "/", &[host, ("authorization", TOKEN)]),
        401
    );
    let other = format!("loopgroup-inspect-9001={TOKEN}");
    assert_eq!(status(&guard, "GET", "/", &[host, ("cookie", &other)]), 401);
    // Another server of this machine has set a cookie of the same name.
    let both = format!("loopgroup-inspect-9000=other; {cookie}");
    assert_eq!(status(&guard, "GET", "/", &[host, ("cookie", &both)]), 200);
    let foreign = [
        host,
        ("authorization", &*bearer),
        ("origin", "http://evil.example"),
    ];
    assert_eq!(status(&guard, "GET", "/metrics", &foreign), 403);
}

#[test]
fn the_token_of_the_address_becomes_a_cookie() {
    let of = |token, target: &str| {
        let request = Request::get(target).body(String::new()).unwrap();
        guard(token)
            .cookie(&request)
            .map(|cookie| cookie.to_str().unwrap().to_owned())
    };
    let cookie = of(Some(TOKEN), &format!("/?token={TOKEN}")).unwrap();
    let parts: Vec<_> = cookie.split("; ").collect();
    let pair = format!("loopgroup-inspect-9000={TOKEN}");
    assert_eq!(parts, [&*pair, "HttpOnly", "SameSite=Strict", "Path=/"]);
    assert_eq!(of(Some(TOKEN), "/"), None);
    assert_eq!(
        of(Some(TOKEN), "/?token=x%3B+Domain%3Devil.example"),
        None,
        "not what others wrote"
    );
    assert_eq!(of(None, "/?token=whatever"), None);
}
