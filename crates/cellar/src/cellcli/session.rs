//! Runs commands, and writes their output to standard output and to the file of SPOOL. Errors go to standard error and the file.

use super::ast::{Alter, Attributes, Condition, List, Spool, SpoolMode, Statement, Targets};
use super::connection::Connection;
use super::error::Error;
use super::filter::{Filter, sort};
use super::names::flash_cache_name;
use super::objects::{self, Object, ObjectType, Selection};
use super::{calibration, help, output, parser, script};
use cellar_cell::iorm::IormChange;
use cellar_format::wire::GroupAction;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Files of commands may start each other this deep.
const START_DEPTH_MAX: usize = 16;

pub struct Session {
    pub connection: Connection,
    pub prints_json: bool,
    pub is_read_only: bool,
    echoes: bool,
    spool: Option<(PathBuf, File)>,
    start_depth: usize,
    has_failed: bool,
}

/// Break ends the session.
pub type Flow = ControlFlow<()>;

impl Session {
    pub fn new(connection: Connection, prints_json: bool, is_read_only: bool) -> Self {
        let (echoes, spool, start_depth, has_failed) = (false, None, 0, false);
        Self { connection, prints_json, is_read_only, echoes, spool, start_depth, has_failed }
    }

    /// Returns whether a command has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub fn run_all(&mut self, commands: &[String]) -> Flow {
        commands.iter().try_for_each(|command| self.run(command))
    }

    /// Runs a command. An error is printed, and the session goes on.
    pub fn run(&mut self, command: &str) -> Flow {
        let result = parser::parse(command).and_then(|statement| self.execute(statement));
        match result {
            Ok((text, flow)) => {
                self.print(&text)?;
                flow
            }
            Err(error) => {
                self.fail(&error.to_string());
                Flow::Continue(())
            }
        }
    }

    pub fn fail(&mut self, message: &str) {
        self.has_failed = true;
        eprintln!("{message}");
        self.write_to_spool(&format!("{message}\n"));
    }

    /// Ends the session if standard output cannot be written to.
    fn print(&mut self, text: &str) -> Flow {
        if let Err(error) = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
            self.has_failed = true;
            // The reader of a pipe may have seen enough.
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.fail(&format!("could not write to standard output: {error}"));
            }
            return Flow::Break(());
        }
        self.write_to_spool(text);
        Flow::Continue(())
    }

    fn write_to_spool(&mut self, text: &str) {
        if let Some((path, file)) = &mut self.spool
            && let Err(error) = file.write_all(text.as_bytes())
        {
            eprintln!("{}", Error::file("write to", path, &error));
            (self.spool, self.has_failed) = (None, true);
        }
    }

    fn execute(&mut self, statement: Statement) -> Result<(String, Flow), Error> {
        let text = match statement {
            Statement::List(list) => self.list(&list)?,
            Statement::Describe(name) => self.describe(objects::get(name)?),
            Statement::Help(topic) => help::help(&topic)?,
            Statement::Alter(alter) => return Ok((String::new(), self.alter(&alter)?)),
            Statement::Calibrate { is_forced } => self.calibrate(is_forced)?,
            Statement::DropFlashCache => self.drop_flash_cache()?,
            Statement::Create { object_type, name, values } => self.create(object_type, &name, &values)?,
            Statement::Drop { object_type, targets, filter } => self.drop(object_type, &targets, filter.as_ref())?,
            Statement::Unsupported { verb, object_type } => return Err(unsupported(verb, object_type)),
            Statement::Start(path) => return Ok((String::new(), self.start(&path)?)),
            Statement::Spool(spool) => self.set_spool(spool)?,
            Statement::SetEcho(echoes) => {
                self.echoes = echoes;
                String::new()
            }
            Statement::SetDateFormat => String::new(),
            Statement::Exit => return Ok((String::new(), Flow::Break(()))),
        };
        Ok((text, Flow::Continue(())))
    }

    fn list(&self, list: &List) -> Result<String, Error> {
        let object_type = objects::get(list.object_type)?;
        let names = object_type.attributes();
        let attributes = match &list.attributes {
            Attributes::Named(named) => {
                named.iter().map(|name| object_type.attribute(name)).collect::<Result<_, _>>()?
            }
            Attributes::Default if !list.detail => object_type
                .default_attributes()
                .iter()
                .map(|name| object_type.attribute(name))
                .collect::<Result<_, _>>()?,
            Attributes::Default | Attributes::All => (0..names.len()).collect::<Vec<_>>(),
        };
        let filter = list.filter.as_ref().map(|condition| Filter::new(condition, object_type)).transpose()?;
        sort(&mut [], &list.order, object_type)?;

        let selection = Selection {
            may_hold: &|object| {
                (list.names.is_empty() || is_named(object, &list.names))
                    && filter.as_ref().is_none_or(|filter| filter.holds(object) != Some(false))
            },
            times: &|attributes| filter.as_ref().map_or(Ok(0..=u64::MAX), |filter| filter.times(attributes)),
        };
        let mut objects = object_type.read_selected(&self.connection, &selection)?;
        if !list.names.is_empty() {
            objects = named(objects, &list.names, object_type)?;
        }
        if let Some(filter) = &filter {
            objects.retain(|object| filter.holds(object) != Some(false));
        }
        objects = object_type.complete(&self.connection, objects)?;
        if let Some(filter) = &filter {
            objects.retain(|object| filter.holds(object) == Some(true));
        }
        sort(&mut objects, &list.order, object_type)?;
        objects.truncate(list.limit.unwrap_or(usize::MAX));
        Ok(match (self.prints_json, list.detail) {
            (true, _) => format!("{:#}\n", output::json(&objects, &attributes, names)),
            (false, true) => output::paragraphs(&objects, &attributes, names),
            (false, false) => output::lines(&objects, &attributes),
        })
    }

    fn calibrate(&self, is_forced: bool) -> Result<String, Error> {
        if self.is_read_only {
            return Err(Error::read_only("CALIBRATE"));
        }
        let (status, group) = (self.connection.status()?, self.connection.group()?);
        let change = IormChange { calibrate: Some(is_forced), ..IormChange::default() };
        let report = self.connection.iorm(&change)?;
        Ok(match self.prints_json {
            true => format!("{:#}\n", report["calibration"]),
            false => calibration::text(&report["calibration"], &group, &status.name),
        })
    }

    fn drop_flash_cache(&self) -> Result<String, Error> {
        if self.is_read_only {
            return Err(Error::read_only("DROP"));
        }
        let object_type = objects::get("FLASHCACHE")?;
        if object_type.read(&self.connection)?.is_empty() {
            check_present(object_type)?;
        }
        self.connection.group_request(GroupAction::DropFlashCache, "", 0)?;
        let name = flash_cache_name(&self.connection.status()?.name);
        Ok(self.message(format!("Flash cache {name} successfully dropped")))
    }

    fn create(&self, object_type: &str, name: &str, values: &[(String, String)]) -> Result<String, Error> {
        if self.is_read_only {
            return Err(Error::read_only("CREATE"));
        }
        let object_type = objects::get(object_type)?;
        object_type.create(&self.connection, name, values)?;
        Ok(self.message(format!("{} {name} successfully created", object_type.title())))
    }

    /// Drops the selected objects: all of them or none.
    fn drop(&self, object_type: &str, targets: &Targets, filter: Option<&Condition>) -> Result<String, Error> {
        if self.is_read_only {
            return Err(Error::read_only("DROP"));
        }
        let object_type = objects::get(object_type)?;
        let objects = self.selected(object_type, targets, filter)?;
        let names: Vec<String> = objects.iter().map(|object| object[0].text()).collect();
        if names.is_empty() {
            return Ok(String::new());
        }
        object_type.drop(&self.connection, names.clone())?;
        let line = |name| self.message(format!("{} {name} successfully dropped", object_type.title()));
        Ok(names.into_iter().map(line).collect())
    }

    /// Returns the objects that a command names and whose condition holds.
    fn selected(
        &self,
        object_type: &dyn ObjectType,
        targets: &Targets,
        filter: Option<&Condition>,
    ) -> Result<Vec<Object>, Error> {
        let filter = filter.map(|condition| Filter::new(condition, object_type)).transpose()?;
        let objects = object_type.read(&self.connection)?;
        let mut objects = match targets {
            Targets::None | Targets::All => objects,
            Targets::Named(names) => named(objects, names, object_type)?,
        };
        objects.retain(|object| filter.as_ref().is_none_or(|filter| filter.holds(object) == Some(true)));
        Ok(objects)
    }

    fn message(&self, line: String) -> String {
        if self.prints_json { format!("{:#}\n", json!({ "message": line })) } else { line + "\n" }
    }

    fn describe(&self, object_type: &dyn ObjectType) -> String {
        let attributes = object_type.attributes();
        match self.prints_json {
            true => format!("{:#}\n", json!(attributes)),
            false => attributes.iter().map(|attribute| format!("\t {attribute}\n")).collect(),
        }
    }

    /// Changes the objects one after the other. After an error, the remaining ones stay as they are.
    fn alter(&mut self, alter: &Alter) -> Result<Flow, Error> {
        let object_type = objects::get(alter.object_type)?;
        if self.is_read_only {
            return Err(Error::read_only("ALTER"));
        }
        if object_type.alterations().is_empty() {
            return Err(object_type.cannot(&alter.operation));
        }
        let selected = self.selected(object_type, &alter.targets, alter.filter.as_ref())?;
        if selected.is_empty() && alter.filter.is_none() {
            check_present(object_type)?;
        }
        for object in &selected {
            let done = object_type.alter(&self.connection, object, &alter.operation)?;
            let line = self.message(format!("{} {} {done}", object_type.title(), object[0].text()));
            // Printed at once: the next object may fail.
            if self.print(&line).is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }

    fn start(&mut self, path: &Path) -> Result<Flow, Error> {
        if self.start_depth == START_DEPTH_MAX {
            let message = format!("{} is started by {START_DEPTH_MAX} files that start each other", path.display());
            return Err(Error::invalid_value(message));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, &error))?;
        self.start_depth += 1;
        let flow = script::commands(&text).iter().try_for_each(|command| {
            if self.echoes {
                self.print(&format!("> {command}\n"))?;
            }
            self.run(command)
        });
        self.start_depth -= 1;
        Ok(flow)
    }

    fn set_spool(&mut self, spool: Spool) -> Result<String, Error> {
        Ok(match spool {
            Spool::Off => {
                self.spool = None;
                String::new()
            }
            Spool::Show => match &self.spool {
                Some((path, _)) => format!("currently spooling to {}\n", path.display()),
                None => "not spooling currently\n".to_owned(),
            },
            Spool::Write { path, mode } => {
                let mut options = OpenOptions::new();
                match mode {
                    SpoolMode::Create => options.write(true).create_new(true),
                    SpoolMode::Append => options.append(true).create(true),
                    SpoolMode::Replace => options.write(true).create(true).truncate(true),
                };
                let file = options.open(&path).map_err(|error| Error::file("write to", &path, &error))?;
                self.spool = Some((path, file));
                String::new()
            }
        })
    }
}

/// Returns the objects with one of these names, in their own order. Names are not case-sensitive.
fn named(mut objects: Vec<Object>, names: &[String], object_type: &dyn ObjectType) -> Result<Vec<Object>, Error> {
    object_type.check_names(names, &objects)?;
    objects.retain(|object| is_named(object, names));
    Ok(objects)
}

fn is_named(object: &Object, names: &[String]) -> bool {
    let own = object[0].text();
    names.iter().any(|name| own.eq_ignore_ascii_case(name))
}

/// Fails if a cell without objects of this type cannot do what the command says.
fn check_present(object_type: &dyn ObjectType) -> Result<(), Error> {
    match object_type.absence() {
        Some(reason) => Err(Error::no_object(object_type.name(), reason)),
        None => Ok(()),
    }
}

fn unsupported(verb: &str, object_type: Option<&'static str>) -> Error {
    if let Some(Err(error)) = object_type.map(objects::get) {
        return error;
    }
    Error::unsupported(format!(
        "{verb}: the objects of a cell follow from its configuration file, which the cell reads at start"
    ))
}
