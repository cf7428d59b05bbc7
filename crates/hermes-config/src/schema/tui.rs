//! `tui`: the terminal interface. Only used by this program, so that a home without it reads like
//! the original's.

use serde_json::Value;

use super::Config;
use super::field::{ConfigWord, Named, section};

section! {
    /// `tui`. Unset fields may be given by an equivalent key of `display`: see
    /// [`Tui::from_config`].
    struct Tui {}
    optional {
        /// `inline`: below the shell's own lines; `full`: the alternate screen.
        screen: ConfigWord,
        /// `full`: after a resize everything is printed anew, which also erases what the shell had
        /// printed before; `off`: old lines stay as the terminal breaks them.
        reflow: ConfigWord,
        /// The spinner and the clock of a running turn.
        animations: bool,
        /// `auto`, or a name of `/theme`.
        theme: ConfigWord,
        /// Plain characters instead of symbols.
        ascii: bool,
        /// Action → its key, or a list of them.
        keys: Named<Vec<String>>,
        /// How a person who looks elsewhere is called: `auto`, `bell`, `osc9`, `off`.
        notifications: ConfigWord,
        /// What Enter does while a turn runs: `steer`, `queue`, `interrupt`.
        busy: ConfigWord,
        /// Whether widths that terminals disagree about count as two columns.
        wide_ambiguous: bool,
        /// Lets the terminal tell keys apart that look alike otherwise (the kitty protocol).
        keyboard_protocol: bool,
    }
}

impl Tui {
    /// The section with equivalent `display` keys filled in. `file` is the tree of config.yaml
    /// alone: only explicit values count, because the original's defaults differ.
    pub fn from_config(config: &Config, file: &Value) -> Self {
        let mut tui = config.tui.clone().unwrap_or_default();
        let display = |key: &str| file.get("display").and_then(|section| section.get(key));
        let word = |key: &str| display(key).and_then(Value::as_str).map(ConfigWord::new);
        tui.ascii = tui.ascii.or(config.display.ascii);
        tui.busy = tui.busy.or_else(|| word("busy_input_mode"));
        tui.theme = tui.theme.or_else(|| word("theme"));
        if display("bell_on_complete").and_then(Value::as_bool) == Some(true) {
            tui.notifications = tui.notifications.or_else(|| Some("bell".into()));
        }
        tui
    }

    /// Everything is in the alternate screen.
    pub fn is_full_screen(&self) -> bool {
        self.screen.as_deref() == Some("full")
    }

    /// Old rows are erased and printed again for another width. Only on request, because earlier
    /// output of the shell is erased too.
    pub fn is_reflow_on(&self) -> bool {
        self.reflow.as_deref() == Some("full")
    }

    pub fn is_animated(&self) -> bool {
        self.animations.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tree: &Value) -> (Tui, Vec<String>) {
        let mut warnings = Vec::new();
        let config = Config::from_tree(tree, &mut warnings);
        crate::known::check(tree.as_object().unwrap(), &mut warnings);
        let judge = crate::schema::rules::RuleCheck {
            tree: tree.as_object().unwrap(),
            home: &crate::Home::at("/nonexistent"),
        };
        judge.settle(&mut tree.clone(), &mut warnings);
        let warnings = warnings.iter().map(ToString::to_string).collect();
        (Tui::from_config(&config, tree), warnings)
    }

    #[test]
    fn what_display_says_counts_where_tui_is_silent() {
        let (tui, warnings) = read(&json!({
            "display": {"busy_input_mode": "queue", "ascii": true, "bell_on_complete": true}
        }));
        assert_eq!(warnings, [] as [String; 0]);
        assert_eq!(tui.busy.as_deref(), Some("queue"));
        assert_eq!(tui.ascii, Some(true));
        assert_eq!(tui.notifications.as_deref(), Some("bell"));
        let (tui, _) = read(&json!({
            "tui": {"busy": "steer", "ascii": false},
            "display": {"busy_input_mode": "queue", "ascii": true}
        }));
        assert_eq!(
            (tui.busy.as_deref(), tui.ascii),
            (Some("steer"), Some(false))
        );
    }

    #[test]
    fn a_default_of_the_original_is_not_a_wish() {
        let (tui, _) = read(&json!({}));
        assert_eq!(tui, Tui::default());
        assert!(!tui.is_full_screen() && !tui.is_reflow_on() && tui.is_animated());
    }

    /// What `config get` prints for a key that nobody set is what the interface does.
    #[test]
    fn shown_defaults_are_the_ones_that_count() {
        let path = |key: &str| ["tui".to_owned(), key.to_owned()];
        let crate::schema::field::ConfigShape::Section(keys) =
            crate::schema::shape_at(&path("")[..1]).unwrap()
        else {
            panic!("tui is a section");
        };
        let mut shown = serde_json::Map::new();
        for (key, _) in &keys {
            let value = crate::schema::default_of(&path(key));
            shown.insert(
                key.to_string(),
                value.unwrap_or_else(|| panic!("tui.{key}")),
            );
        }
        let (said, _) = read(&json!({ "tui": shown }));
        let silent = Tui::default();
        assert_eq!(said.is_reflow_on(), silent.is_reflow_on());
        assert_eq!(said.is_full_screen(), silent.is_full_screen());
        assert_eq!(said.is_animated(), silent.is_animated());
        assert_eq!(said.keyboard_protocol, Some(true));
        assert_eq!(said.wide_ambiguous, Some(false));
    }

    #[test]
    fn wrong_words_and_keys_are_noticed() {
        let (tui, warnings) = read(&json!({
            "tui": {"screen": "ful", "reflow": false, "keys": {"submit": "ctrl+s"}, "them": "x"}
        }));
        assert_eq!(
            warnings,
            [
                "tui.them: unknown key, kept but not used; did you mean tui.theme?",
                "tui.screen: \"ful\" is not one of inline, full; inline is used",
            ]
        );
        assert!(!tui.is_reflow_on());
        let keys = tui.keys.unwrap();
        assert_eq!(keys.get("submit"), Some(&vec!["ctrl+s".to_owned()]));
    }
}
