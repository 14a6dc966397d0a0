use std::collections::HashMap;

use super::Step;
use super::frames::{Frames, number, text};
use crate::proxy::request::Seen;
use crate::proxy::rule::{Action, Rule, Rules};

/// PostgreSQL's protocol, version 3. What the client sends up to a Query or Sync is answered as a
/// group, which ends with `ReadyForQuery`; so the answers are told apart by counting those.
#[derive(Debug, Default)]
pub(crate) struct Postgres {
    requests: Frames,
    answers: Frames,
    started: bool,
    /// Requests for encryption, each answered with a single byte.
    encryption_asked: u32,
    encrypted: bool,
    /// Groups asked for and groups answered; connecting is the first.
    asked: u64,
    answered: u64,
    /// The answer that a rule waits for, and what has come of it.
    awaited: Option<(u64, Rule)>,
    withheld: Vec<u8>,
    /// The text of prepared statements, and of portals bound to them, by their names.
    statements: HashMap<Vec<u8>, Vec<u8>>,
    portals: HashMap<Vec<u8>, Vec<u8>>,
}

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const VERSION_3: i32 = 3 << 16;

/// Whether a connection that begins so speaks this protocol.
pub(super) fn begins_with(code: i32) -> bool {
    code & !0xffff == VERSION_3 || matches!(code, SSL_REQUEST | GSS_REQUEST)
}

impl Postgres {
    pub(crate) fn client_says(&mut self, bytes: &[u8], rules: &Rules) -> Vec<Step> {
        if self.encrypted {
            return vec![Step::Forward(bytes.to_vec())];
        }
        self.requests.add(bytes);
        let mut steps = Vec::new();
        while let Some(frame) = self.next_request() {
            let rule = self.execution(&frame).and_then(|sql| rules.meet(&Seen::Sql(&sql)));
            match rule.as_ref().map(Rule::action) {
                Some(Action::DropRequest) => {
                    steps.extend(rule.map(Step::Cut));
                    return steps;
                }
                Some(Action::HoldRequest) => steps.extend(rule.map(Step::Hold)),
                // Part of the group that is being asked for, which is not counted yet.
                Some(Action::SwallowReply | Action::HoldReply) => {
                    self.awaited = rule.map(|rule| (self.asked + 1, rule));
                }
                Some(Action::Count) | None => {}
            }
            self.note_request(&frame);
            steps.push(Step::Forward(frame));
        }
        steps
    }

    pub(crate) fn server_says(&mut self, bytes: &[u8]) -> Vec<Step> {
        if self.encrypted {
            return vec![Step::Forward(bytes.to_vec())];
        }
        self.answers.add(bytes);
        let mut steps = Vec::new();
        while let Some(frame) = self.next_answer() {
            let complete = frame.first() == Some(&b'Z') && frame.len() > 1;
            let group = self.answered + 1;
            self.answered += u64::from(complete);
            let Some((_, rule)) = self.awaited.take_if(|(awaited, _)| *awaited == group) else {
                steps.push(Step::Forward(frame));
                continue;
            };
            self.withheld.extend(frame);
            if !complete {
                self.awaited = Some((group, rule));
            } else if rule.action() == Action::SwallowReply {
                steps.push(Step::Cut(rule));
                return steps;
            } else {
                steps.push(Step::Hold(rule));
                steps.push(Step::Forward(std::mem::take(&mut self.withheld)));
            }
        }
        if self.encrypted {
            steps.push(Step::Forward(self.answers.rest()));
        }
        steps
    }

    /// Messages before and including the startup message have no letter in front.
    fn next_request(&mut self) -> Option<Vec<u8>> {
        let letter = usize::from(self.started);
        self.requests.next(|bytes| Some(letter + number(bytes.get(letter..)?)?.unsigned_abs() as usize))
    }

    fn next_answer(&mut self) -> Option<Vec<u8>> {
        if self.encryption_asked == 0 {
            return self.answers.next(|bytes| Some(1 + number(bytes.get(1..)?)?.unsigned_abs() as usize));
        }
        let answer = self.answers.next(|bytes| (!bytes.is_empty()).then_some(1))?;
        self.encryption_asked -= 1;
        self.encrypted = answer != b"N";
        Some(answer)
    }

