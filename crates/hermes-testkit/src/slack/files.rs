//! Files, both ways.

use serde_json::{Value, json};

use super::methods::{MethodAnswer, refuse};
use super::state::{FakeSlackState, SlackUpload};

impl FakeSlackState {
    /// `files.getUploadURLExternal`.
    pub(super) fn upload_url(&mut self, team: &str, args: &Value) -> MethodAnswer {
        let name = args["filename"].as_str().unwrap_or_default();
        let length = number(&args["length"]);
        if name.is_empty() || length == 0 {
            return refuse("invalid_arguments");
        }
        let id = format!("F{:08}", self.number());
        let url = format!("http://{}/upload/{id}", self.web);
        self.uploads.insert(
            id.clone(),
            SlackUpload {
                id: id.clone(),
                team: team.to_owned(),
                name: name.to_owned(),
                length,
                bytes: None,
                complete: false,
            },
        );
        Ok(json!({"upload_url": url, "file_id": id}))
    }

    /// The bytes of a file. `false`: there is no such file, or it has another length.
    pub(super) fn upload(&mut self, id: &str, bytes: &[u8]) -> bool {
        let Some(upload) = self.uploads.get_mut(id) else {
            return false;
        };
        if upload.length != bytes.len() {
            return false;
        }
        upload.bytes = Some(bytes.to_vec());
        true
    }

    /// `files.completeUploadExternal`: the file is shared as a message.
    pub(super) fn complete(&mut self, team: &str, args: &Value) -> MethodAnswer {
        let wanted = structured(&args["files"]);
        let wanted = wanted.as_array().cloned().unwrap_or_default();
        if wanted.is_empty() {
            return refuse("invalid_arguments");
        }
        let mut files = Vec::new();
        for one in &wanted {
            let id = one["id"].as_str().unwrap_or_default();
            let Some(upload) = self.uploads.get_mut(id) else {
                return refuse("file_not_found");
            };
            if upload.bytes.is_none() {
                return refuse("file_not_found");
            }
            upload.complete = true;
            let title = one["title"].as_str().unwrap_or(&upload.name).to_owned();
            files.push(json!({
                "id": id, "name": upload.name, "title": title, "size": upload.length,
                "mimetype": "application/octet-stream",
            }));
        }
        let channel = args["channel_id"].as_str().or(args["channels"].as_str());
        if let Some(channel) = channel {
            if self.channel(team, channel).is_none() {
                return refuse("channel_not_found");
            }
            self.share(team, channel, args, &files);
        }
        Ok(json!({"files": files}))
    }

    fn share(&mut self, team: &str, channel: &str, args: &Value, files: &[Value]) {
        let ts = self.next_ts();
        let owner = self.team(team);
        let mut message = json!({
            "type": "message", "subtype": "file_share", "ts": ts, "user": owner.bot_user,
            "bot_id": owner.bot_id, "app_id": "A1", "team": team, "files": files,
            "text": args["initial_comment"].as_str().unwrap_or_default(),
        });
        let blocks = structured(&args["blocks"]);
        if blocks.is_array() && args["initial_comment"].as_str().is_none_or(str::is_empty) {
            message["blocks"] = blocks;
        }
        if let Some(thread) = args["thread_ts"].as_str() {
            message["thread_ts"] = json!(thread);
        }
        self.keep(team, channel, message);
        self.announce(team, channel, &ts);
    }
}

/// A number, also where a form has it as text.
pub(super) fn number(value: &Value) -> usize {
    let number = value.as_u64().map(|number| number as usize);
    number
        .or_else(|| value.as_str()?.parse().ok())
        .unwrap_or_default()
}

/// What a form has as JSON text.
pub(super) fn structured(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    }
}
