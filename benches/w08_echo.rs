//! W8: echo over TCP, a server on one loop and its clients on another.
//!
//!     cargo bench --bench w08_echo
#![allow(missing_docs)]

mod util;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::EventLoopGroup;
use loopgroup::net::{Server, TcpStream};
use util::bench;

const REQUESTS: u32 = 20_000;

fn main() {
    let (server, clients) = (
        EventLoopGroup::new(1).unwrap(),
        EventLoopGroup::new(1).unwrap(),
    );
    let handle = Server::new("127.0.0.1:0")
        .unwrap()
        .workers(&server)
        .serve(|mut stream, _| async move {
            let mut buf = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut buf).await {
                if stream.write_all(&buf[..read]).await.is_err() {
                    break;
                }
            }
        })
        .unwrap();
    let address = handle.local_addr();
    for (connections, size) in [(1, 64), (64, 64), (64, 16 * 1024)] {
        let name = format!("W8 echo, {connections} x {size} B");
        bench(&name, REQUESTS, || {
            let each = REQUESTS / connections;
            let tasks: Vec<_> = (0..connections)
                .map(|_| {
                    clients.spawn(async move {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let (message, mut echo) = (vec![7; size], vec![0; size]);
                        for _ in 0..each {
                            stream.write_all(&message).await.unwrap();
                            stream.read_exact(&mut echo).await.unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                clients.block_on(task).unwrap();
            }
        });
    }
}