    /// The statement that a message executes.
    fn execution(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let (letter, body) = self.letter_and_body(frame)?;
        let (first, _) = text(body)?;
        match letter {
            b'Q' => Some(first.to_vec()),
            b'E' => self.portals.get(first).cloned(),
            _ => None,
        }
    }

    fn note_request(&mut self, frame: &[u8]) {
        let Some((letter, body)) = self.letter_and_body(frame) else {
            if let Some(SSL_REQUEST | GSS_REQUEST) = frame.get(4..).and_then(number) {
                self.encryption_asked += 1;
            } else {
                self.started = true;
                self.asked += 1;
            }
            return;
        };
        match letter {
            b'Q' | b'S' | b'F' => self.asked += 1,
            b'P' => {
                if let Some((name, rest)) = text(body)
                    && let Some((sql, _)) = text(rest)
                {
                    self.statements.insert(name.to_vec(), sql.to_vec());
                }
            }
            b'B' => {
                if let Some((portal, rest)) = text(body)
                    && let Some((statement, _)) = text(rest)
                    && let Some(sql) = self.statements.get(statement)
                {
                    self.portals.insert(portal.to_vec(), sql.clone());
                }
            }
            _ => {}
        }
    }

    fn letter_and_body<'a>(&self, frame: &'a [u8]) -> Option<(u8, &'a [u8])> {
        if self.started { Some((*frame.first()?, frame.get(5..)?)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::forwarded;
    use super::*;

    fn message(letter: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![letter];
        message.extend((u32::try_from(body.len()).unwrap() + 4).to_be_bytes());
        message.extend(body);
        message
    }

    fn hello(code: i32) -> Vec<u8> {
        [8_i32.to_be_bytes(), code.to_be_bytes()].concat()
    }

    /// A connection that has come up, with encryption asked for and declined.
    fn connected(rules: &Rules) -> Postgres {
        let mut postgres = Postgres::default();
        postgres.client_says(&hello(SSL_REQUEST), rules);
        assert_eq!(forwarded(&postgres.server_says(b"N")), b"N");
        postgres.client_says(&hello(VERSION_3), rules);
        let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
        assert_eq!(forwarded(&postgres.server_says(&welcome)), welcome);
        postgres
    }

    #[test]
    fn swallows_the_whole_answer_and_nothing_before() {
        let rules = Rules::default();
        let mut postgres = connected(&rules);
        rules.add("commit".into(), 1, Action::SwallowReply);
        let both = [message(b'Q', b"SELECT 1\0"), message(b'Q', b"COMMIT\0")].concat();
        assert_eq!(forwarded(&postgres.client_says(&both, &rules)), both);
        let first = [message(b'D', b"1"), message(b'C', b"SELECT 1\0"), message(b'Z', b"T")].concat();
        let second = [message(b'C', b"COMMIT\0"), message(b'Z', b"I")].concat();
        let (begin, end) = second.split_at(9);
        let steps = postgres.server_says(&[&first, begin].concat());
        assert_eq!(forwarded(&steps), first);
        assert!(matches!(&*postgres.server_says(end), [Step::Cut(_)]));
    }

    #[test]
    fn knows_a_prepared_statement_when_it_is_executed() {
        let rules = Rules::default();
        let mut postgres = connected(&rules);
        let rule = rules.add("UPDATE orders".into(), 1, Action::DropRequest);
        let parse = [message(b'P', b"s1\0UPDATE orders SET paid = $1\0\0\0"), message(b'S', b"")].concat();
        assert_eq!(forwarded(&postgres.client_says(&parse, &rules)), parse);
        assert_eq!(rule.seen(), 0);
        let bind = message(b'B', b"\0s1\0\0\0\0\0\0\0");
        let execute = [message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        let steps = postgres.client_says(&[bind.clone(), execute].concat(), &rules);
        assert_eq!(forwarded(&steps), bind);
        assert!(matches!(steps.last(), Some(Step::Cut(_))));
    }

    #[test]
    fn keeps_out_of_what_is_encrypted() {
        let rules = Rules::default();
        let mut postgres = Postgres::default();
        postgres.client_says(&hello(SSL_REQUEST), &rules);
        assert_eq!(forwarded(&postgres.server_says(b"S")), b"S");
        assert_eq!(forwarded(&postgres.client_says(b"\x16\x03", &rules)), b"\x16\x03");
        assert_eq!(forwarded(&postgres.server_says(b"\x16\x03")), b"\x16\x03");
    }
}
