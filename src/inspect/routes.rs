//! What is answered to which path, on the inspector's own loop.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header;
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};

use crate::inspect::answer::{self, Content};
use crate::inspect::page::ICON;
use crate::inspect::query::Query;
use crate::inspect::stream::Events;
use crate::inspect::studio::{Studio, json};
use crate::inspect::tasks::Question;
use crate::inspect::watched::WatchedGroup;
use crate::metrics::prometheus::Prometheus;
use crate::recorder::trace::Trace;

const PATHS: &str = "there is no such path; there are: / /metrics /api/snapshot /api/stream /api/tasks \
                     /api/dump /api/trace";

/// How many seconds a trace covers, unless the request says so.
const TRACE: u64 = 10;

/// Answers requests; of the inspector's loop.
pub(super) struct Answers(pub(super) Rc<Studio>);

impl Answers {
    fn answer(&self, request: &Request<Incoming>) -> Response<Content> {
        let exhibits = &self.0.exhibits;
        if let Err(refusal) = exhibits.guard.check(request) {
            return answer::refused(refusal);
        }
        let query = Query::parse(request.uri().query());
        match request.uri().path() {
            "/" => {
                let page = exhibits.page.document.clone();
                let mut response = answer::text("text/html; charset=utf-8", page);
                let cookie = exhibits.guard.cookie(request);
                response
                    .headers_mut()
                    .extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
                response
            }
            "/favicon.ico" => answer::text("image/svg+xml", ICON),
            "/metrics" => answer::text(Prometheus::CONTENT_TYPE, self.prometheus()),
            "/api/snapshot" => answer::text("application/json", self.0.picture()),
            "/api/stream" => self.stream(request.method()),
            "/api/tasks" => self.tasks(&query),
            "/api/dump" => self.dump(&query),
            "/api/trace" => self.trace(&query),
            _ => answer::error(StatusCode::NOT_FOUND, PATHS),
        }
    }

    fn prometheus(&self) -> String {
        let groups = self.0.exhibits.groups.iter();
        let text = groups.fold(Prometheus::new(), |text, one| {
            text.group(&one.name, &one.metrics())
        });
        let servers = self.0.exhibits.servers.iter();
        let text = servers.fold(text, |text, one| {
            text.counts(one.name.clone(), one.probe.counts())
        });
        text.to_string()
    }

    /// The groups that a request is about: the one that it names, or all.
    fn asked<'a>(&'a self, query: &Query) -> Result<Vec<&'a WatchedGroup>, Box<Response<Content>>> {
        let groups = self.0.exhibits.groups.iter().map(|one| &**one);
        let Some(name) = query.get("group") else {
            return Ok(groups.collect());
        };
        let found: Vec<_> = groups.filter(|one| one.name == name).collect();
        if found.is_empty() {
            let reason = "no watched group has this name";
            return Err(Box::new(answer::error(StatusCode::NOT_FOUND, reason)));
        }
        Ok(found)
    }

    fn tasks(&self, query: &Query) -> Response<Content> {
        let question = match Question::parse(query) {
            Ok(question) => question,
            Err(mistake) => return answer::error(StatusCode::BAD_REQUEST, mistake),
        };
        match self.asked(query).map(|groups| groups.into_iter().next()) {
            Ok(Some(group)) => answer::text("application/json", json(&group.tasks(&question))),
            Ok(None) => answer::error(StatusCode::NOT_FOUND, "no group is watched"),
            Err(response) => *response,
        }
    }

    fn dump(&self, query: &Query) -> Response<Content> {
        let groups = match self.asked(query) {
            Ok(groups) => groups,
            Err(response) => return *response,
        };
        let Some(permit) = self.0.long_answers.take() else {
            return too_many_long_answers();
        };
        let dumps = groups
            .into_iter()
            .map(|one| format!("{}: {}\n", one.name, one.dump()));
        let text = dumps.collect::<Vec<_>>().join("\n");
        answer::long("text/plain; charset=utf-8", text, permit)
    }

    fn trace(&self, query: &Query) -> Response<Content> {
        let seconds = query.get("seconds").map_or(Ok(TRACE), str::parse);
        let (groups, seconds) = match (self.asked(query), seconds) {
            (Ok(groups), Ok(seconds @ 1..)) => (groups, seconds),
            (Err(response), _) => return *response,
            (_, Ok(0) | Err(_)) => {
                let reason = "seconds is a whole number above zero";
                return answer::error(StatusCode::BAD_REQUEST, reason);
            }
        };
        let Some(permit) = self.0.long_answers.take() else {
            return too_many_long_answers();
        };
        let trace = groups
            .into_iter()
            .fold(Trace::new(), |trace, one| trace.with(one.trace()));
        if trace.loops() == 0 {
            let reason = "there is no flight recorder: build the group with Builder::flight_recorder(65_536)";
            return answer::error(StatusCode::NOT_FOUND, reason);
        }
        let trace = trace.last(Duration::from_secs(seconds));
        answer::long("application/json", trace.to_chrome_json(), permit)
    }

    fn stream(&self, method: &Method) -> Response<Content> {
        if method == Method::HEAD {
            return answer::text("text/event-stream", "");
        }
        match Events::open(&self.0) {
            Some(events) => answer::events(events),
            None => {
                let reason = "too many pages are open: close one";
                answer::error(StatusCode::SERVICE_UNAVAILABLE, reason)
            }
        }
    }
}

fn too_many_long_answers() -> Response<Content> {
    let reason = "other dumps and traces are still being downloaded: try again in some seconds";
    answer::error(StatusCode::SERVICE_UNAVAILABLE, reason)
}

impl Service<Request<Incoming>> for Answers {
    type Response = Response<Content>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Content>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let response = self.answer(&request);
        ready(Ok(answer::secured(response, &self.0.exhibits.page.policy)))
    }
}
