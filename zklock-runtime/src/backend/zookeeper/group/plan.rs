use std::{collections::HashMap, sync::Arc};

use zookeeper_client as zk;

use super::{super::directories::Directories, Created, Step, Way, Wish, Write, Written};

/// How several wishes become the operations of one multi, and its results their outcomes.
///
/// Deletes come first, so that who takes a lock just released finds it free. Each directory is counted once, after all
/// that enter it: how many were there before each of them follows. It is not counted where a node of ours is known to
/// stand in it at that moment: then it is the directory that we know, and the sequence alone tells the place in line.
#[derive(Debug, Default)]
pub(super) struct Plan {
    ops: Vec<Op>,
    /// For each wish: where it stands among the nodes that are created.
    places: Vec<u16>,
    /// The directories that are entered.
    directories: Vec<Entered>,
}

#[derive(Debug)]
struct Entered {
    path: Arc<str>,
    /// The wishes that enter it, in their order.
    wishes: Vec<usize>,
    /// The transaction that made it, where that is certain beforehand.
    made_in: Option<i64>,
}

/// One operation, with the number of the wish that it is for, or of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Delete(usize),
    DeleteDirectory(usize),
    MakeDirectory(usize),
    Contender(usize),
    Plain(usize),
    /// Writes to a plain node just made: in a multi a create does not tell in which transaction it was done
    /// (ZOOKEEPER-4026), a write does.
    Time(usize),
    Count(usize),
}

impl Plan {
    pub(super) fn of(writes: &[&Write], directories: &Directories) -> Self {
        let mut plan = Self::default();
        // Where a node of ours goes in this very transaction, it stood until then.
        let left: HashMap<&str, i64> = writes.iter().filter_map(|write| write.leaves()).collect();
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut creates = Vec::new();
        let mut place = 0_u16;
        for (index, write) in writes.iter().enumerate() {
            plan.places.push(place);
            match write {
                Write::Delete { .. } => plan.ops.push(Op::Delete(index)),
                Write::DeleteLast { .. } => {
                    plan.ops.extend([Op::Delete(index), Op::DeleteDirectory(index)]);
                }
                Write::Plain { .. } => {
                    creates.extend([Op::Plain(index), Op::Time(index)]);
                    place = place.saturating_add(1);
                }
                Write::Contender { directory, way, .. } => {
                    let number = *known.entry(directory).or_insert_with(|| {
                        // Looked up here, after all that stands there now was noted.
                        let occupied = || {
                            let line = directories.last_line(directory)?;
                            line.made_in().filter(|_| line.is_occupied())
                        };
                        let made_in = left.get(&**directory).copied().or_else(occupied);
                        plan.directories.push(Entered {
                            path: directory.clone(),
                            wishes: Vec::new(),
                            made_in,
                        });
                        plan.directories.len() - 1
                    });
                    let entered = &mut plan.directories[number];
                    // In one transaction it is made once: the first makes it for all.
                    if *way == Way::Founds && !creates.contains(&Op::MakeDirectory(number)) {
                        creates.push(Op::MakeDirectory(number));
                        entered.made_in = None;
                    }
                    entered.wishes.push(index);
                    creates.push(Op::Contender(index));
                    place = place.saturating_add(1);
                }
            }
        }
        plan.ops.append(&mut creates);
        // One at least: it tells in which transaction all of it was done.
        let counted =
            |(number, entered): (usize, &Entered)| entered.made_in.is_none().then_some(Op::Count(number));
        plan.ops.extend(plan.directories.iter().enumerate().filter_map(counted));
        if !plan.directories.is_empty() && !plan.ops.iter().any(|op| matches!(op, Op::Count(_) | Op::Time(_)))
        {
            plan.ops.push(Op::Count(0));
        }
        plan
    }

    pub(super) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(super) fn place(&self, wish: usize) -> u16 {
        self.places.get(wish).copied().unwrap_or_default()
    }

