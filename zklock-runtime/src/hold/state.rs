use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::error::LostReason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    /// COMMIT is on its way, of this hold or of one nested in it: its answer decides, nobody can take the hold.
    Committing,
    Released,
    Ended(LostReason),
}

/// The state of a hold, and how many holds that are nested in it have a COMMIT on its way: one word, so that a hold is
/// never taken at the moment when one starts.
#[derive(Debug)]
pub(super) struct Word(AtomicU32);

/// Why a step was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A nested COMMIT is on its way.
    Committing,
    /// It is in another state.
    Elsewhere(State),
}

/// What a COMMIT asks of the holds around its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outer {
    Held,
    /// Or released, and kept for the transaction; or committing as a part of the same.
    Kept,
}

const NESTED: u32 = 1 << 8;

impl Word {
    pub(super) fn held() -> Self {
        Self(AtomicU32::new(u32::from(State::Held.code())))
    }

    pub(super) fn state(&self) -> State {
        let word = self.0.load(SeqCst);
        match own(word) {
            State::Held if word >= NESTED => State::Committing,
            state => state,
        }
    }

    /// From one state to another, whatever is nested.
    pub(super) fn step(&self, from: State, to: State) -> Result<(), State> {
        self.change(
            |word| {
                if own(word) == from { Ok(nested(word) | u32::from(to.code())) } else { Err(own(word)) }
            },
        )
    }

    /// `Held -> Ended`, unless a nested COMMIT is on its way.
    pub(super) fn end(&self, reason: LostReason) -> Result<(), Refusal> {
        self.change(|word| match own(word) {
            State::Held if word >= NESTED => Err(Refusal::Committing),
            State::Held => Ok(u32::from(State::Ended(reason).code())),
            state => Err(Refusal::Elsewhere(state)),
        })
    }

    /// A COMMIT nested in this hold is about to be sent.
    pub(super) fn enter_commit(&self, outer: Outer) -> Result<(), State> {
        self.change(|word| match own(word) {
            State::Held => Ok(word + NESTED),
            State::Committing | State::Released if outer == Outer::Kept => Ok(word + NESTED),
            state => Err(state),
        })
    }

    /// It is over.
    pub(super) fn leave_commit(&self) {
        self.0.fetch_sub(NESTED, SeqCst);
    }

    pub(super) fn is_committing_inside(&self) -> bool {
        self.0.load(SeqCst) >= NESTED
    }

    fn change<E>(&self, next: impl Fn(u32) -> Result<u32, E>) -> Result<(), E> {
        let mut word = self.0.load(SeqCst);
        loop {
            match self.0.compare_exchange_weak(word, next(word)?, SeqCst, SeqCst) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }
}

fn own(word: u32) -> State {
    State::from_code(word.to_le_bytes()[0])
}

fn nested(word: u32) -> u32 {
    word & !(NESTED - 1)
}

impl State {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Committing => 1,
            Self::Released => 2,
            Self::Ended(LostReason::Unconfirmed) => 3,
            Self::Ended(LostReason::SessionExpired) => 4,
            Self::Ended(LostReason::NodeGone) => 5,
            Self::Ended(LostReason::Overrun) => 6,
            Self::Ended(LostReason::Closed) => 7,
            Self::Ended(LostReason::Released) => 8,
        }
    }

    pub(super) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Held,
            1 => Self::Committing,
            2 => Self::Released,
            3 => Self::Ended(LostReason::Unconfirmed),
            4 => Self::Ended(LostReason::SessionExpired),
            5 => Self::Ended(LostReason::NodeGone),
            6 => Self::Ended(LostReason::Overrun),
            7 => Self::Ended(LostReason::Closed),
            _ => Self::Ended(LostReason::Released),
        }
    }
}
