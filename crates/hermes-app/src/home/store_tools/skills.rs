//! The tools of the skills library.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_store::Subsystem;
use hermes_store::skills::{Managed, SkillError, SkillLibrary, SkillOrFile, SkillUseKind};
use serde_json::{Value, json};

use super::{StoreTools, blocking, expand_inline, waits};
use hermes_core::args::Args;

const TOOLSET: &str = "skills";
/// Of a change, when the person is asked about it.
const MAX_SHOWN_CHARS: usize = 4_000;

pub(super) struct SkillsList {
    spec: ToolSpec,
    deps: Arc<StoreTools>,
}

impl SkillsList {
    pub(super) fn new(deps: Arc<StoreTools>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "category": { "type": "string", "description": "Only skills of this category; other words are looked for in names and descriptions." },
            },
            "required": [],
        }));
        let description = "List the skills: names, descriptions, categories. \
            A skill is a set of instructions for one kind of task; load it with skill_view.";
        Self {
            spec: ToolSpec::new(
                "skills_list",
                TOOLSET,
                Effects::ReadOnly,
                description,
                parameters,
            ),
            deps,
        }
    }

    async fn run(&self, args: &ToolArgs) -> Result<Value, ToolOutcome> {
        let args = Args::new("skills_list", args);
        let given = |text: Option<&str>| {
            let text = text.map(str::trim).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        let category = given(args.text("category")?);
        // Without words it fits every skill; the listing is bounded all the same.
        let query = Some(String::new());
        let library = self.deps.skills.clone();
        blocking(move || library.list(category.as_deref(), query.as_deref())).await
    }
}

pub(super) struct SkillViewTool {
    spec: ToolSpec,
    deps: Arc<StoreTools>,
}

impl SkillViewTool {
    pub(super) fn new(deps: Arc<StoreTools>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "description": "A name from skills_list, or category/name when two skills share one.",
                },
                "file_path": {
                    "type": "string",
                    "description": "A file of the skill, as linked_files names it (references/api.md). Leave out for the skill itself.",
                },
            },
            "required": ["name"],
        }));
        let description = "Load a skill, or one of its files. \
            The skill comes with linked_files: reference texts, templates and scripts to load \
            when a step needs them. Follow the instructions of a skill that fits the task.";
        Self {
            spec: ToolSpec::new(
                "skill_view",
                TOOLSET,
                Effects::ReadOnly,
                description,
                parameters,
            ),
            deps,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new("skill_view", args);
        let name = args.required("name", "a name from skills_list")?.to_owned();
        let file = args.text("file_path")?.map(str::to_owned);
        let library = self.deps.skills.clone();
        let session = cx.session.clone();
        let declare = self.deps.declare.clone();
        let view = blocking(move || {
            let view = library.view(&name, file.as_deref(), Some(session.as_str()))?;
            for event in [SkillUseKind::Viewed, SkillUseKind::Used] {
                if let Err(error) = library.usage().bump(view.skill_name(), event) {
                    tracing::warn!(%error, "the use of a skill was not counted");
                }
            }
            if let (SkillOrFile::Skill(skill), Some(declare)) = (&view, declare) {
                for name in skill.env_names().filter(|name| !declare(name)) {
                    let skill = &skill.name;
                    tracing::warn!(%skill, %name, "a skill asks for a variable that it cannot have");
                }
            }
            Ok(view)
        });
        let mut view = view.await?.map_err(|error| refused(&error))?;
        if let SkillOrFile::Skill(skill) = &mut view {
            let content = std::mem::take(&mut skill.content);
            let run = self.deps.inline.as_ref();
            skill.content = expand_inline(content, skill.dir.as_deref(), run).await;
        }
        Ok(view.to_json())
    }
}

pub(super) struct SkillManage {
    spec: ToolSpec,
    deps: Arc<StoreTools>,
}

