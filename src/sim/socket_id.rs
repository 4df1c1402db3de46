//! The id of a socket of a simulated network.

/// Names one socket for ever: an id is not given out again.
///
/// Ids are ordered by the time of their creation.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub(crate) struct SocketId {
    /// The number of sockets that the network had made before.
    pub(super) generation: u64,
    /// The place in the table.
    pub(super) index: usize,
}

impl SocketId {
    /// The number by which a reactor knows the socket: of all that a network makes, no other has it.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.generation).expect("a simulation makes fewer than four billion sockets")
    }
}
