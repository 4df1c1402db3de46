//! loopgroup and tokio in one program, each used from inside the other.
//!
//!     cargo run --release --example tokio_side_by_side
//!
//! Prints, with other numbers perhaps:
//!
//!     on loop 0: 200 OK, hello from loop 1
//!     on a thread of tokio: loop 1 says 42
//!
//! reqwest wants tokio around it: each loop's thread enters the runtime when it starts, and leaves
//! it when it ends. So its request is made on our loop, while its connection is a task of tokio's.
//! The other way round nothing is needed.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use hyper::Response;
use hyper::service::service_fn;
use loopgroup::compat::hyper::serve;
use loopgroup::{EventLoop, EventLoopGroup};
use tokio::runtime::Runtime;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// In a `static`, as the guard of `enter` borrows it for as long as a loop's thread lives.
static TOKIO: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("tokio starts"));

fn main() -> Result<(), Error> {
    let group = EventLoopGroup::builder()
        .loops(2)
        .on_thread_start(|_| TOKIO.enter())
        .build()?;
    let server = serve(&group, "127.0.0.1:0", |_loop| {
        service_fn(|_| async {
            Ok::<_, Infallible>(Response::new(format!("hello from {}", here())))
        })
    })?;

    // tokio's I/O and timers, in a task of ours.
    let url = format!("http://{}/", server.local_addr());
    let asked = group.spawn(async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let response = reqwest::get(url).await?;
        let (status, text) = (response.status(), response.text().await?);
        println!("on {}: {status}, {text}", here());
        Ok::<(), Error>(())
    });
    group.block_on(asked)??;

    // Our loops, from a task of tokio's: handles are futures, and futures run anywhere.
    let loops = group.clone();
    let asked = TOKIO.spawn(async move {
        let answer = loops.spawn(async { format!("{} says {}", here(), 6 * 7) });
        println!("on {}: {}", here(), answer.await?);
        Ok::<(), Error>(())
    });
    TOKIO.block_on(asked)??;

    server.stop();
    let report = group.drain(Duration::from_secs(5)).wait();
    println!("{report}");
    Ok(())
}

fn here() -> String {
    match EventLoop::current() {
        Some(home) => format!("loop {}", home.index()),
        None => "a thread of tokio".to_owned(),
    }
}
