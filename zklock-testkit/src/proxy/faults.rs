use std::time::Duration;

/// Which way bytes go through a [`Proxy`](super::Proxy).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: answers.
    ToClient,
    /// Both ways.
    Both,
}

impl Direction {
    fn covers(self, way: Way) -> bool {
        match self {
            Self::ToServer => way == Way::ToServer,
            Self::ToClient => way == Way::ToClient,
            Self::Both => true,
        }
    }
}

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// What is wrong with the link right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    to_server: Fault,
    to_client: Fault,
    pub(crate) refuse: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fault {
    black_hole: bool,
    delay: Duration,
}

impl Faults {
    pub(crate) fn black_holes(&self, way: Way) -> bool {
        self.of(way).black_hole
    }

    pub(crate) fn delay(&self, way: Way) -> Duration {
        self.of(way).delay
    }

    pub(crate) fn set_black_hole(&mut self, direction: Direction) {
        self.change(direction, |fault| fault.black_hole = true);
    }

    pub(crate) fn set_delay(&mut self, delay: Duration, direction: Direction) {
        self.change(direction, |fault| fault.delay = delay);
    }

    fn of(&self, way: Way) -> &Fault {
        match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        }
    }

    fn change(&mut self, direction: Direction, change: impl Fn(&mut Fault)) {
        if direction.covers(Way::ToServer) {
            change(&mut self.to_server);
        }
        if direction.covers(Way::ToClient) {
            change(&mut self.to_client);
        }
    }
}
