use crate::error::Error;

/// What `zk://h1:2181,h2/chroot` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// `host:port`, as the client library and error messages want them.
    servers: Vec<String>,
    /// The node that all paths are below, without a slash at its end; empty for the root.
    chroot: String,
}

impl Address {
    const SCHEME: &str = "zk://";
    const DEFAULT_PORT: u16 = 2181;

    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::Config {
            reason: format!(
                "\"{url}\" is not a ZooKeeper address: {reason}; write zk://host:port,host:port/path"
            ),
        };
        let rest = url.strip_prefix(Self::SCHEME).ok_or_else(|| wrong("it does not start with zk://"))?;
        if rest.contains('@') {
            // Passwords in addresses end up in logs.
            return Err(wrong("credentials do not belong in it, give them with `auth`"));
        }
        let (servers, chroot) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let servers = servers.split(',').map(server).collect::<Result<Vec<_>, _>>().map_err(&wrong)?;
        let chroot = chroot.strip_suffix('/').unwrap_or(chroot);
        if chroot.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(wrong("its path has an empty or relative segment"));
        }
        if chroot.chars().any(|c| !is_legal(c)) {
            return Err(wrong("its path has a character that ZooKeeper does not take"));
        }
        Ok(Self { servers, chroot: chroot.into() })
    }

    /// `h1:2181,h2:2181`: where to connect, and what errors name.
    pub(crate) fn servers(&self) -> String {
        self.servers.join(",")
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }
}

/// One server with its port.
fn server(text: &str) -> Result<String, &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("what stands in brackets is not an IPv6 address");
        }
        match port.strip_prefix(':') {
            _ if port.is_empty() => (host, None),
            Some(port) => (host, Some(port)),
            None => return Err("after a bracket comes a colon with the port"),
        }
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err("an IPv6 address stands in brackets"),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err("a host is missing");
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("a host has a blank in it");
    }
    let port = match port {
        None => Address::DEFAULT_PORT,
        // Not `parse` alone: it takes a leading plus.
        Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
            port.parse().ok().filter(|&port| port != 0).ok_or("a port is not between 1 and 65535")?
        }
        Some(_) => return Err("a port is not a number"),
    };
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// What `PathUtils.validatePath` of the server lets through.
fn is_legal(c: char) -> bool {
    !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (String, String) {
        let address = Address::parse(url).unwrap();
        (address.servers(), address.chroot().into())
    }

    #[test]
    fn servers_have_a_default_port_and_the_path_is_the_chroot() {
        assert_eq!(parsed("zk://a"), ("a:2181".into(), String::new()));
        assert_eq!(parsed("zk://a/"), ("a:2181".into(), String::new()));
        assert_eq!(parsed("zk://a:1,b,10.0.0.1:3/x/y"), ("a:1,b:2181,10.0.0.1:3".into(), "/x/y".into()));
        assert_eq!(parsed("zk://a/x/"), ("a:2181".into(), "/x".into()));
        assert_eq!(parsed("zk://[::1],[fe80::1]:7/x"), ("[::1]:2181,[fe80::1]:7".into(), "/x".into()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, reason) in [
            ("http://a", "does not start with zk://"),
            ("zk://", "a host is missing"),
            ("zk:///x", "a host is missing"),
            ("zk://a,,b", "a host is missing"),
            ("zk://a,", "a host is missing"),
            ("zk://a:", "a port is not between"),
            ("zk://a:0", "a port is not between"),
            ("zk://a:65536", "a port is not between"),
            ("zk://a:+1", "a port is not a number"),
            ("zk://a:x", "a port is not a number"),
            ("zk://::1", "in brackets"),
            ("zk://[::1", "not closed"),
            ("zk://[::1]x", "comes a colon"),
            ("zk://[host]", "not an IPv6 address"),
            ("zk://a b", "a blank"),
            ("zk://me:secret@a", "credentials"),
            ("zk://a//x", "empty or relative"),
            ("zk://a/x//y", "empty or relative"),
            ("zk://a/../x", "empty or relative"),
            ("zk://a/x\u{7}", "does not take"),
        ] {
            let message = Address::parse(url).unwrap_err().to_string();
            assert!(message.contains(reason), "{url}: {message}");
        }
    }
}
