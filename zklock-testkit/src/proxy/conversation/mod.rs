//! What client and server say to each other, as far as rules need it. No I/O here: bytes go in, and
//! out comes what is to be done.

mod frames;
mod mysql;
mod postgres;
mod zookeeper;

use self::mysql::MySql;
use self::postgres::Postgres;
use self::zookeeper::ZooKeeper;
use super::rule::{Rule, Rules};

/// What to do next in one direction.
#[derive(Debug)]
pub(crate) enum Step {
    /// Pass this on.
    Forward(Vec<u8>),
    /// Wait until the rule lets go.
    Hold(Rule),
    /// End the connection.
    Cut(Rule),
}

/// One connection's protocol and where it stands.
#[derive(Debug)]
pub(crate) enum Conversation {
    /// Nobody has said enough yet; what the client said so far.
    Unknown(Vec<u8>),
    ZooKeeper(ZooKeeper),
    Postgres(Postgres),
    MySql(MySql),
    /// A protocol that rules know nothing of, or one that is encrypted.
    Raw,
    /// Between two ZooKeeper servers: in its first message a server says how it can be called back,
    /// which must not lead past the proxies.
    Election {
        introduction: Vec<u8>,
        address: String,
        instead: String,
    },
}

impl Conversation {
    pub(crate) fn new() -> Self {
        Self::Unknown(Vec::new())
    }

    /// What the client says. Rules are asked here, before the server can answer.
    pub(crate) fn client_says(&mut self, bytes: &[u8], rules: &Rules) -> Vec<Step> {
        match self {
            Self::Unknown(said) => {
                said.extend(bytes);
                let said = std::mem::take(said);
                let Some(conversation) = by_first_words(&said) else {
                    *self = Self::Unknown(said);
                    return Vec::new();
                };
                *self = conversation;
                self.client_says(&said, rules)
            }
            Self::ZooKeeper(zookeeper) => zookeeper.client_says(bytes, rules),
            Self::Postgres(postgres) => postgres.client_says(bytes, rules),
            Self::MySql(mysql) => mysql.client_says(bytes, rules),
            Self::Raw => vec![Step::Forward(bytes.to_vec())],
            Self::Election { introduction, address, instead } => {
                introduction.extend(bytes);
                let Some(introduced) = introduce(introduction, address, instead) else { return Vec::new() };
                *self = Self::Raw;
                vec![Step::Forward(introduced)]
            }
        }
    }

    /// What the server says.
    pub(crate) fn server_says(&mut self, bytes: &[u8]) -> Vec<Step> {
        match self {
            // Of the protocols known here, only in this one the server begins.
            Self::Unknown(said) if said.is_empty() => {
                *self = Self::MySql(MySql::default());
                self.server_says(bytes)
            }
            Self::ZooKeeper(zookeeper) => zookeeper.server_says(bytes),
            Self::Postgres(postgres) => postgres.server_says(bytes),
            Self::MySql(mysql) => mysql.server_says(bytes),
            Self::Unknown(_) | Self::Raw | Self::Election { .. } => vec![Step::Forward(bytes.to_vec())],
        }
    }
}

/// The protocol, as soon as the client has said enough.
fn by_first_words(said: &[u8]) -> Option<Conversation> {
    const LONGEST_GREETING: u32 = 10_000;

    // Greetings are short, so the first byte of their length tells other protocols already, and
    // ZooKeeper's four-letter words.
    if *said.first()? != 0 {
        return Some(Conversation::Raw);
    }
    let (length, rest) = said.split_first_chunk()?;
    if u32::from_be_bytes(*length) > LONGEST_GREETING {
        return Some(Conversation::Raw);
    }
    Some(match i32::from_be_bytes(*rest.first_chunk()?) {
        0 => Conversation::ZooKeeper(ZooKeeper::default()),
        code if postgres::begins_with(code) => Conversation::Postgres(Postgres::default()),
        _ => Conversation::Raw,
    })
}

/// Version (8 bytes), server number (8), length (4), address: see `QuorumCnxManager.InitialMessage`.
fn introduce(introduction: &[u8], address: &str, instead: &str) -> Option<Vec<u8>> {
    const HEAD: usize = 20;

    let length = u32::from_be_bytes(*introduction.get(HEAD - 4..)?.first_chunk()?) as usize;
    let (own, rest) = introduction.get(HEAD..)?.split_at_checked(length)?;
    let replaced = String::from_utf8_lossy(own).replace(address, instead);
    let mut introduced = introduction[..HEAD - 4].to_vec();
    introduced.extend(u32::try_from(replaced.len()).ok()?.to_be_bytes());
    introduced.extend(replaced.as_bytes());
    introduced.extend(rest);
    Some(introduced)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All the bytes that steps let through.
    pub(super) fn forwarded(steps: &[Step]) -> Vec<u8> {
        let bytes = steps.iter().filter_map(|step| match step {
            Step::Forward(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    #[test]
    fn passes_on_what_it_does_not_know() {
        let mut conversation = Conversation::new();
        let rules = Rules::default();
        assert_eq!(forwarded(&conversation.client_says(b"ru", &rules)), b"ru");
        assert_eq!(forwarded(&conversation.client_says(b"ok", &rules)), b"ok");
        assert_eq!(forwarded(&conversation.server_says(b"imok")), b"imok");
    }

    #[test]
    fn a_server_is_called_back_through_the_proxy() {
        let mut said = [0xff; 8].to_vec();
        said.extend(1_i64.to_be_bytes());
        said.extend(14_u32.to_be_bytes());
        said.extend(b"127.0.0.1:9999");
        let mut wanted = said[..16].to_vec();
        wanted.extend(15_u32.to_be_bytes());
        wanted.extend(b"127.0.0.1:10001...");
        let mut conversation = Conversation::Election {
            introduction: Vec::new(),
            address: "127.0.0.1:9999".into(),
            instead: "127.0.0.1:10001".into(),
        };
        let rules = Rules::default();
        assert_eq!(forwarded(&conversation.client_says(&said[..25], &rules)), b"");
        let mut rest = said[25..].to_vec();
        rest.extend(b"...");
        assert_eq!(forwarded(&conversation.client_says(&rest, &rules)), wanted);
        assert_eq!(forwarded(&conversation.client_says(b"more", &rules)), b"more");
    }
}
