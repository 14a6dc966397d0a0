use std::collections::HashSet;

use zklock::{Error, LockPath};

use crate::support::{Outcome, World, queued, soon};

/// What a template, a configuration file or an attacker may come up with.
fn nasty_paths() -> Vec<String> {
    let mut paths: Vec<String> = [
        "",
        "/",
        "//",
        "a",
        "a/b",
        "/a",
        "/a/",
        "/a//b",
        "//a",
        "/.",
        "/..",
        "/a/.",
        "/a/..",
        "/a/./b",
        "/a/../b",
        "/...",
        "/a/.../b",
        "/ ",
        "/ a",
        "/a ",
        "/a b",
        "/a\tb",
        "/a\nb",
        "/a\0b",
        "\0",
        "/\u{1}",
        "/\u{7f}",
        "/\u{9f}",
        "/\u{ad}",
        "/\u{d7ff}",
        "/\u{e000}",
        "/\u{f8ff}",
        "/\u{fdd0}",
        "/\u{fff0}",
        "/\u{ffff}",
        "/\u{feff}",
        "/\u{1f600}",
        "/e\u{301}",
        "/\u{e9}",
        "/\u{202e}abc",
        "/%2e",
        "/%2F",
        "/%",
        "/%%",
        "/a%2fb",
        "/zookeeper",
        "/zookeeper/quota",
        "/zookeeper2",
        "/_c_7f3a-lock-0000000001",
        "/a/_c_x-lock-0000000001",
        "/-lock-",
        "/a-lock-0000000000",
        "/__READ__0000000001",
        "/__WRIT__",
        "/_c_",
        "/a\\b",
        "/a?b#c",
        "/'; DROP TABLE zklock_fence; --",
        "/\"",
        "/{id}",
        "/ORDERS",
        "/orders",
        "/Orders",
    ]
    .map(str::to_owned)
    .into();
    for length in [200, 254, 255, 256, 510, 511, 512, 513, 4_000, 70_000] {
        paths.push(format!("/{}", "x".repeat(length)));
    }
    paths.push("/deep".repeat(60));
    paths.push("/d".repeat(3_000));
    paths
}

pub(crate) async fn g11_every_path_has_one_verdict(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let mut wrong = Vec::new();
    for text in nasty_paths() {
        let shown = || format!("{:.60?} ({} bytes)", text, text.len());
        // The verdict is the path's own, so that it is the same on a laptop as on the server.
        match (LockPath::new(&text), soon("a verdict", locks.mutex(text.as_str()).acquire()).await) {
            (Ok(path), Ok(guard)) => {
                if path.as_str() != text {
                    wrong.push(format!("{} became {:?}", shown(), path.as_str()));
                }
                if !matches!(other.mutex(text.as_str()).try_acquire().await, Ok(None)) {
                    wrong.push(format!("{} is not locked", shown()));
                }
                if locks.inspect(text.as_str()).await?.len() != 1 {
                    wrong.push(format!("{} has no holder", shown()));
                }
                guard.release().await?;
            }
            (Err(Error::InvalidPath { .. }), Err(Error::InvalidPath { .. })) => {}
            (verdict, result) => {
                wrong.push(format!("{} is {verdict:.90?}, acquired: {:.300?}", shown(), result.map(drop)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong verdicts:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

pub(crate) async fn g11_different_paths_are_different_locks(world: World) -> Outcome {
    let locks = world.locks().await?;
    let paths: Vec<LockPath> = nasty_paths().iter().filter_map(|text| LockPath::new(text).ok()).collect();
    assert!(paths.len() > 10);
    assert_eq!(paths.iter().collect::<HashSet<_>>().len(), paths.len());
    let mut guards = Vec::new();
    for path in &paths {
        let guard = locks.mutex(path.clone()).timeout(None).try_acquire().await?;
        guards.push(guard.unwrap_or_else(|| panic!("{path:.60?} met another path's lock")));
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn g11_a_path_below_a_held_one_is_a_lock_of_its_own(world: World) -> Outcome {
    apart(world, ("/a", true), ("/a/b", true)).await
}

pub(crate) async fn g11_a_path_above_a_held_one_is_a_lock_of_its_own(world: World) -> Outcome {
    apart(world, ("/a/b", true), ("/a", true)).await
}

/// An unfair lock is a node of its own, which cannot have others below it: said, and not waited for.
pub(crate) async fn nothing_is_locked_below_a_held_unfair_path(world: World) -> Outcome {
    for fair in [true, false] {
        apart_is_wrong(&world, ("/a", false), ("/a/b", fair)).await?;
        apart_is_wrong(&world, ("/c", false), ("/c/d/e", fair)).await?;
    }
    Ok(())
}

pub(crate) async fn an_unfair_path_is_not_locked_above_a_held_one(world: World) -> Outcome {
    for fair in [true, false] {
        let folder = if fair { "/a" } else { "/c" };
        apart_is_wrong(&world, (&format!("{folder}/b"), fair), (folder, false)).await?;
    }
    Ok(())
}

async fn apart_is_wrong(world: &World, first: (&str, bool), second: (&str, bool)) -> Outcome {
    let [one, other] = [world.locks().await?, world.locks().await?];
    let held = one.mutex(first.0).fair(first.1).timeout(None).acquire().await?;
    for locks in [&one, &other] {
        let result = soon("a refusal", locks.mutex(second.0).fair(second.1).acquire()).await.map(drop);
        assert!(matches!(result, Err(Error::WrongKind { .. })), "{first:?}, then {second:?}: {result:?}");
    }
    assert!(held.is_held());
    held.release().await?;
    queued(&other, first.0, 0).await?;
    queued(&other, second.0, 0).await
}

/// Both are held at a time, in either order of release, and are free afterwards.
async fn apart(world: World, first: (&str, bool), second: (&str, bool)) -> Outcome {
    let [one, other] = [world.locks().await?, world.locks().await?];
    for first_goes_first in [true, false] {
        let a = one.mutex(first.0).fair(first.1).timeout(None).acquire().await?;
        let b =
            soon("a lock of its own", other.mutex(second.0).fair(second.1).timeout(None).acquire()).await?;
        assert!(a.is_held() && b.is_held());
        queued(&one, first.0, 1).await?;
        queued(&one, second.0, 1).await?;
        let (a, b) = if first_goes_first { (a, b) } else { (b, a) };
        a.release().await?;
        assert!(b.is_held());
        b.release().await?;
        queued(&one, first.0, 0).await?;
        queued(&one, second.0, 0).await?;
    }
    Ok(())
}
