//! Prints the model of a report.
fn main() {
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(&file).unwrap();
        let start = std::time::Instant::now();
        let report = match cellar_awr::oracle::read(&file, &bytes) {
            Ok(report) => report,
            Err(refusal) => {
                println!("{file}: {refusal}");
                continue;
            }
        };
        let t = start.elapsed();
        if std::env::var("QUIET").is_err() {
            for section in report.sections() {
                println!(
                    "## {}{} [{}] line {}",
                    if section.catalogued() { "" } else { "?? " },
                    section.heading(),
                    section.anchor(),
                    section.line()
                );
                for note in section.notes() {
                    println!("   -> {note}");
                }
                for table in section.tables() {
                    println!("   T {} | {} | rows {}", table.title(), table.line(), table.rows().len());
                    println!(
                        "     {}",
                        table.columns().map(|c| format!("{}·{}", c.group(), c.name())).collect::<Vec<_>>().join(" | ")
                    );
                    for row in table.rows().take(3) {
                        println!(
                            "       {}: {}",
                            row.line(),
                            row.cells().map(|c| c.chars().take(40).collect::<String>()).collect::<Vec<_>>().join(" | ")
                        );
                    }
                }
            }
        }
        println!(
            "{file}: {:?} {:?} {} comma {} {:?} tables {} in {:?} = {:.1} MB/s",
            report.kind,
            report.form,
            report.encoding,
            report.decimal_comma,
            report.counts,
            report.tables().len(),
            t,
            bytes.len() as f64 / 1e6 / t.as_secs_f64()
        );
        println!("{:#?}", report.header);
        for w in &report.warnings {
            println!("warning {}: {}", w.line, w.text);
        }
        for u in report.unplaced.iter().take(10) {
            println!("unplaced {}: {}", u.line, u.text);
        }
        for s in report.uncatalogued() {
            println!("uncatalogued: {}", s.heading());
        }
    }
}
