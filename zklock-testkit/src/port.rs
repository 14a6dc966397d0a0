use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::error::Error;
use crate::random::random;

/// A TCP port on 127.0.0.1 that is ours until dropped, also while nothing listens on it.
///
/// A server that is killed must come back on its port, so the port must not be taken in between. Two
/// things could take it. An outgoing connection, of anybody: so ports come from below the range that
/// the kernel hands out. Another test process: so a port is claimed by an abstract unix socket of its
/// name, which the kernel takes back when its owner dies, however it dies.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _claim: UnixListener,
}

impl Port {
    pub(crate) fn claim() -> Result<Self, Error> {
        let (low, high) = candidates();
        for _ in 0..1000 {
            let number = draw(low, high);
            let Some(claim) = claim(number).map_err(Error::io("claiming a port"))? else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        Err(Error::Io {
            doing: format!("looking for a free port on 127.0.0.1 between {low} and {high}"),
            source: io::ErrorKind::AddrInUse.into(),
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// A number from `low` to below `high`.
fn draw(low: u16, high: u16) -> u16 {
    let [first, second, ..] = random().to_le_bytes();
    low + u16::from_le_bytes([first, second]) % (high - low)
}

fn claim(number: u16) -> io::Result<Option<UnixListener>> {
    let name = SocketAddr::from_abstract_name(format!("zklock-testkit/port/{number}"))?;
    match UnixListener::bind_addr(&name) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where to look, below the range of outgoing connections if that leaves enough room.
fn candidates() -> (u16, u16) {
    const LOWEST: u16 = 10_000;
    let outgoing_from = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse::<u16>().ok())
        .unwrap_or(32_768);
    if outgoing_from > LOWEST + 1_000 { (LOWEST, outgoing_from) } else { (LOWEST, 60_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_ours_until_dropped() {
        let port = Port::claim().unwrap();
        assert!(claim(port.number()).unwrap().is_none());
        let number = port.number();
        drop(port);
        assert!(claim(number).unwrap().is_some());
    }
}
