//! Where the result of a job goes.

use hermes_platforms::{HomeChannel, ThreadSyntax, definition};
use hermes_store::delivery::Target;
use hermes_store::jobs::Job;
use serde_json::Value;

use super::environment::JobEnvironment;

/// The resolved targets of a job, and the problems with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobTargets {
    pub targets: Vec<Target>,
    pub problems: Vec<String>,
}

/// `local`, `origin`, `all`, `telegram`, `telegram:-100:17`, `slack:#general`, with commas between.
pub(super) fn resolve(job: &Job, around: &dyn JobEnvironment) -> JobTargets {
    let deliver = job.deliver();
    let homes = around.homes();
    let mut places = JobTargets::default();
    for word in deliver.split(',').map(str::trim) {
        match word.to_lowercase().as_str() {
            "" | "local" => {}
            "all" => {
                for (platform, home) in &homes {
                    places.add(at_home(platform, home), around);
                }
            }
            // A job created at a terminal has no chat of its own.
            "origin" => {
                let first = || {
                    homes
                        .first()
                        .map(|(platform, home)| at_home(platform, home))
                };
                if let Some(target) = origin(job).or_else(first) {
                    places.add(target, around);
                }
            }
            _ => match named(word, job, &homes, around) {
                Ok(target) => places.add(target, around),
                Err(problem) => places.problems.push(problem),
            },
        }
    }
    places
}

impl JobTargets {
    fn add(&mut self, target: Target, around: &dyn JobEnvironment) {
        if !around.serves(&target.platform) {
            let problem = format!("{} is not set up in this home", target.platform);
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        } else if !self.targets.contains(&target) {
            self.targets.push(target);
        }
    }
}

/// The chat in which the job was created.
pub(super) fn origin(job: &Job) -> Option<Target> {
    let origin = job.fields().get("origin")?.as_object()?;
    let text = |name: &str| match origin.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    Some(Target {
        platform: text("platform")?.to_lowercase(),
        account: text("account").unwrap_or_default(),
        chat_id: text("chat_id")?,
        thread_id: text("thread_id"),
    })
}

fn at_home(platform: &str, home: &HomeChannel) -> Target {
    Target {
        platform: platform.to_owned(),
        account: String::new(),
        chat_id: home.chat_id.clone(),
        thread_id: home.thread_id.clone(),
    }
}

fn named(
    word: &str,
    job: &Job,
    homes: &[(String, HomeChannel)],
    around: &dyn JobEnvironment,
) -> Result<Target, String> {
    let Some((platform, address)) = word.split_once(':') else {
        let platform = word.to_lowercase();
        // The originating chat takes precedence over the home channel of its platform.
        if let Some(origin) = origin(job).filter(|origin| origin.platform == platform) {
            return Ok(origin);
        }
        let home = homes.iter().find(|(name, _)| *name == platform);
        let home = home.ok_or_else(|| {
            format!("{platform} has no home channel: send /sethome in the chat that is to be it")
        })?;
        return Ok(at_home(&platform, &home.1));
    };
    let (platform, address) = (platform.trim().to_lowercase(), address.trim());
    let known = around.find(&platform, address);
    if known.is_none() && address.starts_with('#') {
        return Err(format!("no chat {address} is known on {platform}"));
    }
    let (chat, thread) = split(&platform, known.as_deref().unwrap_or(address));
    if chat.is_empty() {
        return Err(format!("{word:?} names no chat"));
    }
    Ok(Target {
        platform,
        account: String::new(),
        chat_id: chat.to_owned(),
        thread_id: thread.map(str::to_owned),
    })
}

