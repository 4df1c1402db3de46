//! loopgroup and tokio in one process, each inside the other.

use std::sync::LazyLock;
use std::time::Duration;

use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoop, EventLoopGroup, shutdown_requested};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use crate::util::{Log, Probe, within};

static TOKIO: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A group whose threads are inside tokio.
fn beside_tokio(loops: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops);
    builder.on_thread_start(|_| TOKIO.enter()).build().unwrap()
}

async fn hello(mut stream: TcpStream) {
    let mut request = [0; 1024];
    let read = stream.read(&mut request).await.unwrap();
    assert!(request[..read].starts_with(b"GET / HTTP/1.1\r\n"));
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    stream.write_all(answer).await.unwrap();
}

#[test]
fn reqwest_works_in_our_tasks_which_stay_at_home() {
    within(|| {
        let group = beside_tokio(2);
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        let server = server.serve(|stream, _| hello(stream)).unwrap();
        let url = format!("http://{}/", server.local_addr());
        let first = group.loops()[0].clone();
        let home = first.submit(|| std::thread::current().id());
        let home = group.block_on(home).unwrap();
        for _ in 0..10 {
            let (log, url) = (Log::new(), url.clone());
            let get = async move { reqwest::get(url).await.unwrap().text().await.unwrap() };
            let got = first.spawn(Probe::new(&log, get));
            assert_eq!(group.block_on(got).unwrap(), "hello");
            log.assert_home(home);
        }
    });
}

#[test]
fn tokio_sockets_timers_and_spawn_work_in_our_tasks() {
    within(|| {
        let group = beside_tokio(1);
        let ours = group.spawn(async {
            let home = EventLoop::current();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let theirs = tokio::spawn(async move {
                assert_eq!(EventLoop::current(), None);
                let mut stream = listener.accept().await.unwrap().0;
                stream.write_u32(7).await.unwrap();
            });
            // A socket of ours to a socket of tokio's.
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert_eq!(stream.read_u32().await.unwrap(), 7);
            theirs.await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(EventLoop::current(), home);
        });
        group.block_on(ours).unwrap();
    });
}

#[test]
fn our_group_is_used_and_ended_inside_every_kind_of_tokio() {
    within(|| {
        let kinds = [
            Builder::new_current_thread().build(),
            Builder::new_multi_thread().build(),
        ];
        for tokio in kinds.map(Result::unwrap) {
            let report = tokio.block_on(async {
                let group = EventLoopGroup::new(2).unwrap();
                let (loops, sum) = (group.clone(), 1 + 2);
                let task = tokio.spawn(async move { loops.spawn(async move { sum }).await });
                assert_eq!(task.await.unwrap().unwrap(), 3);
                let waiting = group.spawn(async { shutdown_requested().await });
                let end = group.drain(crate::util::WATCHDOG);
                waiting.await.unwrap();
                end.await
            });
            assert!(report.is_clean(), "{report}");
        }
    });
}

#[test]
fn without_tokio_around_it_a_client_of_tokio_says_so_and_the_loop_goes_on() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let lost = group.spawn(async { tokio::time::sleep(Duration::from_millis(1)).await });
        let payload = group.block_on(lost).unwrap_err().into_panic();
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap();
        assert!(text.contains("no reactor running"), "{text}");
        assert_eq!(group.block_on(group.spawn(async { 1 })).unwrap(), 1);
    });
}
