//! Texts inside of HTML and SVG.

/// Escapes a text for element content and attribute values.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are invalid in HTML.
            character if character.is_control() && !matches!(character, '\n' | '\t') => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(escape("<a href='x'>\"&\u{0}\n"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\u{fffd}\n");
    }
}
