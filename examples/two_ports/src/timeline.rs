use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::SystemTime,
};

use serde::Serialize;
use tokio::sync::broadcast;
use tracing::{
    Level, Metadata, Span, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, filter, layer::Context, prelude::*, registry::LookupSpan};

/// What happens under the locks, read off the span `zk_lock` that zklock opens for every call: no handler reports
/// anything.
///
/// The steps of a call become known by the fields of its span, `token` with the grant and `outcome` before the lock is
/// given back, so what is seen here is in the order in which it happened.
#[derive(Clone)]
pub(crate) struct Timeline(Arc<Shared>);

struct Shared {
    next_call: AtomicU64,
    told: mpsc::Sender<Event>,
    past: Mutex<VecDeque<Event>>,
    live: broadcast::Sender<Event>,
}

/// One step of one call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    /// In milliseconds since 1970.
    pub(crate) at: f64,
    pub(crate) port: u16,
    pub(crate) call: u64,
    pub(crate) function: String,
    pub(crate) path: String,
    pub(crate) fair: bool,
    pub(crate) step: Step,
    /// With the grant, its fencing token; with the end, how the call ended.
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// It stands in the queue.
    Waits,
    /// It has the lock, and its body runs.
    Holds,
    /// Past its limit: the reaper is stopping it.
    Stopping,
    /// It does not yield: its transaction is ended from outside, and the lock is taken from it.
    Forced,
    /// Committed, rolled back, or never granted.
    Ended,
}

/// What is known of a call while its span is open.
struct Call(Event);

/// The port that a request came to.
struct Port(u16);

const REMEMBERED: usize = 500;

impl Timeline {
    /// Begins to listen to the spans of the whole process.
    pub(crate) fn start() -> Self {
        let (live, _) = broadcast::channel(1024);
        let (told, telling) = mpsc::channel();
        let shared = Shared { next_call: AtomicU64::new(1), told, past: Mutex::default(), live };
        let timeline = Self(Arc::new(shared));
        // From a thread of its own: a body that blocks its thread would also block the watchers that it has just woken.
        thread::spawn({
            let timeline = timeline.clone();
            move || telling.into_iter().for_each(|event| timeline.pass_on(event))
        });
        let wanted = filter::filter_fn(|metadata: &Metadata<'_>| {
            metadata.target() == "zklock" || metadata.target() == module_path!()
        });
        tracing_subscriber::registry().with(timeline.clone().with_filter(wanted)).init();
        timeline
    }

    /// The span that a request to `port` runs in.
    pub(crate) fn request(port: u16) -> Span {
        tracing::info_span!("request", port)
    }

    /// What has happened, and what will.
    pub(crate) fn watch(&self) -> (VecDeque<Event>, broadcast::Receiver<Event>) {
        let past = self.past();
        (past.clone(), self.0.live.subscribe())
    }

    fn tell(&self, call: &Event, step: Step, detail: &str) {
        let event = Event { at: now(), step, detail: detail.to_owned(), ..call.clone() };
        // The thread ends with the process.
        let _ = self.0.told.send(event);
    }

    fn pass_on(&self, event: Event) {
        let mut past = self.past();
        if past.len() == REMEMBERED {
            past.pop_front();
        }
        past.push_back(event.clone());
        // Nobody may be watching.
        let _ = self.0.live.send(event);
    }

    fn past(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.0.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reaper works outside of the span: the token says whom it means.
    fn reaped(&self, token: &str, step: Step) {
        let call =
            self.past().iter().find(|event| event.step == Step::Holds && event.detail == token).cloned();
        if let Some(call) = call {
            self.tell(&call, step, "");
        }
    }
}

/// In milliseconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Timeline {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let fields = Fields::of(|visit| attributes.record(visit));
        if let Ok(port) = fields.get("port").parse() {
            span.extensions_mut().insert(Port(port));
        }
        let port = span.scope().find_map(|outer| outer.extensions().get::<Port>().map(|&Port(port)| port));
        if let (Some(port), "zk_lock") = (port, span.name()) {
            let function = fields.get("function").rsplit("::").next().unwrap_or_default();
            let call = Event {
                at: 0.0,
                port,
                call: self.0.next_call.fetch_add(1, Ordering::Relaxed),
                function: function.to_owned(),
                path: fields.get("path").to_owned(),
                fair: fields.get("kind") == "fair",
                step: Step::Waits,
                detail: String::new(),
            };
            self.tell(&call, Step::Waits, "");
            span.extensions_mut().insert(Call(call));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(Call(call)) = extensions.get_mut::<Call>() else { return };
        let fields = Fields::of(|visit| values.record(visit));
        for (field, step) in [("token", Step::Holds), ("outcome", Step::Ended)] {
            let value = fields.get(field);
            if !value.is_empty() && call.step != Step::Ended {
                call.step = step;
                self.tell(call, step, value);
            }
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let fields = Fields::of(|visit| event.record(visit));
        match *event.metadata().level() {
            Level::WARN => self.reaped(fields.get("token"), Step::Stopping),
            Level::ERROR => self.reaped(fields.get("token"), Step::Forced),
            _ => {}
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(Call(call)) = span.extensions().get::<Call>()
            && call.step != Step::Ended
        {
            self.tell(call, Step::Ended, "cancelled");
        }
    }
}

/// The fields of a span or an event, as text.
#[derive(Default)]
struct Fields(HashMap<&'static str, String>);

impl Fields {
    fn of(record: impl FnOnce(&mut Self)) -> Self {
        let mut fields = Self::default();
        record(&mut fields);
        fields
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
