use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::server::find_program;

/// A ZooKeeper on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Install {
    pub(crate) java: PathBuf,
    pub(crate) class_path: OsString,
}

impl Install {
    pub(crate) fn find() -> Result<Self, Error> {
        let class_path = class_path()?;
        let bin = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
        let java = find_program(&["java"], bin.as_slice()).ok_or(Error::NotInstalled {
            what: "Java, which ZooKeeper runs on,",
            how: "`apt-get install default-jre-headless`, or set JAVA_HOME, or set \
                  ZKLOCK_TEST_ZOOKEEPER=host:port to use a server that runs already",
        })?;
        Ok(Self { java, class_path })
    }
}

fn class_path() -> Result<OsString, Error> {
    if let Some(home) = env::var_os("ZOOKEEPER_HOME").filter(|home| !home.is_empty()) {
        return from_archive(Path::new(&home)).ok_or(Error::NotInstalled {
            what: "ZooKeeper",
            how: "ZOOKEEPER_HOME is set, but there is no lib/zookeeper-<version>.jar below it: set it to the \
                  folder of an unpacked release 3.5.3 or later",
        });
    }
    from_debian()
        .or_else(|| ["/opt/zookeeper", "/usr/local/zookeeper"].into_iter().find_map(|home| from_archive(Path::new(home))))
        .ok_or(Error::NotInstalled {
            what: "ZooKeeper",
            how: "`apt-get install zookeeper`, or set ZOOKEEPER_HOME to the folder of an unpacked release, or \
                  set ZKLOCK_TEST_ZOOKEEPER=host:port to use a server that runs already",
        })
}

/// An unpacked release has everything in `lib`.
fn from_archive(home: &Path) -> Option<OsString> {
    let lib = home.join("lib");
    let has_it = lib.read_dir().ok()?.flatten().any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("zookeeper-") && name.ends_with(".jar")
    });
    has_it.then(|| lib.join("*").into_os_string())
}

/// Debian's and Ubuntu's jar names its dependencies, but for something that writes the log.
fn from_debian() -> Option<OsString> {
    let jars = Path::new("/usr/share/java");
    let zookeeper = jars.join("zookeeper.jar");
    if !zookeeper.is_file() {
        return None;
    }
    let mut class_path = zookeeper.into_os_string();
    class_path.push(":");
    class_path.push(jars.join("slf4j-simple.jar"));
    Some(class_path)
}
