//! Files in messages.

use serde_json::{Value, json};

use super::answer::{BotAnswer, BotError, bad};
use super::markup::{parse, utf16};
use super::params::BotParams;
use super::state::{FakeTelegramState, StoredFile};

/// Captions are shorter than texts.
const CAPTION: usize = 1024;
/// What the public service takes and gives.
const UPLOAD: usize = 50 * 1024 * 1024;
const DOWNLOAD: u64 = 20 * 1024 * 1024;

/// A file as a message of this kind describes it.
pub(super) fn described(kind: &str, file: &StoredFile) -> Value {
    let mut about = json!({
        "file_id": file.id,
        "file_unique_id": format!("u{}", file.id),
        "file_size": file.size,
    });
    match kind {
        "photo" => {
            about["width"] = json!(640);
            about["height"] = json!(480);
            let mut small = about.clone();
            small["width"] = json!(90);
            small["height"] = json!(67);
            small["file_id"] = json!(format!("{}-small", file.id));
            return json!([small, about]);
        }
        "voice" | "audio" => about["duration"] = json!(3),
        "video" | "animation" => {
            about["duration"] = json!(3);
            about["width"] = json!(640);
            about["height"] = json!(480);
        }
        "sticker" => {
            about["width"] = json!(512);
            about["height"] = json!(512);
            about["type"] = json!("regular");
            about["is_animated"] = json!(false);
            about["is_video"] = json!(false);
            about["emoji"] = json!("👍");
            return about;
        }
        _ => {}
    }
    if kind != "voice" {
        about["file_name"] = json!(file.name);
    }
    if let Some(mime) = &file.mime {
        about["mime_type"] = json!(mime);
    }
    about
}

impl FakeTelegramState {
    /// `sendPhoto` and its kind.
    pub(super) fn send_file(&mut self, kind: &str, params: &BotParams) -> BotAnswer {
        let file = self.file_of(params, kind, params.text(kind))?;
        let content = media_content(kind, &file, params.text("caption"), params)?;
        self.post(params, content)
    }

    pub(super) fn send_media_group(&mut self, params: &BotParams) -> BotAnswer {
        let Some(Value::Array(items)) = params.value("media")? else {
            return Err(bad("media must be a non-empty array"));
        };
        if !(2..=10).contains(&items.len()) {
            return Err(bad("there must be from 2 to 10 media in an album"));
        }
        let mut contents = Vec::new();
        for item in &items {
            let kind = item["type"].as_str().unwrap_or_default().to_owned();
            let file = self.file_of(params, "media", item["media"].as_str())?;
            let mut own = params.clone();
            own.fields.remove("parse_mode");
            if let Some(mode) = item["parse_mode"].as_str() {
                own.fields.insert("parse_mode".to_owned(), mode.to_owned());
            }
            contents.push(media_content(&kind, &file, item["caption"].as_str(), &own)?);
        }
        let album = json!(format!("album-{}", self.next_file));
        let mut messages = Vec::new();
        for mut content in contents {
            content["media_group_id"] = album.clone();
            messages.push(self.post(params, content)?);
        }
        Ok(json!(messages))
    }

    /// The file that a field names: uploaded with the call, or known.
    fn file_of(
        &mut self,
        params: &BotParams,
        field: &str,
        named: Option<&str>,
    ) -> Result<StoredFile, BotError> {
        let attached = named.and_then(|name| name.strip_prefix("attach://"));
        if let Some(upload) = params.files.get(attached.unwrap_or(field)) {
            if upload.bytes.is_empty() {
                return Err(bad("file must be non-empty"));
            }
            if upload.bytes.len() > UPLOAD {
                return Err(super::answer::error(413, "Request Entity Too Large"));
            }
            let upload = upload.clone();
            return Ok(self.store_file(&upload.name, upload.mime.as_deref(), &upload.bytes));
        }
        let known = named.and_then(|id| self.files.get(id.trim_end_matches("-small")));
        known.cloned().ok_or_else(|| match named {
            Some(url) if url.starts_with("http") => bad("failed to get HTTP URL content"),
            Some(_) => bad("wrong file identifier/HTTP URL specified"),
            None => bad("there is no file in the request"),
        })
    }

    pub(super) fn get_file(&self, params: &BotParams) -> BotAnswer {
        let id = params.text("file_id").unwrap_or_default();
        let file = self
            .files
            .get(id.trim_end_matches("-small"))
            .ok_or_else(|| bad("invalid file_id"))?;
        if file.size > DOWNLOAD {
            return Err(bad("file is too big"));
        }
        Ok(json!({
            "file_id": id,
            "file_unique_id": format!("u{}", file.id),
            "file_size": file.size,
            "file_path": format!("files/{}/{}", file.id, base_name(&file.name)),
        }))
    }
}

fn media_content(
    kind: &str,
    file: &StoredFile,
    caption: Option<&str>,
    params: &BotParams,
) -> Result<Value, BotError> {
    if kind == "photo" && !is_image(&file.bytes) {
        return Err(bad("IMAGE_PROCESS_FAILED"));
    }
    let (caption, entities) = parse(params.text("parse_mode"), caption.unwrap_or(""))?;
    if utf16(&caption) > CAPTION {
        return Err(bad("message caption is too long"));
    }
    let mut content = json!({});
    content[kind] = described(kind, file);
    if !caption.is_empty() {
        content["caption"] = json!(caption);
    }
    if !entities.is_empty() {
        content["caption_entities"] = json!(entities);
    }
    Ok(content)
}

/// Paths of the service are harmless, whatever people call their files.
fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

fn is_image(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG") || bytes.starts_with(b"\xff\xd8") || bytes.starts_with(b"RIFF")
}
