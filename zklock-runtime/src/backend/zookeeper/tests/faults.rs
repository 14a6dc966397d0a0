//! A network that fails, down to a single reply.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Mutex, watch},
};
use zklock_testkit::{Chroot, Direction, Op, Proxy, Request as Any, Rule, ZooKeeper as Server};
use zookeeper_client as zk;

use super::support::{
    Peer, SESSION, SOON, chroot, count, fair, is_queued, plain, release, request, until, within,
};
use crate::{
    backend::zookeeper::{Limit, ensemble, session::Session},
    error::{Error, LostReason},
    hold::{Hold, State},
    token::FencingToken,
};

/// A peer behind a proxy, and one with a line of its own.
struct Scene {
    server: &'static Server,
    chroot: Chroot,
    proxy: Proxy,
    peer: Peer,
    other: Peer,
}

impl Scene {
    async fn new(name: &str) -> Self {
        Self::with(name, Limit::default()).await
    }

    async fn with(name: &str, share: Limit) -> Self {
        let (server, chroot) = chroot(name).await;
        let proxy = Proxy::start(server.connect_string()).await.unwrap();
        let peer = Peer::sharing(&chroot.via(proxy.addr()).url(), "peer", share).await;
        let other = Peer::sharing(&chroot.url(), "other", share).await;
        Self { server, chroot, proxy, peer, other }
    }

    async fn count(&self, path: &str) -> usize {
        count(self.server, &self.chroot, path).await
    }

    async fn exists(&self, path: &str) -> bool {
        self.server.node(&format!("{}{path}", self.chroot.path())).await.unwrap().is_some()
    }

    /// The token is that of the one node that is there.
    async fn assert_one_node(&self, path: &str, hold: &Hold) {
        let path = format!("{}{path}", self.chroot.path());
        let mut names = self.server.children(&path).await.unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
        let node = self.server.node(&format!("{path}/{}", names.remove(0))).await.unwrap().unwrap();
        assert!(hold.token().to_string().starts_with(&format!("{:016x}", node.czxid)));
        assert_eq!(node.ephemeral_owner, self.peer.session().unwrap().id());
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Done, but not answered.
    LostReply,
    /// Not done.
    LostRequest,
}

const FAULTS: [Fault; 2] = [Fault::LostReply, Fault::LostRequest];

impl Fault {
    fn strike(self, proxy: &Proxy, request: impl Into<Any>, nth: u64) -> Rule {
        match self {
            Self::LostReply => proxy.swallow_reply(request, nth),
            Self::LostRequest => proxy.drop_request(request, nth),
        }
    }
}

#[tokio::test]
async fn a_lost_create_makes_one_node_and_no_other() {
    let scene = Scene::new("lostcreate").await;
    for (i, fault) in FAULTS.into_iter().enumerate() {
        let path = format!("/{i}/a");
        // With its directory, whose parents have to be made first.
        let rule = fault.strike(&scene.proxy, Op::Multi, 2);
        let hold = scene.peer.lock(&path).await;
        assert!(rule.has_fired());
        scene.assert_one_node(&path, &hold).await;
        release(hold).await;
        assert!(!scene.exists(&path).await, "the directory was made here and goes with its last contender");
        // In a directory that is there.
        let kept = scene.other.lock(&path).await;
        let waiting = scene.peer.start(fair(&path, SOON));
        is_queued(scene.server, &scene.chroot, &path, 2).await;
        release(kept).await;
        release(waiting.await.unwrap().unwrap()).await;
        let rule = fault.strike(&scene.proxy, Op::Multi, 1);
        let hold = scene.peer.lock(&path).await;
        assert!(rule.has_fired());
        scene.assert_one_node(&path, &hold).await;
        release(hold).await;
        // Plain.
        let path = format!("/{i}/p");
        let rule = fault.strike(&scene.proxy, Op::Create, 1);
        let hold = scene.peer.run_for(&path).await;
        assert!(rule.has_fired() && hold.is_held());
        release(hold).await;
        assert!(!scene.exists(&path).await);
    }
}

#[tokio::test]
async fn a_lost_create_of_a_plain_node_is_not_taken_for_the_holders() {
    let scene = Scene::new("mine").await;
    // Same session, same path: the holder's node is not the one whose answer was lost. Who waits does not ask while one
    // of the same session holds, who tries once does.
    let hold = scene.peer.run_for("/p").await;
    let rule = scene.proxy.swallow_reply(Op::Create, 1);
    let tried = scene.peer.start(plain("/p", Duration::ZERO));
    rule.fired().await.unwrap();
    let refused = within(SOON, tried).await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Busy { .. } | Error::Unavailable { .. }), "{refused}");
    let session = scene.peer.session().unwrap();
    confirmed(&session).await;
    assert!(hold.is_held() && scene.exists("/p").await);
    let token = hold.token();
    release(hold).await;
    let next = scene.peer.run_for("/p").await;
    assert!(next.token() > token);
    release(next).await;
}

