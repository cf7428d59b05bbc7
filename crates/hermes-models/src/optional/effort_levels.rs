//! Levels of reasoning effort, weakest first, for all field names.

const LEVELS: &[&str] = &[
    "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra",
];

/// Fields whose value is one of the levels.
const FIELDS: &[&str] = &[
    "effort",
    "reasoning_effort",
    "verbosity",
    "thinking_level",
    "thinkinglevel",
];

pub(super) fn is_effort_field(field: &str) -> bool {
    let leaf = field.rsplit('.').next().unwrap_or(field);
    FIELDS.contains(&leaf.to_ascii_lowercase().as_str())
}

pub(super) fn rank(level: &str) -> Option<usize> {
    LEVELS.iter().position(|name| *name == level)
}

/// The level to send instead of `refused`: one that is known to be accepted, or else the next
/// weaker one that was not refused. `None`: omit the field.
pub(super) fn replacement_level(
    refused: &str,
    accepted: &[String],
    also_refused: &[&str],
) -> Option<String> {
    let at = rank(refused)?;
    let usable = |name: &str| name != refused && !also_refused.contains(&name);
    if !accepted.is_empty() {
        let known = || accepted.iter().filter(|name| usable(name));
        let weaker = known()
            .filter(|name| rank(name).is_some_and(|rank| rank < at) && (*name != "none"))
            .max_by_key(|name| rank(name));
        let stronger = || {
            known()
                .filter(|name| rank(name).is_some_and(|rank| rank > at))
                .min_by_key(|name| rank(name))
        };
        return weaker.or_else(stronger).cloned();
    }
    // "Off" is not a weaker effort, and nothing is weaker than it.
    let weaker = LEVELS[1..at.max(1)].iter().rev();
    let stronger = LEVELS[at + 1..].iter().filter(|_| at <= 1);
    weaker
        .chain(stronger)
        .find(|name| usable(name))
        .map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_weaker_level_comes_next() {
        let listed = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let cases = [
            (
                "xhigh",
                listed(&["low", "medium", "high"]),
                vec![],
                Some("high"),
            ),
            ("minimal", listed(&["low", "medium"]), vec![], Some("low")),
            ("none", listed(&["none", "low"]), vec![], Some("low")),
            ("xhigh", vec![], vec![], Some("high")),
            ("xhigh", vec![], vec!["high"], Some("medium")),
            ("minimal", vec![], vec![], Some("low")),
            ("low", vec![], vec!["minimal"], None),
            ("odd", vec![], vec![], None),
        ];
        for (refused, accepted, also, next) in cases {
            assert_eq!(
                replacement_level(refused, &accepted, &also).as_deref(),
                next,
                "{refused} {also:?}"
            );
        }
    }
}