/// Chat and thread. Ids of some platforms contain colons.
fn split<'a>(platform: &str, address: &'a str) -> (&'a str, Option<&'a str>) {
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let syntax = definition(platform).map_or(ThreadSyntax::AfterNumber, |one| one.threads);
    let parts = match syntax {
        _ if platform == "matrix" => address
            .rfind(":$")
            .map(|at| (&address[..at], &address[at + 1..])),
        ThreadSyntax::Timestamp => address.rsplit_once(':').filter(|(_, thread)| {
            thread
                .split_once('.')
                .is_some_and(|(seconds, rest)| number(seconds) && number(rest))
        }),
        ThreadSyntax::Number => address.rsplit_once(':').filter(|(_, topic)| number(topic)),
        ThreadSyntax::AfterNumber => address
            .rsplit_once(':')
            .filter(|(chat, thread)| number(chat) && number(thread)),
    };
    match parts {
        Some((chat, thread)) => (chat, Some(thread)),
        None => (address, None),
    }
}

#[cfg(test)]
mod tests {
    use hermes_store::jobs::parse_schedule;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    struct TestEnvironment;

    impl JobEnvironment for TestEnvironment {
        fn homes(&self) -> Vec<(String, HomeChannel)> {
            let home = |chat: &str, thread: Option<&str>| HomeChannel {
                chat_id: chat.to_owned(),
                thread_id: thread.map(str::to_owned),
                name: None,
            };
            vec![
                ("telegram".to_owned(), home("1", Some("9"))),
                ("slack".to_owned(), home("C1", None)),
            ]
        }

        fn serves(&self, platform: &str) -> bool {
            ["telegram", "slack", "discord"].contains(&platform)
        }

        fn find(&self, platform: &str, name: &str) -> Option<String> {
            (platform == "slack" && name == "#general").then(|| "C0GENERAL".to_owned())
        }

        fn route(&self) -> Option<(String, String)> {
            None
        }
    }

    fn places(deliver: &str, origin: &Value) -> (Vec<String>, Vec<String>) {
        let parsed = parse_schedule("every 1h", &chrono::Utc::now()).unwrap();
        let mut job = Job::new("j", "p", &parsed, "");
        job.set("deliver", json!(deliver));
        job.set("origin", origin.clone());
        let JobTargets { targets, problems } = resolve(&job, &TestEnvironment);
        let shown = targets.iter().map(|target| {
            let thread = target.thread_id.as_deref().unwrap_or("-");
            format!("{} {} {thread}", target.platform, target.chat_id)
        });
        (shown.collect(), problems)
    }

    #[test]
    fn every_word_finds_its_place_once() {
        let here = json!({"platform": "discord", "chat_id": 5, "thread_id": "6"});
        for (deliver, origin, wanted) in [
            ("local", &here, vec![]),
            ("origin", &here, vec!["discord 5 6"]),
            ("discord", &here, vec!["discord 5 6"]),
            ("origin", &Value::Null, vec!["telegram 1 9"]),
            ("origin", &json!("a note"), vec!["telegram 1 9"]),
            ("telegram", &here, vec!["telegram 1 9"]),
            ("all", &here, vec!["telegram 1 9", "slack C1 -"]),
            (
                "all, slack:C1, TELEGRAM:1:9",
                &here,
                vec!["telegram 1 9", "slack C1 -"],
            ),
            ("telegram:-100:17,local", &here, vec!["telegram -100 17"]),
            ("telegram:@name", &here, vec!["telegram @name -"]),
            ("slack:C1:1700.5", &here, vec!["slack C1 1700.5"]),
            ("slack:#general", &here, vec!["slack C0GENERAL -"]),
            ("discord:12:34", &here, vec!["discord 12 34"]),
        ] {
            let (targets, problems) = places(deliver, origin);
            assert_eq!(targets, wanted, "{deliver}");
            assert_eq!(problems, [""; 0], "{deliver}");
        }
    }

    #[test]
    fn what_leads_nowhere_is_said() {
        for (deliver, wanted) in [
            ("discord", "no home channel"),
            ("email:a@b.c", "not set up"),
            ("slack:#nowhere", "no chat #nowhere"),
            ("telegram:", "names no chat"),
        ] {
            let (targets, problems) = places(deliver, &Value::Null);
            assert_eq!(targets, [""; 0]);
            assert!(
                problems.len() == 1 && problems[0].contains(wanted),
                "{problems:?}"
            );
        }
    }
}
