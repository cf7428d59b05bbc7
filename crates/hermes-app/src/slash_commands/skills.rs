//! Skills and bundles of skills in a conversation.

use hermes_core::event::UserInput;
use hermes_core::figures;
use hermes_core::front_end::Effect;
use hermes_store::skills::{Skill, SkillBundle, SkillBundles, SkillLibrary, command_name};

use crate::conversation::{CommandResult, Conversation};
use crate::failure::{Failure, skill_failure};
use crate::front::CommandFollowUp;
use crate::text::shorten;
use crate::wiring::skills::SkillLoader;

/// Maximum number of skills in one line.
const MAX_STACKED: usize = 5;

fn library(conversation: &Conversation) -> Result<SkillLibrary, Failure> {
    let config = conversation.cx.load_config()?.config;
    let platform = conversation.options.source.as_deref().unwrap_or("cli");
    Ok(SkillLibrary::of_home(
        &conversation.cx.home,
        &config,
        Some(platform),
    ))
}

pub(super) fn skills(conversation: &Conversation, words: &str) -> Result<CommandResult, Failure> {
    let words = words.to_lowercase();
    let lines: Vec<String> = library(conversation)?
        .scan()
        .into_iter()
        .filter(|skill| {
            let all = format!("{} {}", skill.name, skill.description).to_lowercase();
            words.split_whitespace().all(|word| all.contains(word))
        })
        .map(|skill| {
            let off = if skill.enabled { "" } else { " (off)" };
            let about = shorten(&skill.description, 70);
            format!("  {}{off}: {about}", skill.name)
        })
        .collect();
    if lines.is_empty() {
        return Ok(CommandResult::info(
            "no skills; hermes skills shows where they go",
        ));
    }
    Ok(CommandResult::plain(lines.join("\n")))
}

/// `/bundles`: several skills under one name.
pub(super) fn bundles(conversation: &Conversation) -> CommandResult {
    let bundles = SkillBundles::for_home(&conversation.cx.home);
    let (found, problems) = bundles.scan();
    if found.is_empty() && problems.is_empty() {
        return CommandResult::info(
            "no bundles; hermes bundles create NAME --skill A --skill B makes one",
        );
    }
    let lines = found.iter().map(|bundle| {
        let about = shorten(&bundle.description, 60);
        format!(
            "  /{}: {about} ({})",
            bundle.command(),
            bundle.skills.join(", ")
        )
    });
    let wrong = problems.iter().map(|why| format!("  not used: {why}"));
    CommandResult::plain(lines.chain(wrong).collect::<Vec<_>>().join("\n"))
}

/// Skills are read for every prompt; this only lists them.
pub(super) fn reload_skills(conversation: &Conversation) -> Result<CommandResult, Failure> {
    let count = library(conversation)?.scan().len();
    Ok(CommandResult::info(format!(
        "{}; the model learns about new ones in the next session; /<name> works now",
        figures::count(count, "skill")
    )))
}

/// The skills behind a name.
struct InvokedSkills {
    /// The name for display.
    label: String,
    /// The command to type.
    command: String,
    skills: Vec<String>,
    instruction: String,
    words: String,
}

/// `/<skill> words`, `/<bundle> words`: sends the skills with the words to the model. `None`:
/// unknown name.
pub(super) async fn use_skill(
    conversation: &mut Conversation,
    name: &str,
    rest: &str,
) -> Option<Result<CommandResult, Failure>> {
    let library = library(conversation).ok()?;
    let named = match SkillBundles::for_home(&conversation.cx.home).find(name) {
        Some(bundle) => of_bundle(bundle, rest),
        None => of_skills(&library, name, rest)?,
    };
    Some(with_skills(conversation, &library, named).await)
}

fn of_bundle(bundle: SkillBundle, rest: &str) -> InvokedSkills {
    InvokedSkills {
        command: bundle.command(),
        label: format!("the bundle {}", bundle.name),
        skills: bundle.skills,
        instruction: bundle.instruction,
        words: rest.to_owned(),
    }
}

/// One or several skills at the beginning of the line: `/a /b words`.
fn of_skills(library: &SkillLibrary, name: &str, rest: &str) -> Option<InvokedSkills> {
    let known: Vec<Skill> = library.scan();
    let find = |typed: &str| {
        let typed = command_name(typed);
        let mut enabled = known.iter().filter(|skill| skill.enabled);
        enabled.find(|skill| command_name(&skill.name) == typed)
    };
    let mut skills = vec![find(name)?.name.clone()];
    let mut words = rest.trim_start();
    while skills.len() < MAX_STACKED
        && let Some(typed) = words.strip_prefix('/')
    {
        let end = typed.find(char::is_whitespace).unwrap_or(typed.len());
        let Some(skill) = find(&typed[..end]) else {
            break;
        };
        if !skills.contains(&skill.name) {
            skills.push(skill.name.clone());
        }
        words = typed[end..].trim_start();
    }
    let commands: Vec<String> = skills.iter().map(|name| command_name(name)).collect();
    Some(InvokedSkills {
        label: match skills.as_slice() {
            [one] => format!("the skill {one}"),
            several => format!("the skills {}", several.join(", ")),
        },
        command: commands.join(" /"),
        words: words.to_owned(),
        instruction: String::new(),
        skills,
    })
}

async fn with_skills(
    conversation: &mut Conversation,
    library: &SkillLibrary,
    named: InvokedSkills,
) -> Result<CommandResult, Failure> {
    let line = format!("/{} {}", named.command, named.words);
    if let Some(result) = conversation.check_ready(line.trim_end()).await? {
        return Ok(result);
    }
    let chat = &conversation.chat;
    let loader = SkillLoader {
        library,
        commands: chat.commands.as_deref(),
        inline: chat.inline.as_ref(),
        session: Some(chat.id.as_str()),
    };
    let (mut loaded, mut texts, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let mut first_failure = None;
    for name in &named.skills {
        match loader.load(name).await {
            Ok(skill) => {
                texts.push(skill.instructions());
                loaded.push(skill.name);
            }
            Err(error) => {
                left_out.push(format!("{name} ({error})"));
                first_failure.get_or_insert_with(|| skill_failure(&error));
            }
        }
    }
    if let (true, Some(failure)) = (loaded.is_empty(), first_failure) {
        return Err(failure);
    }
    let words = if named.words.is_empty() {
        format!("Use {}.", named.label)
    } else {
        named.words
    };
    let mut context = match loaded.as_slice() {
        [one] => format!("The person wants you to follow the skill {one} for this:"),
        several => format!(
            "The person wants you to follow these skills together for this: {}",
            several.join(", ")
        ),
    };
    for part in [named.instruction].into_iter().chain(texts) {
        if !part.is_empty() {
            context.push_str("\n\n");
            context.push_str(&part);
        }
    }
    let input = UserInput {
        text: words.clone(),
        context: Some(context),
        ..UserInput::default()
    };
    let message = conversation.message(input);
    conversation.chat.send(message).await?;
    let mut result = CommandResult::info(format!("with {}", named.label));
    if !left_out.is_empty() {
        result = result.and(crate::conversation::show_text(
            hermes_core::front_end::TextKind::Warning,
            format!("left out: {}", left_out.join(", ")),
        ));
    }
    Ok(result.and(Effect::Asked(words)).then(CommandFollowUp::Turn))
}
