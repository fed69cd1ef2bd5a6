//! Settings, and the sources of the figures.

use super::{Group, Section};
use crate::document::Setting;
use crate::table::{Cell, Table};
use crate::view::View;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![modified(view), sources(view)]
}

/// Settings that changed between the snapshots come first.
fn modified(view: &View<'_>) -> Section {
    let changed = |setting: &Setting| setting.changed.unwrap_or(setting.begin != setting.end);
    let mut settings: Vec<&Setting> = view.document.settings.iter().collect();
    settings.sort_by_key(|setting| (!changed(setting), setting.name.to_string()));
    let table = Table::new(&["<Parameter Name", "<Begin value", "<End value (if different)", "<Unit", "<Source"])
        .with_rows(settings.into_iter().map(|setting| {
            // A setting without a value: an extension was dropped, or storage parameters were reset.
            let end = if changed(setting) { setting.end.known().unwrap_or("(removed)") } else { "" };
            let begin = setting.begin.known().or(setting.end.known().filter(|_| !changed(setting)));
            vec![
                Cell::text(&*setting.name),
                Cell::text(begin.unwrap_or_default()),
                Cell::text(end),
                Cell::text(&*setting.unit),
                Cell::text(&*setting.source),
            ]
        }));
    Section::new("settings", Group::Settings, "Modified Parameters")
        .note("settings that differ from the default, extension versions and storage parameters; changed ones first")
        .table_or(table.without_empty_columns(), "Not available: the snapshots contain no settings")
}

fn sources(view: &View<'_>) -> Section {
    let table = Table::new(&["<Source", "<Available", "<Version", "<Detail"]).with_rows(
        view.document.sources.iter().map(|source| {
            let available = source.available.map_or("", |available| if available { "yes" } else { "no" });
            vec![
                Cell::text(&*source.name),
                Cell::text(available),
                Cell::text(&*source.version),
                Cell::text(&*source.detail),
            ]
        }),
    );
    Section::new("sources", Group::Settings, "Sources of the Figures")
        .note("counted: by PostgreSQL or a cell. timed: with a clock. sampled: sessions seen active, with a standard error")
        .table_or(table.without_empty_columns(), "Not available: the document lists no sources")
}