    /// Whether the wish fails for the reason for which `op` did, which the server names first.
    pub(super) fn fails_with(&self, wish: usize, op: Op, write: &Write, error: &zk::Error) -> bool {
        let enters = |number: usize| {
            self.directories.get(number).is_some_and(|entered| entered.wishes.contains(&wish))
        };
        match op {
            Op::Delete(index) | Op::DeleteDirectory(index) | Op::Plain(index) | Op::Time(index) => {
                index == wish
            }
            Op::MakeDirectory(number) => {
                enters(number) && matches!(write, Write::Contender { way: Way::Founds, .. })
            }
            Op::Count(number) => enters(number),
            // Where one finds no directory, the others find none either.
            Op::Contender(index) if *error == zk::Error::NoNode => self
                .directories
                .iter()
                .any(|entered| entered.wishes.contains(&index) && entered.wishes.contains(&wish)),
            Op::Contender(index) => index == wish,
        }
    }

    /// The outcome of each wish; `None` if the results do not fit.
    pub(super) fn read(&self, results: Vec<zk::MultiWriteResult>) -> Option<Vec<Written>> {
        if results.len() != self.ops.len() {
            return None;
        }
        let mut written: Vec<Option<Written>> = self.places.iter().map(|_| None).collect();
        let mut paths: HashMap<usize, String> = HashMap::new();
        let mut counts: HashMap<usize, zk::Stat> = HashMap::new();
        let mut zxid = None;
        for (op, result) in self.ops.iter().zip(results) {
            match (*op, result) {
                (Op::Delete(wish), zk::MultiWriteResult::Delete) => written[wish] = Some(Written::Gone),
                (Op::DeleteDirectory(_), zk::MultiWriteResult::Delete)
                | (Op::MakeDirectory(_) | Op::Plain(_), zk::MultiWriteResult::Create { .. }) => {}
                (Op::Contender(wish), zk::MultiWriteResult::Create { path, .. }) => {
                    paths.insert(wish, path);
                }
                (Op::Time(wish), zk::MultiWriteResult::SetData { stat }) => {
                    zxid = Some(stat.mzxid);
                    let created = Created { czxid: stat.czxid, place: self.place(wish) };
                    written[wish] = Some(Written::Plain(created));
                }
                (Op::Count(number), zk::MultiWriteResult::SetData { stat }) => {
                    zxid = Some(stat.mzxid);
                    counts.insert(number, stat);
                }
                _ => return None,
            }
        }
        for (number, entered) in self.directories.iter().enumerate() {
            let stat = counts.get(&number);
            for (later, &wish) in entered.wishes.iter().rev().enumerate() {
                let later = i32::try_from(later).ok()?;
                written[wish] = Some(Written::Contender {
                    path: paths.remove(&wish)?,
                    created: Created { czxid: zxid?, place: self.place(wish) },
                    directory: stat.map(|stat| stat.czxid).or(entered.made_in)?,
                    children: stat.map(|stat| stat.num_children - later),
                });
            }
        }
        written.into_iter().collect()
    }
}

impl Write {
    /// The directory in which it takes a contender away, and the transaction that made that.
    fn leaves(&self) -> Option<(&str, i64)> {
        match self {
            Self::Delete { path, made_in } => Some((path.rsplit_once('/')?.0, (*made_in)?)),
            // The directory goes too.
            Self::DeleteLast { .. } | Self::Plain { .. } | Self::Contender { .. } => None,
        }
    }
}

impl Op {
    pub(super) fn step(self) -> Step {
        match self {
            Self::MakeDirectory(_) | Self::DeleteDirectory(_) => Step::Directory,
            Self::Delete(_) | Self::Contender(_) | Self::Plain(_) | Self::Time(_) => Step::Node,
            Self::Count(_) => Step::Count,
        }
    }

