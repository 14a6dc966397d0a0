use std::time::{Duration, Instant};

use crate::error::Error;

/// Asks `condition` again and again until it is true; an error once `deadline` has passed.
///
/// This is what to use instead of sleeping and hoping: it is as fast as the event, and it fails with
/// a message that names what never happened. The condition is asked at once, then every 10 ms, and
/// one last time after the deadline. A condition that does not answer is given up at the deadline.
///
/// # Errors
///
/// [`Error::Deadline`], saying `what` was waited for and how long.
///
/// # Cancel safety
///
/// Safe to drop at any point; nothing is kept.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use std::time::Duration;
///
/// let job = tokio::spawn(async { "done" });
/// zklock_testkit::wait_until(Duration::from_secs(5), "the job to end", async || job.is_finished()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn wait_until(
    deadline: Duration,
    what: impl Into<String>,
    mut condition: impl AsyncFnMut() -> bool,
) -> Result<(), Error> {
    const PAUSE: Duration = Duration::from_millis(10);

    let start = Instant::now();
    loop {
        let last = start.elapsed() >= deadline;
        let answer = tokio::time::timeout(deadline.saturating_sub(start.elapsed()).max(PAUSE), condition());
        if answer.await.unwrap_or(false) {
            return Ok(());
        }
        if last {
            return Err(Error::Deadline { waited_for: what.into(), waited: start.elapsed() });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn says_what_never_happened() {
        let error = wait_until(Duration::from_millis(30), "pigs to fly", async || false).await.unwrap_err();
        assert!(error.to_string().contains("pigs to fly"), "{error}");
    }

    #[tokio::test]
    async fn gives_up_on_a_condition_that_does_not_answer() {
        let never = async || std::future::pending().await;
        assert!(wait_until(Duration::from_millis(30), "an answer", never).await.is_err());
    }

    #[tokio::test]
    async fn asks_until_true() {
        let mut asked = 0;
        let third = async || {
            asked += 1;
            asked == 3
        };
        wait_until(Duration::from_secs(5), "the third question", third).await.unwrap();
        assert_eq!(asked, 3);
    }
}
