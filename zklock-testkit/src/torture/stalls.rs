//! Faults that nobody made: a machine with other things to do may stand still for longer than a session.

use std::time::Duration;

use tokio::time::Instant;

use super::history::Reach;
use super::holder::SESSION;
use super::record::Record;
use crate::ensemble::Ensemble;

/// Looks for times in which neither this process nor a server did anything, and writes them down as faults, so that a
/// lock that is lost for it has its cause.
pub(super) async fn watch<T>(ensemble: &Ensemble, record: &Record) -> T {
    const EACH: Duration = Duration::from_millis(100);
    /// A few of these between a heartbeat and its answer, and the session is in doubt.
    const LONG: Duration = Duration::from_millis(700);

    let mut member = 0;
    loop {
        let start = Instant::now();
        let undisturbed = !record.is_disturbed();
        tokio::time::sleep(EACH).await;
        member = (member + 1) % ensemble.len();
        if undisturbed {
            let _ = tokio::time::timeout(SESSION, ensemble.member(member).word("ruok")).await;
        }
        let took = start.elapsed();
        if took > EACH + LONG && undisturbed && !record.is_disturbed() {
            let fault = format!("Stall {{ took: {took:?} }}");
            record.was(&fault, took, SESSION, Reach::LOCKS);
        }
    }
}