    /// Adds it to a multi of `wishes`.
    pub(super) fn add(
        self,
        wishes: &[Wish],
        plan: &Plan,
        writer: &mut zk::MultiWriter<'_>,
        acls: zk::Acls<'_>,
    ) -> Result<(), zk::Error> {
        let unfit = || zk::Error::BadArguments(&"not what was planned");
        let directory =
            |number: usize| plan.directories.get(number).map(|entered| &*entered.path).ok_or_else(unfit);
        let write = |wish: usize| wishes.get(wish).map(|wish| &wish.write).ok_or_else(unfit);
        match self {
            Self::MakeDirectory(number) => {
                writer.add_create(directory(number)?, b"", &zk::CreateMode::Container.with_acls(acls))
            }
            Self::Count(number) => writer.add_set_data(directory(number)?, b"", None),
            Self::Delete(wish) => match write(wish)? {
                Write::Delete { path, .. } | Write::DeleteLast { path, .. } => writer.add_delete(path, None),
                _ => Err(unfit()),
            },
            Self::DeleteDirectory(wish) => match write(wish)? {
                Write::DeleteLast { directory, .. } => writer.add_delete(directory, None),
                _ => Err(unfit()),
            },
            Self::Contender(wish) => match write(wish)? {
                Write::Contender { prefix, tag, .. } => {
                    writer.add_create(prefix, tag, &zk::CreateMode::EphemeralSequential.with_acls(acls))
                }
                _ => Err(unfit()),
            },
            Self::Plain(wish) => match write(wish)? {
                Write::Plain { path, .. } => {
                    writer.add_create(path, b"", &zk::CreateMode::Ephemeral.with_acls(acls))
                }
                _ => Err(unfit()),
            },
            Self::Time(wish) => match write(wish)? {
                Write::Plain { path, tag } => writer.add_set_data(path, tag, None),
                _ => Err(unfit()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enters(directory: &str, founds: bool) -> Write {
        let way = if founds { Way::Founds } else { Way::Joins };
        let prefix = format!("{directory}/_c_-lock-");
        Write::Contender { directory: directory.into(), prefix, tag: Vec::new(), way }
    }

    fn deletes(path: &str) -> Write {
        Write::Delete { path: path.into(), made_in: None }
    }

    fn plan(writes: &[Write]) -> Plan {
        Plan::of(&writes.iter().collect::<Vec<_>>(), &Directories::default())
    }

    fn stat(czxid: i64, mzxid: i64, num_children: i32) -> zk::Stat {
        zk::Stat { czxid, mzxid, num_children, ..unset() }
    }

    fn unset() -> zk::Stat {
        zk::Stat {
            czxid: -1,
            mzxid: -1,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
            pzxid: 0,
        }
    }

    fn created(path: &str) -> zk::MultiWriteResult {
        zk::MultiWriteResult::Create { path: path.into(), stat: unset() }
    }

    #[test]
    fn deletes_come_first_and_a_directory_is_made_and_counted_once() {
        let last = Write::DeleteLast { path: "/a/3".into(), directory: "/a".into() };
        let plan =
            plan(&[enters("/a", true), enters("/b", false), last, enters("/a", true), deletes("/b/1")]);
        assert_eq!(
            plan.ops(),
            [
                Op::Delete(2),
                Op::DeleteDirectory(2),
                Op::Delete(4),
                Op::MakeDirectory(0),
                Op::Contender(0),
                Op::Contender(1),
                Op::Contender(3),
                Op::Count(0),
                Op::Count(1),
            ]
        );
    }

    #[test]
    fn each_learns_how_many_were_there_with_it_and_no_two_have_one_place() {
        let plan = plan(&[enters("/a", false), enters("/b", false), deletes("/a/1"), enters("/a", false)]);
        let results = vec![
            zk::MultiWriteResult::Delete,
            created("/a/7"),
            created("/b/3"),
            created("/a/8"),
            zk::MultiWriteResult::SetData { stat: stat(5, 90, 4) },
            zk::MultiWriteResult::SetData { stat: stat(6, 90, 1) },
        ];
        let contender = |path: &str, place, directory, children| Written::Contender {
            path: path.into(),
            created: Created { czxid: 90, place },
            directory,
            children: Some(children),
        };
        assert_eq!(
            plan.read(results),
            Some(vec![
                contender("/a/7", 0, 5, 3),
                contender("/b/3", 1, 6, 1),
                Written::Gone,
                contender("/a/8", 2, 5, 4),
            ])
        );
    }

    #[test]
    fn a_directory_that_a_node_of_ours_leaves_is_the_one_we_know() {
        let directories = Arc::new(Directories::default());
        let there = ["/a", "/b"].map(|path| directories.enter(&path.into()));
        for presence in &there {
            drop(presence.line(5));
        }
        let plan = |writes: &[Write]| Plan::of(&writes.iter().collect::<Vec<_>>(), &directories);
        let leaving = || Write::Delete { path: "/a/7".into(), made_in: Some(5) };
        // In /a a node of ours goes, in /b nothing is known to stand any more.
        let some = plan(&[enters("/a", false), enters("/b", false), leaving()]);
        assert_eq!(some.ops(), [Op::Delete(2), Op::Contender(0), Op::Contender(1), Op::Count(1)]);
        // A plain node below /a says nothing about those in it.
        assert!(
            plan(&[enters("/a", false), enters("/b", false), deletes("/a/7")]).ops().contains(&Op::Count(0))
        );
        let results = vec![
            zk::MultiWriteResult::Delete,
            created("/a/8"),
            created("/b/1"),
            zk::MultiWriteResult::SetData { stat: stat(70, 90, 2) },
        ];
        let written = some.read(results).unwrap();
        let contender = |path: &str, place, directory, children| {
            let created = Created { czxid: 90, place };
            Written::Contender { path: path.into(), created, directory, children }
        };
        assert_eq!(written[0], contender("/a/8", 0, 5, None));
        assert_eq!(written[1], contender("/b/1", 1, 70, Some(2)));
        // What goes with its directory proves nothing of the next one, and something must tell the time.
        let last = Write::DeleteLast { path: "/a/7".into(), directory: "/a".into() };
        assert!(plan(&[last, enters("/a", false), enters("/b", false)]).ops().contains(&Op::Count(0)));
        assert!(plan(&[leaving(), enters("/a", false)]).ops().contains(&Op::Count(0)));
        // What is made with one of those who enter it is not the one we know.
        let made = plan(&[leaving(), enters("/a", false), enters("/a", true), enters("/b", false)]);
        assert!(made.ops().contains(&Op::Count(0)));
    }

    #[test]
    fn results_that_do_not_fit_are_not_believed() {
        let plan = plan(&[deletes("/a"), enters("/b", false)]);
        assert_eq!(plan.read(vec![zk::MultiWriteResult::Delete]), None);
        let swapped = vec![created("/b/1"), zk::MultiWriteResult::Delete, zk::MultiWriteResult::Delete];
        assert_eq!(plan.read(swapped), None);
    }

    #[test]
    fn only_those_fail_for_whom_the_reason_holds() {
        let writes = [enters("/a", true), enters("/a", false), enters("/b", true), deletes("/a/1")];
        let plan = plan(&writes);
        let failing = |op, error: zk::Error| -> Vec<usize> {
            (0..writes.len()).filter(|&wish| plan.fails_with(wish, op, &writes[wish], &error)).collect()
        };
        assert_eq!(failing(Op::MakeDirectory(0), zk::Error::NodeExists), [0]);
        assert_eq!(failing(Op::Contender(1), zk::Error::NoNode), [0, 1]);
        assert_eq!(failing(Op::Contender(1), zk::Error::InvalidAcl), [1]);
        assert_eq!(failing(Op::Count(0), zk::Error::NoAuth), [0, 1]);
        assert_eq!(failing(Op::Delete(3), zk::Error::NoNode), [3]);
    }
}
