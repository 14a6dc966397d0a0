use std::{collections::VecDeque, convert::Infallible, io};

use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderValue, header::ACCESS_CONTROL_ALLOW_ORIGIN},
    middleware::{self, Next},
    response::{Html, Response, Sse, sse},
    routing::get,
};
use futures_util::{Stream, stream};
use serde::Serialize;
use tokio::{
    net::TcpListener,
    sync::{broadcast, watch},
};
use tracing::Instrument;

use crate::timeline::{Event, Timeline, now};

/// One of the two ports, bound but not serving yet.
pub(crate) struct Server {
    pub(crate) port: u16,
    listener: TcpListener,
}

/// What the page is told first.
#[derive(Clone, Serialize)]
pub(crate) struct About {
    pub(crate) port: u16,
    /// The other servers: a URL, or `:8081` for a port of the host that the page came from.
    pub(crate) peers: Vec<String>,
    pub(crate) locks: String,
    pub(crate) database: String,
    /// What time it is here, in milliseconds since 1970.
    pub(crate) now: f64,
}

impl Server {
    pub(crate) async fn bind(host: &str, port: u16) -> Result<Self, String> {
        let taken = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("port {port} is taken: stop what listens there, or choose another with --port")
            }
            _ => format!("cannot listen on {host}:{port}: {error}"),
        };
        let listener = TcpListener::bind((host, port)).await.map_err(taken)?;
        let port = listener.local_addr().map_err(taken)?.port();
        Ok(Self { port, listener })
    }

    /// Serves until `stop` is set and what is under way has been answered.
    pub(crate) async fn serve(
        self,
        orders: Router,
        about: About,
        timeline: Timeline,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let port = self.port;
        let router = Router::new()
            .route("/", get(Html(include_str!("page.html"))))
            .route("/orders.rs", get(include_str!("orders.rs")))
            .route("/events", get(events))
            .merge(orders)
            .layer(Extension((about, timeline, stop.clone())))
            .layer(middleware::from_fn(move |request: Request, next: Next| {
                next.run(request).instrument(Timeline::request(port))
            }))
            .layer(middleware::map_response(async |mut response: Response| {
                // The page of one port shows the other, too.
                response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
                response
            }));
        axum::serve(self.listener, router).with_graceful_shutdown(stopped(stop)).await
    }
}

/// Resolves when `stop` is set.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error says that nobody can set it any more.
    let _ = stop.wait_for(|&stop| stop).await;
}

type State = (About, Timeline, watch::Receiver<bool>);

/// The timeline of one port, as server-sent events.
async fn events(
    Extension((about, timeline, stop)): Extension<State>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let (past, live) = timeline.watch();
    let about = About { now: now(), ..about };
    let hello = sse::Event::default().event("hello").json_data(&about);
    let feed = Feed { port: about.port, past, live, stop };
    let steps = stream::unfold(feed, async |mut feed| {
        let event = feed.next().await?;
        Some((sse::Event::default().event("step").json_data(&event), feed))
    });
    let all = stream::StreamExt::chain(stream::iter([hello]), steps);
    // What cannot be written as JSON is left out; of these types, all can.
    let all = stream::StreamExt::filter_map(all, async |event| event.ok().map(Ok));
    Sse::new(all).keep_alive(sse::KeepAlive::default())
}

struct Feed {
    port: u16,
    past: VecDeque<Event>,
    live: broadcast::Receiver<Event>,
    stop: watch::Receiver<bool>,
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = if let Some(event) = self.past.pop_front() {
                event
            } else {
                tokio::select! {
                    event = self.live.recv() => match event {
                        Ok(event) => event,
                        Err(broadcast::error::RecvError::Lagged(_)) => continue,
                        Err(broadcast::error::RecvError::Closed) => return None,
                    },
                    () = stopped(self.stop.clone()) => return None,
                }
            };
            if event.port == self.port {
                return Some(event);
            }
        }
    }
}
