//! How it ended.

use loopgroup::TerminationReport;
use loopgroup::net::ServerReport;

use crate::figures::{counted, time};

/// One line if all is well; otherwise what the server and the loops report.
pub(crate) fn print(server: &ServerReport, groups: &[(&str, TerminationReport)]) {
    let served = server.accepted() == server.completed() && server.accept_errors() == 0;
    if served && groups.iter().all(|(_, report)| report.is_clean()) {
        let connections = counted(server.completed() as usize, "connection");
        let loops = groups.iter().map(|(_, report)| report.loops().len()).sum();
        let took = groups.iter().map(|(_, report)| report.elapsed()).sum();
        let (loops, took) = (counted(loops, "loop"), time(took));
        return println!("clean: {connections} served, {loops} ended in {took}");
    }
    println!("not clean\nserver: {server}");
    for (name, report) in groups {
        println!("{name}: {report}");
    }
}
