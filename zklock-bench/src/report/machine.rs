use std::{
    fs::{self, File},
    io::Write as _,
    process::Command,
    time::Instant,
};

use crate::{launch::kazoo_python, stats::percentile};

/// What the figures depend on: names and values.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo");
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let gigabytes =
        memory.and_then(|kilobytes| kilobytes.trim().parse::<f64>().ok()).map(|kilobytes| kilobytes / 1e6);
    let system = read("/etc/os-release");
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let java = said(Command::new("java").arg("-version"));
    vec![
        ("processor", format!("{}, {cores} cores", cpu.map_or("unknown", |(_, name)| name.trim()))),
        ("memory", gigabytes.map_or_else(|| "unknown".into(), |value| format!("{value:.0} GB"))),
        (
            "system",
            format!(
                "{}, Linux {}",
                system.unwrap_or("unknown").trim_matches('"'),
                read("/proc/sys/kernel/osrelease").trim()
            ),
        ),
        ("an fsync of 4 KiB", fsync().unwrap_or_else(|error| error.to_string())),
        ("Java", java.unwrap_or_default()),
        ("ZooKeeper", jar_version("zookeeper")),
        ("Curator", jar_version("curator-recipes")),
        ("kazoo", kazoo().unwrap_or_else(|| "not installed".into())),
        (
            "Redis",
            said(Command::new("redis-server").arg("--version")).unwrap_or_else(|| "not installed".into()),
        ),
        ("etcd", said(Command::new("etcd").arg("--version")).unwrap_or_else(|| "not installed".into())),
    ]
}

/// Where the servers have their data, too.
fn fsync() -> std::io::Result<String> {
    const TIMES: usize = 200;
    let folder = tempfile::tempdir()?;
    let mut file = File::create(folder.path().join("fsync"))?;
    let mut micros = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        micros.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(format!("{} µs (p50), {} µs (p99)", percentile(&mut micros, 50), percentile(&mut micros, 99)))
}

fn kazoo() -> Option<String> {
    said(Command::new(kazoo_python().ok()?).args(["-c", "import kazoo; print(kazoo.__version__)"]))
}

/// The first line of what a program says about itself.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
}

/// Debian's jars have a name with their version beside that without.
fn jar_version(name: &str) -> String {
    let folder = fs::read_dir("/usr/share/java").into_iter().flatten().flatten();
    let versions = folder.filter_map(|file| {
        let file = file.file_name().to_str()?.to_owned();
        let version = file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".jar")?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    });
    versions.max().unwrap_or_else(|| "of an unknown version".into())
}
