//! The cases of load that is uneven or low: W16 to W18, which have tables of their own.

use super::Better::{Higher, Lower};
use super::Case;
use super::Size::{self, Fixed, Scaled};
use super::Who::Only;
use super::cases::{case, figure, server};
use crate::runtimes::Runtime;

/// Two loops, 16 connections of which 8 are hot; whether these met on one loop.
macro_rules! placement {
    ($who:expr, $unlucky:literal, $title:literal) => {
        server!(
            $who,
            "w16",
            [
                ("unlucky", Fixed($unlucky)),
                ("conns", Fixed(16)),
                ("hot", Fixed(8)),
                ("work", Fixed(20_000)),
                WARM,
                ("millis", Scaled(2_000, 200))
            ],
            $title
        )
    };
}

const WARM: (&str, Size) = ("warm", Scaled(1_000, 100));

const UNLUCKY: &[Runtime] = &[
    Runtime::Loopgroup,
    Runtime::LoopgroupUnmoved,
    Runtime::LoopgroupEven,
    Runtime::TokioMulti,
    Runtime::Smol,
    Runtime::Netty,
];
const EVEN: &[Runtime] = &[
    Runtime::Loopgroup,
    Runtime::LoopgroupUnmoved,
    Runtime::LoopgroupEven,
];
#[cfg(feature = "programs")]
const BUSY: &[Runtime] = &[
    Runtime::Loopgroup,
    Runtime::LoopgroupUnmoved,
    Runtime::LoopgroupPinned,
    Runtime::LoopgroupElastic,
    Runtime::TokioMulti,
];

const LOW: &[Runtime] = &[
    Runtime::Loopgroup,
    Runtime::LoopgroupElastic,
    Runtime::TokioMulti,
];

pub(super) const CASES: &[Case] = &[
    placement!(UNLUCKY, 1, "W16 hot connections on one of two loops"),
    placement!(EVEN, 0, "W16 hot connections on both loops"),
    Case {
        who: Only(LOW),
        ..case(
            "w18",
            &[
                ("conns", Fixed(64)),
                ("hot", Fixed(0)),
                ("work", Fixed(500)),
                ("warm", Scaled(2_000, 500)),
                ("millis", Scaled(4_000, 500)),
            ],
            &[
                figure("p50_us", "W18 low load, p50", "µs", Lower),
                figure("p99_us", "W18 low load, p99", "µs", Lower),
                figure("cpu_ns", "W18 low load, server CPU", "ns/request", Lower),
                figure("switches", "W18 low load, switches", "per request", Lower),
            ],
        )
    },
    #[cfg(feature = "programs")]
    server!(
        BUSY,
        "w17",
        [
            ("http", Fixed(1)),
            ("conns", Fixed(64)),
            ("spinner", Fixed(0)),
            ("millis", Scaled(5_000, 1_000))
        ],
        "W17 axum hello beside a busy core"
    ),
    #[cfg(feature = "programs")]
    server!(
        BUSY,
        "w17",
        [
            ("http", Fixed(1)),
            ("conns", Fixed(64)),
            ("millis", Scaled(5_000, 1_000))
        ],
        "W17 axum hello, its client on the same cores"
    ),
];
