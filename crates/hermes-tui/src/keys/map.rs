//! The keymap.

use std::collections::HashMap;

use super::{KeyAction, KeyArea, KeyPress, ParseKeyError};

/// Keys and what they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    /// In the order of [`Action::ALL`].
    bound: Vec<(KeyAction, Vec<KeyPress>)>,
    by_key: HashMap<(KeyArea, KeyPress), KeyAction>,
}

/// A configured binding that cannot be applied; the defaults of that action stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeymapError {
    #[error("tui.keys.{name}: there is no such action{}", close.map(|close| format!("; did you mean {close}?")).unwrap_or_default())]
    UnknownAction {
        name: String,
        close: Option<&'static str>,
    },
    #[error("tui.keys.{action}: {bad}")]
    BadKey {
        action: &'static str,
        bad: ParseKeyError,
    },
    #[error("tui.keys.{action}: {key} also does {other}; give one of them another key")]
    Conflict {
        action: &'static str,
        key: KeyPress,
        other: &'static str,
    },
    #[error("tui.keys.{action}: it needs at least one key")]
    Needed { action: &'static str },
}

/// A row of `/keys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBinding {
    pub action: KeyAction,
    pub keys: Vec<KeyPress>,
    pub about: &'static str,
}

/// Actions that must always have a key.
const REQUIRED: &[KeyAction] = &[KeyAction::Submit, KeyAction::Cancel, KeyAction::Interrupt];

impl Default for Keymap {
    fn default() -> Self {
        let bound = KeyAction::ALL
            .iter()
            .map(|action| (*action, default_keys(*action)))
            .collect();
        Self::indexed(bound)
    }
}

fn default_keys(action: KeyAction) -> Vec<KeyPress> {
    let parsed = action.default_keys().iter().map(|key| key.parse());
    // A test reads every default.
    parsed.filter_map(Result::ok).collect()
}

/// Whether two areas can be active together without precedence between them.
fn areas_overlap(a: KeyArea, b: KeyArea) -> bool {
    a == b
        || matches!(
            (a, b),
            (KeyArea::Anywhere, KeyArea::Composer | KeyArea::Busy)
                | (KeyArea::Composer | KeyArea::Busy, KeyArea::Anywhere)
        )
}

impl Keymap {
    /// The defaults with `configured` (action → keys; none: the action has no key) applied. Invalid
    /// entries are reported and ignored. A key given to one action is removed from the defaults of
    /// others, but not from another configured action.
    pub fn from_config<'a>(
        configured: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> (Self, Vec<KeymapError>) {
        let mut errors = Vec::new();
        let mut wanted: Vec<(KeyAction, Vec<KeyPress>)> = Vec::new();
        for (name, keys) in configured {
            match parse_keys(name, keys) {
                Ok((action, keys)) => match conflict(&wanted, action, &keys) {
                    Some((key, other)) => errors.push(KeymapError::Conflict {
                        action: action.name(),
                        key,
                        other: other.name(),
                    }),
                    None => wanted.push((action, keys)),
                },
                Err(error) => errors.push(error),
            }
        }
        let mut bound = Self::default().bound;
        for (action, keys) in &mut bound {
            if let Some((_, wish)) = wanted.iter().find(|(wished, _)| wished == action) {
                keys.clone_from(wish);
            } else {
                let area = action.area();
                keys.retain(|key| {
                    !wanted.iter().any(|(wished, assigned)| {
                        areas_overlap(wished.area(), area) && assigned.contains(key)
                    })
                });
                if keys.is_empty() && REQUIRED.contains(action) {
                    errors.push(KeymapError::Needed {
                        action: action.name(),
                    });
                }
            }
        }
        // Sending and exiting always keep a key.
        if errors
            .iter()
            .any(|error| matches!(error, KeymapError::Needed { .. }))
        {
            return (Self::default(), errors);
        }
        (Self::indexed(bound), errors)
    }

    fn indexed(bound: Vec<(KeyAction, Vec<KeyPress>)>) -> Self {
        let by_key = bound
            .iter()
            .flat_map(|(action, keys)| keys.iter().map(|key| ((action.area(), *key), *action)))
            .collect();
        Self { bound, by_key }
    }

    /// The action of `key` in `area` or anywhere. In [`KeyArea::Busy`] the keys of the composer
    /// work too.
    pub fn action(&self, key: KeyPress, area: KeyArea) -> Option<KeyAction> {
        let order: &[KeyArea] = match area {
            KeyArea::Anywhere => &[KeyArea::Anywhere],
            KeyArea::Composer => &[KeyArea::Composer, KeyArea::Anywhere],
            KeyArea::Busy => &[KeyArea::Busy, KeyArea::Composer, KeyArea::Anywhere],
            KeyArea::Overlay => &[KeyArea::Overlay],
        };
        order
            .iter()
            .find_map(|area| self.by_key.get(&(*area, key)).copied())
    }

    pub fn keys(&self, action: KeyAction) -> &[KeyPress] {
        self.bound
            .iter()
            .find(|(bound, _)| *bound == action)
            .map_or(&[], |(_, keys)| keys)
    }

    /// The key to show for an action: `ctrl+t`.
    pub fn first(&self, action: KeyAction) -> Option<KeyPress> {
        self.keys(action).first().copied()
    }

    /// All bindings, for `/keys` and the palette.
    pub fn describe(&self) -> Vec<KeyBinding> {
        self.bound
            .iter()
            .map(|(action, keys)| KeyBinding {
                action: *action,
                keys: keys.clone(),
                about: action.about(),
            })
            .collect()
    }
}