#[tokio::test]
async fn a_lost_delete_is_seen_through() {
    let scene = Scene::new("lostdelete").await;
    for (i, fault) in FAULTS.into_iter().enumerate() {
        // With its directory.
        let path = format!("/{i}/a");
        let hold = scene.peer.lock(&path).await;
        let rule = fault.strike(&scene.proxy, Op::Multi, 1);
        release(hold).await;
        assert!(rule.has_fired());
        assert_eq!(scene.count(&path).await, 0);
        // Alone.
        let path = format!("/{i}/b");
        let hold = scene.peer.lock(&path).await;
        let next = scene.other.start(fair(&path, SOON));
        is_queued(scene.server, &scene.chroot, &path, 2).await;
        // The directory is tried first, and is not empty.
        let rule = fault.strike(&scene.proxy, Op::Delete, 1);
        release(hold).await;
        assert!(rule.has_fired());
        release(within(SOON, next).await.unwrap().unwrap()).await;
        assert_eq!(scene.count(&path).await, 0);
    }
    let session = scene.peer.session().unwrap();
    until("the janitor is done", async || session.janitor.deletes().pending == 0).await;
    assert!(session.janitor.deletes().retried >= 3);
}

#[tokio::test]
async fn a_lost_delete_of_a_plain_node_spares_the_next_holders() {
    let scene = Scene::new("spare").await;
    for fault in FAULTS {
        let hold = scene.peer.run_for("/p").await;
        let next = scene.other.start(plain("/p", SOON));
        let others = scene.other.session().unwrap();
        confirmed(&others).await;
        assert!(!next.is_finished());
        let rule = fault.strike(&scene.proxy, Op::Delete, 1);
        // Resolves when the janitor has looked again.
        release(hold).await;
        assert!(rule.has_fired());
        let next = within(SOON, next).await.unwrap().unwrap();
        let session = scene.peer.session().unwrap();
        until("the janitor is done", async || session.janitor.deletes().pending == 0).await;
        let node = scene.server.node(&format!("{}/p", scene.chroot.path())).await.unwrap().unwrap();
        assert_eq!(node.ephemeral_owner, others.id());
        assert!(next.is_held());
        release(next).await;
    }
}

/// Any request at all may be the one that is lost.
#[tokio::test]
async fn whatever_is_lost_one_holds_at_a_time_and_nothing_is_left() {
    // Passed on once and then made again, where they are plain.
    let scene = Scene::with("any", Limit { most: 2, ..Limit::default() }).await;
    for fault in FAULTS {
        for nth in 1..=10 {
            for is_fair in [true, false] {
                let path = format!("/{fault:?}/{nth}/{is_fair}");
                let _rule = fault.strike(&scene.proxy, Any::Any, nth);
                let last = Arc::new(Mutex::new(None));
                let (peer, other) = (&scene.peer, &scene.other);
                let tasks: Vec<_> = [peer, other, peer, other, peer, other]
                    .map(|peer| hold_once(peer.start(request(&path, is_fair, SOON)), last.clone()))
                    .map(tokio::spawn)
                    .into();
                for task in tasks {
                    within(SOON, task).await.unwrap();
                }
                until(&format!("nothing is left of {path}"), async || {
                    if is_fair { scene.count(&path).await == 0 } else { !scene.exists(&path).await }
                })
                .await;
            }
        }
    }
}

/// Holds once, alone, with a higher token than the one before.
async fn hold_once(
    waiting: tokio::task::JoinHandle<Result<Arc<Hold>, Error>>,
    last: Arc<Mutex<Option<FencingToken>>>,
) {
    let hold = waiting.await.unwrap().unwrap();
    let mut last = last.try_lock().expect("two holders");
    assert!(*last < Some(hold.token()));
    tokio::task::yield_now().await;
    *last = Some(hold.token());
    assert!(hold.is_held());
    drop(last);
    release(hold).await;
}

