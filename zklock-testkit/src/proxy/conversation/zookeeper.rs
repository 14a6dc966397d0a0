use super::Step;
use super::frames::{Frames, number};
use crate::proxy::request::{Op, Seen};
use crate::proxy::rule::{Action, Rule, Rules};

/// ZooKeeper's client protocol: length, then number of the request (xid) and its kind; the answer
/// carries the same number. The first message each way has neither.
#[derive(Debug, Default)]
pub(crate) struct ZooKeeper {
    requests: Frames,
    answers: Frames,
    client_connected: bool,
    server_connected: bool,
    /// Answers that rules wait for, by the number of their request.
    awaited: Vec<(i32, Rule)>,
}

/// In place of the number that the first message does not have.
const CONNECT: i32 = i32::MIN;

impl ZooKeeper {
    pub(crate) fn client_says(&mut self, bytes: &[u8], rules: &Rules) -> Vec<Step> {
        self.requests.add(bytes);
        let mut steps = Vec::new();
        while let Some(frame) = self.requests.next(length) {
            let (xid, op) = if self.client_connected {
                (
                    number(&frame[4..]).unwrap_or_default(),
                    Op::from_code(frame.get(8..).and_then(number).unwrap_or_default()),
                )
            } else {
                self.client_connected = true;
                (CONNECT, Op::Connect)
            };
            if let Some(rule) = rules.meet(&Seen::Op(op)) {
                match rule.action() {
                    Action::DropRequest => {
                        steps.push(Step::Cut(rule));
                        return steps;
                    }
                    Action::HoldRequest => steps.push(Step::Hold(rule)),
                    Action::SwallowReply | Action::HoldReply => self.awaited.push((xid, rule)),
                    Action::Count => {}
                }
            }
            steps.push(Step::Forward(frame));
        }
        steps
    }

    pub(crate) fn server_says(&mut self, bytes: &[u8]) -> Vec<Step> {
        self.answers.add(bytes);
        let mut steps = Vec::new();
        while let Some(frame) = self.answers.next(length) {
            let xid = if self.server_connected {
                number(&frame[4..]).unwrap_or_default()
            } else {
                self.server_connected = true;
                CONNECT
            };
            if let Some(place) = self.awaited.iter().position(|(awaited, _)| *awaited == xid) {
                let (_, rule) = self.awaited.remove(place);
                if rule.action() == Action::SwallowReply {
                    steps.push(Step::Cut(rule));
                    return steps;
                }
                steps.push(Step::Hold(rule));
            }
            steps.push(Step::Forward(frame));
        }
        steps
    }
}

fn length(bytes: &[u8]) -> Option<usize> {
    number(bytes).map(|length| 4 + length.unsigned_abs() as usize)
}

#[cfg(test)]
mod tests {
    use super::super::tests::forwarded;
    use super::*;

    fn message(parts: &[i32]) -> Vec<u8> {
        let mut message = (i32::try_from(parts.len()).unwrap() * 4).to_be_bytes().to_vec();
        message.extend(parts.iter().flat_map(|part| part.to_be_bytes()));
        message
    }

    #[test]
    fn swallows_the_answer_to_the_nth_of_a_kind() {
        let rules = Rules::default();
        let rule = rules.add(Op::Create.into(), 2, Action::SwallowReply);
        let mut zookeeper = ZooKeeper::default();
        let requests =
            [message(&[0, 9]), message(&[1, 15, 7]), message(&[2, 8]), message(&[3, 1]), message(&[4, 1])]
                .concat();
        // However the bytes come in.
        for part in requests.chunks(3) {
            for step in zookeeper.client_says(part, &rules) {
                assert!(matches!(step, Step::Forward(_)));
            }
        }
        let answers = [message(&[0]), message(&[1, 0]), message(&[-1, 5]), message(&[2, 0])].concat();
        assert_eq!(forwarded(&zookeeper.server_says(&answers)), answers);
        let steps = zookeeper.server_says(&[message(&[3, 0]), message(&[4, 0])].concat());
        assert!(matches!(&*steps, [Step::Cut(_)]), "{steps:?}");
        assert_eq!(rule.seen(), 3);
    }

    #[test]
    fn drops_a_request_but_not_the_ones_before() {
        let rules = Rules::default();
        rules.add(Op::Delete.into(), 1, Action::DropRequest);
        let mut zookeeper = ZooKeeper::default();
        let before = [message(&[0]), message(&[1, 9])].concat();
        let steps = zookeeper.client_says(&[before.clone(), message(&[2, 2])].concat(), &rules);
        assert_eq!(forwarded(&steps), before);
        assert!(matches!(steps.last(), Some(Step::Cut(_))));
    }
}