fn parse_keys(name: &str, keys: &[String]) -> Result<(KeyAction, Vec<KeyPress>), KeymapError> {
    let action =
        KeyAction::named(&name.replace('-', "_")).ok_or_else(|| KeymapError::UnknownAction {
            name: name.to_owned(),
            close: closest_name(name),
        })?;
    let parsed = keys
        .iter()
        .map(|key| key.parse())
        .collect::<Result<Vec<KeyPress>, _>>();
    let keys = parsed.map_err(|bad| KeymapError::BadKey {
        action: action.name(),
        bad,
    })?;
    if keys.is_empty() && REQUIRED.contains(&action) {
        return Err(KeymapError::Needed {
            action: action.name(),
        });
    }
    Ok((action, keys))
}

fn conflict(
    wanted: &[(KeyAction, Vec<KeyPress>)],
    action: KeyAction,
    keys: &[KeyPress],
) -> Option<(KeyPress, KeyAction)> {
    wanted
        .iter()
        .filter(|(other, _)| *other != action && areas_overlap(other.area(), action.area()))
        .find_map(|(other, assigned)| {
            let key = keys.iter().find(|key| assigned.contains(key))?;
            Some((*key, *other))
        })
}

/// The action whose name is closest to a misspelt one.
fn closest_name(name: &str) -> Option<&'static str> {
    let pairs =
        |text: &str| -> Vec<(char, char)> { text.chars().zip(text.chars().skip(1)).collect() };
    let wanted = pairs(name);
    let alike = |action: &KeyAction| {
        let have = pairs(action.name());
        let common = wanted.iter().filter(|pair| have.contains(pair)).count();
        (2 * common * 100)
            .checked_div(wanted.len() + have.len())
            .unwrap_or(0)
    };
    let best = KeyAction::ALL.iter().max_by_key(|action| alike(action))?;
    (alike(best) >= 50).then(|| best.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> KeyPress {
        text.parse().unwrap()
    }

    fn map(configured: &[(&str, &[&str])]) -> (Keymap, Vec<String>) {
        let configured: Vec<(&str, Vec<String>)> = configured
            .iter()
            .map(|(name, keys)| (*name, keys.iter().map(ToString::to_string).collect()))
            .collect();
        let (map, errors) = Keymap::from_config(
            configured
                .iter()
                .map(|(name, keys)| (*name, keys.as_slice())),
        );
        (map, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_default_is_a_key_and_means_one_thing() {
        let map = Keymap::default();
        for action in KeyAction::ALL {
            assert_eq!(
                map.keys(*action).len(),
                action.default_keys().len(),
                "{action:?}"
            );
            assert!(!action.about().is_empty());
            assert_eq!(KeyAction::named(action.name()), Some(*action));
            for key in map.keys(*action) {
                for other in KeyAction::ALL {
                    let shared = other != action
                        && areas_overlap(other.area(), action.area())
                        && map.keys(*other).contains(key);
                    assert!(!shared, "{key} does {action:?} and {other:?}");
                }
            }
        }
    }

    #[test]
    fn a_wish_takes_the_key_from_a_default() {
        let (map, errors) = map(&[("sessions", &["ctrl+t"]), ("transcript", &["f3"])]);
        assert_eq!(errors, [] as [&str; 0]);
        assert_eq!(
            map.action(key("ctrl+t"), KeyArea::Composer),
            Some(KeyAction::Sessions)
        );
        assert_eq!(
            map.action(key("f3"), KeyArea::Anywhere),
            Some(KeyAction::Transcript)
        );
        assert_eq!(map.action(key("ctrl+x"), KeyArea::Composer), None);
    }

    #[test]
    fn busy_goes_before_the_composer() {
        let map = Keymap::default();
        assert_eq!(map.action(key("tab"), KeyArea::Composer), None);
        assert_eq!(
            map.action(key("tab"), KeyArea::Busy),
            Some(KeyAction::Queue)
        );
        assert_eq!(
            map.action(key("ctrl+a"), KeyArea::Busy),
            Some(KeyAction::LineStart)
        );
        assert_eq!(map.action(key("ctrl+a"), KeyArea::Overlay), None);
    }

    #[test]
    fn what_cannot_be_met_is_told() {
        let (got, errors) = map(&[
            ("submitt", &["f2"]),
            ("undo", &["ctrl+bogus"]),
            ("palette", &["f5"]),
            ("redraw", &["f5"]),
            ("cancel", &[]),
            ("yank", &[]),
        ]);
        assert_eq!(
            errors,
            [
                "tui.keys.submitt: there is no such action; did you mean submit?",
                "tui.keys.undo: 'ctrl+bogus' is not a key: 'bogus' is not known; write keys like ctrl+x, alt+enter, shift+tab, f2 or esc",
                "tui.keys.redraw: f5 also does palette; give one of them another key",
                "tui.keys.cancel: it needs at least one key",
            ]
        );
        assert_eq!(got, Keymap::default());
    }

    #[test]
    fn a_way_out_stays() {
        let (got, errors) = map(&[("palette", &["esc", "ctrl+c"])]);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert_eq!(got, Keymap::default());
    }

    #[test]
    fn an_action_may_lose_its_keys() {
        let (got, errors) = map(&[("suspend", &[])]);
        assert_eq!(errors, [] as [&str; 0]);
        assert_eq!(got.action(key("ctrl+z"), KeyArea::Composer), None);
        assert_eq!(got.first(KeyAction::Suspend), None);
    }
}
