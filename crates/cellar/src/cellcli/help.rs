//! The texts of HELP.

use super::error::Error;
use super::keyword::resolve;
use super::objects;
use super::parser::VERBS;

const LIST: &str = "[ALL | name [, name]...] [WHERE condition] [ATTRIBUTES {ALL | attribute [, attribute]...}] [DETAIL]\n   \
                    [ORDER BY attribute [ASC | DESC] [, attribute [ASC | DESC]]...] [LIMIT number]";
const CONDITION: &str = "   A condition is: attribute [NOT | !] {= | != | < | <= | > | >= | LIKE} value\n   \
                         LIKE takes a regular expression for the whole value. AND, OR, NOT and parentheses combine conditions.\n";

const DROP_FLASH_CACHE: &str =
    " DROP FLASHCACHE [ALL]\n   Switches the flash cache off until the next start of the cell.\n";

/// Returns the text for a topic: nothing, a verb, or a verb and an object type.
pub fn help(topic: &[String]) -> Result<String, Error> {
    let Some((verb, object_type)) = topic.split_first() else { return Ok(topics()) };
    let found = resolve(verb, VERBS.into_iter());
    let verb = found.map_err(|_| Error::syntax(Some(verb), "a topic that HELP lists"))?;
    let object_types = match object_type {
        [] => objects::types().collect(),
        [word] => {
            let resolved = objects::resolve_name(word);
            vec![objects::get(resolved.map_err(|_| Error::syntax(Some(word), "an object type that HELP lists"))?)?]
        }
        [_, extra, ..] => return Err(Error::syntax(Some(extra), "the end of the command")),
    };
    let mut text = String::new();
    match verb {
        "LIST" => {
            for object_type in object_types {
                text += &format!(" LIST {} {LIST}\n", object_type.name());
                text += &format!("   Attributes: {}\n", object_type.attributes().join(", "));
            }
            text += CONDITION;
        }
        "DESCRIBE" => {
            for object_type in object_types {
                text += &format!(" DESCRIBE {}\n", object_type.name());
            }
            text += "   Shows the attributes of the object type.\n";
        }
        "ALTER" => {
            for object_type in object_types {
                for operation in object_type.alterations() {
                    text += &format!(" ALTER {} {operation}\n", object_type.name());
                }
            }
            if text.is_empty() {
                text += " ALTER does not change objects of this type.\n";
            }
        }
        "SPOOL" => text += " SPOOL [file [CREATE | APPEND | REPLACE]] | SPOOL OFF\n   Copies the output to a file.\n",
        "START" => text += " START file\n @file\n   Runs the commands of a file.\n",
        "SET" => {
            text += " SET DATEFORMAT STANDARD\n   Times are in UTC, with the offset. There is no other format.\n SET ECHO {ON | OFF}\n   \
                          Prints the commands of files before they run.\n"
        }
        "HELP" => text += &topics(),
        "EXIT" | "QUIT" => text += " EXIT\n QUIT\n   Ends CellCLI.\n",
        "CALIBRATE" => {
            text += " CALIBRATE [FORCE]\n   Measures the disks; with FORCE also while they serve requests.\n"
        }
        "CREATE" => {
            for object_type in object_types {
                for creation in object_type.creations() {
                    text += &format!(" CREATE {} {creation}\n", object_type.name());
                }
            }
            if text.is_empty() {
                text += " CREATE does not create objects of this type.\n";
            }
        }
        "DROP" if object_types.iter().any(|object_type| object_type.can_drop()) => {
            for object_type in object_types.into_iter().filter(|object_type| object_type.can_drop()) {
                text += &format!(" DROP {} {{ALL | name [, name]...}} [WHERE condition]\n", object_type.name());
            }
            if object_type.is_empty() {
                text += DROP_FLASH_CACHE;
            }
        }
        "DROP" => text += DROP_FLASH_CACHE,
        verb => text += &format!(" {verb}: cells have no objects that this command applies to.\n"),
    }
    Ok(text)
}

fn topics() -> String {
    let mut text = String::from(" HELP [topic]\n   Available Topics:\n");
    for verb in VERBS {
        let applies = |object_type: &&dyn objects::ObjectType| match verb {
            "LIST" | "DESCRIBE" => true,
            "ALTER" => !object_type.alterations().is_empty(),
            "CREATE" => !object_type.creations().is_empty(),
            "DROP" => object_type.can_drop(),
            _ => false,
        };
        let object_types: Vec<_> = objects::types().filter(applies).collect();
        if !matches!(verb, "CREATE" | "DROP") {
            text += &format!("        {verb}\n");
        }
        for object_type in object_types {
            text += &format!("        {verb} {}\n", object_type.name());
        }
        if verb == "DROP" {
            text += "        DROP FLASHCACHE\n";
        }
    }
    text
}
