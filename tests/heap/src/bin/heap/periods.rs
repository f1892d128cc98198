//! Misses of fields through time: when advice comes into force, and when it is taken back.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use anyhow::{Context, Result};
use heap::advice::{Action, Intervention, Log};
use heap::workload::classes::Text;
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector};

use crate::ModelArgs;
use crate::measure::{Plan, minimum, rules};
use crate::run::said;
use crate::tables::{heap_bytes, label, print, table};

/// `heap follow`.
pub(crate) fn follow(workload: Workload, scale: u32, model: &ModelArgs, iterations: u32) -> Result<()> {
    label(model);
    let limit = heap_bytes(minimum(workload, scale, Collector::MarkSweep)?, 4.0);
    let log = |hot_samples: Option<f64>| -> Result<Rc<RefCell<Log>>> {
        let mut rules = rules(model);
        rules.advice.hot_samples = hot_samples.unwrap_or(rules.advice.hot_samples);
        let plan = Plan {
            iterations,
            rules: Some(rules),
            ..Plan::new(workload, scale, Collector::MarkSweep, limit)
        };
        let done = plan.run(model)?.context("a workload runs in four times its smallest heap")?;
        done.log.context("there was an advisor")
    };
    // No field ever gets so hot.
    let (advised, base) = (log(None)?, log(Some(f64::INFINITY))?);
    let (advised, base) = (advised.borrow(), base.borrow());
    advised.decisions.iter().for_each(|decision| println!("{}", said(decision)));
    let fields: BTreeSet<_> = advised.decisions.iter().map(|decision| decision.field).collect();
    for field in fields {
        let (Some(with), Some(without)) = (advised.series.get(&field), base.series.get(&field)) else {
            continue;
        };
        println!("\nSampled misses of {}, periods of {} accesses:", field.name(TYPES), model.period);
        let mut table = table(&["period", "without advice", "with advice", "sum without", "sum with"]);
        let sums = without.cumulative().into_iter().zip(with.cumulative());
        for (period, ((one, other), sums)) in without.misses.iter().zip(&with.misses).zip(sums).enumerate() {
            let numbers = [*one, *other, sums.0, sums.1].map(|number| format!("{number:.0}"));
            table.add_row([vec![period.to_string()], numbers.to_vec()].concat());
        }
        print(&table);
    }
    Ok(())
}

/// Periods before the bad layout is given.
const GOOD_PERIODS: usize = 8;
/// The empty bytes of the bad layout: a cache line of the thesis's processor.
const GAP_BYTES: u32 = 128;

/// `heap reversal`.
pub(crate) fn reversal(model: &ModelArgs, iterations: u32, scale: u32) -> Result<()> {
    label(model);
    let limit = heap_bytes(minimum(Workload::Db, scale, Collector::MarkSweep)?, 4.0);
    let field = Text::value().id();
    let mut rules = rules(model);
    rules.intervention = Some(Intervention { after_periods: GOOD_PERIODS, field, gap: GAP_BYTES });
    let plan = Plan {
        iterations,
        advice: Advice::none().with(field, 0),
        rules: Some(rules),
        ..Plan::new(Workload::Db, scale, Collector::MarkSweep, limit)
    };
    let done = plan.run(model)?.context("db runs in four times its smallest heap")?;
    let log = done.log.context("there was an advisor")?;
    let log = log.borrow();
    let series =
        log.series.get(&field).context("the field had no misses; take more samples by --interval")?;
    println!("Sampled misses of {}, periods of {} accesses:", field.name(TYPES), model.period);
    let mut table = table(&["period", "misses", "mean of three"]);
    for (period, (misses, mean)) in series.misses.iter().zip(series.moving_average()).enumerate() {
        table.add_row([period.to_string(), format!("{misses:.0}"), format!("{mean:.0}")]);
    }
    print(&table);
    log.decisions.iter().for_each(|decision| println!("{}", said(decision)));
    let period = |wanted: fn(&Action) -> bool| {
        log.decisions.iter().find(|one| one.field == field && wanted(&one.action)).map(|one| one.period)
    };
    let bad = period(|action| matches!(action, Action::Intervened(_)));
    let back = period(|action| matches!(action, Action::Reverted(_) | Action::NotShown(_)));
    match (bad, back) {
        (Some(bad), Some(back)) => println!("The bad layout was taken back after {} periods.", back - bad),
        _ => println!("The bad layout was not taken back."),
    }
    Ok(())
}
