//! The place in the queue, asked of the code that decides it on a real server.

use std::{cell::RefCell, collections::HashMap};

use uuid::Uuid;

use super::{
    super::{
        nodes,
        queue::{self, Place},
    },
    server::{Name, Nodes},
    setup::Mutation,
};

/// [`Place`] in the model's names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    First,
    Behind { before: Name, next: bool },
    Missing,
    Unclear,
}

thread_local! {
    /// The same few lists come again and again, and names are long.
    static DECIDED: RefCell<HashMap<(Nodes, Name, bool), Decision>> = RefCell::default();
}

/// What the real decision makes of a list.
pub(super) fn decide(mutation: Option<Mutation>, nodes: &Nodes, own: Name, by_transaction: bool) -> Decision {
    match mutation {
        Some(Mutation::SequencesAsText) => {
            return in_order_of(nodes, own, |name| format!("{:010}", name.sequence));
        }
        Some(Mutation::NamesAtTheEnd) => {
            return in_order_of(nodes, own, |name| name.sequence.wrapping_sub(i32::MAX - 1));
        }
        _ => {}
    }
    let key = (*nodes, own, by_transaction);
    if let Some(decision) = DECIDED.with_borrow(|decided| decided.get(&key).copied()) {
        return decision;
    }
    let names: Vec<Name> = nodes.iter().map(|node| node.name).collect();
    let texts: Vec<String> = names.iter().map(|&name| text(name)).collect();
    let stats: Vec<(String, i64)> =
        texts.iter().cloned().zip(nodes.iter().map(|node| i64::from(node.czxid))).collect();
    let place = |own: &str| {
        if by_transaction { queue::by_transaction(&stats, own) } else { queue::place(&texts, own) }
    };
    let decision = match place(&text(own)) {
        Place::First => Decision::First,
        Place::Missing => Decision::Missing,
        Place::Unclear => Decision::Unclear,
        Place::Behind(before) => {
            let index =
                texts.iter().position(|text| text == before).expect("who is before us is in the list");
            Decision::Behind { before: names[index], next: place(before) == Place::First }
        }
    };
    DECIDED.with_borrow_mut(|decided| decided.insert(key, decision));
    decision
}

/// The name of a contender's node on a real server.
fn text(name: Name) -> String {
    let uuid = Uuid::from_u128(u128::from(name.who) << 8 | u128::from(name.attempt));
    format!("{}{:010}", nodes::prefix(uuid), name.sequence)
}

/// What a wrong decision makes of it.
fn in_order_of<K: Ord>(nodes: &Nodes, own: Name, key: impl Fn(Name) -> K) -> Decision {
    if !nodes.iter().any(|node| node.name == own) {
        return Decision::Missing;
    }
    let before =
        nodes.iter().map(|node| node.name).filter(|&name| key(name) < key(own)).max_by_key(|&name| key(name));
    before.map_or(Decision::First, |before| Decision::Behind { before, next: false })
}
