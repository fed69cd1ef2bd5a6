use super::*;

fn list(text: &str) -> List {
    match parse(text) {
        Ok(Statement::List(list)) => list,
        other => panic!("{text}: {other:?}"),
    }
}

fn alter(text: &str) -> Alter {
    match parse(text) {
        Ok(Statement::Alter(alter)) => alter,
        other => panic!("{text}: {other:?}"),
    }
}

/// A condition with parentheses around every operation.
fn shown(condition: &Condition) -> String {
    match condition {
        Condition::And(left, right) => format!("({} and {})", shown(left), shown(right)),
        Condition::Or(left, right) => format!("({} or {})", shown(left), shown(right)),
        Condition::Not(inner) => format!("not {}", shown(inner)),
        Condition::Compare { attribute, operator, operand } => {
            let operand = match operand {
                Operand::Quoted(text) => format!("'{text}'"),
                other => other.text().to_owned(),
            };
            format!("{attribute} {operator:?} {operand}")
        }
    }
}

fn condition(text: &str) -> String {
    shown(&list(&format!("list celldisk where {text}")).filter.unwrap())
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn list_takes_its_clauses_in_any_order() {
    let text = "LIST METRICCURRENT WHERE objectType = 'CELLDISK' AND metricValue != 0 ATTRIBUTES name, metricObjectName, \
                metricValue, collectionTime ORDER BY metricObjectName ASC, metricValue DESC, name LIMIT 5 DETAIL";
    let found = list(text);
    assert_eq!(found.object_type, "METRICCURRENT");
    let attributes = ["name", "metricObjectName", "metricValue", "collectionTime"];
    assert_eq!(found.attributes, Attributes::Named(named(&attributes)));
    assert_eq!(shown(&found.filter.unwrap()), "(objectType Equal 'CELLDISK' and not metricValue Equal 0)");
    let order: Vec<(&str, bool)> =
        found.order.iter().map(|order| (order.attribute.as_str(), order.descending)).collect();
    assert_eq!(order, [("metricObjectName", false), ("metricValue", true), ("name", false)]);
    assert_eq!((found.limit, found.detail), (Some(5), true));
    assert_eq!(list("list celldisk limit 5 where a=b detail").limit, Some(5));
}

#[test]
fn lines_of_the_manual_are_statements() {
    for text in [
        "LIST CELL",
        "list cell detail",
        "LIST CELL ATTRIBUTES name, status, location, fanStatus, temperatureStatus, powerStatus",
        "LIST CELLDISK CD_01_cell05 ATTRIBUTES size",
        "LIST CELLDISK WHERE status!=normal ATTRIBUTES name",
        "LIST CELLDISK WHERE DEVICENAME LIKE '/dev/c0d[2-5]' ATTRIBUTES name, size",
        "LIST CELLDISK CD_01_cell05 DETAIL",
        "list celldisk attributes name where name like '.*cell01'",
        "LIST GRIDDISK ATTRIBUTES name, asmdeactivationoutcome, asmmodestatus",
        "LIST METRICDEFINITION ATTRIBUTES NAME,DESCRIPTION WHERE OBJECTTYPE = CELLDISK",
        "LIST METRICDEFINITION WHERE name LIKE 'CD_IO_RQ.*' ATTRIBUTES name, metricType, description",
        "LIST metricDefinition WHERE name=cl_swap_in_by_sec DETAIL",
        "list metriccurrent gd_io_rq_w_sm",
        "list metrichistory where collectionTime > '2013-08-06T11:30:00-06:00' and collectionTime < '2013-08-06T13:20:00-06:00'",
        "LIST GRIDDISK ALL DETAIL",
        "LIST ALERTHISTORY WHERE notificationState like '[023]' and severity like '[warning|critical]' and examinedBy = NULL",
        "LIST METRICHISTORY WHERE ageInMinutes < 30",
        "LIST PMEMCACHE DETAIL",
        "LIST ALERTHISTORY WHERE severity = 'critical' AND examinedBy = NULL DETAIL",
        "DESCRIBE GRIDDISK",
        "desc celldisk",
        "ALTER GRIDDISK ALL INACTIVE",
        "alter iormplan objective = auto",
        "ALTER IORMPLAN dbplan=((name=sales, share=8), (name=other, share=1))",
        "CREATE FLASHCACHE ALL SIZE=100G",
        "DROP FLASHLOG",
        "CREATE THRESHOLD db_io_rq_sm_sec.db123 comparison=\">\", critical=120",
        "ALTER THRESHOLD db_io_rq_sm_sec.db123 critical=100, occurrences=3",
        "DROP THRESHOLD ALL",
        "ALTER ALERTHISTORY 1_1, 1_2 examinedBy='ann'",
        "DROP ALERTHISTORY ALL WHERE endTime < '2013-08-06T13:20:00-06:00'",
        "CALIBRATE FORCE",
        "HELP LIST METRICCURRENT",
        "SET ECHO ON",
        "SET DATEFORMAT STANDARD",
        "SPOOL",
        "quit",
    ] {
        assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
    }
}

#[test]
fn the_comparison_of_a_threshold_needs_no_quotation_marks() {
    let values = vec![("comparison".to_owned(), ">=".to_owned()), ("warning".to_owned(), "5".to_owned())];
    let expected = Statement::Create { object_type: "THRESHOLD", name: "CL_RUNQ.c1".to_owned(), values };
    assert_eq!(parse("create thr CL_RUNQ.c1 comparison = >=, warning=5"), Ok(expected.clone()));
    assert_eq!(parse("create threshold CL_RUNQ.c1 comparison='>=', warning='5'"), Ok(expected));
    let error = parse("create threshold CL_RUNQ.c1 comparison").unwrap_err().to_string();
    assert!(error.ends_with("at the end of the command: expected ="), "{error}");
    let targets = Targets::Named(named(&["1_1", "1_2"]));
    let expected = Statement::Drop { object_type: "ALERTHISTORY", targets, filter: None };
    assert_eq!(parse("drop alerth 1_1, 1_2"), Ok(expected));
}

#[test]
fn not_binds_closer_than_and_and_closer_than_or() {
    assert_eq!(condition("a = 1 or b = 2 and not c = 3"), "(a Equal 1 or (b Equal 2 and not c Equal 3))");
    assert_eq!(condition("(a = 1 or b = 2) and c >= 3"), "((a Equal 1 or b Equal 2) and c GreaterOrEqual 3)");
    assert_eq!(condition("status NOT = normal"), "not status Equal normal");
    assert_eq!(
        condition("status ! = normal and name not like 'a.*'"),
        "(not status Equal normal and not name Like 'a.*')"
    );
    assert_eq!(condition("a not != b"), "a Equal b");
    assert_eq!(condition("size > 139920M and comment != null"), "(size Greater 139920M and not comment Equal NULL)");
    assert_eq!(condition("a < -5 and b <= \"x y\""), "(a Less -5 and b LessOrEqual 'x y')");
}

#[test]
fn names_that_are_keywords_are_quoted() {
    assert_eq!(list("list celldisk 'detail', CD_01 detail").names, ["detail", "CD_01"]);
    assert!(list("list celldisk detail").names.is_empty());
    assert!(list("list celldisk all detail").names.is_empty());
    assert_eq!(list("list celldisk 'all'").names, ["all"]);
}

#[test]
fn verbs_and_object_types_may_be_abbreviated() {
    assert_eq!(list("lis grid").object_type, "GRIDDISK");
    assert_eq!(list("list cell").object_type, "CELL");
    assert_eq!(list("list celld").object_type, "CELLDISK");
    assert_eq!(list("list metricc").object_type, "METRICCURRENT");
    assert_eq!(list("list disk").object_type, "DISKGROUP", "not a type that cells do not have");
    assert_eq!(list("list quar").object_type, "QUARANTINE");
    let error = parse("list metric").unwrap_err().to_string();
    assert!(error.contains("expected one of METRICDEFINITION, METRICCURRENT, METRICHISTORY"), "{error}");
    let error = parse("s echo on").unwrap_err().to_string();
    assert!(error.contains("at \"s\": expected one of SET, SPOOL, START"), "{error}");
}

#[test]
fn alter_has_targets_and_an_operation() {
    let words = |words: &[&str]| Operation::Words(named(words));
    let found = alter("alter griddisk a, 'b c' inactive nowait");
    assert_eq!(
        (found.targets, found.operation),
        (Targets::Named(named(&["a", "b c"])), words(&["inactive", "nowait"]))
    );
    let found = alter("ALTER CELLDISK ALL WHERE name LIKE 'CD_0.*' ACTIVE");
    assert_eq!((found.targets, found.operation), (Targets::All, words(&["ACTIVE"])));
    assert!(found.filter.is_some());
    let found = alter("alter diskgroup all scrub rate = 20");
    assert_eq!(found.operation, words(&["scrub", "rate", "20"]));
    assert_eq!(alter("alter griddisk all != inactive").operation, words(&["!=", "inactive"]));
    let found = alter("alter cell name = x, comment = 'a b'");
    let values = [("name", "x"), ("comment", "a b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!((found.targets, found.operation), (Targets::None, Operation::Assign(values.to_vec())));
}

#[test]
fn files_are_named_after_at_start_and_spool() {
    let start = |path: &str| Statement::Start(path.into());
    assert_eq!(parse("@/tmp/a.scl").unwrap(), start("/tmp/a.scl"));
    assert_eq!(parse("@ 'a b'").unwrap(), start("a b"));
    assert_eq!(parse("start a").unwrap(), start("a"));
    let spool = |mode| Statement::Spool(Spool::Write { path: "log".into(), mode });
    assert_eq!(parse("spool log").unwrap(), spool(SpoolMode::Replace));
    assert_eq!(parse("spool log append").unwrap(), spool(SpoolMode::Append));
    assert_eq!(parse("spool log create").unwrap(), spool(SpoolMode::Create));
    assert_eq!(parse("spool off").unwrap(), Statement::Spool(Spool::Off));
}

#[test]
fn errors_name_the_token_and_what_was_expected() {
    for (text, expected) in [
        ("", "at the end of the command: expected one of ALTER, CALIBRATE"),
        ("show cell", "at \"show\": expected one of ALTER"),
        ("list", "at the end of the command: expected one of CELL, CELLDISK, GRIDDISK"),
        ("list disks", "at \"disks\": expected one of CELL, CELLDISK, GRIDDISK"),
        ("list celldisk a b", "at \"b\": expected ATTRIBUTES, DETAIL, WHERE, ORDER BY or LIMIT"),
        ("list celldisk all, b", "at \",\": expected ATTRIBUTES, DETAIL, WHERE"),
        ("list celldisk detail detail", "at \"detail\": expected ATTRIBUTES, DETAIL"),
        ("list celldisk attributes", "at the end of the command: expected ALL or the name of an attribute"),
        ("list celldisk attributes a,", "at the end of the command: expected ALL or the name"),
        ("list celldisk where", "at the end of the command: expected the name of an attribute, NOT or ("),
        ("list celldisk where a", "at the end of the command: expected an operator"),
        ("list celldisk where a ~ 1", "at \"~\": expected an operator: =, !=, <, <=, >, >=, LIKE or NOT LIKE"),
        ("list celldisk where a =", "at the end of the command: expected a value"),
        ("list celldisk where a = detail", "at \"detail\": expected a value"),
        ("list celldisk where (a = 1", "at the end of the command: expected AND, OR or )"),
        ("list celldisk where a = 1)", "at \")\": expected ATTRIBUTES"),
        ("list celldisk order name", "at \"name\": expected BY"),
        ("list celldisk limit 0", "at \"0\": expected a number from 1"),
        ("list celldisk limit", "at the end of the command: expected a number from 1"),
        ("describe", "at the end of the command: expected one of CELL"),
        ("alter griddisk", "at the end of the command: expected ALL or a name"),
        ("set colour on", "at \"colour\": expected ECHO or DATEFORMAT"),
        ("set dateformat local", "at \"local\": expected STANDARD: times are in UTC"),
        ("quit now", "at \"now\": expected the end of the command"),
        ("@", "at the end of the command: expected the name of a file"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with("CELL-01504: invalid command syntax"), "{error}");
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |depth: usize| format!("list cell where {}a = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(60)).is_ok());
    assert!(parse(&nested(2000)).unwrap_err().to_string().contains("nested less deeply"));
    assert!(parse(&format!("list cell where {} a = 1", "not ".repeat(2000))).is_err());
    let long = format!("list cell where a = 1{}", " or a = 1".repeat(2000));
    assert!(parse(&long).unwrap_err().to_string().contains("fewer comparisons"));
}
