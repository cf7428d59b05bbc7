//! The fields of a cron expression, parsed like the original's library (croniter): both programs
//! share one job table and must compute the same times from it.

/// The name of a field in messages, and its lowest and highest value.
const FIELDS: [(&str, u32, u32); 7] = [
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
    ("second", 0, 59),
    ("year", 1970, 2099),
];
const DAY: usize = 2;
const WEEKDAY: usize = 4;

/// The values that one field allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldValues {
    /// Sorted, without duplicates.
    values: Vec<u32>,
    /// Unrestricted, like a lone `*`: of day and weekday, the other one decides.
    unrestricted: bool,
}

impl FieldValues {
    pub(super) fn is_unrestricted(&self) -> bool {
        self.unrestricted
    }

    pub(super) fn has(&self, value: u32) -> bool {
        self.values.binary_search(&value).is_ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + Clone {
        self.values.iter().copied()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.values.first().copied()
    }
}

/// Parses minute, hour, day, month and weekday, and the optional second and year.
pub(super) fn read(expr: &str) -> Result<Vec<FieldValues>, String> {
    let fields: Vec<&str> = expr.split_whitespace().collect();
    if !(5..=FIELDS.len()).contains(&fields.len()) {
        return Err(format!(
            "{} fields; 5 are usual, a sixth is the second, a seventh the year",
            fields.len()
        ));
    }
    let read = |index: usize, field: &&str| {
        let name = FIELDS[index].0;
        // A whole month or week that is spelled out counts as `*` only next to a star.
        let beside_star = match index {
            DAY => fields[WEEKDAY].contains('*'),
            WEEKDAY => fields[DAY].contains('*'),
            _ => true,
        };
        field_values(field, index, beside_star)
            .map_err(|why| format!("{name} field {field:?}: {why}"))
    };
    fields
        .iter()
        .enumerate()
        .map(|(index, field)| read(index, field))
        .collect()
}

fn field_values(field: &str, index: usize, beside_star: bool) -> Result<FieldValues, String> {
    let (_, low, high) = FIELDS[index];
    let mut values = Vec::new();
    let mut star = false;
    for item in field.split(',') {
        if item == "*" {
            star = true;
        } else {
            values.extend(item_values(item, index)?);
        }
    }
    values.sort_unstable();
    values.dedup();
    let whole = values.len() == (high - low + 1) as usize;
    let open = star || whole && beside_star;
    if open {
        values = (low..=high).collect();
    }
    Ok(FieldValues {
        values,
        unrestricted: open,
    })
}

/// `7`, `1-5`, `*/2`, `1-10/3`, `5/10`; a range whose start is after its end wraps around.
fn item_values(item: &str, index: usize) -> Result<Vec<u32>, String> {
    let (_, low, high) = FIELDS[index];
    let number = |text: &str| {
        let highest = if index == WEEKDAY { 7 } else { high };
        let value = digits(text).ok_or_else(|| format!("{text:?} is not a number"))?;
        if !(low..=highest).contains(&value) {
            return Err(format!("{value} is outside {low}–{highest}"));
        }
        // Sunday is 0 and 7.
        Ok(if index == WEEKDAY { value % 7 } else { value })
    };
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => match digits(step).filter(|step| *step > 0) {
            Some(step) => (range, Some(step)),
            None => return Err(format!("step {step:?} is not a number above 0")),
        },
        None => (item, None),
    };
    let (from, to) = match range.split_once('-') {
        _ if range == "*" => (low, high),
        Some((from, to)) => (number(from)?, number(to)?),
        None if step.is_some() => (number(range)?, high),
        None => return Ok(vec![number(range)?]),
    };
    let step = step.unwrap_or(1);
    let stepped = |from: u32, to: u32| (from..=to).step_by(step as usize);
    if from < to {
        return Ok(stepped(from, to).collect());
    }
    if from == to {
        // `4-4` wraps all the way around.
        return Ok(stepped(low, high).collect());
    }
    let mut values: Vec<u32> = stepped(from, high).collect();
    let last = values.last().copied().unwrap_or(from);
    // If the step passes the end, it continues `step` values after the last one, as croniter counts
    // them: the end itself is not included.
    let passed = u64::from(last) + u64::from(step) > u64::from(high) + 1;
    let skipped = if passed { step - (high - last) } else { 0 };
    values.extend(stepped(low.saturating_add(skipped), to));
    Ok(values)
}

fn digits(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}
