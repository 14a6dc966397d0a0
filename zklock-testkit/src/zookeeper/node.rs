/// A node as the server has it, seen by a session that has nothing to do with the code under test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// What is stored in it.
    pub data: Vec<u8>,
    /// The transaction that made it.
    pub czxid: i64,
    /// The transaction that wrote its data last.
    pub mzxid: i64,
    /// How often its data was written since.
    pub version: i32,
    /// The session that it belongs to; 0 if it is not ephemeral (ZooKeeper uses special values for
    /// containers and nodes with a time to live).
    pub ephemeral_owner: i64,
    /// How many children it has.
    pub children: i32,
}