#[tokio::test]
async fn who_is_gone_when_the_answer_comes_leaves_nothing() {
    let scene = Scene::new("gone").await;
    for (op, is_fair) in [(Op::Multi, true), (Op::Create, false)] {
        // So that the parent is there.
        release(scene.peer.lock("/b/other").await).await;
        let rule = scene.proxy.hold_reply(op, 1);
        let waiting = scene.peer.start(request("/a", is_fair, SOON));
        rule.fired().await.unwrap();
        until("the node is there", async || scene.exists("/a").await).await;
        waiting.abort();
        assert!(waiting.await.is_err());
        rule.release();
        until("the node that was answered late is gone", async || !scene.exists("/a").await).await;
        // And when the answer never comes.
        let rule = scene.proxy.hold_reply(op, 1);
        let path = format!("/b/{is_fair}");
        let waiting = scene.peer.start(request(&path, is_fair, SOON));
        rule.fired().await.unwrap();
        waiting.abort();
        assert!(waiting.await.is_err());
        scene.proxy.cut();
        until("the node that was not answered is gone", async || {
            if is_fair { scene.count(&path).await == 0 } else { !scene.exists(&path).await }
        })
        .await;
        scene.proxy.heal().unwrap();
    }
}

#[tokio::test]
async fn a_waiter_whose_watch_is_lost_with_the_connection_still_wakes() {
    let scene = Scene::new("rewatch").await;
    let hold = scene.other.lock("/a").await;
    let waiting = scene.peer.start(fair("/a", SOON));
    is_queued(scene.server, &scene.chroot, "/a", 2).await;
    // It is watching when nothing more is asked.
    let session = scene.peer.session().unwrap();
    confirmed(&session).await;
    scene.proxy.refuse();
    scene.proxy.cut();
    until("disconnected", async || !session.validity.is_connected()).await;
    release(hold).await;
    scene.proxy.heal().unwrap();
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn who_is_cut_off_lets_go_before_the_next_one_holds() {
    for direction in [Direction::ToServer, Direction::ToClient, Direction::Both] {
        let scene = Scene::new("cutoff").await;
        let holds = [scene.peer.lock("/a").await, scene.peer.run_for("/p").await];
        let next = [scene.other.start(fair("/a", 3 * SOON)), scene.other.start(plain("/p", 3 * SOON))];
        is_queued(scene.server, &scene.chroot, "/a", 2).await;
        let start = Instant::now();
        scene.proxy.black_hole(direction);
        for hold in &holds {
            assert_eq!(within(SOON, hold.ended()).await, LostReason::Unconfirmed);
        }
        assert!(start.elapsed() < SESSION);
        assert!(next.iter().all(|next| !next.is_finished()), "two holders");
        for (hold, next) in holds.into_iter().zip(next) {
            let next = within(2 * SOON, next).await.unwrap().unwrap();
            // The node of the old one is still to be deleted, by a session that is over.
            hold.release();
            scene.proxy.heal().unwrap();
            let again = scene.peer.lock("/b").await;
            assert!(next.is_held());
            assert!(matches!(hold.state(), State::Ended(LostReason::Unconfirmed)));
            release(next).await;
            release(again).await;
        }
    }
}

#[tokio::test]
async fn a_directory_deleted_between_two_steps_is_made_again() {
    let scene = Scene::new("between").await;
    // Known to be there, then gone when the contender is created.
    let directory = format!("{}/a", scene.chroot.path());
    scene.server.create_node(&directory, b"").await.unwrap();
    release(scene.peer.lock("/a").await).await;
    let rule = scene.proxy.hold_request(Op::Multi, 1);
    let waiting = scene.peer.start(fair("/a", SOON));
    rule.fired().await.unwrap();
    assert!(scene.server.delete_node(&directory).await.unwrap());
    rule.release();
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
    // Gone with all contenders before the queue is listed.
    let hold = scene.other.lock("/a").await;
    let rule = scene.proxy.hold_request(Op::GetChildren, 1);
    let waiting = scene.peer.start(fair("/a", SOON));
    rule.fired().await.unwrap();
    for name in scene.server.children(&directory).await.unwrap() {
        scene.server.delete_node(&format!("{directory}/{name}")).await.unwrap();
    }
    assert!(scene.server.delete_node(&directory).await.unwrap());
    rule.release();
    let next = within(SOON, waiting).await.unwrap().unwrap();
    scene.assert_one_node("/a", &next).await;
    assert_eq!(within(SOON, hold.ended()).await, LostReason::NodeGone);
    release(next).await;
    // Gone between the look at the predecessor and the watch on it.
    let hold = scene.other.lock("/b").await;
    let rule = scene.proxy.hold_request(Op::GetData, 1);
    let waiting = scene.peer.start(fair("/b", SOON));
    rule.fired().await.unwrap();
    release(hold).await;
    rule.release();
    release(within(SOON, waiting).await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn another_session_behind_the_same_connection_ends_the_holds() {
    let (server, chroot) = chroot("swap").await;
    let swap = Swap::start(server.connect_string()).await;
    let peer = Peer::connect(&chroot.via(&swap.address).url(), "a").await;
    let session = peer.session().unwrap();
    let other = Peer::connect(&chroot.url(), "b").await;
    let held_by_other = other.lock("/c").await;
    let (first, second) = (peer.lock("/a").await, peer.run_for("/p").await);
    let waiting = peer.start(fair("/c", 2 * SOON));
    is_queued(server, &chroot, "/c", 2).await;
    let start = Instant::now();
    swap.cut.send_replace(());
    for hold in [&first, &second] {
        assert_eq!(within(SOON, hold.ended()).await, LostReason::SessionExpired);
    }
    assert!(start.elapsed() < SESSION / 2, "noticed only after {:?}", start.elapsed());
    let again = peer.lock("/b").await;
    assert!(!Arc::ptr_eq(&session, &peer.session().unwrap()));
    release(again).await;
    // Who waited must not be granted the node that it has in the old session: a new one stands behind it.
    is_queued(server, &chroot, "/c", 3).await;
    release(held_by_other).await;
    let next = within(2 * SOON, waiting).await.unwrap().unwrap();
    let node = server.children(&format!("{}/c", chroot.path())).await.unwrap();
    assert_eq!(node.len(), 1, "granted while the node of the old session was there");
    release(next).await;
}

/// Nodes that were made in the new session before it was asked for do not speak for the old one.
#[tokio::test]
async fn what_another_session_has_made_does_not_prove_the_old_one() {
    let (server, chroot) = chroot("swapmade").await;
    let swap = Swap::start(server.connect_string()).await;
    let peer = Peer::connect(&chroot.via(&swap.address).url(), "a").await;
    let session = peer.session().unwrap();
    let hold = peer.lock("/a").await;
    swap.open.send_replace(false);
    swap.cut.send_replace(());
    until("disconnected", async || !session.validity.is_connected()).await;
    // The next connection carries these first.
    let made: Vec<_> = (0..8).map(|i| peer.start(plain(&format!("/b{i}"), 2 * SOON))).collect();
    tokio::task::yield_now().await;
    let asked = session.tasks.run(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    asked.await.unwrap();
    swap.open.send_replace(true);
    assert_eq!(within(SOON, hold.ended()).await, LostReason::SessionExpired);
    for made in made {
        release(within(2 * SOON, made).await.unwrap().unwrap()).await;
    }
    let again = peer.lock("/a").await;
    assert!(!Arc::ptr_eq(&session, &peer.session().unwrap()));
    release(again).await;
}

#[tokio::test]
async fn a_node_of_a_session_that_was_changed_is_not_adopted() {
    for is_fair in [true, false] {
        let (server, chroot) = chroot("swapfind").await;
        let proxy = Proxy::start(server.connect_string()).await.unwrap();
        let swap = Swap::start(&proxy.addr().to_string()).await;
        let peer = Peer::connect(&chroot.via(&swap.address).url(), "a").await;
        let session = peer.session().unwrap();
        let rule = proxy.swallow_reply(if is_fair { Op::Multi } else { Op::Create }, 1);
        let lock =
            async || within(2 * SOON, peer.start(request("/a", is_fair, 2 * SOON))).await.unwrap().unwrap();
        let mut hold = lock().await;
        assert!(rule.has_fired());
        let ended = tokio::time::timeout(SESSION / 2, hold.ended()).await;
        if let Ok(reason) = ended {
            // It was found before the proof, and granted for as long as the old session surely lasts.
            assert_eq!(reason, LostReason::SessionExpired);
            release(hold).await;
            hold = lock().await;
        }
        let now = peer.session().unwrap();
        assert!(!Arc::ptr_eq(&session, &now), "held in the session that nobody beats for");
        let mut path = format!("{}/a", chroot.path());
        if is_fair {
            let names = server.children(&path).await.unwrap();
            assert_eq!(names.len(), 1, "{names:?}");
            path = format!("{path}/{}", names[0]);
        }
        assert_eq!(server.node(&path).await.unwrap().unwrap().ephemeral_owner, now.id());
        release(hold).await;
    }
}

/// Where no witness may be made, what is held tells whose the connection is.
#[tokio::test]
async fn a_session_without_a_witness_is_known_by_its_nodes() {
    let server = Server::start().await.unwrap();
    let admin = zk::Client::connector().with_auth("digest", b"admin:secret");
    let admin = admin.connect(server.connect_string()).await.unwrap();
    let id = uuid::Uuid::new_v4().to_string();
    let acls = [
        zk::Acl::new(zk::Permission::READ, zk::AuthId::anyone()),
        zk::Acl::new(zk::Permission::ALL, zk::AuthId::authed()),
    ];
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
    admin.create(ensemble::NODE, id.as_bytes(), &options).await.unwrap();
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let swap = Swap::start(server.connect_string()).await;
    let peer = Peer::connect(&format!("zk://{}", proxy.addr()), "a").await;
    let swapped = Peer::connect(&format!("zk://{}", swap.address), "b").await;
    let (hold, lost) = (peer.lock("/a").await, swapped.lock("/b").await);
    let session = peer.session().unwrap();
    proxy.cut();
    until("disconnected", async || !session.validity.is_connected()).await;
    until("proven", async || session.validity.is_connected()).await;
    assert!(hold.is_held() && Arc::ptr_eq(&session, &peer.session().unwrap()));
    swap.cut.send_replace(());
    assert_eq!(within(SOON, lost.ended()).await, LostReason::SessionExpired);
    release(hold).await;
    release(lost).await;
    assert!(admin.list_children(ensemble::NODE).await.unwrap().is_empty());
}

/// Passes on what is said, but asks for a new session whenever a client comes back for its old one.
struct Swap {
    address: String,
    cut: watch::Sender<()>,
    /// Whether who comes back is let in.
    open: watch::Sender<bool>,
}

impl Swap {
    async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = watch::Sender::new(());
        let open = watch::Sender::new(true);
        let (server, cuts, gate) = (server.to_owned(), cut.clone(), open.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                let (server, mut gate) = (server.clone(), gate.subscribe());
                let passed = async move {
                    let _ = gate.wait_for(|open| *open).await;
                    pass(client, server).await;
                };
                tokio::spawn(async move {
                    tokio::select! { () = passed => {}, _ = cut.changed() => {} }
                });
            }
        });
        Self { address, cut, open }
    }
}

async fn pass(mut client: TcpStream, server: String) {
    let mut server = TcpStream::connect(server).await.unwrap();
    // Length, version, last transaction, timeout, session, password: `ConnectRequest`.
    let mut hello = [0; 4 + 4 + 8 + 4 + 8 + 4 + 16];
    if client.read_exact(&mut hello).await.is_err() {
        return;
    }
    hello[20..28].fill(0);
    hello[32..].fill(0);
    server.write_all(&hello).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// Waits for a heartbeat that is sent and answered from now on: everything asked before has been answered too.
async fn confirmed(session: &Arc<Session>) {
    let now = crate::clock::Tick::now();
    until("the session is confirmed", async || session.last_confirmed() > now).await;
}

/// The servers answer all along: that the last answer is still on its way when the time is over does not make them
/// unreachable.
#[tokio::test]
async fn who_must_look_again_when_its_time_is_over_hears_that_the_lock_is_busy() {
    let (server, chroot) = chroot("lastlook").await;
    let proxy = Proxy::start(server.connect_string()).await.unwrap();
    let (first, second) = (Peer::connect(&chroot.url(), "a").await, Peer::connect(&chroot.url(), "b").await);
    let last = Peer::connect(&chroot.via(proxy.addr()).url(), "c").await;
    let hold = first.lock("/a").await;
    let between = second.start(fair("/a", SOON));
    is_queued(server, &chroot, "/a", 2).await;
    let wait = Duration::from_secs(2);
    let waiting = last.start(fair("/a", wait));
    is_queued(server, &chroot, "/a", 3).await;
    // The one before it goes late in its wait, so that it must look who is before it now.
    tokio::time::sleep(wait * 3 / 4).await;
    let look = proxy.hold_reply(Op::GetChildren, 1);
    between.abort();
    look.fired().await.unwrap();
    let error = within(SOON, waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    look.release();
    release(hold).await;
}
