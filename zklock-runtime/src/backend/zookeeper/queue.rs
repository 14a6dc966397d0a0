use super::nodes;

/// Where a contender stands, as far as names can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// Nobody is before it: it holds.
    First,
    /// To be watched: the next one before it.
    Behind(&'a str),
    /// It is not in the list.
    Missing,
    /// Names cannot tell, only the transactions that made the nodes can: see [`by_transaction`].
    Unclear,
}

/// Finds the contender `own` among the children of its directory.
///
/// Only contenders count; other children are none of ours. Sequences are compared as wrapping numbers, which is
/// right as long as the queue is shorter than 2^31.
///
/// From 2,147,483,647 on, the server's counter cannot be trusted. Java's overflows, but `DataTree.createNode` keeps
/// the larger of the old and the new count, so that from there on every new contender is given 2147483647 again, or
/// -2147483648 if the one before it was still being written (seen on 3.8.0). Two contenders would then both be
/// first. Whoever has such a sequence, or shares its own with another, is told that names do not decide.
pub(super) fn place<'a>(children: &'a [String], own: &str) -> Place<'a> {
    let Some(own_sequence) = nodes::sequence(own) else { return Place::Missing };
    let mut listed = false;
    let mut clear = !is_past_the_end(own_sequence);
    let mut before: Option<(i32, &str)> = None;
    for child in children {
        if child == own {
            listed = true;
            continue;
        }
        let Some(sequence) = nodes::sequence(child) else { continue };
        let ahead = sequence.wrapping_sub(own_sequence);
        if ahead == 0 {
            clear = false;
        }
        if ahead < 0 && before.is_none_or(|(nearest, _)| ahead > nearest) {
            before = Some((ahead, child));
        }
    }
    match (listed, clear, before) {
        (false, ..) => Place::Missing,
        (true, false, _) => Place::Unclear,
        (true, true, Some((_, child))) => Place::Behind(child),
        (true, true, None) => Place::First,
    }
}

/// The same, by the transactions that made the nodes: `contenders` are the names with their czxid, as far as they
/// could still be read.
///
/// Contenders made in one transaction come in the order of their sequences.
pub(super) fn by_transaction<'a>(contenders: &'a [(String, i64)], own: &str) -> Place<'a> {
    let Some((own, own_czxid)) = contenders.iter().find(|(name, _)| name == own) else {
        return Place::Missing;
    };
    let own_sequence = nodes::sequence(own).unwrap_or_default();
    // How far before us, the nearest being the greatest; `None` for what comes after us.
    let distance = |name: &str, czxid: i64| {
        let ahead = nodes::sequence(name).unwrap_or_default().wrapping_sub(own_sequence);
        let order = (czxid.wrapping_sub(*own_czxid), ahead);
        (order < (0, 0)).then_some(order)
    };
    contenders
        .iter()
        .filter(|(name, _)| name != own)
        .filter_map(|(name, czxid)| distance(name, *czxid).map(|distance| (distance, name)))
        .max_by_key(|(distance, _)| *distance)
        .map_or(Place::First, |(_, name)| Place::Behind(name))
}

/// Whether some child is not a contender: somebody else uses the directory too.
pub(super) fn has_foreign(children: &[String]) -> bool {
    children.iter().any(|child| nodes::sequence(child).is_none())
}

/// The contenders in the order of their sequences, for operators to read.
pub(super) fn in_order(children: &[String]) -> Vec<&str> {
    let mut contenders: Vec<_> =
        children.iter().filter_map(|child| Some((nodes::sequence(child)?, child.as_str()))).collect();
    // Counted from one of them: differences sort, wrapping numbers themselves do not.
    let base = contenders.first().map_or(0, |(sequence, _)| *sequence);
    contenders.sort_by_key(|(sequence, _)| sequence.wrapping_sub(base));
    contenders.into_iter().map(|(_, child)| child).collect()
}

/// Whether the order of the sequences is that of the queue: not past the end of the server's counter, see [`place`].
pub(super) fn names_decide(in_order: &[&str]) -> bool {
    let sequences: Vec<_> = in_order.iter().filter_map(|name| nodes::sequence(name)).collect();
    !sequences.iter().any(|&sequence| is_past_the_end(sequence))
        && sequences.windows(2).all(|pair| pair[0] != pair[1])
}

