//! The demo as its users start it, with nothing installed.
#![allow(missing_docs)]

mod process;

use process::{Demo, demo, ends, free_port, get, post, send, until};
use rustix::process::Signal;
use tokio::net::TcpListener;

#[tokio::test]
async fn the_story_plays_itself() {
    let (code, told, complaints) = ends(demo(["--port", "0,0", "--drive"])).await;
    assert_eq!((code, &*complaints), (Some(0), ""), "{told}");
    assert!(told.ends_with("All as promised.\n"), "{told}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = taken.local_addr().unwrap().port();
    let (code, told, complaint) = ends(demo(["--port", &format!("0,{taken}"), "--drive"])).await;
    assert_eq!((code, &*told), (Some(2), ""));
    assert!(complaint.starts_with(&format!("two_ports: port {taken} is taken")), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[tokio::test]
async fn what_cannot_be_reached_is_said_in_one_line() {
    let nobody = free_port();
    for (option, url, says) in [
        (
            "--database",
            format!("postgres://me:secret@127.0.0.1:{nobody}/shop"),
            "no database at postgres://me@127",
        ),
        ("--database", format!("mysql://me:secret@127.0.0.1:{nobody}/shop"), "no database at mysql://me@127"),
        ("--database", "sqlite:/no/such/folder/orders.db".into(), "no database at sqlite:/no/such/folder"),
        ("--database", "orders.db".into(), "\"orders.db\" is not the address of a database"),
        ("--url", format!("zk://127.0.0.1:{nobody}"), "no answer from 127.0.0.1"),
        ("--url", "nowhere".into(), "\"nowhere\" is not an address of locks"),
    ] {
        let (code, told, complaint) = ends(demo(["--port", "0", option, &url])).await;
        assert_eq!((code, &*told), (Some(2), ""), "{url}: {complaint}");
        assert!(complaint.starts_with(&format!("two_ports: {says}")), "{url}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{url}: {complaint}");
        assert!(!complaint.contains("secret"), "{complaint}");
    }
}

#[tokio::test]
async fn the_page_asks_nobody_else() {
    let mut both = Demo::start(2, ["--port", "0,0"]).await;
    let (status, page) = get(both.ports[0], "/").await;
    assert_eq!(status, 200);
    assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("http:"), "{page}");
    assert!(!page.contains("https:"), "{page}");
    let (_, source) = get(both.ports[1], "/orders.rs").await;
    assert!(
        source.contains("#[zk_lock(path = \"/orders/{id}\", fair = true, timeout = \"5s\", transactional)]")
    );
    assert_eq!(both.end(Signal::TERM).await, Some(0));
}

#[tokio::test]
async fn an_order_can_be_paid_and_read_on_either_port() {
    let mut both = Demo::start(2, ["--port", "0,0"]).await;
    let [left, right] = both.ports[..] else { panic!("two ports, not {:?}", both.ports) };
    assert_eq!(post(right, "/orders/42/pay").await, (200, r#"{"id":42,"paid":100}"#.into()));
    assert_eq!(post(left, "/orders/7/pay-bare-unfair").await, (200, r#"{"id":7,"paid":100}"#.into()));
    assert_eq!(get(left, "/orders").await, (200, r#"[{"id":7,"paid":100},{"id":42,"paid":100}]"#.into()));
    let (status, answer) = post(right, "/orders/1/pay").await;
    assert_eq!(status, 404);
    assert!(answer.starts_with(r#"{"error":"no_such_order","message":"#), "{answer}");
    assert_eq!(both.end(Signal::INT).await, Some(0));
}

/// Whatever is under way: who holds is stopped, who waits is sent away.
#[tokio::test]
async fn it_ends_when_asked_to() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut both = Demo::start(2, ["--port", "0,0"]).await;
        let [left, right] = both.ports[..] else { panic!("two ports, not {:?}", both.ports) };
        let holder = tokio::spawn(post(left, "/orders/42/pay?ms=60000"));
        until(left, "holds").await;
        let waiter = tokio::spawn(post(right, "/orders/42/pay"));
        until(right, "waits").await;
        assert_eq!(both.end(signal).await, Some(0));
        for (call, error) in [(holder, "lost"), (waiter, "closed")] {
            let (status, answer) = call.await.unwrap();
            assert_eq!(status, 503, "{answer}");
            assert!(answer.starts_with(&format!(r#"{{"error":"{error}""#)), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_body_that_blocks_its_thread_does_not_keep_the_process() {
    let mut one = Demo::start(1, ["--port", "0"]).await;
    let port = one.ports[0];
    let blocked = tokio::spawn(send("POST", port, "/orders/42/blocks"));
    until(port, "holds").await;
    assert_eq!(one.end(Signal::TERM).await, Some(0));
    blocked.abort();
}
