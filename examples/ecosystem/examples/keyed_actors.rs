//! Actors by key: each account lives on the loop its name belongs to, and needs no lock.
//!
//!     cargo run --release --example keyed_actors
//!
//! Prints `100 transfers, 10 accounts on 2 loops, 1000 in all`: whatever order the transfers come
//! in, nothing is lost, as each account does one thing at a time.
//!
//! An actor is a task that owns its state and a channel's end. The channel is flume's, and could be
//! anybody's: whoever sends, the actor goes on at home.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use flume::{Receiver, Sender};
use loopgroup::{EventLoop, EventLoopGroup};

enum Command {
    /// Takes so much, if there is so much.
    Withdraw(u32, Sender<bool>),
    Deposit(u32),
    /// Says how much there is, and on which loop.
    Balance(Sender<(u32, usize)>),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let group = EventLoopGroup::new(2)?;
    let accounts: Vec<Sender<Command>> = (0..10)
        .map(|number| {
            let (sender, commands) = flume::unbounded();
            let name = format!("account {number}");
            // Made on its loop, the actor may hold what is not Send.
            let home = group.loop_for(&name);
            drop(home.spawn_with(move || account(Rc::new(name), commands)));
            sender
        })
        .collect();

    let transfers: Vec<_> = (0..100)
        .map(|number: usize| {
            let (from, to) = (
                accounts[number % 10].clone(),
                accounts[number * 7 % 10].clone(),
            );
            group.spawn(transfer(from, to, number as u32))
        })
        .collect();
    let count = transfers.len();
    for transfer in transfers {
        group.block_on(transfer)??;
    }

    let (mut sum, mut homes) = (0, HashSet::new());
    for account in &accounts {
        let (reply, answer) = flume::bounded(1);
        account.send(Command::Balance(reply))?;
        let (balance, home) = group.block_on(answer.recv_async())?;
        sum += balance;
        homes.insert(home);
    }
    let (accounts_count, loops) = (accounts.len(), homes.len());
    println!("{count} transfers, {accounts_count} accounts on {loops} loops, {sum} in all");
    drop(accounts); // the actors end with their senders
    println!("{}", group.drain(Duration::from_secs(5)).wait());
    Ok(())
}

async fn account(name: Rc<String>, commands: Receiver<Command>) {
    let home = EventLoop::current().expect("a task has a loop");
    let mut balance = 100;
    while let Ok(command) = commands.recv_async().await {
        assert!(home.in_event_loop(), "{name} is at home");
        // A reply that nobody waits for is none of our business.
        match command {
            Command::Withdraw(amount, reply) => {
                let enough = amount <= balance;
                balance -= if enough { amount } else { 0 };
                let _ = reply.send(enough);
            }
            Command::Deposit(amount) => balance += amount,
            Command::Balance(reply) => {
                let _ = reply.send((balance, home.index()));
            }
        }
    }
}

async fn transfer(
    from: Sender<Command>,
    to: Sender<Command>,
    amount: u32,
) -> Result<(), flume::RecvError> {
    let (reply, answer) = flume::bounded(1);
    let _ = from.send(Command::Withdraw(amount, reply));
    if answer.recv_async().await? {
        let _ = to.send(Command::Deposit(amount));
    }
    Ok(())
}
