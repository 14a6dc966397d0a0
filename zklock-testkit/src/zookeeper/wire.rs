//! As much of ZooKeeper's protocol as tests need to look at a server, and to end a session, without
//! the code under test.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

use super::node::Node;

/// `OpCode` of `ZooDefs.java`.
mod opcode {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CLOSE_SESSION: i32 = -11;
}

const NO_NODE: i32 = -101;

/// A session, by a connection of its own. It does not ping, so it is for short use.
#[derive(Debug)]
pub(crate) struct Session {
    stream: TcpStream,
    last_xid: i32,
}

impl Session {
    /// A new session.
    pub(crate) async fn open(server: impl ToSocketAddrs) -> io::Result<Self> {
        Self::attach(server, 0, &[0; 16]).await
    }

    /// Moves an existing session to this connection; id 0 asks for a new one.
    pub(crate) async fn attach(server: impl ToSocketAddrs, id: i64, password: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut hello = Record::default();
        hello.int(0).long(0).int(10_000).long(id).bytes(password).bool(false);
        stream.write_all(&hello.framed()).await?;

        let answer = read_frame(&mut stream).await?;
        let mut answer = Reader(&answer);
        let (_version, timeout) = (answer.int()?, answer.int()?);
        let granted = answer.long()?;
        if timeout <= 0 || (id != 0 && granted != id) {
            return Err(io::Error::other("no such session: it is over already, or the password is wrong"));
        }
        Ok(Self { stream, last_xid: 0 })
    }

    /// Ends the session: the server deletes its ephemeral nodes before it answers.
    pub(crate) async fn close(mut self) -> io::Result<()> {
        self.ask(opcode::CLOSE_SESSION, Record::default()).await.map(drop)
    }

    /// Creates a persistent node that everybody may use.
    pub(crate) async fn create(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        const ALL: i32 = 31;
        const PERSISTENT: i32 = 0;

        let mut body = Record::default();
        body.bytes(path.as_bytes()).bytes(data);
        body.int(1).int(ALL).bytes(b"world").bytes(b"anyone");
        body.int(PERSISTENT);
        self.ask(opcode::CREATE, body).await?.map(drop).map_err(|code| failed("create", path, code))
    }

    /// Deletes a node of any version; false if it was not there.
    pub(crate) async fn delete(&mut self, path: &str) -> io::Result<bool> {
        let mut body = Record::default();
        body.bytes(path.as_bytes()).int(-1);
        match self.ask(opcode::DELETE, body).await? {
            Ok(_) => Ok(true),
            Err(NO_NODE) => Ok(false),
            Err(code) => Err(failed("delete", path, code)),
        }
    }

    /// Deletes a node of any version if another one is there, in one transaction; false if either was not there.
    pub(crate) async fn delete_while(&mut self, path: &str, other: &str) -> io::Result<bool> {
        let mut body = Record::default();
        for (opcode, path) in [(opcode::CHECK, other), (opcode::DELETE, path)] {
            body.int(opcode).bool(false).int(-1);
            body.bytes(path.as_bytes()).int(-1);
        }
        body.int(-1).bool(true).int(-1);
        let answer = match self.ask(opcode::MULTI, body).await? {
            Ok(answer) => answer,
            Err(NO_NODE) => return Ok(false),
            Err(code) => return Err(failed("multi", path, code)),
        };
        // The answer to the check: its kind, or that of an error.
        match Reader(&answer).int()? {
            opcode::CHECK => Ok(true),
            _ => Ok(false),
        }
    }

    /// The node with its data, if it is there.
    pub(crate) async fn node(&mut self, path: &str) -> io::Result<Option<Node>> {
        let mut body = Record::default();
        body.bytes(path.as_bytes()).bool(false);
        let answer = match self.ask(opcode::GET_DATA, body).await? {
            Ok(answer) => answer,
            Err(NO_NODE) => return Ok(None),
            Err(code) => return Err(failed("getData", path, code)),
        };
        let mut answer = Reader(&answer);
        let data = answer.bytes()?.to_vec();
        let (czxid, mzxid) = (answer.long()?, answer.long()?);
        let (_ctime, _mtime) = (answer.long()?, answer.long()?);
        let (version, _cversion, _aversion) = (answer.int()?, answer.int()?, answer.int()?);
        let ephemeral_owner = answer.long()?;
        let (_length, children) = (answer.int()?, answer.int()?);
        Ok(Some(Node { data, czxid, mzxid, version, ephemeral_owner, children }))
    }

    /// The names of its children, sorted; none if it is not there.
    pub(crate) async fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let mut body = Record::default();
        body.bytes(path.as_bytes()).bool(false);
        let answer = match self.ask(opcode::GET_CHILDREN, body).await? {
            Ok(answer) => answer,
            Err(NO_NODE) => return Ok(Vec::new()),
            Err(code) => return Err(failed("getChildren", path, code)),
        };
        let mut answer = Reader(&answer);
        let mut names = Vec::new();
        for _ in 0..answer.int()? {
            names.push(String::from_utf8_lossy(answer.bytes()?).into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// One request, its answer's body or the server's error code.
    async fn ask(&mut self, opcode: i32, body: Record) -> io::Result<Result<Vec<u8>, i32>> {
        self.last_xid += 1;
        let mut request = Record::default();
        request.int(self.last_xid).int(opcode);
        request.0.extend(body.0);
        self.stream.write_all(&request.framed()).await?;

        let answer = read_frame(&mut self.stream).await?;
        let mut reader = Reader(&answer);
        let (xid, _zxid, code) = (reader.int()?, reader.long()?, reader.int()?);
        if xid != self.last_xid {
            return Err(io::Error::other(format!("answer {xid} to request {}", self.last_xid)));
        }
        Ok(if code == 0 { Ok(reader.0.to_vec()) } else { Err(code) })
    }
}

fn failed(operation: &str, path: &str, code: i32) -> io::Error {
    io::Error::other(format!("{operation} of '{path}' failed with ZooKeeper's code {code}"))
}

async fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

/// Writes jute, ZooKeeper's way to put values into bytes.
#[derive(Debug, Default)]
struct Record(Vec<u8>);

impl Record {
    fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend(length(value));
        self.0.extend(value);
        self
    }

    fn framed(&self) -> Vec<u8> {
        let mut frame = length(&self.0).to_vec();
        frame.extend(&self.0);
        frame
    }
}

/// The length in front of a value. What is too long for it the server refuses anyway.
fn length(value: &[u8]) -> [u8; 4] {
    u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Reads jute.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn int(&mut self) -> io::Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> io::Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A buffer or a text; ZooKeeper writes "none" as the length -1.
    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.int()?).unwrap_or(0);
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(*array)
    }
}