impl SkillManage {
    pub(super) fn new(deps: Arc<StoreTools>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["create", "patch", "edit", "delete", "write_file", "remove_file"],
                    "description": "patch is the way to correct a skill; edit rewrites all of it.",
                },
                "name": {
                    "type": "string",
                    "description": "The skill: a-z, 0-9, '.', '_' and '-', at most 64 characters.",
                },
                "content": {
                    "type": "string",
                    "description": "For create and edit: the whole SKILL.md, with a YAML head (name, description) between --- lines and instructions below.",
                },
                "old_string": {
                    "type": "string",
                    "description": "For patch: the text to replace, with enough around it to be unique.",
                },
                "new_string": {
                    "type": "string",
                    "description": "For patch: what comes in its place; empty to delete it.",
                },
                "replace_all": {
                    "type": "boolean",
                    "description": "For patch: replace every occurrence.",
                },
                "category": {
                    "type": "string",
                    "description": "For create: one directory name to sort the skill under.",
                },
                "file_path": {
                    "type": "string",
                    "description": "For write_file, remove_file and patch: a file below references/, templates/, scripts/ or assets/.",
                },
                "file_content": { "type": "string", "description": "For write_file: the text." },
                "absorbed_into": {
                    "type": "string",
                    "description": "For delete: the skill that has the content now; empty when it is simply dropped.",
                },
            },
            "required": ["action", "name"],
        }));
        let description = "Create, correct or delete skills, your lasting how-to notes. \
            Make one after a task that took effort and will come again: a way found after errors \
            or corrections, or a procedure the person wants kept. Say when it applies, give \
            numbered steps with exact commands, name the traps and how to check the result. \
            When a skill you used was wrong or incomplete, patch it before you finish. Ask the \
            person before you create or delete one; not for one-off work. Pinned skills cannot be \
            deleted, only patched.";
        Self {
            spec: ToolSpec::new(
                "skill_manage",
                TOOLSET,
                Effects::Exclusive,
                description,
                parameters,
            ),
            deps,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let change = Change::parse(args)?;
        let setting = (self.deps.skills_approval).then_some("skills.write_approval");
        if let Some(why) = waits(cx, "skill_manage", setting, &shown(&change, args)).await? {
            return self.stage(&change, args, cx, &why).await;
        }
        let library = self.deps.skills.clone();
        let background = self.deps.background;
        let managed = blocking(move || change.apply(&library, background)).await?;
        managed
            .map(|managed| managed.to_json())
            .map_err(|error| refused(&error))
    }

    async fn stage(
        &self,
        change: &Change,
        args: &ToolArgs,
        cx: &ToolContext,
        why: &str,
    ) -> Result<Value, ToolOutcome> {
        let mut payload = args.clone();
        payload.retain(|_, value| !value.is_null());
        let gist = change.gist();
        let (deps, clock, summary) = (Arc::clone(&self.deps), Arc::clone(&cx.clock), gist.clone());
        let staged = blocking(move || {
            deps.pending().stage(
                Subsystem::Skills,
                Value::Object(payload),
                &summary,
                deps.origin(),
                (&*clock, &*deps.rng),
            )
        })
        .await?;
        let staged = staged.map_err(|error| {
            let text = format!("the change could not be put aside for approval: {error}");
            ToolOutcome::error(ToolErrorKind::Failed, text)
        })?;
        Ok(json!({
            "success": true,
            "staged": true,
            "pending_id": staged.id,
            "gist": gist,
            "message": format!("Not saved yet: {why}. Go on without it."),
        }))
    }
}

/// Carries out a change of skills that waited for approval (`payload` of a pending record).
pub fn apply_pending_skill(library: &SkillLibrary, payload: &Value) -> Result<Managed, String> {
    let args = payload
        .as_object()
        .ok_or("the stored change is not an object")?;
    let change = Change::parse(args).map_err(|outcome| match outcome {
        ToolOutcome::Error { text, .. } => text,
        ToolOutcome::Done(content) => content.text().into_owned(),
    })?;
    change
        .apply(library, false)
        .map_err(|error| error.to_string())
}

/// What would be written, for the person.
fn shown(change: &Change, args: &ToolArgs) -> String {
    let text = ["content", "new_string", "file_content"]
        .iter()
        .find_map(|field| args.get(*field)?.as_str())
        .unwrap_or_default();
    let text: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    format!("{}\n{text}", change.gist()).trim_end().to_owned()
}

/// A call of `skill_manage` that was understood.
struct Change {
    name: String,
    kind: Kind,
}

enum Kind {
    Create {
        content: String,
        category: Option<String>,
    },
    Edit {
        content: String,
    },
    Patch {
        old: String,
        new: String,
        file: Option<String>,
        all: bool,
    },
    Delete {
        absorbed_into: Option<String>,
    },
    WriteFile {
        file: String,
        content: String,
    },
    RemoveFile {
        file: String,
    },
}

