use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use axum::{body::Body, http::Request};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::{sync::broadcast, task::JoinHandle, time::timeout};

use crate::timeline::{Event, Step, Timeline, now};

/// Plays the story against both ports over HTTP, prints what the timeline shows, and checks it.
pub(crate) async fn drive(host: &str, ports: [u16; 2], timeline: &Timeline) -> Result<ExitCode, String> {
    let (_, events) = timeline.watch();
    let mut drive = Drive {
        base: format!("http://{host}"),
        ports,
        client: Client::builder(TokioExecutor::new()).build_http(),
        events,
        seen: Vec::new(),
        origin: None,
        wrong: 0,
    };
    drive.story().await?;
    if drive.wrong == 0 {
        say(format_args!("\nAll as promised."));
        Ok(ExitCode::SUCCESS)
    } else {
        say(format_args!("\n{} not as promised.", drive.wrong));
        Ok(ExitCode::FAILURE)
    }
}

struct Drive {
    base: String,
    ports: [u16; 2],
    client: Client<HttpConnector, Body>,
    events: broadcast::Receiver<Event>,
    /// The events of this scene.
    seen: Vec<Event>,
    /// When the first event was.
    origin: Option<f64>,
    /// How many facts were not.
    wrong: usize,
}

/// Status and body.
type Answer = (u16, Value);
type Reply = JoinHandle<Result<Answer, String>>;

/// No step of the story takes as long on any machine.
const AT_MOST: Duration = Duration::from_secs(30);

impl Drive {
    async fn story(&mut self) -> Result<(), String> {
        let [left, right] = self.ports;
        say(format_args!("{:>9}   {left:<36}{right}", ""));

        self.scene(format_args!(
            "{right} pays. {left} wants to pay the same order, and waits for the commit"
        ));
        let before = self.paid(left, 42).await?;
        let first = self.post(right, "/orders/42/pay?ms=800");
        self.until(right, Step::Holds).await?;
        let second = self.post(left, "/orders/42/pay?ms=200");
        let (first, second) = (self.answer(right, first).await?, self.answer(left, second).await?);
        self.fact("both have paid", [first.0, second.0] == [200, 200]);
        self.fact(
            format_args!("{left} had the lock only after {right} had committed"),
            self.in_order(&[
                (right, Step::Holds),
                (left, Step::Waits),
                (right, Step::Ended),
                (left, Step::Holds),
            ]),
        );
        self.owes(42, before + 200).await?;

        self.scene(format_args!("{right} hangs: it is stopped at its limit of 2 s, and {left} goes on"));
        let first = self.post(right, "/orders/42/hangs");
        self.until(right, Step::Holds).await?;
        let second = self.post(left, "/orders/42/pay?ms=200");
        let (first, second) = (self.answer(right, first).await?, self.answer(left, second).await?);
        self.fact("the one that hung got 504, the other has paid", [first.0, second.0] == [504, 200]);
        self.fact(
            format_args!("{left} had the lock only after {right} was rolled back"),
            self.in_order(&[(right, Step::Stopping), (right, Step::Ended), (left, Step::Holds)]),
        );
        self.owes(42, before + 300).await?;

        self.scene(format_args!("{left} pays half, then its card is declined"));
        let reply = self.post(left, "/orders/42/declined?ms=200");
        let reply = self.answer(left, reply).await?;
        self.fact("it got 402", reply.0 == 402);
        self.owes(42, before + 300).await?;

        self.scene(format_args!("The same without a transaction: the lock is given back, the half stays"));
        let reply = self.post(left, "/orders/42/declined-bare?ms=200");
        let reply = self.answer(left, reply).await?;
        self.fact("it got 402", reply.0 == 402);
        self.owes(42, before + 350).await?;

        self.scene(format_args!("{left} blocks its thread and cannot be stopped: the lock is taken from it"));
        let first = self.post(left, "/orders/42/blocks");
        self.until(left, Step::Holds).await?;
        let second = self.post(right, "/orders/42/pay?ms=200");
        let (first, second) = (self.answer(left, first).await?, self.answer(right, second).await?);
        self.fact("the one that blocked got 504, the other has paid", [first.0, second.0] == [504, 200]);
        self.fact(
            format_args!("{right} had the lock after it was taken from {left}, and before {left} woke up"),
            self.in_order(&[(left, Step::Forced), (right, Step::Holds), (left, Step::Ended)]),
        );
        self.owes(42, before + 450).await?;

        self.scene(format_args!("{left} pays; {right} does not want to wait"));
        let first = self.post(left, "/orders/42/pay?ms=500");
        self.until(left, Step::Holds).await?;
        let second = self.post(right, "/orders/42/pay-or-leave");
        let (second, first) = (self.answer(right, second).await?, self.answer(left, first).await?);
        self.fact("the one got 423 at once, the other has paid", [second.0, first.0] == [423, 200]);
        self.owes(42, before + 550).await?;

        self.scene(format_args!("Unfair: both pay order 7, in whatever order"));
        let before = self.paid(left, 7).await?;
        let first = self.post(left, "/orders/7/pay-unfair?ms=300");
        let second = self.post(right, "/orders/7/pay-unfair?ms=300");
        let (first, second) = (self.answer(left, first).await?, self.answer(right, second).await?);
        self.fact("both have paid", [first.0, second.0] == [200, 200]);
        let one_by_one = |one, other| {
            self.in_order(&[
                (one, Step::Holds),
                (one, Step::Ended),
                (other, Step::Holds),
                (other, Step::Ended),
            ])
        };
        self.fact("one after the other", one_by_one(left, right) || one_by_one(right, left));
        self.owes(7, before + 200).await
    }

