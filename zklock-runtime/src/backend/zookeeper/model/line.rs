//! The hand-over in memory, explored with the real [`Order`]: all interleavings of contenders of two sessions in one
//! directory, with the faults that a [`Setup`] allows. The steps around it are those of `fair`, `entry` and `contender`.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    sync::Arc,
};

use uuid::Uuid;

use super::{
    super::{
        nodes,
        order::{Before, Order, Theirs, Waits},
    },
    check::Mix,
};

/// What may happen, and how often; and what is broken on purpose.
#[derive(Clone, Copy, Debug)]
struct Setup {
    /// The session of each contender.
    session_of: &'static [usize],
    faults: Faults,
    mutation: Option<Mutation>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Faults {
    /// The answer to a create is lost, and its node found later.
    losses: u8,
    cancels: u8,
    /// A session is not confirmed for a while; the server may end it.
    lapses: u8,
    /// Somebody deletes all nodes and the directory.
    wipes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// A turn that comes is granted without a look at the session.
    PassUnchecked,
    /// A holder whose node was seen to be gone passes the lock on.
    PassByGone,
    /// Whoever stood behind another session's contender is first when that one goes.
    AlwaysFirst,
    /// Who stood behind one that withdrew goes on waiting for it.
    RelinkToOver,
}

type Name = Arc<str>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Which directory it is, and the sequence that comes next.
    directory: Option<(u8, i32)>,
    directories: u8,
    nodes: Vec<Node>,
    sessions: [Session; 2],
    contenders: Vec<Contender>,
    /// Nodes that are to be deleted.
    jobs: Vec<Job>,
    faults: Faults,
    /// Whose grant broke a promise.
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    name: Name,
    who: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Job {
    name: Name,
    session: usize,
    /// The directory goes too.
    with_directory: bool,
    /// In which one the node was made, where that is known.
    made_in: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    is_invalid: bool,
    is_over: bool,
    /// The directory as it was last seen; and the one that was made here.
    last: Option<u8>,
    made: Option<u8>,
    lines: BTreeMap<u8, Order<Entrant>>,
    /// Who lists for all.
    lister: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entrant {
    who: usize,
    name: Name,
    is_stirred: bool,
}

impl Waits for Entrant {
    fn is_named(&self, name: &str) -> bool {
        &*self.name == name
    }

    fn stir(&mut self) {
        self.is_stirred = true;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Contender {
    attempt: u8,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// The create is on its way.
    Asked,
    /// The answer is: in which directory it is by what was asked, and whether anybody else was there.
    Made {
        own: Own,
        is_alone: bool,
        is_cancelled: bool,
    },
    Queued {
        own: Own,
        task: Task,
    },
    /// Not `ended`: it believes that it holds.
    Held {
        own: Own,
        ended: bool,
    },
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own {
    name: Name,
    sequence: i32,
    line: u8,
    is_seen_gone: bool,
}

/// What the task of a waiter is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    Ready {
        is_missed: bool,
    },
    WantsTurn {
        number: u64,
        synced: bool,
    },
    Lists {
        number: u64,
        synced: bool,
    },
    /// What was listed is on its way.
    Listed {
        number: u64,
        synced: bool,
        names: Vec<Name>,
    },
    Parked {
        before: Option<Theirs>,
        is_missed: bool,
    },
    Unconfirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start(usize),
    Create(usize),
    /// In one transaction with the delete of a node before it.
    CreateWith(usize, usize),
    Lose(usize),
    Deliver(usize),
    /// The waiter's task goes on.
    Step(usize),
    /// Its node is reported to be gone.
    Gone(usize),
    Cancel(usize),
    Release(usize),
    Delete(usize),
    Lapse(usize),
    Confirm(usize),
    Expire(usize),
    Learn(usize),
    Wipe,
    Sweep,
}

impl State {
    fn new(setup: &Setup) -> Self {
        let contender = Contender { attempt: 0, phase: Phase::Idle };
        Self {
            directory: None,
            directories: 0,
            nodes: Vec::new(),
            sessions: Default::default(),
            contenders: vec![contender; setup.session_of.len()],
            jobs: Vec::new(),
            faults: setup.faults,
            wrong: None,
        }
    }

    fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        for (who, contender) in self.contenders.iter().enumerate() {
            let session = &self.sessions[setup.session_of[who]];
            let is_up = !session.is_over;
            let is_gone = |own: &Own| is_up && !self.stands(&own.name);
            match &contender.phase {
                // Those of a session that have done nothing are alike.
                Phase::Idle if is_up => {
                    let is_next = (0..who).all(|other| {
                        setup.session_of[other] != setup.session_of[who]
                            || self.contenders[other].phase != Phase::Idle
                    });
                    if is_next || contender.attempt > 0 {
                        actions.push(Action::Start(who));
                    }
                }
                Phase::Asked if is_up => {
                    actions.push(Action::Create(who));
                    let leaves = |job: &Job| {
                        job.session == setup.session_of[who] && !job.with_directory && self.stands(&job.name)
                    };
                    let leaving = (0..self.jobs.len()).filter(|&job| leaves(&self.jobs[job]));
                    actions.extend(leaving.map(|job| Action::CreateWith(who, job)));
                }
                Phase::Made { is_cancelled, .. } if is_up => {
                    actions.push(Action::Deliver(who));
                    if self.faults.losses > 0 {
                        actions.push(Action::Lose(who));
                    }
                    if self.faults.cancels > 0 && !is_cancelled {
                        actions.push(Action::Cancel(who));
                    }
                }
                Phase::Queued { own, task } => {
                    if is_up && self.can_step(session, who, own, task) {
                        actions.push(Action::Step(who));
                    }
                    if matches!(task, Task::Parked { .. }) && is_gone(own) {
                        actions.push(Action::Gone(who));
                    }
                    if self.faults.cancels > 0 {
                        actions.push(Action::Cancel(who));
                    }
                }
                Phase::Held { own, .. } => {
                    actions.push(Action::Release(who));
                    if !own.is_seen_gone && is_gone(own) {
                        actions.push(Action::Gone(who));
                    }
                }
                _ => {}
            }
        }
        actions.extend((0..self.jobs.len()).map(Action::Delete));
        for (number, session) in self.sessions.iter().enumerate() {
            match (session.is_over, session.is_invalid) {
                (true, _) => actions.push(Action::Learn(number)),
                (false, true) => actions.extend([Action::Confirm(number), Action::Expire(number)]),
                (false, false) if self.faults.lapses > 0 => actions.push(Action::Lapse(number)),
                (false, false) => {}
            }
        }
        if self.directory.is_some() {
            if self.faults.wipes > 0 {
                actions.push(Action::Wipe);
            }
            if self.nodes.is_empty() {
                actions.push(Action::Sweep);
            }
        }
        actions
    }

    fn is_calm(action: Action) -> bool {
        !matches!(
            action,
            Action::Lose(_) | Action::Cancel(_) | Action::Lapse(_) | Action::Expire(_) | Action::Wipe
        )
    }

    fn can_step(&self, session: &Session, who: usize, own: &Own, task: &Task) -> bool {
        match task {
            Task::Ready { .. } | Task::Lists { .. } | Task::Listed { .. } => true,
            Task::WantsTurn { .. } => session.lister.is_none(),
            Task::Unconfirmed => !session.is_invalid,
            Task::Parked { before, .. } => {
                let is_over = |name: &Name| !self.stands(name);
                let is_stirred = session.lines[&own.line].waiting().any(|it| it.who == who && it.is_stirred);
                is_stirred
                    || before.as_ref().is_some_and(|theirs| {
                        is_over(&theirs.name) || theirs.ahead.as_ref().is_some_and(is_over)
                    })
            }
        }
    }

    fn stands(&self, name: &Name) -> bool {
        self.nodes.iter().any(|node| node.name == *name)
    }

    fn after(&self, setup: &Setup, action: Action) -> Self {
        let mut next = self.clone();
        match action {
            Action::Start(who) => next.contenders[who].phase = Phase::Asked,
            Action::Create(who) => next.create(setup, who, None),
            Action::CreateWith(who, job) => {
                let job = next.delete(job);
                next.create(setup, who, job.made_in);
            }
            Action::Lose(who) => {
                next.faults.losses -= 1;
                if let Phase::Made { is_alone, .. } = &mut next.contenders[who].phase {
                    *is_alone = false;
                }
            }
            Action::Deliver(who) => next.deliver(setup, who),
            Action::Step(who) => next.step(setup, who),
            Action::Gone(who) => next.gone(setup, who),
            Action::Cancel(who) => {
                next.faults.cancels -= 1;
                next.cancel(setup, who);
            }
            Action::Release(who) => next.release(setup, who),
            Action::Delete(job) => {
                if next.delete(job).with_directory && next.nodes.is_empty() {
                    next.directory = None;
                }
            }
            Action::Lapse(session) => {
                next.faults.lapses -= 1;
                next.sessions[session].is_invalid = true;
                for who in next.of(setup, session) {
                    if let Phase::Held { ended, .. } = &mut next.contenders[who].phase {
                        *ended = true;
                    }
                }
            }
            Action::Confirm(session) => next.sessions[session].is_invalid = false,
            Action::Expire(session) => {
                next.sessions[session].is_over = true;
                next.nodes.retain(|node| setup.session_of[node.who] != session);
            }
            Action::Learn(session) => {
                for who in next.of(setup, session) {
                    match next.contenders[who].phase {
                        Phase::Made { is_cancelled: true, .. } | Phase::Held { .. } | Phase::Done => {
                            next.contenders[who].phase = Phase::Done;
                        }
                        _ => next.restart(who),
                    }
                }
                next.sessions[session] = Session::default();
            }
            Action::Wipe => {
                next.faults.wipes -= 1;
                next.nodes.clear();
                next.directory = None;
            }
            Action::Sweep => next.directory = None,
        }
        next.tidy(setup);
        next
    }

    fn of(&self, setup: &Setup, session: usize) -> Vec<usize> {
        (0..self.contenders.len()).filter(|&who| setup.session_of[who] == session).collect()
    }

    fn restart(&mut self, who: usize) {
        let contender = &mut self.contenders[who];
        *contender = Contender { attempt: contender.attempt + 1, phase: Phase::Idle };
    }

    fn delete(&mut self, job: usize) -> Job {
        let job = self.jobs.remove(job);
        self.nodes.retain(|node| node.name != job.name);
        job
    }

    /// `left`: the directory that a node of ours leaves at the same time.
    fn create(&mut self, setup: &Setup, who: usize, left: Option<u8>) {
        let (directory, counter) = self.directory.unwrap_or_else(|| {
            self.directories += 1;
            self.sessions[setup.session_of[who]].made = Some(self.directories);
            (self.directories, 0)
        });
        self.directory = Some((directory, counter + 1));
        let uuid = Uuid::from_u128((who as u128) << 8 | u128::from(self.contenders[who].attempt));
        let name: Name = format!("{}{counter:010}", nodes::prefix(uuid)).into();
        self.nodes.push(Node { name: name.clone(), who });
        // Where a node of ours stood, or is believed to stand, nothing is asked of the directory.
        let last = self.sessions[setup.session_of[who]].last;
        let believed = left.or_else(|| last.filter(|&last| self.is_occupied(setup, who, last)));
        let own = Own { name, sequence: counter, line: believed.unwrap_or(directory), is_seen_gone: false };
        let is_alone = believed.is_none() && self.nodes.len() == 1;
        self.contenders[who].phase = Phase::Made { own, is_alone, is_cancelled: false };
    }

    fn is_occupied(&self, setup: &Setup, who: usize, line: u8) -> bool {
        self.of(setup, setup.session_of[who]).into_iter().any(|other| {
            matches!(&self.contenders[other].phase,
                Phase::Queued { own, .. } | Phase::Held { own, .. } if own.line == line && !own.is_seen_gone)
        })
    }

    fn deliver(&mut self, setup: &Setup, who: usize) {
        let Phase::Made { mut own, is_alone, is_cancelled } = self.contenders[who].phase.clone() else {
            return;
        };
        let session = &mut self.sessions[setup.session_of[who]];
        if is_cancelled {
            self.take_away(setup, who, own);
            return;
        }
        if session.last.is_none_or(|last| last < own.line) {
            session.last = Some(own.line);
        }
        let is_known = session.last == Some(own.line);
        if !is_known || !session.lines.entry(own.line).or_default().takes(own.sequence) {
            // A line of its own.
            own.line = Self::own_line(who);
        }
        let entrant = Entrant { who, name: own.name.clone(), is_stirred: false };
        session.lines.entry(own.line).or_default().enter(own.sequence, is_alone, entrant);
        let line = own.line;
        self.contenders[who].phase = Phase::Queued { own, task: Task::Ready { is_missed: false } };
        self.advance(setup, setup.session_of[who], line);
    }

    /// As [`Line`](super::super::line::Line) does.
    fn advance(&mut self, setup: &Setup, session: usize, line: u8) {
        while let Some((sequence, entrant)) = self.line(session, line).next() {
            let is_invalid = self.sessions[session].is_invalid || self.sessions[session].is_over;
            if is_invalid && setup.mutation != Some(Mutation::PassUnchecked) {
                self.line(session, line).put_back(sequence, entrant);
                continue;
            }
            let Phase::Queued { own, .. } = self.contenders[entrant.who].phase.clone() else {
                unreachable!("only who waits is granted")
            };
            self.check_grant(setup, entrant.who, &own);
            // What it was listing tells it nothing any more.
            self.stop_listing(session, entrant.who);
            self.contenders[entrant.who].phase = Phase::Held { own, ended: false };
        }
    }

    fn line(&mut self, session: usize, line: u8) -> &mut Order<Entrant> {
        self.sessions[session].lines.entry(line).or_default()
    }

    fn check_grant(&mut self, setup: &Setup, who: usize, own: &Own) {
        if setup.faults.wipes > 0 {
            return;
        }
        let holds = |phase: &Phase| matches!(phase, Phase::Held { ended: false, .. });
        if self.contenders.iter().any(|contender| holds(&contender.phase)) {
            self.wrong = Some("two hold");
        }
        let position = self.nodes.iter().position(|node| node.name == own.name);
        let before = self.nodes[..position.unwrap_or(0)].iter().filter(|node| node.who != who);
        let waits =
            |phase: &Phase| matches!(phase, Phase::Queued { .. } | Phase::Made { is_cancelled: false, .. });
        if before.into_iter().any(|node| waits(&self.contenders[node.who].phase)) {
            self.wrong = Some("out of order");
        }
        if position.is_none() {
            self.wrong = Some("granted without a node");
        }
    }

    fn step(&mut self, setup: &Setup, who: usize) {
        let number = setup.session_of[who];
        let Phase::Queued { own, task } = self.contenders[who].phase.clone() else { return };
        let names: Vec<Name> = self.nodes.iter().map(|node| node.name.clone()).collect();
        let is_there = |name: &Name| names.contains(name);
        let session = &mut self.sessions[number];
        let line = session.lines.entry(own.line).or_default();
        let mut change = None;
        let task = match task {
            Task::Ready { is_missed } => match line.before(own.sequence).cloned() {
                Some(Before::Unknown) => Task::WantsTurn { number: line.next_survey(), synced: is_missed },
                Some(Before::Missing) if !is_missed => {
                    Task::WantsTurn { number: line.next_survey(), synced: true }
                }
                Some(Before::Missing) => return self.gone(setup, who),
                Some(Before::Unconfirmed) => Task::Unconfirmed,
                Some(Before::Theirs(theirs)) if !is_there(&theirs.name) => {
                    change = Some(theirs);
                    Task::Ready { is_missed }
                }
                Some(Before::Theirs(theirs))
                    if !theirs.is_first && theirs.ahead.as_ref().is_some_and(|ahead| !is_there(ahead)) =>
                {
                    line.is(own.sequence, Before::Unknown);
                    Task::Ready { is_missed }
                }
                Some(Before::Theirs(theirs)) => Task::Parked { before: Some(theirs), is_missed },
                Some(Before::Ours(_)) => Task::Parked { before: None, is_missed },
                None => unreachable!("who is granted does not wait"),
            },
            Task::WantsTurn { number, synced } if line.is_surveyed(number, synced) => {
                Task::Ready { is_missed: synced }
            }
            Task::WantsTurn { synced, .. } => {
                session.lister = Some(who);
                Task::Lists { number: line.start_survey(), synced }
            }
            Task::Lists { number, synced } => Task::Listed { number, synced, names },
            Task::Listed { number: listing, synced, names } => {
                session.lister = None;
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                line.finish_survey(listing, synced, &names);
                self.contenders[who].phase =
                    Phase::Queued { own: own.clone(), task: Task::Ready { is_missed: synced } };
                return self.advance(setup, number, own.line);
            }
            Task::Parked { before, is_missed } => {
                match before {
                    Some(theirs) if !is_there(&theirs.name) => change = Some(theirs),
                    Some(theirs) if theirs.ahead.as_ref().is_some_and(|ahead| !is_there(ahead)) => {
                        line.is(own.sequence, Before::Unknown);
                    }
                    _ => {}
                }
                Task::Ready { is_missed }
            }
            Task::Unconfirmed => {
                line.is(own.sequence, Before::Unknown);
                Task::Ready { is_missed: false }
            }
        };
        let line_number = own.line;
        let sequence = own.sequence;
        self.contenders[who].phase = Phase::Queued { own, task };
        if let Some(theirs) = change {
            if theirs.is_first || setup.mutation == Some(Mutation::AlwaysFirst) {
                self.line(number, line_number).is_first(sequence);
            } else {
                self.line(number, line_number).is(sequence, Before::Unknown);
            }
            self.advance(setup, number, line_number);
        }
    }

    fn gone(&mut self, setup: &Setup, who: usize) {
        match &mut self.contenders[who].phase {
            Phase::Held { own, ended } => (own.is_seen_gone, *ended) = (true, true),
            Phase::Queued { own, .. } => {
                let (line, sequence) = (own.line, own.sequence);
                self.restart(who);
                self.withdraw(setup, who, line, sequence, true);
            }
            _ => {}
        }
    }

    fn withdraw(&mut self, setup: &Setup, who: usize, line: u8, sequence: i32, is_gone: bool) {
        let session = setup.session_of[who];
        self.stop_listing(session, who);
        let behind = self.behind(session, line, sequence);
        let behind = behind.filter(|_| setup.mutation == Some(Mutation::RelinkToOver));
        self.line(session, line).withdraw(sequence, is_gone);
        if let Some(Phase::Queued { own, .. }) = behind.map(|behind| self.contenders[behind].phase.clone()) {
            self.line(session, line).is(own.sequence, Before::Ours(sequence));
        }
        self.advance(setup, session, line);
    }

    fn stop_listing(&mut self, session: usize, who: usize) {
        let lister = &mut self.sessions[session].lister;
        *lister = lister.filter(|&lister| lister != who);
    }

    /// Who waits in memory for `sequence`.
    fn behind(&mut self, session: usize, line: u8, sequence: i32) -> Option<usize> {
        let order = self.sessions[session].lines.get(&line)?;
        self.contenders.iter().position(|contender| match &contender.phase {
            Phase::Queued { own, .. } if own.line == line => {
                order.before(own.sequence) == Some(&Before::Ours(sequence))
            }
            _ => false,
        })
    }

    fn cancel(&mut self, setup: &Setup, who: usize) {
        match self.contenders[who].phase.clone() {
            Phase::Made { own, is_alone, .. } => {
                self.contenders[who].phase = Phase::Made { own, is_alone, is_cancelled: true };
            }
            Phase::Queued { own, .. } => {
                let (line, sequence) = (own.line, own.sequence);
                self.take_away(setup, who, own);
                self.withdraw(setup, who, line, sequence, false);
            }
            _ => {}
        }
    }

    fn release(&mut self, setup: &Setup, who: usize) {
        let Phase::Held { own, .. } = self.contenders[who].phase.clone() else { return };
        let session = setup.session_of[who];
        let (line, sequence, is_gone) = (own.line, own.sequence, own.is_seen_gone);
        let behind = self.behind(session, line, sequence);
        self.take_away(setup, who, own);
        let passes = !is_gone || setup.mutation == Some(Mutation::PassByGone);
        let mut without = self.line(session, line).clone();
        without.leave(sequence, !is_gone);
        let without = without.next().map(|(_, entrant)| entrant.who);
        self.line(session, line).leave(sequence, passes);
        self.advance(setup, session, line);
        // Unless it has seen for itself that its turn has come.
        if is_gone
            && without != behind
            && let Some(Phase::Held { own, .. }) = behind.map(|behind| &self.contenders[behind].phase)
            && !self.stands(&own.name)
        {
            self.wrong = Some("passed on by one whose node is gone, to one whose node is gone too");
        }
        let is_last = !self.is_present(setup, session);
        let order = self.line(session, line);
        let with_directory = is_last && order.is_only_ours();
        if with_directory
            && self.sessions[session].made == Some(line)
            && self.sessions[session].last == Some(line)
        {
            if let Some(job) = self.jobs.last_mut() {
                job.with_directory = true;
            }
            self.sessions[session].last = None;
        }
    }

    fn is_present(&self, setup: &Setup, session: usize) -> bool {
        self.of(setup, session)
            .into_iter()
            .any(|who| !matches!(self.contenders[who].phase, Phase::Idle | Phase::Done))
    }

    /// Hands its node to the janitor.
    fn take_away(&mut self, setup: &Setup, who: usize, own: Own) {
        self.contenders[who].phase = Phase::Done;
        let is_known = own.line < Self::own_line(self.contenders.len());
        self.jobs.push(Job {
            name: own.name,
            session: setup.session_of[who],
            with_directory: false,
            made_in: is_known.then_some(own.line),
        });
    }

    /// The line of one who stands in none.
    fn own_line(who: usize) -> u8 {
        u8::MAX - u8::try_from(who).expect("there are few")
    }

    /// Forgets what nobody looks at any more.
    fn tidy(&mut self, setup: &Setup) {
        for who in 0..self.contenders.len() {
            let Phase::Queued { own, task } = &self.contenders[who].phase else { continue };
            // Who has not looked yet hears of everything when it does.
            if !matches!(task, Task::Parked { .. }) {
                let (line, sequence) = (own.line, own.sequence);
                self.line(setup.session_of[who], line).heard(sequence, |entrant| entrant.is_stirred = false);
            }
        }
        for number in 0..self.sessions.len() {
            let is_present = self.is_present(setup, number);
            let of = self.of(setup, number);
            let lines: Vec<u8> = of
                .iter()
                .filter_map(|&who| match &self.contenders[who].phase {
                    Phase::Queued { own, .. } | Phase::Held { own, .. } => Some(own.line),
                    _ => None,
                })
                .collect();
            let surveys = of.iter().any(|&who| {
                matches!(
                    self.contenders[who].phase,
                    Phase::Queued {
                        task: Task::WantsTurn { .. } | Task::Lists { .. } | Task::Listed { .. },
                        ..
                    }
                )
            });
            let session = &mut self.sessions[number];
            if !is_present {
                session.made = None;
            }
            if session.is_over {
                session.last = None;
            }
            session.lines.retain(|line, _| lines.contains(line) || session.last == Some(*line));
            if !surveys {
                session.lines.values_mut().for_each(Order::forget_surveys);
            }
        }
        let nodes = &self.nodes;
        self.jobs.retain(|job| nodes.iter().any(|node| node.name == job.name));
        self.jobs.sort();
    }

    fn is_settled(&self) -> bool {
        self.nodes.is_empty() && self.contenders.iter().all(|contender| contender.phase == Phase::Done)
    }
}

/// How many states there are; or the promise that is broken, and the way there.
fn explore(setup: &Setup) -> Result<usize, String> {
    let mut states = vec![State::new(setup)];
    let mut found: HashMap<State, usize, BuildHasherDefault<Mix>> = HashMap::default();
    found.insert(states[0].clone(), 0);
    let mut from: Vec<Option<(usize, Action)>> = vec![None];
    let mut calm: Vec<Vec<usize>> = vec![];
    let way = |states: &[State], from: &[Option<(usize, Action)>], mut index: usize| {
        let mut way = vec![format!("{:#?}", states[index])];
        while let Some((before, action)) = from[index] {
            way.push(format!("{action:?}"));
            index = before;
        }
        way.reverse();
        way.join("\n")
    };
    let mut index = 0;
    while index < states.len() {
        let state = states[index].clone();
        if let Some(wrong) = state.wrong {
            return Err(format!("{wrong}:\n{}", way(&states, &from, index)));
        }
        calm.push(Vec::new());
        for action in state.actions(setup) {
            let next = state.after(setup, action);
            let number = *found.entry(next.clone()).or_insert_with(|| {
                states.push(next);
                from.push(Some((index, action)));
                states.len() - 1
            });
            if State::is_calm(action) {
                calm[index].push(number);
            }
        }
        index += 1;
    }
    // Whatever happens without faults ends well: taken away from the end, nothing remains.
    let mut open: Vec<usize> = calm.iter().map(Vec::len).collect();
    let mut back = vec![Vec::new(); states.len()];
    for (from, all) in calm.iter().enumerate() {
        for &to in all {
            back[to].push(from);
        }
    }
    let mut good: Vec<usize> =
        (0..states.len()).filter(|&index| open[index] == 0 && states[index].is_settled()).collect();
    let mut is_good = vec![false; states.len()];
    while let Some(index) = good.pop() {
        is_good[index] = true;
        for &before in &back[index] {
            open[before] -= 1;
            if open[before] == 0 {
                good.push(before);
            }
        }
    }
    let is_stuck = |&index: &usize| !is_good[index];
    let stuck = (0..states.len())
        .filter(is_stuck)
        .find(|&index| open[index] == 0)
        .or_else(|| (0..states.len()).find(is_stuck));
    match stuck {
        Some(index) => Err(format!("somebody waits for ever:\n{}", way(&states, &from, index))),
        None => Ok(states.len()),
    }
}

const NONE: Faults = Faults { losses: 0, cancels: 0, lapses: 0, wipes: 0 };
const TWO_AND_ONE: &[usize] = &[0, 0, 1];
const THREE_AND_ONE: &[usize] = &[0, 0, 0, 1];

fn keeps(session_of: &'static [usize], faults: Faults) {
    let started = std::time::Instant::now();
    match explore(&Setup { session_of, faults, mutation: None }) {
        Ok(states) => println!("{session_of:?}, {faults:?}: {states} states, {:?}", started.elapsed()),
        Err(found) => panic!("{faults:?}: {found}"),
    }
}

fn breaks(promise: &str, mutation: Mutation, faults: Faults) {
    for session_of in [TWO_AND_ONE, THREE_AND_ONE] {
        if let Err(found) = explore(&Setup { session_of, faults, mutation: Some(mutation) }) {
            assert!(found.starts_with(promise), "{mutation:?}: {found}");
            return;
        }
    }
    panic!("{mutation:?}: nothing was found");
}

#[test]
fn all_are_served_in_order() {
    keeps(TWO_AND_ONE, NONE);
    keeps(TWO_AND_ONE, Faults { losses: 1, ..NONE });
}

#[test]
fn one_withdraws() {
    keeps(TWO_AND_ONE, Faults { cancels: 1, ..NONE });
}

#[test]
fn a_session_lapses_or_ends() {
    keeps(&[0, 0], Faults { lapses: 1, ..NONE });
    keeps(&[0, 1], Faults { lapses: 1, ..NONE });
}

#[test]
fn nobody_waits_for_ever_in_a_directory_that_was_deleted() {
    keeps(&[0, 0], Faults { wipes: 1, ..NONE });
    keeps(&[0, 1], Faults { wipes: 1, ..NONE });
}

#[test]
fn what_is_wrong_is_found() {
    let gone = "passed on by one whose node is gone";
    breaks("two hold", Mutation::PassUnchecked, Faults { lapses: 1, ..NONE });
    breaks(gone, Mutation::PassByGone, Faults { wipes: 1, ..NONE });
    breaks("out of order", Mutation::AlwaysFirst, Faults { cancels: 1, ..NONE });
    breaks("somebody waits for ever", Mutation::RelinkToOver, Faults { cancels: 1, ..NONE });
}

/// Minutes. With `ZKLOCK_MODEL=deep`.
#[test]
fn deep() {
    if std::env::var_os("ZKLOCK_MODEL").is_some_and(|depth| depth == "deep") {
        keeps(TWO_AND_ONE, Faults { losses: 1, cancels: 2, ..NONE });
        keeps(TWO_AND_ONE, Faults { lapses: 1, ..NONE });
        keeps(TWO_AND_ONE, Faults { wipes: 1, ..NONE });
        keeps(TWO_AND_ONE, Faults { lapses: 1, cancels: 1, ..NONE });
    }
}
