//! Where a journal is: in a file, or in memory for a simulation.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{self, FutureExt, LocalBoxFuture};
use loopgroup::blocking;

/// Lines that outlive a node.
pub trait Disk: fmt::Debug {
    /// Returns all lines that were appended.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Appends whole lines; they are safe when the future completes.
    fn append(&self, lines: Vec<u8>) -> LocalBoxFuture<'static, io::Result<()>>;
}

/// A file that survives a kill of the process and a loss of power.
#[derive(Debug)]
pub struct FileDisk(Arc<Mutex<File>>);

impl FileDisk {
    /// Opens or creates the file, and cuts off a last line that a kill left unfinished.
    pub fn open(path: &Path) -> io::Result<FileDisk> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|&byte| byte == b'\n');
        file.set_len(end.map_or(0, |end| end as u64 + 1))?;
        // What the killed process did not sync becomes a promise when it is read; so does the file's name.
        file.sync_all()?;
        if let Some(directory) = std::path::absolute(path)?.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(FileDisk(Arc::new(Mutex::new(file))))
    }
}

impl Disk for FileDisk {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut file = lock(&self.0);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// On another thread: the loop must not wait for a disk.
    fn append(&self, lines: Vec<u8>) -> LocalBoxFuture<'static, io::Result<()>> {
        let file = Arc::clone(&self.0);
        let written = blocking::unblock(move || {
            let mut file = lock(&file);
            file.write_all(&lines)?;
            file.sync_data()
        });
        async { written.await? }.boxed_local()
    }
}

/// Bytes that survive the node and its loop, not the process. A clone is the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Vec<u8>>>);

impl Disk for MemoryDisk {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(lock(&self.0).clone())
    }

    fn append(&self, lines: Vec<u8>) -> LocalBoxFuture<'static, io::Result<()>> {
        lock(&self.0).extend(lines);
        future::ready(Ok(())).boxed_local()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