    fn scene(&mut self, title: impl Display) {
        self.seen.clear();
        say(format_args!("\n{title}"));
    }

    fn fact(&mut self, fact: impl Display, holds: bool) {
        self.wrong += usize::from(!holds);
        say(format_args!("{:>9}   {fact}", if holds { "ok" } else { "WRONG" }));
    }

    async fn owes(&mut self, order: i64, expected: i64) -> Result<(), String> {
        let [left, right] = self.ports;
        let (one, other) = (self.paid(left, order).await?, self.paid(right, order).await?);
        let fact = format!("order {order} shows {one} paid (expected {expected})");
        self.fact(fact, [one, other] == [expected; 2]);
        Ok(())
    }

    /// Whether these steps were taken, in this order.
    fn in_order(&self, steps: &[(u16, Step)]) -> bool {
        let mut events = self.seen.iter();
        steps.iter().all(|&step| events.any(|event| (event.port, event.step) == step))
    }

    /// Waits for a step of this scene.
    async fn until(&mut self, port: u16, step: Step) -> Result<(), String> {
        while !self.in_order(&[(port, step)]) {
            let event = timeout(AT_MOST, self.events.recv()).await;
            let event = event.map_err(|_| format!("{port} did not come to {step:?} within {AT_MOST:?}"))?;
            self.show(event);
        }
        Ok(())
    }

    /// Waits for an answer, and shows what happens meanwhile.
    async fn answer(&mut self, port: u16, mut reply: Reply) -> Result<Answer, String> {
        let deadline = tokio::time::sleep(AT_MOST);
        tokio::pin!(deadline);
        let answer = loop {
            tokio::select! {
                biased;
                event = self.events.recv() => self.show(event),
                answer = &mut reply => break answer.map_err(|error| error.to_string())??,
                () = &mut deadline => return Err(format!("{port} did not answer within {AT_MOST:?}")),
            }
        };
        // The answer may overtake what the timeline tells of it.
        self.until(port, Step::Ended).await?;
        let (status, body) = &answer;
        let what = match (body["paid"].as_i64(), body["error"].as_str()) {
            (Some(paid), _) => format!("{status}: {paid} paid"),
            (None, error) => format!("{status}: {}", error.unwrap_or_default()),
        };
        self.line(now(), port, &format!("<- {what}"));
        Ok(answer)
    }

    fn show(&mut self, event: Result<Event, broadcast::error::RecvError>) {
        // The channel is wider than the whole story.
        let Ok(event) = event else { return };
        let since = |step| {
            let earlier = self.seen.iter().find(|seen| seen.call == event.call && seen.step == step);
            earlier.map_or(0.0, |earlier| (event.at - earlier.at) / 1e3)
        };
        let what = match event.step {
            Step::Waits => format!("{} wants {}", event.function, event.path),
            Step::Holds => match since(Step::Waits) {
                ..0.005 => "holds the lock".to_owned(),
                waited => format!("holds the lock, waited {waited:.2} s"),
            },
            Step::Stopping => format!("past its limit after {:.2} s", since(Step::Holds)),
            Step::Forced => format!("does not yield: forced after {:.2} s", since(Step::Holds)),
            Step::Ended => event.detail.clone(),
        };
        self.line(event.at, event.port, &what);
        self.seen.push(event);
    }

    fn line(&mut self, at: f64, port: u16, what: &str) {
        let origin = *self.origin.get_or_insert(at);
        let indent = if port == self.ports[0] { 0 } else { 36 };
        say(format_args!("{:>7.3} s   {:indent$}{what}", (at - origin) / 1e3, ""));
    }

    async fn paid(&self, port: u16, order: i64) -> Result<i64, String> {
        let (_, body) = self
            .send("GET", port, &format!("/orders/{order}"))
            .await
            .map_err(|error| error.to_string())??;
        body["paid"].as_i64().ok_or_else(|| format!("{port} does not know order {order}: {body}"))
    }

    fn post(&self, port: u16, path: &str) -> Reply {
        self.send("POST", port, path)
    }

    fn send(&self, method: &str, port: u16, path: &str) -> Reply {
        let url = format!("{}:{port}{path}", self.base);
        let request = Request::builder().method(method).uri(&url).body(Body::empty());
        let client = self.client.clone();
        tokio::spawn(async move {
            let wrong = |error: &dyn Display| format!("{url}: {error}");
            let response = client
                .request(request.map_err(|error| wrong(&error))?)
                .await
                .map_err(|error| wrong(&error))?;
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(Body::new(response.into_body()), 1 << 20).await;
            let body = serde_json::from_slice(&body.map_err(|error| wrong(&error))?).unwrap_or_default();
            Ok((status, body))
        })
    }
}

/// A reader who has gone, such as `head`, is no fault.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
