//! What is wrong with a primary, so that a test has something to find.

use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bug {
    None,
    /// A write is acknowledged and read before the backups have it.
    AckBeforeReplication,
    /// A backup whose ack does not arrive counts as one that has the write.
    LostAck,
    /// A restarted primary answers reads before it has recovered: with nothing, though something was written.
    /// It takes a restart and no partition; there is one primary at most, so that none can be an old one.
    /// (The stale read of a leader that was cut off, and does not know of the next one, is `ReadsAlone` in
    /// `examples/openraft`.)
    StaleRead,
    /// A restarted primary has forgotten the numbers of requests: a retry of what was applied before is
    /// applied again, and undoes what others have written since.
    DoubleApply,
}

impl Bug {
    pub(crate) const ALL: [Bug; 5] = [
        Bug::None,
        Bug::AckBeforeReplication,
        Bug::LostAck,
        Bug::StaleRead,
        Bug::DoubleApply,
    ];
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(name: &str) -> Result<Bug, String> {
        let mut all = Bug::ALL.into_iter();
        all.find(|bug| format!("{bug:?}") == name)
            .ok_or_else(|| format!("{name} is none of {:?}", Bug::ALL))
    }
}
