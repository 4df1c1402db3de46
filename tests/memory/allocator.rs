//! The allocator of this binary: the system's, with figures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

struct Counting;

/// Bytes of the process that are allocated, now and at the most.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it came; counting touches no memory
// of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        let size = layout.size() as isize;
        let live = LIVE.fetch_add(size, Ordering::SeqCst) + size;
        PEAK.fetch_max(live, Ordering::SeqCst);
        // SAFETY: the caller's promise is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: the caller's promise is System's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has allocated so far.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// Bytes of the process that are allocated now.
#[cfg(target_os = "linux")]
pub(crate) fn live_bytes() -> isize {
    LIVE.load(Ordering::SeqCst)
}

/// The most that was live since the last call, above what is live now.
#[cfg(target_os = "linux")]
pub(crate) fn take_peak() -> isize {
    let live = live_bytes();
    PEAK.swap(live, Ordering::SeqCst) - live
}
