//! The databases of a cell: their numbers, their names in PostgreSQL, and the clusters that they belong to.
//!
//! A path names a database by the root of its files and its OID. A cluster has several roots if its tablespaces are on the cell; once
//! PostgreSQL has told which roots belong together, its databases have one number each, whatever the root. Numbers are never used
//! again.

use super::plan::DatabaseNames;
use crate::request::DatabaseId;
use std::collections::{BTreeMap, HashMap};

/// Databases beyond this number share the entry of [`DatabaseId::OTHER`].
const DATABASES_MAX: usize = 4096;
/// Clusters beyond this number have no names.
const CLUSTERS_MAX: usize = 256;

#[derive(Debug)]
pub struct Names {
    databases: Vec<Database>,
    /// By [`shown`].
    ids: HashMap<String, DatabaseId>,
    clusters: Vec<Cluster>,
}

#[derive(Debug)]
struct Database {
    /// By root and OID: the name that it has before its cluster tells another one.
    shown: String,
    name: Option<String>,
    cluster: Option<usize>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Cluster {
    /// The data directory first, if it is on the cell.
    roots: Vec<String>,
    /// The names of databases by OID.
    names: BTreeMap<u32, String>,
}

/// Returns how a database is shown whose name is not known: its OID, after the root of its files unless that is the mount's.
fn shown(root: &str, oid: u32) -> String {
    qualified(root, &oid.to_string())
}

fn qualified(root: &str, name: &str) -> String {
    if root.is_empty() { name.to_owned() } else { format!("{root}/{name}") }
}

impl Names {
    /// `other` is the name of [`DatabaseId::OTHER`].
    pub fn new(other: &str) -> Self {
        let other = Database { shown: other.to_owned(), name: None, cluster: None };
        Self { databases: vec![other], ids: HashMap::new(), clusters: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.databases.len()
    }

    pub fn find(&self, root: &str, oid: u32) -> Option<DatabaseId> {
        self.ids.get(&shown(root, oid)).copied()
    }

    /// Returns the number of a database, and whether it is a new one.
    pub fn find_or_add(&mut self, root: &str, oid: u32) -> (DatabaseId, bool) {
        if let Some(found) = self.find(root, oid) {
            return (found, false);
        }
        let cluster = self.clusters.iter().position(|cluster| cluster.roots.iter().any(|known| known == root));
        let known = cluster.and_then(|cluster| self.of_cluster(cluster, oid));
        let is_new = known.is_none();
        let id = match known {
            Some(known) => known,
            None if self.databases.len() >= DATABASES_MAX => return (DatabaseId::OTHER, false),
            None => {
                let name = cluster.and_then(|cluster| self.clusters[cluster].names.get(&oid).cloned());
                self.databases.push(Database { shown: shown(root, oid), name, cluster });
                DatabaseId(self.databases.len() as u32 - 1)
            }
        };
        self.ids.insert(shown(root, oid), id);
        (id, is_new)
    }

    /// Returns the number of a cluster's database, if a file of it was used below one of the cluster's roots.
    fn of_cluster(&self, cluster: usize, oid: u32) -> Option<DatabaseId> {
        self.clusters[cluster].roots.iter().find_map(|root| self.find(root, oid))
    }

    /// Records the databases of the cluster with these roots. Returns the databases whose names changed, and whether the number of a
    /// database changed.
    pub fn name_cluster(&mut self, roots: &[String], names: &[(u32, String)]) -> (Vec<DatabaseId>, bool) {
        let told = Cluster { roots: roots.to_vec(), names: names.iter().cloned().collect() };
        if roots.is_empty() || self.clusters.contains(&told) {
            return (Vec::new(), false);
        }
        let has_root = |cluster: &Cluster| cluster.roots.iter().any(|root| roots.contains(root));
        let known = self.clusters.iter().position(has_root);
        if known.is_none() && self.clusters.len() >= CLUSTERS_MAX {
            return (Vec::new(), false);
        }
        // A root belongs to the cluster that named it last.
        self.clusters.iter_mut().for_each(|cluster| cluster.roots.retain(|root| !roots.contains(root)));
        let cluster = known.unwrap_or(self.clusters.len());
        match known {
            Some(known) => self.clusters[known] = told,
            None => self.clusters.push(told),
        }
        let (mut changed, mut is_renumbered) = (Vec::new(), false);
        for (oid, name) in names {
            let Some(id) = self.of_cluster(cluster, *oid) else { continue };
            for root in roots {
                let same = self.ids.get_mut(&shown(root, *oid)).filter(|same| **same != id);
                let Some(same) = same else { continue };
                // What was counted for the other number has the same name.
                let previous = std::mem::replace(same, id);
                self.set_name(previous, cluster, name);
                is_renumbered = true;
            }
            if self.set_name(id, cluster, name) {
                changed.push(id);
            }
        }
        (changed, is_renumbered)
    }

    fn set_name(&mut self, id: DatabaseId, cluster: usize, name: &str) -> bool {
        let database = &mut self.databases[id.0 as usize];
        let is_changed = database.name.as_deref() != Some(name) || database.cluster != Some(cluster);
        (database.name, database.cluster) = (Some(name.to_owned()), Some(cluster));
        is_changed
    }

    /// Returns the names that a plan may use for a database.
    pub fn of_plan(&self, id: DatabaseId) -> DatabaseNames {
        let Database { shown, name, .. } = &self.databases[id.0 as usize];
        DatabaseNames { shown: shown.clone(), name: name.clone(), qualified: self.qualified(id) }
    }

    fn qualified(&self, id: DatabaseId) -> Option<String> {
        let Database { name, cluster, .. } = &self.databases[id.0 as usize];
        let root = self.clusters.get((*cluster)?)?.roots.first()?;
        Some(qualified(root, name.as_ref()?))
    }

    /// Returns what identifies a database as long as the cell runs, whatever its name: root and OID with which it was found first.
    pub fn key(&self, id: DatabaseId) -> &str {
        &self.databases[id.0 as usize].shown
    }

    /// Returns the name of a database in metrics: that in PostgreSQL, after the root of its cluster if databases of several
    /// clusters have that name.
    pub fn label(&self, id: DatabaseId) -> String {
        let Database { shown, name, cluster } = &self.databases[id.0 as usize];
        let Some(name) = name else { return shown.clone() };
        let is_another = |other: &Database| other.name.as_ref() == Some(name) && other.cluster != *cluster;
        match self.databases.iter().any(is_another) {
            true => self.qualified(id).unwrap_or_else(|| shown.clone()),
            false => name.clone(),
        }
    }

    /// Returns root, OID and label of each database with a known name, for each root below which a file of it was used.
    pub fn known(&self) -> Vec<(String, u32, String)> {
        let known = |(shown, id): (&String, &DatabaseId)| {
            self.databases[id.0 as usize].name.as_ref()?;
            let (root, oid) = shown.rsplit_once('/').unwrap_or(("", shown));
            Some((root.to_owned(), oid.parse().ok()?, self.label(*id)))
        };
        let mut all: Vec<_> = self.ids.iter().filter_map(known).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(roots: &[&str]) -> Vec<String> {
        roots.iter().map(|root| (*root).to_owned()).collect()
    }

    fn named(names: &[(u32, &str)]) -> Vec<(u32, String)> {
        names.iter().map(|(oid, name)| (*oid, (*name).to_owned())).collect()
    }

    #[test]
    fn a_database_with_files_below_two_roots_of_its_cluster_has_one_number() {
        let mut names = Names::new("other");
        let (before, is_new) = names.find_or_add("pg", 5);
        let (in_tablespace, _) = names.find_or_add("space/PG_15", 5);
        assert!(is_new && before != in_tablespace && names.label(before) == "pg/5");
        let told = (roots(&["pg", "space/PG_15", "more/PG_15"]), named(&[(5, "sales"), (6, "hr")]));
        assert_eq!(names.name_cluster(&told.0, &told.1), (vec![before], true));
        assert_eq!(names.find("space/PG_15", 5), Some(before));
        assert_eq!(names.find_or_add("more/PG_15", 5), (before, false));
        assert_eq!([before, in_tablespace].map(|id| names.label(id)), ["sales", "sales"]);
        let (later, _) = names.find_or_add("more/PG_15", 6);
        assert_eq!((names.find_or_add("pg", 6), names.label(later).as_str()), ((later, false), "hr"));
        assert_eq!(names.name_cluster(&told.0, &told.1), (vec![], false), "nothing has changed");
        assert_eq!(names.name_cluster(&told.0, &named(&[(5, "sold")])), (vec![before], false));
        assert_eq!((names.label(before).as_str(), names.label(later).as_str()), ("sold", "hr"), "hr was dropped");
        let known = [("more/PG_15", 5, "sold"), ("more/PG_15", 6, "hr"), ("pg", 5, "sold"), ("pg", 6, "hr")];
        assert_eq!(names.known()[..4], known.map(|(root, oid, name)| (root.to_owned(), oid, name.to_owned())));
    }

    #[test]
    fn databases_of_two_clusters_with_the_same_name_and_oid_do_not_mix() {
        let mut names = Names::new("other");
        names.name_cluster(&roots(&["pg1"]), &named(&[(5, "postgres"), (6, "a")]));
        names.name_cluster(&roots(&["pg2"]), &named(&[(5, "postgres"), (6, "b")]));
        let [first, second, a, b] =
            [("pg1", 5), ("pg2", 5), ("pg1", 6), ("pg2", 6)].map(|(root, oid)| names.find_or_add(root, oid).0);
        assert_eq!([first, second, a, b].map(|id| names.label(id)), ["pg1/postgres", "pg2/postgres", "a", "b"]);
        assert_eq!(names.of_plan(second).qualified.as_deref(), Some("pg2/postgres"));
        // A directory that another cluster uses now.
        names.name_cluster(&roots(&["pg3", "pg1"]), &named(&[(5, "postgres")]));
        assert_eq!(names.label(first), "pg3/postgres");
        assert_eq!(names.name_cluster(&[], &named(&[(5, "x")])), (vec![], false));
    }

    #[test]
    fn the_numbers_of_databases_and_clusters_are_bounded() {
        let mut names = Names::new("other");
        let last = (0..2 * DATABASES_MAX as u32).map(|oid| names.find_or_add("x", oid).0).last();
        assert_eq!((last, names.len()), (Some(DatabaseId::OTHER), DATABASES_MAX));
        (0..2 * CLUSTERS_MAX).for_each(|root| drop(names.name_cluster(&[root.to_string()], &[])));
        assert_eq!(names.clusters.len(), CLUSTERS_MAX);
    }
}
