//! An allocator that counts the bytes in use, for the workloads that measure memory.
//!
//! - It counts only after [`start`]: everything else pays for one branch on a flag that never changes.
//! - Bytes are those asked for; the allocator's own headers and rounding show in the resident size only.
#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static COUNTS: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicI64 = AtomicI64::new(0);

/// Counts from now on.
pub(crate) fn start() {
    COUNTS.store(true, Relaxed);
}

/// Bytes that were asked for since [`start`] and not given back; what is older and was given back counts
/// against them.
pub(crate) fn in_use() -> i64 {
    IN_USE.load(Relaxed)
}

/// The system's allocator, which counts what is asked of it.
#[derive(Debug)]
pub struct Counting;

impl Counting {
    fn add(bytes: i64) {
        if COUNTS.load(Relaxed) {
            IN_USE.fetch_add(bytes, Relaxed);
        }
    }
}

// SAFETY: every call is passed on to `System` with the arguments it came with, and its answer is passed
// back; counting touches atomics only, and neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::add(-(layout.size() as i64));
        // SAFETY: the pointer came from `System`, with this layout, and the caller gives it up.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::add(size as i64 - layout.size() as i64);
        // SAFETY: the pointer came from `System`, with this layout; the caller keeps the rest.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