fn is_past_the_end(sequence: i32) -> bool {
    sequence == i32::MAX || sequence < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0f0e0d0c-0b0a-0908-0706-050403020100";

    fn name(sequence: i32) -> String {
        named('a', sequence)
    }

    /// The server prints as Java's `%010d` does.
    fn named(first: char, sequence: i32) -> String {
        format!("_c_{first}{}-lock-{sequence:010}", &UUID[1..])
    }

    fn names(sequences: &[i32]) -> Vec<String> {
        sequences.iter().map(|&sequence| name(sequence)).collect()
    }

    #[test]
    fn names_decide_up_to_the_end_of_the_counter() {
        for (sequences, decide) in [
            (&[][..], true),
            (&[7, 9], true),
            (&[7, 7], false),
            (&[i32::MAX - 1], true),
            (&[i32::MAX - 1, i32::MAX], false),
            (&[i32::MIN, i32::MAX], false),
        ] {
            let names = names(sequences);
            assert_eq!(names_decide(&in_order(&names)), decide, "{sequences:?}");
        }
    }

    #[test]
    fn alone_holds() {
        assert_eq!(place(&names(&[7]), &name(7)), Place::First);
    }

    #[test]
    fn the_next_lower_one_is_watched_whatever_the_order_of_the_list() {
        let (three, five, seven, nine) = (name(3), name(5), name(7), name(9));
        let all = [&three, &five, &seven, &nine];
        // Every order of the four.
        for a in 0..4 {
            for b in (0..4).filter(|&b| b != a) {
                for c in (0..4).filter(|&c| c != a && c != b) {
                    let d = 6 - a - b - c;
                    let list: Vec<String> = [a, b, c, d].map(|i| all[i].clone()).into();
                    assert_eq!(place(&list, &three), Place::First);
                    assert_eq!(place(&list, &five), Place::Behind(&three));
                    assert_eq!(place(&list, &seven), Place::Behind(&five));
                    assert_eq!(place(&list, &nine), Place::Behind(&seven));
                }
            }
        }
    }

    #[test]
    fn a_lower_uuid_does_not_go_first() {
        let list = [named('f', 1), named('a', 2)];
        assert_eq!(place(&list, &list[0]), Place::First);
        assert_eq!(place(&list, &list[1]), Place::Behind(&list[0]));
    }

    #[test]
    fn sequences_are_not_text() {
        // As text "10000000000" would come before "2000000000"; the widths differ at the sign too.
        let list = names(&[-2, 2, -1]);
        assert_eq!(place(&list, &name(2)), Place::Behind(&list[2]));
        assert_eq!(in_order(&list), [&list[0], &list[2], &list[1]]);
    }

    #[test]
    fn up_to_the_last_number_names_decide() {
        let list = names(&[i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
        assert_eq!(place(&list, &list[0]), Place::First);
        let list = names(&[i32::MAX - 2, i32::MIN, i32::MAX - 1]);
        assert_eq!(place(&list, &list[2]), Place::Behind(&list[0]));
    }

    #[test]
    fn from_the_last_number_on_names_do_not_decide() {
        let list = names(&[i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1, -1]);
        for own in &list[1..] {
            assert_eq!(place(&list, own), Place::Unclear);
        }
    }

    #[test]
    fn a_shared_sequence_does_not_decide() {
        let list = [named('a', 5), named('b', 5), named('c', 6)];
        assert_eq!(place(&list, &list[0]), Place::Unclear);
        assert_eq!(place(&list, &list[1]), Place::Unclear);
        assert!(matches!(place(&list, &list[2]), Place::Behind(_)));
    }

    #[test]
    fn after_a_whole_round_names_decide_again() {
        let list = names(&[0, -3, 1]);
        assert_eq!(place(&list, &name(0)), Place::Behind(&list[1]));
        assert_eq!(place(&list, &name(1)), Place::Behind(&list[0]));
    }

    #[test]
    fn transactions_order_what_the_stuck_counter_made() {
        // The counter of a real server at its end: the third was created while the second was being written.
        let list = [
            (named('d', i32::MAX), 10),
            (named('c', i32::MAX), 11),
            (named('b', i32::MIN), 12),
            (named('a', i32::MAX), 13),
        ];
        assert_eq!(by_transaction(&list, &list[0].0), Place::First);
        for i in 1..4 {
            assert_eq!(by_transaction(&list, &list[i].0), Place::Behind(&list[i - 1].0));
        }
    }

    #[test]
    fn contenders_of_one_transaction_come_in_sequence() {
        let list = [(named('b', i32::MAX), 10), (named('a', i32::MIN), 10), (named('c', i32::MIN + 1), 10)];
        assert_eq!(by_transaction(&list, &list[0].0), Place::First);
        assert_eq!(by_transaction(&list, &list[1].0), Place::Behind(&list[0].0));
        assert_eq!(by_transaction(&list, &list[2].0), Place::Behind(&list[1].0));
        assert_eq!(by_transaction(&list, &name(3)), Place::Missing);
    }

    #[test]
    fn others_do_not_count() {
        let own = name(5);
        let list: Vec<String> = [
            "config",
            "foo-bar",
            "42",
            "0000000001",
            "lock-0000000001",
            "_c_-lock-0000000001",
            "_c_nouuid-lock-0000000001",
            "_c_00000000-0000-0000-0000-000000000000-latch-0000000001",
            "_c_00000000-0000-0000-0000-000000000000-lock-",
            "_c_00000000-0000-0000-0000-000000000000-lock-x",
            "_c_00000000-0000-0000-0000-000000000000-__READ__0000000001",
            "0f0e0d0c0b0a09080706050403020100__lock__0000000001",
            &own,
        ]
        .map(String::from)
        .into();
        assert_eq!(place(&list, &own), Place::First);
        assert!(has_foreign(&list));
        assert_eq!(in_order(&list), [own.as_str()]);
        assert!(!has_foreign(&names(&[1, 2])));
    }

    #[test]
    fn who_is_not_listed_does_not_hold() {
        assert_eq!(place(&[], &name(1)), Place::Missing);
        assert_eq!(place(&names(&[0, 2]), &name(1)), Place::Missing);
        // The same sequence under another name is somebody else.
        assert_eq!(place(&[named('b', 1)], &named('a', 1)), Place::Missing);
        assert_eq!(place(&names(&[1]), "config"), Place::Missing);
    }
}
