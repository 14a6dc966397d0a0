use std::collections::HashMap;

use super::Step;
use super::frames::Frames;
use crate::proxy::request::Seen;
use crate::proxy::rule::{Action, Rule, Rules};

/// The protocol of MySQL and MariaDB: length (3 bytes), a sequence number that begins with 0 at each
/// command, then the command. The answer's first packet has number 1.
#[derive(Debug, Default)]
pub(crate) struct MySql {
    requests: Frames,
    answers: Frames,
    encrypted: bool,
    asked: u64,
    answered: u64,
    last_number: u8,
    awaited: Option<(u64, Rule)>,
    /// The statement being prepared, by the answer that will tell its number.
    preparing: Option<(u64, Vec<u8>)>,
    statements: HashMap<u32, Vec<u8>>,
}

const HEAD: usize = 4;

mod command {
    pub(super) const QUIT: u8 = 0x01;
    pub(super) const QUERY: u8 = 0x03;
    pub(super) const PREPARE: u8 = 0x16;
    pub(super) const EXECUTE: u8 = 0x17;
    pub(super) const SEND_LONG_DATA: u8 = 0x18;
    pub(super) const CLOSE: u8 = 0x19;
}

impl MySql {
    pub(crate) fn client_says(&mut self, bytes: &[u8], rules: &Rules) -> Vec<Step> {
        if self.encrypted {
            return vec![Step::Forward(bytes.to_vec())];
        }
        self.requests.add(bytes);
        let mut steps = Vec::new();
        while let Some(packet) = self.requests.next(length) {
            self.encrypted |= asks_for_encryption(&packet);
            let rule = self.execution(&packet).and_then(|sql| rules.meet(&Seen::Sql(sql)));
            self.note_request(&packet);
            match rule.as_ref().map(Rule::action) {
                Some(Action::DropRequest) => {
                    steps.extend(rule.map(Step::Cut));
                    return steps;
                }
                Some(Action::HoldRequest) => steps.extend(rule.map(Step::Hold)),
                Some(Action::SwallowReply | Action::HoldReply) => {
                    self.awaited = rule.map(|rule| (self.asked, rule));
                }
                Some(Action::Count) | None => {}
            }
            steps.push(Step::Forward(packet));
        }
        if self.encrypted {
            steps.push(Step::Forward(self.requests.rest()));
        }
        steps
    }

    pub(crate) fn server_says(&mut self, bytes: &[u8]) -> Vec<Step> {
        if self.encrypted {
            return vec![Step::Forward(bytes.to_vec())];
        }
        self.answers.add(bytes);
        let mut steps = Vec::new();
        while let Some(packet) = self.answers.next(length) {
            // A long answer comes by number 1 again, after 255 and 0.
            let begins = packet[3] == 1 && self.last_number != 0;
            self.last_number = packet[3];
            if begins {
                self.answered += 1;
                self.note_prepared(&packet);
                let answered = self.answered;
                if let Some((_, rule)) = self.awaited.take_if(|(awaited, _)| *awaited == answered) {
                    if rule.action() == Action::SwallowReply {
                        steps.push(Step::Cut(rule));
                        return steps;
                    }
                    steps.push(Step::Hold(rule));
                }
            }
            steps.push(Step::Forward(packet));
        }
        steps
    }

    /// The statement that a packet executes.
    fn execution<'a>(&'a self, packet: &'a [u8]) -> Option<&'a [u8]> {
        match command(packet)? {
            (command::QUERY, sql) => Some(sql),
            (command::EXECUTE, rest) => self.statements.get(&statement(rest)?).map(Vec::as_slice),
            _ => None,
        }
    }

    fn note_request(&mut self, packet: &[u8]) {
        match command(packet) {
            None | Some((command::QUIT | command::SEND_LONG_DATA, _)) => {}
            Some((command::CLOSE, rest)) => {
                statement(rest).map(|number| self.statements.remove(&number));
            }
            Some((command, rest)) => {
                self.asked += 1;
                if command == command::PREPARE {
                    self.preparing = Some((self.asked, rest.to_vec()));
                }
            }
        }
    }

