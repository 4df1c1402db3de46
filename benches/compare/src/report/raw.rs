//! All figures of all rounds, as JSON.

use serde_json::{Value, json};

use crate::options::Options;
use crate::parent::{Cell, Conditions};
use crate::sys;

pub(crate) fn text(options: &Options, cells: &[Cell], conditions: &Conditions) -> String {
    let cells: Vec<Value> = cells
        .iter()
        .map(|cell| {
            let parts = cell.disturbances.iter();
            let disturbances: Vec<_> = parts.map(|it| json!([it.others, it.stolen])).collect();
            json!({
                "workload": cell.case.workload,
                "case": cell.case.figures[0].title,
                "runtime": cell.runtime.name(),
                "rounds": cell.rounds,
                "others_and_stolen": disturbances,
                "repeated": cell.repeated,
                "note": cell.note,
                "cannot": cell.cannot,
            })
        })
        .collect();
    let all = json!({
        "machine": sys::machine(),
        "versions": sys::versions(),
        "scale": options.scale,
        "rounds": options.rounds,
        "awake": options.awake,
        "priority": conditions.priority,
        "cells": cells,
    });
    let mut text = serde_json::to_string_pretty(&all).expect("it is made of strings and numbers");
    text.push('\n');
    text
}
