//! The schema of a database as found when it is opened. All other code asks this instead of
//! comparing version numbers.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use rusqlite::Connection;

use super::schema;

#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaLayout {
    /// 0: no schema at all.
    pub version: i64,
    columns: HashMap<String, HashSet<String>>,
    objects: HashSet<String>,
}

impl SchemaLayout {
    pub(crate) fn read(conn: &Connection) -> Result<Self, rusqlite::Error> {
        let mut layout = Self::default();
        let mut objects = conn.prepare("SELECT name FROM sqlite_master")?;
        let mut rows = objects.query([])?;
        while let Some(row) = rows.next()? {
            layout.objects.insert(row.get(0)?);
        }
        if !layout.has("schema_version") {
            return Ok(layout);
        }
        layout.version = conn
            .query_row("SELECT version FROM schema_version LIMIT 1", [], |row| {
                row.get(0)
            })
            .or_else(|error| match error {
                rusqlite::Error::QueryReturnedNoRows => Ok(0),
                other => Err(other),
            })?;
        for table in schema::TABLES {
            layout.read_columns(conn, table.name)?;
        }
        Ok(layout)
    }

    fn read_columns(&mut self, conn: &Connection, table: &str) -> Result<(), rusqlite::Error> {
        if !self.has(table) {
            return Ok(());
        }
        let mut statement = conn.prepare(&format!("PRAGMA table_info({table})"))?;
        let mut rows = statement.query([])?;
        let columns = self.columns.entry(table.to_owned()).or_default();
        while let Some(row) = rows.next()? {
            columns.insert(row.get(1)?);
        }
        Ok(())
    }

    /// Whether a table, view, index or trigger of that name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.objects.contains(name)
    }

    pub(crate) fn has_column(&self, table: &str, column: &str) -> bool {
        self.columns
            .get(table)
            .is_some_and(|columns| columns.contains(column))
    }

    /// A database of a newer program, whose structure must not be changed.
    pub(crate) fn is_newer_schema(&self) -> bool {
        self.version > schema::SCHEMA_VERSION
    }

    /// Whether all objects of schema 22 exist.
    pub(crate) fn is_complete(&self) -> bool {
        self.version == schema::SCHEMA_VERSION
            && self.has(schema::TITLE_INDEX)
            && schema::TABLES.iter().all(|table| {
                table
                    .columns
                    .iter()
                    .all(|(column, _)| self.has_column(table.name, column))
            })
            && schema::INDEXES.iter().all(|(name, _)| self.has(name))
            && self.has_all_fts()
    }

    pub(crate) fn has_all_fts(&self) -> bool {
        schema::FTS.iter().all(|(table, _)| self.has(table))
            && schema::fts_trigger_names()
                .iter()
                .all(|name| self.has(name))
    }

    /// For a database that is opened read-only and not upgraded: views that shadow tables of the
    /// same name and add missing columns, so that every query can rely on them.
    pub(crate) fn compat_views(&self) -> String {
        let mut views = String::new();
        for table in schema::TABLES {
            if !matches!(table.name, "sessions" | "messages") || !self.has(table.name) {
                continue;
            }
            let missing: Vec<String> = table
                .columns
                .iter()
                .filter(|(column, _)| !self.has_column(table.name, column))
                .map(|(column, declaration)| {
                    let default = declaration
                        .split_once("DEFAULT ")
                        .map_or("NULL", |(_, value)| value);
                    format!("{default} AS {column}")
                })
                .collect();
            if !missing.is_empty() {
                let (name, missing) = (table.name, missing.join(", "));
                let _ = writeln!(
                    views,
                    "CREATE TEMP VIEW {name} AS SELECT *, {missing} FROM main.{name};"
                );
            }
        }
        views
    }

    /// `alias.column`, or `fallback` where the database has no such column.
    pub(crate) fn column(&self, table: &str, alias: &str, column: &str, fallback: &str) -> String {
        if self.has_column(table, column) {
            format!("{alias}.{column}")
        } else {
            fallback.to_owned()
        }
    }
}
