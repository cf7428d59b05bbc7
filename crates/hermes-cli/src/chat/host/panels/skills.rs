//! `/skills`: the installed skills, to read and to switch on or off.

use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_core::front_end::TextKind;
use hermes_store::skills::{Skill, SkillLibrary, SkillOrFile};
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRequest, PanelRow, RowMark};
use serde_json::json;

use super::{PanelKeyResult, key, page, row, short, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::counted;
use crate::exit::Failure;

pub(super) const ID: &str = "skills";

fn library(conversation: &ScreenConversation) -> Result<SkillLibrary, Failure> {
    let config = conversation.cx.load_config()?.config;
    Ok(SkillLibrary::of_home(
        &conversation.cx.home,
        &config,
        Some("cli"),
    ))
}

pub(super) fn panel(conversation: &ScreenConversation) -> Result<Panel, Failure> {
    Ok(shown(&library(conversation)?.scan()))
}

fn shown(skills: &[Skill]) -> Panel {
    let mut groups: Vec<PanelGroup> = Vec::new();
    for skill in skills {
        let title = skill.category.clone().unwrap_or_default();
        let row = PanelRow {
            id: skill.name.clone(),
            mark: if skill.enabled {
                RowMark::Good
            } else {
                RowMark::Off
            },
            cells: vec![skill.name.clone(), short(&skill.description, 90)],
            detail: format!(
                "{}\n{}",
                short(&skill.description, 400),
                skill.dir.display()
            ),
            ..PanelRow::default()
        };
        // They come by category.
        match groups.last_mut() {
            Some(group) if group.title == title => group.rows.push(row),
            _ => groups.push(PanelGroup {
                title,
                rows: vec![row],
            }),
        }
    }
    let off = skills.iter().filter(|skill| !skill.enabled).count();
    Panel {
        id: ID.to_owned(),
        title: "Skills".to_owned(),
        note: format!("{} · {off} off", counted(skills.len(), "skill")),
        groups,
        keys: vec![
            key("enter", "read", "view"),
            key("ctrl+o", "on/off", "toggle"),
            PanelKey {
                closes: true,
                ..key("ctrl+u", "use", "use")
            },
        ],
        filters: true,
        footer: if skills.is_empty() {
            vec!["no skills yet; /learn makes one of what was done".to_owned()]
        } else {
            Vec::new()
        },
        ..Panel::default()
    }
}

pub(super) fn act(
    conversation: &ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    let name = row(ask)?;
    match ask.action.as_str() {
        "view" => {
            let view = library(conversation)?.view(name, None, None);
            let content = match view.map_err(|error| crate::exit::skill_failure(&error))? {
                SkillOrFile::Skill(skill) => skill.content,
                SkillOrFile::File(file) => file.content.unwrap_or_default(),
            };
            Ok(PanelKeyResult::Page(page(
                name,
                TextKind::Markdown,
                content,
            )))
        }
        "use" => Ok(PanelKeyResult::Show(vec![
            hermes_core::front_end::Effect::Draft(format!(
                "/{} ",
                name.to_lowercase().replace([' ', '_'], "-")
            )),
        ])),
        "toggle" => toggle(conversation, name),
        _ => Err(unknown(ask)),
    }
}

fn toggle(conversation: &ScreenConversation, name: &str) -> Result<PanelKeyResult, Failure> {
    let config = conversation.cx.load_config()?.config;
    let found = library(conversation)?.scan();
    let skill = found.iter().find(|skill| skill.name == name);
    let skill =
        skill.ok_or_else(|| Failure::not_found(format!("there is no longer a skill {name:?}")))?;
    let mut off = config.skills.disabled.clone().unwrap_or_default();
    let for_cli = config.skills.platform_disabled.as_ref();
    let mut for_cli = for_cli.and_then(|all| all.get("cli")).cloned();
    let on = !skill.enabled;
    off.retain(|known| known.trim() != name);
    if let Some(for_cli) = &mut for_cli {
        for_cli.retain(|known| known.trim() != name);
    }
    if !on {
        off.push(name.to_owned());
    }
    let failed = |error: hermes_config::edit::EditError| Failure::failed(error.to_string());
    let home = &conversation.cx.home;
    home.ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut doc = ConfigDoc::open(&home.config_path()).map_err(failed)?;
    doc.set(&KeyPath::new(["skills", "disabled"]), &json!(off))
        .map_err(failed)?;
    if let Some(for_cli) = for_cli {
        let path = KeyPath::new(["skills", "platform_disabled", "cli"]);
        doc.set(&path, &json!(for_cli)).map_err(failed)?;
    }
    doc.save().map_err(failed)?;
    let word = if on { "on" } else { "off" };
    Ok(PanelKeyResult::Note(format!(
        "{name} is {word}; the model learns it in the next conversation"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, category: Option<&str>, enabled: bool) -> Skill {
        Skill {
            name: name.to_owned(),
            description: "does things".to_owned(),
            category: category.map(str::to_owned),
            dir: "/skills".into(),
            enabled,
        }
    }

    #[test]
    fn skills_stand_by_category_with_their_state() {
        let all = [
            skill("notes", None, true),
            skill("git", Some("dev"), true),
            skill("rust", Some("dev"), false),
        ];
        let panel = shown(&all);
        let titles: Vec<&str> = panel.groups.iter().map(|g| g.title.as_str()).collect();
        assert_eq!(titles, ["", "dev"]);
        assert_eq!(panel.groups[1].rows[1].mark, RowMark::Off);
        assert_eq!(panel.note, "3 skills · 1 off");
    }
}
