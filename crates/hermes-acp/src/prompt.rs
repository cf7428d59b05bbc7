//! Converts an editor's prompt to user input.

use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hermes_core::event::UserInput;
use hermes_core::image;
use hermes_core::message::Part;
use url::Url;

/// Attached text that is sent along, in bytes.
const MAX_ATTACHED_BYTES: usize = 1024 * 1024;

/// Why a prompt is not accepted, for display.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PromptBlockError(String);

/// Reads a prompt.
pub(crate) fn read(blocks: &[ContentBlock]) -> Result<UserInput, PromptBlockError> {
    let mut input = UserInput::default();
    let mut attached = Vec::new();
    for block in blocks {
        match block {
            ContentBlock::Text(text) => input.text.push_str(&text.text),
            ContentBlock::Image(image) => input.images.push(picture(&image.data)?),
            ContentBlock::ResourceLink(link) => mention(&mut input.text, &link.uri),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => {
                    mention(&mut input.text, &text.uri);
                    attached.push(attachment(&text.uri, &text.text));
                }
                EmbeddedResourceResource::BlobResourceContents(blob) => {
                    mention(&mut input.text, &blob.uri);
                    let mime = blob.mime_type.as_deref().unwrap_or_default();
                    if mime.starts_with("image/") {
                        input.images.push(picture(&blob.blob)?);
                    } else {
                        let text = decoded(&blob.blob)
                            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| {
                                PromptBlockError(format!(
                                    "{} is neither text nor an image; save it as a file and name its path",
                                    name(&blob.uri)
                                ))
                            }))?;
                        attached.push(attachment(&blob.uri, &text));
                    }
                }
                _ => return Err(unknown()),
            },
            ContentBlock::Audio(_) => {
                return Err(PromptBlockError(
                    "sound cannot be taken; send text, images or files".to_owned(),
                ));
            }
            _ => return Err(unknown()),
        }
    }
    let size: usize = attached.iter().map(String::len).sum();
    if size > MAX_ATTACHED_BYTES {
        return Err(PromptBlockError(format!(
            "the attached text has {size} bytes, at most {MAX_ATTACHED_BYTES} can be sent along; \
             name the files instead, they are read when needed"
        )));
    }
    if !attached.is_empty() {
        input.context = Some(attached.join("\n\n"));
    }
    if input.text.trim().is_empty() && input.images.is_empty() {
        return Err(PromptBlockError("the prompt is empty".to_owned()));
    }
    Ok(input)
}

fn unknown() -> PromptBlockError {
    PromptBlockError("the prompt has a part of an unknown kind".to_owned())
}

fn decoded(data: &str) -> Result<Vec<u8>, PromptBlockError> {
    STANDARD
        .decode(data.trim())
        .map_err(|error| PromptBlockError(format!("an attachment is not base64: {error}")))
}

/// The bytes determine the type, not the editor's claim.
fn picture(data: &str) -> Result<Part, PromptBlockError> {
    let bytes = decoded(data)?;
    image::part(&bytes)
        .map_err(|error| PromptBlockError(format!("an image cannot be taken: {error}")))
}

/// A file of the machine as its path, anything else as its address.
fn name(uri: &str) -> String {
    let path = Url::parse(uri)
        .ok()
        .filter(|url| url.scheme() == "file")
        .and_then(|url| url.to_file_path().ok());
    match path {
        Some(path) => path.display().to_string(),
        None => uri.to_owned(),
    }
}

fn mention(text: &mut String, uri: &str) {
    if !text.is_empty() && !text.ends_with(char::is_whitespace) {
        text.push(' ');
    }
    text.push('@');
    text.push_str(&name(uri));
    text.push(' ');
}

fn attachment(uri: &str, text: &str) -> String {
    format!("The person attached {}:\n\n{text}", name(uri))
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink,
        TextContent, TextResourceContents,
    };
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn files_are_named_in_place_and_their_text_goes_along() {
        let resource = TextResourceContents::new("fn main() {}", "file:///w/a%20b.rs");
        let input = read(&[
            ContentBlock::Text(TextContent::new("look at")),
            ContentBlock::ResourceLink(ResourceLink::new("c", "file:///w/c.rs")),
            ContentBlock::Text(TextContent::new("and")),
            ContentBlock::Resource(EmbeddedResource::new(
                EmbeddedResourceResource::TextResourceContents(resource),
            )),
        ])
        .unwrap();
        assert_eq!(input.text, "look at @/w/c.rs and @/w/a b.rs ");
        assert_eq!(
            input.context.unwrap(),
            "The person attached /w/a b.rs:\n\nfn main() {}"
        );
    }

    #[test]
    fn images_are_what_their_bytes_are() {
        let gif = STANDARD.encode(b"GIF89a");
        let input = read(&[ContentBlock::Image(ImageContent::new(gif, "image/png"))]).unwrap();
        assert!(matches!(&input.images[0], Part::Image { image_url, .. }
            if image_url.url.starts_with("data:image/gif;base64,")));
        let text = STANDARD.encode(b"text");
        assert!(read(&[ContentBlock::Image(ImageContent::new(text, "image/png"))]).is_err());
        assert!(read(&[ContentBlock::Image(ImageContent::new("%%%", "image/png"))]).is_err());
    }

    #[test]
    fn what_cannot_be_taken_is_said() {
        let blob = BlobResourceContents::new(STANDARD.encode([0xff, 0xfe, 0]), "file:///w/x.bin");
        let blob = ContentBlock::Resource(EmbeddedResource::new(
            EmbeddedResourceResource::BlobResourceContents(blob),
        ));
        let said = read(&[blob]).unwrap_err().to_string();
        assert!(said.contains("/w/x.bin"), "{said}");
        let sound = ContentBlock::Audio(AudioContent::new("", "audio/wav"));
        assert!(read(&[sound]).is_err());
        assert!(read(&[]).is_err());
        assert!(read(&[ContentBlock::Text(TextContent::new(" \n"))]).is_err());
    }
}