    fn note_prepared(&mut self, packet: &[u8]) {
        let answered = self.answered;
        let Some((_, sql)) = self.preparing.take_if(|(asked, _)| *asked == answered) else { return };
        if let Some((0, rest)) =
            packet.get(HEAD..).and_then(|body| body.split_first().map(|(ok, rest)| (*ok, rest)))
            && let Some(number) = statement(rest)
        {
            self.statements.insert(number, sql);
        }
    }
}

fn length(bytes: &[u8]) -> Option<usize> {
    let [a, b, c, _] = bytes.first_chunk::<HEAD>()?;
    Some(HEAD + u32::from_le_bytes([*a, *b, *c, 0]) as usize)
}

/// Its kind and what follows, if this is a command; what belongs to connecting has other numbers.
fn command(packet: &[u8]) -> Option<(u8, &[u8])> {
    let (kind, rest) = packet.get(HEAD..)?.split_first()?;
    (packet[3] == 0).then_some((*kind, rest))
}

/// The first answer of a client that goes on encrypted is short, and says so.
fn asks_for_encryption(packet: &[u8]) -> bool {
    const CLIENT_SSL: u32 = 0x800;

    let flags =
        packet.get(HEAD..).and_then(<[u8]>::first_chunk).map_or(0, |flags| u32::from_le_bytes(*flags));
    packet[3] == 1 && packet.len() == HEAD + 32 && flags & CLIENT_SSL != 0
}

fn statement(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|number| u32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::super::tests::forwarded;
    use super::*;

    fn packet(number: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = body.len().to_le_bytes()[..3].to_vec();
        packet.push(number);
        packet.extend(body);
        packet
    }

    fn connected(rules: &Rules) -> MySql {
        let mut mysql = MySql::default();
        mysql.server_says(&packet(0, b"\x0a10.11"));
        mysql.client_says(&packet(1, &[0; 40]), rules);
        mysql.server_says(&packet(2, b"\0\0\0"));
        mysql
    }

    #[test]
    fn swallows_the_answer_and_nothing_before() {
        let rules = Rules::default();
        let mut mysql = connected(&rules);
        rules.add("COMMIT".into(), 1, Action::SwallowReply);
        let both = [packet(0, b"\x03SELECT 1"), packet(0, b"\x03COMMIT")].concat();
        assert_eq!(forwarded(&mysql.client_says(&both, &rules)), both);
        // So long that its numbers come round.
        let numbers = (1..=255).chain(0..=255).chain(0..=100);
        let long: Vec<u8> = numbers.flat_map(|number| packet(number, b"row")).collect();
        let steps = mysql.server_says(&[long.clone(), packet(1, b"\0ok")].concat());
        assert_eq!(forwarded(&steps), long);
        assert!(matches!(steps.last(), Some(Step::Cut(_))));
    }

    #[test]
    fn knows_a_prepared_statement_when_it_is_executed() {
        let rules = Rules::default();
        let mut mysql = connected(&rules);
        let rule = rules.add("update orders".into(), 1, Action::DropRequest);
        mysql.client_says(&packet(0, b"\x16UPDATE orders SET paid = ?"), &rules);
        mysql.server_says(&packet(1, b"\0\x07\0\0\0rest"));
        assert_eq!(rule.seen(), 0);
        let steps = mysql.client_says(&packet(0, b"\x17\x07\0\0\0rest"), &rules);
        assert!(matches!(&*steps, [Step::Cut(_)]), "{steps:?}");
    }

    #[test]
    fn keeps_out_of_what_is_encrypted() {
        let rules = Rules::default();
        let mut mysql = MySql::default();
        mysql.server_says(&packet(0, b"\x0a10.11"));
        let mut hello = packet(1, &[0; 32]);
        hello[5] = 0x08;
        let said = [hello, b"\x16\x03".to_vec()].concat();
        assert_eq!(forwarded(&mysql.client_says(&said, &rules)), said);
        assert_eq!(forwarded(&mysql.server_says(b"\x16\x03")), b"\x16\x03");
    }
}
