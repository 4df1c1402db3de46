//! The cases of whole programs.

use super::Better::{Higher, Lower};
use super::Case;
use super::Size::{self, Fixed, Scaled};
use super::Who::Only;
use super::cases::{case, figure, server};
use crate::runtimes::Runtime;

const MILLIS: (&str, Size) = ("millis", Scaled(3_000, 1_000));

/// A router: by wrk over 64 connections, and by h2load over 8 with 16 streams each.
macro_rules! http {
    ($workload:literal, 1, $title:literal) => {
        server!(
            HTTP,
            $workload,
            [("http", Fixed(1)), ("conns", Fixed(64)), MILLIS],
            $title
        )
    };
    ($workload:literal, 2, $title:literal) => {
        server!(
            HTTP,
            $workload,
            [
                ("http", Fixed(2)),
                ("conns", Fixed(8)),
                ("streams", Fixed(16)),
                MILLIS
            ],
            $title
        )
    };
}

/// A cache: so many commands under way on each of 50 connections.
macro_rules! cache {
    ($workload:literal, $depth:literal, $requests:literal, $title:literal) => {
        server!(
            CACHE,
            $workload,
            [
                ("depth", Fixed($depth)),
                ("requests", Scaled($requests, 20_000))
            ],
            $title
        )
    };
}

const HTTP: &[Runtime] = &[
    Runtime::Loopgroup,
    Runtime::LoopgroupBoss,
    Runtime::TokioMulti,
];
const CACHE: &[Runtime] = &[Runtime::Loopgroup, Runtime::Redis];

pub(super) const CASES: &[Case] = &[
    http!("programs.hello", 1, "axum hello, wrk"),
    http!("programs.hello", 2, "axum hello, h2load"),
    http!("programs.json", 1, "axum JSON, wrk"),
    http!("programs.json", 2, "axum JSON, h2load"),
    cache!("programs.ping", 1, 200_000, "PING"),
    cache!("programs.set", 1, 200_000, "SET"),
    cache!("programs.get", 1, 200_000, "GET"),
    cache!("programs.ping", 16, 2_000_000, "PING, 16 deep"),
    cache!("programs.set", 16, 2_000_000, "SET, 16 deep"),
    cache!("programs.get", 16, 2_000_000, "GET, 16 deep"),
];