impl Change {
    fn parse(args: &ToolArgs) -> Result<Self, ToolOutcome> {
        let args = Args::new("skill_manage", args);
        let action = args.required(
            "action",
            "create, patch, edit, delete, write_file or remove_file",
        )?;
        let name = args
            .required("name", "the name of the skill")?
            .trim()
            .to_owned();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let document = || {
            args.required("content", "the whole SKILL.md")
                .map(str::to_owned)
        };
        let file = || {
            let file = args.required("file_path", "a path such as references/api.md");
            file.map(str::to_owned)
        };
        // These may be empty, but not absent: an empty text says what is meant.
        let given = |field: &str, example: &str| match args.text(field)? {
            Some(text) => Ok(text.to_owned()),
            None => Err(args.bad(&format!("{field} is missing; pass {example}"))),
        };
        let kind = match action {
            "create" => Kind::Create {
                content: document()?,
                category: owned(args.text("category")?),
            },
            "edit" => Kind::Edit {
                content: document()?,
            },
            "patch" => Kind::Patch {
                old: args
                    .required("old_string", "the text to replace")?
                    .to_owned(),
                new: given("new_string", "the new text, or an empty string to delete")?,
                file: owned(
                    args.text("file_path")?
                        .filter(|file| !file.trim().is_empty()),
                ),
                all: args.flag("replace_all")?,
            },
            "delete" => Kind::Delete {
                absorbed_into: owned(args.text("absorbed_into")?),
            },
            "write_file" => Kind::WriteFile {
                file: file()?,
                content: given("file_content", "the text of the file")?,
            },
            "remove_file" => Kind::RemoveFile { file: file()? },
            other => {
                let known = "create, patch, edit, delete, write_file or remove_file";
                return Err(args.bad(&format!("action is {other:?}; use {known}")));
            }
        };
        Ok(Self { name, kind })
    }

    fn apply(&self, library: &SkillLibrary, background: bool) -> Result<Managed, SkillError> {
        let name = &self.name;
        match &self.kind {
            Kind::Create { content, category } => {
                let made = library.create(name, content, category.as_deref())?;
                if background && let Err(error) = library.usage().mark_agent_created(name) {
                    tracing::warn!(%error, "a skill of a review was not marked as such");
                }
                Ok(made)
            }
            Kind::Edit { content } => library.edit(name, content),
            Kind::Patch {
                old,
                new,
                file,
                all,
            } => library.patch(name, (old, new), file.as_deref(), *all),
            Kind::Delete { absorbed_into } => library.delete(name, absorbed_into.as_deref()),
            Kind::WriteFile { file, content } => library.write_file(name, file, content),
            Kind::RemoveFile { file } => library.remove_file(name, file),
        }
    }

    /// One line for the person who approves it.
    fn gist(&self) -> String {
        let name = &self.name;
        match &self.kind {
            Kind::Create { content, .. } => {
                format!("create {name} ({} characters)", content.chars().count())
            }
            Kind::Edit { content } => {
                format!("rewrite {name} ({} characters)", content.chars().count())
            }
            Kind::Patch { old, new, file, .. } => {
                let file = file.as_deref().unwrap_or("SKILL.md");
                let (old, new) = (old.lines().count(), new.lines().count());
                format!("patch {file} of {name} ({old} lines → {new})")
            }
            Kind::Delete { .. } => format!("delete {name}"),
            Kind::WriteFile { file, content } => {
                format!("write {file} of {name} ({} bytes)", content.len())
            }
            Kind::RemoveFile { file } => format!("remove {file} of {name}"),
        }
    }
}

fn refused(error: &SkillError) -> ToolOutcome {
    let kind = match error {
        SkillError::Invalid(_) | SkillError::Ambiguous { .. } => ToolErrorKind::BadArguments,
        SkillError::Pinned(_) | SkillError::Disabled(_) => ToolErrorKind::Denied,
        _ => ToolErrorKind::Failed,
    };
    ToolOutcome::error(kind, error.to_json().to_string())
}

impl Tool for SkillsList {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, _cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args).await) })
    }
}

impl Tool for SkillViewTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

impl Tool for SkillManage {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}
