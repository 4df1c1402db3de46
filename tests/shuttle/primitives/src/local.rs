//! Thread-locals of the model's threads, with the short cuts that the system's have.

use std::cell::Cell;
use std::marker::PhantomData;

use shuttle::thread::AccessError;

/// A thread-local.
#[derive(Debug)]
pub struct LocalKey<T: 'static>(shuttle::thread::LocalKey<T>);

impl<T: 'static> LocalKey<T> {
    pub const fn new(init: fn() -> T) -> LocalKey<T> {
        LocalKey(shuttle::thread::LocalKey {
            init,
            _p: PhantomData,
        })
    }

    pub fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> R {
        self.0.with(look)
    }

    pub fn try_with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        self.0.try_with(look)
    }
}

/// The system never destroys a cell without a destructor; here one that is gone reads as it began.
impl<T: Copy + 'static> LocalKey<Cell<T>> {
    pub fn set(&'static self, value: T) {
        let _ = self.try_with(|cell| cell.set(value));
    }

    pub fn get(&'static self) -> T {
        self.try_with(Cell::get)
            .unwrap_or_else(|_| (self.0.init)().get())
    }
}

#[macro_export]
macro_rules! thread_local {
    ($($(#[$attr:meta])* static $name:ident: $type:ty = $init:expr;)*) => {
        $(
            $(#[$attr])*
            static $name: $crate::LocalKey<$type> = $crate::LocalKey::new(|| $init);
        )*
    };
}
